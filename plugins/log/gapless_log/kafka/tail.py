"""One partition as it is followed: where reading stands, and what a fetch brings. Nothing here does I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gapless.core.ports import Grown, LogPiece
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.lineage import Lineage, Place, offset_of, tick_at
from gapless_log.kafka.messages import UNKNOWN, Aborted, Fetched, FetchFrom
from gapless_log.kafka.records import Batch, CorruptBatchError, batches, without_aborted

FETCH_BYTES_MAX = 4 << 20
"""So much is fetched of one partition at once."""
RECENT_BYTES = 4 << 20
"""So much of what was read of one partition is kept for who reads on there."""

JudgedBatch: TypeAlias = tuple[Batch, bool]
"""A batch, and whether its records count."""


@dataclass(slots=True)
class Following:
    """How far a log's host has been told."""

    reached: Tick
    """Where the last `Grown` ended."""
    place: Place
    """Where the next fetch begins."""
    window: int
    pending: int = 0
    """Bytes that were sent and are not taken yet."""

    @property
    def room(self) -> int:
        """How many bytes may be sent. A batch comes whole, so the last one may go beyond."""
        return self.window - self.pending


class Recent:
    """The batches that were read last: who reads on inside of one, or behind it, does not have it fetched again.

    They are as good as on the day they were read, as long as the lineage is the same.
    """

    def __init__(self) -> None:
        self._batches: dict[int, JudgedBatch] = {}
        """By their first offsets; those that were used last are at the end."""
        self._firsts: list[int] = []
        self._size = 0
        self._is_used = False
        self.longest = 0
        """So many records the longest batch has that was ever kept."""

    def keep(self, found: Sequence[JudgedBatch]) -> None:
        """Keeps batches that were fetched, and drops the oldest beyond the limit."""
        self._is_used = True
        for batch, counts in found:
            if batch.first not in self._batches:
                insort(self._firsts, batch.first)
                self._size += len(batch.raw)
            self._batches[batch.first] = batch, counts
            self.longest = max(self.longest, batch.last - batch.first + 1)
        while self._size > RECENT_BYTES and len(self._batches) > 1:
            self._drop(next(iter(self._batches)))

    def read(self, offset: int, upto: int, bytes_max: int) -> Sequence[JudgedBatch]:
        """Returns the batches from that with `offset` on, as far as they follow each other and begin below `upto`.

        They have at most `bytes_max` together; the first one is returned in any case, if it is here.
        """
        self._is_used = True
        found: list[JudgedBatch] = []
        size = 0
        for first in self._firsts[max(0, bisect_right(self._firsts, offset) - 1) :]:
            batch, _ = self._batches[first]
            size += len(batch.raw)
            if not (first <= offset <= batch.last) or (found and (first >= upto or size > bytes_max)):
                break
            found.append(self._batches.pop(first))
            self._batches[first] = found[-1]
            offset = batch.last + 1
        return found

    def rest(self) -> None:
        """Forgets all if nothing was read since this was called the last time."""
        if not self._is_used:
            for first in list(self._batches):
                self._drop(first)
        self._is_used = False

    def _drop(self, first: int) -> None:
        batch, _ = self._batches.pop(first)
        del self._firsts[bisect_left(self._firsts, first)]
        self._size -= len(batch.raw)


