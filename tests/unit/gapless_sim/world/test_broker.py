"""A broker's process: what a crash takes, and what it does not."""

from __future__ import annotations

import pytest

from gapless_sim.world.options import MILLISECOND
from unit.gapless_sim.worlds import Small


def test_a_bug_in_a_core_is_not_taken_for_a_failure_of_the_disk() -> None:
    small = Small().begin()
    machine = small.world.brokers["node1"].machine

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    assert machine is not None
    machine._take_frames = broken  # type: ignore[method-assign,assignment]
    small.producer.publish(1)

    with pytest.raises(ValueError, match="a bug"):
        small.world.run_until(small.world.now + 100 * MILLISECOND)
