"""Marks and keys."""

from __future__ import annotations

import pytest

from gapless_storage._rocksdb.keys import LOG_MARK_KEY
from gapless_storage._rocksdb.layout import INDEX_MAX, MARK_BYTES, RECORD_KEY, STREAM_ID_MAX, Mark

MARK = Mark(bytes(range(16)), 3, 2**64 - 1, 7, 2**63)


def test_a_mark_is_read_as_it_was_written() -> None:
    assert len(MARK.encode()) == MARK_BYTES
    assert Mark.decode(MARK.encode()) == MARK


def test_every_flipped_bit_of_a_mark_is_seen() -> None:
    encoded = MARK.encode()
    for place in range(len(encoded)):
        for bit in range(8):
            spoilt = bytearray(encoded)
            spoilt[place] ^= 1 << bit

            with pytest.raises(ValueError, match="checksum"):
                Mark.decode(bytes(spoilt))


@pytest.mark.parametrize("length", [0, 1, MARK_BYTES - 1, MARK_BYTES + 1])
def test_a_mark_has_its_length(length: int) -> None:
    with pytest.raises(ValueError, match="bytes"):
        Mark.decode(MARK.encode().ljust(length, b"\0")[:length])


def test_the_log_familys_mark_is_behind_all_records() -> None:
    assert RECORD_KEY.pack(STREAM_ID_MAX, INDEX_MAX) < LOG_MARK_KEY
    assert len(LOG_MARK_KEY) == RECORD_KEY.size