@dataclass(slots=True)
class PartitionLog:
    """What is known of one partition."""

    log: str
    topic_id: bytes
    partition: int
    lineage: Lineage = field(default_factory=lambda: Lineage(()))
    start: int = 0
    """The log start offset."""
    leader: int = -1
    leader_epoch: int = UNKNOWN
    following: Following | None = None
    is_paused: bool = False
    """Whether what comes next cannot be read, and nothing is fetched for a while."""
    recent: Recent = field(default_factory=Recent)

    @property
    def first(self) -> Tick:
        """Everything at or below it was removed. Who has read all of that stands there, and has lost nothing."""
        return self.lineage.position(self.start)

    def learn(self, lineage: Lineage) -> None:
        """The leader has told the lineage anew."""
        reached = None if self.following is None else offset_of(self.following.reached)
        self.lineage = self.lineage.told_anew(lineage, reached)
        self.recent = Recent()  # a read that is under way keeps what it finds in the former one

    @property
    def is_followed(self) -> bool:
        """Whether something is to be fetched, as soon as there is room."""
        return self.following is not None and not self.is_paused

    def follow(self, after: Tick, window: int) -> None:
        """The host wants everything above `after`."""
        self.following = Following(after, self.place_of(after), window)

    def place_of(self, tick: Tick) -> Place:
        """Returns where one who stands at `tick` goes on: not below what is still there."""
        place = self.lineage.seek(tick)
        return place if place.offset > self.start else Place(self.start, UNKNOWN)

    def seek(self) -> None:
        """The lineage or the log's start has changed: goes on where that leaves it."""
        if self.following is not None:
            self.following.place = self.place_of(self.following.reached)

    def removed(self) -> Grown | None:
        """Returns what the host is told if the log begins above all that it was told: nothing may come for long."""
        following = self.following
        if following is None or self.first <= following.reached:
            return None
        grown = Grown(self.log, following.reached, self.first, (), self.first, 0)
        following.reached = grown.hi
        return grown

    def wanted(self) -> FetchFrom | None:
        """Returns what to fetch next; None if nothing is wanted, or there is no room."""
        following = self.following
        if following is None or following.room <= 0 or not self.is_followed:
            return None
        place = following.place
        bytes_max = min(following.room, FETCH_BYTES_MAX)
        return FetchFrom(self.topic_id, self.partition, place.offset, self.leader_epoch, place.last_epoch, bytes_max)

    def grow(self, fetched: Fetched) -> tuple[Grown | None, bool, str]:
        """Takes what a fetch has brought, which began where `wanted` said.

        Returns what the host is to be told, whether the lineage has to be learned before that, and what is wrong.
        """
        following = self.following
        assert following is not None
        self.start = max(self.start, fetched.first)
        found = pieces_of(fetched.records, fetched.aborted, following.place.offset, self.start)
        if not found.batches or self.is_other(found.batches):
            return None, bool(found.batches), found.fault
        last, _ = found.batches[-1]
        grown = Grown(
            self.log,
            following.reached,
            tick_at(last.leader_epoch, last.last + 1),
            found.pieces,
            self.first,
            found.size,
        )
        following.reached = grown.hi
        following.place = Place(last.last + 1, last.leader_epoch)
        following.pending += grown.size
        return grown, False, found.fault

    def is_other(self, found: Sequence[JudgedBatch]) -> bool:
        """Whether a leader epoch is not known in which one of these batches was written.

        Then a void lies below it, which has to be told first (TK20). The batch does not say where that ends: records
        may be missing before it.
        """
        return any(batch.leader_epoch > self.lineage.last_epoch for batch, _ in found)


@dataclass(slots=True)
class FoundPieces:
    """Batches that were fetched."""

    batches: Sequence[JudgedBatch]
    pieces: Sequence[LogPiece]
    size: int
    fault: str
    """Why what comes behind them cannot be read, or ""."""


def pieces_of(records: bytes, aborted: Sequence[Aborted], offset: int, start: int) -> FoundPieces:
    """Takes fetched bytes apart: what is in them at `offset` and behind, and is still in a log that begins at `start`.

    A broker sends whole batches. So the first one may begin below what was asked for, and below the log's start (TK10).
    """
    fault = ""

    def read() -> Iterator[Batch]:
        nonlocal fault
        try:
            yield from batches(records)
        except CorruptBatchError as error:
            fault = str(error)

    try:
        judged = list(without_aborted(list(read()), aborted))
    except CorruptBatchError as error:
        judged, fault = [], str(error)
    return pieces_from(judged, offset, start, fault)


def pieces_from(judged: Sequence[JudgedBatch], offset: int, start: int, fault: str) -> FoundPieces:
    """The same, of batches. `fault`: what is wrong behind them, or ""."""
    found = [(batch, counts) for batch, counts in judged if batch.last >= max(offset, start)]
    pieces = [
        LogPiece(
            tick_at(batch.leader_epoch, max(batch.first, offset, start) + 1),
            tick_at(batch.leader_epoch, batch.last + 1),
            batch.raw if counts and batch.record_count else None,
        )
        for batch, counts in found
    ]
    return FoundPieces(found, pieces, sum(len(batch.raw) for batch, _ in found), fault)
