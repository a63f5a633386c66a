"""Answers how far a budget of events and bytes goes on each pubend.

1. On each pubend events are counted from its start, until this pubend alone would use up the budget, or the head is
   reached.
2. The budget is shared in proportion to the counts. If the pubends together are behind by less than the budget, each
   gets all that it is behind. Otherwise no pubend has to wait for the long history of another one.

Example: a budget of 100 events; A is behind by 30, B by 10,000, so B is counted up to 100. A gets 23 and B 77.

A pubend that does not answer delays the result for a limited time; then its count so far is taken. Events are counted
in the PFS alone where it has them. To count their bytes they have to be fetched.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Final

from gapless.core.ports import ClientSession, ReadResult
from gapless.core.principals import Principal
from gapless.core.stream.batch_bytes import ROW
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import AskBound, GapReason, Position, Ticks
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.pfs.blocks import BlockColumn
from gapless_shb.core.ranges.reader import READ_BYTES, BoundedReader
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.subscriptions.checks import called, check_positions, found_for_ranges, over, tell_ticks

PATIENCE: Final = 5_000_000_000
"""How many nanoseconds a count may take. After that the result is computed from what was counted so far."""
COUNTED_MAX: Final = 1 << 20
"""How many events of a pubend are counted at most. The bound may be lower than possible, but is never higher."""

EVENT_BYTES_MAX: Final = 64
"""How many bytes may be kept for a counted event. Keeping only its tick takes 8 bytes, but ten times as long."""


class Count:
    """A sink that counts events, and with `max_bytes` also the bytes up to each event."""

    def __init__(self, max_events: int | None, max_bytes: int | None) -> None:
        self._max_events = min(max_events or COUNTED_MAX, COUNTED_MAX)
        self._max_bytes = max_bytes
        self.wants_events = max_bytes is not None
        self._parts: list[Sequence[Tick] | BlockColumn] = []
        self._ends: list[int] = [0]
        """How many events there are up to the end of each part, beginning with 0."""
        self.sizes: array[int] = array("Q")
        """The bytes up to and including each event; empty if bytes are not counted."""

    def __len__(self) -> int:
        return self._ends[-1]

    def tick(self, number: int) -> Tick:
        """Returns the tick of an event by its number; the first event has number 0."""
        at = bisect_right(self._ends, number) - 1
        part = self._parts[at]
        return (part.ticks() if isinstance(part, BlockColumn) else part)[number - self._ends[at]]

    @property
    def full(self) -> bool:
        """Whether this pubend alone would use up the budget."""
        spent = self._max_bytes is not None and bool(self.sizes) and self.sizes[-1] >= self._max_bytes
        return spent or len(self) >= self._max_events

    def ticks(self, ticks: Sequence[Tick]) -> None:
        """Counts these ticks."""
        if ticks:
            self._parts.append(ticks)
            self._ends.append(len(self) + len(ticks))

    def column(self, column: BlockColumn) -> None:
        """Counts the ticks of a block. A column with few ticks is decoded at once, because that takes less room."""
        if len(column) * EVENT_BYTES_MAX >= column.size:
            self._parts.append(column)
            self._ends.append(len(self) + len(column))
        else:
            self.ticks(array("Q", column.ticks()))

    def events(self, events: EventBatch) -> EventBatch | None:
        """Counts these events."""
        self.ticks(events.ticks)
        if self.wants_events:
            before = self.sizes[-1] if self.sizes else 0
            sizes = accumulate(map(ROW.size.__add__, events.lengths), initial=before)
            next(sizes)
            self.sizes.extend(sizes)
        return None

    def gap(self, start: Tick, end: Tick, reason: GapReason) -> None:
        """A gap costs nothing of the budget."""


@dataclass(slots=True, eq=False)
class BoundQuestion:
    """One request, while its events are counted."""

    session: int
    who: Principal
    request: AskBound
    subscription: SubscriptionRecord
    until: int
    readers: dict[PubendId, tuple[BoundedReader, Count]] = field(default_factory=dict)


class Bounds:
    """Answers AskBound."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._bounds: dict[int, BoundQuestion] = {}
        self._count = 0

    def on_ask(
        self, session: ClientSession, request: AskBound, heads: Mapping[PubendId, Tick], now: int, wall: int
    ) -> None:
        """Begins to count up to these heads. Raises RefusedError."""
        subscription = found_for_ranges(self._hosting, session, request.target)
        check_positions(request.start, self._hosting, called(subscription.name), now)
        starts = {position.pubend: position.tick for position in request.start}
        self._count += 1
        number, bound = (
            self._count,
            BoundQuestion(session.number, session.principal, request, subscription, now + PATIENCE),
        )
        self._bounds[number] = bound
        self._hosting.session_ends.add(session.number, bound, lambda _now, _wall: self._drop(number))
        for pubend, head in heads.items():
            stream = self._hosting.streams[pubend]
            start = starts.get(pubend, stream.positions[subscription.sid].acked)
            count = Count(request.max_events, request.max_bytes)
            read = partial(self._read, number, pubend)
            go_on = partial(self._go_on, number, pubend)
            reader = BoundedReader(stream, subscription, start, max(start, head), count, read, go_on)
            bound.readers[pubend] = reader, count
            stream.scheduler.join(reader)
        for reader, _ in bound.readers.values():
            _count_on(reader, now, wall)
        self._answer_if_counted(number, now)

    @property
    def deadline(self) -> int | None:
        """When a request has to be answered at the latest."""
        return min((bound.until for bound in self._bounds.values()), default=None)

    def answer_overdue(self, now: int) -> None:
        """Answers the requests that have taken too long, from what was counted so far."""
        for number, bound in list(self._bounds.items()):
            if now >= bound.until:
                self._answer_if_counted(number, now)

    def on_heard(self, pubend: PubendId, now: int, wall: int) -> None:
        """Something has arrived, or the head has moved: the readers of the pubend go on."""
        for number, bound in list(self._bounds.items()):
            if pubend in bound.readers:
                self._go_on(number, pubend, now, wall)

    def on_removed(self) -> None:
        """Answers requests about subscriptions that were removed or have another filter, with an error."""
        for number, bound in list(self._bounds.items()):
            errors = [over(self._hosting, reader.sid, reader.version) for reader, _ in bound.readers.values()]
            error = next(filter(None, errors), None)
            if error is not None:
                self._drop(number)
                self._hosting.tell(bound.session, error.answer(bound.request.request))

    def _read(self, number: int, pubend: PubendId, after: Tick, upto: Tick) -> None:
        def answered(result: ReadResult, now: int, wall: int) -> None:
            if number in self._bounds:
                reader, _ = self._bounds[number].readers[pubend]
                reader.on_read(result)
                self._go_on(number, pubend, now, wall)

        self._hosting.outbox.read(self._hosting.streams[pubend].pfs.stream, after, upto, answered, READ_BYTES)

    def _go_on(self, number: int, pubend: PubendId, now: int, wall: int) -> None:
        reader, _ = self._bounds[number].readers[pubend]
        _count_on(reader, now, wall)
        self._answer_if_counted(number, now)

    def _drop(self, number: int) -> None:
        bound = self._bounds.pop(number)
        self._hosting.session_ends.remove(bound.session, bound)
        for reader, _ in bound.readers.values():
            reader.close()
            self._hosting.streams[reader.stream.pubend].scheduler.leave(reader)

    def _answer_if_counted(self, number: int, now: int) -> None:
        bound = self._bounds[number]
        counted = all(reader.complete or count.full for reader, count in bound.readers.values())
        if not counted and now < bound.until:
            return
        self._drop(number)
        counts = {pubend: count for pubend, (_, count) in bound.readers.items()}
        taken = divided(counts, bound.request.max_events, bound.request.max_bytes)
        positions = [
            Position(pubend, _end(reader, count, taken[pubend])) for pubend, (reader, count) in bound.readers.items()
        ]
        tell_ticks(self._hosting, bound.session, bound.who, bound.subscription, Ticks(bound.request.request, positions))


