"""Nodes with link cores and nothing else, joined by wires that a test cuts: time goes on only when it is told to."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from gapless.core.alarms import Alarm
from gapless.core.network.facts import LinkDown, LinkUp, RanTwice, ShutOut
from gapless.core.network.greeting import LinkIdentity
from gapless.core.network.links import Connect, EndLink, Payload, RaiseFrameLimit, Received, SendPayloads, Waiting
from gapless.core.network.peers import BrokerLinks
from wire import joined

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
ROLES = {"a": frozenset({"phb"}), "b": frozenset({"shb"}), "c": frozenset[str]()}


class Wire:
    """What one end sends to the other; a cut one loses all of it, and no end is told."""

    def __init__(self, source: LinkNode, source_number: int, target: LinkNode, target_number: int) -> None:
        self.ends = ((source, source_number), (target, target_number))
        self.open = True

    def other(self, node: LinkNode) -> tuple[LinkNode, int]:
        return self.ends[1] if self.ends[0][0] is node else self.ends[0]


class LinkNode:
    """A node's links, and what became of them."""

    def __init__(self, world: World, name: str, incarnation: int, **identity: Any) -> None:
        self.world = world
        self.name = name
        settings: dict[str, Any] = {
            "network": "flights",
            "node": name,
            "roles": ROLES[name],
            "router": "straight",
            "map_digest": b"map",
            "secret": b"quite a long secret",
        }
        me = LinkIdentity(incarnation=incarnation, **(settings | identity))
        addresses = {node: f"{node}:7500" for node in ROLES}
        self.links = BrokerLinks(me, ROLES, addresses, f"{name}{incarnation}".encode())
        self.wires: dict[int, Wire] = {}
        self.up: dict[int, LinkUp] = {}
        self.frames: list[tuple[int, bytes]] = []
        self.alarms: list[Alarm] = []
        self.waiting: dict[int, int] = {}
        self.limits: dict[int, int] = {}
        self.told: list[RanTwice | ShutOut] = []
        self.closed: dict[int, str] = {}
        self.dials: list[int] = []
        """When it dialed."""
        self.certificate = ""

    @property
    def peers(self) -> list[str]:
        """To whom there is a link, each once."""
        return [up.peer for up in self.up.values()]

    def link_to(self, peer: str) -> int:
        (number,) = [number for number, up in self.up.items() if up.peer == peer]
        return number

    def dial(self, peer: str) -> None:
        self.links.on_dial(peer, self.world.now)
        self.settle()

    def undial(self, peer: str) -> None:
        self.links.on_undial(peer, self.world.now)
        self.settle()

    def send(self, peer: str, *frames: bytes, urgent: bool = False) -> None:
        for frame in frames:
            self.links.on_send(self.link_to(peer), frame, urgent=urgent, now=self.world.now)
        self.settle()

    def settle(self) -> None:
        """Does what the core asks for."""
        for effect in self.links.take_effects():
            self.carry_out(effect)

    def carry_out(self, effect: Any) -> None:
        if isinstance(effect, Connect):
            self.dials.append(self.world.now)
            self.world.later.append((self.world.dial, (self, effect)))
        elif isinstance(effect, SendPayloads):
            wire = self.wires.get(effect.link)
            if wire is not None and wire.open:
                target, number = wire.other(self)
                if (self.name, target.name) not in self.world.cuts:
                    self.world.later.append((target.receive, (number, list(map(joined, effect.payloads)))))
        elif isinstance(effect, RaiseFrameLimit):
            self.limits[effect.link] = effect.limit
        elif isinstance(effect, EndLink):
            self.closed[effect.link] = effect.reason
            self.world.close(self, effect.link)
        elif isinstance(effect, LinkUp):
            assert effect.link not in self.up
            self.up[effect.link] = effect
        elif isinstance(effect, LinkDown):
            del self.up[effect.link]
        elif isinstance(effect, Received):
            assert effect.link in self.up
            self.frames.append((effect.link, effect.frame))
        elif isinstance(effect, Waiting):
            self.waiting[effect.link] = effect.pending
        elif isinstance(effect, RanTwice | ShutOut):
            self.told.append(effect)
        else:
            assert isinstance(effect, Alarm)
            self.alarms.append(effect)

    def receive(self, number: int, payloads: Sequence[Payload]) -> None:
        self.links.on_payloads(number, list(map(joined, payloads)), self.world.now)
        self.settle()


