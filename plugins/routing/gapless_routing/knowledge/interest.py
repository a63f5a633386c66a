"""To whom interests and censuses are said on a tree of cells (protocol: interest on the way).

Interests go to every broker of the cells toward which somebody filters, which are those with a PHB behind them. Where a
cell cannot be reached from here, the mates say it there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gapless.core.network.facts import BrokerId, Interest, LinkId
from gapless.core.stream.ticks import ShbId
from gapless_routing.common.interest_flow import CENSUS, CENSUS_EVERY, InterestFlow
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.options import Sizes
from gapless_routing.knowledge.peers import Peers

__all__ = ["CENSUS", "CENSUS_EVERY", "Interests"]


class Interests(InterestFlow):
    """The interest of the SHB here, and of those behind each neighbouring cell."""

    def __init__(
        self,
        state: RouterState,
        sizes: Sizes,
        cells: Cells,
        peers: Peers,
        on_heard: Callable[[ShbId, Cell], None],
        read: Callable[[LinkId, BrokerId, bytes], None],
    ) -> None:
        """`on_heard`, `read`: as of `InterestFlow`."""
        super().__init__(
            state, peers.links, cells.neighbours, on_heard, read, sizes.turn_bytes, sizes.turn_subscriptions
        )
        self._cells = cells
        self._peers = peers
        self._phb_side = [cell for cell in cells.neighbours if cells.has_role_behind(cell, "phb")]
        """The directions in which somebody filters."""

    def start(self) -> None:
        """The first census is due when there are links."""
        for cell in self._cells.neighbours:
            if not self._cells.has_role_behind(cell, "shb"):
                self.table.knows_all_of(cell)
        self.may_be_synced()
        super().start()

    def side_of(self, broker: BrokerId) -> Cell:
        """Returns the cell of a broker."""
        return str(self._cells.of(broker))

    def direction_of(self, broker: BrokerId, named: Cell) -> Cell:
        """Returns the cell that a mate names; everybody else speaks of the side on which he is."""
        return named if broker in self._cells.mates else self.side_of(broker)

    def listeners(self, origin: Cell) -> Iterable[BrokerId]:
        """Returns the brokers of all cells toward which somebody filters, but that one."""
        return [broker for cell in self._phb_side if cell != origin for broker in self._peers.live(cell)]

    def forward(self, origin: Cell, interest: Interest, sender: BrokerId | None, to: Cell) -> None:
        """Passes an interest on, to the cell that a mate names, or to all; a mate does it where none can be reached."""
        by_mate = sender in self._cells.mates
        for cell in [to] if by_mate else self._phb_side:
            if cell == origin or cell not in self._phb_side:
                continue
            brokers = self._peers.live(cell)
            for broker in brokers:
                self.say(broker, origin, interest)
            if not brokers and not by_mate:
                for mate in self._peers.live(self._cells.own):
                    self.say(mate, origin, interest, cell)

    def may_be_synced(self) -> None:
        """The neighbours are told when it is known of all cells what everybody there wants."""
        self._peers.synced = self.table.all_synced

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told who is on this side, if somebody filters there."""
        if self.side_of(broker) in self._phb_side:
            super().on_link_up(broker)

    def say_census(self) -> list[ShbId]:
        """Every five seconds: who is on this side, to all who filter. Returns the SHBs that were forgotten."""
        forgotten = super().say_census()
        if not all(map(self._peers.live, self._phb_side)):
            self._say_census_to_mates()
        return forgotten

    def _say_census_to_mates(self) -> None:
        """A cell cannot be reached from here: the mates know who is on this side, and tell it there."""
        for mate in self._peers.live(self._cells.own):
            for cell in self.table:
                rows = list(self.table.rows(cell)) if cell != CORE else []
                if rows:
                    self.send_census(mate, rows, len(rows) if self.table.is_synced(cell) else None, cell)
