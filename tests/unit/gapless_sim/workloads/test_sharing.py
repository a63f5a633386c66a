"""What the applications of the workload `sharing` do with what they are handed."""

from __future__ import annotations

from typing import Any

import pytest

from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.sharing import POISON_MOST, Sharing
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import Options
from gapless_sim.world.sharing import Holding
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build


def world_of(seed: int) -> World:
    return build(Options(seed, clients=2, workload="sharing"), Choices(seed), Trace(keep=True))


def handed(key: int, count: int = 1, **more: Any) -> Holding:
    return Holding("p@1", 10, 1, count, count > 1, body=key.to_bytes(8, "big"), **more)


def test_each_client_has_processes_under_its_name() -> None:
    world = world_of(1)
    workload = Sharing(world)

    for application in workload.applications:
        names = [process.name for process in application.processes]
        assert 2 <= len(names) <= 4
        assert all(name.startswith(application.client.name) for name in names)
        assert all(world.clients[name] is process for name, process in zip(names, application.processes, strict=True))


def test_what_is_drawn_follows_from_the_seed() -> None:
    first, second = (Sharing(world_of(7)) for _ in range(2))
    assert [first.habits() for _ in range(20)] == [second.habits() for _ in range(20)]


def test_in_the_end_nobody_loses_what_it_holds_by_time() -> None:
    workload = Sharing(world_of(3))
    workload.holds_end = True
    assert any(workload.habits().hold_ms for _ in range(50))

    workload.in_liveness = True

    assert {(habits.hold_ms, habits.resume_ms) for habits in (workload.habits() for _ in range(50))} == {(0, 5_000)}


@pytest.mark.parametrize("is_gentle", [True, False])
def test_an_event_that_kills_does_not_for_ever(*, is_gentle: bool) -> None:
    workload = Sharing(world_of(3))
    workload.is_gentle = is_gentle
    deadly = [key for key in range(100) if workload.is_poison([handed(key)])]

    assert 0 < len(deadly) < 20
    assert workload.is_poison([handed(deadly[0], POISON_MOST)])
    assert not workload.is_poison([handed(deadly[0], POISON_MOST + 1)])
