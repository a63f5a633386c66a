"""The smallest systems."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless_sim.recording.trace import Trace
from gapless_sim.search.run import come_right, watched
from gapless_sim.search.scopes import BEGIN, CELL_SCOPES, SCOPES, Scope, Script, scope_named
from gapless_sim.world.choices import Choices
from gapless_sim.world.world import World
from gapless_sim.world.world_builder import build


def test_the_scopes_are_all_there() -> None:
    assert len(set(SCOPES)) == 24
    assert SCOPES[0] == Scope(1, 1, 1, 1)
    assert SCOPES[-1] == Scope(2, 2, 3, 2)


@pytest.mark.parametrize("scope", [*SCOPES, *CELL_SCOPES], ids=str)
def test_a_world_is_as_small_as_its_scope_says(scope: Scope) -> None:
    world = build(scope.options(), Choices(0, {}), Trace())

    assert len(world.brokers) == scope.brokers
    assert len(world.clients) == scope.clients
    assert Counter(role for broker in world.brokers.values() for role in broker.roles) == {
        "phb": scope.phbs,
        "shb": scope.shbs,
    }


def test_some_scopes_have_ibs_between_a_phb_and_an_shb() -> None:
    assert [str(scope) for scope in CELL_SCOPES[:3]] == ["1-1-1/1/1", "1-2-1/1/1", "1-1-1/1/2"]
    assert list(build(CELL_SCOPES[1].options(), Choices(0, {}), Trace()).brokers) == ["phb1", "ib1", "ib2", "shb1"]


@pytest.mark.parametrize("name", ["1/1/3/2", "2/2/2/2", "1-1-1/1/1", "1-2-1/2/2"])
def test_all_events_are_published_and_delivered_before_faults_would_end(name: str) -> None:
    scope = scope_named(name)
    world = build(scope.options(), Choices(0, {}), Trace())
    script = Script(world, scope)
    delivered: list[int] = []

    def run(world: World) -> None:
        script.begin()
        world.run_until(BEGIN - 1)
        assert not any(client.running for client in world.clients.values())
        world.run_until(script.end)
        delivered.extend(len(client.consumers) for client in world.clients.values())
        assert world.observe.oracles
        script.begin_liveness()
        come_right(world)

    assert watched(world, run) is None
    assert delivered == [1] * scope.subscribers + [0]
