"""Scenarios of those who read: a projection with backups, a report, a dashboard, a quiet subscription, odd habits."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import StartAt
from gapless_sim.workloads.scenario_filters import INTERESTS, METER_TOPICS, STOCK_TOPICS, Interest, only
from gapless_sim.workloads.scenario_publishers import Publishing
from gapless_sim.workloads.scenario_scripts import answered, either, over
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient

SOMETIMES = (
    "scenario.projection.old backup, acknowledged further",
    "scenario.projection.old backup, never acknowledged",
    "scenario.projection.crashed between commits",
    "scenario.projection.left in order",
    "scenario.projection.found a gap after an old backup",
    "scenario.report.read to the end",
    "scenario.report.nothing new",
    "scenario.report.away for longer than events are kept",
    "scenario.report.found a gap",
    "scenario.dashboard.came again",
    "scenario.dashboard.slow",
    "scenario.dashboard.died with its process",
    "scenario.quiet.silent for long",
    "scenario.quiet.heard something",
    "scenario.quiet.came back to silence",
    "scenario.odd.never acknowledged",
    "scenario.odd.acknowledged early and crashed",
    "scenario.odd.acknowledged older positions",
    "scenario.odd.repeats all from its start",
    "scenario.odd.did not take",
    "scenario.odd.went on fast",
    "scenario.odd.tiny window",
)


class Reading(Scenario):
    """What all who read have in common."""

    row: Row

    def subscription(self, interest: Interest, **more: Any) -> Row:
        """A durable subscription of this scenario, the first or the next one of its name."""
        silence = self.draws.chance(self.world.options.wants_silence)
        return self.state.row(self.client, self.name, interest, silence=silence, **more)

    def lost(self, client: SimClient, row: Row, error: GaplessError | None) -> Script:
        """It lost its subscription, which only a loss of data excuses: it gives it up."""
        self.state.check(error)
        self.world.sometimes("scenario.given up after a loss of data")
        yield from self.state.unsubscribe(client, row)


class Projection(Reading):
    """Commits its token with its effects; and at times its database is put back from a backup."""

    kind = "projection"

    def plan(self) -> None:
        """What it projects, and how it commits."""
        self.interest = self.draws.pick(INTERESTS)
        self.habits: dict[str, Any] = {
            "commit_every": self.draws.pick((1, 3, 10)),
            "acknowledges": self.draws.pick(("at once", "never", "late")),
            "portion": self.draws.pick((None, 1, 7)),
            "pace": self.draws.pick((0, MILLISECOND, 30 * MILLISECOND)),
        }
        self.restores = self.draws.pick((0.05, 0.0, 0.3))
        self.gaps_before = 0
        self.row = self.subscription(self.interest)
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """A process's life: several consumptions, one after the other."""
        while True:
            if self.row.ended:
                self.row = self.subscription(self.interest)
            consumer = yield from self.state.attach(client, self.row, **self.habits)
            if consumer is None:
                continue
            yield from self._project(client, consumer)
            if not client.running:
                return
            yield self.time(10, 1_500)

    def _project(self, client: SimClient, consumer: Consumer) -> Script:
        while not consumer.over:
            yield self.time(100, 2_000)
            self.rounds += 1
            if self.state.ledger.gaps[self.row.number] > self.gaps_before:
                self.gaps_before = self.state.ledger.gaps[self.row.number]
                self.sometimes("found a gap after an old backup")
            if self.draws.chance(0.05):
                self.sometimes("crashed between commits")
                self.state.crash(client, self.time(50, 2_000))
                return
            if self.row.tokens and self.draws.chance(self.restores):
                self._put_back(consumer)
                return
            if self.draws.chance(0.1):
                self.sometimes("left in order")
                consumer.commit()
                consumer.leave()
                return
        if consumer.error is not None:
            yield from self.lost(client, self.row, consumer.error)

    def _put_back(self, consumer: Consumer) -> None:
        """The database is as it was some commits ago: effects, token and all."""
        further = self.habits["acknowledges"] != "never"
        self.sometimes("old backup, " + ("acknowledged further" if further else "never acknowledged"))
        consumer.leave()
        kept = self.draws.draw(len(self.row.tokens))
        self.row.token = self.row.tokens[kept]
        del self.row.tokens[kept:]


