"""Streams and tables on an engine. They stage into their volume's batch, and read what was written."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from rocksdict import WriteBatch

from gapless.errors import RecordsDamagedError, VolumeCorruptError
from gapless.spi import GivenUp
from gapless_storage._rocksdb.engine import Database, says_damaged
from gapless_storage._rocksdb.layout import (
    INDEX_MAX,
    RECORD_KEY,
    chop_key,
    end_key,
    given_up_prefix,
    reclaim_key,
    row_prefix,
    size_note_prefix,
)

_PLACE = struct.Struct(">QQ")
_INDEX = struct.Struct(">Q")
_NOTE_TOTAL = struct.Struct(">Q")

NOTE_BYTES = 256 << 10
"""How many bytes of records lie between two size notes."""
_RECORD_OVERHEAD_BYTES = RECORD_KEY.size


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A place in a stream; one object, so that another thread sees both values or neither."""

    index: int
    total: int
    """Bytes ever put up to there."""


class SizeNotes:
    """How many bytes of records were ever put up to an index: sparse notes, a straight line in between.

    Sizes must be known after a reopen, and after a chop at any index, without reading the records.
    """

    def __init__(self, notes: Sequence[StreamPosition], end: StreamPosition | None = None) -> None:
        """`notes` increase in both; the first is where the lines begin. `end`: where they end, if that is known."""
        self._indexes = [note.index for note in notes]
        self._totals = [note.total for note in notes]
        end = end or notes[-1]
        self.last = end.index
        self.total = end.total

    def add(self, index: int, record_bytes: int) -> bool:
        """Counts a record. Whether it is time for a note of it."""
        self.last = index
        self.total += record_bytes + _RECORD_OVERHEAD_BYTES
        if self.total - self._totals[-1] < NOTE_BYTES:
            return False
        self._indexes.append(index)
        self._totals.append(self.total)
        return True

    def total_upto(self, index: int) -> int:
        """About how many bytes were ever put up to an index."""
        if index >= self.last:
            return self.total
        place = bisect_right(self._indexes, index)
        if place == 0:
            return self._totals[0]
        low, low_total = self._indexes[place - 1], self._totals[place - 1]
        if place < len(self._indexes):
            high, high_total = self._indexes[place], self._totals[place]
        else:
            high, high_total = self.last, self.total
        return low_total + (high_total - low_total) * (index - low) // (high - low)

    def places(self, after: int) -> list[int]:
        """Some indexes above one, about as many bytes apart as two notes are; at last the last record's."""
        return [*(index for index in self._indexes if after < index < self.last), self.last]

    def forget(self, index: int) -> None:
        """Drops the notes up to an index but the last of them, where the line begins."""
        count = max(0, bisect_right(self._indexes, index) - 1)
        del self._indexes[:count]
        del self._totals[:count]


