"""What the SHBs behind a link want, and what may be asserted about what is left out (protocol: interest, stamps).

Filtering is only as true as the table it was done with. So every table knows its version of each SHB's
interest, silence goes out under the versions that were honoured, and knowledge that was computed under
versions the table has not reached is passed on whole (flooded). Changes are taken only without a hole
(T4), and a table that never got the whole of an SHB's interest filters nothing for it (T27).

An interest may be larger than a frame, and so travels in parts. Each says for which subscriptions it speaks. So it is
known when all of it is there, whatever was lost, repeated, or cut elsewhere when it was said again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, NamedTuple

from gapless.core.network.facts import Interest
from gapless.core.network.frames import PORTION_BYTES, InterestPart, portions
from gapless.core.network.interest import row_digest
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.stamps import RAW, Stamp, covers, restrict
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId
from gapless.selectors import BatchMatcher, Filter

TIDIED_AT_ONCE: Final = 256
"""So many filters that nobody wants any more are taken out of a table at a time; until then they match, to no harm."""


_ALL: Final = Filter(("#",))


class Decision(NamedTuple):
    """What to do with first-time knowledge on a link."""

    flood: bool
    """Send every event; else only those that match."""
    stamp: Stamp
    """What the silence may be stamped with."""


def parts_of(interest: Interest, bytes_max: int = PORTION_BYTES) -> list[InterestPart]:
    """An interest, as it travels: in parts that fit a frame each, or are as small as `bytes_max` asks for."""
    return list(parts_in_turn(interest, bytes_max))


def parts_in_turn(interest: Interest, bytes_max: int = PORTION_BYTES) -> Iterator[InterestPart]:
    """The same parts, each made when it is asked for: a large interest is the work of many turns."""
    shb, base, version, full = interest.shb, interest.base, interest.version, interest.full

    def plain(subscription: int) -> object:
        wanted = interest.add.get(subscription)
        return subscription if wanted is None else (subscription, subscription, wanted.topics, wanted.selector)

    def part(portion: list[int], start: int, end: int | None) -> InterestPart:
        add = {subscription: interest.add[subscription] for subscription in portion if subscription in interest.add}
        return InterestPart(shb, base, version, start, end, add, interest.drop.intersection(portion), full)

    start, portion = 0, list[int]()
    for following in portions(sorted(interest.add.keys() | interest.drop), plain, bytes_max):
        if portion:
            yield part(portion, start, following[0])
            start = following[0]
        portion = following
    yield part(portion, start, None)


class InterestParts:
    """Puts interests together from their parts. Soft: of each SHB it holds the parts of one change, or of one version.

    A part that was lost is waited for. Whoever compares summaries (`InterestSummary`) finds the version missing, and
    asks for the whole.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[ShbId, dict[int, InterestPart]] = {}
        """By where each begins."""

    def take(self, part: InterestPart) -> Interest | None:
        """A part has come, in any order. Returns the interest when it is all there."""
        parts = self._parts.setdefault(part.shb, {})
        other = next(iter(parts.values()), part)
        if (other.version, other.full, other.base) != (part.version, part.full, part.base):
            if (other.version, other.full) > (part.version, part.full):
                return None  # overtaken
            parts.clear()
        parts[part.start] = part
        whole: list[InterestPart] = []
        start: int | None = 0
        while start is not None:
            following = parts.get(start)
            if following is None:
                return None
            whole.append(following)
            start = following.end
        del self._parts[part.shb]
        add: dict[int, Filter] = {}
        for following in whole:
            add.update(following.add)
        drop = frozenset().union(*(following.drop for following in whole))
        return Interest(part.shb, part.base, part.version, add, drop, part.full)

    def forget(self, shb: ShbId) -> None:
        """An SHB is no longer behind the link."""
        self._parts.pop(shb, None)


class _Row:
    """One SHB's interest."""

    __slots__ = ("bytes", "digest", "filters", "keys", "version", "wants_all")

    def __init__(self) -> None:
        self.version = 0
        self.digest = 0
        self.bytes = 0
        """How long the texts of its filters are."""
        self.wants_all = False
        """Whether they are too long to be kept: then one filter stands for all of them, and everything matches it."""
        self.filters: dict[int, Filter] = {}
        self.keys: dict[int, int] = {}
        """The matcher's key of each subscription: subscription ids are unique in one SHB only."""


