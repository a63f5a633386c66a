"""The PFS: records, chains, reads (algorithms.md 3.5; I6, T12, T50)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless_shb.core.pfs import Pfs, Record, encode, gather, masked

ticks_and_masks = st.lists(st.integers(1, 1 << 50), min_size=1, max_size=40, unique=True).flatmap(
    lambda ticks: st.tuples(
        st.just(sorted(ticks)),
        st.dictionaries(st.integers(1, 1 << 40), st.integers(1, (1 << len(ticks)) - 1), min_size=1, max_size=20),
    )
)


@given(ticks_and_masks)
def test_a_record_reads_back_as_it_was_written(written: tuple[list[int], dict[int, int]]) -> None:
    """Ticks and the mask of every subscription come back; of others there is none."""
    ticks, masks = written
    masks = {sid: mask if len(ticks) > 1 else 1 for sid, mask in masks.items()}

    record = Record.decode(encode(ticks, [(sid, 0, mask) for sid, mask in masks.items()]))

    assert list(record.ticks) == ticks
    assert dict(record.columns()) == masks
    assert all(record.mask(sid) == mask for sid, mask in masks.items())
    assert record.mask((1 << 41) + 7) == 0


@pytest.mark.parametrize("matches", [1, 2, 25])
def test_a_record_of_one_tick_is_the_papers(matches: int) -> None:
    """8 + 16 n bytes for n matches (DSN'03 4.2, I6)."""
    record = encode([77], [(sid, 0, 1) for sid in range(1, matches + 1)])

    assert len(record) == 8 + 16 * matches


def test_a_subscriptions_id_inside_a_bitmap_is_not_taken_for_a_column() -> None:
    """Columns are found by content, so the search must respect where columns begin."""
    sid = 0x0101010101010101
    ticks = list(range(1, 129))
    noise = int.from_bytes(sid.to_bytes(8, "little") * 2, "little")

    record = Record.decode(encode(ticks, [(5, sid, noise), (6, sid, noise), (sid, 9, 1 << 100)]))

    assert record.mask(sid) == 1 << 100


@pytest.mark.parametrize("data", [b"", b"\1", b"\1" * 12, b"\xff" * 8, b"\xff" * 64])
def test_what_is_no_record_is_refused(data: bytes) -> None:
    """A garbled record is an error, never a record that says less."""
    with pytest.raises(ValueError, match="PFS record"):
        Record.decode(data)


def test_a_read_keeps_the_oldest_ticks() -> None:
    """T12: a bounded read that kept the newest would skip what is owed first."""
    records = [(tick, encode([tick], [(1, tick - 1, 1)])) for tick in range(1, 11)]

    found = gather(records, 1, 2, 10, 3)

    assert found.ticks == [3, 4, 5]
    assert found.upto == 5


def test_a_record_that_reaches_below_is_read_from_where_the_reader_stands() -> None:
    """T50: a record overlaps the range although its index lies beyond the range's first tick."""
    records = [(30, encode([10, 20, 30], [(1, 0, 0b111)]))]

    assert gather(records, 1, 15, 30, 100).ticks == [20, 30]


def test_open_records_are_read_from_memory_and_sealed_ones_are_not() -> None:
    """Nothing lies between what a Read sees and what memory holds."""
    pfs = Pfs("p@1", 0, 0)
    pfs.append([1, 2]).masks[7] = 0b10
    assert pfs.open_ticks(7, 0) == [2]

    writes = pfs.seal(5)

    assert [write.index for write in writes] == [2]
    assert pfs.open_ticks(7, 0) == []
    assert pfs.sealed_upto == 5


def test_chains_go_on_after_a_restart() -> None:
    """`previous` of a subscription's next record is the index of its last one, also when that was recovered."""
    before = Pfs("p@1", 0, 0)
    before.append([1, 2]).masks[7] = 0b01
    (first,) = before.seal(2)
    after = Pfs("p@1", 2, 0)

    last = dict(after.recover(first.index, first.record))
    after.append([9]).masks[7] = 1
    (second,) = after.seal(9)

    assert last == {7: 1}
    assert int.from_bytes(second.record[16:24], "little") == first.index


def test_a_tick_that_matched_nobody_leaves_no_trace() -> None:
    """I6: 0 bytes for an event without a match."""
    pfs = Pfs("p@1", 0, 0)
    pfs.append([1])
    pfs.discard_empty()

    assert pfs.seal(1) == []


def test_chopping_goes_forward_only() -> None:
    """A chop point that fell would make silence of what is unknown."""
    pfs = Pfs("p@1", 100, 10)

    assert pfs.chop(10) is None
    assert pfs.chop(20) is not None
    assert pfs.chopped == 20


@given(st.lists(st.integers(0, 1 << 30), min_size=1, max_size=70, unique=True), st.integers(0))
def test_masked_is_what_its_name_says(ticks: list[int], bits: int) -> None:
    """Checked against the obvious loop."""
    mask = bits & ((1 << len(ticks)) - 1)

    assert list(masked(ticks, mask)) == [tick for at, tick in enumerate(ticks) if mask >> at & 1]
