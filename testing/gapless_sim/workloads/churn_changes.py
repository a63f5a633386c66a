"""Applications of the workload `churn` that want other events than before under the same name, or none of their own.

In some worlds only. What is drawn comes from a stream of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gapless.core.wire.messages import InUse, OnChange
from gapless_sim.workloads.changes import WAYS, changed, leave_out
from gapless_sim.workloads.churn_state import is_able
from gapless_sim.workloads.filters import draw_terms
from gapless_sim.world.options import SECOND

if TYPE_CHECKING:
    from gapless_sim.workloads.churn_application import Application
    from gapless_sim.workloads.churn_state import ChurnState
    from gapless_sim.world.consumer import Row

SHARE: Final = 0.4
"""Of the worlds."""
SOMETIMES: Final = (
    "churn.changed: keep_position",
    "churn.changed: keep_position, from a token",
    "churn.changed: keep_position, taken over",
    "churn.changed: jms",
    "churn.changed under a consumer",
    "churn.identified",
    "churn.no_local",
)


class Changes:
    """Who changes what, now and then."""

    def __init__(self, state: ChurnState, applications: Sequence[Application]) -> None:
        self._state = state
        self._applications = applications
        self._draws = state.world.choices.stream("workload/changes")
        self.on = self._draws.chance(SHARE)
        """Whether there are any in this world."""
        for application in applications if self.on else ():
            if self._draws.chance(0.6):
                state.identified.add(application.name)
                state.sometimes("identified")

    def begin(self) -> None:
        """Plans the first change."""
        if self.on:
            self._plan()

    def leave_out(self, row: Row) -> None:
        """A new subscription may be for no events of its own."""
        if self.on and self._draws.chance(0.3):
            leave_out(row)
            self._state.sometimes("no_local")

    def _plan(self) -> None:
        mean = int(4 * SECOND / self._state.world.options.rate)
        self._state.world.after(self._draws.delay(mean // 4, mean), "world", "change", self._change)

    def _change(self) -> None:
        if self._state.in_liveness:
            return
        able = [application for application in self._applications if application.able()]
        if able:
            self._change_one(self._draws.pick(able))
        self._plan()

    def _change_one(self, application: Application) -> None:
        draws = self._draws
        may = [
            subscription
            for subscription in application.living()
            if subscription.durable and subscription.row.created and subscription.is_certain()
        ]
        if not may:
            return
        subscription, process = draws.pick(may), draws.pick(application.able())
        way = draws.pick(WAYS)
        terms = draw_terms(draws)
        row = changed(subscription.row, self._state.row_number(), terms, way, draws)
        if row is None:
            return
        in_use = draws.pick((InUse.ERROR, InUse.TAKEOVER))
        for consumer in list(subscription.alive()):
            is_own = consumer.client is process
            if (way is OnChange.JMS and is_able(consumer.client)) or (is_own and in_use is InUse.ERROR):
                subscription.depart(consumer)
        what = f"changed: {way.value}"
        self._state.sometimes(what)
        if way is OnChange.KEEP_POSITION and row.token is not None:
            self._state.sometimes(f"{what}, from a token")
        if way is OnChange.KEEP_POSITION and subscription.attached_consumer() is not None:
            self._state.sometimes(f"{what}, taken over")
        subscription.change(row, process, in_use)
