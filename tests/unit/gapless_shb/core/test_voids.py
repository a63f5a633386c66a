"""Times in which no event can stand, and how far they were told as silent before they were heard of."""

from __future__ import annotations

from gapless_shb.core.voids import Voids

VOID = (100, 200)


def learned(*, event: int = 50, head: int = 80) -> Voids:
    voids = Voids(30)
    voids.pass_event(event)
    voids.learn((VOID,), head)
    return voids


def test_a_tick_within_is_of_lost_data_and_one_at_an_end_is_not() -> None:
    voids = learned()

    assert [tick for tick in (99, 100, 101, 150, 199, 200, 201) if voids.is_lost(tick)] == [101, 150, 199]


def test_no_new_token_stands_within() -> None:
    assert [learned().outside(tick) for tick in (100, 101, 200, 201)] == [100, 200, 200, 201]


def test_what_was_told_as_silent_before_it_was_heard_of_is_not_lost() -> None:
    """Found by the simulator (hostile 5796): the word of the void was lost, and its silence came in parts."""
    voids = learned(head=150)

    assert [tick for tick in (101, 150, 151, 199) if voids.is_lost(tick)] == [151, 199]


def test_a_void_that_the_head_went_over_was_told_as_a_whole() -> None:
    voids = learned(head=300)

    assert not any(voids.is_lost(tick) for tick in range(90, 210))


def test_with_an_event_in_it_it_is_of_lost_data_however_far_the_head_is() -> None:
    """The PHB was restored from an old copy: only its earlier life can have logged the event."""
    voids = learned(event=120, head=150)

    assert [tick for tick in (101, 120, 150, 199) if voids.is_lost(tick)] == [101, 120, 150, 199]


def test_that_the_head_goes_on_later_excuses_nothing() -> None:
    voids = learned(head=150)
    voids.learn((VOID,), 190)

    assert voids.is_lost(160)


def test_it_outlives_a_restart_and_goes_with_its_void() -> None:
    before = learned(head=150)
    voids = Voids(150, before.ranges, before.told)
    voids.learn((VOID,), 180)
    assert [tick for tick in (150, 151) if voids.is_lost(tick)] == [151]

    voids.learn(((300, 400),), 250)
    assert not voids.told
