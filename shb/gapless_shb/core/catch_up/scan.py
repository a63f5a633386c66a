"""The scan of a pubend: goes through what the PFS does not know, once for all readers that are near each other.

The PFS knows nothing of what a new subscription from the earliest matches: all events have to be looked at. If several
readers are there, a part of the pubend is fetched once for all of them, and is examined once, with all their selectors
in one matcher. What a reader sends is then a mask over the part's events, as with pages of the PFS.

A reader that comes later than a part was examined looks through that part itself. Where events are lost, the scan
leaves each reader to fetch for itself, because what a gap is differs between subscriptions.

Readers that stand far from each other are asked for at once, lowest first, as long as all that is under way fits into
one window. A new subscription needs a short range of its own, and one answer at a time would serve only so many of them
a second, however little each needs. Long ranges fill the window: there all wait for those who stand lowest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeConflict
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless_shb.core.catch_up.fetches import SHORTEST, RangeFetch, Window, matches
from gapless_shb.core.catch_up.pages import Page, StepMasks
from gapless_shb.core.state.memory import ANSWERED_WITHIN, Memory

PIECE: Final = 4096
"""So many events are examined at once, at most."""
KEPT_BYTES: Final = 4 << 20
"""So much is kept of what was scanned, for readers that are a little behind others; less where memory is short."""
PART_BYTES: Final = 1024
"""What a part takes beside its events."""
PATIENCE: Final = 8
"""For so many rounds those who stand lowest go first; then it is the turn of whoever has waited for longest."""
BEYOND: Final = 2
"""What is under way may bring so many times as much as it was meant to, before a part of it is left to the next one."""


class Scanned:
    """A part that was fetched: every event in (after, upto], and which of them each reader's selector matches."""

    def __init__(self, after: Tick, upto: Tick, events: EventBatch) -> None:
        self.after = after
        self.upto = upto
        self._events = events
        self._masks: dict[int, int] = {}
        self._late: dict[tuple[int, int], int] = {}
        """The same for readers that joined afterwards, and when they did."""
        self._examined_at: int | None = None
        self.page = Page(after, events.ticks, StepMasks(self._masks), events) if len(events) else None
        """Its events; None if there are none."""
        self.size = events.size + PART_BYTES

    def mask_of(self, sid: int, joined: int) -> int | None:
        """Returns which events a reader matches, once they are examined; None if it had not joined by then.

        `joined`: as how many-eth the reader has joined.
        """
        assert self._examined_at is not None
        return self._masks.get(sid, 0) if joined <= self._examined_at else None

    def mask_of_late(self, sid: int, joined: int, pubend: PubendId, matcher: BatchMatcher) -> tuple[int, int]:
        """Returns the same for a reader that has joined later, with the filter in the matcher, and how many it took."""
        mask = self._late.get((sid, joined))
        if mask is not None:
            return mask, 0
        mask = self._late[sid, joined] = matches(pubend, self._events, matcher)
        return mask, len(self._events)

    def examine(self, pubend: PubendId, matcher: BatchMatcher, joins: int) -> int:
        """Examines its events once, for all who have joined by now. Returns how many it had to look at."""
        if self._examined_at is not None:
            return 0
        self._examined_at = joins
        for mask, sids in self._events.match(pubend, matcher):
            for sid in sids:
                self._masks[sid] = mask
        return len(self._events)

    def has_event_in(self, ranges: Ranges) -> bool:
        """Whether any of its events lies in one of the ranges."""
        ticks = self._events.ticks
        return any(bisect_right(ticks, lo) < bisect_right(ticks, hi) for lo, hi in ranges)


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A fetch of the scan, or what is left of it."""

    fetch: RangeFetch
    span: Tick
    """So much of the window is taken until all of it is here: else those who stand higher would go on beside it."""
    counts_until: int
    """Until then it is. What is not answered soon must not keep others waiting."""


class Scan:
    """What is scanned of one pubend, and who waits for it; see the module."""

    def __init__(self, pubend: PubendId, grain: Tick, fetch: Callable[[Ranges, int], None], memory: Memory) -> None:
        self._pubend = pubend
        self._ask = fetch
        self._memory = memory
        self._matcher = BatchMatcher()
        self._joined: dict[int, int] = {}
        """The readers whose filters are in the matcher, and when each joined."""
        self._joins = 0
        self._waiting: dict[int, tuple[Tick, Tick]] = {}
        """The readers that wait for a part, where each stands, and up to where it needs all events."""
        self._since: dict[int, int] = {}
        """In which round each of them began to wait; in their order."""
        self._unserved: dict[int, None] = {}
        """Those of them for whom nothing is under way; in their order."""
        self._rounds = 0
        """So often was something asked for."""
        self._parts: OrderedDict[Tick, Scanned] = OrderedDict()
        """By `after`; the one that was used last is the last one."""
        self._order: list[Tick] = []
        self._under_way: list[_UnderWay] = []
        """No two of them ask for the same tick."""
        self._window = Window(grain, SHORTEST)
        self._lost = IntervalSet()
        """Something is lost here, so each reader fetches for itself."""
        self._woken: list[int] = []
        self._going: dict[int, Tick] = {}
        """The readers that were woken, and have not come to rest yet, and where each stood."""
        self._counted = self._counted_held = 0
        self._now = 0
        """The time of the last turn."""

    # ------------------------------------------------------------------------------- what readers do

    def part(self, horizon: Tick) -> Scanned | None:
        """Returns the part in which a reader goes on from `horizon`; None if it is not here."""
        at = bisect_right(self._order, horizon) - 1
        if at < 0 or (part := self._parts[self._order[at]]).upto <= horizon:
            return None
        self._parts.move_to_end(part.after)
        return part

    def mask_of(self, sid: int, selected_by: Filter, matcher: BatchMatcher, part: Scanned) -> tuple[int, int]:
        """Returns which events of a part a reader matches, and how many events had to be looked at for that.

        `matcher`: of this reader alone; if it has joined too late, all of the part is looked at once more with that.
        """
        self._join(sid, selected_by)
        examined = part.examine(self._pubend, self._matcher, self._joins)
        mask = part.mask_of(sid, self._joined[sid])
        if mask is None:
            return part.mask_of_late(sid, self._joined[sid], self._pubend, matcher)
        return mask, examined

    def want(self, sid: int, selected_by: Filter, horizon: Tick, upto: Tick) -> bool:
        """A reader waits for the part behind `horizon`, and needs no more than up to `upto`.

        Returns False if it has to fetch that for itself. `start` has to be called afterwards.
        """
        if horizon + 1 in self._lost:
            return False
        self._join(sid, selected_by)
        self._waiting[sid] = horizon, upto
        self._since.setdefault(sid, self._rounds)
        if self._is_served(horizon):
            self._unserved.pop(sid, None)
        else:
            self._unserved.setdefault(sid)
        return True

    def _join(self, sid: int, selected_by: Filter) -> None:
        if sid not in self._joined:
            self._joins += 1
            self._joined[sid] = self._joins
            self._matcher.add(sid, selected_by)

    def leave(self, sid: int) -> None:
        """A reader is over, or needs no scan any more."""
        self._served(sid)
        self.rest(sid)
        if self._joined.pop(sid, None) is not None:
            self._matcher.remove(sid)
        if not self._joined:
            self._parts.clear()
            self._order.clear()
            self._lost = IntervalSet()
            self._under_way.clear()  # what comes may not be offered any more
        self._count()

    def rest(self, sid: int) -> None:
        """A reader that was woken has taken what it could, and waits for something now."""
        self._going.pop(sid, None)

    def start(self, now: int) -> None:
        """Fetches for the readers for whom nothing is under way, in turn, as much as the window has room for.

        Readers that were woken come first: what they are about to take is not given up for those who have taken it.
        """
        self._now = now
        if self._going or not self._unserved or not self._has_room():
            return
        room = self._window.span - sum(each.span for each in self._under_way if now < each.counts_until)
        if room <= 0:
            return
        self._rounds += 1
        asked = IntervalSet()
        for lo, hi in self._turns():
            fetch = RangeFetch(self._pubend, lo, min(hi, lo + room), self._matcher)
            self._under_way.append(_UnderWay(fetch, fetch.end - lo, now + ANSWERED_WITHIN))
            asked.add(lo, fetch.end)
            room -= fetch.end - lo
            if room <= 0:
                break
        self._find_unserved()
        self._ask(asked.ranges, now)

    def _has_room(self) -> bool:
        """Whether an answer may be held.

        What was left to a later fetch is asked for again when there is room for it. An answer that is at hand would
        come in the same instant, would be left to a later fetch once more, and so on for ever.
        """
        if self._held < self._fetch_bytes:
            return True
        self._under_way = [each for each in self._under_way if self._serves_somebody(each.fetch)]
        self._count()
        return self._held < self._fetch_bytes

    @property
    def _fetch_bytes(self) -> int:
        """About how many bytes should be under way.

        What has come of them makes it no less: else there would be room again for what is left to a later fetch, as
        soon as it is, and that could be asked for again in the same instant, and so on for ever.
        """
        return self._memory.fetch_bytes_beside(self._counted_held)

    @property
    def _held(self) -> int:
        """How many bytes have come that cannot be used yet."""
        return sum(each.fetch.held for each in self._under_way)

    def _serves_somebody(self, fetch: RangeFetch) -> bool:
        return any(fetch.start <= at < fetch.end for at, _ in self._waiting.values())

    def _turns(self) -> list[tuple[Tick, Tick]]:
        """Returns what those need for whom nothing is under way: the lowest first, so that all read the same parts."""
        needs = IntervalSet(self._waiting[sid] for sid in self._unserved)
        for each in self._under_way:
            needs.remove(each.fetch.start, each.fetch.end)
        first: Ranges = ()
        longest = next(iter(self._unserved))
        if self._rounds - self._since[longest] >= PATIENCE:
            first = needs.within(self._waiting[longest][0], FOREVER)[:1]
        return [*first, *(needs - IntervalSet(first))]

    @property
    def _most(self) -> int:
        """How much may be kept."""
        return min(KEPT_BYTES, self._memory.pages_most(self._counted))

    def _is_served(self, at: Tick) -> bool:
        """Whether something is under way for a reader that stands there."""
        return any(each.fetch.start <= at < each.fetch.end for each in self._under_way)

    def _find_unserved(self) -> None:
        """Something else is under way than before."""
        self._unserved = {sid: None for sid in self._since if not self._is_served(self._waiting[sid][0])}

    def _served(self, sid: int) -> None:
        self._waiting.pop(sid, None)
        self._since.pop(sid, None)
        self._unserved.pop(sid, None)

    # ------------------------------------------------------------------------------- what has come

    def offer(self, knowledge: Knowledge, cut: Ranges) -> None:
        """Takes RAW knowledge that has arrived (`Reader.offer`)."""
        if cut:
            for part in [part for part in self._parts.values() if part.has_event_in(cut)]:
                self._drop(part)
        if not self._under_way:
            return
        conflict: KnowledgeConflict | None = None
        for each in self._under_way:
            if knowledge.hi > each.fetch.start:
                try:
                    each.fetch.offer(knowledge)
                except KnowledgeConflict as found:
                    conflict = found
        self._bound()
        for each in self._under_way.copy():
            if each.fetch.complete:
                self._take(each)
        self._count()
        if conflict is not None:
            raise conflict

    def forget(self, lo: Tick, hi: Tick) -> Ranges:
        """The log has lost what it had in (lo, hi]; see `Reader.forget`."""
        for part in [part for part in self._parts.values() if part.after < hi and lo < part.upto]:
            self._drop(part)
        missing = IntervalSet()
        for each in self._under_way:
            each.fetch.forget(lo, hi)
            for start, stop in each.fetch.ranges():
                missing.add(start, stop)
        return missing.ranges

    def take_woken(self) -> list[int]:
        """Returns the readers that may go on since the last call."""
        woken, self._woken = self._woken, []
        return woken

    def _bound(self) -> None:
        """Leaves to later fetches what is more than may be held of what is under way."""
        left, kept, is_less = BEYOND * self._fetch_bytes, list[_UnderWay](), False
        for each in self._under_way:
            end = each.fetch.end
            if left > 0:
                each.fetch.bound(left)
                left -= each.fetch.held
                kept.append(each)
            elif not each.fetch.held:
                kept.append(each)
            is_less |= each.fetch.end < end
        if is_less or len(kept) < len(self._under_way):
            self._under_way = kept
            self._find_unserved()

    def _take(self, under_way: _UnderWay) -> None:
        """A fetch has a front that is complete: makes parts of it, and wakes those who wait in it."""
        fetch = under_way.fetch
        lo, upto = fetch.start, fetch.upto
        fetch.teach(self._window, self._fetch_bytes)
        woken = {sid: at for sid, (at, _) in self._waiting.items() if lo <= at < upto}
        for sid in woken:
            self._served(sid)
        self._woken += woken
        self._going |= woken
        events = fetch.whole
        if events is None:
            self._lost.add(lo, upto)
        else:
            self._cut_up(lo, upto, events)
        rest = fetch.rest()
        if rest is None:
            self._under_way.remove(under_way)
        else:  # the rest of the answer may be on its way already
            under_way.fetch, under_way.counts_until = rest, self._now + ANSWERED_WITHIN

    def _cut_up(self, start: Tick, upto: Tick, events: EventBatch) -> None:
        for first in range(0, max(len(events), 1), PIECE):
            piece = events.slice(first, first + PIECE)
            end = piece.ticks[-1] if first + PIECE < len(events) else upto
            self._put(Scanned(start, end, piece))
            start = end

    def _put(self, part: Scanned) -> None:
        if part.after in self._parts:
            self._drop(self._parts[part.after])
        insort(self._order, part.after)
        self._parts[part.after] = part
        held, most = sum(kept.size for kept in self._parts.values()), self._most
        for kept in list(self._parts.values())[:-1]:
            if held <= most:
                break
            if not self._is_due(kept):
                held -= kept.size
                self._drop(kept)

    def _is_due(self, part: Scanned) -> bool:
        """Whether a reader that was woken for a part has not had its turn yet: it would ask for it again, and so on."""
        return any(part.after <= at < part.upto for at in self._going.values())

    def _drop(self, part: Scanned) -> None:
        del self._parts[part.after]
        del self._order[bisect_left(self._order, part.after)]

    def _count(self) -> None:
        """Counts what is kept in the memory of the broker."""
        self._counted_held = self._held
        held = sum(part.size for part in self._parts.values()) + self._counted_held
        self._memory.pages += held - self._counted
        self._counted = held
