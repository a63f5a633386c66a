"""Fetches: what a reader has asked the network for, and what has arrived (protocol: readers).

`TickFetch` asks for single ticks that the PFS named. If the PFS is imprecise, it filters the answers. `RangeFetch` asks
for a whole range that the PFS does not know, and filters the answers. Both end in segments, in order: events and gaps.

How large events are is known only when they are here. So a fetch keeps about as many bytes as it may: what it asked for
above that is left to the next fetch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import itemgetter

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW
from gapless.core.stream.ticks import FOREVER, STEP, PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.state.segments import GapSegment, Lost, Segment

NEAR = 64
"""Wanted ticks with fewer places of events between them are asked for in one range, for at most 63 events more."""


def nearness(grain: Tick) -> Tick:
    """Returns how close wanted ticks of a pubend of that grain must be to be asked for in one range."""
    return NEAR * min(STEP, grain)


class TickFetch:
    """Fetches exactly these ticks; all other ticks up to `upto` are silence for the subscription."""

    def __init__(
        self,
        pubend: PubendId,
        start: Tick,
        ticks: Sequence[Tick],
        upto: Tick,
        near: Tick,
        imprecise_for: BatchMatcher | None,
    ) -> None:
        """`near`: ticks that are closer to each other than this are asked for in one range.

        `imprecise_for`: the subscription's matcher, if some of these ticks may not match it.
        """
        self._pubend = pubend
        self._near = near
        self.start = start
        self.upto = upto
        self._imprecise_for = imprecise_for
        self._ticks = ticks
        self._missing = list(ticks)
        self._pieces: list[EventBatch] = []
        self._size = 0
        self._gone = IntervalSet()
        self._damaged = IntervalSet()
        self._cut = IntervalSet()

    def ranges(self) -> Ranges:
        """Returns the ranges to ask for; near ticks share a range."""
        return near_ranges(self._ticks, self._near)

    def offer(self, knowledge: Knowledge) -> None:
        """Takes the wanted events out of knowledge that has arrived."""
        for lo, hi in knowledge.gone:
            self._gone.add(lo, hi)
        if knowledge.damaged:
            self._damaged.add(knowledge.lo, knowledge.hi)
        data, missing = knowledge.data, self._missing
        if not data:
            return
        low, high = bisect_left(missing, data.ticks[0]), bisect_right(missing, data.ticks[-1])
        expected = missing[low:high]
        # Most answers have exactly what was asked for: then no event is looked at by itself.
        if len(expected) == len(data) and expected == list(data.ticks):
            self._keep(data)
            del missing[low:high]
        elif places := _places(data.ticks, expected):
            hits = data.at(places)
            self._keep(hits)
            missing[low:high] = () if len(hits) == len(expected) else sorted({*expected}.difference(hits.ticks))

    def _keep(self, piece: EventBatch) -> None:
        self._pieces.append(piece)
        self._size += piece.size

    def lose(self, lo: Tick, hi: Tick) -> None:
        """The log has lost what it had in (lo, hi]."""
        self._cut.add(lo, hi)

    @property
    def wanted(self) -> int:
        """How many events it asks for."""
        return len(self._ticks)

    @property
    def count(self) -> int:
        """How many of the wanted events have arrived."""
        return len(self._ticks) - len(self._missing)

    @property
    def size(self) -> int:
        """The bytes of these events."""
        return self._size

    @property
    def examines(self) -> int:
        """How many events it has to match."""
        return 0 if self._imprecise_for is None else self.count

    @property
    def held(self) -> int:
        """The bytes of all events that it keeps."""
        return self.size

    def bound(self, size: int) -> None:
        """Leaves to the next fetch what goes beyond so many bytes; one event stays in any case."""
        if self.size <= size:
            return
        self._pieces.sort(key=lambda piece: piece.ticks[0])
        events = merge(self._pieces)
        count = fitting(events, size)
        if count == len(events):
            return
        kept = events.slice(0, count)
        # It ends at an event that it keeps: even the silence behind that is left to the next fetch, in order.
        self.upto = kept.ticks[-1]
        self._pieces, self._size = [kept], kept.size
        self._ticks = self._ticks[: bisect_right(self._ticks, self.upto)]
        del self._missing[bisect_right(self._missing, self.upto) :]

    @property
    def complete(self) -> bool:
        """Whether every wanted tick has its event, or an answer that it is lost."""
        if not self._gone and not self._damaged and not self._cut:
            return not self._missing
        return all(tick in self._gone or tick in self._damaged or tick in self._cut for tick in self._missing)

    def segments(self, silent: Ranges) -> list[Segment]:
        """Returns events and gaps in order. Ticks in `silent` are never a gap."""
        self._pieces.sort(key=lambda piece: piece.ticks[0])
        known = IntervalSet(silent)
        # The subscription may have got done with a tick after it was asked for: then nothing of it is lost.
        lost = [tick for tick in self._missing if tick not in known]
        events = merge(self._pieces)
        if self._imprecise_for is not None:
            events = refilter(self._pubend, events, self._imprecise_for)
        return interleave(self.start, events, [(tick - 1, tick, self._reason(tick)) for tick in lost])

    def _reason(self, tick: Tick) -> GapReason:
        if tick in self._gone:
            return GapReason.RELEASED_EARLY
        return GapReason.CUT if tick in self._cut else GapReason.DAMAGED


def _places(ticks: Sequence[Tick], wanted: Sequence[Tick]) -> list[int]:
    """Returns the indices in `ticks` of those wanted ticks that are in it."""
    places: list[int] = []
    at = 0
    for tick in wanted:
        at = bisect_left(ticks, tick, at)
        if at == len(ticks):
            break
        if ticks[at] == tick:
            places.append(at)
    return places


def near_ranges(ticks: Sequence[Tick], near: Tick) -> Ranges:
    """Returns ranges that contain all these ascending ticks; ticks no further apart than `near` share a range."""
    ranges: list[tuple[Tick, Tick]] = []
    start = end = 0
    for tick in ticks:
        if tick - end > near or not start:
            if start:
                ranges.append((start - 1, end))
            start = tick
        end = tick
    if start:
        ranges.append((start - 1, end))
    return tuple(ranges)


class RangeFetch:
    """Fetches all of (start, upto], unfiltered, and keeps the events that the subscription's filter matches."""

    def __init__(self, pubend: PubendId, start: Tick, upto: Tick, matcher: BatchMatcher) -> None:
        self._pubend = pubend
        self.start = start
        self._asked_upto = upto
        self._known = KnowledgeStream(pubend, start)
        self._matcher = matcher

    def go_on_from(self, before: RangeFetch) -> None:
        """Takes over what arrived for the fetch before and lies in this range: behind a hole it could not be used."""
        self._known = before._known
        self._known.trim(self.start)
        self._known.forget(self._asked_upto, FOREVER)

    def bound(self, size: int) -> None:
        """Leaves to the next fetch what goes beyond so many bytes; one event stays in any case."""
        if self._known.size <= size:
            return
        events = self._known.take(self.start, self._asked_upto)
        count = fitting(events, size)
        if count < len(events):
            self.end_at(events.ticks[count - 1])
            self._known.forget(self._asked_upto, FOREVER)

    @property
    def end(self) -> Tick:
        """It asks for nothing above this."""
        return self._asked_upto

    @property
    def whole(self) -> EventBatch | None:
        """All events up to `upto`, matching or not; None if anything there is lost."""
        upto = self.upto
        if self._known.lost_in(self.start, upto, RAW) or self._known.damaged_in(self.start, upto, RAW):
            return None
        return self._known.take(self.start, upto)

    def rest(self) -> RangeFetch | None:
        """Returns what fetches the rest of what was asked for, without asking again; None if all of it is here."""
        if self.upto >= self._asked_upto:
            return None
        rest = RangeFetch(self._pubend, self.upto, self._asked_upto, self._matcher)
        rest.go_on_from(self)
        return rest

    @property
    def examines(self) -> int:
        """How many events it has to match."""
        return len(self._known.take(self.start, self.upto))

    @property
    def held(self) -> int:
        """The bytes of all events that it keeps."""
        return self._known.size

    def let_go(self) -> None:
        """What lies in front was taken over, and is not kept here."""
        self._known.trim(self.upto)

    def forget(self, lo: Tick, hi: Tick) -> None:
        """Nothing is known of (lo, hi] any more."""
        self._known.forget(max(lo, self.start), hi)

    def ranges(self) -> Ranges:
        """Returns the ranges to ask for."""
        return self._known.unknown(self.start, self._asked_upto, RAW)

    def offer(self, knowledge: Knowledge) -> None:
        """Takes unfiltered knowledge. Silence under a stamp is ignored: it may come from another filter (T13)."""
        if knowledge.lo < self._asked_upto:
            self._known.accumulate(knowledge.upto(self._asked_upto))

    @property
    def upto(self) -> Tick:
        """Up to here everything is known."""
        return min(self._known.horizon(self.start, RAW), self._asked_upto)

    @property
    def complete(self) -> bool:
        """Whether there is progress: everything known at the front can be sent at once."""
        return self.upto > self.start

    @property
    def size(self) -> int:
        """The bytes of all events that arrived, matching or not. The length of the next range depends on it."""
        return self._known.take(self.start, self.upto).size

    def teach(self, window: Window, target: int) -> None:
        """Tells a window what has come. `target`: how many bytes the next range should bring."""
        window.learn(self.upto - self.start, self.size, target, cut=self.upto < self._asked_upto)

    def end_at(self, upto: Tick) -> None:
        """Leaves what lies above a tick to the next fetch, which takes over what has arrived of it."""
        self._asked_upto = min(self._asked_upto, upto)

    def segments(self, silent: Ranges) -> list[Segment]:
        """Returns events and gaps in order. Ticks in `silent` are never a gap."""
        upto, known = self.upto, IntervalSet(silent)
        lost = IntervalSet(self._known.lost_in(self.start, upto, RAW)) - known
        damaged = IntervalSet(self._known.damaged_in(self.start, upto, RAW)) - known
        gone = [(lo, hi, GapReason.RELEASED_EARLY) for lo, hi in lost]
        gone += [(lo, hi, GapReason.DAMAGED) for lo, hi in damaged]
        events = refilter(self._pubend, self._known.take(self.start, upto), self._matcher)
        return interleave(self.start, events, sorted(gone, key=itemgetter(0)))