class RocksdbStream:
    """A stream of a RocksDB volume; see `gapless.spi.LogStream`."""

    def __init__(
        self,
        name: str,
        stream_id: int,
        engine: Database,
        staged: Callable[[], WriteBatch],
        chopping: list[RocksdbStream],
        growing: list[RocksdbStream],
        on_damage: Callable[[str], None],
    ) -> None:
        """`staged` gives the volume's batch; who has a chop in it is added to `chopping`, who has records to `growing`.

        `on_damage` is told when something cannot be read.
        Reads no record, so that one that is damaged is found by whoever reads it, and stops nobody else.
        """
        self.name = name
        self.stream_id = stream_id
        self._engine = engine
        self._staged = staged
        self._chopping = chopping
        self._growing = growing
        self._on_damage = on_damage
        self._given_up = GivenUp(name, _read_given_up(engine, stream_id))
        self._is_growing = False
        self._chopped = _read_place(engine, chop_key(stream_id))
        self._chop_staged: StreamPosition | None = None
        self._reclaimed = _read_place(engine, reclaim_key(stream_id))
        self.has_rest = self._reclaimed.index > 0
        """Whether files may be left of what was removed: whoever removed it may have been stopped, or had no room."""
        notes = [note for note in _read_notes(engine, stream_id) if note.index > self.first]
        self._end_key = end_key(stream_id)
        end = _read_place(engine, self._end_key)
        self._sizes = SizeNotes([self._chopped, *notes], end if end.index else None)
        if not end.index:  # nothing was ever put, or by an earlier version, which did not keep the end
            for index, record in _records_after(engine, stream_id, self._sizes.last):
                self._sizes.add(index, len(record))
        self.last = self._sizes.last  # a chop never goes beyond it, so the chop point knows it at least

    @property
    def first(self) -> int:
        """The chop point."""
        return self._chopped.index

    @property
    def size(self) -> int:
        """About how many bytes the records above the chop point take."""
        return self._sizes.total - self._chopped.total

    @property
    def reclaimable(self) -> int:
        """About how many bytes were chopped and not yet given back."""
        return self._chopped.total - self._reclaimed.total

    def put(self, index: int, record: bytes) -> None:
        """Stages a record. Raises ValueError if the index does not increase or is out of bounds."""
        if not self.last < index <= INDEX_MAX:
            raise ValueError(f"{self.name}: index {index} is not in ({self.last}, {INDEX_MAX}]")
        batch = self._staged()
        batch.put(RECORD_KEY.pack(self.stream_id, index), record, self._engine.log_handle)
        self.last = index
        if not self._is_growing:
            self._is_growing = True
            self._growing.append(self)
        if self._sizes.add(index, len(record)):
            note = size_note_prefix(self.stream_id) + _INDEX.pack(index)
            batch.put(note, _NOTE_TOTAL.pack(self._sizes.total))

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """The written records that overlap (after, upto], in order; at least one, else up to `max_bytes`."""
        if upto <= after:
            return []
        return self._given_up.read(max(after, self._chopped.index), upto, partial(self._read, max_bytes=max_bytes))

    def _read(self, after: int, upto: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        try:
            return self._engine.records(self.stream_id, after, upto, max_bytes)
        except VolumeCorruptError as error:
            if not says_damaged(str(error)):
                raise
            self._on_damage(str(error))
            begin = self._engine.readable_from(self.stream_id, after, self._sizes.places(after))
            end = self.last if begin is None else begin - 1
            text = f"{self.name}: the records between {after} and {end} cannot be read: {error}"
            raise RecordsDamagedError(text, after, end, given_up=False) from None

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        """What an operator has given up."""
        return self._given_up.above(self.first)

    def give_up(self, after: int, upto: int) -> None:
        """Stages that the records in (after, upto] are lost."""
        self._staged().put(given_up_prefix(self.stream_id) + _INDEX.pack(upto), _INDEX.pack(after))
        self._given_up.add(after, upto)

    def chop(self, upto: int) -> None:
        """Stages the removal of all records with an index <= `upto`."""
        upto = min(upto, self.last)
        if upto <= (self._chop_staged or self._chopped).index:
            return
        place = StreamPosition(upto, self._sizes.total_upto(upto))
        self._staged().put(chop_key(self.stream_id), _PLACE.pack(place.index, place.total))
        if self._chop_staged is None:
            self._chopping.append(self)
        self._chop_staged = place
        self._sizes.forget(self.first)

    def stage_end(self, batch: WriteBatch) -> None:
        """Puts where the stream ends now into `batch`, which holds its newest record."""
        self._is_growing = False
        batch.put(self._end_key, _PLACE.pack(self._sizes.last, self._sizes.total))

    def apply_chop(self) -> None:
        """The batch with the staged chop was written."""
        if self._chop_staged is not None:
            self._chopped, self._chop_staged = self._chop_staged, None

    def plan_reclaim(self) -> Reclaim | None:
        """What can be given back to the disk, or None. Called in any thread."""
        after, upto = self._reclaimed, self._chopped
        if upto.index <= after.index:
            return None
        notes = [note.index for note in _read_notes(self._engine, self.stream_id) if note.index <= upto.index]
        return Reclaim(self, after, upto, tuple(notes))

    def stage_reclaim(self, plan: Reclaim, batch: WriteBatch) -> None:
        """Puts the physical removal into `batch`."""
        self._engine.delete_records(batch, self.stream_id, plan.after.index, plan.upto.index)
        for index in plan.notes:
            batch.delete(size_note_prefix(self.stream_id) + _INDEX.pack(index))
        batch.put(reclaim_key(self.stream_id), _PLACE.pack(plan.upto.index, plan.upto.total))

    def finish_reclaim(self, plan: Reclaim) -> None:
        """The batch was written; what it removed still lies in files."""
        self._reclaimed = plan.upto
        self.has_rest = True

    def give_back_rest(self) -> None:
        """Lets go of the files of records that were removed. Blocking."""
        self._engine.compact_records(self.stream_id, self._reclaimed.index)
        self._engine.check_background()  # a compaction that failed for want of room does not say so
        self.has_rest = False


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Chopped records of a stream that are to be removed from the disk."""

    stream: RocksdbStream
    after: StreamPosition
    upto: StreamPosition
    notes: tuple[int, ...]
    """The size notes that go with them; the chop point has a total of its own."""

    @property
    def bytes(self) -> int:
        """About how many bytes that gives back."""
        return self.upto.total - self.after.total


class RocksdbTable:
    """A table of a RocksDB volume; see `gapless.spi.Table`."""

    def __init__(self, name: str, table_id: int, engine: Database, staged: Callable[[], WriteBatch]) -> None:
        self.name = name
        self._prefix = row_prefix(table_id)
        self._engine = engine
        self._staged = staged

    def get(self, key: bytes) -> bytes | None:
        """The value written under `key`, or None."""
        return self._engine.get(self._prefix + key)

    def put(self, key: bytes, value: bytes) -> None:
        """Stages `value` under `key`."""
        self._staged().put(self._prefix + key, value)

    def delete(self, key: bytes) -> None:
        """Stages the removal of `key`."""
        self._staged().delete(self._prefix + key)

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All written pairs whose key starts with `prefix`, in key order, as of the call.

        Read at once: a live iterator would keep the volume from closing.
        """
        skip = len(self._prefix)
        return iter([(key[skip:], value) for key, value in self._engine.scan(self._prefix + prefix)])


def _read_place(engine: Database, key: bytes) -> StreamPosition:
    row = engine.get(key)
    return StreamPosition(*_PLACE.unpack(row)) if row is not None else StreamPosition(0, 0)


def _read_given_up(engine: Database, stream_id: int) -> list[tuple[int, int]]:
    prefix = given_up_prefix(stream_id)
    return [(_INDEX.unpack(value)[0], _INDEX.unpack(key[len(prefix) :])[0]) for key, value in engine.scan(prefix)]


def _read_notes(engine: Database, stream_id: int) -> list[StreamPosition]:
    prefix = size_note_prefix(stream_id)
    return [
        StreamPosition(_INDEX.unpack(key[len(prefix) :])[0], _NOTE_TOTAL.unpack(value)[0])
        for key, value in engine.scan(prefix)
    ]


def _records_after(engine: Database, stream_id: int, after: int) -> Iterator[tuple[int, bytes]]:
    """The few records behind the last size note."""
    while records := engine.records(stream_id, after, INDEX_MAX, 4 * NOTE_BYTES):
        yield from records
        after = records[-1][0]
