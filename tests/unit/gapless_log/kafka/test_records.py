"""Batches are told apart, and their records read: made by aiokafka's builder, and changed by hand as a broker does."""

from __future__ import annotations

import gzip
import struct
import sys
import tracemalloc
from functools import partial

import cramjam
import google_crc32c
import pytest
from aiokafka.codec import snappy_encode
from hypothesis import given
from hypothesis import strategies as st

from gapless.errors import PluginError
from gapless_log.kafka.messages import Aborted
from gapless_log.kafka.records import (
    Batch,
    Compression,
    CorruptBatchError,
    Marker,
    NewRecord,
    batches,
    encode,
    join,
    records,
    without_aborted,
)
from gapless_log.kafka.unpacking import UNPACKED_MAX

TRANSACTIONAL, CONTROL, APPEND_TIME = 0x10, 0x20, 0x08
NEW = [
    NewRecord(7, b"key", b"value", [("h", b"1"), ("h", None)]),
    NewRecord(5, None, None, []),
    NewRecord(9, b"", b"", []),
]


def logged(
    new: list[NewRecord],
    first: int,
    *,
    epoch: int = 3,
    attributes: int = 0,
    producer: int = -1,
    compression: Compression = Compression.NONE,
) -> bytes:
    """A batch as a broker keeps it: with an offset, a leader epoch, and what only a broker or a transaction sets."""
    raw = bytearray(encode(new, compression))
    struct.pack_into(">q", raw, 0, first)
    struct.pack_into(">i", raw, 12, epoch)
    struct.pack_into(">h", raw, 21, struct.unpack_from(">h", raw, 21)[0] | attributes)
    struct.pack_into(">q", raw, 43, producer)
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))
    return bytes(raw)


def marker(first: int, kind: int, producer: int, version: int = 0) -> bytes:
    """A control batch; `kind` 0 aborts and 1 commits."""
    record = NewRecord(1, struct.pack(">hh", version, kind), b"\0" * 6, [])
    return logged([record], first, attributes=TRANSACTIONAL | CONTROL, producer=producer)


def written(first: int, producer: int) -> bytes:
    """A batch of a transaction."""
    return logged([NewRecord(1, None, b"x", [])] * 2, first, attributes=TRANSACTIONAL, producer=producer)


def told(data: bytes, aborted: list[Aborted]) -> list[tuple[int, bool]]:
    """The batches of a fetch by their first offsets, and whether they count."""
    return [(batch.first, counts) for batch, counts in without_aborted(list(batches(data)), aborted)]


def one(data: bytes) -> Batch:
    """The only batch."""
    (batch,) = batches(data)
    return batch


def test_a_batch_says_where_it_stands() -> None:
    raw = logged(NEW, 40, epoch=6, producer=12)

    batch = one(raw)

    assert (batch.first, batch.last, batch.leader_epoch, batch.record_count) == (40, 42, 6, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.sequence) == (12, -1, -1)
    assert (batch.is_transactional, batch.is_control, batch.marker()) == (False, False, None)
    assert (batch.max_timestamp, batch.has_append_time, batch.compression) == (9, False, Compression.NONE)
    assert batch.raw == raw


@pytest.mark.parametrize("compression", Compression)
def test_its_records_are_those_that_were_written(compression: Compression) -> None:
    batch = one(logged(NEW * 50, 40, compression=compression))

    found = records(batch)

    assert batch.compression is compression
    assert [(each.timestamp, each.key, each.value, list(each.headers)) for each in found] == [
        (each.timestamp, each.key, each.value, list(each.headers)) for each in NEW * 50
    ]
    assert [each.offset for each in found] == list(range(40, 190))


def test_a_topic_that_stamps_records_gives_them_one_time() -> None:
    batch = one(logged(NEW, 0, attributes=APPEND_TIME))

    assert batch.has_append_time
    assert [each.timestamp for each in records(batch)] == [9, 9, 9]


def test_batches_come_in_order() -> None:
    data = logged(NEW, 0) + logged(NEW, 3) + logged(NEW, 9)

    assert [(batch.first, batch.last) for batch in batches(data)] == [(0, 2), (3, 5), (9, 11)]
    assert list(batches(b"")) == []


