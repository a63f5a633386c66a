"""The end of all scenarios: everything is attached, removed or worked off, and whoever waits for ever is seen."""

from __future__ import annotations

from gapless_sim.workloads.scenario_end import ScenariosEnd
from gapless_sim.workloads.scenario_publishers import Meters, OrderService
from gapless_sim.workloads.scenario_readers import Dashboard, Report
from gapless_sim.workloads.scenario_sharers import ConcurrentRemoval, Rivals
from gapless_sim.world.options import SECOND
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


def oracle(fixture: ScenarioFixture) -> ScenariosEnd:
    return next(oracle for oracle in fixture.world.observe.oracles if isinstance(oracle, ScenariosEnd))


def test_before_the_end_nothing_is_asked() -> None:
    fixture = ScenarioFixture(OrderService, Report).begin()

    assert oracle(fixture).settled()
    assert fixture.ending.missing() != []


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


def test_a_cut_for_ever_and_lost_data_excuse_everything() -> None:
    fixture = ScenarioFixture(Report).begin(boot_after=500 * SECOND).rest(5).end(seconds=1)
    assert not oracle(fixture).settled()
    fixture.world.sometimes("liveness.left broken")
    assert oracle(fixture).settled()


def test_eager_consumers_are_in_the_first_processes_alone() -> None:
    fixture = ScenarioFixture(OrderService, Rivals, ConcurrentRemoval).begin().rest(20).end()
    for client in fixture.world.clients.values():
        names = [consumer.row.name for consumer in client.consumers.values()]
        assert client.name.endswith("-b") <= (names == [])
    assert sorted(str(row.name) for row in fixture.ending.attached) == ["rivals2", "vandal3"]


def test_an_unfinished_removal_is_finished() -> None:
    fixture = ScenarioFixture(OrderService, Report).begin().rest(5)
    row = fixture.row("report2")
    fixture.state.leaving[row.number] = row
    fixture.end()

    assert row.ended
    assert fixture.hits["end.an unfinished removal"] == 1
    assert fixture.ending.attached == []


def test_the_end_goes_on_after_a_crash() -> None:
    fixture = ScenarioFixture(OrderService, Report).begin(boot_after=100 * SECOND).rest(5)
    fixture.scenarios.begin_liveness()
    for client in fixture.world.clients.values():
        client.crash()
        client.start()
    fixture.broker.boot()
    fixture.rest(30)

    assert fixture.ending.missing() == []
    assert sorted(fixture.log.keys) == fixture.publications()


def test_a_nameless_one_that_lives_goes_on_eagerly() -> None:
    for seed in range(1, 30):
        fixture = ScenarioFixture(Meters, Dashboard, seed=seed).play(10)
        if fixture.hits.get("end.a nameless one went on"):
            break
    (row,) = (row for row in fixture.state.rows if not row.ended)
    (consumer,) = (c for client in fixture.world.clients.values() for c in client.consumers.values() if c.row is row)

    assert (consumer.pace, consumer.acknowledges, consumer.commit_every) == (0, "at once", 1)
