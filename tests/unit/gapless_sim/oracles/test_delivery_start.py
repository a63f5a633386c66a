"""I10: a subscription begins where it was asked to, and is there until somebody removes it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from gapless.errors import SubscriptionNotFoundError
from gapless_sim.oracles.delivery import I10Start
from unit.gapless_sim.oracles.hands import EARLIEST, LATEST, NODE, TOKEN, Hands, violates


def test_i10_what_is_published_after_the_subscription_lies_behind_its_start() -> None:
    hands = Hands(I10Start)
    hands.opens()
    hands.attach(hands.row(start=LATEST), p=15)
    hands.letter(1)
    hands.log((16, 1))
    hands.world.now += 1

    with violates("I10"):
        hands.say(0, 10, (10, 2))


def test_i10_what_was_on_its_way_may_lie_before_it() -> None:
    hands = Hands(I10Start)
    hands.opens()
    hands.letter(1)
    hands.attach(hands.row(start=LATEST), p=15)

    hands.log((10, 1))


def test_i10_the_earliest_is_all_that_is_not_lost() -> None:
    hands = Hands(I10Start)
    hands.opens()
    hands.log((10, 1), (20, 2), (30, 3))
    hands.chop(10)

    hands.attach(hands.row(start=EARLIEST), 1, p=19)
    with violates("I10"):
        hands.attach(hands.row(start=EARLIEST), 2, p=20)


def test_i10_without_a_token_it_goes_on_where_the_application_has_acknowledged() -> None:
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row(keeps_token=False)
    reader = hands.attach(row, p=5)
    hands.log((10, 1), (20, 2))
    hands.acknowledge(reader, p=10)
    hands.leave(reader)

    hands.leave(hands.attach(row, p=7))
    hands.leave(hands.attach(row, p=19))
    with violates("I10"):
        hands.attach(row, p=20)


@pytest.mark.parametrize("removed", [False, True])
def test_i10_what_was_given_is_there_until_somebody_removes_it(*, removed: bool) -> None:
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row()
    reader = hands.attach(row, p=15)
    if removed:
        hands.observe.unsubscribing(row)

    with nullcontext() if removed else violates("I10"):
        hands.observe.lost_subscription(reader, SubscriptionNotFoundError("it does not exist any more"))


@pytest.mark.parametrize("lapsed", [False, True])
def test_i10_for_whoever_had_what_has_lapsed_it_is_gone_though_another_one_has_made_it_anew(*, lapsed: bool) -> None:
    """Local 218."""
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row()
    before = hands.attach(row, 1, p=5)
    if lapsed:
        hands.lapse(row, 1)
        hands.attach(row, 2, p=5)

    with nullcontext() if lapsed else violates("I10"):
        hands.observe.lost_subscription(before, SubscriptionNotFoundError("it does not exist any more"))


def test_i10_but_not_for_whoever_has_made_it_anew() -> None:
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row()
    hands.attach(row, 1, p=5)
    hands.lapse(row, 1)
    reader = hands.attach(row, 2, p=5)

    with violates("I10"):
        hands.observe.lost_subscription(reader, SubscriptionNotFoundError("it does not exist any more"))


@pytest.mark.parametrize("own", [False, True])
def test_i10_the_token_of_another_one_that_it_was_created_at_may_name_a_time_to_come(*, own: bool) -> None:
    """Local 184: one of its name had lapsed, so that token was not refused. Its own tokens name no such time."""
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row(start=TOKEN, start_token=hands.token(p=5))
    if own:
        hands.attach(row, 1, p=5)
        hands.lapse(row, 1)
    row.token = hands.token(p=27)
    hands.attach(row, 2, p=27)
    hands.world.now += 1
    hands.letter(1)

    with violates("I10") if own else nullcontext():
        hands.log((20, 1))


@pytest.mark.parametrize("lapsed", [False, True])
def test_i10_nor_what_lies_before_such_a_time_that_an_earlier_one_of_its_name_had_asked_for(*, lapsed: bool) -> None:
    """Local 3306 and hostile 4179, with leases in every run: where one has lapsed, the next one goes on."""
    hands = Hands(I10Start)
    hands.opens()
    earlier = hands.row(name="s", start=TOKEN, start_token=hands.token(p=27))
    hands.attach(earlier, 1, p=27)
    if lapsed:
        hands.lapse(earlier, 1)
    hands.attach(hands.row(name="s"), 2, p=27)
    hands.world.now += 1
    hands.letter(1)

    with nullcontext() if lapsed else violates("I10"):
        hands.log((20, 1))


def test_i10_who_gives_up_what_a_lost_disk_had_removes_what_was_made_anew() -> None:
    hands = Hands(I10Start)
    hands.opens()
    before = hands.row(name="s")
    hands.attach(before, p=5)
    hands.observe.wiped(hands.world.brokers[NODE])
    reader = hands.attach(hands.row(name="s"), p=9)
    hands.observe.unsubscribing(before)

    hands.observe.lost_subscription(reader, SubscriptionNotFoundError("it was removed"))


def test_i10_a_subscription_does_not_vanish() -> None:
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row()
    hands.leave(hands.attach(row, 1, p=5))
    hands.leave(hands.attach(row, 1, p=5))

    with violates("I10"):
        hands.attach(row, 2, p=9)


def test_i10_unless_somebody_has_removed_it() -> None:
    hands = Hands(I10Start)
    hands.opens()
    row = hands.row()
    hands.leave(hands.attach(row, 1, p=5))
    hands.observe.unsubscribing(row)

    hands.attach(row, 2, p=9)