@given(st.integers(0, 500))
def test_a_batch_that_was_cut_off_is_left_out(missing: int) -> None:
    first, second = logged(NEW * 5, 0), logged(NEW * 5, 15)
    data = first + second[: max(0, len(second) - 1 - missing)]

    assert [batch.raw for batch in batches(data)] == [first]


@given(st.integers(21, 200), st.integers(0, 7))
def test_a_turned_bit_is_found(at: int, bit: int) -> None:
    raw = bytearray(logged([NewRecord(1, None, b"x" * 200, [])], 0))
    raw[at] ^= 1 << bit

    with pytest.raises(CorruptBatchError, match="at offset 0"):
        list(batches(bytes(raw)))


def test_an_old_format_is_refused() -> None:
    raw = bytearray(logged(NEW, 4))
    raw[16] = 1

    with pytest.raises(CorruptBatchError, match="at offset 4 has format 1"):
        list(batches(bytes(raw)))


@pytest.mark.parametrize("length", [-1, 0, 48])
def test_a_length_that_cannot_be_ends_the_reading(length: int) -> None:
    """It would go round for ever, or read the next batch in the middle."""
    raw = bytearray(logged(NEW, 4))
    struct.pack_into(">i", raw, 8, length)

    with pytest.raises(CorruptBatchError, match="fewer than its header"):
        list(batches(bytes(raw)))


def test_records_that_were_written_damaged() -> None:
    raw = bytearray(logged(NEW, 4))
    raw[61] = 0x7E  # the length of the first record
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))

    with pytest.raises(CorruptBatchError, match="at offset 4 cannot be read"):
        records(one(bytes(raw)))


@pytest.mark.parametrize("compression", [each for each in Compression if each is not Compression.NONE])
def test_compressed_bytes_that_were_written_damaged(compression: Compression) -> None:
    raw = bytearray(logged(NEW * 50, 4, compression=compression))
    raw[61:] = bytes(len(raw) - 61)
    struct.pack_into(">I", raw, 17, google_crc32c.value(bytes(raw[21:])))

    with pytest.raises(CorruptBatchError, match="at offset 4 cannot be read"):
        records(one(bytes(raw)))


def test_what_decompresses_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    gzip, zstd = (one(logged(NEW * 50, 0, compression=each)) for each in (Compression.GZIP, Compression.ZSTD))
    monkeypatch.setitem(sys.modules, "cramjam", None)

    assert len(records(gzip)) == 150
    with pytest.raises(PluginError, match=r"ZSTD needs cramjam: pip install \"gapless\[kafka\]\""):
        records(zstd)


@pytest.mark.parametrize("compression", [each for each in Compression if each is not Compression.NONE])
def test_few_bytes_that_stand_for_more_than_may_be_are_not_unpacked(compression: Compression) -> None:
    """A batch of some kilobytes could fill the memory of every node that reads the topic."""
    packed = packed_by(compression, bytes(UNPACKED_MAX + 1))
    fits = packed_by(compression, bytes(UNPACKED_MAX))
    tracemalloc.start()

    with pytest.raises(CorruptBatchError, match="have more than 64 MiB"):
        records(one(patched(logged(NEW, 4), packed, compression)))

    assert tracemalloc.get_traced_memory()[1] < 3 * UNPACKED_MAX
    tracemalloc.stop()
    with pytest.raises(CorruptBatchError) as caught:
        records(one(patched(logged(NEW, 4), fits, compression)))
    assert "64 MiB" not in str(caught.value), "it is no batch, but that is found when it is parsed"


def packed_by(compression: Compression, data: bytes) -> bytes:
    """The same, as a producer packs it."""
    pack = {
        Compression.GZIP: partial(gzip.compress, compresslevel=1),
        Compression.SNAPPY: snappy_encode,
        Compression.LZ4: partial(cramjam.lz4.compress, level=1),
        Compression.ZSTD: partial(cramjam.zstd.compress, level=1),
    }
    return bytes(pack[compression](data))


