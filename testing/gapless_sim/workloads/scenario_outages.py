"""Scenarios of brokers that go down at the worst moment, cannot be reached, or do not come back as themselves.

What happens by chance elsewhere is aimed here: the power goes just when an application has its answer, the
way back to a pubend is cut while events are lost on the way there, and an administrator gives an SHB up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless_sim.faults.administrator import retire, shb_of
from gapless_sim.workloads.scenario_filters import INTERESTS
from gapless_sim.workloads.scenario_scripts import either, over
from gapless_sim.workloads.scenario_troubles import Troubled
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless_sim.workloads.scenario_scripts import Script
    from gapless_sim.world.application import SimClient

SOMETIMES = (
    "scenario.outage.when a subscription was given",
    "scenario.outage.when events were acknowledged",
    "scenario.outage.when a subscription was being removed",
    "scenario.steady.the power went behind its last acknowledgement",
    "scenario.oneway.nothing was answered for long",
    "scenario.behind.knew less than its consumers",
    "scenario.replaced.retired while it was cut off",
    "scenario.replaced.another machine",
    "scenario.replaced.another machine, and the old one retired",
)


class Outage(Troubled):
    """The power goes at its broker just when it was promised something, or was about to be."""

    kind = "outage"

    def plan(self) -> None:
        """How much time there is between one thing and the other, at most."""
        self.within_ms = self.draws.pick((300, 20, 3))
        self.row = self.subscription(INTERESTS[0])
        self.begin_plot()
        self.part(self.live)

    def plot(self) -> Script:
        """There is always something to read."""
        while True:
            yield self.time(10, 400)
            self.due = 1

    def live(self, client: SimClient) -> Script:
        """Subscribes, reads and unsubscribes; and the power goes at one of these."""
        while True:
            if self.row.number in self.state.leaving:
                yield from self.state.unsubscribe(client, self.row)
            if self.row.ended:
                self.row = self.subscription(INTERESTS[0])
            moment = self.draws.pick(("given", "acknowledged", "removed", "given"))
            consumer = yield from self.state.attach(client, self.row)
            if consumer is None:
                continue
            if moment == "given":
                self.sometimes("when a subscription was given")
                self._cut_power(client)
            yield either(self.world, over(consumer), self.time(300, 4_000))
            if consumer.over:
                yield from self.lost(client, self.row, consumer.error)
                continue
            if moment == "acknowledged":
                self.sometimes("when events were acknowledged")
                consumer.commit()
                self._cut_power(client)
                yield self.time(100, 3_000)
            consumer.leave()
            if moment == "removed":
                self.sometimes("when a subscription was being removed")
                self._cut_power(client)
            if moment == "removed" or self.draws.chance(0.7):
                yield from self.state.unsubscribe(client, self.row)
            yield self.time(10, 1_500)

    def _cut_power(self, client: SimClient) -> None:
        """At once, or a moment later."""
        broker = self.world.brokers[client.addresses[0]]
        wait = self.draws.draw(3) * self.draws.draw(self.within_ms) * MILLISECOND // 2
        self.world.after(wait, broker.name, "power cut", broker.crash, life=broker.life)


class Steady(Troubled):
    """Is there to the very end, and acknowledges only what it is handed; and its last word goes down with its broker.

    Nothing that it does afterwards says again what it has acknowledged: its client has to.
    """

    kind = "steady"

    def plan(self) -> None:
        """One who reads, and is not interested in silence."""
        self.row = self.state.row(self.client, self.name, INTERESTS[0])
        self.begin_plot()
        self.part(self.read)

    def read(self, client: SimClient) -> Script:
        """Reads, and stays."""
        consumer = yield from self.state.attach(client, self.row)
        if consumer is not None:
            self.state.staying[self.row.number] = consumer

    def plot(self) -> Script:
        """Words now and then; the last one shortly before the liveness phase, and when it was taken the power goes."""
        end = self.world.options.duration - self.time(500, 1_000)
        while self.world.now < end:
            self.due = 1
            yield max(MILLISECOND, min(self.time(100, 3_000), self.until(end)))
        taken = self.state.ledger.taken[self.row.number]
        self.due = 1
        yield lambda: self.state.ledger.taken[self.row.number] > taken
        yield self.time(0, 250)
        self.sometimes("the power went behind its last acknowledgement")
        self.world.brokers[self.client.addresses[0]].crash()


class Two(Troubled):
    """Somebody reads at each of two SHBs; whoever speaks is at the first, and trouble comes to the second."""

    def plan(self) -> None:
        """Who is where."""
        self.client = self.state.clients[0]
        self.far_client = self.state.clients[1]
        self.shb = self.world.brokers[self.far_client.addresses[0]]
        self.begin_plot()
        for client in (self.client, self.far_client):
            self.part(self.read, client)

    def read(self, client: SimClient) -> Script:
        """One subscription after the other, if it has to be."""
        while True:
            self.rounds += 1
            yield from self.follow(client, self.state.row(client, f"{self.name}/{self.rounds}", INTERESTS[0]))

    def talk(self, least_ms: int, most_ms: int) -> Script:
        """Words all the time, as long as that."""
        end = self.world.now + self.time(least_ms, most_ms)
        while self.world.now < end:
            self.due = 1
            yield self.time(10, 200)


class OneWay(Two):
    """Events are lost on their way to an SHB, and its wants do not arrive for many seconds."""

    kind = "oneway"

    def plot(self) -> Script:
        """First nothing gets there, then nothing gets back."""
        network = self.world.network
        there, back = (self.phb.name, self.shb.name), (self.shb.name, self.phb.name)
        while True:
            yield from self.talk(500, 3_000)
            network.cut(*there)
            yield from self.talk(100, 1_000)
            network.cut(*back)
            network.heal(*there)
            yield from self.talk(4_000, 14_000)
            self.sometimes("nothing was answered for long")
            network.heal(*back)


class Behind(Two):
    """An SHB comes back from a power cut, and its pubends cannot be reached: its consumers know more than it does."""

    kind = "behind"

    def plot(self) -> Script:
        """Again and again."""
        network = self.world.network
        ways = ((self.phb.name, self.shb.name), (self.shb.name, self.phb.name))
        while True:
            yield from self.talk(500, 3_000)
            for way in ways:
                network.cut(*way)
            self.shb.crash()
            yield from self.talk(500, 4_000)
            self.sometimes("knew less than its consumers")
            for way in ways:
                network.heal(*way)


class Replaced(Two):
    """An administrator gives an SHB up: one that cannot be reached just now, or one whose machine is lost."""

    kind = "replaced"

    def plot(self) -> Script:
        """Once, some time."""
        how = self.draws.pick(("cut off", "replaced", "replaced and retired"))
        yield from self.talk(2_000, 6_000)
        if how == "cut off":
            yield from self._retire_cut_off()
        elif self.shb.running:
            self._replace(retired=how != "replaced")
        yield from self.talk(1_000, 20_000)

    def _retire_cut_off(self) -> Script:
        """Nobody reaches it, so it is given up; meanwhile the others go on, and what it misses is gone."""
        network = self.world.network
        others = [broker for broker in self.world.brokers.values() if broker is not self.shb]
        ways = [way for other in others for way in ((self.shb.name, other.name), (other.name, self.shb.name))]
        for way in ways:
            network.cut(*way)
        yield from self.talk(200, 3_000)
        retire(self.shb, shb_of(self.shb))
        self.sometimes("retired while it was cut off")
        yield from self.talk(500, 4_000)
        for way in ways:
            network.heal(*way)

    def _replace(self, *, retired: bool) -> None:
        """Its disk is gone with it. Another machine takes its name; the old one is retired, if anybody thinks of it."""
        self.shb.kill()
        if retired:
            retire(self.shb, shb_of(self.shb))
        self.sometimes("another machine, and the old one retired" if retired else "another machine")
        self.shb.replace_disk()


TROUBLE: dict[str, type[Troubled]] = {
    "outage": Outage,
    "steady": Steady,
    "oneway": OneWay,
    "behind": Behind,
    "replaced": Replaced,
}
"""By the names that options have for them."""
