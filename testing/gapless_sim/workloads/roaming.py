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
from gapless_sim.observation import Violation
from gapless_sim.options import SECOND
from gapless_sim.producer import Outbox, Producer
from gapless_sim.workloads.applications import Application, Applications
from gapless_sim.workloads.filters import Terms, draw_terms
from gapless_sim.workloads.publications import TOPICS

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.errors import GaplessError
    from gapless_sim.application import SimClient

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

EVERYTHING = Terms(("#",), "", lambda _: True)
"""Many subscribe to it: what matches little moves little."""


class RoamingApplication(Application):
    """One client's database: an outbox, and its subscriptions, which it consumes wherever it is."""

    def __init__(self, workload: RoamingApplications, client: SimClient, number: int) -> None:
        super().__init__(workload, client)
        self.consumers: dict[int, Consumer] = {}
        """The consumers in this process, by the number of their row."""
        self.outbox = Outbox(f"out-{number}", self.draws.pick(TOPICS))

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has."""
        self.consumers.clear()
        self.producer = Producer(client, self.outbox)
        self.producer.on_over = self._on_producer_over
        for row in self.rows:
            self.consume(row)

    def add(self, number: int, terms: Terms, start: StartAt, *, keeps_token: bool) -> None:
        """One more subscription."""
        row = Row(number, self.client.name, f"s{number}", terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = keeps_token
        share = self.world.options.ordered
        if share and self.draws.chance(share):
            row.order = Order.TOTAL
            self.world.sometimes("roaming.in total order")
        self.rows.append(row)
        if self.client.running:
            self.consume(row)

    def consume(self, row: Row) -> None:
        """Consumes a subscription, wherever the client is."""
        in_use = self.draws.pick((InUse.TAKEOVER, InUse.TAKEOVER, InUse.WAIT, InUse.ERROR))
        consumer = Consumer(self.client, row, row.wanted(in_use=in_use))
        consumer.on_over = self._on_over
        self.consumers[row.number] = consumer

    def publish(self) -> None:
        """A few publications more, wherever the pubend's host is."""
        super().publish()
        producer = self.producer
        if producer is not None and producer.alive and producer.number not in self.client.core.publishers:
            self.world.sometimes("roaming.published at the pubend's host")

    def move(self) -> None:
        """The process ends, in order or not, and another one comes up, which tries the SHBs in another order."""
        draws, client = self.draws, self.client
        if draws.chance(0.5):
            client.crash()
            self.world.sometimes("roaming.process crashed")
        else:
            client.close()
        turn = draws.draw(len(client.addresses))
        client.addresses = [*client.addresses[turn:], *client.addresses[:turn]]
        self.world.sometimes("roaming.moved")
        self.world.after(draws.draw(SECOND), client.name, "start", client.start)

    def attach_again(self) -> None:
        """A consumer leaves, and another one takes its place."""
        able = [consumer for consumer in self.consumers.values() if consumer.attached and not consumer.over]
        if able and self.client.running:
            consumer = self.draws.pick(able)
            consumer.leave()
            self.consume(consumer.row)

    def finish(self) -> None:
        """What was not handed to the publisher yet is; whoever consumes acknowledges where it stands."""
        if not self.client.running:
            self.client.start()
            return
        super().finish()
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
            self.world.sometimes("roaming.taken over")
        row = consumer.row
        self.world.after(SECOND, self.client.name, "consume", self.consume, row, life=self.client.life)

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError | PublishRejectedError):
            raise error


class RoamingApplications(Applications[RoamingApplication]):
    """The applications of one world. As an oracle it also sees where what is consumed."""

    name = "roaming"

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something was consumed somewhere."""
        roaming, core = self.world.roaming, consumer.core
        if roaming is None:
            return
        home = home_of(consumer.client.name, roaming)
        self.world.sometimes(f"roaming.consumed {'at home' if core.session_sid == core.sid else 'elsewhere'}")
        if not self.world.brokers[home].running:
            self.world.sometimes("roaming.consumed while the home was down")

    def _application(self, client: SimClient, number: int) -> RoamingApplication:
        return RoamingApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        keeps_token = not self.draws.chance(0.2)
        terms = EVERYTHING if self.draws.chance(0.4) else draw_terms(self.draws)
        self.draws.pick(self.applications).add(self.row_number(), terms, start, keeps_token=keeps_token)

    def _act(self, application: RoamingApplication) -> None:
        if self.draws.chance(0.08) and application.client.running:
            application.move()
        elif self.draws.chance(0.05):
            application.attach_again()
        else:
            application.publish()
