"""The workload `ranges`: applications that read by ranges, beside some that consume, and all of them publish.

It is run when it is asked for by its name, and draws from a stream of its own: no other run depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import PublishRejectedError, PublishUncertainError, SubscriptionInUseError
from gapless_sim import asker, ranger, sink
from gapless_sim.asker import Asker
from gapless_sim.consumer import Consumer, Row
from gapless_sim.observation import Oracle
from gapless_sim.options import SECOND
from gapless_sim.producer import Outbox, Producer
from gapless_sim.ranger import Ranger
from gapless_sim.sink import Epochs, Sink
from gapless_sim.workloads.filters import Terms, draw_terms
from gapless_sim.workloads.publications import TOPICS, PublicationGenerator

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.application import SimClient
    from gapless_sim.world import World

SOMETIMES = (
    *asker.SOMETIMES,
    *ranger.SOMETIMES,
    *sink.SOMETIMES,
    "ranges.consumed beside",
    "ranges.began anew",
    "ranges.went back",
    "ranges.published",
)


class Application:
    """One client's database: an outbox, and its subscriptions."""

    def __init__(self, ranges: Ranges, client: SimClient, number: int) -> None:
        self.ranges = ranges
        self.client = client
        self.number = number
        self.rows: list[Row] = []
        self.producer: Producer | None = None
        self.readers: dict[int, Ranger | Consumer] = {}
        """What reads each row in this life, by the row's number."""
        self.sink: Sink | None = None
        self._outboxes = 0
        self.outbox = self._new_outbox()
        self.epochs = self._new_epochs() if ranges.draws.chance(0.6) else None

    def _new_outbox(self) -> Outbox:
        self._outboxes += 1
        return Outbox(f"out-{self.number}-{self._outboxes}", self.ranges.draws.pick(TOPICS))

    def _new_epochs(self) -> Epochs:
        self._outboxes += 1
        return Epochs(f"sink-{self.number}-{self._outboxes}", self.ranges.draws.pick(TOPICS))

    def _sink(self) -> None:
        """Publishes under keys; where the pubend is gone for good, under another name from then on."""
        if not self.client.running or self.epochs is None:
            return
        if self.sink is not None and self.sink.over:
            self.epochs = self._new_epochs()
        self.sink = Sink(self.client, self.epochs, self.ranges.draws, self.ranges.publications.write_to)
        self.sink.in_liveness = self.ranges.in_liveness

    def start(self, client: SimClient) -> None:
        """A process begins: it goes on with what the database has."""
        self.readers.clear()
        self.producer = self.sink = None
        self.produce()
        self._sink()
        for row in list(self.rows):
            if not row.ended:
                self.read(row)

    def produce(self) -> None:
        """Opens the publisher; one that can go on no more is given up, with its outbox."""
        if not self.client.running:
            return
        self.producer = Producer(self.client, self.outbox)
        self.producer.on_over = self._on_producer_over

    def _on_producer_over(self, producer: Producer, error: GaplessError) -> None:
        if isinstance(error, PublishUncertainError):
            return  # the process ends
        if not isinstance(error, PublishRejectedError):
            raise error
        self.outbox = self._new_outbox()
        self.ranges.world.after(SECOND, self.client.name, "produce", self.produce, life=self.client.life)

    def publish(self) -> None:
        """A few publications more."""
        draws, producer = self.ranges.draws, self.producer
        self.outbox.publications += [
            self.ranges.publications.write_to(self.outbox.topic) for _ in range(draws.between(1, 4))
        ]
        if producer is not None and producer.alive and producer.waiting < 40:
            producer.publish(8)
            self.ranges.world.sometimes("ranges.published")

    def finish(self) -> None:
        """What was not handed to the publisher yet is; whoever consumes acknowledges where it stands."""
        producer = self.producer
        if producer is not None and producer.alive:
            producer.publish(100)
        if self.sink is not None:
            self.sink.in_liveness = self.ranges.in_liveness
            if self.sink.over:
                self._sink()
        for reader in self.readers.values():
            if isinstance(reader, Consumer) and self.client.running:
                reader.commit()

    def add(self, terms: Terms, start: StartAt, *, by_ranges: bool) -> None:
        """One more subscription."""
        number = self.ranges.row_number()
        kind = "range" if by_ranges else "plain"
        row = Row(number, self.client.name, f"{kind}-{number}", terms.topics, terms.selector, terms.matches, start)
        self.rows.append(row)
        if self.client.running:
            self.read(row)

    def read(self, row: Row) -> None:
        """Reads a subscription, in whichever way it is read."""
        assert row.name is not None
        if row.name.startswith("range"):
            draws = self.ranges.draws
            old = draws.pick(row.tokens) if row.tokens and draws.chance(0.2) else None
            self.ranges.world.hits["ranges.went back"] += old is not None
            reader = Ranger(self.client, row, draws, old)
            reader.eager = self.ranges.in_liveness
            reader.on_over = self._on_over
            self.readers[row.number] = reader
            return
        consumer = Consumer(self.client, row, row.wanted(in_use=InUse.TAKEOVER))
        consumer.on_over = self._on_over
        self.readers[row.number] = consumer
        self.ranges.world.sometimes("ranges.consumed beside")

    def restart(self) -> bool:
        """One of those who read by ranges starts anew, maybe from an older token. Returns whether there is one."""
        able = [reader for reader in self.readers.values() if isinstance(reader, Ranger) and reader.attached]
        able = [reader for reader in able if not reader.over]
        if not able or not self.client.running:
            return False
        reader = self.ranges.draws.pick(able)
        reader.leave()
        self.read(reader.row)
        return True

    def ask(self) -> None:
        """One of those who read by ranges asks from somewhere else."""
        able = [reader for reader in self.readers.values() if isinstance(reader, Ranger) and reader.attached]
        able = [reader for reader in able if not reader.over]
        if able and self.client.running:
            Asker(self.ranges.draws.pick(able), self.ranges.draws).ask()

    def _on_over(self, reader: Ranger | Consumer, error: GaplessError) -> None:
        """It was in use, or its disk is lost; then it is given up for another one."""
        row = reader.row
        if isinstance(error, SubscriptionInUseError):
            self.ranges.world.after(SECOND, self.client.name, "read", self.read, row, life=self.client.life)
            return
        if row.ended:
            return
        row.ended = True
        self.ranges.world.sometimes("ranges.began anew")
        terms = Terms(row.topics, row.selector, row.matches)
        start = StartAt.LATEST
        again = row.name is not None and row.name.startswith("range")
        self.ranges.world.after(
            SECOND, self.client.name, "anew", lambda: self.add(terms, start, by_ranges=again), life=self.client.life
        )


