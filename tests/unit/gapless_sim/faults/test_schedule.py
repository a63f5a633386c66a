from __future__ import annotations

from typing import Any

import pytest

from gapless_sim.faults.schedule import SOMETIMES, Faults
from gapless_sim.world.options import (
    SECOND,
    ClockFaults,
    DiskFaults,
    NetworkFaults,
    ProcessFaults,
)
from unit.gapless_sim.worlds import Small

ALL: dict[str, Any] = {
    "network": NetworkFaults(
        loss=0.1,
        repeat=0.1,
        bytewise=0.5,
        garble=0.05,
        slow=0.3,
        stale=0.5,
        late=1,
        resets=1,
        flaps=1,
        cuts=0.5,
        frames_lost=0.5,
    ),
    "disk": DiskFaults(stall=0.05, fail_sync=0.5, fail_write=0.5, full=0.3, low=0.3, wipe=0.1, damage=0.5),
    "process": ProcessFaults(
        crash=0.5, kill=0.5, fuse=0.5, crash_in_recovery=0.5, pause=0.3, slow=0.3, client_crash=0.5, client_pause=0.3
    ),
    "clock": ClockFaults(jumps=0.5, jump_ms=3000),
}


def stormy(seed: int) -> Small:
    small = Small(
        seed, router="hostile", phbs=2, shbs=2, together=False, retires=0.5, additions=0.1, policy_changes=0.1, **ALL
    )
    small.world.network.faults = small.world.options.network
    faults = Faults(small.world)
    small.begin()
    faults.begin()
    for _ in range(20):
        small.publish(1, pause=SECOND)
    faults.stop()
    small.rest(60)
    return small


ELSEWHERE = {
    "net.full between brokers",
    "net.impossible tick",  # likewise
    "operator.restore",
    "operator.repaired at last",
    "operator.phb wiped",  # where it is a node of its own
    "operator.phb wiped, with its clock behind",
    "operator.shb replaced",  # in some trees
    "liveness.left broken",
}


@pytest.mark.timeout(240)
def test_every_kind_of_fault_happens_and_then_none() -> None:
    missing = set(SOMETIMES) - ELSEWHERE
    for seed in range(20):
        small = stormy(seed)
        assert all(broker.running for broker in small.world.brokers.values())
        assert all(client.running for client in small.world.clients.values())
        missing -= small.world.hits.keys()
        if not missing:
            break

    assert not missing