class InterestTable:
    """The interest of the SHBs behind one link, or of one SHB. Soft: it may vanish and start over.

    What is large is taken in by the work of many turns: the parts of a whole are prepared as they come (`prepare`), and
    what is not wanted any more is taken out little by little (`tidy`). Meanwhile more matches than anyone wants, which
    is never wrong: silence is what matches nothing.
    """

    __slots__ = ("_bytes_max", "_leftover", "_matcher", "_next_key", "_preparing", "_rows")

    def __init__(self, bytes_max: int = FOREVER) -> None:
        """`bytes_max`: of an SHB whose filters have longer texts, everything is taken to be wanted."""
        self._bytes_max = bytes_max
        self._rows: dict[ShbId, _Row] = {}
        self._preparing: dict[ShbId, _Row] = {}
        """What came of a whole that is not all there, with keys of its own."""
        self._leftover: list[int] = []
        """Keys in the matcher that belong to no row any more."""
        self._matcher = BatchMatcher()
        self._next_key = 0

    def __len__(self) -> int:
        """How many subscriptions there are."""
        return sum(len(row.filters) for row in self._rows.values())

    @property
    def widened(self) -> int:
        """Another number whenever more may match than before: events that nobody wanted then may be wanted now."""
        return self._next_key

    @property
    def versions(self) -> Mapping[ShbId, int]:
        """The version of each SHB whose whole interest is here."""
        return {shb: row.version for shb, row in self._rows.items()}

    def filters(self, shb: ShbId) -> Mapping[int, Filter]:
        """What an SHB wants, to be passed on or said again in full."""
        row = self._rows.get(shb)
        return dict(row.filters) if row else {}

    def summary(self, shb: ShbId) -> tuple[int, int]:
        """Version and digest of an SHB's interest; (0, 0) when nothing is known of it."""
        row = self._rows.get(shb)
        return (row.version, row.digest) if row else (0, 0)

    def apply(self, interest: Interest) -> bool:
        """Take an interest in. False: there is a hole before it, and the SHB must be asked for the whole.

        What is older than the table is ignored, and nothing is missing then.
        """
        row = self._rows.get(interest.shb)
        if interest.full:
            prepared = self._preparing.pop(interest.shb, None)
            if _bytes_of(interest.add) > self._bytes_max:
                self._leave(prepared)
                self._take_all(row or self._new_row(interest.shb), interest.version)
                return True
            if row is not None and row.version > interest.version:
                self._leave(prepared)
            elif prepared is not None and prepared.filters == interest.add:
                self._leave(row)
                prepared.version = interest.version
                self._rows[interest.shb] = prepared
            else:
                self._leave(prepared)
                self._replace(row or self._new_row(interest.shb), interest)
            return True
        if row is None:
            return False
        if interest.base != row.version:
            return interest.version <= row.version
        if row.wants_all:
            row.version = interest.version
            return True
        for subscription in sorted(interest.drop):
            self._drop(row, subscription)
        for subscription, wanted in interest.add.items():
            self._put(row, subscription, wanted)
        row.version = interest.version
        if row.bytes > self._bytes_max:
            self._take_all(row, row.version)
        return True

    def wants_all(self, shb: ShbId) -> bool:
        """Whether an SHB has filters with longer texts than are kept here: everything matches, of any version."""
        row = self._rows.get(shb)
        return row is not None and row.wants_all

    def reach(self, shb: ShbId, version: int) -> None:
        """An SHB of which everything matches has this version."""
        row = self._rows[shb]
        assert row.wants_all, "what is filtered by filters has the version of these"
        row.version = max(row.version, version)

    def prepare(self, part: InterestPart) -> None:
        """A part of a whole has come: when all of it is there, `apply` has little left to do."""
        row = self._rows.get(part.shb)
        if not part.full or (row is not None and row.version > part.version):
            return
        if row is not None and all(row.filters.get(sid) == wanted for sid, wanted in part.add.items()):
            return  # said again
        preparing = self._preparing.get(part.shb)
        if preparing is None or preparing.version != part.version:
            self._leave(preparing)
            preparing = self._preparing[part.shb] = _Row()
            preparing.version = part.version
        for subscription, wanted in part.add.items() if preparing.bytes <= self._bytes_max else ():
            self._put(preparing, subscription, wanted)

    def forget(self, shb: ShbId) -> None:
        """An SHB is no longer behind the link."""
        self._leave(self._preparing.pop(shb, None))
        self._leave(self._rows.pop(shb, None))

    def tidy(self) -> bool:
        """Takes out a few of those whom nobody wants any more. Returns whether more are left."""
        gone, self._leftover[-TIDIED_AT_ONCE:] = self._leftover[-TIDIED_AT_ONCE:], ()
        for key in gone:
            self._matcher.remove(key)
        return bool(self._leftover)

    def decide(self, stamp: Stamp, shbs: Collection[ShbId]) -> Decision:
        """What to do with knowledge under `stamp` on a link with these SHBs behind it.

        RAW knowledge becomes the table's own versions. Filtered knowledge keeps its stamp, and is filtered
        further only if the table has reached it. Without the whole interest of all of them, or with
        nobody known behind the link, everything is passed on.
        """
        passed_on = restrict(stamp, shbs)
        if not shbs or any(shb not in self._rows for shb in shbs):
            return Decision(flood=True, stamp=passed_on)
        here = {shb: row.version for shb, row in self._rows.items() if shb in shbs}
        if passed_on is RAW:
            return Decision(flood=False, stamp=here)
        return Decision(flood=not covers(here, passed_on), stamp=passed_on)

    def matches(self, pubend: PubendId, events: EventBatch) -> int:
        """Which of these events of a pubend anyone wants: bit i for event i."""
        wanted = 0
        for mask, _ in events.match(pubend, self._matcher):
            wanted |= mask
        return wanted

    def _new_row(self, shb: ShbId) -> _Row:
        row = self._rows[shb] = _Row()
        return row

    def _leave(self, row: _Row | None) -> None:
        """A row counts no more. What is small goes at once."""
        if row is not None:
            self._leftover.extend(row.keys.values())
            self.tidy()

    def _replace(self, row: _Row, interest: Interest) -> None:
        """Only what differs is touched: a repetition of the whole costs no compilation."""
        row.wants_all = False
        for subscription in tuple(row.filters):
            if subscription not in interest.add:
                self._drop(row, subscription)
        for subscription, wanted in interest.add.items():
            self._put(row, subscription, wanted)
        row.version = interest.version

    def _take_all(self, row: _Row, version: int) -> None:
        """There are more filters than are kept: one stands for all of them."""
        if version >= row.version:
            self._put(row, 0, _ALL)
            for subscription in [subscription for subscription in row.filters if subscription]:
                self._drop(row, subscription)
            row.version, row.wants_all = version, True

    def _put(self, row: _Row, subscription: int, wanted: Filter) -> None:
        if row.filters.get(subscription) == wanted:
            return
        self._drop(row, subscription)
        assert subscription not in row.keys, "a filter that is replaced leaves the matcher, or it would match for ever"
        self._next_key += 1
        self._matcher.add(self._next_key, wanted)
        row.filters[subscription] = wanted
        row.bytes += _bytes(wanted)
        row.keys[subscription] = self._next_key
        row.digest ^= row_digest(subscription, wanted)

    def _drop(self, row: _Row, subscription: int) -> None:
        wanted = row.filters.pop(subscription, None)
        if wanted is not None:
            self._matcher.remove(row.keys.pop(subscription))
            row.bytes -= _bytes(wanted)
            row.digest ^= row_digest(subscription, wanted)


def _bytes(wanted: Filter) -> int:
    """How long the texts of a filter are."""
    return len(wanted.selector) + sum(map(len, wanted.topics))


def _bytes_of(filters: Mapping[int, Filter]) -> int:
    return sum(map(_bytes, filters.values()))
