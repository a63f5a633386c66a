"""What a router tells of itself: who serves it, past whom, and what does not come (protocol: delta-router)."""

from __future__ import annotations

from gapless.core.gauges import Family
from gapless.core.network.facts import Enrol, Enrolled, NetworkMap, NetworkNode, Opened, PubendMeta
from gapless_routing.common.relay_router import LINKS
from gapless_routing.delta.router import READY
from gapless_routing.delta.serving import BYPASSED_PUBENDS, CUT_PUBENDS, HOSTS_MAX, SERVED_PUBENDS
from unit.gapless_routing.delta.net import DeltaNet, settled
from unit.gapless_routing.knowledge.net import PHB, SECOND, SHB

Figures = dict[tuple[str, ...], float]


def figures(net: DeltaNet, name: str, family: Family) -> Figures:
    """The figures of a family, by their labels."""
    gauges = [gauge for gauge in net.routers[name].gauges() if gauge.name == family.name]
    return {tuple(value for _, value in gauge.labels): gauge.value for gauge in gauges}


def enrol(net: DeltaNet, *hosts: str) -> None:
    """The SHBs that want to count at pubends of these nodes do."""
    for host in hosts:
        for asked in net.take(Enrol, host):
            net.tell(host, Enrolled(asked.pubend, asked.shb, 0))


def chain_of_two_pubends(delta: int = 2) -> DeltaNet:
    """A PHB with two pubends, two brokers between, and an SHB."""
    net = settled(delta=delta)
    net.tell("p", Opened(PubendMeta("two@1", "p"), {}))
    net.pass_time(6 * SECOND)
    enrol(net, "p")
    net.pass_time(SECOND)
    return net


def test_where_all_are_there_the_next_one_serves_and_nobody_is_bypassed() -> None:
    net = chain_of_two_pubends()

    for name, server in (("i", "p"), ("j", "i"), ("s", "j")):
        assert figures(net, name, SERVED_PUBENDS) == {("p", server): 2}
        assert figures(net, name, CUT_PUBENDS) == {("p",): 0}
        assert figures(net, name, BYPASSED_PUBENDS) == {}
        assert figures(net, name, READY) == {(): 1}
    assert figures(net, "p", SERVED_PUBENDS) == {}
    assert figures(net, "s", LINKS) == {("j",): 1}


def test_who_is_away_is_bypassed_by_the_one_behind_it_until_it_is_back() -> None:
    net = chain_of_two_pubends()

    net.kill("i")
    net.pass_time(2 * SECOND)
    assert figures(net, "j", SERVED_PUBENDS) == {("p", "p"): 2}
    assert figures(net, "j", BYPASSED_PUBENDS) == {("p", "i"): 2}
    assert figures(net, "s", BYPASSED_PUBENDS) == {}
    net.kill("j")
    net.pass_time(2 * SECOND)
    assert figures(net, "s", SERVED_PUBENDS) == {("p", "p"): 2}
    assert figures(net, "s", BYPASSED_PUBENDS) == {("p", "i"): 2, ("p", "j"): 2}

    net.revive("i", "j")
    net.pass_time(10 * SECOND)
    for name, server in (("i", "p"), ("j", "i"), ("s", "j")):
        assert figures(net, name, SERVED_PUBENDS) == {("p", server): 2}
        assert figures(net, name, BYPASSED_PUBENDS) == {}


def test_behind_more_brokers_than_may_be_away_all_is_cut_off() -> None:
    net = chain_of_two_pubends(delta=1)

    net.kill("i")
    net.pass_time(2 * SECOND)
    assert figures(net, "s", CUT_PUBENDS) == {("p",): 0}
    net.kill("j")
    net.pass_time(2 * SECOND)

    assert figures(net, "s", CUT_PUBENDS) == {("p",): 2}
    assert figures(net, "s", SERVED_PUBENDS) == {}


def test_pubends_of_many_nodes_are_few_figures() -> None:
    hosts = [f"p{number}" for number in range(HOSTS_MAX + 6)]
    nodes = {"s": NetworkNode(frozenset(SHB))} | dict.fromkeys(hosts, NetworkNode(frozenset(PHB)))
    net = DeltaNet(NetworkMap(nodes, tuple(("s", host) for host in hosts)))
    for host in hosts:
        net.tell(host, Opened(PubendMeta(f"{host}@1", host), {}))
    net.subscribe("s", 1, "a", enrol="")
    enrol(net, *hosts)
    net.pass_time(2 * SECOND)

    found = figures(net, "s", SERVED_PUBENDS)

    assert len({host for host, _ in found}) == HOSTS_MAX + 1
    assert sum(found["", host] for host in hosts[-6:]) == 6
    assert sum(found.values()) == len(hosts)
