"""A tree of brokers in virtual time, the routers alone: around each, stand-ins for its cores, as simple as can be.

It is the network of the conformance suite without its judge, at a pace of its own: a link takes as long as it is told
to and loses nothing but by going down, and a cut is noticed exactly as late as is said. Hundreds of brokers run so. The
routers are those of production, and every frame is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import msgspec

from bench.papers.experiment import Sizes
from gapless.core.network.facts import BrokerId, FrameArrived, Know, Want
from gapless.core.network.frames import InterestPart, Message, NamedKnowledge, Private, decode, is_interest
from gapless.core.network.seam import Effect, Router
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import PubendId
from gapless.selectors.filters import Filter
from gapless_routing.common.census import InterestByDirection
from gapless_routing.common.interest_flow import CENSUS
from gapless_routing.common.relay_router import CACHED
from gapless_routing.delta import copies, open_routing, ring, serving
from gapless_testing.routing.clients import columns
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.harness import RouterHarness
from gapless_testing.routing.network import BrokerHost, Pace, VirtualNetwork
from gapless_testing.routing.publishing import PublishingStandIn
from gapless_testing.routing.subscribing import SubscribingStandIn
from gapless_testing.routing.topology import PHB, SHB, Topology

Link = tuple[BrokerId, BrokerId]
TOPIC: Final = "fish"
EVERYTHING: Final = (Filter((TOPIC,)),)
LATENCY: Final = 5 * MS
"""Of each link, where nothing else is said."""
DETECTOR: Final = 1_500 * MS
"""So late a node notices that another one is away that said nothing of it."""
RING_WAIT: Final = 250 * MS
"""So long a broker waits before it dials who is beyond one that is away: the option `ring_wait_ms`."""
BODY: Final = b"x" * 250
KINDS: Final = {
    CENSUS: "census",
    ring.STATUS: "status",
    serving.SERVE: "service",
    serving.SERVED: "service",
    serving.UNSERVE: "service",
    copies.REPORT: "report",
}
"""What brokers under `delta` say to their own kind alone."""
FRAMES_MAX: Final = 1_000_000
"""No network here is too busy."""


@dataclass(frozen=True, slots=True)
class Busy:
    """How long a processor is busy with a frame, when it sends one and when it receives one, in nanoseconds."""

    frame: int
    byte: float
    """For each of its bytes …"""
    byte_of_interest: float
    """… but for those that say what an SHB wants: each filter is read and put into tables."""


@dataclass(frozen=True)
class _Pace(Pace):
    busy: Busy | None = None

    def cost(self, frame: bytes) -> int:
        """As long as the plan says."""
        busy = self.busy
        if busy is None:
            return 0
        return busy.frame + round(len(frame) * (busy.byte_of_interest if is_interest(frame) else busy.byte))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Which brokers there are, and what they do."""

    links: Sequence[Link]
    publishing: Sequence[BrokerId]
    """The brokers with a pubend."""
    subscribing: Mapping[BrokerId, Sequence[Filter]]
    """The brokers with an SHB, and what its subscriptions want."""
    delta: int
    detector: int = DETECTOR
    latency: int = LATENCY
    busy: Busy | None = None
    """How long a processor is busy; None: not at all."""
    forget_seconds: int = 600

    @property
    def names(self) -> list[BrokerId]:
        """All brokers."""
        return list(dict.fromkeys(name for link in self.links for name in link))

    @property
    def neighbours(self) -> dict[BrokerId, list[BrokerId]]:
        """Of each broker."""
        around: dict[BrokerId, list[BrokerId]] = {name: [] for name in self.names}
        for one, other in self.links:
            around[one].append(other)
            around[other].append(one)
        return around

    @property
    def topology(self) -> Topology:
        """The same for the stand-ins."""
        roles = {
            name: frozenset(
                role for role, having in ((PHB, self.publishing), (SHB, self.subscribing)) if name in having
            )
            for name in self.names
        }
        return Topology("tree", roles, tuple(self.links))

    @property
    def pace(self) -> Pace:
        """How fast it is. Nothing overtakes: a link is TCP."""
        return _Pace(
            latency=self.latency,
            spread=0,
            noticed_within=0,
            noticed_after=self.detector,
            judged=False,
            frames_max=FRAMES_MAX,
            busy=self.busy,
        )


