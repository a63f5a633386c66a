"""Scripts: what they wait for, and that they are gone when their process is."""

from __future__ import annotations

from gapless_sim.options import MILLISECOND
from gapless_sim.workloads.scenario_publishing import Meters
from gapless_sim.workloads.scenario_telling import LOOK, Answer, Script, Teller, either
from unit.gapless_sim.workloads.staging import Stage


class Told:
    """A script that notes when it goes on."""

    def __init__(self) -> None:
        self.stage = Stage(Meters)
        self.world = self.stage.world
        self.client = self.world.clients["client1"]
        self.teller = Teller(self.world)
        self.times: list[int] = []
        self.come = False

    def script(self) -> Script:
        self.times.append(self.world.now // MILLISECOND)
        yield 100 * MILLISECOND
        self.times.append(self.world.now // MILLISECOND)
        yield lambda: self.come
        self.times.append(self.world.now // MILLISECOND)


def test_it_waits_for_a_time_and_for_an_answer() -> None:
    told = Told()
    told.teller.tell(told.script(), "lane")
    told.stage.rest(0.5)
    assert told.times == [0, 100]
    told.come = True
    told.stage.rest(0.5)

    assert told.times == [0, 100, 500 + LOOK // MILLISECOND]


def test_what_has_come_already_is_not_waited_for() -> None:
    told = Told()
    told.come = True
    told.teller.tell(told.script(), "lane")
    told.stage.rest(0.5)

    assert told.times == [0, 100, 100]


def test_a_crash_ends_it_and_a_pause_delays_it() -> None:
    for pause, expected in ((0, [0]), (300, [0, 300])):
        told = Told()
        told.client.start()
        told.teller.tell(told.script(), "lane", told.client)
        told.stage.rest(0.05)
        if pause:
            told.client.pause((pause - 50) * MILLISECOND)
        else:
            told.client.crash()
            told.client.start()
        told.stage.rest(0.5)

        assert told.times == expected


def test_it_may_kill_its_own_process() -> None:
    told = Told()

    def script() -> Script:
        told.client.crash()
        told.client.start()
        yield 1
        told.times.append(1)

    told.client.start()
    told.teller.tell(script(), "lane", told.client)
    told.stage.rest(0.5)

    assert told.client.boots == 2
    assert told.times == []


def test_scenarios_end_all_at_once() -> None:
    told = Told()
    told.teller.tell(told.script(), "lane")
    told.stage.rest(0.05)
    told.teller.stop()
    told.stage.rest(0.5)

    assert told.times == [0]


def test_either_comes_with_time_at_the_latest() -> None:
    told = Told()
    wait = either(told.world, lambda: told.come, 1_000)
    assert callable(wait)
    assert not wait()
    told.come = True
    assert wait()
    told.come = False
    told.world.run_until(1_000)
    assert wait()


def test_an_answer_comes_either_way() -> None:
    stage = Stage(Meters).begin().rest(1)
    client = stage.world.clients["client1"]
    listed = Answer(client, client.core.list_pubends(client.monotonic()))
    refused = Answer(client, client.core.unsubscribe("nobody", "client1", client.monotonic()))
    assert not listed.come()
    stage.rest(1)

    assert listed.come()
    assert [row.topics for row in listed.result] == [("#",)]
    assert refused.come()
    assert refused.error is not None
    assert "nobody" in str(refused.error)
