"""I7 and I8 across starts: what a PHB said that it keeps is there."""

from __future__ import annotations

from gapless.core.network.facts import Enrolled, Probe
from gapless_sim.oracles.durability import I7Kept, I8Counted
from gapless_sim.recording.model import Model
from unit.gapless_sim.oracles.model_fixture import NODE, SHB, ModelFixture, P, violates
from unit.gapless_sim.worlds import Small

OTHER = "node2@disk"


def logged() -> ModelFixture:
    """Publication 1 at 10, publications 2 and 3 in one record that ends at 21."""
    fixture = ModelFixture(I7Kept)
    fixture.opens()
    fixture.log((10, 1), (20, 2), (21, 3))
    return fixture


def test_a_log_that_has_everything_is_right() -> None:
    fixture = logged()

    fixture.boots((10, fixture.record(1)), (21, fixture.record(2, 3)))


def test_what_is_given_up_may_be_gone() -> None:
    fixture = logged()

    fixture.boots((21, fixture.record(2, 3)), lost=15)


def test_a_record_that_is_gone_is_missed() -> None:
    fixture = logged()

    with violates("I7"):
        fixture.boots((21, fixture.record(2, 3)), lost=9)
    with violates("I7"):
        fixture.boots((10, fixture.record(1)))


def test_another_event_in_its_place_does_not_do() -> None:
    fixture = logged()

    with violates("I7"):
        fixture.boots((10, fixture.record(1)), (21, fixture.record(2, 4)))


def test_a_pubend_that_is_gone_is_missed() -> None:
    fixture = logged()

    with violates("I7"):
        fixture.boots(pubend="q@1")


def test_a_disk_that_is_lost_or_older_keeps_nothing() -> None:
    fixture = logged()
    fixture.observe.wiped(fixture.world.brokers[NODE])
    fixture.boots(pubend="q@1")

    fixture = logged()
    fixture.observe.restored(fixture.world.brokers[NODE])
    fixture.boots()


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


def test_a_retired_one_does_not() -> None:
    fixture, _ = counting((SHB, 5))
    fixture.observe.retired(SHB)

    fixture.opens(members=[])


def test_a_new_pubend_counts_whoever_counts_at_its_broker() -> None:
    fixture, oracle = counting((SHB, 5))
    oracle.informed(NODE, 0, Enrolled(P, OTHER, 9))

    fixture.opens("r@1", members=[(SHB, 9), (OTHER, 9)])
    with violates("I8"):
        fixture.opens("s@1", members=[(SHB, 9)])


def test_an_empty_disk_knows_nobody() -> None:
    fixture, _ = counting((SHB, 5))
    fixture.observe.wiped(fixture.world.brokers[NODE])

    fixture.opens("q@1", members=[])


def test_one_that_begins_to_count_finds_everything_from_there_on() -> None:
    fixture, oracle = counting((SHB, 0))
    fixture.say(0, 30, (10, 1), lost=20)
    oracle.informed(NODE, 0, Enrolled(P, SHB, 0))
    oracle.informed(NODE, 0, Probe(P, 3))

    with violates("I8"):
        oracle.informed(NODE, 0, Enrolled(P, OTHER, 19))


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
