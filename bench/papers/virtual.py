"""A network in virtual time for an experiment: publishers at a steady rate, and subscribers of whom all is kept.

Nodes, links, clients and disks are the simulator's, the cores those of production, and all oracles look on: a run in
which a promise breaks is no experiment, and raises. Nothing is drawn: a link takes as long as it is told to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.client import Delivery, Gap
from gapless.core.network.facts import Want
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, wall_at
from gapless.core.wire.messages import Order
from gapless_phb.core.assignment import assign
from gapless_phb.core.settings import PubendSettings
from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.pubend_logs import LOG
from gapless_sim.recording.trace import Trace
from gapless_sim.search.run import come_right, undisturbed, watched
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MICROSECOND, SECOND, NetworkFaults, Options
from gapless_sim.world.options import MILLISECOND as NANOS_PER_MS
from gapless_sim.world.producer import Outbox, Producer, Publication, key_of
from gapless_sim.world.routers import networks_of
from gapless_sim.world.topology import DRAWN_FOR, MESH
from gapless_sim.world.world_builder import build

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.network.facts import Progress
    from gapless.core.network.frames import Address, Message
    from gapless.core.stream.intervals import Ranges
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.recording.frame_tap import Hop
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.choices import ChoiceSequences
    from gapless_sim.world.world import World

TOPIC = "papers"
PADDING = 242
"""Bytes of an event's body behind its key: with it 250, as in the papers."""
CAUGHT_UP_MS = 500
"""Who knows all that is older has caught up."""
WINDOW = 1000
"""So many events a subscriber takes in advance."""


class BrokenPromiseError(Exception):
    """An oracle found the promise broken in the middle of an experiment."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the network is, and what its links do."""

    cells: str
    """As `gapless_sim.world.topology` writes them."""
    link: int = 2_000 * MICROSECOND
    """Nanoseconds that something is on its way, on each link."""
    pubends: int = 1
    loss: float = 0.0
    jitter: int = 0
    """The mean of what is added to `link`, so that frames overtake each other; then `seed` decides."""
    max_retain_seconds: float | None = None
    group_silence_ms: int = 0
    """With it all pubends are one group in total order, and say their silence so soon."""
    seed: int = 1
    router: str = "knowledge"
    hostility: tuple[tuple[str, float], ...] = ()
    """What a hostile router does wrong, and how often; then `seed` decides."""
    judged: bool = True
    """Whether the oracles look on; without them, who runs it counts what was lost."""


class Publisher:
    """Publishes one event after another, so many a second, from when it starts."""

    def __init__(self, stage: Stage, name: str, at: str, rate: float, values: int) -> None:
        """`values`: the property `w` of its events goes round through so many."""
        self.outbox = Outbox(name, TOPIC)
        self.published: list[Publication] = []
        self._stage = stage
        self._pause = round(SECOND / rate)
        self._values = values
        self._producer: Producer | None = None
        self._running = False
        self._serial = 0
        stage.client(name, at, self._open)

    def start(self, number: int = 0, of: int = 1) -> None:
        """Begins to publish, as that one of so many."""
        self._running = True
        self._serial += number
        self._stage.later(number * self._pause / of / SECOND, self._step)

    def stop(self) -> None:
        """Publishes nothing from now on."""
        self._running = False

    def _open(self, client: SimClient) -> None:
        self._producer = Producer(client, self.outbox)

    def _step(self) -> None:
        if not self._running:
            return
        producer, stage = self._producer, self._stage
        assert producer is not None
        self._serial += 1
        publication = Publication(stage.new_key(), TOPIC, {"w": self._serial % self._values}, PADDING)
        stage.publications[publication.key] = publication
        self.outbox.publications.append(publication)
        self.published.append(publication)
        producer.publish(len(self.outbox.publications))  # with what has waited for the publisher to be open
        stage.world.after(self._pause, producer.client.name, "feed", self._step, life=producer.life)


