"""`gapless network`: checks the file that describes a network, or runs all its nodes on this machine."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connecting import run
from gapless.cli.options import AsJson
from gapless.cli.output import one_line, print_json
from gapless.client.addresses import PORT
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless.node.network import NetworkDescription, NodeSettings

CLI = ("-m", "gapless.cli")
STOP_SECONDS = 15.0
"""How long a node may take to end in order; then it is killed."""
LOG_LINES = 5
"""So many of a node's last words are shown when it dies."""
LOG_BYTES = 4096
MADE = "made"
"""A file in a node's directory: its volume was made, and is not made again when it is missing."""
PROCESSES_MAX = 64
NODES_PORT = 100
"""The ports for links between nodes are so much higher than those for clients."""


def network(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The network's description, in TOML.")],
    processes: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=PROCESSES_MAX,
            metavar="N",
            help="First write FILE, for N nodes of this machine that host both publishers and subscriptions.",
        ),
    ] = None,
    port: Annotated[
        int,
        typer.Option(
            min=1024,
            max=65535 - NODES_PORT - PROCESSES_MAX,
            help=f"With --processes: the first node's port for clients; those for links are {NODES_PORT} higher.",
        ),
    ] = PORT,
    check: Annotated[
        bool, typer.Option("--check", help="Only check the file, and draw its cells, or list its nodes and links.")
    ] = False,
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIRECTORY", help="Where volumes and logs go: by default ./gapless-network/NAME."),
    ] = None,
    stay: Annotated[
        bool, typer.Option("--stay", help="If a node ends by itself, the others go on; to try out what that does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run all nodes of a network on this machine, each as a process of its own; with --check only check its file.

    A line is printed for each node that is up. Ctrl-C ends all of them in order. If one ends by itself, the others
    are stopped, unless they are to stay, and the exit status is 1.
    """
    from gapless.node.network import load_network

    if processes is not None:
        write_network(file, processes, port)
    description = load_network(file)
    if check:
        show(description, as_json=as_json)
        return
    home = directory or Path("gapless-network") / description.name
    if not run(run_all(Processes(description, file, home, stay=stay, as_json=as_json))):
        raise typer.Exit(1)


# ---------------------------------------------------------------------------------------------- write


def write_network(file: Path, processes: int, port: int) -> None:
    """Writes a network of that many nodes of this machine, and its secret. Raises ConfigurationError.

    Each node is a PHB and an SHB, so that each does its part of everything. Two are neighbours. Between more stands a
    node without roles, so that none of them works for the others, and none is missed by the others when it is down.
    """
    names = [f"node{number + 1}" for number in range(processes)]
    middle = ["middle"] if processes > 2 else []
    bundles = [[name, *middle] for name in names] if middle else [names]
    secret = file.with_suffix(".secret")
    lines = [
        f"# {processes} nodes of one machine: docs/topics/scaling.md",
        f"bundles = {json.dumps(bundles)}",
        "",
        "[network]",
        f"name = {json.dumps(file.stem)}",
        f"secret_file = {json.dumps(secret.name)}",
    ]
    for number, name in enumerate([*names, *middle]):
        lines += ["", "[[node]]", f'name = "{name}"', f'cell = "{name}"']
        lines.append(f'address = "127.0.0.1:{port + NODES_PORT + number}"')
        if name in names:
            lines.append('roles = ["phb", "shb"]')
            lines.append(f'options = {{ listen = [{{ address = "127.0.0.1:{port + number}" }}] }}')
    try:
        if file.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(file))
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as output:
            output.write(f"{token_hex(32)}\n")
        file.write_text("\n".join([*lines, ""]), "utf-8")
    except FileExistsError as error:
        raise ConfigurationError(f"{error.filename} exists: without --processes the network is run as it is") from None
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}") from error


# ---------------------------------------------------------------------------------------------- check


def show(description: NetworkDescription, *, as_json: bool) -> None:
    """Prints what a file describes."""
    if as_json:
        print_json(summary(description))
        return
    is_tree = is_tree_of_cells(description)
    nodes, links = len(description.file.node), len(description.map().links)
    size = f"{nodes} nodes in {len(description.cells)} cells" if is_tree else f"{nodes} nodes and {links} links"
    router = one_line(description.file.network.router)
    print(f"network {one_line(description.name)}: {size}, router {router}, {_security(description)}")
    for line in tree(description) if is_tree else nodes_and_links(description):
        print(line)


def summary(description: NetworkDescription) -> dict[str, Any]:
    """The same for programs."""
    settings = description.file.network
    return {
        "network": description.name,
        "router": settings.router,
        "secret": bool(description.secret),
        "tls": settings.tls is not None,
        "nodes": [
            {
                "name": node.name,
                "roles": list(node.roles),
                "cell": node.cell,
                "place": node.place,
                "address": node.address,
            }
            for node in description.file.node
        ],
        "bundles": [list(bundle) for bundle in description.file.bundles],
        "links": [list(link) for link in description.map().links],
    }


def is_tree_of_cells(description: NetworkDescription) -> bool:
    """Whether cells and bundles are all there is, and make a tree, so that it can be drawn as one."""
    cells, bundles = description.cells, description.file.bundles
    if description.file.links or not all(node.cell for node in description.file.node):
        return False
    reached, ways = {next(iter(cells))}, [*bundles]
    while onward := [bundle for bundle in ways if not reached.isdisjoint(bundle)]:
        reached.update(*onward)
        ways = [bundle for bundle in ways if bundle not in onward]
    return len(reached) == len(cells) == len(bundles) + 1


def tree(description: NetworkDescription) -> Iterator[str]:
    """The cells, from the one of the first PHB on, each below its neighbour."""
    nodes = {node.name: node for node in description.file.node}
    neighbours: dict[str, list[str]] = {cell: [] for cell in description.cells}
    for one, other in description.file.bundles:
        neighbours[one].append(other)
        neighbours[other].append(one)
    roots = [node.cell for node in description.file.node if "phb" in node.roles] or [description.file.node[0].cell]

    def below(cell: str, above: str, indent: str) -> Iterator[str]:
        children = [other for other in neighbours[cell] if other != above]
        for number, child in enumerate(children):
            last = number == len(children) - 1
            yield f"{indent}{'└── ' if last else '├── '}{_cell(child, description.cells[child], nodes)}"
            yield from below(child, cell, indent + ("    " if last else "│   "))

    yield _cell(roots[0], description.cells[roots[0]], nodes)
    yield from below(roots[0], "", "")


def nodes_and_links(description: NetworkDescription) -> Iterator[str]:
    """The nodes in the order of the file, each with where it stands; then all links."""
    for node in description.file.node:
        where = node.cell or node.place
        yield _node(node) + (f" at {one_line(where)}" if where else "")
    yield from (f"{one} – {other}" for one, other in description.map().links)


def _cell(name: str, members: Sequence[str], nodes: Mapping[str, NodeSettings]) -> str:
    return f"{one_line(name)}: " + ", ".join(_node(nodes[member]) for member in members)


def _node(node: NodeSettings) -> str:
    return f"{node.name} ({'+'.join(node.roles) or 'between'}, {node.address})"


def _security(description: NetworkDescription) -> str:
    with_tls = description.file.network.tls is not None
    parts = [*(["TLS"] if with_tls else []), *(["a secret"] if description.secret else [])]
    return " and ".join(parts) or "neither TLS nor a secret"


# ------------------------------------------------------------------------------------------------ run


@dataclass(frozen=True, slots=True)
class Child:
    """A node's process."""

    name: str
    process: Process
    log: Path


class Processes:
    """The nodes of a network as processes of this machine, each with a directory of its own."""

    def __init__(self, description: NetworkDescription, file: Path, home: Path, *, stay: bool, as_json: bool) -> None:
        """`file`: what each of them reads again by itself. `stay`: whether the others go on if one ends by itself."""
        self._description = description
        self._file = file.resolve()
        self._home = home.resolve()
        self._stay = stay
        self._as_json = as_json
        self._children: list[Child] = []
        self._urls: dict[str, str] = {}
        """Where clients connect to the nodes that are up and have roles."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Ends all of them in order; for signal handlers."""
        self._stopping.set()

    async def start(self) -> None:
        """Starts all; raises ConfigurationError when a directory cannot be made."""
        for node in self._description.file.node:
            directory = self._home / node.name
            try:
                directory.mkdir(parents=True, exist_ok=True)
                self._write_configuration(directory, node)
                self._children.append(await self._spawn(directory, node.name))
            except OSError as error:
                raise ConfigurationError(f"{directory}: {error.strerror}") from error

    async def watch(self) -> bool:
        """Says which are up, and waits until all are to end, or one has. Returns whether none ended by itself."""
        stopping = asyncio.ensure_future(self._stopping.wait())
        announcing = [asyncio.ensure_future(self._announce(child)) for child in self._children]
        ending = {asyncio.ensure_future(child.process.wait()): child for child in self._children}
        try:
            alive = dict(ending)
            while alive and not stopping.done() and (self._stay or len(alive) == len(ending)):
                await asyncio.wait([stopping, *alive], return_when=asyncio.FIRST_COMPLETED)
                for ended in [ended for ended in alive if ended.done()]:
                    self._report_death(alive.pop(ended))
            return len(alive) == len(ending)
        finally:
            for task in (stopping, *announcing, *ending):
                task.cancel()
            await asyncio.wait([stopping, *announcing, *ending])

    async def end(self) -> None:
        """Ends all in order, and kills who takes too long."""
        for child in self._children:
            if child.process.stdin is not None:
                child.process.stdin.close()
        waiting = [asyncio.ensure_future(child.process.wait()) for child in self._children]
        if waiting:
            await asyncio.wait(waiting, timeout=STOP_SECONDS)
        for child in self._children:
            if child.process.returncode is None:
                print(f"gapless: node {child.name} did not end in {STOP_SECONDS:g} s, and is killed", file=sys.stderr)
                with suppress(ProcessLookupError):
                    child.process.kill()
        if waiting:
            await asyncio.wait(waiting)

    def _write_configuration(self, directory: Path, node: NodeSettings) -> None:
        """What the node reads: which node it is, and where its volume and its clients are if its options do not say."""
        lines = ["[network]", f"file = {json.dumps(str(self._file))}", f"node = {json.dumps(node.name)}"]
        storage = node.options.get("storage", {})
        if node.roles and "path" not in storage and storage.get("plugin") != "memory":
            lines += ["[storage]", f"path = {json.dumps(str(directory / 'volume'))}"]
        if "listen" not in node.options:
            lines += ["[[listen]]", 'address = "127.0.0.1:0"']
        (directory / "gapless.toml").write_text("\n".join([*lines, ""]), "utf-8")

    async def _spawn(self, directory: Path, name: str) -> Child:
        log = directory / "broker.log"
        arguments = ["broker", "--config", str(directory / "gapless.toml"), "--json", "--until-stdin-closes"]
        if not (directory / MADE).exists():
            arguments.append("--create")
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *CLI,
                *arguments,
                cwd=directory,
                env={name: value for name, value in os.environ.items() if not _is_setting(name)},
                stdin=PIPE,
                stdout=PIPE,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us: it ends them in order, and tells none of them twice
            )
        return Child(name, process, log)

    async def _announce(self, child: Child) -> None:
        assert child.process.stdout is not None
        line = await child.process.stdout.readline()
        if not line:
            return  # it has died, which is reported by itself
        up = json.loads(line)
        (self._home / child.name / MADE).touch()
        node = self._description.node(child.name)
        if self._as_json:
            print_json({"node": child.name, "nodes_address": node.address, "log": str(child.log), **up})
        else:
            roles = "+".join(node.roles) or "between others"
            print(f"{child.name} ({roles}): {up['url']}, for nodes {node.address}, log {child.log}", flush=True)
            if node.roles:
                self._urls[child.name] = up["url"]
                self._announce_all()

    def _announce_all(self) -> None:
        """Once all are up: the addresses that clients need."""
        if len(self._urls) == sum(bool(node.roles) for node in self._description.file.node):
            roles = {node.name: node.roles for node in self._description.file.node if node.name in self._urls}
            for line in lines_for_clients(roles, self._urls):
                print(line, flush=True)

    def _report_death(self, child: Child) -> None:
        status = child.process.returncode
        how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
        print(f"gapless: node {child.name} {how}; the end of {child.log}:", file=sys.stderr)
        for line in last_lines(child.log):
            print(f"    {one_line(line)}", file=sys.stderr)


def lines_for_clients(roles: Mapping[str, Sequence[str]], urls: Mapping[str, str]) -> list[str]:
    """The address that has all nodes; where some have no SHB, those that serve subscriptions, and those of PHBs.

    A client is served by the first node that answers. One without an SHB would refuse its subscriptions.
    """
    if len(roles) < 2:
        return []
    everywhere = {role: [name for name in roles if role in roles[name]] for role in ("shb", "phb")}
    if everywhere["shb"] == list(roles):
        named = {"all nodes for clients": list(roles)}
    else:
        named = {"to subscribe, and to publish": everywhere["shb"], "only to publish": everywhere["phb"]}
    lines = []
    for what, names in named.items():
        schemes = {urls[name].partition("://")[0] for name in names}
        if len(schemes) == 1:
            lines.append(f"{what}: {schemes.pop()}://{','.join(urls[name].partition('://')[2] for name in names)}")
    return lines


def _is_setting(variable: str) -> bool:
    """Whether it would go before the configuration of every node."""
    return variable.startswith("GAPLESS_") and "__" in variable


async def run_all(processes: Processes) -> bool:
    """Runs all nodes until a signal ends them. Returns whether none ended by itself."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, processes.stop)
    try:
        await processes.start()
        return await processes.watch()
    finally:
        await processes.end()


def last_lines(log: Path) -> list[str]:
    """The last few lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
        text = file.read().decode("utf-8", "replace")
    return text.splitlines()[-LOG_LINES:]
