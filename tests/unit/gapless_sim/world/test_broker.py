"""A broker's process: what a crash takes, and what it does not."""

from __future__ import annotations

import pytest

from gapless.core.gauges import values_by
from gapless_phb.core.gauges import LOST
from gapless_sim.faults.reconfiguration import add_pubend, change_policy
from gapless_sim.world.options import MILLISECOND, SECOND, DiskFaults
from unit.gapless_sim.worlds import Small


def test_a_crash_loses_nothing_that_was_acknowledged() -> None:
    small = Small().begin()
    small.publish(3)
    small.world.brokers["node1"].crash()
    small.publish(2)
    small.rest(10)

    assert small.told == list(range(5))
    assert small.ear.calls == ["booted node1", "crashed node1", "booted node1"]


def test_what_was_not_synced_is_gone_with_the_power_and_not_with_the_process() -> None:
    def survivors(*, power: bool) -> int:
        small = Small(disk=DiskFaults(sync_time=10 * SECOND)).begin()
        broker = small.world.brokers["node1"]
        before = broker.disk.written
        assert broker.disk.unsynced > 0
        (broker.crash if power else broker.kill)()
        return broker.disk.written - before

    assert survivors(power=True) < 0
    assert survivors(power=False) == 0


def test_every_effect_can_be_the_last() -> None:
    for fuse in range(1, 30):
        small = Small().begin()
        small.world.brokers["node1"].fuse = fuse
        small.publish(2, 1)
        small.rest(10)
        assert small.told == list(range(3)), fuse
        assert small.world.hits["process.crash at an effect"] <= 1


@pytest.mark.parametrize("fuse", [1, 2, 3, 4, 5])
def test_a_crash_in_the_middle_of_a_recovery_is_one_more_crash(fuse: int) -> None:
    small = Small().begin()
    small.publish(3)
    broker = small.world.brokers["node1"]
    broker.fuse_at_boot = fuse
    broker.crash()
    small.rest(10)

    assert small.world.hits["process.crash in recovery"] + small.world.hits["process.crash at an effect"] == 1
    assert small.told == [0, 1, 2]
    assert broker.running


def test_an_orderly_stop_syncs_and_it_comes_back() -> None:
    small = Small().begin()
    small.publish(3)
    small.world.brokers["node1"].stop()
    assert small.world.brokers["node1"].disk.unsynced == 0
    small.publish(2)
    small.rest(10)

    assert small.told == list(range(5))


def test_a_pause_delays_and_loses_nothing() -> None:
    small = Small().begin()
    small.world.brokers["node1"].pause(2 * SECOND)
    small.publish(3)
    assert small.told == []
    small.rest()

    assert small.told == [0, 1, 2]


@pytest.mark.parametrize("what", ["sync", "write"])
@pytest.mark.parametrize("how", ["kept", "lost"])
def test_a_disk_that_fails_makes_it_start_over(what: str, how: str) -> None:
    small = Small().begin()
    small.world.brokers["node1"].fail_disk(what, how)
    small.publish(3)
    small.rest(10)

    assert small.world.hits["disk.failed"] == 1
    assert small.told == [0, 1, 2]
    assert sorted(key for key, _, _ in small.ear.receipts) == [0, 1, 2]


def test_a_full_disk_blocks_until_there_is_room() -> None:
    small = Small().begin()
    broker = small.world.brokers["node1"]
    broker.fail_disk("full", "writes")
    small.publish(3)
    small.rest()
    assert small.told == []

    broker.heal_disk()
    small.rest(20)
    assert small.told == [0, 1, 2]


def test_an_empty_disk_is_another_storage() -> None:
    small = Small().begin()
    broker = small.world.brokers["node1"]
    small.publish(2)
    before = broker.storage_id
    broker.kill()
    broker.replace_disk()
    small.rest(3)

    assert broker.storage_id != before
    assert values_by(broker.gauges(), LOST, "pubend")


def test_an_operator_adds_a_pubend_and_changes_the_policy() -> None:
    small = Small().begin()
    broker = small.world.brokers["node1"]
    add_pubend(broker)
    change_policy(broker, 5.0)
    broker.stop()
    small.rest(3)

    assert [pubend["max_retain_seconds"] for pubend in broker.loaded.config.role("phb")["pubends"]] == [5.0, 5.0]
    assert broker.running


def test_a_bug_in_a_core_is_not_taken_for_a_failure_of_the_disk() -> None:
    small = Small().begin()
    machine = small.world.brokers["node1"].machine

    def broken(*_: object) -> None:
        raise ValueError("a bug")

    assert machine is not None
    machine._take_frames = broken  # type: ignore[method-assign,assignment]
    small.producer.publish(1)

    with pytest.raises(ValueError, match="a bug"):
        small.world.run_until(small.world.now + 100 * MILLISECOND)