@dataclass(slots=True, eq=False)
class Handed:
    """When an event was published, and when it was handed out."""

    published: int
    handed: int
    key: int
    """Of its publication."""

    @property
    def latency(self) -> int:
        """In nanoseconds."""
        return self.handed - self.published


class Subscriber:
    """A durable subscription, alone on a connection, and all that it was handed."""

    def __init__(
        self, stage: Stage, name: str, at: str, value: int | None, pace: int, window: int, order: Order
    ) -> None:
        """It wants events with `w` = `value` (None: all), and takes one per `pace` nanoseconds (0: at once).

        `window`: so many it is sent in advance.
        """
        selector = "" if value is None else f"w = {value}"
        number = len(stage.subscribers) + 1
        self.row = Row(number, name, "s", (TOPIC,), selector, _matches(value), order=order)
        self.handed: list[Handed] = []
        self.gaps: list[Gap] = []
        self.consumer: Consumer | None = None
        self._stage = stage
        self._pace = pace
        self._window = window
        self._client = stage.client(name, at, lambda _: self.attach())

    @property
    def attached(self) -> bool:
        """Whether it has its subscription."""
        return self.consumer is not None and self.consumer.attached

    def start(self) -> None:
        """Its process starts, and subscribes: for one that is made while others publish already."""
        self._client.start()

    def attach(self) -> None:
        """Subscribes, or goes on where it has committed."""
        portion = 1 if self._pace else None
        wanted = self.row.wanted(window_events=self._window)
        self.consumer = Consumer(self._client, self.row, wanted, pace=self._pace, portion=portion)

    def leave(self) -> None:
        """Disconnects; the subscription stays."""
        assert self.consumer is not None
        self.consumer.leave()
        self.consumer = None

    def caught_up_at(self, back: int, until: int, late: float) -> int:
        """When it was handed the last event, from `back` until then, that was older than `late` nanoseconds."""
        behind = (each.handed for each in self.handed if back <= each.handed < until and each.latency > late)
        return max(behind, default=back)

    def latencies(self, since: int, until: int) -> list[int]:
        """Of the events that were published in [since, until), in nanoseconds."""
        return [each.latency for each in self.handed if since <= each.published < until]


@dataclass(slots=True)
class Moves:
    """How far an SHB was with a pubend, each time that it said so."""

    at: list[int] = field(default_factory=list)
    delivered: list[Tick] = field(default_factory=list)
    released: list[Tick] = field(default_factory=list)

    def advance(self, which: str, begin: int, end: int) -> float:
        """By how many milliseconds of ticks `which` rose between two times."""
        values: list[Tick] = getattr(self, which)
        first, last = (max(0, bisect_right(self.at, at) - 1) for at in (begin, end))
        return (values[last] - values[first]) / MILLISECOND

    def slope(self, since: int) -> float:
        """How many times faster than time latestDelivered rises from then on, until it is at most so old."""
        start = self.delivered[bisect_right(self.at, since) - 1]
        for at, tick in zip(self.at, self.delivered, strict=True):
            old = WALL_BEGIN + at / NANOS_PER_MS - wall_at(tick)
            if at > since and old < CAUGHT_UP_MS:
                return (tick - start) / MILLISECOND / ((at - since) / NANOS_PER_MS)
        return 0.0

    def rates(self, which: str, begin: int, end: int) -> list[float]:
        """Of each second between two times: by how many milliseconds of ticks `which` rose per second."""
        return [self.advance(which, *pair) for pair in pairwise(range(begin, end + 1, SECOND))]


class Said(NamedTuple):
    """What a node sent to another one, as far as it is events or a question for them."""

    at: int
    source: str
    target: str
    pubend: PubendId
    events: int
    """So many events, pushed or answered; 0 of a question."""
    asked: Ranges
    """The ranges of a question."""
    reply: bool


