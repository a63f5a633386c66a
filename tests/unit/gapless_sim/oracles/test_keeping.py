"""I7 and I8 across starts: what a PHB said that it keeps is there."""

from __future__ import annotations

from gapless.core.network.facts import Enrolled, Probe
from gapless_sim.model import Model
from gapless_sim.oracles.keeping import I7Kept, I8Counted
from unit.gapless_sim.oracles.hands import NODE, SHB, Hands, P, violates
from unit.gapless_sim.worlds import Small

OTHER = "node2@disk"


def logged() -> Hands:
    """Letter 1 at 10, letters 2 and 3 in one record that ends at 21."""
    hands = Hands(I7Kept)
    hands.opens()
    hands.log((10, 1), (20, 2), (21, 3))
    return hands


def test_a_log_that_has_everything_is_right() -> None:
    hands = logged()

    hands.boots((10, hands.record(1)), (21, hands.record(2, 3)))


def test_what_is_given_up_may_be_gone() -> None:
    hands = logged()

    hands.boots((21, hands.record(2, 3)), lost=15)


def test_a_record_that_is_gone_is_missed() -> None:
    hands = logged()

    with violates("I7"):
        hands.boots((21, hands.record(2, 3)), lost=9)
    with violates("I7"):
        hands.boots((10, hands.record(1)))


def test_another_event_in_its_place_does_not_do() -> None:
    hands = logged()

    with violates("I7"):
        hands.boots((10, hands.record(1)), (21, hands.record(2, 4)))


def test_a_pubend_that_is_gone_is_missed() -> None:
    hands = logged()

    with violates("I7"):
        hands.boots(pubend="q@1")


def test_a_disk_that_is_lost_or_older_keeps_nothing() -> None:
    hands = logged()
    hands.observe.wiped(hands.world.brokers[NODE])
    hands.boots(pubend="q@1")

    hands = logged()
    hands.observe.restored(hands.world.brokers[NODE])
    hands.boots()


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
    history.events[history.newest].letter.event += b"\0"
    small.world.brokers["node1"].crash()
    with violates("I7"):
        small.rest(3)


def counting(*members: tuple[str, int]) -> tuple[Hands, I8Counted]:
    hands = Hands(I8Counted)
    hands.opens(members=members)
    oracle = hands.oracles[I8Counted]
    assert isinstance(oracle, I8Counted)
    return hands, oracle


def test_who_was_told_that_it_counts_counts_after_a_restart() -> None:
    hands, oracle = counting()
    oracle.informed(NODE, 0, Enrolled(P, SHB, 5))
    oracle.vanished(NODE)

    hands.opens(members=[(SHB, 5)])
    hands.opens(members=[(SHB, 5), (OTHER, 7)])
    with violates("I8"):
        hands.opens(members=[(SHB, 5)])


def test_a_retired_one_does_not() -> None:
    hands, _ = counting((SHB, 5))
    hands.observe.retired(SHB)

    hands.opens(members=[])


def test_a_new_pubend_counts_whoever_counts_at_its_broker() -> None:
    hands, oracle = counting((SHB, 5))
    oracle.informed(NODE, 0, Enrolled(P, OTHER, 9))

    hands.opens("r@1", members=[(SHB, 9), (OTHER, 9)])
    with violates("I8"):
        hands.opens("s@1", members=[(SHB, 9)])


def test_an_empty_disk_knows_nobody() -> None:
    hands, _ = counting((SHB, 5))
    hands.observe.wiped(hands.world.brokers[NODE])

    hands.opens("q@1", members=[])


def test_one_that_begins_to_count_finds_everything_from_there_on() -> None:
    hands, oracle = counting((SHB, 0))
    hands.say(0, 30, (10, 1), lost=20)
    oracle.informed(NODE, 0, Enrolled(P, SHB, 0))
    oracle.informed(NODE, 0, Probe(P, 3))

    with violates("I8"):
        oracle.informed(NODE, 0, Enrolled(P, OTHER, 19))


def test_what_cannot_be_read_is_not_missing_and_all_else_is() -> None:
    hands = Hands(I7Kept)
    hands.opens()
    hands.log((20, 1), (30, 2))
    hands.spoil(0, 20, 1)

    hands.boots((30, hands.record(2)))
    hands.repair(0, 20)
    hands.boots((30, hands.record(2)))
    with violates("I7"):
        hands.boots()
