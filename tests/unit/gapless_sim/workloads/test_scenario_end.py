"""The end of all scenarios: everything is attached, removed or worked off, and whoever waits for ever is seen."""

from __future__ import annotations

from gapless_sim.workloads.scenario_end import ScenariosEnd
from gapless_sim.workloads.scenario_publishers import OrderService
from gapless_sim.workloads.scenario_readers import Report
from gapless_sim.world.options import SECOND
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


def oracle(fixture: ScenarioFixture) -> ScenariosEnd:
    return next(oracle for oracle in fixture.world.observe.oracles if isinstance(oracle, ScenariosEnd))


def test_it_is_said_what_has_not_come_to_its_end() -> None:
    """Nobody comes to an end while the broker is away."""
    fixture = ScenarioFixture(OrderService, Report).begin(boot_after=500 * SECOND).rest(5).end(seconds=5)
    assert not oracle(fixture).settled()
    assert "report2 has no consumer" in oracle(fixture).unsettled()
    assert "the outbox orders1/0 is not worked off" in oracle(fixture).unsettled()
    fixture.broker.boot()
    fixture.rest(30)

    assert oracle(fixture).settled()
    assert oracle(fixture).unsettled() == ""