class _Hops:
    """Keeps what nodes say to each other."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def frame_sent(self, hop: Hop, message: Message, address: Address, size: int) -> None:
        said, now = self._stage.said, self._stage.now
        if isinstance(message, Knowledge) and len(message.data):
            said.append(Said(now, hop.source, hop.target, message.pubend, len(message.data), (), message.reply))
        elif isinstance(message, Want):
            said.append(Said(now, hop.source, hop.target, message.pubend, 0, message.ranges, reply=False))

    def frame_arrived(self, hop: Hop, message: Message, address: Address) -> None:
        """Of no interest."""


class _Watch(Oracle):
    """Keeps what is handed out, and what SHBs report."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.world)
        self._stage = stage

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        subscriber = self._stage.subscriber_of.get(consumer.client.name)
        if subscriber is None:
            return
        if isinstance(item, Gap):
            subscriber.gaps.append(item)
        elif isinstance(item, Delivery):
            now, publications = self.world.now, self._stage.publications
            for event in item.events():
                key = key_of(event.body)
                subscriber.handed.append(Handed(publications[key].published_at, now, key))

    def progressed(self, broker: str, progress: Progress) -> None:
        moves = self._stage.moves.setdefault((broker, progress.pubend), Moves())
        moves.at.append(self.world.now)
        moves.delivered.append(progress.delivered)
        moves.released.append(progress.released)


