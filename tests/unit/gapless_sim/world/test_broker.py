"""A broker's process: what a crash takes, and what it does not."""

from __future__ import annotations

import pytest

from gapless.core.gauges import values_by
from gapless_phb.core.gauges import LOST
from gapless_sim.world.options import MILLISECOND, SECOND, DiskFaults
from unit.gapless_sim.worlds import Small


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
