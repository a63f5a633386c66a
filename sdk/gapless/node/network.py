"""A network, described once: the file that all its nodes read, and what is refused of it.

    bundles = [["left", "middle"], ["middle", "right"]]      # which cells are neighbours
    links = [["a", "b"]]                                     # which nodes are

    [network]        name, secret or secret_file, router, insecure
    [network.tls]    certificate, key, ca: `{node}` in a path is the node's name
    [routing]        options of the router that all nodes have in common
    [[node]]         name, roles (none: it only stands between others), address, cell or place, options
    [[group]]        name, members, silence_seconds: pubends in total order

Cells are nodes that do the same job. Which maps make sense its router knows (`check_network` of the routing plugin).
`options` are sections of the node's own configuration, which what that says goes before.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations, product
from pathlib import Path
from typing import Any, Final

from pydantic import Field, SecretStr

from gapless import plugins
from gapless.core.network.facts import NetworkMap, NetworkNode
from gapless.errors import ConfigurationError, PluginError
from gapless.node.groups import GroupSection, unknown_nodes, wrong_groups
from gapless.settings import NODE_NAME, NetworkName, Section, parsed, read_toml, suggestion

TRANSPORT: Final = "tcp"
"""What links between nodes are made of."""
SECRET_BYTES_MIN: Final = 16


class NetworkTls(Section):
    """With which certificates nodes prove who they are. `{node}` in a path is the node's name."""

    certificate: Path
    """PEM file; its common name is the node's name, and it is good for the host of the node's address."""
    key: Path | None = None
    ca: Path
    """PEM file with the authorities whose certificates nodes have."""


class NetworkSettings(Section):
    """What concerns the whole network."""

    name: NetworkName = Field(min_length=1, max_length=255)
    secret: SecretStr | None = None
    secret_file: Path | None = None
    """Holds the secret; relative to the network's file."""
    router: str = "knowledge"
    insecure: bool = False
    """Whether links may leave this machine without TLS."""
    tls: NetworkTls | None = None


class NodeSettings(Section):
    """A node of the network."""

    name: str = Field(min_length=1, max_length=255, pattern=NODE_NAME)
    roles: tuple[str, ...] = ()
    address: str
    """Where other nodes dial it."""
    cell: str = ""
    """Whose other nodes are its neighbours; bundles lead from cell to cell."""
    place: str = ""
    """Where it stands, as the router needs it, if that is no cell."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Sections of its configuration."""


