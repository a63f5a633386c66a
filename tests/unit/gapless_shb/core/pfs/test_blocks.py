"""PFS blocks: what was written comes back, in the shortest form (protocol: pfs; I6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.ticks import MILLISECOND, STEP
from gapless_shb.core.pfs.blocks import TICKS_MAX, Block, encode

SECOND = 1000 * MILLISECOND
START = 2 * 10**8 * SECOND

Written = tuple[list[int], dict[int, int]]


@st.composite
def written(draw: st.DrawFn) -> Written:
    """Ticks near each other or far apart, and of each subscription a few of them, many, or all."""
    count = draw(st.sampled_from([1, 2, 3, 8, 9, 255, 256, 257, TICKS_MAX]))
    unit = draw(st.sampled_from([1, STEP, MILLISECOND]))
    gaps = draw(st.lists(st.integers(1, draw(st.sampled_from([200, 1 << 14, 1 << 30]))), min_size=1, max_size=9))
    ticks = [unit]
    for at in range(count - 1):
        ticks.append(ticks[-1] + unit * gaps[at % len(gaps)])
    full = (1 << count) - 1
    few = st.sets(st.integers(0, count - 1), min_size=1, max_size=5).map(lambda at: sum(1 << bit for bit in at))
    masks = st.one_of(few, st.just(full), st.integers(1, full))
    highest = draw(st.sampled_from([99, 1 << 15, 1 << 63]))
    return ticks, draw(st.dictionaries(st.integers(0, highest), masks, max_size=9))


@given(written())
def test_a_block_reads_back_as_it_was_written(columns: Written) -> None:
    """Ticks and the ticks of every subscription come back; of others there are none."""
    ticks, masks = columns

    block = Block(ticks[-1], encode(ticks, masks, {}, MILLISECOND))

    assert block.ticks == ticks
    assert block.first == ticks[0]
    assert len(block) == len(masks)
    assert dict(block.columns()) == masks
    for sid, mask in masks.items():
        assert block.ticks_of(sid) == [tick for at, tick in enumerate(ticks) if mask >> at & 1]
        assert block.column(sid).ticks() == block.ticks_of(sid)
        assert len(block.column(sid)) == mask.bit_count()
    assert block.ticks_of(77 << 56) == block.column(77 << 56).ticks() == []


@given(written(), st.data())
def test_no_block_is_longer_than_the_papers_records(columns: Written, data: st.DataObject) -> None:
    """8 + 16 n bytes of a tick that n match (DSN'03 4.2, I6)."""
    ticks, masks = columns
    matched = sum(mask.bit_count() for mask in masks.values())
    previous = {sid: data.draw(st.integers(0, ticks[-1] - 1)) for sid in masks}

    assert len(encode(ticks, masks, previous, MILLISECOND)) <= 8 * len(ticks) + 16 * matched


def test_where_ticks_are_no_times_the_way_back_is_told_in_records() -> None:
    """An epoch jump in between is only a longer way."""
    epoch = 1 << 44
    for before, index in ((100, 4_001_024), (epoch + 7, epoch + 8)):
        block = Block(index, encode([index], {7: 1}, {7: before}, 1))
        assert block.previous(7, 1) == (before - 1, before)

    far = Block(2 * epoch, encode([2 * epoch], {7: 1}, {7: epoch}, 1))
    assert far.previous(7, 1) == (0, 2 * epoch - 1)


@pytest.mark.parametrize(
    ("ago", "wide"), [(0, 1), (3 * MILLISECOND, 1), (60 * SECOND, 2), (3600 * SECOND, 4), (60 * 86400 * SECOND, 4)]
)
def test_a_pointer_names_the_millisecond_of_the_block_before(ago: int, wide: int) -> None:
    """So a reader goes back block by block, and never past one."""
    before = START - ago - STEP

    data = encode([START], {7: 1, 8: 1}, {7: before}, MILLISECOND)
    block = Block(START, data)

    span = block.previous(7, MILLISECOND)
    assert span is not None
    assert span[0] < before <= span[1] < START
    assert span[1] - span[0] <= MILLISECOND or ago > 49 * 86400 * SECOND
    assert block.previous(8, MILLISECOND) is None
    assert block.previous(9, MILLISECOND) is None
    assert len(data) == 8 + 2 * (1 + wide)


def test_the_forms_of_a_column() -> None:
    """A few ticks are a list, many are a bitmap, all are nothing."""
    ticks = [START + at * MILLISECOND for at in range(800)]
    alone = len(encode(ticks, {}, {}, MILLISECOND))

    def column(mask: int) -> int:
        return len(encode(ticks, {1: mask}, {}, MILLISECOND)) - alone - 3  # less sid, pointer and kind

    assert column((1 << 800) - 1) == 0
    assert column(0b1011) == 2 * 3
    assert column((1 << 400) - 1) == 100
    assert alone == 8 + 799


BLOCK = encode([START, START + 1, START + 5], {1: 0b1, 2: 0b111, 300: 0b101}, {}, MILLISECOND)


@pytest.mark.parametrize("length", range(len(BLOCK)))
def test_a_block_that_was_cut_short_is_refused(length: int) -> None:
    """A garbled block is an error, never a block that says less."""
    with pytest.raises(ValueError, match="PFS block"):
        Block(START + 5, BLOCK[:length])


@pytest.mark.parametrize("data", [b"\xff" * 8, b"\xff" * 64, bytes(8), BLOCK + b"\0"])
def test_what_is_no_block_is_refused(data: bytes) -> None:
    """So is what is longer, or has another head."""
    with pytest.raises(ValueError, match="PFS block"):
        Block(START + 5, data)


def test_a_position_beyond_the_block_is_refused() -> None:
    """It is found when the column is asked for."""
    ticks = [START + at for at in range(16)]
    data = bytearray(encode(ticks, {1: 0b1}, {}, MILLISECOND))
    data[-1] = 16

    with pytest.raises(ValueError, match="beyond"):
        Block(ticks[-1], bytes(data)).ticks_of(1)


def test_an_imprecise_block_says_who_and_not_what() -> None:
    """Silence may be stored as unknown, which costs fetching and filtering, and saves bytes here."""
    ticks, masks = [10 * at for at in range(1, 101)], {sid: 1 << sid for sid in range(100)}
    precise, imprecise = encode(ticks, masks, {}, MILLISECOND), encode(ticks, masks, {}, MILLISECOND, imprecise=True)

    block = Block(1000, imprecise)

    assert block.imprecise
    assert not Block(1000, precise).imprecise
    assert block.ticks_of(5) == ticks
    assert block.ticks_of(100) == []
    assert len(imprecise) < len(precise)
