"""I8: what may be released, and progress that does not fall."""

from __future__ import annotations

from gapless.core.network.facts import Enrolled
from gapless.core.stream.ticks import tick_at
from gapless_sim.oracles.release import I8Release
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.options import SECOND
from unit.gapless_sim.oracles.model_fixture import ModelFixture, P, violates

AT = tick_at(WALL_BEGIN)


def reading(k: int | None = None, **options: float) -> tuple[ModelFixture, object]:
    """A subscription, and two publications behind its start, one second old."""
    fixture = ModelFixture(I8Release, **options)
    fixture.opens()
    reader = fixture.attach(fixture.row(k), p=AT)
    fixture.log((AT + 10, 1), (AT + 20, 2))
    fixture.world.now = SECOND
    fixture.say(AT + 20, tick_at(WALL_BEGIN + 1000))
    return fixture, reader


def test_what_its_home_has_not_heard_is_not() -> None:
    fixture, reader = reading()
    fixture.acknowledge(reader, p=AT + 10, heard=False)

    with violates("I8"):
        fixture.chop(AT + 10)


def test_early_release_does_not_wait_for_one_that_is_counted_only_from_later_on() -> None:
    fixture, _ = reading(max_retain_seconds=0.5)
    fixture.model.informed("node2", 0, Enrolled(P, "node2@disk", AT + 15))
    fixture.progress(AT, AT + 20)

    fixture.chop(AT + 10)
    with violates("I8"):
        fixture.chop(AT + 20)


def test_what_was_promised_to_be_kept_is_kept() -> None:
    fixture, reader = reading(min_retain_seconds=2.0)
    fixture.acknowledge(reader, p=AT + 20)

    with violates("I8"):
        fixture.chop(AT + 10)
    fixture.world.now = 3 * SECOND
    fixture.chop(AT + 20)


def test_it_gives_way_where_space_is_low_and_not_for_long_afterwards() -> None:
    fixture, reader = reading(min_retain_seconds=60.0)
    fixture.acknowledge(reader, p=AT + 20)
    broker = fixture.world.brokers["node1"]

    broker.on_space(low=True)
    fixture.chop(AT + 5)
    broker.on_space(low=False)
    fixture.world.now += SECOND
    fixture.chop(AT + 10)
    fixture.world.now += 10 * SECOND
    with violates("I8"):
        fixture.chop(AT + 15)


def test_of_a_pubend_found_later_what_came_once_it_counts_the_broker_is_needed() -> None:
    fixture = ModelFixture(I8Release)
    fixture.opens(members=[])
    fixture.attach(fixture.row())
    fixture.world.now += 1
    fixture.log((AT + 10, 1))
    fixture.model.informed("node1", 0, Enrolled(P, "node1@disk", AT + 15))
    fixture.log((AT + 20, 2))
    fixture.model.share_of(fixture.model.accounts[1], P)

    fixture.chop(AT + 10)
    with violates("I8"):
        fixture.chop(AT + 20)


def test_who_gives_up_what_a_lost_disk_had_removes_its_namesake() -> None:
    """Found by the simulator (hostile 1291): the old row's name is the new one's."""
    fixture = ModelFixture(I8Release)
    fixture.opens()
    before = fixture.row(name="s")
    fixture.attach(before, p=AT)
    fixture.model.wiped_brokers["elsewhere"] = None
    fixture.attach(fixture.row(name="s"), p=AT)
    fixture.observe.unsubscribing(before)
    fixture.log((AT + 10, 1))
    fixture.world.now = SECOND
    fixture.say(AT + 20, tick_at(WALL_BEGIN + 1000))

    fixture.chop(AT + 10)


def test_nobody_has_released_what_is_not_delivered() -> None:
    fixture, _ = reading()

    with violates("I8"):
        fixture.progress(8, 7)
