"""A node is run twice in a simulated tree: a PHB on a copy of its volume, and an IB that nobody misses."""

from __future__ import annotations

import pytest

from gapless.core.client import Gap
from gapless.core.wire.messages import GapReason
from gapless_sim.faults.second_processes import SecondProcess
from gapless_sim.oracles.links import N1Twice
from gapless_sim.recording.model import Model
from gapless_sim.recording.observation import Violation
from gapless_sim.world.core_links import CoreNetwork
from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small


class Tree(Small):
    def __init__(self, seed: int = 1) -> None:
        faults = NetworkFaults(bytewise=0.0)
        cells = "phb1:phb ib1<phb1 shb1:shb<ib1"
        super().__init__(
            seed, router="knowledge", topology="tree", cells=cells, link_cores=True, clients=2, network=faults
        )
        assert isinstance(self.world.network, CoreNetwork)
        self.judge = N1Twice(Model(self.world))
        self.world.observe.add(self.judge)
        self.begin()

    def start_second(self, name: str) -> SecondProcess:
        second = SecondProcess(self.world.brokers[name])
        self.world.second_processes.append(second)
        return second

    @property
    def gaps(self) -> list[Gap]:
        return [item for item in self.ear.items if isinstance(item, Gap)]


@pytest.mark.parametrize("seed", range(4))
def test_of_two_processes_of_a_phb_the_first_is_over_and_everybody_is_told_of_what_it_may_have_logged(
    seed: int,
) -> None:
    tree = Tree(seed)
    tree.publish(3)
    second = tree.start_second("phb1")
    tree.publish(3)
    tree.rest(1)
    first = tree.world.brokers["phb1"]

    second.boot()
    tree.rest(5)

    assert not first.running
    assert second.listening
    assert tree.told == [0, 1, 2, 3, 4, 5]
    [gap] = tree.gaps
    assert gap.reason == GapReason.TWICE.value
    receipts = [tick for _, _, tick in tree.ear.receipts]
    assert gap.start >= receipts[5], "what it got is in no gap"

    tree.world.brokers["phb1"] = second
    second.is_second = False
    tree.rest(5)
    second.kill()
    tree.rest(8)
    assert len(tree.gaps) == 1, "an honest restart of the process that counts tells nothing more"


def test_of_two_processes_of_an_ib_the_first_is_over_and_nobody_misses_anything() -> None:
    tree = Tree()
    tree.publish(3)
    second = tree.start_second("ib1")
    second.boot()
    tree.publish(3)
    tree.rest(5)

    assert not tree.world.brokers["ib1"].running
    assert tree.told == [0, 1, 2, 3, 4, 5]
    assert tree.gaps == []


def test_a_restart_after_a_crash_shuts_nobody_out() -> None:
    tree = Tree()
    for name in ("phb1", "ib1", "shb1"):
        tree.world.brokers[name].crash()
        tree.publish(1)
        tree.rest(3)

    assert all(broker.running for broker in tree.world.brokers.values())
    assert tree.told == [0, 1, 2]


def test_who_is_shut_out_for_no_process_that_runs_is_found() -> None:
    tree = Tree()
    phb = tree.world.brokers["phb1"]
    before = phb.incarnation
    with pytest.raises(Violation, match=r"N1.*did not run beside it"):
        tree.judge.shut_out(phb, before + 1)
    phb.kill()
    tree.rest(3)
    assert phb.incarnation > before
    with pytest.raises(Violation, match=r"N1.*did not run beside it"):
        tree.judge.shut_out(phb, before)
    with pytest.raises(Violation, match=r"N1.*no later one ran beside that"):
        tree.judge.ran_twice(phb, before)
