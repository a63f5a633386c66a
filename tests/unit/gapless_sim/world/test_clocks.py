from __future__ import annotations

import pytest

from gapless_sim.world.clocks import WALL_BEGIN, NodeClock

SECOND = 10**9


@pytest.mark.parametrize("drift", [-20_000, -1, 0, 3, 20_000])
def test_it_is_known_when_it_will_show_a_time(drift: int) -> None:
    clock = NodeClock(drift_ppm=drift)
    for at in (1, SECOND, 12_345_678_901):
        due = clock.monotonic(at)
        when = clock.when(due)
        assert clock.monotonic(when) >= due
        assert clock.monotonic(when - 1) < due or when == at


def test_a_jump_sets_the_wall_clock_alone() -> None:
    clock = NodeClock(wall_offset_ms=50)
    before = clock.monotonic(SECOND)
    clock.jump(-3000)

    assert clock.wall(SECOND) == WALL_BEGIN + 1000 + 50 - 3000
    assert clock.monotonic(SECOND) == before


def test_a_boot_begins_the_monotonic_clock_anew_and_not_the_wall_clock() -> None:
    clock = NodeClock()
    clock.restart(7 * SECOND)

    assert clock.monotonic(7 * SECOND) == NodeClock().monotonic(0)
    assert clock.wall(7 * SECOND) == WALL_BEGIN + 7000