class _Delta(RouterHarness):
    def __init__(self, plan: Plan) -> None:
        self._options = {"delta": plan.delta, "links_max": 1000, "forget_seconds": plan.forget_seconds}

    def make(self) -> Router:
        return open_routing({})

    def config(self, topology: Topology, broker: BrokerId) -> Mapping[str, Any]:
        return self._options


class Handed(NamedTuple):
    """An event that an SHB was handed, in order."""

    pubend: PubendId
    published: int
    handed: int

    @property
    def latency(self) -> int:
        """In nanoseconds."""
        return self.handed - self.published


class Said(NamedTuple):
    """A kind of frames that one broker sent to another: only those that came."""

    source: BrokerId
    target: BrokerId
    kind: str
    """`events`, `silence`, `interest`, `other`, or one of `KINDS`."""


@dataclass(slots=True)
class Traffic:
    """What was said during some time, and what was done for it."""

    frames: Counter[Said] = field(default_factory=Counter)
    events: Counter[Link] = field(default_factory=Counter)
    """How many events went from one broker to another, pushed or as answers."""
    matches: Counter[BrokerId] = field(default_factory=Counter)
    """How many events each broker has looked up in a table of what is wanted in one place."""

    def frames_to(self, broker: BrokerId, *kinds: str) -> int:
        """How many frames a broker received: of some kinds, or of all."""
        return self._count(lambda said: said.target == broker, kinds)

    def frames_from(self, broker: BrokerId, *kinds: str) -> int:
        """How many frames of a broker came where they were sent to."""
        return self._count(lambda said: said.source == broker, kinds)

    def events_to(self, broker: BrokerId) -> int:
        """How many events a broker received."""
        return sum(count for (_, target), count in self.events.items() if target == broker)

    def events_from(self, broker: BrokerId) -> int:
        """How many events of a broker came where they were sent to."""
        return sum(count for (source, _), count in self.events.items() if source == broker)

    def of_kind(self, kind: str) -> int:
        """How many frames of a kind all brokers received that were looked at."""
        return self._count(lambda _: True, (kind,))

    def _count(self, which: Callable[[Said], bool], kinds: Collection[str]) -> int:
        return sum(count for said, count in self.frames.items() if which(said) and (not kinds or said.kind in kinds))


class _Reading:
    """Notes when an SHB was handed each event."""

    def __init__(self, brokers: Brokers, shb: SubscribingStandIn) -> None:
        self._brokers = brokers
        self._shb = shb
        self.times: dict[PubendId, list[int]] = {}
        """By pubend: of each event that it was handed."""

    def start(self) -> None:
        """Of no interest."""

    def crash(self) -> None:
        """Who reads here, dies in no experiment."""

    def introduce(self) -> None:
        """Of no interest."""

    def attend(self, effect: Effect) -> None:
        """Knowledge has come, and the SHB has passed on what it could."""
        if isinstance(effect, Know):
            following = self._shb.streams.get(effect.knowledge.pubend)
            if following is not None:
                times = self.times.setdefault(effect.knowledge.pubend, [])
                times += [self._shb.host.now] * (len(following.received) - len(times))

    def handed(self) -> Iterator[Handed]:
        """All of it."""
        for pubend, times in self.times.items():
            published = self._brokers.published[pubend]
            for tick, at in zip(self._shb.streams[pubend].received, times, strict=True):
                yield Handed(pubend, published[tick], at)


class _Subscribing(SubscribingStandIn):
    """An SHB that finds on its disk what it has announced, and under which version."""

    def start(self) -> None:
        """Begins again with what was durable."""
        if self.version:
            self.resume()
        else:
            super().start()


