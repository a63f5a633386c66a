"""A whole world for routers: a network, what stands around each router, and something to do for all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from types import MappingProxyType

from gapless.core.network.facts import BrokerId
from gapless.core.stream.ticks import SECOND as TICKS_OF_SECOND
from gapless.selectors.filters import Filter
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.clients import PublishingClient, columns
from gapless_testing.routing.faults import MS, SECOND, RoutingFaults
from gapless_testing.routing.harness import RouterHarness
from gapless_testing.routing.interests import matches
from gapless_testing.routing.network import LITTLE, Pace, VirtualNetwork
from gapless_testing.routing.publishing import PublishingStandIn
from gapless_testing.routing.subscribing import Following, SubscribingStandIn
from gapless_testing.routing.topology import PHB, SHB, Topology

SMALL = 2
"""In a network of so many brokers each PHB has two pubends."""
TOPICS = ("fish", "fowl.hen", "fowl.duck", "meat")
FILTERS = (
    Filter(("fish",)),
    Filter(("fowl.#",), "n > 5"),
    Filter(("fowl.*", "meat"), "n < 3"),
    Filter(("#",), "n = 7"),
    Filter(("#",), "JMSPriority > 6"),
    Filter(("meat",)),
)


class RouterWorld:
    """One network of routers, in use."""

    def __init__(
        self,
        harness: RouterHarness,
        topology: Topology,
        seed: int,
        *,
        busy: bool = True,
        guard: AbstractContextManager[object] | None = None,
        pace: Pace = LITTLE,
    ) -> None:
        """`busy`: events are published and things asked for all the time."""
        self.network = VirtualNetwork(harness, topology, seed, guard, pace)
        self.random = self.network.random
        hosts = self.network.hosts
        self.pubends: list[PublishingStandIn] = []
        self.shbs: list[SubscribingStandIn] = []
        self.clients: list[PublishingClient] = []
        phbs = topology.with_role(PHB)
        for number, broker in enumerate(phbs):
            self.pubends.append(PublishingStandIn(hosts[broker], f"{broker}-events@1", number))
            self.clients.append(PublishingClient(hosts[broker], f"client-{broker}", TOPICS[number % len(TOPICS)]))
        if len(topology.brokers) <= SMALL:
            self.pubends += [PublishingStandIn(hosts[broker], f"{broker}-more@1", 7) for broker in phbs]
        for number, broker in enumerate(topology.with_role(SHB)):
            shb = SubscribingStandIn(hosts[broker], f"{broker}:store")
            shb.filters = {1: FILTERS[number % len(FILTERS)]}
            self.shbs.append(shb)
        everybody: list[PublishingStandIn | PublishingClient | SubscribingStandIn]
        everybody = [*self.pubends, *self.clients, *self.shbs]
        for stand_in in everybody:
            stand_in.host.stand_ins.append(stand_in)
        self._busy = busy
        self._stopped = False

    # ------------------------------------------------------------------------------ what happens

    def start(self, after: Mapping[BrokerId, int] = MappingProxyType({})) -> None:
        """Starts everybody. `after`: some brokers so many nanoseconds later."""
        self.network.start(after)
        self._act()

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.network.run(int(seconds * SECOND))

    def _act(self) -> None:
        """Something happens, as it does all the time."""
        if self._stopped:
            return
        self.network.later(self.random.randrange(20, 200) * MS, self._act)
        if self._busy:
            self.publish(self.random.choice(self.pubends), self.random.randrange(1, 6))
            self._occasionally(0.05, self._read_again)
            self._occasionally(0.05, self._hold)
            self._occasionally(0.1, lambda: self.random.choice(self.pubends).probe())
            self._occasionally(0.01, lambda: self.random.choice(self.pubends).introduce())
        change_every = self.network.faults.change_every
        if change_every:
            self._occasionally(110 * MS / change_every, self._change)

    def _occasionally(self, probability: float, action: Callable[[], None]) -> None:
        if self.random.random() < probability:
            action()

    def publish(self, pubend: PublishingStandIn, count: int, body: bytes = b"body") -> None:
        """Logs a few events, if the broker is there."""
        if pubend.host.up:
            pubend.publish(columns(self.random.choice(TOPICS), self.random.randrange(10), count, body))

    def _following(self) -> tuple[SubscribingStandIn, Following] | None:
        shb = self.random.choice(self.shbs)
        if not shb.streams or not shb.host.up:
            return None
        return shb, self.random.choice(list(shb.streams.values()))

    def _read_again(self) -> None:
        chosen = self._following()
        if chosen is not None:
            shb, following = chosen
            shb.read(following, self.random.randrange(1, 5 * TICKS_OF_SECOND))

    def _hold(self) -> None:
        chosen = self._following()
        if chosen is not None:
            shb, following = chosen
            shb.hold(following)

    def _change(self) -> None:
        shb = self.random.choice(self.shbs)
        if not shb.host.up:
            return
        subscription, wanted = self.random.randrange(1, 4), self.random.choice(FILTERS)

        def edit(filters: dict[int, Filter]) -> None:
            if self.random.random() < 0.4 and len(filters) > 1:
                filters.pop(subscription, None)
            else:
                filters[subscription] = wanted

        shb.change(edit)

    # ------------------------------------------------------------------------------ what must come of it

    def settle(self) -> None:
        """Ends all faults and all activity, and waits until everybody has everything.

        Raises ContractError, with what is missing, if that takes longer than the harness allows.
        """
        self.network.faults = RoutingFaults()
        self._stopped = True
        for client in self.clients:
            client.stopped = True
        for shb in self.shbs:
            shb.asks = True
        self.run(10)
        goals = {pubend.pubend: pubend.stable for pubend in self.pubends}
        deadline = self.network.now + int(self.network.harness.settle_seconds * SECOND)
        while True:
            missing = list(self._missing(goals))
            if not missing:
                break
            if self.network.now >= deadline:
                clause, what = missing[0]
                raise ContractError(clause, f"{what}, long after the last fault", "the network", self.network.now)
            self.run(1)
        if self.network.pace.judged:
            self.network.contract.check_quiet()
            self._check_received()

    def _missing(self, goals: dict[str, int]) -> Iterator[tuple[Clause, str]]:
        for shb in self.shbs:
            for pubend in self.pubends:
                following = shb.streams.get(pubend.pubend)
                if following is None:
                    yield Clause.ENROL, f"{shb.shb} was not told that {pubend.pubend} counts it"
                else:
                    yield from self._missing_at(shb, following, goals[pubend.pubend])
        for client in self.clients:
            if not client.idle:
                yield Clause.PLACE, f"{client.name} has not got its batch logged, only {client.answered}"
        yield from self._unreleased(goals)

    def _missing_at(self, shb: SubscribingStandIn, following: Following, goal: int) -> Iterator[tuple[Clause, str]]:
        pubend = following.meta.pubend
        if following.head < goal:
            ranges = following.stream.unknown(following.head, goal, {shb.shb: shb.version})
            yield Clause.ANSWER, f"{shb.shb} asks for {ranges} of {pubend} without end"
        if following.readings:
            ranges = following.readings[0].curiosity.ranges
            yield Clause.ANSWER, f"{shb.shb} asks for {ranges} of {pubend}, unfiltered, without end"
        if following.row is not None and following.held < following.row.version:
            yield Clause.HOLD, f"{shb.shb} has no answer to {following.row}"

    def _unreleased(self, goals: dict[str, int]) -> Iterator[tuple[Clause, str]]:
        for pubend in self.pubends:
            rows = [shb.streams.get(pubend.pubend) for shb in self.shbs]
            reported = min((following.delivered for following in rows if following), default=0)
            goal = min(reported, goals[pubend.pubend])
            if pubend.minima.delivered < goal:
                what = f"{pubend.pubend} hears that all have {pubend.minima.delivered}, and they have {reported}"
                yield Clause.MINIMA, what

    def _check_received(self) -> None:
        """Everybody has exactly the events that matched, whatever the observer saw of how they came."""
        for shb in self.shbs:
            for following in shb.streams.values():
                self._check_events(shb, following)

    def _check_events(self, shb: SubscribingStandIn, following: Following) -> None:
        truth = self.network.contract.truths[following.meta.pubend]
        due = [
            tick
            for tick in truth.between(following.start, following.head)
            if (tick not in truth.damaged or tick in following.received)
            and any(matches(wanted, truth.event(tick)) for wanted in shb.versions[shb.version_at(following, tick)])
        ]
        if due != following.received:
            wrong = sorted(set(due).symmetric_difference(following.received))[:5]
            missing = [tick for tick in wrong if tick in due]
            surplus = [tick for tick in wrong if tick not in due]
            what = f"{shb.shb} has {len(following.received)} of the {len(due)} events of {following.meta.pubend}"
            raise ContractError(Clause.TRUTH, f"{what} that it wants: without {missing}, and with {surplus}")


@contextmanager
def naming(topology: Topology, seed: int, faults: RoutingFaults | None = None) -> Iterator[None]:
    """Adds to a breach in which world it happened."""
    try:
        yield
    except ContractError as breach:
        where = f"topology {topology.name!r}, seed {seed}" + (f", {faults}" if faults else "")
        raise ContractError(breach.clause, f"{breach.what} ({where})", breach.broker, breach.now) from breach


def live_through(
    harness: RouterHarness, topology: Topology, seed: int, faults: RoutingFaults, seconds: float = 12
) -> RouterWorld:
    """A world with these faults, from its start until everything is served. Raises ContractError."""
    with naming(topology, seed, faults):
        world = RouterWorld(harness, topology, seed)
        world.network.faults = replace(faults)
        world.start()
        world.run(seconds)
        world.settle()
    return world