def fitting(events: EventBatch, size: int) -> int:
    """Returns how many of the first events have about so many bytes: one at the least, if there is any."""
    ends = list(accumulate(events.lengths))
    return min(len(ends), max(1, bisect_right(ends, size)))


def refilter(pubend: PubendId, batch: EventBatch, matcher: BatchMatcher) -> EventBatch:
    """Returns the events of a batch that match; the matcher has a single filter."""
    return batch.select(matches(pubend, batch, matcher)) if len(batch) else batch


def matches(pubend: PubendId, batch: EventBatch, matcher: BatchMatcher) -> int:
    """Returns the same as a mask."""
    mask = 0
    for matched, _ in batch.match(pubend, matcher):
        mask |= matched
    return mask


def merge(pieces: list[EventBatch]) -> EventBatch:
    """Joins pieces that do not overlap into one batch in tick order; pieces may interleave."""
    whole = EventBatch.concatenate(pieces)
    if all(left.ticks[-1] < right.ticks[0] for left, right in pairwise(pieces)):
        return whole
    order = sorted(range(len(whole)), key=whole.ticks.__getitem__)
    return EventBatch(
        [whole.ticks[at] for at in order], [whole.events[at] for at in order], [whole.body_lengths[at] for at in order]
    )


def interleave(start: Tick, events: EventBatch, lost: Sequence[Lost]) -> list[Segment]:
    """Orders events and gaps by tick. Lost ranges with the same reason and no event between them become one gap."""
    if not lost:
        return [events] if len(events) else []
    segments: list[Segment] = []
    at, position = 0, start
    for _, end, reason in _joined(lost, events):
        before = _count_upto(events, at, end)
        if before > at:
            segments.append(events.slice(at, before))
            position = events.ticks[before - 1]
            at = before
        if end > position:
            segments.append(GapSegment(position, end, reason))
            position = end
    if at < len(events):
        segments.append(events.slice(at, len(events)))
    return segments


