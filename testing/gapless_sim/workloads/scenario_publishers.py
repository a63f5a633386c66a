"""Scenarios of publishers: an order service, a split brain of two processes, meters that sleep and burst."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from gapless.errors import PublisherFencedError, PublishRejectedError, PublishUncertainError
from gapless_sim.workloads.headers import draw_headers
from gapless_sim.workloads.scenario_filters import METER_TOPICS, ORDER_TOPICS, STOCK_TOPICS, properties_of
from gapless_sim.workloads.scenario_scripts import Wait, answered, either, opened
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.producer import Outbox, Producer, Publication

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient

Opening: TypeAlias = "Generator[Wait, None, Producer]"

SOMETIMES = (
    "scenario.orders.published again after a crash",
    "scenario.orders.nothing to publish again",
    "scenario.orders.crashed with publications unanswered",
    "scenario.orders.closed with publications unanswered",
    "scenario.orders.waited for room",
    "scenario.split brain.went over",
    "scenario.split brain.fenced",
    "scenario.split brain.stood still",
    "scenario.split brain.refused other content",
    "scenario.meters.burst after idling",
    "scenario.meters.burst in one batch",
    "scenario.meters.nameless",
    "scenario.meters.batch of many",
    "scenario.workers.fenced",
    "scenario.workers.took the name back",
    "scenario.workers.uncertain",
    "scenario.visitors.closed with publications unanswered",
    "scenario.visitors.closed in order",
    "scenario.visitors.killed",
    "scenario.visitors.cut off with publications unanswered",
)

ROOM = 60
"""So many publications may be without a receipt before a sane application waits."""


class Publishing(Scenario):
    """What all who publish have in common."""

    def outbox(self, topics: tuple[str, ...], *, named: bool = True) -> Outbox:
        """An outbox for one of these topics."""
        name = f"{self.name}/{len(self.state.outboxes)}"
        return self.state.new_outbox(self.client, name, self.draws.pick(topics), named=named)

    def write(self, outbox: Outbox, count: int, **marks: str) -> list[Publication]:
        """New publications are put into the outbox: in the database, together with the effects that they report."""
        publications = []
        for _ in range(count):
            properties = properties_of(outbox.topic, self.draws) | marks
            padding = self.draws.pick((0, 0, 0, 100, 5_000))
            headers = draw_headers(self.world.choices.stream(f"workload.{self.name}/headers"))
            publications.append(Publication(self.state.key(), outbox.topic, properties, padding, headers))
        outbox.publications += publications
        return publications

    def open(self, client: SimClient, outbox: Outbox, *, named: bool = True) -> Opening:
        """A publisher of the outbox, which knows where it has to go on; or which is over."""
        producer = Producer(client, outbox, named=named)
        producer.on_over = self.on_over
        self.state.producers.append(producer)
        yield opened(producer)
        return producer

    def on_over(self, producer: Producer, error: GaplessError) -> None:
        """A publisher is over. It is, when it was closed."""
        self.state.check(error, PublishUncertainError)

    def pace(self) -> int:
        """How long it waits between two things."""
        share = max(1, len(self.state.outboxes))
        mean = int(SECOND * share / self.world.options.rate)
        return self.draws.delay(MILLISECOND, min(mean, 3 * SECOND))


class OrderService(Publishing):
    """Publishes its orders in order, from an outbox; crashes; and goes on where the brokers say it stopped."""

    kind = "orders"

    def plan(self) -> None:
        """One process, one to three outboxes."""
        self.crashes = self.draws.pick((0.0, 0.02, 0.1))
        self.closes = self.draws.pick((0.02, 0.0, 0.1))
        self.most = self.draws.pick((1, 3, 20))
        for _ in range(self.draws.between(1, 3)):
            outbox = self.outbox(ORDER_TOPICS)
            self.part(partial(self.serve, outbox=outbox))

    def serve(self, client: SimClient, outbox: Outbox) -> Script:
        """A process's whole life for one outbox."""
        while True:
            producer = yield from self.open(client, outbox)
            self._recovered(producer)
            while not producer.over:
                if self.rounds > 3 and self.draws.chance(self.crashes):
                    self._crash(producer)
                    return
                if self.draws.chance(self.closes):
                    self._close(producer)
                    break
                self.write(outbox, self.draws.between(1, self.most))
                producer.publish(self.draws.between(1, self.most))
                self.rounds += 1
                yield self.pace()
                if producer.waiting > ROOM:
                    self.sometimes("waited for room")
                    yield answered(producer, ROOM // 2)
            yield self.time(10, 500)

    def _recovered(self, producer: Producer) -> None:
        if producer.outbox.handed > producer.next:
            self.sometimes("published again after a crash")
        elif producer.outbox.handed:
            self.sometimes("nothing to publish again")

    def _crash(self, producer: Producer) -> None:
        if producer.waiting:
            self.sometimes("crashed with publications unanswered")
        self.state.crash(producer.client, self.time(50, 2_000))

    def _close(self, producer: Producer) -> None:
        if producer.waiting:
            self.sometimes("closed with publications unanswered")
        producer.close()


class SplitBrain(Publishing):
    """A split brain: two processes with the same outbox. One works, until the other one believes that it is dead.

    Whoever is fenced stands down, and comes back much later. One that only stood still may come back
    without knowing that it was replaced.
    """

    kind = "split brain"
    label = "rivals"

    def plan(self) -> None:
        """Two processes, one of which begins."""
        self.shared = self.outbox(ORDER_TOPICS + STOCK_TOPICS)
        self.active = 0
        """Whose turn it is, as both processes believe."""
        self.processes = (self.client, self.state.other_process(self.client))
        for turn, client in enumerate(self.processes):
            self.part(partial(self.live, turn=turn), client)

    def live(self, client: SimClient, turn: int) -> Script:
        """One process: works when it is its turn, or when the other one seems to be dead."""
        while True:
            while self.active != turn:
                yield self.time(500, 4_000)
                if self.draws.chance(0.3):
                    self._go_over(turn)
            yield from self._work(client, turn)
            yield self.time(100, 3_000)

    def _go_over(self, turn: int) -> None:
        self.sometimes("went over")
        self.active = turn
        if self.draws.chance(0.5):
            self.sometimes("stood still")
            self.processes[1 - turn].pause(self.time(100, 15_000))

    def _work(self, client: SimClient, turn: int) -> Script:
        refusals = self.state.ledger.rejections
        producer = yield from self.open(client, self.shared)
        before = refusals[producer.name]
        while not producer.over:
            if refusals[producer.name] > before:
                self.sometimes("refused other content")
                producer.close()  # who is right is what the brokers say: it asks them again
                return
            self.write(self.shared, self.draws.between(1, 3))
            producer.publish(self.draws.between(1, 4))
            yield self.pace()
            if producer.waiting > ROOM:
                yield answered(producer, ROOM // 2)
        self.active = 1 - turn

    def on_over(self, producer: Producer, error: GaplessError) -> None:
        """The other process has fenced it, or it was closed."""
        if isinstance(error, PublisherFencedError):
            self.sometimes("fenced")
        self.state.check(error, PublisherFencedError, PublishUncertainError, PublishRejectedError)


class Meters(Publishing):
    """Sleeps for long, so that silence is promised ahead of time; then says very much at once."""

    kind = "meters"

    def plan(self) -> None:
        """How long it sleeps, how much it says; whether anybody knows its name."""
        self.named = not self.draws.chance(0.3)
        self.burst = self.draws.pick((10, 40, 200))
        self.portion = self.draws.pick((1, 20, 200))
        self.readings = self.outbox(METER_TOPICS, named=self.named)
        self.part(self.measure)

    def measure(self, client: SimClient) -> Script:
        """Sleeps and bursts in turn."""
        if not self.named:
            self.sometimes("nameless")
        producer = yield from self.open(client, self.readings, named=self.named)
        while not producer.over:
            yield self.time(500, 6_000)
            self.sometimes("burst after idling")
            if self.portion >= self.burst:
                self.sometimes("burst in one batch")
            self.write(self.readings, self.burst)
            while producer.publish(self.portion) == self.portion:
                yield self.draws.draw(3) * MILLISECOND
            if self.portion > 100:
                self.sometimes("batch of many")
            yield either(self.world, answered(producer), 20 * SECOND)


class Workers(Publishing):
    """Processes that all took one name and live at the same time; what they publish is all the same."""

    kind = "workers"

    def plan(self) -> None:
        """Two or three of them, and what they say."""
        topic = self.draws.pick(ORDER_TOPICS)
        self.click = Publication(self.state.key(), topic, properties_of(topic, self.draws), often=True)
        self.portion = self.draws.pick((1, 1, 2, 5))
        clients = dict.fromkeys(
            (self.client, self.state.other_process(self.client), self.draws.pick(self.state.clients))
        )
        for client in clients:
            outbox = Outbox(f"{self.name}/common", topic, common=True)
            self.part(partial(self.serve, outbox=outbox), client)

    def serve(self, client: SimClient, outbox: Outbox) -> Script:
        """A worker that takes its name back whenever it was lost."""
        while True:
            producer = yield from self.open(client, outbox)
            if outbox.handed:
                self.sometimes("took the name back")
            while not producer.over:
                outbox.publications += [self.click] * self.portion
                producer.publish(self.portion)
                yield self.pace()
                if producer.waiting > ROOM:
                    yield answered(producer, ROOM // 2)
            yield self.time(100, 3_000)

    def on_over(self, producer: Producer, error: GaplessError) -> None:
        """Another one has the name, or all is over."""
        self.sometimes("fenced" if isinstance(error, PublisherFencedError) else "uncertain")
        self.state.check(error, PublisherFencedError, PublishUncertainError, PublishRejectedError)


class Visitors(Publishing):
    """Web requests: each has a publisher without a name, which is closed, or killed with its process."""

    kind = "visitors"

    def plan(self) -> None:
        """How many publications each writes, and how they end."""
        self.topic = self.draws.pick(ORDER_TOPICS + METER_TOPICS)
        self.kills = self.draws.pick((0.0, 0.05, 0.2))
        self.stays = self.draws.pick((0.3, 0.0, 0.8))
        self.visits = 0
        self.part(self.visit)

    def visit(self, client: SimClient) -> Script:
        """One request after the other."""
        while True:
            self.visits += 1
            outbox = Outbox(f"{self.name}/{self.visits}", self.topic)
            self.write(outbox, self.draws.between(1, 4))
            producer = yield from self.open(client, outbox, named=False)
            while producer.publish(self.draws.between(1, 2)):
                yield self.pace()
            if producer.waiting and not client.core.connected:
                self.sometimes("cut off with publications unanswered")
            if self.draws.chance(self.kills):
                self.sometimes("killed")
                self.state.crash(client, self.time(50, 2_000))
                return
            if self.draws.chance(self.stays):
                yield answered(producer)
                self.sometimes("closed in order")
            elif producer.waiting:
                self.sometimes("closed with publications unanswered")
            producer.close()
            yield self.time(10, 500)


SCENARIOS: tuple[type[Publishing], ...] = (OrderService, Meters, SplitBrain)
LATER: tuple[type[Publishing], ...] = (Workers, Visitors)
"""Drawn apart from all others: the seeds that do not draw them are what they were."""
