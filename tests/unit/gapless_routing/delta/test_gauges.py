"""What a router tells of itself: who serves it, past whom, and what does not come (protocol: delta-router)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import count, pairwise

from gapless.core.gauges import Family
from gapless.core.network.facts import (
    BrokerId,
    Dial,
    FrameArrived,
    Interest,
    LinkDown,
    LinkId,
    LinkUp,
    NetworkMap,
    NetworkNode,
    Opened,
    PubendMeta,
    Save,
    Saved,
    SendFrame,
    Wake,
)
from gapless.core.network.seam import Effect, RouterContext, Told
from gapless.core.stream.ticks import EPOCH_MS
from gapless_routing.common.relay_router import LINKS
from gapless_routing.delta.router import READY, DeltaRouter
from gapless_routing.delta.serving import BYPASSED_PUBENDS, CUT_PUBENDS, HOSTS_MAX, SERVED_PUBENDS

SECOND = 1_000_000_000
Figures = dict[tuple[str, ...], float]


class Net:
    """Routers of a tree, whose links come up when one of them dials, and whose frames arrive at once."""

    def __init__(self, roles: Mapping[BrokerId, str], links: Iterable[tuple[str, str]], **options: int) -> None:
        nodes = {name: NetworkNode(frozenset(theirs.split())) for name, theirs in roles.items()}
        self._map = NetworkMap(nodes, tuple(links))
        self._config = options
        self._now = 10 * SECOND
        self._links: dict[tuple[BrokerId, BrokerId], LinkId] = {}
        self._numbers = count(1)
        self._waiting: deque[tuple[BrokerId, LinkId, bytes]] = deque()
        self.routers: dict[BrokerId, DeltaRouter] = {}
        for name in nodes:
            self.start(name)

    def start(self, name: BrokerId) -> None:
        """A router begins; where there is an SHB, that speaks."""
        router = DeltaRouter()
        self.routers[name] = router
        self._carry_out(name, router.start(self._now, RouterContext(name, 1, self._map, self._config)))
        if "shb" in self._map.nodes[name].roles:
            self.tell(name, Interest(f"{name}@disk", 1, 1, {}, full=True))

    def kill(self, name: BrokerId) -> None:
        """A router is gone, and so are its links."""
        del self.routers[name]
        for one, other in [pair for pair in self._links if name in pair]:
            link = self._links.pop((one, other))
            if one in self.routers:
                self.tell(one, LinkDown(link))

    def tell(self, name: BrokerId, fact: Told) -> None:
        """A router is told something, and all that follows happens."""
        router = self.routers[name]
        self._carry_out(name, router.handlers()[type(fact)](self._now, fact))
        while self._waiting:
            at, link, frame = self._waiting.popleft()
            if at in self.routers:
                arrived = FrameArrived(link, frame, EPOCH_MS)
                self._carry_out(at, self.routers[at].handlers()[FrameArrived](self._now, arrived))

    def pass_time(self, seconds: int) -> None:
        """Timers do what they do, of all routers in the order of time."""
        end = self._now + seconds * SECOND
        while True:
            waking = [(at, name) for name, router in self.routers.items() if (at := router.next_wake()) is not None]
            at, name = min(waking)
            if at > end:
                self._now = end
                return
            self._now = max(self._now, at)
            self.tell(name, Wake())

    def figures(self, name: BrokerId, family: Family) -> Figures:
        """The figures of a family, by their labels."""
        gauges = [gauge for gauge in self.routers[name].gauges() if gauge.name == family.name]
        return {tuple(value for _, value in gauge.labels): gauge.value for gauge in gauges}

    def _carry_out(self, name: BrokerId, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Dial):
                self._connect(name, effect.peer)
            elif isinstance(effect, Save):
                self.tell(name, Saved(effect.cookie))
            elif isinstance(effect, SendFrame):
                self._waiting += [
                    (other, self._links[other, name], effect.frame)
                    for (one, other), link in self._links.items()
                    if one == name and link == effect.link
                ]

    def _connect(self, one: BrokerId, other: BrokerId) -> None:
        if other not in self.routers or (one, other) in self._links:
            return
        self._links[one, other], self._links[other, one] = next(self._numbers), next(self._numbers)
        for name, peer in ((one, other), (other, one)):
            up = LinkUp(self._links[name, peer], peer, self._map.nodes[peer].roles, 1)
            self._carry_out(name, self.routers[name].handlers()[LinkUp](self._now, up))  # nothing arrives before both


def settled(delta: int = 2) -> Net:
    """A PHB with two pubends, two brokers between, and an SHB."""
    chain = Net({"p": "phb", "i": "", "j": "", "s": "shb"}, pairwise("pijs"), delta=delta)
    for pubend in ("one@1", "two@1"):
        chain.tell("p", Opened(PubendMeta(pubend, "p"), {}))
    chain.pass_time(10)
    return chain


def test_where_all_are_there_the_next_one_serves_and_nobody_is_bypassed() -> None:
    chain = settled()

    for name, server in (("i", "p"), ("j", "i"), ("s", "j")):
        assert chain.figures(name, SERVED_PUBENDS) == {("p", server): 2}
        assert chain.figures(name, CUT_PUBENDS) == {("p",): 0}
        assert chain.figures(name, BYPASSED_PUBENDS) == {}
        assert chain.figures(name, READY) == {(): 1}
    assert chain.figures("p", SERVED_PUBENDS) == {}
    assert chain.figures("s", LINKS) == {("j",): 1}


def test_who_is_away_is_bypassed_by_the_one_behind_it_until_it_is_back() -> None:
    chain = settled()

    chain.kill("i")
    chain.pass_time(2)
    assert chain.figures("j", SERVED_PUBENDS) == {("p", "p"): 2}
    assert chain.figures("j", BYPASSED_PUBENDS) == {("p", "i"): 2}
    assert chain.figures("s", BYPASSED_PUBENDS) == {}
    chain.kill("j")
    chain.pass_time(2)
    assert chain.figures("s", SERVED_PUBENDS) == {("p", "p"): 2}
    assert chain.figures("s", BYPASSED_PUBENDS) == {("p", "i"): 2, ("p", "j"): 2}

    for name in ("i", "j"):
        chain.start(name)
    chain.pass_time(10)
    for name, server in (("i", "p"), ("j", "i"), ("s", "j")):
        assert chain.figures(name, SERVED_PUBENDS) == {("p", server): 2}
        assert chain.figures(name, BYPASSED_PUBENDS) == {}


def test_behind_more_brokers_than_may_be_away_all_is_cut_off() -> None:
    chain = settled(delta=1)

    chain.kill("i")
    chain.pass_time(2)
    assert chain.figures("s", CUT_PUBENDS) == {("p",): 0}
    chain.kill("j")
    chain.pass_time(2)

    assert chain.figures("s", CUT_PUBENDS) == {("p",): 2}
    assert chain.figures("s", SERVED_PUBENDS) == {}


def test_pubends_of_many_nodes_are_few_figures() -> None:
    hosts = [f"p{number}" for number in range(HOSTS_MAX + 6)]
    hub = Net({"s": "shb"} | dict.fromkeys(hosts, "phb"), [("s", host) for host in hosts])
    for host in hosts:
        hub.tell(host, Opened(PubendMeta(f"{host}@1", host), {}))
    hub.pass_time(2)

    figures = hub.figures("s", SERVED_PUBENDS)

    assert len({host for host, _ in figures}) == HOSTS_MAX + 1
    assert sum(figures["", host] for host in hosts[-6:]) == 6
    assert sum(figures.values()) == len(hosts)
