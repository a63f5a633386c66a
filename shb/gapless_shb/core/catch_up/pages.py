"""Pages: some ticks, which subscriptions they matched, and their events, for all readers that pass (protocol: readers).

A page comes from a block of the PFS, and its events from the network, fetched once for all readers; or it comes from a
step of the constream, and is complete. What one reader sends is a mask over the page's ticks. So readers share payloads
as live consumers do: equal masks have one payload.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Protocol

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless.selectors.filters import Filter
from gapless.selectors.index import BatchMatcher
from gapless.selectors.masks import mask_at
from gapless.selectors.masks import select as selected
from gapless_shb.core.catch_up.fetches import matches
from gapless_shb.core.pfs.blocks import Block
from gapless_shb.core.state.segments import Lost


class Masks(Protocol):
    """Which subscriptions the ticks of a page matched."""

    @property
    def imprecise(self) -> bool:
        """Whether masks may have ticks that did not match: then the events have to be filtered again."""

    def mask_of(self, sid: int) -> int:
        """Returns the page's ticks that matched a subscription, as a mask."""

    def among(self, sids: Mapping[int, object]) -> Iterable[tuple[int, int]]:
        """Yields (sid, mask) for those of `sids` that any tick matched; it may yield others with an empty mask."""


class Columns:
    """The columns of a block, each decoded once for all pages of the block."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self.imprecise = block.imprecise
        self._decoded: dict[int, int] = {}

    def mask_of(self, sid: int) -> int:
        """Returns the block's ticks that matched a subscription, as a mask."""
        mask = self._decoded.get(sid)
        if mask is None:
            mask = self._decoded[sid] = self._block.mask_of(sid)
        return mask

    def among(self, sids: Mapping[int, object]) -> Iterable[int]:
        """Returns those of `sids` that may be in the block."""
        return self._block.sids() if len(self._block) < len(sids) else sids


class PartOfBlock:
    """The columns of some of a block's ticks."""

    def __init__(self, columns: Columns, start: int, count: int) -> None:
        self._columns = columns
        self._start = start
        self._full = (1 << count) - 1
        self.imprecise = columns.imprecise

    def mask_of(self, sid: int) -> int:
        """Returns the page's ticks that matched a subscription, as a mask."""
        return self._columns.mask_of(sid) >> self._start & self._full

    def among(self, sids: Mapping[int, object]) -> Iterable[tuple[int, int]]:
        """Yields (sid, mask) for those of `sids` that any tick matched; it may yield others with an empty mask."""
        return ((sid, self.mask_of(sid)) for sid in self._columns.among(sids) if sid in sids)


class StepMasks:
    """The masks of a step of the constream."""

    imprecise = False

    def __init__(self, masks: Mapping[int, int]) -> None:
        self._masks = masks

    def mask_of(self, sid: int) -> int:
        """Returns the page's ticks that matched a subscription, as a mask."""
        return self._masks.get(sid, 0)

    def among(self, sids: Mapping[int, object]) -> Iterable[tuple[int, int]]:
        """Yields (sid, mask) for those of `sids` that any tick matched."""
        return ((sid, mask) for sid, mask in self._masks.items() if sid in sids)


class SeveralSteps:
    """The masks of several steps of the constream, one after the other."""

    imprecise = False

    def __init__(self, parts: Sequence[tuple[int, Masks]]) -> None:
        self.parts = parts
        """For each step how many ticks precede it, and its masks."""

    def mask_of(self, sid: int) -> int:
        """Returns the page's ticks that matched a subscription, as a mask."""
        mask = 0
        for shift, masks in self.parts:
            mask |= masks.mask_of(sid) << shift
        return mask

    def among(self, sids: Mapping[int, object]) -> Iterable[tuple[int, int]]:
        """Yields (sid, mask) for those of `sids` that any tick matched; it may yield others with an empty mask."""
        return ((sid, self.mask_of(sid)) for sid in sids)


