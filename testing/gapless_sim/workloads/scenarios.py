"""The workload of life scenarios: several small applications at a time, each with a life that one can read.

Where a random mix comes to everything in the long run, a scenario goes at once to where it hurts: a twin that
only stood still, a database that is put back from a backup, a report that comes after everything is gone.
There is always somebody who publishes; the rest is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless_sim.workloads import (
    scenario_beginning,
    scenario_book,
    scenario_ending,
    scenario_operating,
    scenario_outages,
    scenario_publishing,
    scenario_reading,
    scenario_returning,
    scenario_sharing,
    scenario_troubling,
)
from gapless_sim.workloads.scenario_book import Book, Scenario
from gapless_sim.workloads.scenario_ending import Ending, StoriesEnd

if TYPE_CHECKING:
    from gapless_sim.world import World

PROBES: tuple[str, ...] = (
    *scenario_book.PROBES,
    *scenario_publishing.PROBES,
    *scenario_reading.PROBES,
    *scenario_beginning.PROBES,
    *scenario_sharing.PROBES,
    *scenario_operating.PROBES,
    *scenario_troubling.PROBES,
    *scenario_outages.PROBES,
    *scenario_returning.PROBES,
    *scenario_ending.PROBES,
)
"""What should happen sometimes."""

KINDS: tuple[type[Scenario], ...] = (
    *scenario_reading.SCENARIOS,
    *scenario_sharing.SCENARIOS,
    *scenario_beginning.SCENARIOS,
    *scenario_operating.SCENARIOS,
    *scenario_publishing.SCENARIOS,
)
"""Every kind of scenario."""

LATER_SHARE = 0.5
"""So many worlds have a scenario that came later than the others."""

TROUBLE = {**scenario_troubling.TROUBLE, **scenario_outages.TROUBLE, **scenario_returning.TROUBLE}
"""Those that have the world for themselves, by the names that options have for them."""


class Scenarios:
    """The scenarios of one world."""

    def __init__(self, world: World, kinds: Sequence[type[Scenario]] | None = None) -> None:
        """`kinds`: exactly these scenarios; else they are drawn."""
        self._world = world
        self.book = Book(world)
        self.scenarios = [kind(self.book, number + 1) for number, kind in enumerate(kinds or self._draw())]
        self.ending = Ending(self.book)
        world.observe.add(StoriesEnd(self.ending))

    def _draw(self) -> list[type[Scenario]]:
        """Somebody who publishes, somebody who reads, and whoever else comes along; or what the run is about."""
        draws, scenario = self._world.choices.stream("workload"), self._world.options.scenario
        if scenario:
            return [TROUBLE[scenario]]
        kinds: list[type[Scenario]] = [
            draws.pick(scenario_publishing.SCENARIOS),
            draws.pick(scenario_reading.SCENARIOS),
        ]
        kinds += [draws.pick(KINDS) for _ in range(draws.between(1, self._world.options.subscriptions))]
        later = self._world.choices.stream("workload/later")
        if later.chance(LATER_SHARE):
            kinds.append(later.pick(scenario_publishing.LATER))
        return kinds

    def begin(self) -> None:
        """The applications start, whether or not there is a broker."""
        self._world.note("world", "scenarios", ", ".join(scenario.name for scenario in self.scenarios))
        for client in self._world.clients.values():
            client.on_start = self.book.begin
            client.start()

    def calm(self) -> None:
        """All scenarios come to their end."""
        self.ending.begin()
