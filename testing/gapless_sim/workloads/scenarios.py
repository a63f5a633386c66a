"""The workload of life scenarios: several small applications at a time, each with a life that one can read.

Where a random mix comes to everything in the long run, a scenario goes at once to where it hurts: a process that
only stood still, a database that is put back from a backup, a report that comes after everything is gone.
There is always somebody who publishes; the rest is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless_sim.workloads import (
    scenario_end,
    scenario_operators,
    scenario_outages,
    scenario_publishers,
    scenario_readers,
    scenario_returns,
    scenario_sharers,
    scenario_starts,
    scenario_state,
    scenario_troubles,
)
from gapless_sim.workloads.scenario_end import Ending, ScenariosEnd
from gapless_sim.workloads.scenario_state import Scenario, ScenarioState

if TYPE_CHECKING:
    from gapless_sim.world.world import World

SOMETIMES: tuple[str, ...] = (
    *scenario_state.SOMETIMES,
    *scenario_publishers.SOMETIMES,
    *scenario_readers.SOMETIMES,
    *scenario_starts.SOMETIMES,
    *scenario_sharers.SOMETIMES,
    *scenario_operators.SOMETIMES,
    *scenario_troubles.SOMETIMES,
    *scenario_outages.SOMETIMES,
    *scenario_returns.SOMETIMES,
    *scenario_end.SOMETIMES,
)
"""What should happen sometimes."""

KINDS: tuple[type[Scenario], ...] = (
    *scenario_readers.SCENARIOS,
    *scenario_sharers.SCENARIOS,
    *scenario_starts.SCENARIOS,
    *scenario_operators.SCENARIOS,
    *scenario_publishers.SCENARIOS,
)
"""Every kind of scenario."""

LATER_SHARE = 0.5
"""So many worlds have a scenario that came later than the others."""

TROUBLE = {**scenario_troubles.TROUBLE, **scenario_outages.TROUBLE, **scenario_returns.TROUBLE}
"""Those that have the world for themselves, by the names that options have for them."""


class Scenarios:
    """The scenarios of one world."""

    def __init__(self, world: World, kinds: Sequence[type[Scenario]] | None = None) -> None:
        """`kinds`: exactly these scenarios; else they are drawn."""
        self._world = world
        self.state = ScenarioState(world)
        self.scenarios = [kind(self.state, number + 1) for number, kind in enumerate(kinds or self._draw())]
        self.ending = Ending(self.state)
        world.observe.add(ScenariosEnd(self.ending))

    def _draw(self) -> list[type[Scenario]]:
        """Somebody who publishes, somebody who reads, and whoever else comes along; or what the run is about."""
        draws, scenario = self._world.choices.stream("workload"), self._world.options.scenario
        if scenario:
            return [TROUBLE[scenario]]
        kinds: list[type[Scenario]] = [
            draws.pick(scenario_publishers.SCENARIOS),
            draws.pick(scenario_readers.SCENARIOS),
        ]
        kinds += [draws.pick(KINDS) for _ in range(draws.between(1, self._world.options.subscriptions))]
        later = self._world.choices.stream("workload/later")
        if later.chance(LATER_SHARE):
            kinds.append(later.pick(scenario_publishers.LATER))
        return kinds

    def begin(self) -> None:
        """The applications start, whether or not there is a broker."""
        self._world.note("world", "scenarios", ", ".join(scenario.name for scenario in self.scenarios))
        for client in self._world.clients.values():
            client.on_start = self.state.begin
            client.start()

    def begin_liveness(self) -> None:
        """All scenarios come to their end."""
        self.ending.begin()
