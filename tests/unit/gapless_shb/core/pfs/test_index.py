"""The PFS: blocks, chains, reads (protocol: pfs; I6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from gapless.core.ports import Operation, Put, Set
from gapless.core.stream.ticks import MILLISECOND
from gapless_shb.core.pfs.blocks import TICKS_MAX, Block
from gapless_shb.core.pfs.index import CHAINS, Pfs, decode_chains

EVERYONE = range(1000)


def step(pfs: Pfs, ticks: Sequence[int], masks: Mapping[int, int]) -> None:
    """A step of the constream."""
    if masks:
        pfs.append(ticks, dict(masks))


def seal(pfs: Pfs, upto: int) -> list[Put]:
    """The blocks of a checkpoint."""
    return [write for write in operations(pfs, upto) if isinstance(write, Put)]


def operations(pfs: Pfs, upto: int) -> list[Operation]:
    """All that a checkpoint writes; every subscription's last tick is said to be `upto`."""
    return pfs.close(upto, lambda _: upto)


def contents(put: Put) -> dict[int, list[int]]:
    """The ticks of every subscription in a block."""
    block = Block(put.index, put.record)
    return {sid: block.ticks_of(sid) for sid, _ in block.columns()}


def test_what_is_open_is_read_from_memory_and_what_is_sealed_is_not() -> None:
    """Nothing lies between what a Read sees and what memory holds."""
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    step(pfs, [1, 2], {7: 0b10})
    assert pfs.open_ticks(7, 0) == [2]

    writes = seal(pfs, 5)

    assert [write.index for write in writes] == [2]
    assert pfs.open_ticks(7, 0) == []
    assert pfs.closed_upto == 5


def test_steps_share_a_block_without_the_ticks_that_matched_nobody() -> None:
    """I6: 0 bytes for an event without a match, wherever it stands."""
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    step(pfs, [1, 2, 3], {7: 0b001, 8: 0b100})
    step(pfs, [4, 5], {})
    step(pfs, [6, 7], {8: 0b10})

    (block,) = seal(pfs, 9)

    assert contents(block) == {7: [1], 8: [3, 7]}
    assert Block(block.index, block.record).ticks == [1, 3, 7]


def test_a_step_whose_only_subscription_is_gone_leaves_no_trace() -> None:
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    step(pfs, [2], {7: 1})
    pfs.forget(7)

    assert seal(pfs, 2) == []


def test_a_full_block_is_closed_and_still_read_from_memory() -> None:
    """Memory holds bytes, not masks, of what no checkpoint has written yet."""
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    ticks = list(range(1, TICKS_MAX + 6))
    step(pfs, ticks, {7: 1 | 1 << TICKS_MAX, 8: 0b100, 9: (1 << len(ticks)) - 1})
    step(pfs, [5000], {7: 1})

    assert pfs.open_ticks(7, 0) == [1, TICKS_MAX + 1, 5000]
    assert pfs.open_ticks(7, 1) == [TICKS_MAX + 1, 5000]
    first, second, third = seal(pfs, 6000)

    assert contents(first) == {7: [1], 8: [3], 9: ticks[:TICKS_MAX]}
    assert contents(second) == {7: [TICKS_MAX + 1], 9: ticks[TICKS_MAX:]}
    assert contents(third) == {7: [5000]}


def test_chains_go_on_after_a_restart() -> None:
    """A subscription's next block points at its last one, also when that was recovered."""
    before = Pfs("p@1", MILLISECOND, 0, 0)
    step(before, [1, 2], {7: 0b01, 8: 0b10})
    (first,) = seal(before, 2)
    after = Pfs("p@1", MILLISECOND, 2, 0)

    last = dict(after.recover(first.index, first.record, {7}))
    step(after, [9], {7: 1, 8: 1})
    (second,) = seal(after, 9)

    assert last == {7: 1}
    block = Block(second.index, second.record)
    assert block.previous(7, MILLISECOND) == (-1, 8)
    assert block.previous(8, MILLISECOND) is None


def test_blocks_are_made_and_found_again_in_order() -> None:
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    step(pfs, [5, 6], {7: 0b11})
    (put,) = seal(pfs, 6)

    with pytest.raises(AssertionError, match="in the order of their ticks"):
        dict(pfs.recover(put.index, put.record, EVERYONE))
    with pytest.raises(AssertionError, match="steps ascend"):
        step(pfs, [5], {7: 1})


def test_how_far_blocks_are_apart_is_known_from_two_on_also_after_a_restart() -> None:
    """Until then nobody follows a chain: it may be one that goes through every block."""
    before, after = Pfs("p@1", MILLISECOND, 0, 0), Pfs("p@1", MILLISECOND, 300, 0)
    for tick, spacing in ((100, 0), (200, 100), (300, 100)):
        step(before, [tick], {7: 1})
        (put,) = seal(before, tick)
        dict(after.recover(put.index, put.record, EVERYONE))
        assert before.spacing == after.spacing == spacing


def test_where_chains_end_is_written_from_time_to_time() -> None:
    """A restart reads what was written since, and takes the rest from there, but for what is chopped or gone."""
    pfs = Pfs("p@1", MILLISECOND, 0, 0)
    rows: list[Set] = []
    tick = 0
    while not rows:
        ticks = list(range(tick + 1, tick + 1 + TICKS_MAX))
        tick = ticks[-1]
        step(pfs, ticks, {sid: int("10" * (TICKS_MAX // 2), 2) for sid in range(50)})
        rows = [write for write in operations(pfs, tick) if isinstance(write, Set)]
    step(pfs, [tick + 1], {7: 1, 8: 1})
    (later,) = seal(pfs, tick + 1)
    after = Pfs("p@1", MILLISECOND, tick + 1, 0)

    chains = decode_chains(rows[0].value)
    last = dict(after.recover_chains(chains, {7, 9}))
    last |= after.recover(later.index, later.record, {7, 9})

    assert (rows[0].table, rows[0].key) == (CHAINS, b"p@1")
    assert chains.upto == tick
    assert last == {7: tick + 1, 9: tick}
    assert dict(Pfs("p@1", MILLISECOND, tick, tick).recover_chains(chains, EVERYONE)) == {}


def test_chopping_goes_forward_only() -> None:
    """A chop point that fell would make silence of what is unknown."""
    pfs = Pfs("p@1", MILLISECOND, 100, 10)

    assert pfs.chop(10) is None
    assert pfs.chop(20) is not None
    assert pfs.chopped == 20
