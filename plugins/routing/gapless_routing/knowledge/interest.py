"""What every direction's SHBs want, as it is said along a tree of cells (protocol: interest on the way).

Interests go to every broker of the cells toward which somebody filters, which are those with a PHB behind them. Where a
cell cannot be reached from here, the mates say it there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gapless.core.network.facts import AskInterest, BrokerId, Interest, LinkId
from gapless.core.network.frames import Address, InterestPart, InterestQuestion, Private, portions
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.ticks import ShbId
from gapless.errors import RemoteProtocolError
from gapless_routing.common.census import Census, CensusRow, InterestByDirection, decode_census, encode_census
from gapless_routing.common.pacing import NEXT_TURN, Intake, Saying, Sayings
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.options import Sizes
from gapless_routing.knowledge.peers import Peers

CENSUS: Final = 2
"""The kind of a `Private` that holds a Census."""
CENSUS_EVERY: Final = 5 * SECOND


class Interests:
    """Says the interest of all directions to those who filter, and takes what others say."""

    def __init__(
        self,
        state: RouterState,
        sizes: Sizes,
        cells: Cells,
        peers: Peers,
        on_heard: Callable[[ShbId, Cell], None],
        read: Callable[[LinkId, BrokerId, bytes], None],
    ) -> None:
        """`on_heard` is called when an SHB is heard of in a direction: it may have to be enrolled.

        `read` takes a frame with a part of an interest, when its turn has come: it ends in `on_part`.
        """
        self._state = state
        self._sizes = sizes
        self._cells = cells
        self._peers = peers
        self.table = InterestByDirection(state, cells.neighbours, on_heard)
        self.intake = Intake(state, sizes.turn_bytes, sizes.turn_subscriptions, read)
        self.sayings = Sayings(state, peers.links, sizes.turn_subscriptions)
        self._phb_side = [cell for cell in cells.neighbours if cells.has_role_behind(cell, "phb")]
        """The directions in which somebody filters."""
        self.shb: ShbId = ""
        """The SHB of this broker, once it has spoken."""

    def start(self) -> None:
        """The first census is due when there are links."""
        for cell in self._cells.neighbours:
            if not self._cells.has_role_behind(cell, "shb"):
                self.table.knows_all_of(cell)
        self._peers.synced = self.table.all_synced
        self._state.timers.set(("census",), self._state.spread(CENSUS_EVERY))

    # --------------------------------------------------------------------------------- what happened

    def on_own(self, interest: Interest) -> None:
        """The SHB of this broker says what it wants, or that it has not changed."""
        self.shb = interest.shb
        self.intake.take_own(interest, self.table.prepare_own, self._take_own)

    def _take_own(self, interest: Interest) -> None:
        if self.table.apply(CORE, interest):
            self._forward(CORE, interest, None)
        elif not self.table.has(CORE, interest):
            self._state.effects.append(AskInterest())
        self.table.hear(CORE, interest.shb, self._state.now)

    def on_part(self, broker: BrokerId, part: InterestPart, address: Address) -> None:
        """A part of an interest, or of a change of it."""
        age, to, origin = int(address[0]), str(address[1]), str(address[2])
        cell = origin if broker in self._cells.mates else str(self._cells.of(broker))
        if age < 0:
            raise RemoteProtocolError("an SHB has not spoken in the future")
        if cell not in self.table or cell == CORE:
            return
        self.table.hear(cell, part.shb, self._state.now - age * MILLISECOND)
        interest = self.table.take_part(cell, part)
        if interest is None:
            return
        if self.table.apply(cell, interest):
            self._forward(cell, interest, to if broker in self._cells.mates else None)
        elif not self.table.has(cell, interest):
            self._ask(broker, part.shb)

    def on_census(self, broker: BrokerId, data: bytes) -> None:
        """What a broker knows of the SHBs on its side. Raises RemoteProtocolError when it makes no sense."""
        census = decode_census(data)
        cell = census.direction if broker in self._cells.mates else str(self._cells.of(broker))
        if cell not in self.table or cell == CORE:
            return
        if self.table.take_census(cell, census, lambda shb: self._ask(broker, shb)):
            self._peers.synced = self.table.all_synced

    def on_question(self, broker: BrokerId, question: InterestQuestion) -> None:
        """A broker lacks the interest of an SHB."""
        cell = self.table.direction_of(question.shb)
        if cell is None or cell == self._cells.of(broker) or self.sayings.says_whole(broker, question.shb):
            return
        whole = self.table.whole(cell, question.shb)
        if whole is not None:
            self._send(broker, cell, whole, None)
        elif cell == CORE:
            self._state.effects.append(AskInterest())

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told who is on this side."""
        if self._cells.of(broker) in self._phb_side:
            self._say_census(broker)

    # ------------------------------------------------------------------------------------------ time

    def say_census(self) -> list[ShbId]:
        """Every five seconds: who is on this side, to all who filter. Returns the SHBs that were forgotten."""
        self._state.timers.set(("census",), self._state.now + CENSUS_EVERY)
        forgotten = self.table.forget_silent()
        self.table.tidy()
        for cell in self._phb_side:
            for broker in self._peers.live(cell):
                self._say_census(broker)
        if not all(map(self._peers.live, self._phb_side)):
            self._say_census_to_mates()
        return forgotten

    # -------------------------------------------------------------------------------- how it is done

    def _ask(self, broker: BrokerId, shb: ShbId) -> None:
        """Asks for the whole, unless it may be among what has come and was not read yet. The next census tells."""
        if not self.intake:
            self._peers.links.send(broker, InterestQuestion(shb))

    def _say_census(self, broker: BrokerId) -> None:
        receiver = self._cells.of(broker)
        rows = [row for cell in self.table if cell != receiver for row in self.table.rows(cell)]
        self._send_census(broker, rows, len(rows))

    def _say_census_to_mates(self) -> None:
        """A cell cannot be reached from here: the mates know who is on this side, and tell it there."""
        for mate in self._peers.live(self._cells.own):
            for cell in self.table:
                rows = list(self.table.rows(cell)) if cell != CORE else []
                if rows:
                    self._send_census(mate, rows, len(rows) if self.table.is_synced(cell) else None, cell)

    def _send_census(self, broker: BrokerId, rows: list[CensusRow], total: int | None, direction: Cell = "") -> None:
        for cut in list(portions(rows)) or [[]]:
            self._peers.links.send(broker, Private(CENSUS, encode_census(Census(tuple(cut), total, direction))))

    def _forward(self, origin: Cell, interest: Interest, only: Cell | None) -> None:
        """Sends an interest on to every broker of the next cells; where none can be reached, a mate does it."""
        if interest.full and len(interest.add) > self._sizes.turn_subscriptions:
            self._state.timers.set(("census",), self._state.now + NEXT_TURN)
            return
        for cell in self._phb_side if only is None else [only]:
            if cell == origin or cell not in self._phb_side:
                continue
            brokers = self._peers.live(cell)
            for broker in brokers:
                self._send(broker, origin, interest, None)
            if not brokers and only is None:
                for mate in self._peers.live(self._cells.own):
                    self._send(mate, origin, interest, cell)

    def _send(self, broker: BrokerId, origin: Cell, interest: Interest, to: Cell | None) -> None:
        def address() -> tuple[int, str, str]:
            return self.table.age_of(origin, interest.shb), to or "", origin

        self.sayings.say(broker, Saying(interest, self._sizes.turn_bytes, address))
