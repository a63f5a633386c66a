"""I5: who may be told of a gap."""

from __future__ import annotations

from gapless.core.stream.ticks import tick_at
from gapless_sim.clocks import WALL_BEGIN
from gapless_sim.options import SECOND
from gapless_sim.oracles.gaps import BELOW_OWN_ACKNOWLEDGEMENT, I5GapLegal
from unit.gapless_sim.oracles.hands import TOKEN, Hands, P, violates

AT = tick_at(WALL_BEGIN)


def logged(**options: float) -> Hands:
    """Two letters, of which the first is gone; the clock stands a second later."""
    hands = Hands(I5GapLegal, **options)
    hands.opens()
    hands.log((AT, 1), (AT + 10, 2))
    hands.world.now = SECOND
    hands.say(AT + 10, tick_at(WALL_BEGIN + 1000))
    return hands


def test_nobody_is_told_of_one_while_nothing_is_released_early() -> None:
    hands = logged()
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.chop(AT)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT)


def test_with_early_release_what_is_too_old_may_be_gone() -> None:
    hands = logged(max_retain_seconds=0.5)
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.chop(AT)

    hands.gap(reader, AT - 5, AT)
    assert hands.world.probes["oracle.gap of early release"] == 1


def test_and_what_is_young_may_not() -> None:
    hands = logged(max_retain_seconds=2.0)
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.chop(AT)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT)


def test_a_gap_does_not_reach_beyond_what_is_lost() -> None:
    """But behind a place of events, where nothing can be logged, it may."""
    hands = logged(max_retain_seconds=0.5)
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.chop(AT - 1)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT)


def test_who_comes_back_behind_his_own_acknowledgement_may_meet_one_and_is_counted() -> None:
    hands = logged()
    row = hands.row()
    reader = hands.attach(row, p=AT - 5)
    hands.acknowledge(reader, p=AT)
    hands.chop(AT + 10)

    again = hands.attach(row, p=AT - 5)
    hands.gap(again, AT - 5, AT)
    assert hands.world.probes[BELOW_OWN_ACKNOWLEDGEMENT] == 1
    hands.gap(again, AT, AT + 1)  # at a place of events it is told up to the tick behind
    with violates("I5"):
        hands.gap(again, AT + 1, AT + 2)


def test_a_token_of_what_was_lost_begins_with_a_gap() -> None:
    hands = logged()
    hands.chop(AT)
    reader = hands.attach(hands.row(start=TOKEN, start_token=hands.token(p=AT - 5)), p=AT - 5)
    hands.chop(AT + 10)

    hands.gap(reader, AT - 5, AT)
    hands.gap(reader, AT, AT + 5)
    with violates("I5"):
        hands.gap(reader, AT + 7, AT + 10)


def test_that_gap_may_come_in_pieces_around_what_is_still_there_and_again_after_a_crash() -> None:
    """A record reaches across the end of what is lost; and an application may forget what it had acknowledged."""
    hands = logged()
    hands.chop(AT + 5)
    row = hands.row(start=TOKEN, start_token=hands.token(p=AT - 5))
    reader = hands.attach(row, p=AT - 5)

    hands.gap(reader, AT - 5, AT - 1)
    hands.hand(reader, (AT, 1))
    hands.gap(reader, AT, AT + 3)
    hands.acknowledge(reader, p=AT + 3)
    again = hands.attach(row, p=AT)
    hands.gap(again, AT, AT + 5)
    assert hands.world.probes["oracle.gap before the start"] == 3


def test_so_does_a_token_that_makes_anew_what_a_lost_disk_had() -> None:
    """Found by the simulator (local 3999): its row said `latest`, and the token was of another one."""
    hands = logged()
    hands.chop(AT)
    row = hands.row()
    row.token = hands.token(p=AT - 5)
    reader = hands.attach(row, p=AT - 5)

    hands.gap(reader, AT - 5, AT)
    assert hands.world.probes["oracle.gap before the start"] == 1


def test_the_earliest_does_not() -> None:
    hands = logged()
    hands.chop(AT)
    reader = hands.attach(hands.row(), p=AT - 5)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT)


def test_a_retired_broker_tells_of_what_it_missed() -> None:
    hands = logged()
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.chop(AT)
    hands.observe.retired("node1@other")

    with violates("I5"):
        hands.gap(reader, AT - 5, AT - 1)
    hands.observe.retired("node1@disk")
    hands.gap(reader, AT - 1, AT)


def test_one_that_is_not_durable_begins_anew_with_each_session() -> None:
    hands = logged()
    reader = hands.attach(hands.row(name=None), p=AT - 5)
    hands.chop(AT)

    hands.gap(reader, AT - 5, AT)


def test_behind_an_old_copy_of_a_disk_nothing_is_sure() -> None:
    hands = logged()
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.model.restored(hands.world.brokers["node1"])

    hands.gap(reader, AT - 5, AT)
    assert hands.model.histories[P].damaged


def test_what_cannot_be_read_is_a_gap_once_an_operator_has_given_it_up_and_never_before() -> None:
    hands = logged()
    reader = hands.attach(hands.row(), p=AT - 5)
    hands.spoil(AT - 5, AT, 1)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT, reason="damaged")
    hands.repair(AT - 5, AT)
    hands.gap(reader, AT - 5, AT, reason="damaged")

    assert hands.world.probes["oracle.gap of what an operator gave up"] == 1


def test_a_gap_of_what_was_given_up_has_no_other_event_that_matches() -> None:
    hands = logged()
    reader = hands.attach(hands.row(k=1), p=AT - 5)
    hands.spoil(AT - 5, AT, 1)
    hands.repair(AT - 5, AT)

    with violates("I5"):
        hands.gap(reader, AT - 5, AT + 10, reason="damaged")