class Report(Reading):
    """Comes once in a while, reads to the end, and goes."""

    kind = "report"

    def plan(self) -> None:
        """How seldom it comes; with early release also later than events are kept."""
        self.interest = self.draws.pick(INTERESTS)
        self.most_ms = self.draws.pick((2_000, 8_000, 500))
        self.row = self.subscription(self.interest, keeps_token=not self.draws.chance(0.4))
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """Comes, reads, goes, and is away."""
        while True:
            if self.row.ended:
                self.row = self.subscription(self.interest, keeps_token=self.row.keeps_token)
            consumer = yield from self.state.attach(client, self.row)
            if consumer is None:
                continue
            before = self.state.ledger.taken[self.row.number]
            yield from self._read_to_the_end(consumer)
            if consumer.over:
                yield from self.lost(client, self.row, consumer.error)
                continue
            self.sometimes("read to the end" if self.state.ledger.taken[self.row.number] > before else "nothing new")
            if self.state.ledger.gaps[self.row.number]:
                self.sometimes("found a gap")
            consumer.commit()
            consumer.leave()
            yield self._away()

    def _read_to_the_end(self, consumer: Consumer) -> Script:
        taken, before = self.state.ledger.taken, -1
        while not consumer.over and taken[self.row.number] != before:
            before = taken[self.row.number]
            yield 400 * MILLISECOND

    def _away(self) -> int:
        if self.retain() and self.draws.chance(0.3):
            self.sometimes("away for longer than events are kept")
            return self.retain() + self.time(500, 3_000)
        return self.time(300, self.most_ms)


class Dashboard(Reading):
    """Shows what is going on while somebody looks; nobody cares what it missed."""

    kind = "dashboard"

    def plan(self) -> None:
        """It has no name, and so nothing that stays."""
        self.interest = self.draws.pick(INTERESTS)
        self.window = self.draws.pick((0, 4, 40))
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """Comes, looks, goes."""
        if self.rounds and not self.row.ended:
            self.row.ended = True
            self.sometimes("died with its process")
        while True:
            if self.rounds:
                self.sometimes("came again")
            self.rounds += 1
            silence = self.draws.chance(self.world.options.wants_silence)
            self.row = self.state.row(client, None, self.interest, silence=silence)
            consumer = yield from self.state.attach(client, self.row, window=self.window)
            if consumer is not None:
                yield from self._look(consumer)
                if consumer.over:
                    self.state.check(consumer.error)
                consumer.leave()
            self.row.ended = True
            yield self.time(100, 4_000)

    def _look(self, consumer: Consumer) -> Script:
        yield either(self.world, over(consumer), self.time(200, 6_000))
        if self.draws.chance(0.4):
            self.sometimes("slow")
            consumer.pace = self.time(20, 500)
            yield either(self.world, over(consumer), self.time(500, 4_000))
            consumer.go_on()
            yield either(self.world, over(consumer), self.time(100, 2_000))


