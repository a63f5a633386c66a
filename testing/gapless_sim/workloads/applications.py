"""The frame of workloads whose clients are each one application: a database, an outbox, and some subscriptions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from gapless.core.wire.messages import StartAt
from gapless.errors import (
    ConnectionClosedError,
    PublishRejectedError,
    PublishUncertainError,
    SubscriptionInUseError,
    SubscriptionTakenOverError,
)
from gapless_sim.recording.observation import Oracle
from gapless_sim.workloads.publications import TOPICS, PublicationGenerator
from gapless_sim.world.options import SECOND
from gapless_sim.world.producer import Outbox, Producer

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Consumer, Row
    from gapless_sim.world.world import World

PUBLISHED_AT_ONCE = 4

ApplicationT = TypeVar("ApplicationT", bound="Application")


class Application:
    """One client's database: an outbox, and its subscriptions."""

    outbox: Outbox

    def __init__(self, workload: Applications[ApplicationT], client: SimClient) -> None:
        self.world = workload.world
        self.draws = workload.draws
        self.publications = workload.publications
        self.client = client
        self.rows: list[Row] = []
        self.producer: Producer | None = None
        self.properties: Mapping[str, Any] = {}
        """What each of its events says beside what is drawn."""
        self._name = workload.name

    @property
    def clients(self) -> list[SimClient]:
        """All its processes, whether they run or not."""
        return [self.client]

    @abstractmethod
    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has."""

    def publish(self) -> None:
        """A few publications more."""
        producer = self.producer
        more = self.draws.between(1, PUBLISHED_AT_ONCE)
        written = [self.publications.write_to(self.outbox.topic) for _ in range(more)]
        if self.properties:
            written = [each.with_properties(self.properties) for each in written]
        self.outbox.publications += written
        if producer is not None and producer.alive and producer.waiting < 40:
            producer.publish(8)
            self.world.sometimes(f"{self._name}.published")

    def finish(self) -> None:
        """What was not handed to the publisher yet is."""
        if self.producer is not None and self.producer.alive:
            self.producer.publish(100)


class ConsumingApplication(Application):
    """One with a process at a time, and a consumer for each subscription in it, which goes on in the next one."""

    def __init__(self, workload: Applications[ApplicationT], client: SimClient, number: int) -> None:
        super().__init__(workload, client)
        self.consumers: dict[int, Consumer] = {}
        """The consumers in this process, by the number of their row."""
        self.outbox = Outbox(f"out-{number}", self.draws.pick(TOPICS))

    @abstractmethod
    def consume(self, row: Row) -> None:
        """Consumes a subscription."""

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has, or where the broker says."""
        self.consumers.clear()
        self.producer = Producer(client, self.outbox)
        self.producer.on_over = self._on_producer_over
        for row in self.rows:
            self.consume(row)

    def keep(self, row: Row) -> None:
        """It has one more subscription."""
        self.rows.append(row)
        if self.client.running:
            self.consume(row)

    def going_on(self, consumer: Consumer) -> Consumer:
        """From now on a consumer is the one of its row in this process."""
        consumer.on_over = self._on_over
        self.consumers[consumer.row.number] = consumer
        return consumer

    def able(self) -> list[Consumer]:
        """The consumers that have their subscription."""
        running = self.client.running
        return [each for each in self.consumers.values() if running and each.attached and not each.over]

    def finish(self) -> None:
        """Everything is published and consumed."""
        if not self.client.running:
            self.client.start()
            return
        super().finish()
        for consumer in self.consumers.values():
            self.bring_to_an_end(consumer)

    @abstractmethod
    def bring_to_an_end(self, consumer: Consumer) -> None:
        """No faults come any more: a consumer takes all there is, and says so."""

    def _on_over(self, consumer: Consumer, error: GaplessError) -> None:
        """Another consumer has it, in this process or in one that the broker does not know to be over."""
        if isinstance(error, ConnectionClosedError) or self.consumers.get(consumer.row.number) is not consumer:
            return  # the process ends, or goes on with another one
        if not isinstance(error, SubscriptionInUseError | SubscriptionTakenOverError):
            raise error
        row = consumer.row
        self.world.after(SECOND, self.client.name, "consume", self._again, row, life=self.client.life)

    def _again(self, row: Row) -> None:
        if not row.ended:
            self.consume(row)

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError | PublishRejectedError):
            raise error


class Applications(Oracle, Generic[ApplicationT]):
    """The applications of one world. As an oracle it says when all is published."""

    name: ClassVar[str]
    """The workload's; its draws come from streams of this name, so no other run depends on them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.draws = world.choices.stream(f"workload/{self.name}")
        headers = world.choices.stream(f"workload/{self.name}/headers")
        self.publications = PublicationGenerator(self.draws, headers, partial(world.number, "publication"))
        self.in_liveness = False
        clients = world.clients_of[self.name]
        self.applications = [self._application(client, world.number("application") - 1) for client in clients]
        world.observe.add(self)

    def row_number(self) -> int:
        """A number that no row had before."""
        return self.world.number("row")

    def has(self, client: SimClient) -> bool:
        """Whether a process is of one of these applications: others may live in this world, too."""
        return any(client in application.clients for application in self.applications)

    def begin(self) -> None:
        """The processes start, some before there is a broker; subscriptions are added as time goes by."""
        for application in self.applications:
            client = application.client
            client.on_start = application.start
            self.world.after(self.draws.draw(2 * SECOND), client.name, "start", client.start)
        for at in range(self.world.options.subscriptions):
            self.world.after(self.draws.draw(1 + at * SECOND), "world", "subscribe", self._subscribe)
        self._plan()

    def begin_liveness(self) -> None:
        """Everything is consumed, and acknowledged."""
        self.in_liveness = True
        self._finish()

    def settled(self) -> bool:
        """Whether every publication was handed to a publisher."""
        return all(
            application.outbox.handed >= len(application.outbox.publications)
            for application in self.applications
            if application.producer is not None and application.producer.open and not application.producer.over
        )

    def unsettled(self) -> str:
        """Who has publications left."""
        return "some publications were never handed to a publisher"

    @abstractmethod
    def _application(self, client: SimClient, number: int) -> ApplicationT:
        """Makes the application of a client."""

    @abstractmethod
    def _add(self, start: StartAt) -> None:
        """Some application has one more subscription."""

    @abstractmethod
    def _act(self, application: ApplicationT) -> None:
        """An application does one thing, whatever is drawn."""

    def _finish(self) -> None:
        for application in self.applications:
            application.finish()
        self.world.after(SECOND, "world", "finish", self._finish)

    def _subscribe(self) -> None:
        if not self.in_liveness:
            self._add(self.draws.pick((StartAt.LATEST, StartAt.EARLIEST)))

    def _plan(self) -> None:
        mean = int(SECOND / self.world.options.rate)
        self.world.after(self.draws.delay(mean // 4, mean // 2), "world", "operation", self._operate)

    def _operate(self) -> None:
        if self.in_liveness:
            return
        application = self.draws.pick(self.applications)
        self._act(application)
        if application.client.running:
            application.client.schedule_pump()
        self._plan()
