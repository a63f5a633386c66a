from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors.masks import select


@given(st.integers(1, 300), st.data())
def test_the_items_whose_bit_is_set_in_order(count: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, count - 1)))
    mask = sum(1 << index for index in chosen)

    assert select(range(count), mask) == sorted(chosen)
