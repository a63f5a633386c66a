"""I4: effects are committed once, over all restarts."""

from __future__ import annotations

from gapless_sim.oracles.effects import I4ExactlyOnce
from unit.gapless_sim.oracles.model_fixture import ModelFixture, violates


def test_each_event_has_one_effect() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=10)
    fixture.hand_out(reader, (20, 2))
    fixture.commit(reader, p=25)


def test_an_event_without_an_effect_is_noticed() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.hand_out(reader, (20, 2))
    with violates("I4"):
        fixture.commit(reader, p=20)


def test_unless_a_gap_tells_of_it() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    reader = fixture.attach(fixture.row(), p=5)

    fixture.gap(reader, 5, 12)
    fixture.hand_out(reader, (20, 2))
    fixture.commit(reader, p=20)


def test_what_was_not_committed_comes_again() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    reader = fixture.attach(row, p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=10)
    fixture.hand_out(reader, (20, 2))

    after_a_crash = fixture.attach(row, p=10)
    fixture.hand_out(after_a_crash, (20, 2))
    fixture.commit(after_a_crash, p=20)


def test_what_was_committed_does_not() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    reader = fixture.attach(row, p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=10)

    after_a_crash = fixture.attach(row, p=10)
    fixture.hand_out(after_a_crash, (10, 1), (20, 2))
    with violates("I4"):
        fixture.commit(after_a_crash, p=20)


def test_a_publication_that_is_logged_twice_has_two_effects() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 1))
    reader = fixture.attach(fixture.row(), p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=10)

    fixture.hand_out(reader, (20, 1))
    with violates("I4"):
        fixture.commit(reader, p=20)


def test_a_token_does_not_fall() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1))
    reader = fixture.attach(fixture.row(), p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=15)

    with violates("I4"):
        fixture.commit(reader, p=14)


def test_who_goes_back_to_an_older_token_takes_his_effects_back() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    reader = fixture.attach(row, p=5)
    fixture.hand_out(reader, (10, 1), (20, 2))
    fixture.commit(reader, p=20)
    row.token = fixture.token(p=10)

    again = fixture.attach(row, p=10)
    fixture.hand_out(again, (20, 2))
    fixture.commit(again, p=20)


def test_a_token_that_names_no_pubend_takes_all_effects_back() -> None:
    """Found by the simulator (hostile 9011): it was read before there was any pubend."""
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2))
    row = fixture.row()
    reader = fixture.attach(row, p=5)
    fixture.hand_out(reader, (10, 1), (20, 2))
    fixture.commit(reader, p=20)
    row.token = fixture.token()

    again = fixture.attach(row)
    fixture.hand_out(again, (10, 1))
    fixture.commit(again, p=10)


def test_a_zombie_commits_nothing() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1))
    row = fixture.row()
    zombie = fixture.attach(row, p=5)
    reader = fixture.attach(row, p=5)

    fixture.hand_out(zombie, (10, 1))
    fixture.commit(zombie, p=10)
    fixture.hand_out(reader, (10, 1))
    fixture.commit(reader, p=10)


def test_events_of_a_pubend_that_the_token_leaves_out_are_noticed() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1))
    fixture.log((10, 2), pubend="q@1")
    reader = fixture.attach(fixture.row(), p=5)
    fixture.hand_out(reader, (10, 1))
    fixture.hand_out(reader, (10, 2), pubend="q@1")

    with violates("I4"):
        fixture.commit(reader, p=10)


def test_a_pubend_that_was_found_later_counts_from_its_first_event_on() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1), (20, 2), (30, 3))
    reader = fixture.attach(fixture.row())

    fixture.hand_out(reader, (20, 2))
    fixture.hand_out(reader, (30, 3))
    fixture.commit(reader, p=30)


def test_one_that_keeps_no_token_promises_nothing() -> None:
    fixture = ModelFixture(I4ExactlyOnce)
    fixture.log((10, 1))
    row = fixture.row(keeps_token=False)
    for _ in range(2):
        reader = fixture.attach(row, p=5)
        fixture.hand_out(reader, (10, 1))
        fixture.commit(reader, p=10)
