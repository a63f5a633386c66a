"""The workload `roaming`: applications with durable subscriptions that consume at any SHB, move, and publish.

It is run when it is asked for by its name, under a router for networks of cells, and draws from a stream of its own.
Each client has one process at a time. Its database holds effects and token, so what it consumed must be exact wherever
it consumed it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, Order, StartAt
from gapless.errors import (
    ConnectionClosedError,
    PublishRejectedError,
    PublishUncertainError,
    SubscriptionInUseError,
    SubscriptionTakenOverError,
)
from gapless_shb.core.roaming.places import home_of
from gapless_sim.consumer import Consumer, Row
from gapless_sim.observation import Oracle, Violation
from gapless_sim.options import SECOND
from gapless_sim.producer import Outbox, Producer
from gapless_sim.workloads.filters import Terms, draw_terms
from gapless_sim.workloads.publications import TOPICS, PublicationGenerator

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.errors import GaplessError
    from gapless_sim.application import SimClient
    from gapless_sim.world import World

SOMETIMES = (
    "roaming.published",
    "roaming.published at the pubend's host",
    "roaming.moved",
    "roaming.process crashed",
    "roaming.consumed at home",
    "roaming.consumed elsewhere",
    "roaming.consumed while the home was down",
    "roaming.taken over",
    "roaming.in total order",
)

PUBLISHED_AT_ONCE = 4
EVERYTHING = Terms(("#",), "", lambda _: True)
"""Many subscribe to it: what matches little moves little."""


class Application:
    """One client's database: an outbox, and its subscriptions."""

    def __init__(self, all_of_them: RoamingApplications, client: SimClient, number: int) -> None:
        self.all = all_of_them
        self.client = client
        self.rows: list[Row] = []
        self.consumers: dict[int, Consumer] = {}
        """The consumers in this process, by the number of their row."""
        self.producer: Producer | None = None
        self.outbox = Outbox(f"out-{number}", all_of_them.draws.pick(TOPICS))

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has."""
        self.consumers.clear()
        self.producer = Producer(client, self.outbox)
        self.producer.on_over = self._on_producer_over
        for row in self.rows:
            self.consume(row)

    def add(self, terms: Terms, start: StartAt, *, keeps_token: bool) -> None:
        """One more subscription."""
        number = self.all.row_number()
        row = Row(number, self.client.name, f"s{number}", terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = keeps_token
        share = self.all.world.options.ordered
        if share and self.all.draws.chance(share):
            row.order = Order.TOTAL
            self.all.world.sometimes("roaming.in total order")
        self.rows.append(row)
        if self.client.running:
            self.consume(row)

    def consume(self, row: Row) -> None:
        """Consumes a subscription, wherever the client is."""
        in_use = self.all.draws.pick((InUse.TAKEOVER, InUse.TAKEOVER, InUse.WAIT, InUse.ERROR))
        consumer = Consumer(self.client, row, row.wanted(in_use=in_use))
        consumer.on_over = self._on_over
        self.consumers[row.number] = consumer

    def publish(self) -> None:
        """A few publications more."""
        draws, producer = self.all.draws, self.producer
        more = draws.between(1, PUBLISHED_AT_ONCE)
        self.outbox.publications += [self.all.publications.write_to(self.outbox.topic) for _ in range(more)]
        if producer is not None and producer.alive and producer.waiting < 40:
            producer.publish(8)
            self.all.world.sometimes("roaming.published")
            if self.client.running and producer.number not in self.client.core.publishers:
                self.all.world.sometimes("roaming.published at the pubend's host")

    def move(self) -> None:
        """The process ends, in order or not, and another one comes up, which tries the SHBs in another order."""
        draws, client = self.all.draws, self.client
        if draws.chance(0.5):
            client.crash()
            self.all.world.sometimes("roaming.process crashed")
        else:
            client.close()
        turn = draws.draw(len(client.addresses))
        client.addresses = [*client.addresses[turn:], *client.addresses[:turn]]
        self.all.world.sometimes("roaming.moved")
        self.all.world.after(draws.draw(SECOND), client.name, "start", client.start)

    def attach_again(self) -> None:
        """A consumer leaves, and another one takes its place."""
        able = [consumer for consumer in self.consumers.values() if consumer.attached and not consumer.over]
        if able and self.client.running:
            consumer = self.all.draws.pick(able)
            consumer.leave()
            self.consume(consumer.row)

    def finish(self) -> None:
        """What was not handed to the publisher yet is; whoever consumes acknowledges where it stands."""
        if not self.client.running:
            self.client.start()
            return
        if self.producer is not None and self.producer.alive:
            self.producer.publish(100)
        for consumer in self.consumers.values():
            consumer.commit()

    def _on_over(self, consumer: Consumer, error: GaplessError) -> None:
        """Another consumer has it: an earlier process, which the broker does not know to be over."""
        if isinstance(error, ConnectionClosedError):
            return  # the process ends
        if not isinstance(error, SubscriptionInUseError | SubscriptionTakenOverError):
            raise error
        if isinstance(error, SubscriptionTakenOverError):
            if self.client.boots == 1:  # a request of an earlier process may still come and take it over
                raise Violation("X1", f"{consumer.lane} was told that it was taken over, and nobody came: {error}")
            self.all.world.sometimes("roaming.taken over")
        row = consumer.row
        self.all.world.after(SECOND, self.client.name, "consume", self.consume, row, life=self.client.life)

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError | PublishRejectedError):
            raise error


class RoamingApplications(Oracle):
    """The applications of one world. As an oracle it says when all is published, and sees where what is consumed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.draws = world.choices.stream("workload/roaming")
        self.publications = PublicationGenerator(self.draws, world.choices.stream("workload/roaming/headers"))
        self.in_liveness = False
        self._rows = 0
        self.applications = [Application(self, client, number) for number, client in enumerate(world.clients.values())]
        world.observe.add(self)

    def row_number(self) -> int:
        """A number that no row had before."""
        self._rows += 1
        return self._rows

    def begin(self) -> None:
        """The processes start, some before there is a broker; subscriptions are added as time goes by."""
        for application in self.applications:
            client = application.client
            client.on_start = application.start
            self.world.after(self.draws.draw(2 * SECOND), client.name, "start", client.start)
        for at in range(self.world.options.subscriptions):
            self.world.after(self.draws.draw(1 + at * SECOND), "world", "subscribe", self._add)
        self._plan()

    def begin_liveness(self) -> None:
        """Everything is consumed, and acknowledged."""
        self.in_liveness = True
        self._finish()

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something was consumed somewhere."""
        roaming, core = self.world.roaming, consumer.core
        if roaming is None:
            return
        home = home_of(consumer.client.name, roaming)
        self.world.sometimes(f"roaming.consumed {'at home' if core.session_sid == core.sid else 'elsewhere'}")
        if not self.world.brokers[home].running:
            self.world.sometimes("roaming.consumed while the home was down")

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

    def _finish(self) -> None:
        for application in self.applications:
            application.finish()
        self.world.after(SECOND, "world", "finish", self._finish)

    def _add(self) -> None:
        if not self.in_liveness:
            start = self.draws.pick((StartAt.LATEST, StartAt.EARLIEST))
            keeps_token = not self.draws.chance(0.2)
            terms = EVERYTHING if self.draws.chance(0.4) else draw_terms(self.draws)
            self.draws.pick(self.applications).add(terms, start, keeps_token=keeps_token)

    def _plan(self) -> None:
        mean = int(SECOND / self.world.options.rate)
        self.world.after(self.draws.delay(mean // 4, mean // 2), "world", "operation", self._operate)

    def _operate(self) -> None:
        if self.in_liveness:
            return
        application = self.draws.pick(self.applications)
        if self.draws.chance(0.08) and application.client.running:
            application.move()
        elif self.draws.chance(0.05):
            application.attach_again()
        else:
            application.publish()
        if application.client.running:
            application.client.schedule_pump()
        self._plan()
