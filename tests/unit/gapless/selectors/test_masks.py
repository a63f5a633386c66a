from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.selectors import masks
from gapless.selectors.masks import bits_of_events, mask_at, masks_of, select


@given(st.integers(1, 300), st.data())
def test_the_items_whose_bit_is_set_in_order(count: int, data: st.DataObject) -> None:
    chosen = data.draw(st.sets(st.integers(0, count - 1)))
    mask = sum(1 << index for index in chosen)

    assert select(range(count), mask) == sorted(chosen)
    assert mask_at(sorted(chosen)) == mask


def by_steps(items: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for place, item in enumerate(items):
        found[item] = found.get(item, 0) | 1 << place
    return found


@pytest.mark.parametrize("piece", [32, 4096])
@pytest.mark.parametrize("distinct", [1, 2, 16, 17, 200])
@pytest.mark.parametrize("count", [0, 1, 31, 128, 129, 1_000])
def test_the_mask_of_each_item(count: int, distinct: int, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and many items, of few and many values, in one piece and in several, in the order in which they come."""
    monkeypatch.setattr(masks, "_PIECE", piece)
    rng = random.Random(f"{count} {distinct}")
    items = [f"item {rng.randrange(distinct)}" for _ in range(count)]

    found = masks_of(items)

    assert list(found.items()) == list(by_steps(items).items())


def test_what_comes_late_is_seen() -> None:
    """The first items are of few values, and the others are not."""
    items = ["a"] * 500 + [str(number) for number in range(300)]

    assert masks_of(items) == by_steps(items)


def test_the_masks_of_single_items_are_there_once_for_all() -> None:
    """Each reader had its own: with a hundred of them, and pages of many thousands of events, they were a gigabyte."""
    bits = bits_of_events(2_000)

    assert [bits[event] for event in (0, 1, 99, 1_999)] == [1, 2, 1 << 99, 1 << 1_999]
    assert all(mine is theirs for mine, theirs in zip(bits, bits_of_events(3_000), strict=False))
