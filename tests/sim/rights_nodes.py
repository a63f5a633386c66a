"""Two nodes of one network in one process, without sockets, disks or clocks: what happens is fed to their machines.

    nodes.settle()            turns, until no part of any machine has anything left to say
    nodes.wait(until)         the same, and time passes from deadline to deadline until something is so
    nodes["east"].connect(…)  a client that speaks wire messages

Both host pubends and subscriptions, each has topics of its own, and subscriptions roam. No link has any delay, so what
a machine has said is heard before the next turn of any machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gapless.core.network import facts as routing
from gapless.core.principals import Admission, Certificate, PeerInfo, Principal
from gapless.core.server import Payload
from gapless.core.server.audit import WITHOUT_END
from gapless.core.server.reception import WITHIN
from gapless.core.wire.codec import encode_keyed
from gapless.core.wire.messages import (
    PROTOCOL,
    ClientMessage,
    Goodbye,
    Hello,
    Publish,
    PublishKeyed,
    Welcome,
)
from gapless.node.assembly import Loaded, claim, load_plugins, make_machine
from gapless.node.commit import VolumeWriter
from gapless.node.config import make_config
from gapless.spi import VolumeIdentity
from gapless_storage.memory_disk import MemoryDisk
from wire import Wire

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm, Note, RaisedAlarm
    from gapless.core.gauges import Gauge
    from gapless.core.ports import LogQuestion, Operation
    from gapless.core.server.audit import AuditLine
    from gapless.core.traces import Logged, Matched
    from gapless.node.machine import Cookie, Machine, Network, Tap

SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
NAMES: Final = ("east", "west")
CARRIES: Final = {"east": ("a.#", "c.#"), "west": ("b.#",)}
"""The topics of each node's pubends; each pattern has one of its own."""
PUBENDS: Final = {f"{node}-{n}": pattern for node, patterns in CARRIES.items() for n, pattern in enumerate(patterns)}
"""The pattern of each pubend, by its name."""
TURNS_MAX: Final = 20_000
"""More without an end in one moment is a loop."""
FILE: Final = """
bundles = [["east", "west"]]
[network]
name = "rights"
secret = "a secret of some length"
[[node]]
name = "east"
roles = ["phb", "shb"]
address = "127.0.0.1:1"
cell = "east"
[[node]]
name = "west"
roles = ["phb", "shb"]
address = "127.0.0.1:2"
cell = "west"
"""


class Believer:
    """Believes who a client says that it is: its name, and then its groups."""

    mechanism = ""
    trusted = False
    needs_certificate = False

    def begin(self, client_id: str, peer: PeerInfo) -> Believer:
        return self

    def answer(self, credentials: bytes) -> Admission:
        name, *groups = credentials.decode().split(",")
        return Admission(Principal(name, frozenset(groups)), None)


class Client:
    """A client and its link. What it has heard is in `heard`, with the time by the nodes' count of what happened."""

    def __init__(self, node: Node, listener: int) -> None:
        self.node = node
        self.peer = "127.0.0.1:5555"
        self.certificate = Certificate()
        self.shown = b""
        self.secure = False
        self.pending = 0
        self.closed: str | None = None
        self.left = False
        """Whether the client has ended it."""
        self.wire = Wire()
        self.heard: list[Any] = []
        self.owner = node.machine.accept(self, listener)

    # The node's side.

    def send(self, payloads: Sequence[Payload], *, urgent: bool = False) -> None:
        self.heard += self.wire.decode(payloads)

    def raise_limit(self, limit: int) -> None:
        """Nothing is cut into frames here."""

    def pause(self) -> None:
        """It says little."""

    def resume(self) -> None:
        """It was never paused."""

    def close(self, reason: str = "") -> None:
        if self.closed is None:
            self.closed = reason
            self.owner.on_closed(reason)

    # The client's side.

    def hello(self, client_id: str, instance: str, credentials: str) -> None:
        """Opens the session."""
        self.say(Hello(PROTOCOL, "", client_id, instance, credentials.encode()))
        self.node.nodes.settle()
        welcome = self.heard.pop(0)
        assert isinstance(welcome, Welcome), welcome

    def say(self, *messages: ClientMessage | Publish | PublishKeyed) -> None:
        """Messages of this session."""
        self.say_payloads(*map(self.payload, messages))

    def payload(self, message: ClientMessage | Publish | PublishKeyed) -> bytes:
        """One of them, without its number."""
        if isinstance(message, PublishKeyed):
            return b"".join(encode_keyed(self.wire.session, message))
        return self.wire.unnumbered(message)[0]

    def say_payloads(self, *payloads: bytes) -> None:
        """Any bytes."""
        if self.closed is None:
            self.owner.on_frames([self.wire.numbered(payload) for payload in payloads])

    def leave(self) -> None:
        """The client is gone, in order."""
        self.left = True
        self.say(Goodbye())
        self.node.nodes.settle()
        self.close()