class NetworkFile(Section):
    """The whole file."""

    network: NetworkSettings
    node: tuple[NodeSettings, ...] = Field(min_length=1)
    bundles: tuple[tuple[str, str], ...] = ()
    """Of cells: each node of the one is a neighbour of each of the other."""
    links: tuple[tuple[str, str], ...] = ()
    """Of nodes, beside those that cells and bundles make."""
    routing: dict[str, Any] = Field(default_factory=dict)
    """Options of the router that all nodes have in common."""
    group: tuple[GroupSection, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkDescription:
    """A network that makes sense."""

    path: Path
    file: NetworkFile
    secret: bytes
    """b"": it has none."""

    def __repr__(self) -> str:
        return f"NetworkDescription({str(self.path)!r})"  # never the secret

    @property
    def name(self) -> str:
        """Of the network."""
        return self.file.network.name

    def node(self, name: str) -> NodeSettings:
        """The node of that name. Raises ConfigurationError if there is none."""
        for node in self.file.node:
            if node.name == name:
                return node
        names = [node.name for node in self.file.node]
        raise ConfigurationError(f"{self.path}: there is no node {name!r}{suggestion(name, names)}; {_list(names)} are")

    @property
    def cells(self) -> dict[str, list[str]]:
        """The nodes of each cell, by its name; some nodes may be in none."""
        return _cells(self.file)

    def map(self) -> NetworkMap:
        """What every router of the network is given."""
        return _map(self.file)

    @property
    def digest(self) -> bytes:
        """Differs from that of any other map, and where routers have other options in common."""
        nodes = sorted((node.name, sorted(node.roles), node.address, node.cell, node.place) for node in self.file.node)
        bundles, links = (sorted(map(sorted, pairs)) for pairs in (self.file.bundles, self.file.links))
        groups = sorted((group.name, sorted(group.members)) for group in self.file.group)
        described = [self.name, self.file.network.router, self.file.routing, nodes, bundles, links, groups]
        # A date, which JSON has not, is as good as its text.
        return sha256(json.dumps(described, sort_keys=True, default=str).encode()).digest()[:16]

    def transport_options(self, node: str) -> dict[str, Any]:
        """With which options a node's transport is made, for listening and for dialing."""
        tls = self.file.network.tls
        if tls is None:
            return {}
        certificate, ca = self._file_of(tls.certificate, node), self._file_of(tls.ca, node)
        options: dict[str, Any] = {"certificate": certificate, "client_ca": ca, "tls": True, "ca": ca}
        return options if tls.key is None else options | {"key": self._file_of(tls.key, node)}

    def check_listening(self, address: str, transport: Any) -> None:
        """Raises ConfigurationError when links may not be taken at an address."""
        problems = _exposure(self.file.network, [address], self.secret, transport)
        if problems:
            raise ConfigurationError(f"{self.path}: {'; '.join(problems)}")

    def _file_of(self, path: Path, node: str) -> Path:
        return self.path.parent / str(path).replace("{node}", node)


@dataclass(frozen=True, slots=True)
class NodeMembership:
    """A node's place in a network."""

    network: NetworkDescription
    node: NodeSettings
    listen: str
    """Where it takes the links of others."""

    @classmethod
    def of(cls, path: Path, node: str, listen: str = "") -> NodeMembership:
        """That of the node of this name. Raises ConfigurationError."""
        network = load_network(path)
        settings = network.node(node)
        return cls(network, settings, listen or settings.address)


def load_network(path: Path) -> NetworkDescription:
    """The network that a file describes. Raises ConfigurationError: a line for each thing that is wrong with it.

    Its map and the options that its nodes have in common are also judged by its router's plugin, which must be there.
    """
    file = parsed(NetworkFile, read_toml(path), str(path))
    secret, problems = _secret(path, file.network)
    problems += [*_wrong_nodes(file), *_wrong_options(file), *_wrong_bundles(file), *_wrong_links(file)]
    problems += [*_wrong_map(file), *wrong_groups(file.group)]
    problems += unknown_nodes(file.group, {node.name: node.roles for node in file.node})
    problems += _wrong_addresses(file, secret)
    if problems:
        raise ConfigurationError("\n".join(f"{path}: {problem}" for problem in problems))
    return NetworkDescription(path, file, secret)


def join(settings: Mapping[str, Any], membership: NodeMembership, source: str) -> dict[str, Any]:
    """A node's configuration with what the network's file says of it. Raises ConfigurationError where they differ."""
    node, path = membership.node, membership.network.path
    joined: dict[str, Any] = {**settings}
    for name, section in node.options.items():
        own = joined.get(name, {} if isinstance(section, Mapping) else section)
        joined[name] = {**section, **own} if isinstance(own, Mapping) and isinstance(section, Mapping) else own
    given: dict[str, dict[str, Any]] = {
        "node": {"name": node.name, "network": membership.network.name, "roles": list(node.roles)},
        "routing": {"plugin": membership.network.file.network.router, **membership.network.file.routing},
    }
    for section, keys in given.items():
        own = joined.get(section, {})
        for key, value in keys.items():
            unset = () if key in membership.network.file.routing and section == "routing" else ("",)
            if isinstance(own, Mapping) and own.get(key, value) not in (value, *unset):
                raise ConfigurationError(
                    f"{source}: {section}.{key} is {own[key]!r}, and {value!r} in {path}: leave it to that file"
                )
        if isinstance(own, Mapping):
            joined[section] = {**own, **keys}
    groups = [group.model_dump() for group in membership.network.file.group]
    if joined.setdefault("group", groups) != groups:
        raise ConfigurationError(f"{source}: group: {path} has the groups of the network: leave them to that file")
    if not node.roles:
        joined.setdefault("storage", {"plugin": "memory", "path": ""})
    return joined


# ----------------------------------------------------------------------------------------- what is wrong


def _secret(path: Path, network: NetworkSettings) -> tuple[bytes, list[str]]:
    if network.secret is not None and network.secret_file is not None:
        return b"", ["network: secret and secret_file are both given; one of them is enough"]
    if network.secret is not None:
        secret, where = network.secret.get_secret_value().encode(), "network.secret"
    elif network.secret_file is not None:
        file, where = path.parent / network.secret_file, "network.secret_file"
        try:
            secret = file.read_bytes().strip()
        except OSError as error:
            return b"", [f"{where}: {file} cannot be read: {error.strerror}"]
    else:
        return b"", []
    if len(secret) < SECRET_BYTES_MIN:
        return b"", [
            f"{where} has {len(secret)} bytes, and needs {SECRET_BYTES_MIN} at least: `openssl rand -hex 32` makes one"
        ]
    return secret, []


def _wrong_nodes(file: NetworkFile) -> Iterator[str]:
    for what, values in (
        ("the node", [node.name for node in file.node]),
        ("the address", [node.address for node in file.node]),
    ):
        yield from (f"{what} {value!r} stands here {values.count(value)} times" for value in _repeated(values))
    for role in dict.fromkeys(role for node in file.node for role in node.roles):
        try:
            plugins.load("role", role)
        except PluginError as error:
            who = [node.name for node in file.node if role in node.roles]
            yield f"{_list(who)} cannot have the role {role!r}: {error}"
    for node in file.node:
        yield from (f"the node {node.name!r} has the role {role!r} twice" for role in _repeated(node.roles))
        if node.cell and node.place:
            yield f"the node {node.name!r} has the cell {node.cell!r} and the place {node.place!r}: give it one of both"


def _wrong_options(file: NetworkFile) -> Iterator[str]:
    if "plugin" in file.routing:
        yield "routing.plugin: which router the nodes have is said by network.router"
    for node in file.node:
        for section in node.options:
            if section == "network" or not isinstance(node.options[section], (dict, list)):
                yield f"the node {node.name!r}: options.{section} is no section that can stand here"
        own = node.options.get("routing", {})
        for key, value in file.routing.items():
            if isinstance(own, dict) and own.get(key, value) != value:
                yield (
                    f"the node {node.name!r}: options.routing.{key} is {own[key]!r}, and {value!r} in [routing], for"
                    " all nodes: say it there alone"
                )


def _wrong_bundles(file: NetworkFile) -> Iterator[str]:
    cells = list(_cells(file))
    seen: set[frozenset[str]] = set()
    for one, other in file.bundles:
        unknown = [cell for cell in (one, other) if cell not in cells]
        if unknown:
            yield f"the bundle {one} – {other}: there is no cell {unknown[0]!r}{suggestion(unknown[0], cells)}"
        elif one == other:
            yield f"the bundle {one} – {other} leads nowhere: the nodes of a cell are neighbours anyway"
        elif frozenset((one, other)) in seen:
            yield f"the bundle {one} – {other} stands here twice"
        seen.add(frozenset((one, other)))


def _wrong_links(file: NetworkFile) -> Iterator[str]:
    cell_of = {node.name: node.cell for node in file.node}
    bundles = {frozenset(bundle) for bundle in file.bundles}
    seen: set[frozenset[str]] = set()
    for one, other in file.links:
        unknown = [node for node in (one, other) if node not in cell_of]
        if unknown:
            yield f"the link {one} – {other}: there is no node {unknown[0]!r}{suggestion(unknown[0], list(cell_of))}"
            continue
        ends = cell_of[one], cell_of[other]
        if one == other:
            yield f"the link {one} – {other} leads nowhere"
        elif frozenset((one, other)) in seen:
            yield f"the link {one} – {other} stands here twice"
        elif ends[0] and ends[0] == ends[1]:
            yield f"the link {one} – {other} stands here twice: the nodes of the cell {ends[0]} are neighbours anyway"
        elif frozenset(ends) in bundles:
            yield f"the link {one} – {other} stands here twice: the bundle {ends[0]} – {ends[1]} has it"
        seen.add(frozenset((one, other)))


def _wrong_map(file: NetworkFile) -> Iterator[str]:
    """What the router says of the map, as far as there is one."""
    try:
        check_network = plugins.load("routing", file.network.router, "check_network")
    except PluginError as error:
        yield f"network.router: {error}"
        return
    yield from check_network(network=_map(file), options=file.routing) or ()


def _wrong_addresses(file: NetworkFile, secret: bytes) -> Iterator[str]:
    transport = plugins.load("transport", TRANSPORT)(options={})
    good: list[str] = []
    for node in file.node:
        try:
            transport.is_loopback(node.address)
        except ConfigurationError as error:
            yield f"the node {node.name!r}: {error}"
            continue
        host, _, port = node.address.rpartition(":")
        if not int(port):
            yield f"the node {node.name!r}: address {node.address!r} needs a port, which other nodes can dial"
        elif host in {"0.0.0.0", "[::]"}:  # noqa: S104 - refused
            yield (
                f"the node {node.name!r}: address {node.address!r} is none that other nodes can dial; where it listens"
                " is said in its own configuration (network.listen)"
            )
        else:
            good.append(node.address)
    yield from _exposure(file.network, good, secret, transport)


def _exposure(network: NetworkSettings, addresses: Iterable[str], secret: bytes, transport: Any) -> list[str]:
    """What is missing where links leave the machine (docs/howto/lay-out-a-network.md)."""
    outside = [address for address in addresses if not transport.is_loopback(address)]
    if network.tls is not None or not outside:
        return []
    missing = []
    if not network.insecure:
        missing.append("TLS ([network.tls]; to do without, set insecure = true in [network])")
    if not secret:
        missing.append("a secret (network.secret_file)")
    return [f"links to {_list(outside)} leave this machine, which needs {' and '.join(missing)}"] if missing else []


# ------------------------------------------------------------------------------------------------ small


def _map(file: NetworkFile) -> NetworkMap:
    """The map of all routers, without what is wrong with it: the file's bundles and links may be."""
    nodes = {node.name: NetworkNode(frozenset(node.roles), node.cell or node.place) for node in file.node}
    cells = _cells(file)
    pairs = [pair for members in cells.values() for pair in combinations(members, 2)]
    for one, other in file.bundles:
        pairs += product(cells.get(one, ()), cells.get(other, ()))
    pairs += [link for link in file.links if nodes.keys() >= set(link)]
    return NetworkMap(nodes, tuple(sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})))


def _cells(file: NetworkFile) -> dict[str, list[str]]:
    cells: dict[str, list[str]] = {}
    for node in file.node:
        if node.cell:
            cells.setdefault(node.cell, []).append(node.name)
    return cells


def _repeated(values: Sequence[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if values.count(value) > 1]


def _list(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
