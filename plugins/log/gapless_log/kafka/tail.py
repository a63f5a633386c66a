"""One partition as it is followed: where reading stands, and what a fetch brings. Nothing here does I/O."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gapless.core.gauges import Gauge, Histogram
from gapless.core.ports import Grown, LogPiece
from gapless.core.stream.ticks import Tick
from gapless_log.kafka import gauges
from gapless_log.kafka.lineage import Lineage, Place, offset_of, tick_at
from gapless_log.kafka.messages import UNKNOWN, Aborted, Fetched, FetchFrom
from gapless_log.kafka.records import Batch, CorruptBatchError, batches, without_aborted

FETCH_BYTES_MAX = 4 << 20
"""The most bytes that one fetch asks of a partition."""
RECENT_BYTES = 4 << 20
"""The most bytes of a partition's latest batches that are kept for readers that go on there."""

JudgedBatch: TypeAlias = tuple[Batch, bool]
"""A batch, and whether its records count."""


@dataclass(slots=True)
class Following:
    """How far the host of a log has been sent what is in it."""

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
    """The batches that were read last, so that a reader which goes on inside or behind one needs no fetch for it.

    A batch stays valid for as long as the lineage stays the same.
    """

    def __init__(self) -> None:
        self._batches: dict[int, JudgedBatch] = {}
        """By their first offsets; those that were used last are at the end."""
        self._firsts: list[int] = []
        self._size = 0
        self._is_used = False
        self.longest = 0
        """The number of records of the longest batch that was ever kept."""

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
        """Forgets all batches if none was read or kept since the last call."""
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
    """Whether nothing is fetched for a while, because the next records cannot be read."""
    recent: Recent = field(default_factory=Recent)
    end: int = 0
    """Where the partition ended when its leader answered last (the high watermark)."""
    fetched_bytes: int = 0
    elections: int = 0
    """How often another leader was elected since it was opened."""
    producing: Histogram | None = None
    """How long Kafka took to answer appends; None as long as nothing was appended."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields its figures. Whoever does not follow it has no lag."""
        if self.following is not None:
            yield gauges.LAG.gauge(max(0, self.end - self.following.place.offset), self.log)
        yield gauges.FETCHED_BYTES.gauge(self.fetched_bytes, self.log)
        yield gauges.ELECTIONS.gauge(self.elections, self.log)
        if self.producing is not None:
            yield from self.producing.gauges(self.log)

    def on_produced(self, seconds: float) -> None:
        """Kafka has answered an append."""
        if self.producing is None:
            self.producing = Histogram(gauges.PRODUCE_SECONDS)
        self.producing.observe(seconds)

    @property
    def first(self) -> Tick:
        """The tick up to which everything was removed. A reader of all that was removed stands there, without a gap."""
        return self.lineage.position(self.start)

    def learn(self, lineage: Lineage) -> None:
        """Takes over a lineage that the leader has sent anew."""
        reached = None if self.following is None else offset_of(self.following.reached)
        self.lineage = self.lineage.told_anew(lineage, reached)
        self.recent = Recent()  # a read that is under way keeps what it finds in the former one

    @property
    def is_followed(self) -> bool:
        """Whether something is to be fetched, as soon as there is room."""
        return self.following is not None and not self.is_paused

    def follow(self, after: Tick, window: int) -> None:
        """Begins to follow the partition: the host wants everything above `after`."""
        self.following = Following(after, self.place_of(after), window)

    def place_of(self, tick: Tick) -> Place:
        """Returns where a reader that stands at `tick` goes on: not below the log start."""
        place = self.lineage.seek(tick)
        return place if place.offset > self.start else Place(self.start, UNKNOWN)

    def seek(self) -> None:
        """Goes on at the place that follows from the present lineage and log start, after one of them has changed."""
        if self.following is not None:
            self.following.place = self.place_of(self.following.reached)

    def removed(self) -> Grown | None:
        """Returns a message for the host if the log begins above all that the host was sent; else None.

        Otherwise the host would not hear of that before the next record, which may come much later.
        """
        following = self.following
        if following is None or self.first <= following.reached:
            return None
        grown = Grown(self.log, following.reached, self.first, (), self.first, 0)
        following.reached = grown.hi
        return grown

    def wanted(self) -> FetchFrom | None:
        """Returns the next fetch; None if the partition is not followed, is paused, or has no room."""
        following = self.following
        if following is None or following.room <= 0 or not self.is_followed:
            return None
        place = following.place
        bytes_max = min(following.room, FETCH_BYTES_MAX)
        return FetchFrom(self.topic_id, self.partition, place.offset, self.leader_epoch, place.last_epoch, bytes_max)

    def grow(self, fetched: Fetched) -> tuple[Grown | None, bool, str]:
        """Takes a fetch response that starts at `wanted`.

        Returns the message for the host, whether leader epochs must be looked up first, and an error text.
        """
        following = self.following
        assert following is not None
        self.start = max(self.start, fetched.first)
        self.end = fetched.high_watermark
        self.fetched_bytes += len(fetched.records)
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
        """Whether one of these batches was written in a leader epoch that the lineage does not have.

        Then a void lies below that epoch, and has to be sent first (TK20). The batch does not show where the void ends:
        records may be missing before the batch.
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
    """Returns the batches in fetched bytes that reach to `offset` or behind it, of a log that begins at `start`.

    A broker sends whole batches. So the first batch may begin below `offset`, and below the log's start (TK10).
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
    """Returns those of the batches that reach to `offset` or behind it. `fault`: why nothing follows them, or ""."""
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