class Node:
    """A machine, and the shell around it."""

    def __init__(self, nodes: Nodes, loaded: Loaded, name: str) -> None:
        self.nodes = nodes
        self.name = name
        self.authority = loaded.authorizer
        self.taps: Sequence[Tap] = ()
        self.volume = MemoryDisk().open(VolumeIdentity("", name))
        self._writer = VolumeWriter(self.volume)
        self.due: int | None = None
        self.audited: list[AuditLine] = []
        self.machine: Machine
        identity = claim(self.volume, "rights", nodes.wall, lambda count: name.encode().ljust(count, b"."))
        self.incarnation = identity.incarnation
        self.machine = make_machine(loaded, self.volume, identity, self)

    def connect(self, client_id: str, instance: str, credentials: str) -> Client:
        """A client comes in; without credentials one that runs in the process of the node."""
        client = Client(self, 0 if credentials else WITHIN)
        client.hello(client_id, instance, credentials)
        return client

    # The shell.

    def clock(self) -> tuple[int, int]:
        return self.nodes.now, self.nodes.wall

    def schedule(self) -> None:
        self.nodes.ready.append(self)

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        self._writer.write(operations)
        self.volume.sync()
        self.machine.on_durable(cookies)

    def wake(self) -> None:
        """Its timer has come."""
        self.due = None
        if not self.machine.scheduled:
            self.machine.scheduled = True
            self.schedule()

    def carry_out_reads(self) -> None:
        while self.machine.reads:
            self.machine.read_one()

    def arm(self, now: int, due: int) -> None:
        self.due = due

    def to_network(self, effect: Network) -> None:
        if isinstance(effect, routing.SendFrame):
            other = self.nodes.other(self.name)
            other.machine.on_broker_frame(1, effect.frame)

    def to_log(self, source: int, question: LogQuestion) -> None:
        raise NotImplementedError

    def alarm(self, alarm: Alarm) -> None:
        """Nobody reads it."""

    def note(self, note: Note) -> None:
        """Nobody reads it."""

    def trace(self, traced: Logged | Matched, turn: int) -> None:
        """Nobody makes spans."""

    def audit_room(self) -> int:
        return WITHOUT_END

    def audit(self, lines: Sequence[AuditLine]) -> None:
        self.audited += lines

    def status(self) -> Iterable[Gauge | RaisedAlarm]:
        return ()

    def on_last_link_closed(self) -> None:
        """Nobody waits for that."""

    def on_failed(self, error: BaseException) -> None:
        raise error


class Nodes(Mapping[str, Node]):
    """Both nodes, linked."""

    def __init__(self) -> None:
        self.now = SECOND
        self.ready: list[Node] = []
        self.turns = 0
        self._nodes = {name: Node(self, _loaded(name), name) for name in NAMES}
        for name in NAMES:
            peer = self.other(name)
            self[name].machine.on_broker_link(1, peer.name, frozenset({"phb", "shb"}), peer.incarnation)
        self.settle()

    @property
    def wall(self) -> int:
        return 1_700_000_000_000 + self.now // MILLISECOND

    def __getitem__(self, name: str) -> Node:
        return self._nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def other(self, name: str) -> Node:
        """The one that has not this name."""
        return self[NAMES[1 - NAMES.index(name)]]

    def settle(self) -> None:
        """Turns, as long as there is something to do without time passing."""
        turns = 0
        while self.ready:
            ready, self.ready = self.ready, []
            for node in ready:
                node.machine.turn()
                turns += 1
                if node.due is not None and node.due <= self.now:
                    node.wake()
            assert turns < TURNS_MAX, "the nodes still talk"
        self.turns += turns

    def pass_until(self, end: int) -> None:
        """Time passes, and what becomes due is done."""
        while True:
            due = min((node.due for node in self.values() if node.due is not None), default=None)
            if due is None or due > end:
                break
            self.now = max(self.now, due)
            for node in self.values():
                if node.due is not None and node.due <= self.now:
                    node.wake()
            self.settle()
        self.now = end

    def wait(self, until: Callable[[], bool], patience: int = 30 * SECOND) -> bool:
        """Passes time until something is so; returns whether it is."""
        self.settle()
        end = self.now + patience
        while not until():
            due = min((node.due for node in self.values() if node.due is not None), default=end)
            if due >= end:
                return False
            self.pass_until(max(due, self.now))
        return True


_LOADED: dict[str, Loaded] = {}


def _loaded(name: str) -> Loaded:
    """The plugins of a node, which are looked for once."""
    if name not in _LOADED:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "network.toml")
            file.write_text(FILE, "utf-8")
            settings: dict[str, Any] = {
                "network": {"file": str(file), "node": name, "listen": "127.0.0.1:0"},
                "storage": {"plugin": "memory", "path": ""},
                "listen": [{"address": "127.0.0.1:0"}],
                "phb": {
                    "pubends": [
                        {"name": f"{name}-{number}", "topics": [pattern]}
                        for number, pattern in enumerate(CARRIES[name])
                    ]
                },
            }
            loaded = load_plugins(make_config(settings))
        believer = Believer()
        _LOADED[name] = replace(loaded, open_auth=dict.fromkeys(loaded.open_auth, lambda **_: believer))
    return replace(_LOADED[name], authorizer=type(_LOADED[name].authorizer)(_LOADED[name].authorizer.authorizer))
