"""The links between clients and brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless_sim.world.options import SECOND, NetworkFaults
from unit.gapless_sim.worlds import Small


@pytest.mark.parametrize("rate", [0, 2000])
def test_the_real_framing_carries_what_is_chopped_into_pieces(rate: int) -> None:
    faults = NetworkFaults(bytewise=1.0, slow=1.0 if rate else 0.0, slow_rate=rate or 1)
    small = Small(network=faults).begin()
    small.publish(3, 1, 5)
    small.rest()

    assert small.told == list(range(9))


def test_slow_links_tell_the_broker_what_has_not_left() -> None:
    small = Small(network=NetworkFaults(slow=1.0, slow_rate=100, bytewise=0.0)).begin()
    small.publish(20)
    pending = max(link.pending for link in small.world.network.client_links.values())
    small.world.options = replace(small.world.options)

    assert pending > 0
    small.world.run_until(small.world.now + 60 * SECOND)
    assert small.told == list(range(20))
