"""Small worlds for tests of the workload `churn`: one broker, and applications that do what a test says."""

from __future__ import annotations

from typing import Any

from gapless_sim.faults.schedule import Faults
from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.churn import Churn
from gapless_sim.workloads.churn_application import Application, SecondProcess
from gapless_sim.workloads.churn_consumers import Habits
from gapless_sim.workloads.churn_relays import OutboxRelay
from gapless_sim.workloads.churn_state import ChurnState
from gapless_sim.workloads.churn_subscriptions import AppSubscription
from gapless_sim.world.application import SimClient
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.world_builder import build


class ChurnFixture:
    """A world in which a test directs one application with two processes, and another with one."""

    def __init__(self, **fields: Any) -> None:
        self.world = build(Options(1, clients=2, **fields), Choices(1, {}), Trace(keep=True))
        self.state = ChurnState(self.world)
        first, other = self.world.clients.values()
        second = SecondProcess(first)
        self.world.clients[second.name] = second
        self.application = Application(self.state, [first, second])
        self.other = Application(self.state, [other])
        for broker in self.world.brokers.values():
            broker.boot()
        for client in self.world.clients.values():
            client.start()
        self.run(1)

    @property
    def first(self) -> SimClient:
        return self.application.processes[0]

    @property
    def second(self) -> SimClient:
        return self.application.processes[1]

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + int(seconds * SECOND))

    def hold(self, name: str | None = "one", *, habits: Habits | None = None, **fields: Any) -> AppSubscription:
        """A subscription to everything, consumed by the first process."""
        row = Row(self.state.row_number(), self.application.name, name, ("#",), "", lambda *_: True, **fields)
        subscription = AppSubscription(self.state, row, habits or Habits(), self.application.changed_at)
        self.application.subscriptions.append(subscription)
        subscription.home = self.first
        subscription.consume(self.first)
        self.run(1)
        return subscription

    def relay(self, *, named: bool = True) -> OutboxRelay:
        """An outbox, worked off by the first process."""
        number = len(self.application.relays) + 1
        relay = OutboxRelay(self.state, self.application.name, number, named=named, topic="a")
        self.application.relays.append(relay)
        relay.open(self.first)
        self.run(1)
        return relay

    def publish(self, relay: OutboxRelay, count: int) -> None:
        relay.put([self.state.publications.write() for _ in range(count)])


class Play:
    """A run of the whole workload, with as many faults as the options say."""

    def __init__(self, options: Options, choice_sequences: Any = None) -> None:
        self.world = build(options, Choices(options.seed, choice_sequences), Trace())
        self.churn = Churn(self.world)
        self.faults = Faults(self.world)
        self.churn.begin()
        self.faults.begin()
        for broker in self.world.brokers.values():
            self.world.after(SECOND // 2, broker.name, "boot", broker.boot)

    def perform(self) -> None:
        """Up to the moment when faults stop."""
        self.world.run_until(self.world.options.duration)
