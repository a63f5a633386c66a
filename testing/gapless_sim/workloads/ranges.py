"""The workload `ranges`: applications that read by ranges, beside some that consume, and all of them publish.

It is run when it is asked for by its name, and draws from a stream of its own: no other run depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, StartAt
from gapless.errors import PublishRejectedError, PublishUncertainError, SubscriptionInUseError
from gapless_sim.workloads.applications import Application, Applications
from gapless_sim.workloads.filters import Terms, draw_terms
from gapless_sim.workloads.publications import TOPICS
from gapless_sim.world import asker, ranger, sink
from gapless_sim.world.asker import Asker
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import SECOND
from gapless_sim.world.producer import Outbox, Producer
from gapless_sim.world.ranger import Ranger
from gapless_sim.world.sink import Epochs, Sink

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient

SOMETIMES = (
    *asker.SOMETIMES,
    *ranger.SOMETIMES,
    *sink.SOMETIMES,
    "ranges.consumed beside",
    "ranges.began anew",
    "ranges.went back",
    "ranges.published",
)


class RangesApplication(Application):
    """One client's database: an outbox, and its subscriptions, of which most are read by ranges."""

    def __init__(self, workload: Ranges, client: SimClient, number: int) -> None:
        super().__init__(workload, client)
        self.ranges = workload
        self.number = number
        self.readers: dict[int, Ranger | Consumer] = {}
        """What reads each row in this life, by the row's number."""
        self.sink: Sink | None = None
        self._outboxes = 0
        self.outbox = self._new_outbox()
        self.epochs = self._new_epochs() if self.draws.chance(0.6) else None

    def _new_outbox(self) -> Outbox:
        self._outboxes += 1
        return Outbox(f"out-{self.number}-{self._outboxes}", self.draws.pick(TOPICS))

    def _new_epochs(self) -> Epochs:
        self._outboxes += 1
        return Epochs(f"sink-{self.number}-{self._outboxes}", self.draws.pick(TOPICS))

    def _sink(self) -> None:
        """Publishes under keys; where the pubend is gone for good, under another name from then on."""
        if not self.client.running or self.epochs is None:
            return
        if self.sink is not None and self.sink.over:
            self.epochs = self._new_epochs()
        self.sink = Sink(self.client, self.epochs, self.draws, self.publications.write_to)
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
        self.world.after(SECOND, self.client.name, "produce", self.produce, life=self.client.life)

    def finish(self) -> None:
        """What was not handed to the publisher yet is; whoever consumes acknowledges where it stands."""
        super().finish()
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
            draws = self.draws
            old = draws.pick(row.tokens) if row.tokens and draws.chance(0.2) else None
            self.world.hits["ranges.went back"] += old is not None
            reader = Ranger(self.client, row, draws, old)
            reader.eager = self.ranges.in_liveness
            reader.on_over = self._on_over
            self.readers[row.number] = reader
            return
        consumer = Consumer(self.client, row, row.wanted(in_use=InUse.TAKEOVER))
        consumer.on_over = self._on_over
        self.readers[row.number] = consumer
        self.world.sometimes("ranges.consumed beside")

    def restart(self) -> bool:
        """One of those who read by ranges starts anew, maybe from an older token. Returns whether there is one."""
        able = [reader for reader in self.readers.values() if isinstance(reader, Ranger) and reader.attached]
        able = [reader for reader in able if not reader.over]
        if not able or not self.client.running:
            return False
        reader = self.draws.pick(able)
        reader.leave()
        self.read(reader.row)
        return True

    def ask(self) -> None:
        """One of those who read by ranges asks from somewhere else."""
        able = [reader for reader in self.readers.values() if isinstance(reader, Ranger) and reader.attached]
        able = [reader for reader in able if not reader.over]
        if able and self.client.running:
            Asker(self.draws.pick(able), self.draws).ask()

    def _on_over(self, reader: Ranger | Consumer, error: GaplessError) -> None:
        """It was in use, or its disk is lost; then it is given up for another one."""
        row = reader.row
        if isinstance(error, SubscriptionInUseError):
            self.world.after(SECOND, self.client.name, "read", self.read, row, life=self.client.life)
            return
        if row.ended:
            return
        row.ended = True
        self.world.sometimes("ranges.began anew")
        terms = Terms(row.topics, row.selector, row.matches)
        start = StartAt.LATEST
        again = row.name is not None and row.name.startswith("range")
        self.world.after(
            SECOND, self.client.name, "anew", lambda: self.add(terms, start, by_ranges=again), life=self.client.life
        )


class Ranges(Applications[RangesApplication]):
    """The applications of one world."""

    name = "ranges"

    def begin_liveness(self) -> None:
        """Everything is read, and acknowledged."""
        for application in self.applications:
            application.client.start()
            for reader in application.readers.values():
                if isinstance(reader, Ranger):
                    reader.begin_liveness()
        super().begin_liveness()

    def _application(self, client: SimClient, number: int) -> RangesApplication:
        return RangesApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        by_ranges = not self.draws.chance(0.3)
        self.draws.pick(self.applications).add(draw_terms(self.draws), start, by_ranges=by_ranges)

    def _act(self, application: RangesApplication) -> None:
        if not (self.draws.chance(0.1) and application.restart()):
            application.publish()
        if self.draws.chance(0.3):
            application.ask()