class World:
    """Nodes, wires, and a clock."""

    def __init__(self) -> None:
        self.now = SECOND
        self.nodes: dict[str, LinkNode] = {}
        self.cuts: set[tuple[str, str]] = set()
        """Who does not get through to whom."""
        self.unreachable: set[str] = set()
        """Whom nobody can dial."""
        self.refuses_after = 0.0
        """How many seconds a dial takes that fails."""
        self.hangs_up = False
        """Whether a dial that fails is taken before, by somebody who closes it without a word."""
        self.refusals: deque[tuple[int, LinkNode, int]] = deque()
        """When each dial fails that will."""
        self.later: deque[tuple[Any, tuple[Any, ...]]] = deque()

    def start(self, name: str, incarnation: int = 1, **identity: Any) -> LinkNode:
        node = self.nodes[name] = LinkNode(self, name, incarnation, **identity)
        return node

    def start_beside(self, name: str, incarnation: int) -> LinkNode:
        """Another process under the name of a node; who dials that name reaches the first one."""
        node = self.nodes[f"{name}, {incarnation}"] = LinkNode(self, name, incarnation)
        return node

    def dial(self, source: LinkNode, connect: Connect) -> None:
        target = self.nodes.get(connect.peer)
        if target is None or connect.peer in self.unreachable:
            self.refusals.append((self.now + round(self.refuses_after * SECOND), source, connect.link))
            if not self.refuses_after:
                self.refuse()
            return
        number = target.links.on_accepted(f"{source.name}:50000", source.certificate, self.now)
        if number is None:
            source.links.on_closed(connect.link, "closed", self.now)
            source.settle()
            return
        wire = Wire(source, connect.link, target, number)
        source.wires[connect.link] = target.wires[number] = wire
        assert source.links.on_connected(connect.link, target.certificate, self.now) or connect.link in source.closed
        source.settle()
        target.settle()

    def refuse(self) -> None:
        """The dial that has waited longest fails."""
        _, source, number = self.refusals.popleft()
        if self.hangs_up:
            assert source.links.on_connected(number, "", self.now)
        source.links.on_closed(number, "connection refused", self.now)
        source.settle()

    def close(self, node: LinkNode, number: int) -> None:
        """One end closes; the other hears of it behind what was said before."""
        wire = node.wires.get(number)
        if wire is not None and wire.open:
            self.later.append((self._close, (wire, node)))

    def _close(self, wire: Wire, node: LinkNode) -> None:
        wire.open = False
        other, number = wire.other(node)
        if (node.name, other.name) not in self.cuts and other in self.nodes.values():
            other.links.on_closed(number, "", self.now)
            other.settle()

    def kill(self, name: str) -> None:
        """A process is over; the kernel closes its connections."""
        node = self.nodes.pop(name)
        for wire in node.wires.values():
            if wire.open:
                self.later.append((self._close, (wire, node)))
        self.run()

    def run(self) -> None:
        """Everything that is on its way arrives, and what follows from it."""
        for _ in range(10_000):
            if not self.later:
                return
            call, arguments = self.later.popleft()
            call(*arguments)
        raise AssertionError("they never come to an end")

    def advance(self, seconds: float) -> None:
        """Time goes on, from deadline to deadline."""
        self.run()
        until = self.now + round(seconds * SECOND)
        for _ in range(100_000):
            dues = [(due, name) for name, node in self.nodes.items() if (due := node.links.deadline()) is not None]
            due, name = min(dues, default=(until + 1, ""))
            if self.refusals and self.refusals[0][0] <= min(due, until):
                self.now = max(self.now, self.refusals[0][0])
                self.refuse()
                continue
            if due > until:
                self.now = until
                return
            self.now = max(self.now, due)
            self.nodes[name].links.on_deadline(self.now)
            self.nodes[name].settle()
            self.run()
        raise AssertionError("there is always a deadline that has passed")
