"""From a configuration to the parts of a node: plugins are found and asked once, at start-up.

What is wrong with the configuration comes out here, before anything is opened or bound (A01).
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from gapless import plugins
from gapless.core.network.facts import NetworkMap, NetworkNode, RanTwice
from gapless.core.network.greeting import PART_BYTES, LinkIdentity
from gapless.core.network.incarnations import DRAWN_BITS, new_incarnation
from gapless.core.network.peers import BrokerLinks
from gapless.core.network.seam import RouterContext
from gapless.core.ports import AuthContext, Authenticator, Authorizer, Roaming, Role, RoleContext
from gapless.core.server import BrokerIdentity
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import Reception, WithinProcess
from gapless.core.server.users import USERS, Users, row_of
from gapless.errors import ConfigurationError, VolumeAbsentError, VolumeCorruptError, VolumeForeignError
from gapless.node.links import LinksShell, NodeLinks
from gapless.node.machine import ROUTER_TABLE, STATUS_PART_BYTES, Machine, Shell
from gapless.node.network import TRANSPORT
from gapless.node.observing import check_extra, judges_of
from gapless.node.recovery import VolumeReader
from gapless.node.rules_watch import RulesWatch
from gapless.observe import exporting
from gapless.security.allow_all import AllowAll
from gapless.security.rules import Rules, strangers
from gapless.spi import Create, VolumeIdentity

if TYPE_CHECKING:
    from gapless.node.config import ListenSection, NodeConfig
    from gapless.node.shell import AsyncShell
    from gapless.spi import LogVolume, Table, Transport


SCRAM = "scram"
RULES = "rules"
ALLOW_ALL = "allow-all"
"""The authorizers that count where the configuration names none."""
USERS_OF_A_NETWORK = (
    "the users of a volume are known to its node alone, and the clients of a network come to all of its nodes: write"
    ' users = "FILE", a file that every node has (`gapless user add NAME --file FILE` makes it)'
)
UNOPENED = AuthContext({}, b"", wall=lambda: 0, now=lambda: 0, end=lambda _name, _reason: None)
"""For authenticators whose options are checked alone."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """The plugins that a configuration names, loaded; the makers are called anew for each run."""

    config: NodeConfig
    open_auth: Mapping[str, Any]
    """By the names of the authenticators, in their order."""
    authorizer: Authority
    listeners: tuple[tuple[ListenSection, Transport], ...]
    open_storage: Any
    open_routing: Any
    open_roles: Mapping[str, Any]
    network: NetworkMap
    """Of the network, or of this node alone."""
    nodes_transport: Transport | None = None
    """Makes links to other nodes, where the configuration names a network."""
    roaming: Roaming | None = None
    """What the SHBs of that network have in common."""
    observer: Transport | None = None
    """Lends sockets for HTTP, where the configuration wants that."""
    boot: str = ""
    """`RoleContext.boot` of this process."""

    @property
    def transports(self) -> list[Transport]:
        """All that the node listens with."""
        others = [each for each in (self.nodes_transport, self.observer) if each is not None]
        return [*others, *(transport for _, transport in self.listeners)]


def load_plugins(config: NodeConfig) -> Loaded:
    """Finds every plugin that the configuration names. Raises ConfigurationError when something is wrong."""
    open_auth = {}
    authenticators = {}
    for number, section in enumerate(config.auth):
        with said_of(config, f"auth.{number}"):
            open_auth[section.plugin] = plugins.load("auth", section.plugin)
            if section.plugin == SCRAM and config.membership is not None and not section.options.get("users"):
                raise ConfigurationError(USERS_OF_A_NETWORK)
            authenticators[section.plugin] = open_auth[section.plugin](options=section.options, context=UNOPENED)
    listeners = []
    for number, listen in enumerate(config.listen):
        with said_of(config, f"listen.{number}"):
            transport = plugins.load("transport", listen.transport)(options=listen.options)
            taken = _taken(listen, authenticators)
            check_certificates(transport, taken)
            check_exposure(listen.address, transport, taken.values(), insecure=config.node.insecure)
        listeners.append((listen, transport))
    with said_of(config, "storage"):
        open_storage = plugins.load("storage", config.storage.plugin)
    authorizer = open_authorizer(config)
    with said_of(config, "routing"):
        open_routing = plugins.load("routing", config.routing.plugin)
    with said_of(config, "node.roles"):
        if not config.node.roles and config.membership is None:
            raise ConfigurationError("a node that is in no network needs a role, or it has nothing to do")
        open_roles = {name: plugins.load("role", name) for name in config.node.roles}
    return Loaded(
        config,
        open_auth,
        Authority(authorizer),
        tuple(listeners),
        open_storage,
        open_routing,
        open_roles,
        _map_of(config),
        _nodes_transport(config),
        _roaming(config),
        _observer(config, authenticators),
    )


def _map_of(config: NodeConfig) -> NetworkMap:
    if config.membership is not None:
        return config.membership.network.map()
    return NetworkMap({config.node.name: NetworkNode(frozenset(config.node.roles))})


def _nodes_transport(config: NodeConfig) -> Transport | None:
    membership = config.membership
    if membership is None:
        return None
    network = membership.network
    with said_of(config, "network"):
        options = network.transport_options(membership.node.name)
        transport: Transport = plugins.load("transport", TRANSPORT)(options=options)
        network.check_listening(membership.listen, transport)
    return transport


def _observer(config: NodeConfig, authenticators: Mapping[str, Authenticator]) -> Transport | None:
    section = config.observe
    if section is None:
        return None
    with said_of(config, "observe"):
        check_extra()
        if section.traces:
            exporting.check(os.environ)
        transport: Transport = plugins.load("transport", TRANSPORT)(options=section.options)
        judges = judges_of(section, authenticators, is_local=transport.is_loopback(section.address)) or {}
        check_certificates(transport, judges)
        check_exposure(section.address, transport, judges.values(), insecure=config.node.insecure)
    return transport


def _roaming(config: NodeConfig) -> Roaming | None:
    if config.membership is None:
        return None
    network = config.membership.network
    return Roaming(tuple(network.map().with_role("shb")), network.secret)


def open_authorizer(config: NodeConfig) -> Authorizer:
    """Who decides who may do what at this node. Raises ConfigurationError when something is wrong with the rules."""
    acl, rules = config.acl, {kind: value for kind, value in (("allow", config.allow), ("deny", config.deny)) if value}
    options = acl.options
    if not (acl.plugin or rules or options):
        return AllowAll()
    plugin = acl.plugin or (RULES if rules or "file" in options else ALLOW_ALL)
    with said_of(config, "acl"):
        if rules and plugin != RULES:
            raise ConfigurationError(f"plugin: {plugin!r} does not look at the [[{next(iter(rules))}]] that are here")
        open_acl = plugins.load("acl", plugin)
        if plugin == RULES and isinstance(options.get("file"), str):
            options["file"] = str(Path(config.source).parent / options["file"])
        if plugin != RULES:
            authorizer: Authorizer = open_acl(options=options)
            return authorizer
    try:  # what is wrong with rules says itself where they stand
        found: Authorizer = open_acl(options={**options, **rules, "source": config.source})
    except ConfigurationError as error:
        if str(error).startswith(tuple({config.source or "configuration", str(options.get("file"))})):
            raise
        raise type(error)(f"{config.source or 'configuration'}: acl: {error}") from error
    return found


def doubts_about(config: NodeConfig, authorizer: Authorizer) -> list[str]:
    """What is to be looked at in the rules: it is no mistake for sure, and rules that are for nobody."""
    if not isinstance(authorizer, Rules):
        return []
    return [*authorizer.warnings, *strangers(authorizer.rules, [section.plugin for section in config.auth])]


@contextmanager
def said_of(config: NodeConfig, key: str) -> Iterator[None]:
    """Puts the file and the key, or section, before what a plugin finds wrong with its settings."""
    try:
        yield
    except ConfigurationError as error:
        raise type(error)(f"{config.source or 'configuration'}: {key}: {error}") from error


def check_certificates(transport: Transport, authenticators: Mapping[str, Authenticator]) -> None:
    """Refuses an authenticator that could never let anybody in. Raises ConfigurationError."""
    for name, authenticator in authenticators.items():
        if authenticator.needs_certificate and not transport.asks_certificates:
            raise ConfigurationError(
                f"the authenticator {name!r} needs certificates of clients: set client_ca, the file with the authority"
                " that has signed them, or list in `auth` those that clients may use at this listener"
            )


def check_exposure(
    address: str, transport: Transport, authenticators: Iterable[Authenticator], *, insecure: bool
) -> None:
    """Refuses to listen beyond this machine without TLS and real authentication (A02)."""
    missing = [] if transport.encrypts else ["TLS (its certificate)"]
    if not all(each.trusted for each in authenticators):
        missing.append("authenticators that check something, all of them ([[auth]], and `auth` of the listener)")
    if missing and not insecure and not transport.is_loopback(address):
        raise ConfigurationError(
            f"address {address!r} can be reached from other machines, which needs {' and '.join(missing)};"
            " to do without, set insecure = true in [node]"
        )


def dialable(listen: ListenSection, transport: Transport, address: str = "") -> str:
    """What a client connects to in order to reach a listener, by the transport that the listener has.

    `address`: the one really bound, if it is open; else the configured one. One that stands for every interface cannot
    be dialled from everywhere: then this machine's own loopback stands in its place, the one that surely leads there.
    """
    address = address or listen.address
    loopback = _unspecified(address)
    if loopback is not None:
        address = loopback + address[len(_host(address)) :]
    if listen.transport == "tcp":
        return f"{'gapless+tls' if transport.encrypts else 'gapless'}://{address}"
    return f"gapless+{listen.transport}://{address}"


def is_everywhere(address: str) -> bool:
    """Whether an address stands for every interface of the machine: 0.0.0.0 or [::]."""
    return _unspecified(address) is not None


def _host(address: str) -> str:
    """What stands in front of a port or a path, IPv6 in brackets; of addresses of another kind, whatever it is."""
    match = re.match(r"\[[^\]]*\]|[^:/]*", address)
    return match[0] if match else ""


def _unspecified(address: str) -> str | None:
    """The loopback address of the same kind, when the host of `address` stands for every interface."""
    try:
        host = ip_address(_host(address).strip("[]"))
    except ValueError:
        return None
    if not host.is_unspecified:
        return None
    return "127.0.0.1" if host.version == 4 else "[::1]"


def open_volume(loaded: Loaded, create: Create, wall: int) -> tuple[LogVolume, NodeIdentity]:
    """Opens the volume and counts this start in it. Blocks. `wall`: milliseconds since 1970. Raises StorageError."""
    node, storage = loaded.config.node, loaded.config.storage
    # The network is judged by `claim`: a volume may be older than its network's name in the configuration.
    wanted = VolumeIdentity("", node.name)
    with said_of(loaded.config, "storage"):
        volume: LogVolume = loaded.open_storage(
            path=storage.path, identity=wanted, options=storage.options, create=create
        )
    try:
        return volume, claim(volume, node.network, wall)
    except VolumeForeignError as error:
        volume.close()
        raise VolumeForeignError(f"{storage.path}: {error}") from error
    except BaseException:
        volume.close()
        raise


def owner_of_volume(config: NodeConfig) -> str | None:
    """The name of the node that the configured volume belongs to; None: there is no volume yet. Blocks.

    Raises ConfigurationError, and StorageError where there is one that cannot be opened.
    """
    storage = config.storage
    with said_of(config, "storage"):
        open_storage = plugins.load("storage", storage.plugin)
        anyone = VolumeIdentity("", "")
        try:
            volume: LogVolume = open_storage(
                path=storage.path, identity=anyone, options=storage.options, create=Create.NO
            )
        except VolumeAbsentError:
            return None
    volume.close()
    return volume.identity.node


def note_shut_out(volume: LogVolume, later: int) -> None:
    """Notes in a volume that a later process ran beside the one that had it: what that told, it does not know.

    Blocks for a sync. Raises StorageError.
    """
    volume.table(TABLE).put(_SHUT_OUT_BY, later.to_bytes(8, "big"))
    volume.write()
    volume.sync()


def note_shut_out_at(loaded: Loaded, later: int) -> None:
    """Notes it in the volume of the configuration, which nobody has open. Blocks. Raises StorageError."""
    node, storage = loaded.config.node, loaded.config.storage
    volume: LogVolume = loaded.open_storage(
        path=storage.path, identity=VolumeIdentity("", node.name), options=storage.options, create=Create.NO
    )
    try:
        note_shut_out(volume, later)
    finally:
        volume.close()


def check_settings(loaded: Loaded, now: int, wall: int) -> None:
    """Raises what roles and router find wrong with their settings, before anything is on a disk.

    Only they can judge them, and a role is made from a volume: here from an empty one in memory.
    """
    config = loaded.config
    open_storage = plugins.load("storage", "memory")
    volume: LogVolume = open_storage(
        path="", identity=VolumeIdentity("", config.node.name), options={}, create=Create.YES
    )
    try:
        make_roles(loaded, VolumeReader(volume), claim(volume, config.node.network, wall), now, wall)
    finally:
        volume.close()
    with said_of(config, "routing"):
        loaded.open_routing(options=config.routing.options)


def make_roles(loaded: Loaded, reader: VolumeReader, identity: NodeIdentity, now: int, wall: int) -> list[Role]:
    """The roles, recovered from a volume. Raises what they raise at start-up."""
    config = loaded.config
    roles: list[Role] = []
    for role, open_role in loaded.open_roles.items():
        context = RoleContext(
            role=role,
            broker=config.node.name,
            network=identity.network,
            storage_id=identity.storage_id,
            reader=reader,
            now=now,
            wall=wall,
            secret=identity.secret,
            authorizer=loaded.authorizer,
            max_event_bytes=config.limits.max_event_bytes,
            max_frame_bytes=config.limits.max_frame_bytes,
            selector_limits=config.limits.of_selectors,
            config=config.role(role),
            roles=frozenset(loaded.open_roles),
            groups=tuple(section.group for section in config.group),
            roaming=loaded.roaming,
            boot=loaded.boot,
            audited=config.audit is not None,
            limits=config.principal_limits,
            traces=0.0 if config.observe is None else config.observe.traces,
        )
        with said_of(config, role):
            roles.append(open_role(context=context))
    return roles


def make_receptions(
    loaded: Loaded,
    rows: Mapping[str, bytes],
    secret: bytes,
    clock: Callable[[], tuple[int, int]],
    end: Callable[[str, str], None],
) -> list[Reception]:
    """Who is let in at each listener, and last at this process itself: its own clients are as trusted as it is.

    `rows`: of the users of the volume, as they are at any time. `end`: as in `AuthContext`.
    """
    context = AuthContext(rows, secret, wall=lambda: clock()[1], now=lambda: clock()[0], end=end)
    authenticators = {}
    for number, section in enumerate(loaded.config.auth):
        with said_of(loaded.config, f"auth.{number}"):
            open_auth = loaded.open_auth[section.plugin]
            authenticators[section.plugin] = open_auth(options=section.options, context=context)
    receptions = [
        Reception(_taken(listen, authenticators).values(), is_local=transport.is_loopback(listen.address))
        for listen, transport in loaded.listeners
    ]
    return [*receptions, WithinProcess()]


def secret_of(loaded: Loaded, identity: NodeIdentity) -> bytes:
    """The secret that authenticators have: of the network, so that all nodes answer alike, or else of the volume."""
    return (b"" if loaded.roaming is None else loaded.roaming.secret) or identity.secret


def users_elsewhere(config: NodeConfig) -> str:
    """Why users of the volume do not count; "" if they do."""
    for section in config.auth:
        if section.plugin == SCRAM and (file := section.options.get("users")):
            return f"the users here are those of the file {file}: `gapless user --file {file}` changes them"
    return ""


def _taken(listen: ListenSection, authenticators: Mapping[str, Authenticator]) -> dict[str, Authenticator]:
    """The authenticators that clients may use at a listener."""
    return {name: each for name, each in authenticators.items() if listen.auth is None or name in listen.auth}


def make_machine(loaded: Loaded, volume: LogVolume, identity: NodeIdentity, shell: Shell) -> Machine:
    """A machine recovered from the volume, started. Raises what a role or router raises at start-up."""
    now, wall = shell.clock()
    config = loaded.config
    name = config.node.name
    reader = VolumeReader(volume)
    broker = BrokerIdentity(name, identity.network, volume.capabilities.durable, identity.start)
    roles = make_roles(loaded, reader, identity, now, wall)
    with said_of(config, "routing"):
        router = loaded.open_routing(options=config.routing.options)
    rows = {key.decode(): value for key, value in reader.scan(USERS)}
    for user, row in rows.items():
        row_of(user, row)

    def end(name: str, reason: str) -> None:
        machine.on_credentials_over(name, reason)

    machine = Machine(
        broker,
        config.limits.of_sessions,
        make_receptions(loaded, rows, secret_of(loaded, identity), shell.clock, end),
        Users(
            rows, users_elsewhere(config), min(STATUS_PART_BYTES, config.limits.max_frame_bytes // 2), loaded.authorizer
        ),
        loaded.authorizer,
        router,
        roles,
        volume,
        Audit(is_wanted=config.audit is not None),
        Budgets(config.principal_limits),
        shell,
    )
    saved = {key.decode(): value for key, value in reader.scan(ROUTER_TABLE)}
    # Any seed will do, as long as no start before had it, with this volume or another one.
    machine.start(now, wall, RouterContext(name, identity.start, loaded.network, config.routing.options, saved))
    if identity.shut_out_by:
        machine.on_ran_twice(RanTwice(identity.shut_out_by))
    return machine


def watch_rules(loaded: Loaded, shell: AsyncShell) -> RulesWatch:
    """Who looks whether other rules are to count than those that the node has."""
    doubts = partial(doubts_about, loaded.config)
    return RulesWatch(loaded.authorizer, doubts, shell.machine.on_authorizer, shell.alarm)


def make_links(loaded: Loaded, identity: NodeIdentity, shell: LinksShell) -> NodeLinks | None:
    """The links to other nodes for one machine, which a peer tells from the one before; None in no network."""
    membership, transport = loaded.config.membership, loaded.nodes_transport
    if membership is None or transport is None:
        return None
    network, node = membership.network, membership.node
    me = LinkIdentity(
        network=network.name,
        node=node.name,
        roles=frozenset(node.roles),
        incarnation=identity.incarnation,
        router=network.file.network.router,
        map_digest=network.digest,
        secret=network.secret,
        certified=transport.encrypts,
        frame_bytes=loaded.config.limits.max_frame_bytes + PART_BYTES,
    )
    roles = {other.name: frozenset(other.roles) for other in network.file.node}
    addresses = {other.name: other.address for other in network.file.node}
    core = BrokerLinks(me, roles, addresses, secrets.token_bytes(SECRET_BYTES))
    neighbours = [
        one if other == node.name else other for one, other in loaded.network.links if node.name in (one, other)
    ]
    return NodeLinks(core, transport, shell, neighbours)


# Who a node is: kept in its volume, and checked against the configuration at every start.

TABLE = "node"
_NETWORK = b"network"
_STORAGE = b"storage"
_SECRET = b"secret"
_BOOT = b"boot"
_INCARNATION = b"incarnation"
"""The incarnation of the last start. Volumes from before 2026-11-28 have none."""

_SHUT_OUT_BY = b"shut out by"
"""The incarnation of a process that ran beside one on this volume, and counted."""

SECRET_BYTES = 32
_DRAWN_BYTES = (DRAWN_BITS + 7) // 8


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a volume knows of its node."""

    network: str
    """The network it is in: as configured, or made up when the volume was created."""
    storage_id: str
    """Unique to this volume."""
    secret: bytes
    """Seals tokens."""
    boot: int
    """The number of this start, counted from 1."""
    incarnation: int = 0
    """Of this start: higher than that of every other on this volume, and no other process has it."""
    shut_out_by: int = 0
    """The incarnation of the last process that ran beside one on this volume, and counted; 0: none did."""

    @property
    def start(self) -> int:
        """32 bits that no other start of this volume has, nor (but for a rare chance) one of another in its place.

        A volume that takes the place of a lost one, or of one in memory, counts its starts from 1 again.
        """
        return (crc32(self.storage_id.encode()) + self.boot) & 0xFFFF_FFFF

    def __repr__(self) -> str:
        return f"NodeIdentity({self.network!r}, {self.storage_id!r}, boot {self.boot})"  # never the secret


