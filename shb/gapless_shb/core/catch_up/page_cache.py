"""The page cache: pages that the readers of a pubend share, each read and fetched once (protocol: readers).

Readers that are near each other use the same pages. The cache keeps the pages that were used last, within a limit; for
a reader that comes later a page is read again. The pages of the constream's latest steps are in the cache as well, so a
reader that is only a little behind needs neither the PFS nor the network.

Work under way is limited, too: two reads of the PFS, and the events of a few pages. Other readers wait for their place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final, Protocol

from gapless.core.gauges import Gauge
from gapless.core.ports import ReadResult
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless_shb.core.catch_up.fetches import near_ranges, nearness
from gapless_shb.core.catch_up.pages import Columns, Page, PartOfBlock, joined
from gapless_shb.core.pfs.blocks import TICKS_MAX, Block
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state import gauges
from gapless_shb.core.state.memory import EventSizes, Memory

PAGE_BYTES: Final = 256 << 10
"""About how many bytes the events of a page have; less where there is no memory for several such pages."""
READS_MAX: Final = 2
"""How many reads of the PFS may be under way."""
FETCHES_MAX: Final = 8
"""The events of so many full pages may be under way; smaller pages count by their ticks."""
AHEAD: Final = 4
"""So many full pages are fetched at once: the page that a reader wants, and those after it."""

_index = attrgetter("index")


class Standing(Protocol):
    """A reader, as far as the page cache has to know it."""

    horizon: Tick


class PageCache:
    """The pages of one pubend; see the module."""

    def __init__(
        self,
        pfs: Pfs,
        head: Tick,
        readers: Mapping[int, Standing],
        read: Callable[[Tick, Tick, int], None],
        fetch: Callable[[Ranges, int], None],
        kept_bytes: int,
        memory: Memory,
        sizes: EventSizes,
    ) -> None:
        """`kept_bytes`: the most that it may keep; `memory`: of the broker, which may have less for it."""
        self._kept_bytes = kept_bytes
        self._memory = memory
        self._counted = 0
        """How much of what it keeps counts in the memory of the broker."""
        self._sizes = sizes
        self._pfs = pfs
        self._readers = readers
        self._read = read
        self._fetch = fetch
        self._live: list[Page] = []
        self._live_from = head
        """Everything after this tick that matched a durable subscription is in `_live`."""
        self._live_weight = 0
        self._pages: OrderedDict[Tick, Page] = OrderedDict()
        """The pages by last tick; the page that was used last is the last one."""
        self._order: list[Tick] = []
        self._weight = 0
        self._nothing = (0, 0)
        """(lo, hi]: no block of the PFS ends in this interval."""
        self._reads: dict[int, tuple[Tick, Tick]] = {}
        self._read_count = 0
        self._waiting: dict[int, Tick] = {}
        """The readers that wait for a read of the PFS, and where they stand."""
        self._queue: dict[int, None] = {}
        """The readers that wait until events of other pages have arrived."""
        self.asked: dict[Tick, Page] = {}
        """The pages with events that were asked for and have not arrived, even if no reader waits for them any more."""
        self._asked_ticks = 0
        """How many ticks these pages have."""
        self._portion = 16
        self._near = nearness(pfs.grain)
        self._pages_read = self._pages_dropped = self._shared = 0
        self.unreadable_upto: Tick = 0
        """The PFS could not be read up to here: nothing is known."""

    def gauges(self, pubend: PubendId) -> Iterator[Gauge]:
        """Yields how much is in memory, and how useful that was."""
        yield gauges.KEPT_BYTES.gauge(self._live_weight + self._weight, pubend)
        yield gauges.PAGES_READ.gauge(self._pages_read, pubend)
        yield gauges.PAGES_DROPPED.gauge(self._pages_dropped, pubend)
        yield gauges.SHARED_FETCHES.gauge(self._shared, pubend)

    # ------------------------------------------------------------------------------- what there is

    def page(self, horizon: Tick) -> Page | None:
        """Returns the page in which a reader goes on from `horizon`; None if it is not in the cache."""
        if horizon >= self._live_from:
            at = bisect_right(self._live, horizon, key=_index)
            return self._live_page(at) if at < len(self._live) else None
        at = bisect_right(self._order, horizon)
        if at == len(self._order) or (page := self._pages[self._order[at]]).after > horizon:
            return None
        self._pages.move_to_end(page.index)
        self._weigh(page)
        return page

    def silent_upto(self, horizon: Tick, head: Tick) -> Tick:
        """Returns up to where nothing matched a durable subscription from `horizon` on, if `page` returned None."""
        if horizon >= self._live_from:
            return head
        lo, hi = self._nothing
        return hi if lo <= horizon < hi else horizon

    def first_event_behind(self, horizon: Tick) -> Tick:
        """Returns a tick at or above `horizon`: no event in memory lies between the two."""
        at = bisect_right(self._live, horizon, key=_index)
        found = self._live[at].after if at < len(self._live) else FOREVER
        kept = (self._pages[index] for index in self._order[bisect_right(self._order, horizon) :])
        return max(horizon, min(found, next((page.after for page in kept if page.have), FOREVER)))

    # -------------------------------------------------------------------------------- what is live

    def add_live(self, page: Page) -> None:
        """Adds a step of the constream, and drops the oldest steps beyond the limit."""
        if self._live:
            self._live[-1].forget_headers()  # whoever was live has matched them
        self._live.append(page)
        self._live_weight += page.weight
        page.weighed = page.weight
        gone, most = 0, self._most // 3
        while self._live_weight > most:
            self._live_weight -= self._live[gone].weighed
            self._live_from = self._live[gone].index
            gone += 1
        del self._live[:gone]
        self._count()

    def _live_page(self, at: int) -> Page:
        """Returns the page at an index, joined with small ones after it: few large deliveries cost less than many."""
        end, count = at, 0
        while end < len(self._live) and count + len(self._live[end].ticks) <= TICKS_MAX:
            count += len(self._live[end].ticks)
            end += 1
        if end - at > 1:
            parts = self._live[at:end]
            self._live[at:end] = [joined(parts)]
            self._live_weight -= sum(part.weighed for part in parts)
        self._weigh_live(self._live[at])
        return self._live[at]

    def _weigh_live(self, page: Page) -> None:
        self._live_weight += page.weight - page.weighed
        page.weighed = page.weight

    # --------------------------------------------------------------------------- reads of the PFS

    def want_blocks(self, sid: int, horizon: Tick) -> None:
        """A reader waits for the blocks after `horizon`; `start_reads` has to be called afterwards."""
        self._waiting[sid] = horizon

    def start_reads(self) -> None:
        """Starts reads for the readers that stand lowest; the read may serve others, too."""
        while self._waiting and len(self._reads) < READS_MAX:
            unserved = [at for at in self._waiting.values() if not self._is_coming(at)]
            if not unserved:
                return
            self._read_count += 1
            # To the end: the same blocks serve readers that stand further ahead. The read is bounded by its bytes.
            span = self._reads[self._read_count] = min(unserved), self._pfs.closed_upto
            self._read(*span, self._read_count)

    def _is_coming(self, horizon: Tick) -> bool:
        return any(after <= horizon < upto for after, upto in self._reads.values())

    def on_read(self, number: int, result: ReadResult) -> list[int]:
        """The PFS was read. Returns the readers that may go on.

        Ticks at or below its chop point *now* are unknown, not silence (T43).
        """
        after, upto = self._reads.pop(number)
        waiting, self._waiting = list(self._waiting), {}
        if result.error:
            self.unreadable_upto = max(self.unreadable_upto, upto)
        else:
            after = max(after, result.first)
            for index, data in result.records:
                if index > after:
                    self._add(after, Block(index, data))
                    after = index
            if after < upto and not result.records:
                self._nothing = after, upto
        return waiting + self._take_queue()

    def _add(self, after: Tick, block: Block) -> None:
        """Makes pages of what no page has of a block. A page that is there may have events that a reader waits for."""
        ticks, columns, most, start = block.ticks, Columns(block), self._page_ticks, 0
        after = min(after, ticks[0] - 1)  # the read began inside the block
        for page in (*self._pages_in(ticks[0] - 1, block.index), None):
            stop = len(ticks) if page is None else bisect_left(ticks, page.ticks[0])
            for at in range(start, stop, most):
                part = ticks[at : min(at + most, stop)]
                self._put(Page(after, part, PartOfBlock(columns, at, len(part))))
                after = part[-1]
            if page is not None:
                page.after = min(page.after, after)
                start, after = bisect_right(ticks, page.index), page.index

    @property
    def _page_ticks(self) -> int:
        """How many ticks the next page has."""
        return min(self._portion, self._sizes.fitting(self._page_bytes))

    @property
    def _page_bytes(self) -> int:
        """How many bytes the next page should have: as many pages as are fetched at once can be kept.

        A page that is dropped before it was sent is fetched whole again, for each part that there was room for.
        """
        return min(PAGE_BYTES, self._memory.pages_most(self._counted) // FETCHES_MAX)

    def _pages_in(self, lo: Tick, hi: Tick) -> list[Page]:
        indexes = self._order[bisect_right(self._order, lo) : bisect_right(self._order, hi)]
        return [self._pages[index] for index in indexes]

    def _put(self, page: Page) -> None:
        self._pages_read += 1
        insort(self._order, page.index)
        self._pages[page.index] = page
        self._weigh(page)

    # ------------------------------------------------------------------------------ their events

    def ask(self, sid: int, page: Page, mask: int, now: int) -> None:
        """A reader waits for events of a page that are not in memory."""
        if mask & ~page.asked & ~page.have:
            if self._asked_ticks >= FETCHES_MAX * self._page_ticks:
                self._queue[sid] = None
                return
            self._ask_on(page, mask, now)
        page.waiting[sid] = None

    def _ask_on(self, page: Page, mask: int, now: int) -> None:
        """Asks for all events of the page, and of the pages after it, that any reader will need."""
        ticks = self._ask_for(page, mask)
        for following in self._behind(page):
            ticks += self._ask_for(following, 0)
        self._fetch(near_ranges(ticks, self._near), now)

    def _behind(self, page: Page) -> Iterable[Page]:
        if not self._sizes.is_known:
            return
        limit = min(self._asked_ticks + AHEAD * self._page_ticks, FETCHES_MAX * self._page_ticks)
        for at in range(bisect_right(self._order, page.index), len(self._order)):
            following = self._pages[self._order[at]]
            if following.after != page.index or self._asked_ticks + len(following.ticks) > limit:
                return
            page = following
            yield page

    def _ask_for(self, page: Page, mask: int) -> list[Tick]:
        for sid, wanted in page.masks.among(self._readers):
            if self._readers[sid].horizon < page.index:
                mask |= wanted
            if 2 * mask.bit_count() >= len(page.ticks):
                break
        ticks = page.ask(page.most_of(mask))
        if ticks and page.index not in self.asked:
            self.asked[page.index] = page
            self._asked_ticks += len(page.ticks)
        return ticks

    def on_knowledge(self, knowledge: Knowledge) -> list[int]:
        """RAW knowledge has arrived. Returns the readers that may go on."""
        hits, complete = 0, []
        for page in self.asked.values():
            hits += page.fill(knowledge.data)
            for lo, hi in knowledge.gone:
                page.release(lo, hi)
            if knowledge.damaged:
                page.give_up(knowledge.lo, knowledge.hi)
            if page.is_complete:
                complete.append(page)
        if hits and knowledge.reply:
            self._learn(knowledge, hits)
        return self._completed(complete) if complete else []

    def lose(self, ranges: Ranges) -> None:
        """The log has lost what it had in these ranges."""
        for lo, hi in ranges:
            for page in self.asked.values():
                page.lose(lo, hi)

    def _completed(self, pages: list[Page]) -> list[int]:
        woken: list[int] = []
        for page in pages:
            self._answered(page)
            self._shared += len(page.waiting) > 1
            woken += page.waiting
            page.waiting.clear()
            self._weigh(page)
        return woken + self._take_queue()

    def _answered(self, page: Page) -> None:
        if self.asked.pop(page.index, None) is not None:
            self._asked_ticks -= len(page.ticks)

    def _take_queue(self) -> list[int]:
        queue, self._queue = list(self._queue), {}
        return queue

    def _learn(self, knowledge: Knowledge, hits: int) -> None:
        """Learns how large events are, and how far apart wanted ticks may be to be asked for in one range."""
        count = len(knowledge.data)
        fitting = self._page_bytes * count // max(knowledge.data.size, 1)
        self._portion = max(1, min(fitting, 4 * self._portion, TICKS_MAX))
        if 8 * (count - hits) <= hits:
            self._near = min(4 * self._near, FOREVER)
        elif count > 2 * hits:
            self._near = max(nearness(self._pfs.grain), self._near // 4)

    # ------------------------------------------------------------------------------- what is kept

    @property
    def _most(self) -> int:
        """How much may be kept: a third of it for the constream's latest steps, the rest for pages that were read."""
        return min(self._kept_bytes, self._memory.pages_most(self._counted))

    def _count(self) -> None:
        """Counts what is kept in the memory of the broker."""
        kept = self._live_weight + self._weight
        self._memory.pages += kept - self._counted
        self._counted = kept

    def _weigh(self, page: Page) -> None:
        """Updates the sum of weights with a page's present weight."""
        self._weight += page.weight - page.weighed
        page.weighed = page.weight

    def tidy(self, runnable: Iterable[int]) -> None:
        """Drops the pages that were not used for longest; `runnable`: the readers whose turn is still to come.

        Two kinds of page stay: those with events under way, and the next page of each runnable reader. Without the
        second rule a page could be read and dropped again and again before the reader's turn comes.
        """
        self._count()
        most = self._most - self._most // 3
        if self._weight <= most:
            return
        due = {self._index_behind(self._readers[sid].horizon) for sid in runnable if sid in self._readers}
        for page in list(self._pages.values()):
            if page.index not in self.asked and page.index not in due:
                self._remove(page)
            if self._weight <= most:
                break
        self._count()

    def _index_behind(self, horizon: Tick) -> Tick:
        at = bisect_right(self._order, horizon)
        return self._order[at] if at < len(self._order) else FOREVER

    def _remove(self, page: Page) -> None:
        self._pages_dropped += 1
        del self._pages[page.index]
        del self._order[bisect_right(self._order, page.index) - 1]
        self._answered(page)
        self._weight -= page.weighed
