"""What a node says of its links to others, against what there is: only where the link cores of production run."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gapless.core.network import facts as routing
from gapless_sim.oracles.judge import Judge
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.network.facts import LinkUp
    from gapless.core.network.seam import Effect
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.connections import Connection
    from gapless_sim.world.core_links import CoreNetwork


class N1Twice(Judge):
    """A process is shut out, and said to have been, only because a later one of its node ran at the same time."""

    name = "N1"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._began: dict[str, dict[int, int]] = {}
        """By node: when the process of each incarnation began."""
        self._over: dict[tuple[str, int], int] = {}

    def began(self, broker: SimBroker) -> None:
        """A process begins."""
        self._began.setdefault(broker.name, {})[broker.incarnation] = self.world.now

    def process_over(self, broker: SimBroker) -> None:
        """A process is over."""
        self._over.setdefault((broker.name, broker.incarnation), self.world.now)

    def shut_out(self, broker: SimBroker, later: int, peer: str) -> None:
        """It is told so."""
        if later <= broker.incarnation or not self._ran_beside(broker.name, later, broker.incarnation):
            self.fail(
                f"{broker.name}, start {broker.incarnation}, is shut out for {later}, which did not run beside it"
            )

    def ran_twice(self, broker: SimBroker, other: int) -> None:
        """Of another one it is said so."""
        name = broker.name
        if not any(later > other and self._ran_beside(name, later, other) for later in self._began.get(name, ())):
            self.fail(f"{name} is told that start {other} was shut out, and no later one ran beside that")

    def _ran_beside(self, name: str, one: int, other: int) -> bool:
        began, now = self._began.get(name, {}), self.world.now
        if one not in began or other not in began:
            return False
        return max(began[one], began[other]) <= min(self._over.get((name, each), now) for each in (one, other))


NOTICED_WITHIN = 4 * SECOND
"""Three beats of half a second and the one before, by a clock that is wrong, and what was on its way."""
CARRIED_OUT_WITHIN = SECOND // 10
"""A router speaks within a turn of its node, at whose end its core hears of it."""


class K10Links(Judge):
    """A link that is up is to the process that it names, is the only one to it, and works both ways.

    What it hands over was sent on it, each frame once, in order; urgent ones overtake others, and nothing else does.
    Whom a router has let go of is not dialed, and a link that neither end's router wishes for is over.
    """

    name = "K10"
    facts: Sequence[type] = ()
    effects: Sequence[type] = (routing.Dial, routing.Undial)

    def __init__(self, model: Model, network: CoreNetwork) -> None:
        super().__init__(model)
        self._network = network
        self._sent: dict[tuple[Connection, int], tuple[deque[bytes], deque[bytes]]] = {}
        """By the end that they are for: the frames that can wait, and the urgent ones, that are on their way."""
        self._up_since: dict[tuple[Connection, int], int] = {}
        self._let_go: dict[tuple[str, str], int] = {}
        """Who has let go of whom, and when."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """What a router is told is no matter of wishes."""

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """As a watcher of the seam: a router wishes for a link, or does so no more."""
        if type(effect) is routing.Undial:
            self._let_go.setdefault((broker, effect.peer), self.world.now)
        elif type(effect) is routing.Dial:
            self._let_go.pop((broker, effect.peer), None)

    def vanished(self, broker: str) -> None:
        """Another router has its own wishes."""
        for ends in [ends for ends in self._let_go if ends[0] == broker]:
            del self._let_go[ends]

    def dialed(self, source: SimBroker, peer: str) -> None:
        """A core has somebody dialed. What its router has just said, it hears at the end of its turn.

        A second process has wishes of its own, and so has a stranger, who only takes the name of a node.
        """
        let_go = self._let_go.get((source.name, peer), self.world.now)
        is_first = source is self.world.brokers.get(source.name)
        if self.world.now - let_go > CARRIED_OUT_WITHIN and is_first:
            self.fail(f"{source.name} dials {peer}, of which its router has let go")

    def link_up(self, connection: Connection, index: int, up: LinkUp) -> None:
        """An end says that a link is up."""
        here, there = connection.ends[index], connection.ends[1 - index]
        # What a second process has said before its end still arrives, as that of any other one does.
        is_named = there.name == up.peer and (there.is_second or there is self.world.brokers.get(up.peer))
        if not is_named or up.incarnation != connection.incarnations[1 - index]:
            self.fail(f"{here.name} has a link to start {up.incarnation} of {up.peer}, and somebody else is there")
        if any(each.ends[at] is here and each.ends[1 - at].name == there.name for each, at in self._there()):
            self.fail(f"{here.name} has two links to {up.peer}")
        self._up_since[connection, index] = self.world.now

    def connection_over(self, connection: Connection) -> None:
        """Neither end has it any more."""
        for index in (0, 1):
            self._up_since.pop((connection, index), None)
            self._sent.pop((connection, index), None)

    def frame_taken(self, connection: Connection, index: int, frame: bytes, *, urgent: bool) -> None:
        """A core is given a frame for this end."""
        if (connection, 1 - index) in self._up_since:
            self._sent.setdefault((connection, index), (deque(), deque()))[urgent].append(frame)

    def frame_handed_over(self, connection: Connection, index: int, frame: bytes) -> None:
        """A core hands over a frame at this end."""
        for sent in self._sent.get((connection, index), ()):
            if sent and sent[0] == frame:
                sent.popleft()
                return
        where = f"{connection.ends[1 - index].name} → {connection.ends[index].name}"
        self.fail(f"{where}: a frame of {len(frame)} bytes is handed over that was not the next to come on this link")

    def checkpoint(self) -> None:
        """Looks for links that carry nothing in one direction, and for those that nobody wishes for."""
        for connection, index in self._there():
            self._check_wishes(connection, index)
            since = self._up_since[connection, index]
            here = connection.ends[index]
            for way in (0, 1):
                blocked = self._network.blocked_since(*connection.way_to(way))
                if blocked is None:
                    continue
                latest = max(since, blocked, here.paused_until, connection.busy_until[0], connection.busy_until[1])
                if self.world.now - latest > NOTICED_WITHIN:
                    source, target = connection.way_to(way)
                    self.fail(f"{here.name} says that a link is up on which {target} hears nothing of {source}")

    def _check_wishes(self, connection: Connection, index: int) -> None:
        now, (one, other) = self.world.now, connection.ends
        let_go = max(self._let_go.get(ends, now) for ends in ((one.name, other.name), (other.name, one.name)))
        known = max(let_go, self._up_since[connection, index], one.paused_until, other.paused_until)
        both_first = not (one.is_second or other.is_second)
        if both_first and now - max(known, *connection.busy_until) > NOTICED_WITHIN:
            self.fail(f"{one.name} and {other.name} have a link for which neither's router wishes")

    def _there(self) -> list[tuple[Connection, int]]:
        return [(connection, index) for connection, index in self._up_since if not connection.gone[index]]

    def settled(self) -> bool:
        """Looks again, in the liveness phase."""
        self.checkpoint()
        return True