class Page:
    """A page; see the module. Between `after` and its last tick only its ticks matched a durable subscription."""

    def __init__(self, after: Tick, ticks: Sequence[Tick], masks: Masks, events: EventBatch | None = None) -> None:
        self.after = after
        self.ticks = ticks
        self.masks = masks
        self.asked = 0
        """The ticks whose events were asked for."""
        self.have = 0
        """The ticks whose events are here."""
        self.lost = 0
        """The ticks whose events were released, as an answer says."""
        self.damaged = 0
        """The ticks that were given up as damaged."""
        self.cut = 0
        """The ticks that the log has lost."""
        self.waiting: dict[int, None] = {}
        """The readers that wait for events under way."""
        self.weight = 8 * len(ticks)
        """About how many bytes it keeps in memory."""
        self.weighed = 0
        """Its weight when it was counted last."""
        self._full = (1 << len(ticks)) - 1
        self._places: dict[Tick, int] = {}
        self._parts: tuple[list[bytes], list[int]] = ([], [])
        self._events = EventBatch((), (), ())
        self._expirations: dict[int, int] = {}
        self._payloads: dict[int, bytes] = {}
        self._matching: dict[tuple[Filter, int], int] = {}
        if events is not None:
            self._events, self.have, self.weight = events, self._full, events.size
            self._note_expirations(events, range(len(ticks)))

    def forget_headers(self) -> None:
        """Lets go of what was decoded of its events: see `EventBatch.forget_headers`."""
        self._events.forget_headers()

    @property
    def index(self) -> Tick:
        """Its last tick."""
        return self.ticks[-1]

    @property
    def is_complete(self) -> bool:
        """Whether all events that were asked for are here, or lost."""
        return not self.asked & ~self.have & ~self.damaged & ~self.cut & ~self.lost

    def wanted(self, sid: int, after: Tick) -> int:
        """Returns the ticks above `after` that matched a subscription."""
        mask = self.masks.mask_of(sid)
        return mask if after < self.ticks[0] else mask & ~self._upto(after)

    def ask(self, mask: int) -> list[Tick]:
        """Notes that the events of these ticks are wanted. Returns the ticks that were not asked for before."""
        fresh = mask & ~self.asked & ~self.have
        if not fresh:
            return []
        self.asked |= fresh
        self.lost &= ~fresh  # an earlier answer does not answer this question
        return selected(self.ticks, fresh)

    def most_of(self, mask: int) -> int:
        """Returns the mask, or all ticks if it has half of them: asking for one range is cheaper than for many."""
        return self._full if 2 * mask.bit_count() >= len(self.ticks) else mask

    def release(self, lo: Tick, hi: Tick) -> None:
        """Notes an answer that events in (lo, hi] that are not here were released."""
        self.lost |= self._upto(hi) & ~self._upto(lo)

    def give_up(self, lo: Tick, hi: Tick) -> None:
        """Notes that events in (lo, hi] that are not here were damaged and will never come."""
        self.damaged |= self._upto(hi) & ~self._upto(lo)

    def lose(self, lo: Tick, hi: Tick) -> None:
        """Notes that the log has lost what it had in (lo, hi]."""
        self.cut |= self._upto(hi) & ~self._upto(lo)

    def losses(self, mask: int) -> list[Lost] | None:
        """Returns which ticks of the mask are lost, and why; None while some of their events may still come."""
        gone = mask & ~self.have
        early = gone & self.lost
        cut = gone & self.cut & ~early
        if gone & ~early & ~self.damaged & ~cut:
            return None
        masks = (early, GapReason.RELEASED_EARLY), (cut, GapReason.CUT), (gone & ~early & ~cut, GapReason.DAMAGED)
        found = [(tick - 1, tick, reason) for mask, reason in masks for tick in selected(self.ticks, mask)]
        return sorted(found, key=itemgetter(1))

    def fill(self, data: EventBatch) -> int:
        """Takes the page's events out of arriving knowledge. Returns how many there were."""
        start, stop = bisect_right(data.ticks, self.after), bisect_right(data.ticks, self.index)
        if start == stop:
            return 0
        data = data.slice(start, stop)
        # Made with the first event that comes: many pages are dropped without one.
        if not self._places:
            self._places = {tick: at for at, tick in enumerate(self.ticks)}
            self._parts = [b""] * len(self.ticks), [0] * len(self.ticks)
        places = list(map(self._places.get, data.ticks))
        events, lengths = self._parts
        for at, event, length in zip(places, data.events, data.body_lengths, strict=True):
            if at is not None:
                events[at], lengths[at] = event, length
                self.weight += len(event)
        mine = [at for at in places if at is not None]
        self.have |= mask_at(mine)
        self._events = EventBatch(self.ticks, events, lengths)
        self._note_expirations(data, places)
        return len(mine)

    def _note_expirations(self, data: EventBatch, places: Iterable[int | None]) -> None:
        if not data.has_extras:
            return
        for at, header in zip(places, data.headers, strict=True):
            if at is not None and header.extras is not None and header.extras.expiration > 0:
                self._expirations[at] = header.extras.expiration

    def matching(self, pubend: PubendId, mask: int, matcher: BatchMatcher, selected_by: Filter) -> int:
        """Returns the ticks of the mask, all with their events here, that match the filter in the matcher."""
        if not self.masks.imprecise or not mask:
            return mask
        known = self._matching.get((selected_by, mask))
        if known is None:
            places = selected(range(len(self.ticks)), mask)
            hits = matches(pubend, self.select(mask), matcher)
            known = self._matching[selected_by, mask] = mask_at(selected(places, hits))
        return known

    def expired(self, wall: int) -> int:
        """Returns the ticks whose events have expired, as a mask."""
        return sum(1 << at for at, expiration in self._expirations.items() if expiration <= wall)

    def payload(self, mask: int) -> bytes:
        """Returns the payload of these events; all consumers that get the same events share it."""
        payload = self._payloads.get(mask)
        if payload is None:
            payload = self._payloads[mask] = self._events.payload(mask)
            self.weight += len(payload)
        return payload

    def part(self, mask: int) -> bytes:
        """Returns the payload for a consumer with little credit; it is not kept, because no other needs the same."""
        return self._events.payload(mask)

    def select(self, mask: int) -> EventBatch:
        """Returns the events of these ticks."""
        return self._events.select(mask)

    def missing(self, mask: int) -> list[Tick]:
        """Returns the ticks of the mask whose events are not here."""
        return selected(self.ticks, mask & ~self.have)

    def _upto(self, tick: Tick) -> int:
        return (1 << bisect_right(self.ticks, tick)) - 1


def above(ticks: Sequence[Tick], floor: Tick) -> int:
    """Returns the ticks above `floor`, as a mask."""
    return (1 << len(ticks)) - (1 << bisect_right(ticks, floor))


def joined(pages: Sequence[Page]) -> Page:
    """Joins complete pages that follow each other."""
    starts = accumulate((len(page.ticks) for page in pages[:-1]), initial=0)
    parts: list[tuple[int, Masks]] = []
    for start, page in zip(starts, pages, strict=True):
        if isinstance(page.masks, SeveralSteps):
            parts += [(start + shift, masks) for shift, masks in page.masks.parts]
        else:
            parts.append((start, page.masks))
    masks = SeveralSteps(parts)
    events = EventBatch.concatenate([page.select(page.have) for page in pages])
    return Page(pages[0].after, events.ticks, masks, events)
