"""Scripts: what they wait for, and that they are gone when their process is."""

from __future__ import annotations

from gapless_sim.workloads.scenario_publishers import Meters
from gapless_sim.workloads.scenario_scripts import Script, ScriptRunner
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