class Brokers:
    """The network, who publishes and who subscribes, and what came of it.

    Every SHB is a member of every pubend from the beginning: that it becomes one is not what is measured.
    """

    def __init__(self, plan: Plan, seed: int = 1) -> None:
        self.plan = plan
        self._network = VirtualNetwork(_Delta(plan), plan.topology, seed, pace=plan.pace)
        hosts = self._network.hosts
        self.pubends = [
            PublishingStandIn(hosts[name], f"{name}-events@1", number) for number, name in enumerate(plan.publishing)
        ]
        self.shbs = {name: _Subscribing(hosts[name], f"{name}:store") for name in plan.subscribing}
        self.published: dict[PubendId, dict[int, int]] = {each.pubend: {} for each in self.pubends}
        """By pubend: when the event at each tick was published."""
        self._readings: dict[BrokerId, _Reading] = {}
        for pubend in self.pubends:
            pubend.members = {shb.shb: pubend.created for shb in self.shbs.values()}
            pubend.host.stand_ins.append(pubend)
        for name, shb in self.shbs.items():
            shb.filters = dict(enumerate(plan.subscribing[name], 1))
            self._readings[name] = _Reading(self, shb)
            shb.host.stand_ins += [shb, self._readings[name]]
        self.wants = 0
        """How often SHBs have asked for something."""
        self.recovered: dict[BrokerId, int] = {}
        """How long each that was booted took until it said that it knows what everybody wants, in nanoseconds."""
        self._booted: dict[BrokerId, int] = {}
        """When each was booted that has not said so yet."""
        self._publishing = True
        self._about: Collection[BrokerId] = ()
        self._traffic = Traffic()
        self._at: BrokerId = ""
        """Whose router is told something."""
        self._network.observers.append(self._observe)

    # ------------------------------------------------------------------------------- what happens

    @property
    def now(self) -> int:
        """Nanoseconds."""
        return self._network.now

    def host(self, name: BrokerId) -> BrokerHost:
        """A broker."""
        return self._network.hosts[name]

    def start(self, seconds: float) -> None:
        """Everybody starts, and time passes until all know each other."""
        self._network.start()
        self.wait(seconds)
        for name, shb in self.shbs.items():
            if len(shb.streams) < len(self.pubends):
                raise TimeoutError(f"within {seconds:g} s the SHB of {name} has not heard of every pubend")

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self._network.run(round(seconds * SECOND))

    def ask(self, *, asks: bool) -> None:
        """Whether SHBs ask for what they miss, from now on."""
        for shb in self.shbs.values():
            shb.asks = asks

    def crash(self, names: Iterable[BrokerId]) -> None:
        """Brokers die, and nobody is told."""
        for name in names:
            self.host(name).crash()

    def boot(self, names: Iterable[BrokerId]) -> None:
        """Brokers that were dead start."""
        for name in names:
            self._booted[name] = self.now
            self.host(name).start()

    def publish(self, pubend: PublishingStandIn, number: int) -> None:
        """One event, with the property n = number."""
        (tick,) = pubend.publish(columns(TOPIC, number, 1, BODY))
        self.published[pubend.pubend][tick] = self.now

    def publish_steadily(self, rate: float, values: int = 1) -> None:
        """From now on so many events a second, each pubend in its turn; `values`: n goes round through so many."""
        pause, self._publishing = round(SECOND / rate), True
        begun = self.now

        def step(number: int) -> None:
            if self._publishing:
                self.publish(self.pubends[number % len(self.pubends)], number % values)
                self._network.later(begun + pause * (number + 1) - self.now, lambda: step(number + 1))

        step(0)

    def stop_publishing(self) -> None:
        """Nothing is published from now on."""
        self._publishing = False

    # ------------------------------------------------------------------------------- what came of it

    def handed(self, name: BrokerId, since: int, until: int) -> list[Handed]:
        """What an SHB was handed of what was published in [since, until), in the order of publishing."""
        found = (each for each in self._readings[name].handed() if since <= each.published < until)
        return sorted(found, key=lambda each: each.published)

    def kept(self, names: Sequence[BrokerId]) -> dict[BrokerId, int]:
        """Bytes of the events that brokers keep."""
        found = {}
        for name in names:
            router = self.host(name).router
            assert router is not None
            found[name] = round(sum(gauge.value for gauge in router.gauges() if gauge.name == CACHED.name))
        return found

    def latencies(self, since: int, until: int) -> list[int]:
        """Of all events that were published in [since, until), at all SHBs."""
        return [each.latency for name in self.shbs for each in self.handed(name, since, until)]

    def has_all(self, name: BrokerId, pubend: PublishingStandIn, since: int) -> bool:
        """Whether an SHB that wants everything has all that a pubend has published since then, in order."""
        times = self.published[pubend.pubend]
        due = [tick for tick, at in times.items() if at >= since]
        received = self.shbs[name].streams[pubend.pubend].received
        return received[bisect_left(received, due[0]) :] == due if due else True

    @contextmanager
    def counting(self, about: Collection[BrokerId]) -> Iterator[Traffic]:
        """Counts what these brokers send and receive, and what they look up."""
        before, self._about = self._about, about
        self._traffic = Traffic()
        look_up, traffic = InterestByDirection.matches, self._traffic

        def counted(table: InterestByDirection, name: str, pubend: PubendId, events: EventBatch) -> int:
            traffic.matches[self._at] += len(events)
            return look_up(table, name, pubend, events)

        try:
            with patch.object(InterestByDirection, "matches", counted):
                yield traffic
        finally:
            self._about = before

    def _observe(self, broker: BrokerId, _now: int, _direction: str, fact: object) -> None:
        self._at = broker
        if type(fact) is Want:
            self.wants += 1
        elif type(fact) is FrameArrived and (self._about or self._booted):
            host = self.host(broker)
            link = host.links.get(fact.link)
            if link is not None:
                source = link.peer(host).name
                if source in self._booted or source in self._about or broker in self._about:
                    self._see(source, broker, decode(fact.frame).message)

    def _see(self, source: BrokerId, target: BrokerId, message: Message) -> None:
        if source in self._booted and isinstance(message, Private) and message.kind == ring.STATUS:
            status = msgspec.msgpack.decode(message.data, type=ring.Status)
            if status.ready:
                self.recovered[source] = self.now - self.plan.latency - self._booted.pop(source)
        if source in self._about or target in self._about:
            self._count(source, target, message)

    def _count(self, source: BrokerId, target: BrokerId, message: Message) -> None:
        if isinstance(message, NamedKnowledge):
            message = message.knowledge
        kind = "other"
        if isinstance(message, Knowledge):
            kind = "events" if message.data else "silence"
            self._traffic.events[source, target] += len(message.data)
        elif isinstance(message, InterestPart):
            kind = "interest"
        elif isinstance(message, Private):
            kind = KINDS.get(message.kind, "other")
        self._traffic.frames[Said(source, target, kind)] += 1