def _joined(lost: Sequence[Lost], events: EventBatch) -> list[Lost]:
    joined: list[Lost] = []
    for lo, hi, reason in lost:
        same = joined and joined[-1][2] == reason
        if same and _count_upto(events, 0, lo) == _count_upto(events, 0, joined[-1][1]):
            joined[-1] = (joined[-1][0], hi, reason)
        else:
            joined.append((lo, hi, reason))
    return joined


def _count_upto(events: EventBatch, at: int, tick: Tick) -> int:
    while at < len(events) and events.ticks[at] <= tick:
        at += 1
    return at


SHORTEST = 10
"""In grains: the shortest range that is asked for without knowing how dense it is."""


class Window:
    """Chooses the length of the next range, whose density is unknown: longer after few bytes, shorter after many."""

    TARGET_BYTES = 1 << 20
    LONGEST = FOREVER >> 2

    def __init__(self, grain: Tick, first: int) -> None:
        """`grain`: that of the pubend; `first`: the first guess, in grains."""
        self.span = first * grain
        self._shortest = SHORTEST * grain

    def upto(self, start: Tick, limit: Tick) -> Tick:
        """Returns the end of the next range from `start` on, at most `limit`."""
        return min(limit, start + self.span)

    def learn(self, covered: Tick, size: int, target: int = TARGET_BYTES, *, cut: bool = False) -> None:
        """Notes that so many ticks brought `size` bytes, and that a range should bring `target`.

        `cut`: they are the first part of a longer range, cut because of its bytes: so dense is what follows, too.
        """
        fitting = min(4 * self.span, self.LONGEST, covered * target // size if size else self.LONGEST)
        if cut:
            # One event may be more than should come. A shorter range would bring none, and so seem to be sparse.
            self.span = covered if size > 2 * target else max(min(fitting, self.span), 1)
        elif size > 2 * target:
            self.span = max(self.span // 4, min(self.span, self._shortest))
        else:
            # A short range says little, as the pubend may end there: only far too many bytes make ranges shorter.
            is_sparse = 2 * size < target
            self.span = max(self.span, fitting, self._shortest if is_sparse else 0)
