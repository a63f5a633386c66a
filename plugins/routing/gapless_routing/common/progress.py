"""What SHBs are done with, on its way to the pubends: a row for each SHB and pubend, never a minimum (T48).

Rows only rise, so any two of one SHB may be merged to the higher, and it does no harm if one comes twice or late. A
broker passes rows on to every broker that is next on the way to the pubend; which these are is for its router to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

from gapless.core.network.facts import BrokerId, Progress, Released
from gapless.core.network.frames import ProgressRows, portions
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.release import ReleaseTable
from gapless_routing.common.router_state import RouterState, Sender

EVERY_MIN: Final = 250 * MILLISECOND
ROWS_PER_SECOND: Final = 20_000
"""With more rows than that they are sent less often."""
ALL_EVERY: Final = 5 * SECOND


class NextHops(Protocol):
    """Says who is next on the way to a pubend."""

    def __call__(self, pubend: PubendId, *, sideways: bool) -> Collection[BrokerId]:
        """Returns the brokers. `sideways`: the rows came from a broker that goes no further itself."""


class ProgressTable:
    """The rows of all SHBs, and at the pubends' broker the minima."""

    def __init__(self, state: RouterState, sender: Sender, next_hops: NextHops) -> None:
        self._state = state
        self._sender = sender
        self._next_hops = next_hops
        self._rows: dict[PubendId, dict[ShbId, Progress]] = {}
        self._known: set[PubendId] = set()
        self._risen: dict[tuple[PubendId, ShbId], bool] = {}
        """What is to be sent; whether it came sideways."""
        self._releases: dict[PubendId, ReleaseTable] = {}

    def start(self) -> None:
        """All rows are sent now and then."""
        self._state.timers.set(("rows",), self._state.now + ALL_EVERY)

    def open(self, pubend: PubendId) -> None:
        """A pubend is known."""
        self._known.add(pubend)

    def close(self, pubend: PubendId) -> None:
        """A pubend is not known any more."""
        self._known.discard(pubend)
        self._rows.pop(pubend, None)
        self._risen = {key: sideways for key, sideways in self._risen.items() if key[0] != pubend}

    def hand_over(self, pubend: PubendId, members: dict[ShbId, Tick]) -> None:
        """A pubend of this broker: every member must be heard again from here on (C4)."""
        self._releases.setdefault(pubend, ReleaseTable()).replace_members(members)

    def enrol(self, pubend: PubendId, shb: ShbId) -> None:
        """A membership is durable: nothing is released before this SHB was heard (T20)."""
        self._releases[pubend].enrol(shb)

    def on_rows(self, rows: Iterable[Progress], *, sideways: bool = False) -> None:
        """Rows of SHBs have come, or one of the SHB of this broker."""
        for row in rows:
            self._take(row, sideways=sideways)

    def _take(self, row: Progress, *, sideways: bool) -> None:
        releases = self._releases.get(row.pubend)
        if releases is not None:
            releases.report(row)
            minima = releases.take_risen()
            if minima is not None:
                self._state.effects.append(Released(row.pubend, *minima))
        if row.pubend not in self._known:
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
            self._risen[row.pubend, row.shb] = sideways
            if ("progress",) not in self._state.timers:
                span = max(EVERY_MIN, len(self._risen) * SECOND // ROWS_PER_SECOND)
                self._state.timers.set(("progress",), self._state.now + span)

    def forget(self, shbs: Iterable[ShbId]) -> None:
        """Nobody has spoken of these SHBs for long."""
        for rows in self._rows.values():
            for shb in shbs:
                rows.pop(shb, None)

    # ------------------------------------------------------------------------------------------ time

    def send_risen(self) -> None:
        """Sends what rose since the last time."""
        risen, self._risen = self._risen, {}
        known = [(self._rows[pubend].get(shb), sideways) for (pubend, shb), sideways in risen.items()]
        self._send([(row, sideways) for row, sideways in known if row is not None])

    def send_all(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("rows",), self._state.now + ALL_EVERY)
        self._send([(row, False) for pubend in self._rows for row in self._of(pubend)])

    def on_link_up(self, broker: BrokerId, is_next: Callable[[PubendId], bool]) -> None:
        """A broker is there: it gets all rows of the pubends to which it is next on the way."""
        rows = [row for pubend in self._rows if is_next(pubend) for row in self._of(pubend)]
        for portion in portions(rows):
            self._sender.send(broker, ProgressRows(tuple(portion)))

    def say_all_to(self, broker: BrokerId, pubend: PubendId) -> None:
        """A broker is next on the way to a pubend now: it gets all rows of it."""
        self.on_link_up(broker, lambda name: name == pubend)

    def _of(self, pubend: PubendId) -> list[Progress]:
        return [] if pubend in self._releases else list(self._rows[pubend].values())

    def _send(self, rows: list[tuple[Progress, bool]]) -> None:
        going: dict[tuple[BrokerId, ...], list[Progress]] = {}
        for row, sideways in rows:
            going.setdefault(tuple(self._next_hops(row.pubend, sideways=sideways)), []).append(row)
        for brokers, together in going.items():
            for portion in portions(together):
                for broker in brokers:
                    self._sender.send(broker, ProgressRows(tuple(portion)))
