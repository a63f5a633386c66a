"""What the router `delta` promises (protocol: delta-router): D2, D3 and D4, by what brokers say to each other.

`gapless_sim.oracles.copies` has the others, which are about copies of events and about time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.core.network import facts as routing
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.knowledge import Kind, Knowledge, KnowledgeConflict, KnowledgeStream
from gapless.core.stream.stamps import RAW, covers
from gapless_routing.common.router_state import CORE
from gapless_routing.delta.serving import SERVE, SERVED, UNSERVE
from gapless_sim.oracles.hops import HopJudge
from gapless_sim.oracles.reachability import Reach
from gapless_sim.recording.delta_frames import services_in

if TYPE_CHECKING:
    from gapless.core.network.frames import Address, Message
    from gapless.core.network.seam import Effect
    from gapless.core.stream.ticks import PubendId
    from gapless_sim.recording.accounts import History
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model


class TreeJudge(HopJudge):
    """An oracle over a tree of single nodes."""

    def path(self, one: str, other: str) -> list[str]:
        """The nodes from one to another, both among them."""
        topology = self.world.topology
        assert topology is not None
        return [cell.name for cell in topology.cells_between(one, other)]

    def knows(self, *nodes: str) -> bool:
        """Whether all of these are on the map."""
        topology = self.world.topology
        return topology is not None and all(node in topology.cell_of for node in nodes)

    def home(self, pubend: PubendId) -> str:
        """The node of a pubend, as far as it is known and on the map; else ""."""
        history = self.model.histories.get(pubend)
        return history.broker if history is not None and history.broker and self.knows(history.broker) else ""


class D3Said(TreeJudge):
    """A broker says of silence no more than it was told, and nothing of what it was told nothing of.

    Only the pubend's own broker says more: whom what it knows is good for.
    """

    name = "D3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._told: dict[tuple[str, PubendId], tuple[object, KnowledgeStream]] = {}
        """All that a broker was told in its life."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A broker is told something."""
        if type(message) is Knowledge:
            life = self.world.brokers[hop.target].life
            told = self._told.get((hop.target, message.pubend))
            if told is None or told[0] is not life:
                told = self._told[hop.target, message.pubend] = life, KnowledgeStream(message.pubend)
            try:
                told[1].accumulate(message)
            except KnowledgeConflict:  # which others judge
                self._told[hop.target, message.pubend] = life, KnowledgeStream(message.pubend)
                self._told[hop.target, message.pubend][1].accumulate(message)

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A broker says something."""
        if type(message) is not Knowledge or message.damaged or self.home(message.pubend) in {"", hop.source}:
            return
        history = self.model.histories[message.pubend]
        life, told = self._told.get((hop.source, message.pubend), (None, KnowledgeStream(message.pubend)))
        if not history.sound or life is not self.world.brokers[hop.source].life:
            told = KnowledgeStream(message.pubend)
            if not history.sound:
                return
        silent = IntervalSet([(min(max(message.lo, message.lost, told.lost), message.hi), message.hi)])
        for tick in message.data.ticks:
            silent.remove(tick - 1, tick)
        for run in (run for lo, hi in silent.ranges for run in told.runs(lo, hi)):
            if run.kind is not Kind.SILENCE and run.kind is not Kind.UNKNOWN:
                continue
            if run.kind is Kind.UNKNOWN or not covers(run.stamp, message.stamp):
                known = "nothing" if run.kind is Kind.UNKNOWN else _named(run.stamp)
                self.fail(
                    f"{hop}: silence of {message.pubend} in ({run.lo}, {run.hi}] is said to be true for"
                    f" {_named(message.stamp)}, and {hop.source} was told {known}"
                )


def _named(stamp: Any) -> str:
    return "everybody" if stamp is RAW else str(dict(stamp))


class D2Rows(TreeJudge):
    """In the end every broker that is ready has each row that it is owed: what an SHB wants, as its own broker has it.

    Owed it is to whoever stands on the way from the SHB to a PHB, for nobody else filters; as far as brokers tell it to
    each other that have a link, or of which none live between them as one of the two sees it. So where links are broken
    for good that cross each other on the way, each broker has the rows of whom it serves, and no others. Who has which
    row is said in no frame for certain: so the routers are looked at.
    """

    name = "D2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._reach = Reach(model)

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """What is sent may be lost."""

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """What comes may be late."""

    def settled(self) -> bool:
        """Whether nobody lacks anything."""
        return next(self._lacking(), None) is None

    def unsettled(self) -> str:
        """Who lacks what."""
        return "; ".join(self._lacking())

    def _lacking(self) -> Iterator[str]:
        topology = self.world.topology
        if topology is None:
            return
        hosts = [node for node, roles in topology.roles.items() if "phb" in roles]
        for home in topology.cell_of:
            own = self._router(home)
            if own is None or not own._interests.shb:  # noqa: SLF001 - it is said nowhere else
                continue
            shb = own._interests.shb  # noqa: SLF001
            for node in {node: None for host in hosts for node in self.path(home, host)[1:]}:
                router = self._router(node)
                if router is None or not router._ring.ready or not topology.has_path(home, node, self._tells):  # noqa: SLF001
                    continue
                if home not in router._tree:  # noqa: SLF001 - it has an older map
                    continue
                row = router._interests.table.whole(router._tree.group_of(home), shb)  # noqa: SLF001
                if row != own._interests.table.whole(CORE, shb):  # noqa: SLF001
                    has = "nothing" if row is None else f"version {row.version}"
                    yield f"{node} has {has} of what {shb} wants at {home}"

    def _tells(self, one: str, other: str) -> bool:
        """Whether there is a link between two brokers, or will be: nobody wishes for one past a broker that lives."""
        if not self._reach.is_live(one, other):
            return False
        router, between = self._router(one), self.path(one, other)[1:-1]
        return (
            (router is not None and other in router._ring.links)  # noqa: SLF001 - it is said nowhere else
            or not any(self._reach.is_live(one, node) for node in between)
            or not any(self._reach.is_live(node, other) for node in between)
        )

    def _router(self, node: str) -> Any:
        """The router of a node; None: none runs."""
        return self.world.seam.router_of(node) if self.world.brokers[node].running else None


class Asked(NamedTuple):
    """A service that a broker has asked for."""

    broker: str
    life: object
    """Of the process that asks."""
    number: tuple[int, int]


class D4Server(TreeJudge):
    """Whatever is said of a pubend leads away from it. In the end each broker is served by the nearest one of use.

    And no link is wished for that nobody needs: where all links of the map are there, there are no others.
    """

    name = "D4"
    facts: Sequence[type] = ()
    effects: Sequence[type] = (routing.Dial, routing.Undial)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._reach = Reach(model)
        self._asked: dict[tuple[str, PubendId], dict[Asked, None]] = {}
        """What a broker has asked for, in the present life of its process."""
        self._agreed: dict[tuple[str, PubendId], dict[Asked, None]] = {}
        """Of that, what it heard that it is given, and has not ended: the latest serves."""
        self._wished: dict[str, dict[str, None]] = {}

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Something is said of a pubend, or asked for."""
        if type(message) is Knowledge and self.knows(hop.source, hop.target):
            home = self.home(message.pubend)
            if home and hop.source not in self.path(hop.target, home)[1:]:
                self.fail(f"{hop}: knowledge of {message.pubend} goes toward {home}, where it is")
        for said in services_in(message):
            key, number = (hop.source, said.pubend), (said.life, said.number)
            if said.kind == SERVE:
                life = self.world.brokers[hop.source].life
                self._asked.setdefault(key, {})[Asked(hop.target, life, number)] = None
            elif said.kind == UNSERVE:
                for asked in list(self._agreed.get(key, ())):
                    if asked.broker == hop.target and asked.number <= number:
                        del self._agreed[key][asked]

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A broker agrees to serve."""
        for said in services_in(message):
            key, life = (hop.target, said.pubend), self.world.brokers[hop.target].life
            asked = Asked(hop.source, life, (said.life, said.number))
            if said.kind == SERVED and asked in self._asked.get(key, ()):
                self._agreed.setdefault(key, {})[asked] = None

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """What routers are told is no matter of wishes."""

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """As a watcher of the seam: a router wishes for a link, or does so no more."""
        wished = self._wished.setdefault(broker, {})
        if type(effect) is routing.Dial:
            wished[effect.peer] = None
        elif type(effect) is routing.Undial:
            wished.pop(effect.peer, None)

    def vanished(self, broker: str) -> None:
        """Another router has its own wishes, and asks anew."""
        self._wished.pop(broker, None)
        for table in (self._asked, self._agreed):
            for key in [key for key in table if key[0] == broker]:
                del table[key]

    def settled(self) -> bool:
        """Whether everybody is served as he should be."""
        return next(self._wrong(), None) is None

    def unsettled(self) -> str:
        """Who is not."""
        return "; ".join(self._wrong())

    def _wrong(self) -> Iterator[str]:
        topology = self.world.topology
        if topology is None:
            return
        for pubend, history in self.model.histories.items():
            if history.sound and self._reach.serves(history.broker or next(iter(self.world.brokers))):
                for node in topology.cell_of:
                    yield from self._wrongly_served(node, pubend, history)
        if all(self._reach.is_live(*pair) for pair in topology.links):
            for node, wished in self._wished.items():
                for peer in wished:
                    if not topology.has_link(node, peer):
                        yield f"{node} wishes for a link to {peer}, and nobody between them is away"

    def _wrongly_served(self, node: str, pubend: PubendId, history: History) -> Iterator[str]:
        home = self.home(pubend)
        if not home or node == home or not self._reach.serves(node) or not self._is_wanted(node, home):
            return
        path = self.path(node, home)[1:]
        usable = [
            broker
            for broker in path[: self.world.options.delta + 1]
            if self._reach.is_live(node, broker) and self._reach.brokers_meet(broker, home)
        ]
        life = self.world.brokers[node].life
        agreed = [asked for asked in self._agreed.get((node, pubend), ()) if asked.life is life]
        current = max(agreed, key=lambda asked: asked.number).broker if agreed else "nobody"
        if usable and usable[0] != current:
            yield f"{node} is served with {pubend} by {current}, and {usable[0]} is the nearest one of use"
        elif usable and not self._serves(current, node, pubend):
            yield f"{node} takes {current} to serve it with {pubend}, and that does not"

    def _serves(self, broker: str, node: str, pubend: PubendId) -> bool:
        """Whether a broker does serve another one. What it believes of that is said in no frame: so it is looked at."""
        stream = self.world.seam.router_of(broker)._streams._streams.get(pubend)  # noqa: SLF001
        return stream is not None and node in stream.outward

    def _is_wanted(self, node: str, home: str) -> bool:
        """Whether there is an SHB at a node, or farther away from a pubend."""
        topology = self.world.topology
        assert topology is not None
        return any("shb" in roles and node in self.path(home, other) for other, roles in topology.roles.items())
