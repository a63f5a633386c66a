"""Scripts: what they wait for, and that they are gone when their process is."""

from __future__ import annotations

from gapless_sim.workloads.scenario_publishers import Meters
from gapless_sim.workloads.scenario_scripts import LOOK, Answer, Script, ScriptRunner, either
from gapless_sim.world.options import MILLISECOND
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture


class Noting:
    """A script that notes when it goes on."""

    def __init__(self) -> None:
        self.fixture = ScenarioFixture(Meters)
        self.world = self.fixture.world
        self.client = self.world.clients["client1"]
        self.runner = ScriptRunner(self.world)
        self.times: list[int] = []
        self.come = False

    def script(self) -> Script:
        self.times.append(self.world.now // MILLISECOND)
        yield 100 * MILLISECOND
        self.times.append(self.world.now // MILLISECOND)
        yield lambda: self.come
        self.times.append(self.world.now // MILLISECOND)


def test_it_waits_for_a_time_and_for_an_answer() -> None:
    noting = Noting()
    noting.runner.run(noting.script(), "lane")
    noting.fixture.rest(0.5)
    assert noting.times == [0, 100]
    noting.come = True
    noting.fixture.rest(0.5)

    assert noting.times == [0, 100, 500 + LOOK // MILLISECOND]


def test_what_has_come_already_is_not_waited_for() -> None:
    noting = Noting()
    noting.come = True
    noting.runner.run(noting.script(), "lane")
    noting.fixture.rest(0.5)

    assert noting.times == [0, 100, 100]


def test_a_crash_ends_it_and_a_pause_delays_it() -> None:
    for pause, expected in ((0, [0]), (300, [0, 300])):
        noting = Noting()
        noting.client.start()
        noting.runner.run(noting.script(), "lane", noting.client)
        noting.fixture.rest(0.05)
        if pause:
            noting.client.pause((pause - 50) * MILLISECOND)
        else:
            noting.client.crash()
            noting.client.start()
        noting.fixture.rest(0.5)

        assert noting.times == expected


def test_it_may_kill_its_own_process() -> None:
    noting = Noting()

    def script() -> Script:
        noting.client.crash()
        noting.client.start()
        yield 1
        noting.times.append(1)

    noting.client.start()
    noting.runner.run(script(), "lane", noting.client)
    noting.fixture.rest(0.5)

    assert noting.client.boots == 2
    assert noting.times == []


def test_scenarios_end_all_at_once() -> None:
    noting = Noting()
    noting.runner.run(noting.script(), "lane")
    noting.fixture.rest(0.05)
    noting.runner.stop()
    noting.fixture.rest(0.5)

    assert noting.times == [0]


def test_either_comes_with_time_at_the_latest() -> None:
    noting = Noting()
    wait = either(noting.world, lambda: noting.come, 1_000)
    assert callable(wait)
    assert not wait()
    noting.come = True
    assert wait()
    noting.come = False
    noting.world.run_until(1_000)
    assert wait()


def test_an_answer_comes_either_way() -> None:
    fixture = ScenarioFixture(Meters).begin().rest(1)
    client = fixture.world.clients["client1"]
    listed = Answer(client, client.core.list_pubends(client.monotonic()))
    refused = Answer(client, client.core.unsubscribe("nobody", "client1", client.monotonic()))
    assert not listed.come()
    fixture.rest(1)

    assert listed.come()
    assert [row.topics for row in listed.result.rows] == [("#",)]
    assert refused.come()
    assert refused.error is not None
    assert "nobody" in str(refused.error)