def _count_on(reader: BoundedReader, now: int, wall: int) -> None:
    while reader.step(now, wall):
        pass


def _end(reader: BoundedReader, count: Count, taken: int) -> Tick:
    """Returns where a pubend ends if `taken` of its counted events are taken."""
    last = count.tick(taken - 1) if taken else reader.start
    if taken < len(count):
        return last
    if reader.complete:
        return reader.end
    return reader.stream.client_position(reader.horizon) if reader.horizon > last else last


def divided(counts: Mapping[PubendId, Count], max_events: int | None, max_bytes: int | None) -> dict[PubendId, int]:
    """Returns how many of the counted events of each pubend are within the budget."""
    taken = {pubend: len(count) for pubend, count in counts.items()}
    if max_bytes is not None:
        room = shares({pubend: count.sizes[-1] if count.sizes else 0 for pubend, count in counts.items()}, max_bytes)
        fitting = {pubend: bisect_right(counts[pubend].sizes, room[pubend]) for pubend in counts}
        if not any(fitting.values()):  # each first event is larger than its share: one is taken all the same
            first = next((pubend for pubend in counts if taken[pubend]), None)
            fitting = {pubend: int(pubend == first) for pubend in counts}
        taken = {pubend: min(taken[pubend], fitting[pubend]) for pubend in counts}
    if max_events is not None:  # a block may have counted more than the budget; that must not give a larger share
        taken = shares({pubend: min(count, max_events) for pubend, count in taken.items()}, max_events)
    return taken


def shares(wanted: Mapping[PubendId, int], budget: int) -> dict[PubendId, int]:
    """Divides a budget in proportion to what is wanted, never more than wanted.

    What rounding leaves over goes to the pubends that lost most by rounding. So no pubend starves while anything is
    left.
    """
    total = sum(wanted.values())
    if total <= budget:
        return dict(wanted)
    parts = {pubend: budget * amount // total for pubend, amount in wanted.items()}
    left = budget - sum(parts.values())
    by_lack = sorted(wanted, key=lambda pubend: (-(budget * wanted[pubend] % total), pubend))
    for pubend in by_lack[:left]:
        parts[pubend] += 1
    return parts
