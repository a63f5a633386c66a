"""What SHBs are done with, on its way to the pubends: a row for each SHB and pubend, never a minimum (T48).

Rows only rise, so any two of one SHB may be merged to the higher, and it does no harm if one comes twice or late. A
broker passes rows on to every live broker of the cell on the way to the pubend. If there is none, its mates do that.
"""

from __future__ import annotations

from typing import Final

from gapless.core.network.facts import BrokerId, Progress, Released
from gapless.core.network.frames import ProgressRows, portions
from gapless.core.network.release import ReleaseTable
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.peers import Peers
from gapless_routing.knowledge.state import State

EVERY_MIN: Final = 250 * MILLISECOND
ROWS_PER_SECOND: Final = 20_000
"""With more rows than that they are sent less often."""
ALL_EVERY: Final = 5 * SECOND


class ProgressTable:
    """The rows of all SHBs, and at the pubends' broker the minima."""

    def __init__(self, state: State, cells: Cells, peers: Peers) -> None:
        self._state = state
        self._cells = cells
        self._peers = peers
        self._rows: dict[PubendId, dict[ShbId, Progress]] = {}
        self._risen: dict[tuple[PubendId, ShbId], bool] = {}
        """What is to be sent; whether it came from a mate, and so goes to no other one."""
        self._cell_of: dict[PubendId, Cell] = {}
        self._releases: dict[PubendId, ReleaseTable] = {}

    def start(self) -> None:
        """All rows are sent now and then."""
        self._state.timers.set(("rows",), self._state.now + ALL_EVERY)

    def open(self, pubend: PubendId, cell: Cell) -> None:
        """A pubend is known, and where it is."""
        self._cell_of[pubend] = cell

    def hand_over(self, pubend: PubendId, members: dict[ShbId, Tick]) -> None:
        """A pubend of this broker: every member must be heard again from here on (C4)."""
        self._releases.setdefault(pubend, ReleaseTable()).replace_members(members)

    def enrol(self, pubend: PubendId, shb: ShbId) -> None:
        """A membership is durable: nothing is released before this SHB was heard (T20)."""
        self._releases[pubend].enrol(shb)

    def on_rows(self, rows: tuple[Progress, ...], sender: BrokerId | None) -> None:
        """Rows of SHBs. `sender` None: of the SHB of this broker."""
        for row in rows:
            self._take(row, from_mate=sender in self._cells.mates)

    def _take(self, row: Progress, *, from_mate: bool) -> None:
        releases = self._releases.get(row.pubend)
        if releases is not None:
            releases.report(row)
            minima = releases.take_risen()
            if minima is not None:
                self._state.effects.append(Released(row.pubend, *minima))
        if row.pubend not in self._cell_of:
            return
        rows = self._rows.setdefault(row.pubend, {})
        before = rows.get(row.shb)
        if before is not None and before.released >= row.released and before.delivered >= row.delivered:
            return
        if before is not None:
            highest = max(before.released, row.released), max(before.delivered, row.delivered)
            row = Progress(row.shb, row.pubend, *highest)
        rows[row.shb] = row
        if releases is None:
            self._risen[row.pubend, row.shb] = from_mate
            if ("progress",) not in self._state.timers:
                span = max(EVERY_MIN, len(self._risen) * SECOND // ROWS_PER_SECOND)
                self._state.timers.set(("progress",), self._state.now + span)

    def forget(self, shbs: list[ShbId]) -> None:
        """Nobody has spoken of these SHBs for long."""
        for rows in self._rows.values():
            for shb in shbs:
                rows.pop(shb, None)

    # ------------------------------------------------------------------------------------------ time

    def send_risen(self) -> None:
        """What rose since the last time."""
        risen, self._risen = self._risen, {}
        known = [(self._rows[pubend].get(shb), from_mate) for (pubend, shb), from_mate in risen.items()]
        self._send([(row, from_mate) for row, from_mate in known if row is not None])

    def send_all(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("rows",), self._state.now + ALL_EVERY)
        self._send([(row, False) for pubend in self._rows for row in self._of(pubend)])

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it gets all rows that go its way."""
        cell = self._cells.of(broker)
        rows = [row for pubend in self._rows if self._toward(pubend) == cell for row in self._of(pubend)]
        for portion in portions(rows):
            self._peers.send(broker, ProgressRows(tuple(portion)))

    def _of(self, pubend: PubendId) -> list[Progress]:
        return [] if pubend in self._releases else list(self._rows[pubend].values())

    def _toward(self, pubend: PubendId) -> Cell | None:
        return self._cells.toward(self._cell_of[pubend])

    def _send(self, rows: list[tuple[Progress, bool]]) -> None:
        upward: dict[Cell, list[tuple[Progress, bool]]] = {}
        for row, from_mate in rows:
            cell = self._toward(row.pubend)
            if cell is not None:
                upward.setdefault(cell, []).append((row, from_mate))
        for cell, going in upward.items():
            brokers = self._peers.live(cell)
            chosen = going if brokers else [(row, from_mate) for row, from_mate in going if not from_mate]
            for portion in portions([row for row, _ in chosen]):
                for broker in brokers or self._peers.live(self._cells.own):
                    self._peers.send(broker, ProgressRows(tuple(portion)))