def claim(
    volume: LogVolume, network: str, wall: int, token_bytes: Callable[[int], bytes] = secrets.token_bytes
) -> NodeIdentity:
    """Counts a start, makes it durable, and says who the node is. Blocks for a sync.

    `network` is the configured one, or ""; `wall`: milliseconds since 1970. What a new volume, and each start, is told
    apart by comes from `token_bytes`.
    Raises VolumeForeignError when the volume belongs to another network, VolumeCorruptError when it has
    lost its identity.
    """
    table = volume.table(TABLE)
    rows = {key: table.get(key) for key in (_NETWORK, _STORAGE, _SECRET, _BOOT)}
    # A volume whose creator was killed before this was durable is as good as new: what was durable once,
    # a storage does not lose unseen.
    identity = _known(rows) if any(rows.values()) else _new(table, network, token_bytes)
    if network and network != identity.network:
        raise VolumeForeignError(
            f"the volume belongs to network {identity.network!r}, the configuration says {network!r}: "
            "give this node a volume of its own, or correct its network"
        )
    before = int.from_bytes(table.get(_INCARNATION) or b"", "big")
    incarnation = new_incarnation(wall, before, int.from_bytes(token_bytes(_DRAWN_BYTES), "big"))
    shut_out_by = int.from_bytes(table.get(_SHUT_OUT_BY) or b"", "big")
    identity = replace(identity, incarnation=incarnation, shut_out_by=shut_out_by)
    table.put(_BOOT, identity.boot.to_bytes(8, "big"))
    table.put(_INCARNATION, incarnation.to_bytes(8, "big"))
    volume.write()
    volume.sync()
    return identity


def _new(table: Table, network: str, token_bytes: Callable[[int], bytes]) -> NodeIdentity:
    secret = token_bytes(SECRET_BYTES)
    identity = NodeIdentity(network or token_bytes(8).hex(), token_bytes(8).hex(), secret, boot=1)
    table.put(_NETWORK, identity.network.encode())
    table.put(_STORAGE, identity.storage_id.encode())
    table.put(_SECRET, secret)
    return identity


def _known(rows: dict[bytes, bytes | None]) -> NodeIdentity:
    missing = sorted(key.decode() for key, value in rows.items() if value is None)
    if missing:
        raise VolumeCorruptError(f"the volume does not know its node's {', '.join(missing)} any more")
    network, storage_id, secret, boot = (value or b"" for value in rows.values())
    return NodeIdentity(network.decode(), storage_id.decode(), secret, int.from_bytes(boot, "big") + 1)
