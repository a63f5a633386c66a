"""What a range read finds, in a small random world: exactly what the log says (I3, I4, I5, I10)."""

from __future__ import annotations

import pytest

from unit.gapless_shb.core.ranges.harness import RangeWorld


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_a_range_holds_what_the_log_says(first: int) -> None:
    """However often it is read, whatever is lost, late or crashed; no gap but in what was acknowledged."""
    completed = 0
    for seed in range(first, first + 20):
        world = RangeWorld(seed, selector=("w = 1", "")[seed % 2])
        for _ in range(500):
            world.step()
        world.settle()

        world.check()
        completed += world.completed
    assert completed > 100, "the worlds hardly read anything"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_early_release_shows_as_gaps(first: int) -> None:
    """With `max_retain` a gap stands exactly where something is missing."""
    for seed in range(first, first + 20):
        world = RangeWorld(seed, retain=500)
        for _ in range(500):
            world.step()
        world.settle()

        world.check()
