"""Applications of the workload `churn` that leave their position to the broker, and die together with it.

In some worlds only. What is drawn comes from a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gapless_sim.workloads.churn_consumers import ChurnGatherer
from gapless_sim.workloads.churn_state import is_able
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless_sim.workloads.churn_application import Application
    from gapless_sim.workloads.churn_state import ChurnState
    from gapless_sim.workloads.churn_subscriptions import AppSubscription
    from gapless_sim.world.application import SimClient

SHARE: Final = 0.4
"""Of the worlds."""
SOMETIMES: Final = (
    "churn.consumed in mode auto",
    "churn.consumed in mode client",
    "churn.recovered",
    "churn.client and broker died together",
)


class Commits:
    """Who is consumed in which mode, who recovers what it was handed, and who dies with its broker."""

    def __init__(self, state: ChurnState, applications: Sequence[Application]) -> None:
        self._state = state
        self._applications = applications
        self._draws = state.world.choices.stream("workload/commits")
        self.on = self._draws.chance(SHARE)
        """Whether there are any in this world."""

    def begin(self) -> None:
        """Plans what happens first."""
        if self.on:
            self._plan()

    def choose(self, subscription: AppSubscription) -> None:
        """A new subscription may be one whose position the broker keeps; so it stays, whatever it is for."""
        if not self.on or not subscription.durable or not self._draws.chance(0.6):
            return
        mode = self._draws.pick(("auto", "client"))
        subscription.mode = mode
        subscription.row.keeps_token = False
        self._state.sometimes(f"consumed in mode {mode}")

    def _plan(self) -> None:
        mean = int(4 * SECOND / self._state.world.options.rate)
        self._state.world.after(self._draws.delay(mean // 4, mean), "world", "commits", self._act)

    def _act(self) -> None:
        if self._state.in_liveness:
            return
        if self._draws.chance(0.9):
            self._recover()
        else:
            self._die()
        self._plan()

    def _recover(self) -> None:
        """An application wants all that it was handed, and has not acknowledged, once more."""
        able = [
            (subscription, consumer)
            for application in self._applications
            for subscription in application.living()
            for consumer in subscription.alive()
            if isinstance(consumer, ChurnGatherer)
            and consumer.attached
            and consumer.is_durable()
            and consumer.row is subscription.row
            and is_able(consumer.client)
        ]
        if able:
            subscription, consumer = self._draws.pick(able)
            subscription.recover(consumer)
            self._state.sometimes("recovered")

    def _die(self) -> None:
        """A process and the broker that it talks to are gone in one moment, as where the broker is embedded."""
        able = [process for application in self._applications for process in application.able()]
        if not able:
            return
        process: SimClient = self._draws.pick(able)
        broker = self._state.world.brokers[process.addresses[0]]
        if broker.running:
            self._state.sometimes("client and broker died together")
            broker.crash(self._draws.draw(1 + broker.disk.unsynced))
            process.crash()
            wait = self._draws.between(1, 3_000) * MILLISECOND
            self._state.world.after(wait, process.name, "start", process.start)
