"""Walks: a chain of blocks tells the same as a scan of all blocks, and the oldest first (protocol: pfs; T12)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ports import Put
from gapless.core.stream.ticks import MILLISECOND, STEP
from gapless_shb.core.catch_up.readers import ChainWalk
from gapless_shb.core.pfs.blocks import Block
from gapless_shb.core.pfs.index import Found, Pfs

Records = list[tuple[int, bytes]]


def written(blocks: list[tuple[int, list[int]]]) -> tuple[Pfs, Records]:
    """Blocks of one tick, each so many steps behind the one before, and who is in it."""
    pfs, records, tick = Pfs("p@1", MILLISECOND, 0, 0), [], 200 * MILLISECOND
    for gap, sids in blocks:
        tick += gap * STEP
        if sids:
            pfs.append([tick, tick + STEP], dict.fromkeys(sids, 0b11))
        tick += STEP
        records += [(put.index, put.record) for put in pfs.close(tick, int) if isinstance(put, Put)]
    return pfs, records


def walked(pfs: Pfs, records: Records, after: int, limit: int, spacing: int) -> Found | None:
    """What a walk of subscription 1 finds; None when it gives up."""
    walk = ChainWalk(1, after, pfs.newest(1), pfs.closed_upto, spacing, MILLISECOND)
    while walk.span is not None:
        lo, hi = walk.span
        assert hi > after, "it reads what nobody asked for"
        beyond = [index for index, _ in records if index >= hi][:1]
        found = walk.on_records([pair for pair in records if lo < pair[0] <= (beyond or [hi])[0]], limit)
        if found is not None:
            return found
    return None


histories = st.lists(st.tuples(st.integers(1, 1 << 15), st.sets(st.integers(1, 3), min_size=1).map(sorted)), min_size=1)


@given(histories, st.integers(0, 100), st.integers(1, 9))
def test_it_finds_what_a_scan_finds(history: list[tuple[int, list[int]]], share: int, limit: int) -> None:
    """And when it keeps less than all, then the oldest, and it says up to where that is complete."""
    pfs, records = written([*history, (1, [1])])
    after = pfs.closed_upto * share // 101
    whole = [tick for index, data in records for tick in Block(index, data).ticks_of(1) if tick > after]

    found = walked(pfs, records, after, limit, 0)

    assert found is not None
    assert found.ticks == [tick for tick in whole if tick <= found.upto]
    assert found.upto == pfs.closed_upto or len(found.ticks) >= limit
    assert len(found.ticks) < limit + 2 or len(found.ticks) == len(whole)


def test_it_gives_up_when_it_skips_too_little() -> None:
    """A scan finds the rest sooner."""
    pfs, records = written([(4096, [1])] * 40)

    assert walked(pfs, records, 0, 100, MILLISECOND) is None


def test_it_gives_up_when_a_read_ends_before_its_span_does() -> None:
    """Blocks may lie so close, and be so large, that one read does not return all of a span: the newest are missing."""
    pfs, records = written([(1, [1])] * 9)
    walk = ChainWalk(1, 0, pfs.newest(1), pfs.closed_upto, 0, MILLISECOND)
    assert walk.on_records(records[-1:], 100) is None
    assert walk.span is not None
    assert walk.span[0] < records[0][0] < records[-2][0] <= walk.span[1], "one millisecond, and all blocks are in it"

    assert walk.on_records(records[:3], 100) is None

    assert walk.span is None


def test_it_gives_up_when_a_block_is_not_where_it_should_be() -> None:
    """It was chopped meanwhile: nothing may be made of that."""
    pfs, records = written([(4096, [1])] * 3)

    assert walked(pfs, records[:1] + records[2:], 0, 100, 0) is None
