"""The links between clients and brokers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapless_sim.world.options import MILLISECOND, SECOND, NetworkFaults
from unit.gapless_sim.worlds import Small


@pytest.mark.parametrize("rate", [0, 2000])
def test_the_real_framing_carries_what_is_chopped_into_pieces(rate: int) -> None:
    faults = NetworkFaults(bytewise=1.0, slow=1.0 if rate else 0.0, slow_rate=rate or 1)
    small = Small(network=faults).begin()
    small.publish(3, 1, 5)
    small.rest()

    assert small.told == list(range(9))


def test_a_garbled_frame_ends_the_link_and_nothing_else() -> None:
    small = Small(network=NetworkFaults(bytewise=1.0, garble=0.2), count=100).begin()
    small.publish(*[1] * 30)
    small.world.network.faults = NetworkFaults()
    small.rest(30)

    assert small.world.hits["net.garbled"]
    assert small.told == list(range(30))


def test_a_reset_loses_what_is_on_its_way_and_both_sides_hear_of_it() -> None:
    small = Small(network=NetworkFaults(delay=100 * MILLISECOND)).begin()
    small.producer.publish(3)
    small.world.run_until(small.world.now + MILLISECOND)
    for link in list(small.world.network.client_links.values()):
        link.reset("gone")
    assert small.told == []
    small.rest(10)

    assert small.told == [0, 1, 2]
    assert "disconnected" in [line.kind for line in small.world.trace.lines]


def test_slow_links_tell_the_broker_what_has_not_left() -> None:
    small = Small(network=NetworkFaults(slow=1.0, slow_rate=100, bytewise=0.0)).begin()
    small.publish(20)
    pending = max(link.pending for link in small.world.network.client_links.values())
    small.world.options = replace(small.world.options)

    assert pending > 0
    small.world.run_until(small.world.now + 60 * SECOND)
    assert small.told == list(range(20))


@pytest.mark.parametrize("upward", [True, False])
def test_a_frame_that_vanishes_ends_the_session_and_costs_nothing_else(upward: bool) -> None:
    small = Small(network=NetworkFaults()).begin()
    small.publish(3)
    for link in small.world.network.client_links.values():
        (link.upward if upward else link.downward).loses_next = True
    small.publish(1, 1)
    small.rest(20)

    assert small.world.hits["net.frame lost"]
    assert small.told == list(range(5))
    assert "disconnected" in [line.kind for line in small.world.trace.lines]


def test_nothing_is_lost_any_more_when_the_network_is_without_faults() -> None:
    small = Small(network=NetworkFaults()).begin()
    small.world.network.break_word(lambda count: count - 1)
    small.world.network.keep_word()
    small.publish(3)
    small.rest(20)

    assert not small.world.hits["net.frame lost"]
