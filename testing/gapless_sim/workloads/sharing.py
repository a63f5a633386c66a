"""The workload `sharing`: processes that share subscriptions, hold what they are handed, and settle it one by one.

It is run when it is asked for by its name, and draws from a stream of its own. Each client has some processes under its
client id. They take events, work for a while, acknowledge, retry, stand still, lose their links and die, alone or in
one moment with the broker that serves them. Some subscribe to something of their own, beside that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.wire.messages import InUse, Kind, StartAt
from gapless.errors import (
    ConnectionClosedError,
    SubscriptionInUseError,
    SubscriptionNotFoundError,
    SubscriptionTakenOverError,
)
from gapless_sim.oracles.sharing import V1SharedDelivery
from gapless_sim.recording.observation import Violation
from gapless_sim.workloads.applications import Applications, ConsumingApplication
from gapless_sim.workloads.churn_application import SecondProcess
from gapless_sim.workloads.filters import EVERYTHING, draw_terms
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.options import MILLISECOND, SECOND
from gapless_sim.world.producer import Publication, key_of
from gapless_sim.world.sharing import Habits, Holding, Outcome, SharedConsumer, SharedRow

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.workloads.filters import Terms
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.world import World

SOMETIMES = (
    "sharing.published",
    "sharing.acknowledged",
    "sharing.acknowledged several at once",
    "sharing.retried",
    "sharing.retried later",
    "sharing.forgot",
    "sharing.extended",
    "sharing.redelivered",
    "sharing.delivered three times",
    "sharing.lost its hold",
    "sharing.gap",
    "sharing.process crashed",
    "sharing.process crashed with something in hand",
    "sharing.process crashed as it was handed something",
    "sharing.process crashed as it acknowledged",
    "sharing.died with its broker",
    "sharing.broker crashed",
    "sharing.broker was killed",
    "sharing.poison",
    "sharing.link broke",
    "sharing.link broke with something in hand",
    "sharing.stood still",
    "sharing.left in order",
    "sharing.left with something in hand",
    "sharing.all left",
    "sharing.removed",
    "sharing.not durable",
    "sharing.plain beside it",
    "sharing.expiring",
    "sharing.one long job",
)

WINDOWS = (4_096, 1, 2, 5, 20)
PROCESSES_MOST = 4
POISON = 17
"""One event in so many kills the process that is handed it, …"""
POISON_GENTLE = 7
"""… or in so many, where brokers die seldom, …"""
POISON_MOST = 3
"""… so many times at most."""
LETTERS = "bcdef"


class SharingApplication(ConsumingApplication):
    """Everything under one client id."""

    def __init__(self, workload: Sharing, client: SimClient, number: int) -> None:
        super().__init__(workload, client, number)
        self.workload = workload
        self.processes: list[SimClient] = [client]
        for letter in LETTERS[: self.draws.between(1, PROCESSES_MOST - 1)]:
            second = SecondProcess(client, letter)
            second.on_start = self.join_all
            self.world.clients[second.name] = second
            self.processes.append(second)
        self.shared: list[SharedRow] = []
        self.sharers: dict[tuple[str, int], SharedConsumer] = {}
        """The last one of each process and row."""

    @property
    def clients(self) -> list[SimClient]:
        """All its processes, whether they run or not."""
        return self.processes

    @property
    def running(self) -> list[SimClient]:
        """Those that run."""
        return [process for process in self.processes if process.running]

    def start(self, client: SimClient) -> None:
        """The first process begins."""
        super().start(client)
        self.join_all(client)

    def join_all(self, client: SimClient) -> None:
        """A process begins: it takes part in most of what there is."""
        for row in self.shared:
            if self.workload.in_liveness or self.draws.chance(0.8):
                self.join(client, row)

    def share(self, row: SharedRow) -> None:
        """There is one more shared subscription."""
        self.shared.append(row)
        for client in self.running:
            if self.draws.chance(0.8):
                self.join(client, row)

    def living(self) -> list[SharedConsumer]:
        """Those that take part, or want to."""
        return [each for each in self.sharers.values() if each.alive]

    def join(self, client: SimClient, row: SharedRow) -> None:
        """A process takes part in something, unless it does."""
        former = self.sharers.get((client.name, row.number))
        if row.ended or not client.running or (former is not None and former.alive):
            return
        consumer = SharedConsumer(client, row, self.workload.habits())
        consumer.on_held, consumer.on_over = self.workload.on_held, self._on_sharer_over
        self.sharers[client.name, row.number] = consumer
        consumer.begin()

    def consume(self, row: Row) -> None:
        """Consumes something alone."""
        self.world.sometimes("sharing.plain beside it")
        self.going_on(Consumer(self.client, row, row.wanted(in_use=InUse.TAKEOVER)))

    def bring_to_an_end(self, consumer: Consumer) -> None:
        """It takes all there is, and says that it is done with that."""
        consumer.go_on(0)
        consumer.commit()

    def crash(self, client: SimClient | None = None) -> None:
        """A process is gone, with what it has in hand; another one comes in its place."""
        client = client or self.draws.pick(self.processes)
        if not client.running:
            return
        self.world.sometimes("sharing.process crashed")
        if any(each.holdings for each in self.living() if each.client is client):
            self.world.sometimes("sharing.process crashed with something in hand")
        client.crash()
        self.world.after(self.draws.draw(4 * SECOND), client.name, "start", client.start)

    def die(self, client: SimClient | None = None) -> None:
        """A process and the broker that it talks to are gone in one moment."""
        client = client or self.draws.pick(self.processes)
        broker = self.world.brokers[client.addresses[0]]
        if client.running and broker.running:
            self.world.sometimes("sharing.died with its broker")
            broker.crash(self.draws.draw(1 + broker.disk.unsynced))
            self.crash(client)

    def crash_broker(self) -> None:
        """The broker is gone, with a part of what it has written, or none; its processes go on."""
        broker = self.world.brokers[self.client.addresses[0]]
        if not broker.running:
            return
        if self.draws.chance(0.3):
            self.world.sometimes("sharing.broker was killed")
            broker.kill()
        else:
            self.world.sometimes("sharing.broker crashed")
            broker.crash(self.draws.draw(1 + broker.disk.unsynced))

    def break_link(self, client: SimClient | None = None) -> None:
        """A process loses its link."""
        client = client or self.draws.pick(self.processes)
        for link in list(self.world.network.client_links.values()):
            if link.client is client:
                self.world.sometimes("sharing.link broke")
                if any(each.holdings for each in self.living() if each.client is client):
                    self.world.sometimes("sharing.link broke with something in hand")
                link.reset("cut")

    def stand_still(self) -> None:
        """A process stands still for a while."""
        client = self.draws.pick(self.processes)
        if client.running:
            self.world.sometimes("sharing.stood still")
            client.pause(self.draws.pick((300, 2_000, 7_000, 18_000)) * MILLISECOND)

    def leave(self) -> None:
        """Somebody says goodbye, in order or with something in hand, or all of a subscription do; and come back."""
        living = [each for each in self.living() if each.attached]
        if not living:
            return
        draws, chosen = self.draws, self.draws.pick(living)
        leaving = [chosen]
        if draws.chance(0.3):
            self.world.sometimes("sharing.all left")
            leaving = [each for each in living if each.row is chosen.row]
        for each in leaving:
            if draws.chance(0.5):
                self._leave_in_order(each)
            else:
                if each.holdings:
                    self.world.sometimes("sharing.left with something in hand")
                each.leave()
            back = draws.draw(6 * SECOND)
            self.world.after(back, each.client.name, "join", self.join, each.client, each.row, life=each.client.life)

    def _leave_in_order(self, consumer: SharedConsumer) -> None:
        self.world.sometimes("sharing.left in order")
        consumer.drain()
        consumer.settle(list(consumer.holdings.values()), Kind.ACKNOWLEDGE)
        self.world.after(self.draws.draw(SECOND), consumer.client.name, "leave", consumer.leave)

    def remove(self) -> None:
        """A shared subscription is removed, under its consumers."""
        rows = [row for row in self.shared if not row.ended and row.created]
        if rows and self.client.running and self.client.core.connected:
            self.world.sometimes("sharing.removed")
            row = self.draws.pick(rows)
            row.ended = True
            self.world.observe.ending(row)
            number = self.client.core.unsubscribe(row.name, self.client.name, self.client.monotonic())
            self.client.ask(number, lambda _: self._on_removed(row), lambda _: None)

    def _on_removed(self, row: SharedRow) -> None:
        row.removed = True

    def finish(self) -> None:
        """Everybody takes part, and settles all there is."""
        for process in self.processes:
            if not process.running:
                process.start()
        super().finish()
        for process in self.running:
            for row in self.shared:
                former = self.sharers.get((process.name, row.number))
                if former is not None and former.alive and former.is_idle:
                    former.leave()
                self.join(process, row)
        for consumer in self.living():
            kept = self.workload.kept.get(consumer.row.number)
            done = [each for each in consumer.holdings.values() if each is not kept]
            if done:
                consumer.settle(done, Kind.ACKNOWLEDGE)
            consumer.take()

    def _on_sharer_over(self, consumer: SharedConsumer, error: GaplessError) -> None:
        """It was removed, or has lapsed, or the process ends."""
        row, client = consumer.row, consumer.client
        if isinstance(error, ConnectionClosedError) or row.ended:
            return
        if isinstance(error, SubscriptionNotFoundError):
            row.created = False
        elif not isinstance(error, SubscriptionInUseError | SubscriptionTakenOverError):
            raise error
        self.world.after(SECOND, client.name, "join", self.join, client, row, life=client.life)


class Sharing(Applications[SharingApplication]):
    """The applications of one world. As an oracle it also sees what comes of it."""

    name = "sharing"

    def __init__(self, world: World) -> None:
        self.kept: dict[int, Holding] = {}
        """With what one consumer of each row is busy until all else is settled."""
        self.keepers: dict[int, SharedConsumer] = {}
        stream = world.choices.stream(f"workload/{self.name}/world")
        self.is_gentle = stream.chance(0.3)
        """Whether brokers die seldom, and what a process holds is soon given to others: many events kill."""
        self.expiring = stream.chance(0.2)
        """Whether events expire: then nobody consumes anything alone."""
        self.holds_end = stream.chance(0.3)
        self.windows = stream.pick((WINDOWS, (1, 2), (4_096,), (3, 300)))
        super().__init__(world)
        self.judge = next((each for each in world.observe.oracles if isinstance(each, V1SharedDelivery)), None)

    def habits(self) -> Habits:
        """How somebody takes part."""
        draws = self.draws
        habits = Habits(
            hold_ms=draws.pick((0, 700, 3_000)) if self.holds_end else 0,
            resume_ms=300 if self.is_gentle else draws.pick((5_000, 5_000, 300, 30_000)),
            credit_events=draws.pick((64, 1, 3, 10)),
            credit_bytes=draws.pick((1 << 20, 200, 5_000)),
            portion=draws.pick((1, 1, 3, 8)),
            tasks=draws.pick((4, 1, 2, 12)),
        )
        return replace(habits, resume_ms=5_000, hold_ms=0) if self.in_liveness else habits

    def on_held(self, consumer: SharedConsumer, handed: list[Holding]) -> None:
        """Decides what becomes of what was handed out together."""
        draws, world, client = self.draws, self.world, consumer.client
        if any(each.redelivered for each in handed):
            world.sometimes("sharing.redelivered")
        if any(each.count > 2 for each in handed):
            world.sometimes("sharing.delivered three times")
        if any(each.gap is not None for each in handed):
            world.sometimes("sharing.gap")
        if self.in_liveness:
            left = [each for each in handed if not self._keeps(consumer, each)]
            world.after(draws.draw(20) * MILLISECOND, client.name, "settle", consumer.settle, left, Kind.ACKNOWLEDGE)
            return
        what = draws.draw(40)
        if what == 0:
            world.sometimes("sharing.process crashed as it was handed something")
            application = self._of(client)
            end = application.die if draws.chance(0.4) and not self.is_gentle else application.crash
            world.after(draws.draw(20) * MILLISECOND, client.name, "dies", end, client, life=client.life)
            return
        if self.is_poison(handed):
            world.sometimes("sharing.poison")
            world.after(draws.draw(3) * MILLISECOND, client.name, "dies", self._of(client).crash, client)
            return
        if what == 2 and not self.is_gentle:
            crash = self._of(client).crash_broker
            world.after(draws.draw(10) * MILLISECOND, client.name, "crash of its broker", crash)
        if what == 1:
            application = self._of(client)
            world.after(draws.draw(20) * MILLISECOND, client.name, "cut", application.break_link, client)
        groups = [handed] if draws.chance(0.5) else [[each] for each in handed]
        for group in groups:
            self._work(consumer, group)

    def is_poison(self, handed: list[Holding]) -> bool:
        """Whether a process dies of one of these: it does not for ever."""
        one_in = POISON_GENTLE if self.is_gentle else POISON
        return any(
            each.count <= POISON_MOST and each.gap is None and key_of(each.body) % one_in == 0 for each in handed
        )

    def _work(self, consumer: SharedConsumer, group: list[Holding]) -> None:
        draws, world, client = self.draws, self.world, consumer.client
        time = draws.pick((0, 5, 5, 100, 1_000, 6_000)) * MILLISECOND
        kind, delay_ms = Kind.ACKNOWLEDGE, 0
        what = draws.draw(20)
        if what == 0:
            world.sometimes("sharing.forgot")
            return
        if what in {1, 2, 3}:
            world.sometimes("sharing.retried")
            kind = Kind.RETRY
            if what == 3:
                world.sometimes("sharing.retried later")
                delay_ms = draws.pick((1, 400, 3_000))
        else:
            world.sometimes("sharing.acknowledged several at once" if len(group) > 1 else "sharing.acknowledged")
        if consumer.habits.hold_ms and draws.chance(0.3):
            world.sometimes("sharing.extended")
            world.after(time // 2, client.name, "extend", consumer.extend, life=client.life)
        world.after(time, client.name, "settle", consumer.settle, group, kind, delay_ms, life=client.life)

    def settling(self, consumer: SharedConsumer, holding: Holding) -> None:
        """Somebody is about to settle something: maybe it dies at once."""
        client = consumer.client
        if not self.in_liveness and self.draws.chance(0.03):
            self.world.sometimes("sharing.process crashed as it acknowledged")
            application = self._of(client)
            end = self.draws.pick((application.crash, application.die, application.break_link))
            wait = self.draws.draw(20) * MILLISECOND // 4
            self.world.after(wait, client.name, "dies", end, client, life=client.life)

    def verdict_answered(self, consumer: SharedConsumer, holding: Holding) -> None:
        """What became of it."""
        if holding.outcome is Outcome.LOST:
            self.world.sometimes("sharing.lost its hold")

    def _keeps(self, consumer: SharedConsumer, holding: Holding) -> bool:
        """Whether somebody is busy with this until all else is settled: the others have to go on meanwhile."""
        row = consumer.row
        others = [each for each in self._of(consumer.client).living() if each.row is row and each is not consumer]
        has_room = row.window >= 4 * len(self.world.brokers) * self.world.options.pubends and row.durable
        plain = holding.count == 1 and holding.gap is None and not consumer.habits.hold_ms and not self.expiring
        if row.number in self.kept or not has_room or not plain or not others or consumer.habits.tasks < 2:
            return False
        self.world.sometimes("sharing.one long job")
        self.kept[row.number], self.keepers[row.number] = holding, consumer
        return True

    def _finish(self) -> None:
        for number, holding in list(self.kept.items()):
            keeper = self.keepers[number]
            if self.judge is None or not keeper.holds(holding.number) or not self.judge.waits_for_others(holding):
                keeper.settle([holding], Kind.ACKNOWLEDGE)
        super()._finish()

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """Nobody takes a plain subscription away but its own client."""
        if not self.has(consumer.client):
            return
        if not isinstance(error, ConnectionClosedError | SubscriptionInUseError | SubscriptionTakenOverError):
            raise Violation("V1", f"{consumer.lane} lost its subscription: {type(error).__name__}: {error}")

    def _of(self, client: SimClient) -> SharingApplication:
        return next(each for each in self.applications if client in each.processes)

    def begin(self) -> None:
        """The other processes start somewhat later."""
        super().begin()
        for application in self.applications:
            for process in application.processes[1:]:
                self.world.after(self.draws.draw(6 * SECOND), process.name, "start", process.start)

    def _application(self, client: SimClient, number: int) -> SharingApplication:
        return SharingApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        draws, number = self.draws, self.row_number()
        application = draws.pick(self.applications)
        terms: Terms = EVERYTHING if draws.chance(0.6) else draw_terms(draws)
        if draws.chance(0.25) and not self.expiring and self.world.options.subscription_expiry_seconds is None:
            plain = Row(
                number, application.client.name, f"plain-{number}", terms.topics, terms.selector, terms.matches, start
            )
            application.keep(plain)
            return
        row = SharedRow(
            number,
            application.client.name,
            f"jobs-{number}",
            terms.topics,
            terms.selector,
            terms.matches,
            start,
            draws.pick(self.windows),
            durable=not draws.chance(0.1),
        )
        if not row.durable:
            self.world.sometimes("sharing.not durable")
        application.share(row)

    def _act(self, application: SharingApplication) -> None:
        what = self.draws.draw(60)
        if what == 0 or (self.is_gentle and what <= 2):
            application.crash()
        elif what == 1:
            application.die()
        elif what == 2:
            application.crash_broker()
        elif what <= 4:
            application.break_link()
        elif what <= 6:
            application.stand_still()
        elif what <= 9:
            application.leave()
        elif what == 10 and self.draws.chance(0.2):
            application.remove()
        else:
            self._publish(application)

    def _publish(self, application: SharingApplication) -> None:
        if self.expiring and self.draws.chance(0.3):
            self.world.sometimes("sharing.expiring")
            publication = self.publications.write_to(application.outbox.topic)
            broker = self.world.brokers[application.client.addresses[0]]
            expiration = broker.node_clock.wall(self.world.now) + self.draws.pick((1, 300, 2_000, 20_000))
            headers = {**publication.headers, "expiration": expiration}
            application.outbox.publications.append(
                Publication(publication.key, publication.topic, publication.properties, publication.padding, headers)
            )
        application.publish()
