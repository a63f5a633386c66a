from __future__ import annotations

import pytest

from gapless_sim.recording.observation import EVENTS, Oracle, Violation
from unit.gapless_sim.worlds import Small


class Counting(Oracle):
    """Counts what it overrides."""

    count = 0

    def liveness_begins(self) -> None:
        self.count += 1


def test_an_oracle_hears_what_it_overrides_and_nothing_else() -> None:
    world = Small().world
    one, other = Counting(world), Counting(world)
    world.observe.add(one)
    world.observe.add(other)

    world.observe.liveness_begins()
    world.observe.checkpoint()

    assert (one.count, other.count) == (1, 1)


def test_an_oracle_that_overrides_nothing_accepts_every_event_and_is_settled() -> None:
    oracle = Oracle(Small().world)

    assert oracle.settled()
    assert oracle.unsettled() == ""
    assert {"handed_out", "known", "ended"} <= set(EVENTS)


def test_what_an_oracle_raises_reaches_whoever_runs_the_world() -> None:
    world = Small().world

    class Strict(Oracle):
        """Likes nothing."""

        def liveness_begins(self) -> None:
            raise Violation("I1", "because")

    world.observe.add(Strict(world))
    with pytest.raises(Violation, match="I1: because") as raised:
        world.observe.liveness_begins()
    assert raised.value.oracle == "I1"
