"""Scenarios of trouble that comes at the worst moment: a disk that stands still, and a power cut just then.

Each brings its own faults, aimed at what is under way between a write and the end of its sync; apart from
that nothing goes wrong in a run that is about one of them (`Options.scenario`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.gauges import values_by
from gapless.core.wire.messages import StartAt
from gapless_shb.core.state import gauges
from gapless_sim.workloads.scenario_filters import INTERESTS, METER_TOPICS
from gapless_sim.workloads.scenario_publishers import Publishing
from gapless_sim.workloads.scenario_readers import Reading
from gapless_sim.workloads.scenario_scripts import either, over
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer, Row

SOMETIMES = (
    "scenario.beacon.power cut, nothing was written",
    "scenario.beacon.power cut with batches under way",
    "scenario.beacon.clock behind",
    "scenario.beacon.sync failed",
    "scenario.newcomer.came before it was counted",
    "scenario.newcomer.came when it was counted",
    "scenario.newcomer.power cut",
    "scenario.newcomer.cut off again",
    "scenario.archive.came while the disk stood still",
    "scenario.archive.power cut",
)


class Troubled(Publishing, Reading):
    """A publisher who says a word when the plot asks for it, and a PHB that the plot gives trouble to."""

    def begin_plot(self) -> None:
        """The plot, which sees it all, begins with the world."""
        self.words = self.outbox(METER_TOPICS)
        self.due = 0
        """How many words are to be said."""
        hosts = [broker for broker in self.world.brokers.values() if "phb" in broker.roles]
        self.phb: SimBroker = self.draws.pick(hosts)
        self.part(self.speak)
        self.state.runner.run(self.plot(), self.name)

    def plot(self) -> Script:
        """What happens, again and again."""
        raise NotImplementedError

    def speak(self, client: SimClient) -> Script:
        """Says what is due."""
        producer = yield from self.open(client, self.words)
        while not producer.over:
            yield lambda: self.due > 0
            self.write(self.words, self.due)
            self.due = 0
            while producer.publish(1):
                pass
            yield 10 * MILLISECOND

    def follow(self, client: SimClient, row: Row) -> Script:
        """Takes and acknowledges everything at once."""
        while not row.ended:
            consumer = yield from self.state.attach(client, row)
            if consumer is not None:
                yield over(consumer)
                yield from self.lost(client, row, consumer.error)

    def until(self, time: int) -> int:
        """How long to wait for a time; 0 if it is over."""
        return max(0, time - self.world.now)

    def cut_power(self, phb: SimBroker) -> None:
        """The power goes, mostly with everything that was not synced."""
        keep = self.draws.draw(1 + phb.disk.unsynced) if self.draws.chance(0.3) else 0
        phb.crash(keep)


class Beacon(Troubled):
    """Says a word once in a while, to a disk that stands still for seconds, or whose sync fails; then the power goes.

    The clock of a machine that boots is behind, until the network corrects it.
    """

    kind = "beacon"

    def plan(self) -> None:
        """One publisher, and a plot."""
        self.begin_plot()

    def plot(self) -> Script:
        """Rest, trouble, a power cut, and words at once."""
        while True:
            yield self.time(800, 3_500)
            self.due = self.draws.draw(2)
            yield self.time(100, 900)
            if not self.phb.listening:
                continue
            if self.draws.chance(0.3):
                yield from self._fail_a_sync()
            else:
                yield from self._stand_still()
            yield from self._pull_the_plug()

    def _stand_still(self) -> Script:
        """A word is written first, if there is one, and its sync ends first; the next one waits for longer."""
        phb, lasts = self.phb, self.time(1_000, 7_000)
        end = self.world.now + lasts
        phb.stall(end)
        if self.draws.chance(0.5):
            yield self.until(end + self.draws.pick((-30, 30)) * MILLISECOND)
            return
        self.due = 1
        yield self.time(20, 300)
        phb.stall(end + self.time(100, 1_000))
        yield self.draws.between(lasts // 2, lasts) // MILLISECOND * MILLISECOND
        self.due = 1
        yield self.until(end + self.draws.pick((30, -30, 90)) * MILLISECOND)

    def _fail_a_sync(self) -> Script:
        """The process ends with it; nothing that waited for it may count as durable."""
        self.sometimes("sync failed")
        self.phb.fail_disk("sync", "lost")
        self.due = 2
        yield self.time(5, 800)

    def _pull_the_plug(self) -> Script:
        phb = self.phb
        self.sometimes("power cut with batches under way" if phb.disk.unsynced else "power cut, nothing was written")
        self.cut_power(phb)
        behind = self.time(500, 8_000) // MILLISECOND if self.draws.chance(0.7) else 0
        phb.node_clock.jump(-behind)
        if behind:
            self.sometimes("clock behind")
        for _ in range(6):
            yield self.time(20, 500)
            self.due = 1
        yield self.time(0, 3_000)
        phb.node_clock.jump(behind)


class Newcomer(Troubled):
    """A second SHB appears for the first time while the PHB's disk stands still, and the first one goes on."""

    kind = "newcomer"

    def plan(self) -> None:
        """Who is there, and who comes."""
        self.client = self.state.clients[0]
        self.late_client = self.state.clients[1]
        self.shb = self.world.brokers[self.late_client.addresses[0]]
        self.early = self.draws.chance(0.5)
        """Whether somebody subscribes before it is counted."""
        self.lags = self.draws.chance(0.6)
        self.here = self.state.row(self.client, f"{self.name}/here", INTERESTS[0])
        self.there = self.state.row(self.late_client, f"{self.name}/there", INTERESTS[0])
        self.may_come = False
        self.begin_plot()
        self._cut_off()
        self.part(lambda client: self.follow(client, self.here))
        self.part(self.come, self.late_client)

    def come(self, client: SimClient) -> Script:
        """Subscribes when it may; it lags, or it does not."""
        while not self.there.ended:
            yield lambda: self.may_come
            acknowledges = "never" if self.lags else "at once"
            consumer = yield from self.state.attach(client, self.there, acknowledges=acknowledges)
            if consumer is not None:
                yield over(consumer)
                yield from self.lost(client, self.there, consumer.error)

    def plot(self) -> Script:
        """Comes once; then there are words enough to see whom the PHB waits for."""
        for _ in range(4):
            yield self.time(300, 900)
            self.due = 1
        self.may_come = self.early
        yield self.time(500, 1_500)
        yield from self._meet()
        while True:
            yield self.time(500, 3_000)
            self.due = 1

    def _meet(self) -> Script:
        world, phb = self.world, self.phb
        first = world.now + self.time(2_500, 3_500)
        last = first + self.time(1_000, 4_000)
        phb.stall(first)
        self.due = 1
        yield self.time(200, 400)
        phb.stall(last)
        self._let_in()
        if not self.early:
            yield either(world, self._is_counted, self.until(last) + 2 * SECOND)
            self.may_come = True
        self.sometimes("came before it was counted" if self.early else "came when it was counted")
        turn = self.draws.pick(("", "power cut", "cut off again"))
        if turn == "power cut":
            yield self.draws.between(0, max(1, self.until(last))) // MILLISECOND * MILLISECOND
            self.cut_power(phb)
        elif turn == "cut off again":
            yield self.until(last - 5 * MILLISECOND)
        if turn:
            self.sometimes(turn)
            self._cut_off()
            yield self.time(1_000, 5_000)
            self._let_in()

    def _is_counted(self) -> bool:
        """Whether the new SHB knows of the pubend."""
        return bool(values_by(self.shb.gauges(), gauges.HEAD, "pubend"))

    def _cut_off(self) -> None:
        network = self.world.network
        network.cut(self.phb.name, self.shb.name)
        network.cut(self.shb.name, self.phb.name)

    def _let_in(self) -> None:
        network = self.world.network
        network.heal(self.phb.name, self.shb.name)
        network.heal(self.shb.name, self.phb.name)


