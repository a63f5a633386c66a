"""What a simulated broker does with its disk: syncs that stand still, reads that take a while, upkeep."""

from __future__ import annotations

import pytest

from gapless_sim.world.broker import SimBroker
from gapless_sim.world.options import MILLISECOND, SECOND
from unit.gapless_sim.worlds import Small


def receipts(small: Small) -> list[int]:
    return sorted(key for key, _, _ in small.ear.receipts)


def broker_of(small: Small) -> SimBroker:
    return small.world.brokers["node1"]


def test_no_sync_ends_while_the_disk_stands_still() -> None:
    small = Small().begin()
    broker = broker_of(small)
    broker.stall(small.world.now + 3 * SECOND)
    small.publish(2, 1)
    small.rest(2)
    assert receipts(small) == []
    small.rest(2)
    assert receipts(small) == [0, 1, 2]

    broker.stall(small.world.now + 60 * SECOND)
    broker.heal_disk()
    small.publish(1)
    small.rest(1)
    assert receipts(small) == [0, 1, 2, 3]


def test_a_power_cut_takes_what_the_disk_had_not_done() -> None:
    small = Small().begin()
    broker = broker_of(small)
    broker.stall(small.world.now + 60 * SECOND)
    small.publish(2)
    assert broker.disk.unsynced > 0
    broker.crash()
    assert receipts(small) == []
    broker.heal_disk()
    small.rest(10)

    assert receipts(small) == small.told == [0, 1]


def test_a_failed_reclaim_is_a_failed_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small().begin()
    broker = broker_of(small)
    small.publish(3)
    small.world.run_until(small.world.now + 500 * MILLISECOND)
    assert broker.disk_driver is not None
    reclaim = broker.disk_driver.volume.reclaim

    def fail_first() -> int:
        broker.fail_disk("write", "lost")
        return reclaim()

    monkeypatch.setattr(broker.disk_driver.volume, "reclaim", fail_first)
    small.rest(10)

    assert small.world.hits["disk.failed"] == 1
    assert broker.running
    assert small.told == [0, 1, 2]