def chain_of_three(fan_out: int, brokers: int) -> list[Link]:
    """b1 – b2 – b3, each with so many neighbours in all; what is left of the brokers hangs on these, evenly.

    A name says where a broker is: `b1.3.0` is the first that hangs on the fourth one of b1.
    """
    links = [("b1", "b2"), ("b2", "b3")]
    hung = [
        f"{hub}.{number}" for hub, of_chain in (("b1", 1), ("b2", 2), ("b3", 1)) for number in range(fan_out - of_chain)
    ]
    links += [(name.partition(".")[0], name) for name in hung]
    left = brokers - 3 - len(hung)
    links += [(hung[number % len(hung)], f"{hung[number % len(hung)]}.{number // len(hung)}") for number in range(left)]
    return links


def star_of_chains(chains: int, length: int) -> list[Link]:
    """The broker r, and so many chains of so many brokers that begin at it: `3.2` is 2 hops away."""
    return [
        (f"{chain}.{hop - 1}" if hop > 1 else "r", f"{chain}.{hop}")
        for chain in range(chains)
        for hop in range(1, length + 1)
    ]


def subscriptions(count: int, names: Sequence[BrokerId]) -> dict[BrokerId, list[Filter]]:
    """So many, of which each wants events with another n, evenly over these brokers."""
    return {
        name: [Filter((TOPIC,), f"n = {number}") for number in range(place, count, len(names))]
        for place, name in enumerate(names)
    }


def warm_up(sizes: Sizes) -> int:
    """Seconds after which everybody knows everybody."""
    return sizes.count(12, 7)


def rim_of(links: Sequence[Link]) -> list[BrokerId]:
    """The brokers with one neighbour, in the order of the links."""
    counts = Counter(name for link in links for name in link)
    return [name for name, count in counts.items() if count == 1]


@contextmanager
def unready_after(seconds: float) -> Iterator[None]:
    """Brokers that have said nothing for so long count as unready, and not after 3 s."""
    with patch.object(ring, "STATUS_LASTS", round(seconds * SECOND)):
        yield