class Ranges(Oracle):
    """The applications of one world. As an oracle it says when all is published."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.draws = world.choices.stream("workload/ranges")
        self.publications = PublicationGenerator(self.draws, world.choices.stream("workload/ranges/headers"))
        self.in_liveness = False
        self._rows = 0
        self.applications = [
            Application(self, client, number) for number, client in enumerate(list(world.clients.values()))
        ]
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
        """Everything is read, and acknowledged."""
        self.in_liveness = True
        for application in self.applications:
            application.client.start()
            for reader in application.readers.values():
                if isinstance(reader, Ranger):
                    reader.begin_liveness()
        self._finish()

    def settled(self) -> bool:
        """Whether every publication was handed to a publisher."""
        return all(
            application.outbox.handed >= len(application.outbox.publications)
            for application in self.applications
            if application.producer is not None and application.producer.open
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
            by_ranges = not self.draws.chance(0.3)
            self.draws.pick(self.applications).add(draw_terms(self.draws), start, by_ranges=by_ranges)

    def _plan(self) -> None:
        mean = int(SECOND / self.world.options.rate)
        self.world.after(self.draws.delay(mean // 4, mean // 2), "world", "operation", self._operate)

    def _operate(self) -> None:
        if self.in_liveness:
            return
        application = self.draws.pick(self.applications)
        if not (self.draws.chance(0.1) and application.restart()):
            application.publish()
        if self.draws.chance(0.3):
            application.ask()
        if application.client.running:
            application.client.schedule_pump()
        self._plan()
