"""I4: effects are committed once, over all restarts."""

from __future__ import annotations

from gapless_sim.oracles.effects import I4ExactlyOnce
from unit.gapless_sim.oracles.hands import Hands, violates


def test_each_event_has_one_effect() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.hand(reader, (10, 1))
    hands.commit(reader, p=10)
    hands.hand(reader, (20, 2))
    hands.commit(reader, p=25)


def test_an_event_without_an_effect_is_noticed() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.hand(reader, (20, 2))
    with violates("I4"):
        hands.commit(reader, p=20)


def test_unless_a_gap_tells_of_it() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    reader = hands.attach(hands.row(), p=5)

    hands.gap(reader, 5, 12)
    hands.hand(reader, (20, 2))
    hands.commit(reader, p=20)


def test_what_was_not_committed_comes_again() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    row = hands.row()
    reader = hands.attach(row, p=5)
    hands.hand(reader, (10, 1))
    hands.commit(reader, p=10)
    hands.hand(reader, (20, 2))

    after_a_crash = hands.attach(row, p=10)
    hands.hand(after_a_crash, (20, 2))
    hands.commit(after_a_crash, p=20)


def test_what_was_committed_does_not() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    row = hands.row()
    reader = hands.attach(row, p=5)
    hands.hand(reader, (10, 1))
    hands.commit(reader, p=10)

    after_a_crash = hands.attach(row, p=10)
    hands.hand(after_a_crash, (10, 1), (20, 2))
    with violates("I4"):
        hands.commit(after_a_crash, p=20)


def test_a_letter_that_is_logged_twice_has_two_effects() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 1))
    reader = hands.attach(hands.row(), p=5)
    hands.hand(reader, (10, 1))
    hands.commit(reader, p=10)

    hands.hand(reader, (20, 1))
    with violates("I4"):
        hands.commit(reader, p=20)


def test_a_token_does_not_fall() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1))
    reader = hands.attach(hands.row(), p=5)
    hands.hand(reader, (10, 1))
    hands.commit(reader, p=15)

    with violates("I4"):
        hands.commit(reader, p=14)


def test_who_goes_back_to_an_older_token_takes_his_effects_back() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    row = hands.row()
    reader = hands.attach(row, p=5)
    hands.hand(reader, (10, 1), (20, 2))
    hands.commit(reader, p=20)
    row.token = hands.token(p=10)

    again = hands.attach(row, p=10)
    hands.hand(again, (20, 2))
    hands.commit(again, p=20)


def test_a_token_that_names_no_pubend_takes_all_effects_back() -> None:
    """Found by the simulator (hostile 9011): it was read before there was any pubend."""
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2))
    row = hands.row()
    reader = hands.attach(row, p=5)
    hands.hand(reader, (10, 1), (20, 2))
    hands.commit(reader, p=20)
    row.token = hands.token()

    again = hands.attach(row)
    hands.hand(again, (10, 1))
    hands.commit(again, p=10)


def test_a_zombie_commits_nothing() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1))
    row = hands.row()
    zombie = hands.attach(row, p=5)
    reader = hands.attach(row, p=5)

    hands.hand(zombie, (10, 1))
    hands.commit(zombie, p=10)
    hands.hand(reader, (10, 1))
    hands.commit(reader, p=10)


def test_events_of_a_pubend_that_the_token_leaves_out_are_noticed() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1))
    hands.log((10, 2), pubend="q@1")
    reader = hands.attach(hands.row(), p=5)
    hands.hand(reader, (10, 1))
    hands.hand(reader, (10, 2), pubend="q@1")

    with violates("I4"):
        hands.commit(reader, p=10)


def test_a_pubend_that_was_found_later_counts_from_its_first_event_on() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1), (20, 2), (30, 3))
    reader = hands.attach(hands.row())

    hands.hand(reader, (20, 2))
    hands.hand(reader, (30, 3))
    hands.commit(reader, p=30)


def test_one_that_keeps_no_token_promises_nothing() -> None:
    hands = Hands(I4ExactlyOnce)
    hands.log((10, 1))
    row = hands.row(keeps_token=False)
    for _ in range(2):
        reader = hands.attach(row, p=5)
        hands.hand(reader, (10, 1))
        hands.commit(reader, p=10)
