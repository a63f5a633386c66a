"""Scenarios of those who return to what has changed behind them: a position, a subscription, an owner."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import InUse
from gapless.errors import SubscriptionNotFoundError, SubscriptionTakenOverError
from gapless_sim.workloads.scenario_filters import INTERESTS, only
from gapless_sim.workloads.scenario_scripts import attached, either, over
from gapless_sim.workloads.scenario_troubles import Troubled
from gapless_sim.world.consumer import Consumer
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row

SOMETIMES = (
    "scenario.restorer.went back just behind its acknowledgement",
    "scenario.exchange.removed behind its back",
    "scenario.exchange.came back to nothing",
    "scenario.usurper.took over unheard",
    "scenario.usurper.the other one went on",
    "scenario.usurper.took over from itself",
    "scenario.crowd.came back together",
)


class Returning(Troubled):
    """There is always something to read."""

    def plan(self) -> None:
        """How much."""
        self.pause_ms = self.draws.pick((60, 30, 150))
        self.cast()
        self.begin_plot()

    def cast(self) -> None:
        """Who reads."""
        raise NotImplementedError

    def plot(self) -> Script:
        """One word after the other."""
        while True:
            yield self.time(1, self.pause_ms)
            self.due = 1


class Restorer(Returning):
    """Puts its database back from a backup the moment it has acknowledged, while others come and go beside it.

    So the SHB lets go of what it knows about those ticks just when they are asked for.
    """

    kind = "restorer"

    def cast(self) -> None:
        """One who reads and goes back, and one who comes and goes, so that the SHB writes down what is released."""
        self.row = self.subscription(INTERESTS[0])
        self.beside = self.state.row(self.client, f"{self.name}/beside", only("nobody"))
        disk = self.world.options.disk  # which is busy with something else, so that reads take their time
        self.world.options = replace(self.world.options, disk=replace(disk, read_time=50 * MILLISECOND))
        self.part(self.live)

    def live(self, client: SimClient) -> Script:
        """Reads for a while, and goes back a little."""
        while True:
            consumer = yield from self.state.attach(client, self.row)
            other = yield from self.state.attach(client, self.beside)
            assert consumer is not None, "nobody removes it"
            assert other is not None, "nor this one"
            yield either(self.world, over(consumer), self.time(200, 1_500))
            if self.row.tokens:
                consumer.leave()
                self._go_back()
                again = Consumer(client, self.row, self.state.wanted(self.row))
                yield self.time(1, 60)
                other.leave()
                yield either(self.world, attached(again), 5 * SECOND)
                yield self.time(50, 500)
                again.leave()
            else:
                consumer.leave()
                other.leave()

    def _go_back(self) -> None:
        self.sometimes("went back just behind its acknowledgement")
        kept = self.draws.draw(len(self.row.tokens))
        self.row.token = self.row.tokens[kept]
        del self.row.tokens[kept:]


class Exchange(Returning):
    """While it has lost its link, its second process removes its subscription, and makes another one."""

    kind = "exchange"

    def cast(self) -> None:
        """The one who is away for a moment, and the one who does that to it."""
        self.row = self._new_row()
        self.successor: Row | None = None
        self.consumer: Consumer | None = None
        self.part(self.live)
        self.part(self.exchange, self.state.other_process(self.client))

    def _new_row(self) -> Row:
        self.rounds += 1
        return self.state.row(self.client, f"{self.name}/{self.rounds}", only("nobody"))

    def live(self, client: SimClient) -> Script:
        """Waits for what nobody says; and makes a new subscription once it knows that the one before is gone."""
        while True:
            if self.row.ended:
                self.row = self._new_row()
            self.consumer = yield from self.state.attach(client, self.row)
            if self.consumer is None:
                continue
            yield over(self.consumer)
            self.sometimes("came back to nothing")
            self.state.check(self.consumer.error, SubscriptionNotFoundError)
            yield self.time(10, 500)

    def exchange(self, client: SimClient) -> Script:
        """Removes, makes another one, and leaves it before the first process comes back."""
        while True:
            yield self.time(200, 2_000)
            if self.consumer is None or not self.consumer.attached or self.consumer.over or self.row.ended:
                continue
            self.sometimes("removed behind its back")
            self.client.pause(self.time(300, 4_000))
            self.world.network.reset_links(self.client)
            yield from self.state.unsubscribe(client, self.row)
            self.successor = self.state.row(self.client, f"{self.name}/{self.rounds}b", INTERESTS[0])
            following = yield from self.state.attach(client, self.successor)
            if following is not None:
                following.leave()
            yield self.time(1_000, 6_000)
            yield from self.state.unsubscribe(client, self.successor)


class Usurper(Returning):
    """Takes a subscription over from a process that does not notice it, and goes on saying what it has read.

    What that one acknowledges no longer counts: its successor has come back to an older token. Nor does it count
    that it has room for more events, and what it says of that may even be of the same session: a process whose
    reading hangs takes its subscription over from itself, and just then the reading goes on.
    """

    kind = "usurper"

    def cast(self) -> None:
        """The one who acknowledges what it has not committed, and the one who takes over."""
        self.row = self.subscription(INTERESTS[0])
        self.consumer: Consumer | None = None
        # A stream of its own, for it came later: what was drawn before it is what it was.
        self.turns = self.world.choices.stream(f"workload.{self.name}/turns")
        self.window = self.turns.pick((0, 4, 12))
        self.successors_window = self.turns.pick((0, 4, 12))
        self.part(self.live)
        self.part(self.usurp, self.state.other_process(self.client))

    def live(self, client: SimClient) -> Script:
        """Reads slowly, and commits seldom."""
        habits: dict[str, Any] = {"acknowledges": "early", "commit_every": 20, "portion": 1, "pace": 150 * MILLISECOND}
        while True:
            self.consumer = yield from self.state.attach(client, self.row, window=self.window, **habits)
            assert self.consumer is not None, "nobody removes it"
            yield over(self.consumer)
            self.state.check(self.consumer.error, SubscriptionTakenOverError)
            yield self.time(500, 2_000)

    def usurp(self, client: SimClient) -> Script:
        """Takes over, reads hardly anything, and leaves again."""
        while True:
            yield self.time(1_000, 4_000)
            first = self.consumer
            if first is None or first.over or not first.core.buffered_events:
                continue
            if self.turns.chance(0.4):
                yield from self._succeed(first)
            else:
                yield from self._usurp(client, first)

    def _usurp(self, client: SimClient, first: Consumer) -> Script:
        broker, network = self.client.addresses[0], self.world.network
        self.sometimes("took over unheard")
        network.cut(broker, self.client.name)
        second = yield from self.state.attach(
            client, self.row, in_use=InUse.TAKEOVER, window=self.successors_window, acknowledges="never", pace=SECOND
        )
        assert second is not None, "nobody removes it"
        yield self.time(1_000, 4_000)
        if not first.over:
            self.sometimes("the other one went on")
        network.heal(broker, self.client.name)
        second.leave()

    def _succeed(self, first: Consumer) -> Script:
        """Its reading hangs until all that it has room for is there; it goes on when it is succeeded."""
        first.stopped = True
        yield either(self.world, over(first), self.time(300, 900))
        self.sometimes("took over from itself")
        wanted = self.state.wanted(self.row, InUse.TAKEOVER, self.successors_window)
        second = Consumer(self.client, self.row, wanted, acknowledges="never", pace=SECOND)
        first.go_on()
        yield attached(second)
        yield self.time(1_000, 4_000)
        second.leave()


class Crowd(Returning):
    """Several subscriptions of one kind go away together, and come back together; one of them takes its time.

    What they missed, the SHB reads for all of them at once, in a hurry: it keeps next to nothing in memory.
    """

    kind = "crowd"

    def cast(self) -> None:
        """Some who want the same, and one who takes it slowly."""
        names = [f"{self.name}/{number}" for number in range(2 + self.draws.draw(3))]
        self.rows = [self.state.row(self.client, name, INTERESTS[0]) for name in names]
        self.slow = self.state.row(self.client, f"{self.name}/slow", INTERESTS[0])
        disk = self.world.options.disk
        self.world.options = replace(self.world.options, disk=replace(disk, read_time=10 * MILLISECOND))
        self.part(self.live)
        self.part(self.dawdle, self.state.other_process(self.client))

    def live(self, client: SimClient) -> Script:
        """They read, leave, and come back, all in one moment."""
        for row in self.rows:
            consumer = yield from self.state.attach(client, row)
            assert consumer is not None, "nobody removes it"
            consumer.leave()
        while True:
            yield self.time(500, 3_000)
            again = [Consumer(client, row, self.state.wanted(row)) for row in self.rows]
            self.sometimes("came back together")
            yield self.time(200, 2_000)
            for consumer in again:
                consumer.leave()

    def dawdle(self, client: SimClient) -> Script:
        """Takes one event at a time, with pauses, and then what has gathered."""
        while True:
            pace = self.draws.pick((30, 200)) * MILLISECOND
            consumer = yield from self.state.attach(client, self.slow, window=2, portion=1, pace=pace)
            assert consumer is not None, "nobody removes it"
            yield either(self.world, over(consumer), self.time(1_000, 4_000))
            consumer.leave()


TROUBLE: dict[str, type[Troubled]] = {
    "crowd": Crowd,
    "restorer": Restorer,
    "exchange": Exchange,
    "usurper": Usurper,
}
"""By the names that options have for them."""
