"""I7 and I8 across starts: what a PHB said that it keeps is there."""

from __future__ import annotations

from gapless.core.network.facts import Enrolled
from gapless_sim.oracles.durability import I7Kept, I8Counted
from gapless_sim.recording.model import Model
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates
from unit.gapless_sim.worlds import Small

OTHER = "node2@disk"


def test_real_logs_are_read() -> None:
    small = Small(min_retain_seconds=60.0)
    model = Model(small.world)
    small.world.observe.add(model)
    small.world.observe.add(I7Kept(model))
    small.begin()
    small.publish(3, 1)
    small.world.brokers["node1"].crash()
    small.rest(3)
    assert small.ear.calls.count("booted node1") == 2

    (history,) = model.histories.values()
    history.events[history.newest].publication.event += b"\0"
    small.world.brokers["node1"].crash()
    with violates("I7"):
        small.rest(3)


def test_what_cannot_be_read_is_not_missing_and_all_else_is() -> None:
    fixture = ModelFixture(I7Kept)
    fixture.opens()
    fixture.log((20, 1), (30, 2))
    fixture.spoil(0, 20, 1)

    fixture.boots((30, fixture.record(2)))
    fixture.repair(0, 20)
    fixture.boots((30, fixture.record(2)))
    with violates("I7"):
        fixture.boots()


def counting(*members: tuple[str, int]) -> tuple[ModelFixture, I8Counted]:
    fixture = ModelFixture(I8Counted)
    fixture.opens(members=members)
    oracle = fixture.oracles[I8Counted]
    assert isinstance(oracle, I8Counted)
    return fixture, oracle


def test_who_was_told_that_it_counts_counts_after_a_restart() -> None:
    fixture, oracle = counting()
    oracle.informed(NODE, 0, Enrolled(P, SHB, 5))
    oracle.vanished(NODE)

    fixture.opens(members=[(SHB, 5)])
    fixture.opens(members=[(SHB, 5), (OTHER, 7)])
    with violates("I8"):
        fixture.opens(members=[(SHB, 5)])
