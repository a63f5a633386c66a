"""The model of Kafka in a world: connections to it that are slow and break, and all that goes wrong at Kafka's side.

A node's log plugin is the one of production (`gapless_log.kafka`), in a `VirtualLoop`. Only what connects is another:
a `ModelConnection` carries the same requests to a broker of the model. As with TCP, a connection answers in order, and
when it breaks nobody knows what became of the requests on their way: they may still arrive, even much later.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from gapless.core.ports import LogAnswer, LogQuestion, OpenLogs
from gapless.plugins import hookimpl
from gapless.spi import LogPlugin, Logs
from gapless_log.kafka.logs import KafkaLogs
from gapless_log.kafka.messages import Code, DeleteRecords, Fetch, FetchAnswer, MetadataRequest, Produce
from gapless_log.kafka.messages import Request as KafkaRequest
from gapless_log.kafka.options import section_from
from gapless_log.kafka.records import Compression, NewRecord, batches, encode, records
from gapless_log.kafka.requests import Connection
from gapless_sim.world.kafka_model import Broker, Cluster, Partition, Topic
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.virtual_loop import VirtualLoop

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.world import Life, World

_LOGGER = logging.getLogger("gapless.log.kafka")
LANE = "kafka"
TOPIC = "kafka"
"""The topic of every world that has a Kafka."""
SERVERS = 3
LATENCY = 200_000
"""Nanoseconds from one side to the other, at least."""
PRODUCES_BROKEN = 0.15
"""So often the connection of a produce breaks."""
PRODUCE_FATES = ("is lost", "arrives unanswered", "is late", "comes twice")
LATE_MOST = 6 * SECOND
"""So much later a produce may arrive whose connection broke."""


@dataclass(slots=True, eq=False)
class _Asked:
    """A request on its way, and who waits for its answer."""

    request: Any
    future: asyncio.Future[Any]
    waits_until: int = -1
    """Till when a fetch waits for records; -1: it has not arrived."""
    is_lost: bool = False
    """Whether it never arrives."""


class ModelConnection(Connection):
    """A connection of a node to a broker of the model."""

    def __init__(self, network: SimKafka, node: str, loop: VirtualLoop, broker: Broker, address: str) -> None:
        super().__init__(None, address)
        self.network = network
        self.node = node
        self.broker = broker
        self.number = network.next_number()
        self.loop = loop
        self._is_open = True
        self.queue: deque[_Asked] = deque()
        """What has arrived, in order."""
        self.sent: dict[int, _Asked] = {}
        """Everything that is not answered, by number."""
        self.arrives_at = 0
        self.answers_at = 0
        self._number = 0

    @property
    def is_open(self) -> bool:
        """Whether it can be used."""
        return self._is_open

    async def close(self) -> None:
        """Ends it."""
        self.end("it was closed")

    def vanish(self) -> None:
        """The process at this end is gone, and nobody waits for an answer any more."""
        self._is_open = False
        self.network.connections.pop(self.number, None)
        self.sent.clear()

    def end(self, why: str) -> None:
        """It is over; whoever waits for an answer gets a ConnectionError."""
        self._is_open = False
        self.network.connections.pop(self.number, None)
        sent, self.sent = self.sent, {}
        for asked in sent.values():
            self.answer(asked, ConnectionError(f"the connection to {self.address} broke: {why}"))

    async def ask(self, request: KafkaRequest[Any]) -> Any:
        """Sends a request; returns its answer."""
        if not self._is_open:
            raise ConnectionError(f"the connection to {self.address} is closed")
        self._number += 1
        asked = self.sent[self._number] = _Asked(request, self.loop.create_future())
        self.network.send(self, self._number, asked)
        return await asked.future

    def answer(self, asked: _Asked, answer: Any) -> None:
        """Wakes who waits."""

        def wake() -> None:
            if asked.future.done():
                return
            if isinstance(answer, BaseException):
                asked.future.set_exception(answer)
            else:
                asked.future.set_result(answer)

        self.loop.call_soon(wake)


@dataclass(eq=False)
class SimKafka:
    """A Kafka, as a world has it."""

    world: World
    network: str
    """The name of the gateways' network."""
    cluster: Cluster = field(default_factory=lambda: Cluster(SERVERS))
    is_calm: bool = False
    """Whether nothing goes wrong any more."""
    publishing: set[str] = field(default_factory=set)
    """The nodes that are, or were, configured to publish."""
    deleting: set[str] = field(default_factory=set)
    """Those that are configured to delete what every subscription is done with."""
    connections: dict[int, ModelConnection] = field(default_factory=dict)
    """Those that are open, by number."""
    on_changed: list[Callable[[], None]] = field(default_factory=list)
    """Called whenever a log may have changed."""
    on_quiet: list[Callable[[], None]] = field(default_factory=list)
    """Called when everybody has consumed everything, and strangers go on writing for a while."""
    on_request: list[Callable[[str, Any], None]] = field(default_factory=list)
    """Called with the node and its request whenever one arrives."""
    on_fetched: list[Callable[[str, Fetch, FetchAnswer], None]] = field(default_factory=list)
    """Called with the node and its fetch when it gets the answer."""

    def __post_init__(self) -> None:
        self._draws = self.world.choices.stream("kafka/wire")
        self._is_due = False
        self._numbers = 0
        # What parses records is imported when it is first used, and in the middle of a run nothing may be.
        for batch in batches(encode([NewRecord(0, None, b"", ())], Compression.NONE)):
            records(batch)

    # ------------------------------------------------------------------------------------ the wire

    async def connect(self, node: str, loop: VirtualLoop, address: str) -> Connection:
        """Connects a node. Raises ConnectionError if nobody listens there."""
        await asyncio.sleep(self._delay() / SECOND)
        number = int(address.partition(":")[0].rpartition("-")[2])
        broker = self.cluster.brokers[number - 1]
        if not broker.is_up:
            raise ConnectionError(f"nobody listens at {address}")
        connection = ModelConnection(self, node, loop, broker, address)
        self.connections[connection.number] = connection
        return connection

    def next_number(self) -> int:
        """A number for a connection, never used before."""
        self._numbers += 1
        return self._numbers

    def _delay(self) -> int:
        return self._draws.delay(LATENCY, 4 * LATENCY)

    def send(self, connection: ModelConnection, number: int, asked: _Asked) -> None:
        """A request is sent: it arrives behind those before it on its connection."""
        connection.arrives_at = max(connection.arrives_at, self.world.now + self._delay())
        self.world.at(connection.arrives_at, LANE, "request", self._arrive, connection, number, asked)
        if isinstance(asked.request, Produce) and not self.is_calm and self._draws.chance(PRODUCES_BROKEN):
            fate = self._draws.pick(PRODUCE_FATES)
            self.world.sometimes(f"kafka.a produce {fate}")
            self.world.after(self._draws.draw(3 * MILLISECOND), LANE, "break", connection.end, "the network")
            asked.is_lost = fate in {"is lost", "is late"}
            if fate in {"is late", "comes twice"}:
                late = self._draws.draw(LATE_MOST)
                self.world.after(late, LANE, "late", self._arrive_late, connection, asked.request)

    def _arrive(self, connection: ModelConnection, number: int, asked: _Asked) -> None:
        if asked.is_lost:
            return
        if number not in connection.sent:
            if isinstance(asked.request, Produce):  # the connection is gone; what was sent on it is not
                self._arrive_late(connection, asked.request)
            return
        connection.queue.append(asked)
        self._process(connection)

    def _arrive_late(self, connection: ModelConnection, request: Produce) -> None:
        if connection.broker.is_up:
            self._told(self.on_request, connection.node, request)
            connection.broker.ask(request, has_waited=True)
            self.changed()

    @staticmethod
    def _told(calls: Sequence[Callable[..., None]], *what: Any) -> None:
        for call in calls:
            call(*what)

    def _process(self, connection: ModelConnection) -> None:
        """Answers what has arrived on a connection, in order, as far as it can be answered."""
        now = self.world.now
        while connection.queue:
            asked = connection.queue[0]
            request = asked.request
            if asked.waits_until < 0:
                self._told(self.on_request, connection.node, request)
                wait = request.wait_ms * MILLISECOND if isinstance(request, Fetch) else 0
                asked.waits_until = now + wait
                if wait:
                    self.world.at(asked.waits_until, LANE, "waited", self._process, connection)
            answer = connection.broker.ask(request, has_waited=now >= asked.waits_until)
            if answer is None:
                return
            connection.queue.popleft()
            if isinstance(request, DeleteRecords) and answer.code is Code.NONE:
                self.world.sometimes("kafka.records deleted")
            if self._is_stale(request, answer):
                self.world.sometimes("kafka.stale metadata")
            connection.answers_at = max(connection.answers_at, now + self._delay())
            self.world.at(connection.answers_at, LANE, "answer", self._answered, connection, asked, answer)
            if isinstance(request, Produce):
                self.changed()

    def _is_stale(self, request: Any, answer: Any) -> bool:
        """Whether a broker has just denied that there is a topic, and there is one."""
        if isinstance(request, MetadataRequest):
            there = {topic.name for topic in self.cluster.topics.values()}
            return any(
                each.code is not Code.NONE and (each.name in there or each.id in self.cluster.topics)
                for each in answer.topics
            )
        return isinstance(request, Fetch) and any(
            each.code is Code.UNKNOWN_TOPIC_ID and each.topic_id in self.cluster.topics for each in answer.partitions
        )

    def _answered(self, connection: ModelConnection, asked: _Asked, answer: Any) -> None:
        for number, each in connection.sent.items():
            if each is asked:
                del connection.sent[number]
                connection.answer(asked, answer)
                if isinstance(answer, FetchAnswer):
                    self._told(self.on_fetched, connection.node, asked.request, answer)
                return

    def changed(self) -> None:
        """Something has changed: fetches that wait may be answered."""
        for call in self.on_changed:
            call()
        if not self._is_due:
            self._is_due = True
            self.world.at(self.world.now, LANE, "poll", self._poll)

    def _poll(self) -> None:
        self._is_due = False
        for connection in list(self.connections.values()):
            self._process(connection)

    # ------------------------------------------------------------------------------------ what there is

    @staticmethod
    def pubend_of(topic: Topic, partition: int) -> PubendId:
        """What gapless calls a partition."""
        return f"{topic.name}.{partition}@{base64.urlsafe_b64encode(topic.id).decode().rstrip('=')}"

    def tag_of(self, pubend: PubendId) -> int:
        """What is in the marks of a partition."""
        return int.from_bytes(blake2b(f"{self.network}/{pubend}".encode(), digest_size=8).digest(), "little")

    def partitions(self) -> Iterator[tuple[Topic, int, Partition]]:
        """All partitions that there are."""
        for topic in self.cluster.topics.values():
            for number, partition in enumerate(topic.partitions):
                yield topic, number, partition

    def serves(self, client: SimClient) -> bool:
        """Whether a client reaches its node, and that a gateway: something may be left broken for good."""
        gateways = [name for name, broker in self.world.brokers.items() if "phb" in broker.roles]
        pairs = [(client.name, each) for each in client.addresses]
        if len(gateways) == 1:
            pairs += [(each, gateways[0]) for each in client.addresses if each not in gateways]
        is_cut = self.world.network.is_cut
        return not any(is_cut(one, other) or is_cut(other, one) for one, other in pairs)

    # ------------------------------------------------------------------------------------ what goes wrong

    def kill(self, broker: Broker) -> None:
        """A broker is gone, with its connections; others lead its partitions."""
        self.cluster.fail(broker)
        for connection in [each for each in self.connections.values() if each.broker is broker]:
            connection.end("the broker is gone")
        self.spread()
        self.changed()

    def start(self, broker: Broker) -> None:
        """A broker is there again, and learns anew what there is."""
        broker.is_up = True
        broker.topics = ()
        for _, _, partition in self.partitions():
            if not self.cluster.brokers[partition.leader - 1].is_up:
                self.cluster.elect(partition, is_clean=True)
        self.spread()
        self.changed()

    def restart(self, broker: Broker) -> None:
        """A broker starts anew, so fast that it leads what it led; and it has heard of no topic yet."""
        for connection in [each for each in self.connections.values() if each.broker is broker]:
            connection.end("the broker starts anew")
        broker.topics = ()
        for _, _, partition in self.partitions():
            if partition.leader == broker.id:
                partition.elect(broker.id, is_clean=True)
        self.spread()
        self.changed()

    def elect(self, partition: Partition, *, is_clean: bool) -> None:
        """A partition has another leader."""
        self.cluster.elect(partition, is_clean=is_clean)
        self.spread()
        self.changed()

    def spread(self) -> None:
        """Each broker learns of topics and leaders in its own time."""
        for broker in self.cluster.brokers:
            delay = 0 if self.is_calm else self._draws.draw(SECOND)
            self.world.after(delay, LANE, "metadata", self._learn, broker)

    def _learn(self, broker: Broker) -> None:
        broker.learn()
        self.changed()

    def break_connections(self) -> None:
        """Every connection breaks."""
        for connection in list(self.connections.values()):
            connection.end("the network")

    def begin_quiet(self) -> None:
        """Everybody has consumed everything; strangers go on writing for a while."""
        for call in self.on_quiet:
            call()

    def calm(self) -> None:
        """From now on nothing goes wrong, and what was wrong is right."""
        self.is_calm = True
        for broker in self.cluster.brokers:
            if not broker.is_up:
                self.start(broker)
        for _, _, partition in self.partitions():
            partition.copy()
            for producer in list(partition.open):
                partition.end_transaction(producer, commits=False)
        for topic in self.cluster.topics.values():
            topic.settings["cleanup.policy"] = "delete"
        self.spread()
        self.changed()


