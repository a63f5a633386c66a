from __future__ import annotations

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


def test_zero_is_benign_everywhere() -> None:
    stream = Choices(1, {}).stream("a")

    assert not stream.chance(0.999)
    assert stream.between(3, 9) == 3
    assert stream.pick("xyz") == "x"
    assert stream.delay(100, 50) == 100


def test_the_generator_of_a_label_is_the_same_everywhere() -> None:
    assert random_of(1, "x").random() == 0.3314522229247585