def test_what_java_packs_in_parts_is_one() -> None:
    raw = logged(NEW * 50, 4)
    parts = gzip.compress(raw[61:200]) + gzip.compress(raw[200:])
    whole = bytes(cramjam.snappy.compress_raw(raw[61:]))

    for compression, body in ((Compression.GZIP, parts), (Compression.SNAPPY, whole)):
        assert len(records(one(patched(raw, body, compression)))) == 150


def patched(raw: bytes, body: bytes, compression: Compression) -> bytes:
    """The batch with its records packed so."""
    made = bytearray(raw[:61] + body)
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, compression)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)


def test_a_marker_says_what_it_ends() -> None:
    data = marker(0, 0, 5) + marker(1, 1, 5) + marker(2, 2, 5) + marker(3, 1, 5, version=1)

    assert [batch.marker() for batch in batches(data)] == [Marker.ABORT, Marker.COMMIT, Marker.OTHER, Marker.OTHER]


def test_what_an_aborted_transaction_wrote_does_not_count() -> None:
    data = written(0, 5) + written(2, 6) + logged(NEW, 4) + marker(7, 0, 5) + marker(8, 1, 6)

    assert told(data, [Aborted(5, 0)]) == [(0, False), (2, True), (4, True), (7, False), (8, False)]


def test_an_abort_ends_at_its_marker_and_begins_at_its_first_offset() -> None:
    """The same producer committed before, and commits again after."""
    data = written(0, 5) + marker(2, 1, 5) + written(3, 5) + marker(5, 0, 5) + written(6, 5) + marker(8, 1, 5)

    assert told(data, [Aborted(5, 3)]) == [(0, True), (2, False), (3, False), (5, False), (6, True), (8, False)]


def test_a_marker_that_nobody_knows_ends_no_abort() -> None:
    data = written(0, 5) + marker(2, 7, 5) + written(3, 5) + marker(5, 0, 5)

    assert told(data, [Aborted(5, 0)]) == [(0, False), (2, False), (3, False), (5, False)]


def test_a_producer_that_aborts_twice() -> None:
    data = written(0, 5) + marker(2, 0, 5) + written(3, 5) + marker(5, 1, 5) + written(6, 5) + marker(8, 0, 5)

    assert [first for first, counts in told(data, [Aborted(5, 6), Aborted(5, 0)]) if counts] == [3]


def test_an_abort_that_began_before_what_was_fetched() -> None:
    data = written(10, 5) + marker(12, 0, 5)

    assert told(data, [Aborted(5, 2)]) == [(10, False), (12, False)]


def test_records_outside_transactions_count_whatever_their_producer_aborts() -> None:
    data = logged(NEW, 0, producer=5) + written(3, 5) + marker(5, 0, 5)

    assert told(data, [Aborted(5, 0)]) == [(0, True), (3, False), (5, False)]


@given(st.lists(st.lists(st.binary(max_size=200), min_size=1, max_size=70), min_size=1, max_size=4))
def test_joined_batches_are_as_if_they_had_been_encoded_together(values: list[list[bytes]]) -> None:
    new = [[NewRecord(0, value[:1], value * 3, [("h", value)]) for value in some] for some in values]

    joined = bytearray(join([encode(some, Compression.NONE) for some in new]))

    whole = encode([record for some in new for record in some], Compression.NONE)
    joined[17:21] = whole[17:21]  # whoever appends it fills in the checksum
    assert bytes(joined) == whole


def test_records_of_every_size_and_place_are_joined() -> None:
    sizes = [0, 50, 60, 8_000, 9_000, 1 << 20, 1 << 21]
    sized = [NewRecord(0, None, bytes(size), []) for size in sizes]
    new = [sized, [NewRecord(0, None, b"x", [])] * 9_000, sized]

    joined = bytearray(join([encode(some, Compression.NONE) for some in new]))

    joined[17:21] = struct.pack(">I", google_crc32c.value(bytes(joined[21:])))
    (batch,) = batches(bytes(joined))
    assert [record.offset for record in records(batch)] == list(range(9_000 + 2 * len(sizes)))
    assert [len(record.value or b"") for record in records(batch)] == [*sizes, *[1] * 9_000, *sizes]
