"""I8: what may be released, and progress that does not fall."""

from __future__ import annotations

from gapless.core.network.facts import Enrolled
from gapless.core.stream.ticks import tick_at
from gapless_sim.clocks import WALL_BEGIN
from gapless_sim.options import SECOND
from gapless_sim.oracles.releasing import I8Release
from unit.gapless_sim.oracles.hands import Hands, P, violates

AT = tick_at(WALL_BEGIN)


def reading(k: int | None = None, **options: float) -> tuple[Hands, object]:
    """A subscription, and two letters behind its start, one second old."""
    hands = Hands(I8Release, **options)
    hands.opens()
    reader = hands.attach(hands.row(k), p=AT)
    hands.log((AT + 10, 1), (AT + 20, 2))
    hands.world.now = SECOND
    hands.say(AT + 20, tick_at(WALL_BEGIN + 1000))
    return hands, reader


def test_what_somebody_needs_is_not_released() -> None:
    hands, _ = reading()

    hands.chop(AT + 9)
    with violates("I8"):
        hands.chop(AT + 10)


def test_nor_called_lost() -> None:
    hands, _ = reading()

    with violates("I8"):
        hands.say(tick_at(WALL_BEGIN + 1000), tick_at(WALL_BEGIN + 1001), lost=AT + 15)


def test_what_is_acknowledged_is() -> None:
    hands, reader = reading()
    hands.acknowledge(reader, p=AT + 10)

    hands.chop(AT + 19)
    with violates("I8"):
        hands.chop(AT + 20)


def test_what_its_home_has_not_heard_is_not() -> None:
    hands, reader = reading()
    hands.acknowledge(reader, p=AT + 10, heard=False)

    with violates("I8"):
        hands.chop(AT + 10)


def test_what_somebody_says_who_was_replaced_is_not() -> None:
    hands, reader = reading()
    hands.attach(hands.model.accounts[1].row, p=AT)
    hands.acknowledge(reader, p=AT + 10)

    with violates("I8"):
        hands.chop(AT + 10)


def test_what_does_not_match_is() -> None:
    hands, _ = reading(k=7)

    hands.chop(AT + 20)


def test_what_was_removed_needs_nothing() -> None:
    hands, reader = reading()
    hands.observe.unsubscribing(reader.row)  # type: ignore[attr-defined]

    hands.chop(AT + 20)


def test_one_that_is_not_durable_needs_nothing() -> None:
    hands = Hands(I8Release)
    hands.opens()
    hands.attach(hands.row(name=None), p=AT)
    hands.log((AT + 10, 1))

    hands.chop(AT + 10)


def test_a_retired_broker_needs_nothing() -> None:
    hands, _ = reading()
    hands.observe.retired("node1@disk")

    hands.chop(AT + 20)


def test_early_release_takes_what_is_old_and_noted_everywhere() -> None:
    hands, _ = reading(max_retain_seconds=0.5)
    hands.progress(AT, AT + 10)

    hands.chop(AT + 10)
    with violates("I8"):
        hands.chop(AT + 20)


def test_early_release_does_not_wait_for_one_that_is_counted_only_from_later_on() -> None:
    hands, _ = reading(max_retain_seconds=0.5)
    hands.model.informed("node2", 0, Enrolled(P, "node2@disk", AT + 15))
    hands.progress(AT, AT + 20)

    hands.chop(AT + 10)
    with violates("I8"):
        hands.chop(AT + 20)


def test_early_release_does_not_take_what_is_young() -> None:
    hands, _ = reading(max_retain_seconds=2.0)
    hands.progress(AT, AT + 20)

    with violates("I8"):
        hands.chop(AT + 10)


def test_what_was_promised_to_be_kept_is_kept() -> None:
    hands, reader = reading(min_retain_seconds=2.0)
    hands.acknowledge(reader, p=AT + 20)

    with violates("I8"):
        hands.chop(AT + 10)
    hands.world.now = 3 * SECOND
    hands.chop(AT + 20)


def test_it_gives_way_where_space_is_low_and_not_for_long_afterwards() -> None:
    hands, reader = reading(min_retain_seconds=60.0)
    hands.acknowledge(reader, p=AT + 20)
    broker = hands.world.brokers["node1"]

    broker.on_space(low=True)
    hands.chop(AT + 5)
    broker.on_space(low=False)
    hands.world.now += SECOND
    hands.chop(AT + 10)
    hands.world.now += 10 * SECOND
    with violates("I8"):
        hands.chop(AT + 15)


def test_of_a_pubend_found_later_what_came_once_it_counts_the_broker_is_needed() -> None:
    hands = Hands(I8Release)
    hands.opens(members=[])
    hands.attach(hands.row())
    hands.world.now += 1
    hands.log((AT + 10, 1))
    hands.model.informed("node1", 0, Enrolled(P, "node1@disk", AT + 15))
    hands.log((AT + 20, 2))
    hands.model.share_of(hands.model.accounts[1], P)

    hands.chop(AT + 10)
    with violates("I8"):
        hands.chop(AT + 20)


def test_progress_does_not_fall_whatever_crashes() -> None:
    hands, _ = reading()
    hands.progress(5, 7)
    hands.progress(5, 7)

    with violates("I8"):
        hands.progress(4, 9)


def test_delivered_falls_as_little() -> None:
    hands, _ = reading()
    hands.progress(5, 7)

    with violates("I8"):
        hands.progress(5, 6)


def test_nobody_has_released_what_is_not_delivered() -> None:
    hands, _ = reading()

    with violates("I8"):
        hands.progress(8, 7)


def test_another_broker_may_have_done_less() -> None:
    hands, _ = reading()
    hands.progress(5, 7)

    hands.progress(1, 2, shb="node1@new disk")
    hands.progress(1, 2, pubend="q@1")


def test_who_gives_up_what_a_lost_disk_had_removes_its_namesake() -> None:
    """Found by the simulator (hostile 1291): the old row's name is the new one's."""
    hands = Hands(I8Release)
    hands.opens()
    before = hands.row(name="s")
    hands.attach(before, p=AT)
    hands.model.wiped_brokers["elsewhere"] = None
    hands.attach(hands.row(name="s"), p=AT)
    hands.observe.unsubscribing(before)
    hands.log((AT + 10, 1))
    hands.world.now = SECOND
    hands.say(AT + 20, tick_at(WALL_BEGIN + 1000))

    hands.chop(AT + 10)
