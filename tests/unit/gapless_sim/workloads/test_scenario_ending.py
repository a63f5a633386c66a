"""The end of all scenarios: everything is attached, removed or worked off, and whoever waits for ever is seen."""

from __future__ import annotations

from gapless_sim.options import SECOND
from gapless_sim.workloads.scenario_ending import StoriesEnd
from gapless_sim.workloads.scenario_publishing import Meters, OrderService
from gapless_sim.workloads.scenario_reading import Dashboard, Report
from gapless_sim.workloads.scenario_sharing import Rivals, Vandal
from unit.gapless_sim.workloads.staging import Stage


def oracle(stage: Stage) -> StoriesEnd:
    return next(oracle for oracle in stage.world.observe.oracles if isinstance(oracle, StoriesEnd))


def test_before_the_end_nothing_is_asked() -> None:
    stage = Stage(OrderService, Report).begin()

    assert oracle(stage).settled()
    assert stage.ending.missing() != []


def test_it_is_said_what_has_not_come_to_its_end() -> None:
    """Nobody comes to an end while the broker is away."""
    stage = Stage(OrderService, Report).begin(boot_after=500 * SECOND).rest(5).end(patience=5)
    assert not oracle(stage).settled()
    assert "report2 has no consumer" in oracle(stage).unsettled()
    assert "the outbox orders1/0 is not worked off" in oracle(stage).unsettled()
    stage.broker.boot()
    stage.rest(30)

    assert oracle(stage).settled()
    assert oracle(stage).unsettled() == ""


def test_a_cut_for_ever_and_lost_data_excuse_everything() -> None:
    stage = Stage(Report).begin(boot_after=500 * SECOND).rest(5).end(patience=1)
    assert not oracle(stage).settled()
    stage.world.probe("calm.left broken")
    assert oracle(stage).settled()


def test_eager_consumers_are_in_the_first_processes_alone() -> None:
    stage = Stage(OrderService, Rivals, Vandal).begin().rest(20).end()
    for client in stage.world.clients.values():
        names = [consumer.row.name for consumer in client.consumers.values()]
        assert client.name.endswith("-b") <= (names == [])
    assert sorted(str(row.name) for row in stage.ending.attached) == ["rivals2", "vandal3"]


def test_an_unfinished_removal_is_finished() -> None:
    stage = Stage(OrderService, Report).begin().rest(5)
    row = stage.row("report2")
    stage.book.leaving[row.number] = row
    stage.end()

    assert row.ended
    assert stage.probes["end.an unfinished removal"] == 1
    assert stage.ending.attached == []


def test_the_end_goes_on_after_a_crash() -> None:
    stage = Stage(OrderService, Report).begin(boot_after=100 * SECOND).rest(5)
    stage.scenarios.calm()
    for client in stage.world.clients.values():
        client.crash()
        client.start()
    stage.broker.boot()
    stage.rest(30)

    assert stage.ending.missing() == []
    assert sorted(stage.log.keys) == stage.letters()


def test_a_nameless_one_that_lives_goes_on_eagerly() -> None:
    for seed in range(1, 30):
        stage = Stage(Meters, Dashboard, seed=seed).play(10)
        if stage.probes.get("end.a nameless one went on"):
            break
    (row,) = (row for row in stage.book.rows if not row.ended)
    (consumer,) = (c for client in stage.world.clients.values() for c in client.consumers.values() if c.row is row)

    assert (consumer.pace, consumer.acknowledges, consumer.commit_every) == (0, "at once", 1)
