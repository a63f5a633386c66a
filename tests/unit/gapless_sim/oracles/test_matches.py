"""The oracle's own reading of a PFS block agrees with what was written, and refuses what is none."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given

from gapless.core.stream.ticks import MILLISECOND
from gapless_shb.core.pfs.blocks import encode
from gapless_sim.oracles.matches import noted
from unit.gapless_shb.core.pfs.test_blocks import Written, written


@given(written())
def test_it_counts_what_was_written(columns: Written) -> None:
    ticks, masks = columns

    counts = noted(ticks[-1], encode(ticks, masks, {}, MILLISECOND))

    assert counts == Counter({tick: sum(mask >> at & 1 for mask in masks.values()) for at, tick in enumerate(ticks)})


BLOCK = encode([1000, 1001, 1005], {1: 0b1, 2: 0b111, 30: 0b101}, {}, MILLISECOND)


@pytest.mark.parametrize("data", [b"", BLOCK[:-1], BLOCK + b"\0", BLOCK.replace(b"\1\2\x1e", b"\2\1\x1e")])
def test_it_refuses_what_is_no_block(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"block|ascend"):
        noted(1005, data)
