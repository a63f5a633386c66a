"""What a simulated broker does with its disk: syncs that stand still, reads that take a while, upkeep."""

from __future__ import annotations

from gapless_sim.world.broker import SimBroker
from gapless_sim.world.options import SECOND
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
