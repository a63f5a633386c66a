"""What brokers of a tree tell each other: rows of progress, whose wishes a stamp honours, and which steps are taken.

These hold for routers that work by hops, like those of `gapless_sim.oracles.hops`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gapless.core.network import facts as routing
from gapless.core.network.frames import ProgressRows, encode
from gapless.core.stream.knowledge import Knowledge
from gapless_sim.oracles.hops import HopJudge
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.network.frames import Address, Message
    from gapless.core.stream.ticks import PubendId, ShbId
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.recording.model import Model

REPEATED_WITHIN = 8 * SECOND
"""All rows are said again every five seconds, by a clock that may be slow and a broker that may be late."""
FORGOTTEN_AFTER = 27 * SECOND
"""A router forgets an SHB that nobody has heard of for 30 seconds, by a clock that may be fast."""
SLOWEST = 0.1 * SECOND
"""A broker whose turns take longer than that is not judged by the clock."""

SILENT = 5 * SECOND
"""Whoever is named in no stamp for so long is forgotten: silence comes every second."""
PASSED_ON = (routing.Hold, routing.Held, routing.OpenRequest, routing.Pub, routing.Posted)
"""What goes through brokers as it is. Answers do, too, but those to two brokers may be the same."""

Row = tuple["PubendId", "ShbId"]


class K3Rows(HopJudge):
    """A row says of an SHB what that has said itself; on a link it only rises; and every broker on the way hears it.

    So two SHBs cannot be mistaken for one (T48), and it does not matter which broker of a cell is cut off (T6).
    """

    name = "K3"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._said: dict[Row, tuple[int, int]] = {}
        """The highest that each SHB has said to its own router."""
        self._sent: dict[Hop, dict[Row, tuple[int, int, int]]] = {}
        """What was sent last on a hop, and when."""
        self._began: dict[Hop, int] = {}
        """When something was sent on a hop for the first time."""
        self._first: dict[tuple[str, object, Row], int] = {}
        """When a router, in one of its lives, has sent a row for the first time."""
        self._fresh: dict[tuple[str, object, Row], int] = {}
        """When it has heard it last, from a broker or from the SHB at hand."""
        self._said_at: dict[tuple[str, object, Row], int] = {}
        """When, as far as it can know, the SHB said it last: an SHB that is cut off says nothing new to anybody."""

    def progressed(self, broker: str, progress: routing.Progress) -> None:
        """An SHB says what it is done with."""
        row = progress.pubend, progress.shb
        released, delivered = self._said.get(row, (0, 0))
        self._said[row] = max(released, progress.released), max(delivered, progress.delivered)

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Rows that are sent are true, and higher than before."""
        now = self.world.now
        self._began.setdefault(hop, now)
        if type(message) is not ProgressRows:
            return
        life, sent = self.world.brokers[hop.source].life, self._sent.setdefault(hop, {})
        faults = self.world.options.network
        for said in message.rows:
            row = said.pubend, said.shb
            released, delivered = self._said.get(row, (0, 0))
            if said.released > released or said.delivered > delivered:
                self.fail(
                    f"{hop}: {said.shb} is said to have released {said.pubend} up to {said.released}, delivered up to "
                    f"{said.delivered}, and has itself said {released} and {delivered}"
                )
            before = sent.get(row, (0, 0, 0))
            excused = faults.repeat or faults.late or self._is_forgotten(hop.source, row)
            if (said.released < before[0] or said.delivered < before[1]) and not excused:
                self.fail(f"{hop}: the row of {said.shb} on {said.pubend} falls from {before[:2]} to {said}")
            sent[row] = said.released, said.delivered, now
            self._first.setdefault((hop.source, life, row), now)

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A broker hears of rows."""
        if type(message) is not ProgressRows:
            return
        life, life_of_source = self.world.brokers[hop.target].life, self.world.brokers[hop.source].life
        for said in message.rows:
            row = said.pubend, said.shb
            is_home = self.model.broker_of.get(said.shb) == hop.source
            said_at = self.world.now if is_home else self._said_at.get((hop.source, life_of_source, row), 0)
            self._said_at[hop.target, life, row] = max(said_at, self._said_at.get((hop.target, life, row), 0))
            self._fresh[hop.target, life, row] = self.world.now

    def checkpoint(self) -> None:
        """Looks for a broker on the way that a row is not said to."""
        since = self.world.now - REPEATED_WITHIN
        for hop in [hop for hop in self._began if not hop.is_up]:
            del self._began[hop]
            self._sent.pop(hop, None)
        for hop, began in self._began.items():
            broker = self.world.brokers[hop.source]
            if began > since or broker.paused_until > since or broker.turn_delay > SLOWEST:
                continue
            sent = self._sent.get(hop, {})
            for row in self._owed(hop, since):
                if sent.get(row, (0, 0, 0))[2] < since:
                    pubend, shb = row
                    self.fail(f"{hop.target} has not heard for long from {hop.source} how far {shb} is on {pubend}")

    def settled(self) -> bool:
        """Looks again, in the liveness phase."""
        self.checkpoint()
        return True

    def _is_forgotten(self, node: str, row: Row) -> bool:
        """Whether an SHB elsewhere has said nothing for so long that a router may have forgotten what it had said."""
        said_at = self._said_at.get((node, self.world.brokers[node].life, row), 0)
        return self.model.broker_of.get(row[1]) != node and self.world.now - said_at > FORGOTTEN_AFTER

    def _owed(self, hop: Hop, since: int) -> Iterator[Row]:
        """The rows that the source of a hop has, since long and still, and that go this way."""
        topology = self.world.topology
        life = self.world.brokers[hop.source].life
        for (node, its_life, row), first in self._first.items():
            if node != hop.source or its_life is not life or first > since or topology is None:
                continue
            pubend, shb = row
            owner, home = self.model.histories[pubend].broker, self.model.broker_of.get(shb)
            if home is None or self.model.shb_of.get(home) != shb:
                continue  # who is gone is forgotten, by each broker in its time
            is_fresh = self._fresh.get((node, life, row), 0) > since and not self._is_forgotten(node, row)
            is_fresh = is_fresh or home == node
            if not owner or owner == node or not is_fresh:
                continue
            if topology.cells_between(node, owner)[1] is topology.cell_of[hop.target]:
                yield row


class C5ByHop(HopJudge):
    """A stamp names only SHBs of which it is durable that the pubend counts them, on whatever link (T60)."""

    name = "C5"
    stands_map_changes = True
    facts: Sequence[type] = (routing.Enrolled, routing.Opened)
    effects: Sequence[type] = ()

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._counted: dict[PubendId, dict[ShbId, None]] = {}
        """Also those that were retired since: who still names them has heard of them before."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Looks at stamps."""
        if type(message) is not Knowledge or message.stamp is None:
            return
        history = self.model.histories.get(message.pubend)
        if history is not None and history.forked:
            return  # a second process counts SHBs, too, and nobody watches that
        counted: Mapping[ShbId, None] = self._counted.get(message.pubend, {})
        for shb, version in message.stamp.items():
            if version and shb not in counted:
                self.fail(f"{hop}: silence of {message.pubend} is said to be true for {shb}, which it does not count")

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: an SHB is counted."""
        counted = self._counted.setdefault(fact.pubend if type(fact) is routing.Enrolled else fact.meta.pubend, {})
        counted.update(dict.fromkeys([fact.shb] if type(fact) is routing.Enrolled else fact.members))

    def said(self, broker: str, now: int, effect: Any) -> None:
        """What routers say is judged by hop."""

    def vanished(self, broker: str) -> None:
        """What is durable stays."""


class K9Forgotten(HopJudge):
    """In the liveness phase, an SHB that is gone is forgotten: nothing is said any more about what it wanted (T58)."""

    name = "K9"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._named_at: dict[ShbId, int] = {}
        """When a stamp named an SHB the last time."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """Looks at stamps."""
        if type(message) is Knowledge and message.stamp is not None:
            for shb, version in message.stamp.items():
                if version:
                    self._named_at[shb] = self.world.now

    def settled(self) -> bool:
        """Whether all that are gone are."""
        return next(self._named(), None) is None

    def unsettled(self) -> str:
        """Who is still named."""
        return "; ".join(f"{shb} is gone for long, and still named" for shb in self._named())

    def _named(self) -> Iterator[ShbId]:
        for shb, home in self.model.broker_of.items():
            if self.model.shb_of.get(home) != shb and self.world.now - self._named_at.get(shb, -SILENT) < SILENT:
                yield shb


class K8Sideways(HopJudge):
    """What came from a mate goes to no mate again: there is one step sideways in each cell, so all that travels ends.

    But for mail to that mate, which ends there: who has no link to a mate gives what is for it to another one. Wants,
    interest, rows and the like are no such messages: who hears them speaks for itself.
    """

    name = "K8"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._came_from: dict[tuple[str, object], str] = {}
        """By node and message: who has brought it last."""

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        """A step is taken."""
        topology, key = self.world.topology, _identity(message, address)
        if key is None or topology is None or not topology.are_mates(hop.source, hop.target):
            return
        before = self._came_from.get((hop.source, key))
        if before is None or not topology.are_mates(before, hop.source):
            return
        if type(message) is not routing.Posted or address != (hop.target,):
            self.fail(f"{hop}: what {before} has handed over, {type(message).__name__}, goes sideways once more")

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """A step was taken."""
        key = _identity(message, address)
        if key is not None:
            self._came_from[hop.target, key] = hop.source


def _identity(message: Message, address: Address) -> object:
    """What is the same for a message on each hop; None: it is not passed on as it is."""
    if type(message) is Knowledge:
        return None if message.reply else (message.pubend, message.lo, message.hi)
    if type(message) in PASSED_ON:
        return encode(message, address)
    return None
