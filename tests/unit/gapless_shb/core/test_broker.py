"""The SHB core as a whole, in a small random world (I2, I3, I4, I5, I10)."""

from __future__ import annotations

import pytest

from unit.gapless_shb.core.harness import World


@pytest.mark.parametrize("first", range(0, 300, 20))
def test_every_client_consumes_exactly_what_it_is_owed(first: int) -> None:
    """Without early release nobody ever meets a gap, whatever is lost, late, repeated or crashed."""
    for seed in range(first, first + 20):
        world = World(seed)
        for _ in range(400):
            world.step()
        world.settle()

        world.check()


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_early_release_shows_as_gaps_and_nothing_else_does(first: int) -> None:
    """With `max_retain`, whoever was away too long is told exactly what may be missing (I5)."""
    for seed in range(first, first + 20):
        world = World(seed, retain=500)
        for _ in range(400):
            world.step()
        world.settle()

        world.check()