class Stage:
    """The network, who publishes and who subscribes, and what came of it."""

    def __init__(self, setup: Setup) -> None:
        options = Options(
            setup.seed,
            router=setup.router,
            topology=DRAWN_FOR.get(networks_of(setup.router), MESH),
            cells=setup.cells,
            together=False,
            clients=0,
            pubends=setup.pubends,
            max_retain_seconds=setup.max_retain_seconds,
            ordered=float(setup.group_silence_ms > 0),
            group_silence_ms=setup.group_silence_ms or 200,
            network=NetworkFaults(least=setup.link, delay=setup.jitter, loss=setup.loss, bytewise=0.0),
            hostility=setup.hostility,
        )
        drawn: ChoiceSequences | None = None if setup.loss or setup.jitter or setup.hostility else {}
        self.world: World = build(options, Choices(setup.seed, drawn), Trace())
        self.subscribers: list[Subscriber] = []
        self.subscriber_of: dict[str, Subscriber] = {}
        """By the name of its client."""
        self.publishers: list[Publisher] = []
        self.publications: dict[int, Publication] = {}
        self.moves: dict[tuple[str, PubendId], Moves] = {}
        self.said: list[Said] = []
        self.began = 0
        """When publishing began."""
        self._key = 0

    # Before it begins.

    def publisher(self, name: str, at: str, rate: float, *, values: int = 1) -> Publisher:
        """A publisher at a node."""
        publisher = Publisher(self, name, at, rate, values)
        self.publishers.append(publisher)
        return publisher

    def subscriber(
        self,
        name: str,
        at: str,
        *,
        value: int | None = None,
        pace: int = 0,
        window: int = WINDOW,
        order: Order = Order.PUBEND,
    ) -> Subscriber:
        """A subscriber at a node."""
        subscriber = Subscriber(self, name, at, value, pace, window, order)
        self.subscribers.append(subscriber)
        self.subscriber_of[name] = subscriber
        return subscriber

    def client(self, name: str, at: str, on_start: Callable[[SimClient], None]) -> SimClient:
        """A process with one connection."""
        client = self.world.clients[name] = SimClient(self.world, name, [at])
        client.on_start = on_start
        return client

    def new_key(self) -> int:
        """A key that no other publication has."""
        self._key += 1
        return self._key

    # While it runs.

    @property
    def now(self) -> int:
        """Nanoseconds since the beginning."""
        return self.world.now

    def wait(self, seconds: float) -> None:
        """Lets time pass."""
        self.world.run_until(self.world.now + round(seconds * SECOND))

    def wait_until(self, done: Callable[[], bool], *, most: float, step: float = 0.05) -> None:
        """Lets time pass until something is so. Raises TimeoutError after `most` seconds."""
        end = self.world.now + round(most * SECOND)
        while not done():
            if self.world.now >= end:
                raise TimeoutError(f"it did not come about in {most:g} s of virtual time")
            self.wait(step)

    def start_publishing(self) -> None:
        """All publishers begin, one shortly after the other, and no two with the same value."""
        self.began = self.now
        for number, publisher in enumerate(self.publishers):
            publisher.start(number, len(self.publishers))

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Calls after a while, whatever else goes on."""
        self.world.after(round(seconds * SECOND), "world", "experiment", call)

    def broker(self, name: str) -> SimBroker:
        """A node."""
        return self.world.brokers[name]

    def moves_of(self, pubend: str, shb: str = "shb1") -> Moves:
        """How far an SHB was with the pubend of that name."""
        return next(moves for (at, full), moves in self.moves.items() if at == shb and full.startswith(f"{pubend}@"))

    def events_said(self, source: str, begin: int, end: int) -> int:
        """How many events a node sent to others in [begin, end), pushed and answered."""
        return sum(each.events for each in self.said if each.source == source and begin <= each.at < end)

    def log_bytes(self, phb: str) -> int:
        """What the logs of all pubends of a node hold."""
        driver = self.broker(phb).disk_driver
        assert driver is not None
        pubends = {pubend for _, pubend in self.moves if pubend.startswith(phb)}
        return sum(len(record) for pubend in pubends for _, record in driver.records(LOG + pubend, 0))

    def crash(self, name: str) -> None:
        """A node loses its power, and stays down until `boot`."""
        broker = self.broker(name)
        broker.given_up = True
        broker.crash()

    def boot(self, name: str) -> None:
        """A node that was down starts."""
        broker = self.broker(name)
        broker.given_up = False
        broker.boot()

    def cut(self, one: str, other: str) -> None:
        """Nothing gets through between two nodes any more, and nobody is told."""
        self.world.network.cut(one, other)
        self.world.network.cut(other, one)

    def heal(self, one: str, other: str) -> None:
        """The way is free again."""
        self.world.network.heal(one, other)
        self.world.network.heal(other, one)

    def break_link(self, one: str, other: str) -> None:
        """Nothing gets through between two nodes any more, and both are told at once."""
        self.cut(one, other)
        self.world.network.break_link((min(one, other), max(one, other)))


@undisturbed()
def play(setup: Setup, prepare: Callable[[Stage], None], act: Callable[[Stage], None]) -> Stage:
    """Makes a network, lets everybody start and subscribe, and does what the experiment does.

    Then it must come right. Raises BrokenPromiseError where an oracle found something.
    """
    stage = Stage(setup)
    prepare(stage)

    def run(world: World) -> None:
        world.observe.add(_Watch(stage))
        assert world.network.frames is not None
        world.network.frames.watchers.append(_Hops(stage))
        for broker in world.brokers.values():
            broker.boot()
        stage.wait(1)
        for client in world.clients.values():
            client.start()
        stage.wait_until(lambda: all(each.attached for each in stage.subscribers), most=60)
        stage.wait(2)
        act(stage)
        for publisher in stage.publishers:
            publisher.stop()
        come_right(world)

    if setup.judged:
        failure = watched(stage.world, run)
        if failure is not None:
            raise BrokenPromiseError(str(failure))
    else:
        run(stage.world)
    return stage


def _matches(value: int | None) -> Callable[[Logged], bool]:
    return lambda logged: value is None or logged.publication.properties["w"] == value


def names_on_each(pubends: int, phb: str) -> list[str]:
    """Names of publishers, of which each of so many pubends of a PHB gets one."""
    settings = PubendSettings(phb, count=pubends)
    names: dict[str, str] = {}
    for number in count():
        name = f"p{number}"
        names.setdefault(assign([settings], name, TOPIC) or "", name)
        if len(names) == pubends:
            break
    return [names[pubend] for pubend in settings.names]
