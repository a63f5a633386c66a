"""The SHB core as a whole, in a small random world (algorithms.md 1.6: I2, I3, I4, I5, I10)."""

from __future__ import annotations

import pytest

from harness import World  # type: ignore[import-not-found]


@pytest.mark.parametrize("first", range(0, 300, 20))
def test_every_client_consumes_exactly_what_it_is_owed(first: int) -> None:
    """Without early release nobody ever meets a gap, whatever is lost, late, repeated or crashed."""
    for seed in range(first, first + 20):
        world = World(seed)
        for _ in range(400):
            world.step()
        world.settle()

        world.check()
