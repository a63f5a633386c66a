"""Links: what arrives, in which order, and what goes wrong."""

from __future__ import annotations

from gapless_sim.world.options import MILLISECOND, NetworkFaults
from unit.gapless_sim.worlds import Small


def test_a_client_is_served() -> None:
    small = Small().begin()
    small.publish(3, 1, 5)
    small.rest()

    assert small.told == list(range(9))


def test_nothing_gets_through_a_cut_and_all_of_it_after() -> None:
    small = Small().begin()
    network = small.world.network
    network.cut("node1", "client1")
    small.publish(3)
    assert small.told == []

    network.heal("node1", "client1")
    small.rest(1)

    assert small.told == [0, 1, 2]


def test_a_cut_that_lasts_ends_the_session_on_both_sides() -> None:
    small = Small().begin()
    small.world.network.cut("client1", "node1")
    small.rest(30)
    kinds = [(line.lane, line.kind) for line in small.world.trace.lines]

    assert ("client1", "disconnected") in kinds
    small.publish(4)
    small.world.network.heal_all()
    small.rest(20)
    assert small.told == [0, 1, 2, 3]


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


def test_frames_of_an_earlier_session_are_ignored() -> None:
    small = Small(network=NetworkFaults(stale=1.0)).begin()
    for _ in range(5):
        small.publish(2)
        small.world.network.reset_some(lambda _count: 0)
        small.rest(2)
    small.rest()

    assert small.world.hits["net.stale"] >= 3
    assert small.told == list(range(10))


def test_links_between_brokers_lose_and_repeat_and_are_still_of_use() -> None:
    faults = NetworkFaults(loss=0.2, repeat=0.2, delay=5 * MILLISECOND)
    small = Small(router="hostile", phbs=1, shbs=1, together=False, network=faults).begin()
    while not small.producer.open:
        small.rest(1)
    small.publish(*[1] * 20)
    small.rest(20)

    assert small.world.hits["net.lost"]
    assert small.world.hits["net.repeated"]
    assert small.told == list(range(20))


def test_a_link_between_brokers_that_breaks_comes_back() -> None:
    small = Small(router="hostile", phbs=1, shbs=1, together=False).begin()
    small.world.network.flap_some(lambda _count: 0)
    small.publish(2)
    small.rest(20)

    assert small.told == [0, 1]


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
