"""Scenarios of beginnings: audits that start in the past, crowds that come at once, and who gets what was just sent."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, StartAt
from gapless.core.wire.tokens import SEAL_BYTES, CheckpointToken
from gapless.errors import InvalidTokenError, TokenMismatchError
from gapless_sim.workloads.scenario_filters import INTERESTS, METER_TOPICS, ORDER_TOPICS, STOCK_TOPICS, only
from gapless_sim.workloads.scenario_publishers import ROOM, Publishing
from gapless_sim.workloads.scenario_readers import Reading
from gapless_sim.workloads.scenario_scripts import Wait, answered, attached, either, over
from gapless_sim.world.clocks import WALL_BEGIN
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.producer import Producer, Publication

SOMETIMES = (
    "scenario.audit.from the earliest",
    "scenario.audit.from a time",
    "scenario.audit.from a time to come",
    "scenario.audit.from a token of another",
    "scenario.audit.foreign token refused",
    "scenario.audit.forged seal refused",
    "scenario.audit.done and removed",
    "scenario.crowd.came at once",
    "scenario.crowd.before any broker",
    "scenario.crowd.one left at once",
    "scenario.crowd.nameless",
    "scenario.courier.created before a receipt",
    "scenario.courier.created after a receipt",
    "scenario.courier.latest was behind the receipt",
    "scenario.courier.lost to early release",
    "scenario.courier.checked both",
)


class Audit(Reading):
    """Begins in the past: at the earliest, at a time, or where another subscription stands; ends after a while."""

    kind = "audit"

    def plan(self) -> None:
        """What it looks into."""
        self.interest = self.draws.pick(INTERESTS)
        self.stays = self.time(1_000, 9_000)
        self.row: Row | None = None  # type: ignore[assignment]
        self.misused = 0
        """The number of the last row with which it tried tokens that are not its own."""
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """One audit after the other; one that was interrupted goes on."""
        while True:
            if self.row is None or self.row.ended:
                yield self.time(100, 5_000)
                self.row = self._new_row()
            row = self.row
            consumer = yield from self.state.attach(client, row)
            if consumer is None:
                continue
            if row.number > self.misused and self.draws.chance(0.5):
                self.misused = row.number
                consumer.leave()
                yield from self._misuse_tokens(client, row)
                continue
            yield either(self.world, over(consumer), self.stays)
            if consumer.over:
                yield from self.lost(client, row, consumer.error)
                continue
            consumer.leave()
            yield from self.state.unsubscribe(client, row)
            self.sometimes("done and removed")

    def _new_row(self) -> Row:
        self.rounds += 1
        how = self.draws.pick(("earliest", "time", "token"))
        other = self._token_of_another(self.state.clients) if how == "token" else None
        if other is not None:
            self.sometimes("from a token of another")
            return self.subscription(self.interest, start=StartAt.TOKEN, start_token=other)
        if how == "time":
            row = self.subscription(self.interest, start=StartAt.TIME)
            offset = -self.time(100, 2_000) if self.draws.chance(0.2) else self.time(0, 12_000)
            self.state.walls[row.number] = WALL_BEGIN + (self.world.now - offset) // MILLISECOND
            self.sometimes("from a time" if offset >= 0 else "from a time to come")
            return row
        self.sometimes("from the earliest")
        return self.subscription(self.interest, start=StartAt.EARLIEST)

    def _token_of_another(self, clients: Sequence[SimClient]) -> CheckpointToken | None:
        """Where some subscription of one of these clients stands, or stood."""
        names = [client.name for client in clients]
        rows = [row for row in self.state.rows if row.client_id in names and row is not self.row]
        tokens = [token for row in rows if row.token is not None for token in (row.token, *row.tokens[-1:])]
        return self.draws.pick(tokens) if tokens else None

    def _misuse_tokens(self, client: SimClient, row: Row) -> Script:
        """To attach with a token of another subscription, or with a forged one, is refused; nothing changes."""
        own = row.token
        assert own is not None
        # A subscription of another broker may have the same number: then the seal distinguishes them.
        foreign = self._token_of_another([c for c in self.state.clients if c.addresses == client.addresses])
        if foreign is not None and not _is_first_request(foreign, row):
            yield from self._try(client, row, foreign, TokenMismatchError)
            self.sometimes("foreign token refused")
        forged = CheckpointToken(own.network, own.ticks, own.sid, own.generation, bytes(SEAL_BYTES))
        if not _is_first_request(forged, row):
            yield from self._try(client, row, forged, InvalidTokenError)
            self.sometimes("forged seal refused")

    def _try(self, client: SimClient, row: Row, token: CheckpointToken, expected: type[InvalidTokenError]) -> Script:
        consumer = Consumer(client, row, row.wanted(in_use=InUse.WAIT, token=token))
        yield attached(consumer)
        if consumer.over:
            self.state.check(consumer.error, expected)
        else:
            assert self.state.has_lost_data, f"{row.name} was attached to with a token that is not its own"
            consumer.leave()


def _is_first_request(token: CheckpointToken, row: Row) -> bool:
    """Whether it is the token that a row began with: that is taken again, under any seal, if the answer was lost."""
    first = row.start_token
    return first is not None and (token.sid, token.generation, token.ticks) == (
        first.sid,
        first.generation,
        first.ticks,
    )


class Crowd(Publishing, Reading):
    """Many subscribe at once, while events flow as fast as they can; the first time before there is any broker."""

    kind = "crowd"

    def plan(self) -> None:
        """How many, and who shouts meanwhile."""
        self.size = self.draws.pick((6, 12, 25))
        self.shouting = False
        self.present: list[Row] = []
        self.noise = self.outbox(STOCK_TOPICS + ORDER_TOPICS)
        self.part(self.come)
        self.part(self.shout)

    def come(self, client: SimClient) -> Script:
        """They come at once, stay for a while, and go."""
        while True:
            yield from self._clear(client)
            self.shouting = True
            if self.rounds:
                yield self.time(1, 50)
            elif not any(broker.running for broker in self.world.brokers.values()):
                self.sometimes("before any broker")
            self.rounds += 1
            consumers = self._gather(client)
            for consumer in consumers:
                yield attached(consumer)
                if consumer.over and consumer.error is not None:
                    self.state.check(consumer.error)
            self.sometimes("came at once")
            yield self.time(50, 1_500)
            self.shouting = False
            yield self.time(500, 5_000)
            for consumer in consumers:
                consumer.leave()
            yield self.time(200, 6_000)

    def _gather(self, client: SimClient) -> list[Consumer]:
        consumers = []
        for place in range(self.size):
            name = None if self.draws.chance(0.2) else f"{self.name}/{self.rounds}.{place}"
            row = self.state.row(client, name, self.draws.pick(INTERESTS))
            self.present.append(row)
            consumer = Consumer(client, row, self.state.wanted(row))
            consumers.append(consumer)
            if name is None:
                self.sometimes("nameless")
            elif self.draws.chance(0.1):
                self.sometimes("one left at once")
                consumer.leave()
        return consumers

    def _clear(self, client: SimClient) -> Script:
        """Whoever was there is not wanted any more."""
        for row in self.present:
            if not row.ended:
                yield from self.state.unsubscribe(client, row)
        self.present.clear()

    def shout(self, client: SimClient) -> Script:
        """Publishes at full speed, when it is time for that."""
        producer = yield from self.open(client, self.noise)
        while not producer.over:
            yield lambda: self.shouting
            self.write(self.noise, self.draws.between(1, 4))
            producer.publish(20)
            yield self.draws.between(1, 20) * MILLISECOND
            yield answered(producer, ROOM)


class Noting(Consumer):
    """Remembers where it began."""

    begins: Mapping[PubendId, Tick]

    def on_answered(self, attached: Attached) -> None:
        """It has its subscription."""
        self.begins = self.core.end_positions()
        super().on_answered(attached)


class Courier(Publishing, Reading):
    """Sends a publication between two subscriptions: created before it, and created once its receipt was there."""

    kind = "courier"

    def plan(self) -> None:
        """One publisher, two subscriptions at a time."""
        self.publications = self.outbox(STOCK_TOPICS + METER_TOPICS)
        self.pair: list[Row] = []
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """One experiment after the other."""
        producer = yield from self.open(client, self.publications)
        while not producer.over:
            for row in self.pair:
                if not row.ended:
                    yield from self.state.unsubscribe(client, row)
            self.pair.clear()
            yield self.time(200, 4_000)
            self.rounds += 1
            yield from self._experiment(client, producer)

    def _experiment(self, client: SimClient, producer: Producer) -> Script:
        before = yield from self._subscribe(client, "before")
        first = yield from self._send(producer)
        self.sometimes("created before a receipt")
        after = yield from self._subscribe(client, "after")
        self.sometimes("created after a receipt")
        second = yield from self._send(producer)
        if before is None or after is None or producer.over:
            return
        come = self._both_have(second, before, after)
        yield either(self.world, lambda: come() or before.over or after.over, 30 * SECOND)
        for consumer in (before, after):
            if consumer.over:
                yield from self.lost(client, consumer.row, consumer.error)
            consumer.leave()
        if come() and not self.state.has_lost_data:
            self._judge(first, before, after)

    def _subscribe(self, client: SimClient, when: str) -> Generator[Wait, None, Noting | None]:
        row = self.state.row(client, f"{self.name}/{self.rounds}/{when}", only(f"{self.name}/{self.rounds}"))
        self.pair.append(row)
        self.state.ledger.keys[row.number] = []
        consumer = yield from self.state.attach(client, row, kind=Noting)
        assert consumer is None or isinstance(consumer, Noting)
        return consumer

    def _send(self, producer: Producer) -> Generator[Wait, None, Publication]:
        (publication,) = self.write(self.publications, 1, marker=f"{self.name}/{self.rounds}")
        while producer.publish(8):
            yield answered(producer)
        return publication

    def _both_have(self, publication: Publication, *consumers: Consumer) -> Callable[[], bool]:
        keys = [self.state.ledger.keys[consumer.row.number] for consumer in consumers]
        return lambda: all(publication.key in of_one for of_one in keys)

    def _judge(self, publication: Publication, before: Noting, after: Noting) -> None:
        """A subscription from before the receipt has the publication; a later one has it if it begins below it."""
        ledger = self.state.ledger
        if ledger.gaps[before.row.number] or ledger.gaps[after.row.number]:
            self.sometimes("lost to early release")
            return
        pubend, tick = ledger.receipts[publication.key]
        assert before.begins.get(pubend, 0) < tick, f"{before.row.name} begins above a publication that was sent later"
        assert publication.key in ledger.keys[before.row.number], (
            f"{before.row.name} misses publication {publication.key}"
        )
        begin = after.begins.get(pubend)
        if begin is None:
            return
        has_it = publication.key in ledger.keys[after.row.number]
        assert has_it == (begin < tick), f"{after.row.name} begins at {begin}, publication {tick}: has it: {has_it}"
        if has_it:
            self.sometimes("latest was behind the receipt")
        self.sometimes("checked both")


SCENARIOS = (Audit, Crowd, Courier)