class CheckedOptions(LogPlugin):
    """What a node's configuration is checked by; what opens logs in a world is its own `SimLogs`."""

    topics = (TOPIC,)

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        """Is never called."""
        raise AssertionError("a world opens its logs itself")


@hookimpl
def open_log(options: Mapping[str, Any]) -> LogPlugin:
    """Checks the options."""
    section_from(options)
    return CheckedOptions()


class SimLogs:
    """The log plugins of one life of a node."""

    def __init__(self, broker: SimBroker, kafka: SimKafka, life: Life) -> None:
        self._broker = broker
        self._kafka = kafka
        self._life = life
        world = broker.world
        self._loop = VirtualLoop(lambda: world.now, self._wake_at)
        self._opened: list[KafkaLogs] = []
        self._keepers: dict[tuple[int, str], KafkaLogs] = {}

    def _wake_at(self, when: int) -> None:
        self._broker.world.at(when, self._broker.name, "plugin", self._run, life=self._life)

    def _run(self) -> None:
        # It would look at the clock.
        _LOGGER.disabled = True
        try:
            self._broker.awake(self._loop.run)
        finally:
            _LOGGER.disabled = False

    def ask(self, source: int, question: LogQuestion) -> None:
        """Takes a question of the role at this position."""
        if isinstance(question, OpenLogs):
            self._loop.call_soon(self._open, source, question)
        else:
            logs = self._keepers[source, question.log]
            self._loop.call_soon(logs.ask, question)

    def _open(self, source: int, question: OpenLogs) -> None:
        def connect(address: str) -> Any:
            return self._kafka.connect(self._broker.name, self._loop, address)

        def answer(said: LogAnswer) -> None:
            for each in getattr(said, "logs", ()):
                self._keepers[source, each.log] = logs
            if not self._life.over and self._broker.machine is not None:
                self._broker.machine.on_log_answer(source, said)

        section = section_from(question.options)
        logs = KafkaLogs(section, question.known, connect, answer, lambda: self._broker.clock()[1])
        self._opened.append(logs)

    def over(self) -> None:
        """The process is gone: its connections are, but not what was sent on them."""
        for connection in [each for each in self._kafka.connections.values() if each.loop is self._loop]:
            connection.vanish()
        self._loop.end()
