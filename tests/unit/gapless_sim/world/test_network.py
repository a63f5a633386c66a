"""Links: what arrives, in which order, and what goes wrong."""

from __future__ import annotations

from gapless_sim.world.options import NetworkFaults
from unit.gapless_sim.worlds import Small


def test_cuts_add_up() -> None:
    network = Small().world.network
    network.cut("a", "b")
    network.cut("a", "b")
    network.heal("a", "b")
    assert network.is_cut("a", "b")
    assert not network.is_cut("b", "a")

    network.heal("a", "b")
    network.heal("a", "b")
    assert not network.is_cut("a", "b")


def test_no_link_stays_slow_when_faults_are_over() -> None:
    """Found by the simulator: what had been sent on a slow link was longer on its way than anybody waits."""
    small = Small(network=NetworkFaults(slow=1.0, slow_rate=100, bytewise=0.0)).begin()
    small.publish(20)
    small.world.network.faults = NetworkFaults()
    small.world.network.speed_up()
    small.rest(5)

    assert small.told == list(range(20))


def test_a_slow_link_between_brokers_tells_the_router_that_it_is_full() -> None:
    slow = NetworkFaults(slow=1.0, slow_rate=2_000)
    small = Small(count=400, router="hostile", phbs=1, shbs=1, together=False, network=slow).begin()
    for _ in range(20):
        small.publish(20)
    assert small.world.hits["net.full between brokers"]

    small.world.network.faults = NetworkFaults()
    small.world.network.speed_up()
    small.rest(60)
    assert sorted(set(small.told)) == list(range(400))
