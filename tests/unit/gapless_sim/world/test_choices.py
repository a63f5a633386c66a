from __future__ import annotations

import pytest

from gapless_sim.world.choices import Choices, random_of


def test_a_seed_makes_the_same_draws_and_another_seed_others() -> None:
    def drawn(seed: int) -> list[int]:
        stream = Choices(seed).stream("network")
        return [stream.draw(1000) for _ in range(20)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_streams_do_not_disturb_each_other() -> None:
    one, other = Choices(7), Choices(7)
    one.stream("disk").draw(10)

    assert one.stream("network").draw(10**6) == other.stream("network").draw(10**6)


def test_what_was_drawn_can_be_played_again_and_goes_on_benignly() -> None:
    choices = Choices(3)
    drawn = [choices.stream("a").draw(50) for _ in range(5)]
    again = Choices(3, choices.choice_sequences()).stream("a")

    assert [again.draw(50) for _ in range(7)] == [*drawn, 0, 0]


def test_an_edited_choice_sequence_stays_in_range() -> None:
    stream = Choices(3, {"a": [99]}).stream("a")

    assert stream.draw(10) == 9


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_a_chance_comes_about_as_often_as_it_says(rate: float) -> None:
    stream = Choices(5).stream("a")
    count = 20_000

    assert sum(stream.chance(rate) for _ in range(count)) / count == pytest.approx(rate, abs=0.02)


def test_zero_is_benign_everywhere() -> None:
    stream = Choices(1, {}).stream("a")

    assert not stream.chance(0.999)
    assert stream.between(3, 9) == 3
    assert stream.pick("xyz") == "x"
    assert stream.delay(100, 50) == 100


def test_an_impossible_chance_draws_nothing() -> None:
    stream = Choices(1).stream("a")

    assert not stream.chance(0)
    assert stream.drawn == []


def test_delays_are_mostly_short_and_sometimes_long() -> None:
    stream = Choices(9).stream("a")
    delays = [stream.delay(10, 1000) for _ in range(10_000)]

    assert min(delays) >= 10
    assert 700 < sum(delays) / len(delays) < 4000
    assert max(delays) > 12_000


def test_the_generator_of_a_label_is_the_same_everywhere() -> None:
    assert random_of(1, "x").random() == 0.3314522229247585
