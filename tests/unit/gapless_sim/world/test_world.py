from __future__ import annotations

from gapless_sim.recording.trace import Trace
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import Options
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build


def empty() -> World:
    return build(Options(1), Choices(1), Trace())


def test_things_happen_in_their_order_and_together_in_the_order_of_planning() -> None:
    world = empty()
    seen: list[str] = []
    world.at(30, "a", "x", seen.append, "third")
    world.at(10, "a", "x", seen.append, "first")
    world.after(10, "a", "x", seen.append, "second")
    world.at(31, "a", "x", seen.append, "too late")

    world.run_until(30)

    assert seen == ["first", "second", "third"]
    assert world.now == 30


def test_what_is_planned_for_a_life_that_is_over_does_not_happen() -> None:
    world = empty()
    seen: list[str] = []
    life = world.new_life()
    world.at(5, "a", "x", seen.append, "before", life=life)
    world.at(10, "a", "x", seen.append, "after", life=life)
    world.run_until(7)
    life.over = True

    world.run_until(20)

    assert seen == ["before"]
    assert world.trace.steps == 1


def test_time_passes_although_nothing_happens() -> None:
    world = empty()
    world.run_until(99)

    assert world.now == 99


def test_secrets_follow_from_the_seed() -> None:
    assert empty().token_bytes(8) == empty().token_bytes(8)


def test_sometimes_assertions_are_counted() -> None:
    world = empty()
    world.sometimes("x")
    world.sometimes("x")

    assert world.hits["x"] == 2