class Quiet(Reading, Publishing):
    """Waits for a word that is hardly ever said, while others talk."""

    kind = "quiet"

    def plan(self) -> None:
        """The one who waits, and the one who says it at last."""
        self.interest = only(self.name)
        self.row = self.subscription(self.interest, keeps_token=not self.draws.chance(0.3))
        self.state.ledger.keys[self.row.number] = []
        self.words = self.outbox(METER_TOPICS + STOCK_TOPICS)
        self.stays = self.draws.pick((0.9, 0.5, 0.0))
        self.part(self.wait)
        self.part(self.say)

    def wait(self, client: SimClient) -> Script:
        """Is there, or comes once in a while."""
        while True:
            if self.row.ended:
                self.row = self.subscription(self.interest, keeps_token=self.row.keeps_token)
                self.state.ledger.keys[self.row.number] = []
            consumer = yield from self.state.attach(client, self.row)
            if consumer is None:
                continue
            before = self.state.ledger.taken[self.row.number]
            while not consumer.over:
                yield self.time(1_000, 6_000)
                if not self.draws.chance(self.stays):
                    break
            if self.rounds and self.state.ledger.taken[self.row.number] == before:
                self.sometimes("came back to silence")
            self.rounds += 1
            if consumer.over:
                yield from self.lost(client, self.row, consumer.error)
                continue
            consumer.leave()
            yield self.time(500, 5_000)

    def say(self, client: SimClient) -> Script:
        """Publishes the word, seldom; once it is logged, it arrives in the end."""
        producer = yield from self.open(client, self.words)
        while not producer.over:
            yield self.time(3_000, 12_000)
            self.sometimes("silent for long")
            (word,) = self.write(self.words, 1, marker=self.name)
            while producer.publish(8):
                yield answered(producer)
            yield either(self.world, partial(self._heard, word.key), 20 * SECOND)
            if self._heard(word.key):
                self.sometimes("heard something")

    def _heard(self, key: int) -> bool:
        return key in self.state.ledger.keys.get(self.row.number, ())


class Odd(Reading):
    """Consumes in a way that one would not recommend, and that has to work all the same."""

    kind = "odd"

    def plan(self) -> None:
        """Which habits it has."""
        self.interest = self.draws.pick(INTERESTS)
        self.acknowledges = self.draws.pick(("never", "early", "late"))
        self.stops = self.draws.pick((0.2, 0.0, 0.6))
        self.window = self.draws.pick((0, 3, 20))
        self.row = self._new_row()
        self.part(self.live)

    def _new_row(self) -> Row:
        start = self.draws.pick((StartAt.LATEST, StartAt.EARLIEST))
        return self.subscription(self.interest, start=start, keeps_token=not self.draws.chance(0.3))

    def live(self, client: SimClient) -> Script:
        """Comes back again and again, with its habits."""
        while True:
            if self.row.ended:
                self.row = self._new_row()
            self._say_so()
            habits: dict[str, Any] = {"acknowledges": self.acknowledges, "commit_every": 1 + self.draws.draw(4)}
            consumer = yield from self.state.attach(client, self.row, window=self.window, **habits)
            if consumer is None:
                continue
            yield from self._consume(client, consumer)
            if not client.running:
                return
            yield self.time(10, 1_000)

    def _say_so(self) -> None:
        if self.window == 3:
            self.sometimes("tiny window")
        if self.acknowledges == "never":
            self.sometimes("never acknowledged")
            if self.rounds and not self.row.keeps_token:
                self.sometimes("repeats all from its start")

    def _consume(self, client: SimClient, consumer: Consumer) -> Script:
        while not consumer.over:
            yield self.time(200, 3_000)
            self.rounds += 1
            if self.row.tokens and self.draws.chance(0.2):
                self.sometimes("acknowledged older positions")
                consumer.acknowledge(self.draws.pick(self.row.tokens).ticks)
            if self.draws.chance(self.stops):
                yield from self._stop_taking(consumer)
            if self.draws.chance(0.15):
                if self.acknowledges == "early":
                    self.sometimes("acknowledged early and crashed")
                self.state.crash(client, self.time(50, 2_000))
                return
        yield from self.lost(client, self.row, consumer.error)

    def _stop_taking(self, consumer: Consumer) -> Script:
        """Connected, but takes nothing: its credit runs out, and the broker reads for it from the past."""
        self.sometimes("did not take")
        consumer.stopped = True
        yield either(self.world, over(consumer), self.time(500, 6_000))
        if not consumer.over:
            self.sometimes("went on fast")
            consumer.go_on()


SCENARIOS: tuple[type[Reading], ...] = (Projection, Report, Dashboard, Quiet, Odd)
