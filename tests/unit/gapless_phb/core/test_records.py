"""Records find out whatever happened to them on the disk (S15)."""

from __future__ import annotations

import google_crc32c
import pytest

from gapless.core.stream.ticks import STEP
from gapless.errors import VolumeCorruptError
from gapless_phb.core import records
from gapless_phb.core.records import Record, checksum, decode_record, encode_record, tag_of
from unit.gapless_phb.harness import at, columns

TAG = tag_of("network", "default@1")


def record(count: int = 3, tokens: bytes = b"") -> Record:
    events = columns([b"one", b"", b"three"][:count])
    return Record("ann", 7, 41, at(1000), at(900), events, tokens, checksum(events, tokens))


def encoded(record: Record) -> bytes:
    return encode_record(
        TAG,
        record.publisher,
        record.epoch,
        record.first_sequence,
        record.first_tick,
        record.previous,
        record.columns,
        record.tokens,
        record.crc,
    )


def test_a_record_comes_back_as_it_was() -> None:
    raw = encoded(record())

    back = decode_record(TAG, at(1000, 2), raw)

    assert (back.publisher, back.epoch, back.first_sequence, back.count) == ("ann", 7, 41, 3)
    assert (back.first_tick, back.last_tick, back.previous) == (at(1000), at(1000, 2), at(900))
    assert list(back.ticks) == [at(1000), at(1000, 1), at(1000, 2)]
    assert back.columns.lengths == record().columns.lengths
    assert back.columns.blob == record().columns.blob


def test_the_publishers_bytes_are_not_touched() -> None:
    events = record().columns

    assert encoded(record()).endswith(events.lengths + events.blob)


def test_any_changed_byte_is_noticed() -> None:
    raw = encoded(record())

    for position in range(len(raw)):
        changed = raw[:position] + bytes([raw[position] ^ 4]) + raw[position + 1 :]
        with pytest.raises(VolumeCorruptError):
            decode_record(TAG, at(1000, 2), changed)


def test_any_lost_byte_is_noticed() -> None:
    raw = encoded(record())

    for length in range(len(raw)):
        with pytest.raises(VolumeCorruptError):
            decode_record(TAG, at(1000, 2), raw[:length])


@pytest.mark.parametrize("other", [tag_of("network", "default@2"), tag_of("other", "default@1")])
def test_a_record_of_another_pubend_or_network_is_noticed(other: int) -> None:
    with pytest.raises(VolumeCorruptError, match="another pubend"):
        decode_record(other, at(1000, 2), encoded(record()))


def test_a_record_in_another_place_is_noticed() -> None:
    with pytest.raises(VolumeCorruptError, match="was written for tick"):
        decode_record(TAG, at(1000, 3), encoded(record()))


@pytest.mark.parametrize(
    ("lo", "hi", "found"),
    [
        (at(999), at(1001), b"012"),
        (at(1000) - 1, at(1000), b"0"),
        (at(1000), at(1000, 1), b"1"),
        (at(1000), at(1000, 1) - 1, b""),
        (at(1000, 1), at(2000), b"2"),
        (at(1000, 2), at(2000), b""),
        (at(10), at(1000) - 1, b""),
    ],
)
def test_a_range_of_it_is_cut_out(lo: int, hi: int, found: bytes) -> None:
    ticks = record().within(lo, hi).ticks

    assert bytes(ord("0") + (tick - at(1000)) // STEP for tick in ticks) == found


def test_other_content_has_another_checksum() -> None:
    assert checksum(columns([b"one"]), b"") != checksum(columns([b"two"]), b"")
    assert checksum(columns([b"ab", b"c"]), b"") != checksum(columns([b"a", b"bc"]), b"")


def test_a_record_that_begins_before_the_one_before_it_ends_is_neither_written_nor_read() -> None:
    wrong = record()
    raw = bytearray(encoded(wrong))
    wrong.previous = wrong.first_tick
    with pytest.raises(AssertionError, match="ticks ascend"):
        encoded(wrong)

    head = list(records._HEAD.unpack_from(raw))
    head[7] = wrong.first_tick
    records._HEAD.pack_into(raw, 0, *head)
    checked = records._HEAD.size + len(wrong.publisher)
    records._CHECKSUM.pack_into(raw, checked, google_crc32c.value(bytes(raw[:checked])))
    with pytest.raises(VolumeCorruptError, match="begins before"):
        decode_record(TAG, at(1000, 2), bytes(raw))


def test_a_record_with_tokens_comes_back_with_them() -> None:
    raw = encoded(record(tokens=b"token"))

    back = decode_record(TAG, at(1000, 2), raw)

    assert (back.publisher, back.tokens, back.columns.blob) == ("ann", b"token", record().columns.blob)
    assert decode_record(TAG, at(1000, 2), encoded(record())).tokens == b""
    with pytest.raises(VolumeCorruptError, match="damaged"):
        decode_record(TAG, at(1000, 2), raw.replace(b"token", b"taken"))


def test_other_tokens_have_another_checksum() -> None:
    """TS7: of two batches with equal events, each stores its own position."""
    assert checksum(columns([b"one"]), b"") != checksum(columns([b"one"]), b"token")
    assert checksum(columns([b"one"]), b"token") != checksum(columns([b"one"]), b"taken")