class Archive(Troubled):
    """Wants everything from the earliest on, just when all others are done with it; and the disk stands still."""

    kind = "archive"

    def plan(self) -> None:
        """One who is done with everything, and one who comes late."""
        self.done = self.state.row(self.client, f"{self.name}/done", INTERESTS[0])
        self.late: Row | None = None
        self.wanted = False
        self.late_consumer: Consumer | None = None
        self.begin_plot()
        self.part(lambda client: self.follow(client, self.done))
        self.part(self.look_back)

    def look_back(self, client: SimClient) -> Script:
        """Begins at the earliest and leaves at once; it comes back when what it wants would be gone without it."""
        while True:
            if self.late is not None and not self.late.ended:
                yield from self._read(client, self.late)
            yield lambda: self.wanted
            self.wanted = False
            self.rounds += 1
            self.late = self.subscription(INTERESTS[0], start=StartAt.EARLIEST)
            consumer = yield from self.state.attach(client, self.late, window=1, acknowledges="never")
            self.late_consumer = consumer
            if consumer is not None:
                consumer.leave()
            yield self.time(5_000, 8_000)

    def _read(self, client: SimClient, row: Row) -> Script:
        consumer = yield from self.state.attach(client, row)
        if consumer is not None:
            yield either(self.world, over(consumer), self.time(1_000, 2_000))
            consumer.commit()
            consumer.leave()
        yield from self.state.unsubscribe(client, row)

    def plot(self) -> Script:
        """Words, and when the first of them may go, the late one comes."""
        while True:
            for _ in range(self.draws.between(4, 8)):
                self.due = 1
                yield self.time(200, 800)
            yield self.time(0, 3_000)
            end = self.world.now + self.time(1_500, 4_000)
            self.phb.stall(end)
            if self.draws.chance(0.6):
                yield from self._come_late(end)
            if self.draws.chance(0.7):
                yield self.draws.between(0, max(1, self.until(end))) // MILLISECOND * MILLISECOND
                self.sometimes("power cut")
                self.cut_power(self.phb)
            yield self.time(7_000, 9_000)

    def _come_late(self, end: int) -> Script:
        self.sometimes("came while the disk stood still")
        self.late_consumer = None
        self.wanted = True
        yield either(self.world, lambda: self.late_consumer is not None, self.until(end) - 20 * MILLISECOND)


TROUBLE: dict[str, type[Troubled]] = {"beacon": Beacon, "newcomer": Newcomer, "archive": Archive}
"""By the names that options have for them."""
