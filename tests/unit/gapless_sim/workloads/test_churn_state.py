from __future__ import annotations

from dataclasses import replace

from gapless.core.wire.tokens import CheckpointToken
from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.churn_state import OLD_TOKENS_MOST, ChurnState, is_able
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import DiskFaults, Options
from gapless_sim.world.world_builder import build
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture


def test_a_lost_disk_is_noticed() -> None:
    fixture = ChurnFixture()
    before = fixture.state.lossy
    fixture.world.observe.wiped(fixture.world.brokers["node1"])

    assert (before, fixture.state.lossy) == (False, True)


def test_where_disks_will_be_lost_nothing_is_relied_on_from_the_beginning() -> None:
    options = replace(Options(1), disk=DiskFaults(restore=0.1))

    assert ChurnState(build(options, Choices(1), Trace())).lossy


def test_a_process_that_is_cut_off_is_excused() -> None:
    fixture = ChurnFixture()
    before = fixture.state.in_its_way(fixture.first)
    fixture.world.network.cut("node1", "client1")

    assert not before
    assert fixture.state.in_its_way(fixture.first)
    assert not fixture.state.in_its_way(fixture.second)


def test_a_process_that_stands_still_can_do_nothing() -> None:
    fixture = ChurnFixture()
    fixture.first.pause(1)

    assert (is_able(fixture.first), is_able(fixture.second)) == (False, True)


def test_only_the_newest_old_tokens_are_kept() -> None:
    state = ChurnFixture().state
    for tick in range(OLD_TOKENS_MOST + 3):
        state.keep_old_token(CheckpointToken("n", {"p@1": tick}))
    state.keep_old_token(CheckpointToken("n", {}))
    state.keep_old_token(None)

    assert [token.ticks["p@1"] for token in state.old_tokens] == list(range(3, OLD_TOKENS_MOST + 3))
