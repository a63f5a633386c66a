from __future__ import annotations

from dataclasses import replace

from gapless.core.wire.tokens import CheckpointToken
from gapless_sim.building import build
from gapless_sim.choices import Choices
from gapless_sim.options import DiskFaults, Options
from gapless_sim.trace import Trace
from gapless_sim.workloads.churn_scene import SOUVENIRS, Scene, is_able
from unit.gapless_sim.workloads.churning import Stage


def test_a_lost_disk_is_noticed() -> None:
    stage = Stage()
    before = stage.scene.lossy
    stage.world.observe.wiped(stage.world.brokers["node1"])

    assert (before, stage.scene.lossy) == (False, True)


def test_where_disks_will_be_lost_nothing_is_relied_on_from_the_beginning() -> None:
    options = replace(Options(1), disk=DiskFaults(restore=0.1))

    assert Scene(build(options, Choices(1), Trace())).lossy


def test_a_process_that_is_cut_off_is_excused() -> None:
    stage = Stage()
    before = stage.scene.in_its_way(stage.first)
    stage.world.network.cut("node1", "client1")

    assert not before
    assert stage.scene.in_its_way(stage.first)
    assert not stage.scene.in_its_way(stage.second)


def test_a_process_that_stands_still_can_do_nothing() -> None:
    stage = Stage()
    stage.first.pause(1)

    assert (is_able(stage.first), is_able(stage.second)) == (False, True)


def test_only_the_newest_souvenirs_are_kept() -> None:
    scene = Stage().scene
    for tick in range(SOUVENIRS + 3):
        scene.keep_souvenir(CheckpointToken("n", {"p@1": tick}))
    scene.keep_souvenir(CheckpointToken("n", {}))
    scene.keep_souvenir(None)

    assert [token.ticks["p@1"] for token in scene.souvenirs] == list(range(3, SOUVENIRS + 3))
