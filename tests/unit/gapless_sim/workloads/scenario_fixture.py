"""A fixture that runs scenarios: one broker, four clients, and nothing that goes wrong by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless_sim.recording.observation import Oracle
from gapless_sim.recording.trace import Trace
from gapless_sim.workloads.scenario_state import Scenario
from gapless_sim.workloads.scenarios import Scenarios
from gapless_sim.world.choices import Choices
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import SECOND, Options
from gapless_sim.world.producer import key_of
from gapless_sim.world.world_builder import build

if TYPE_CHECKING:
    from gapless.core.stream.knowledge import Knowledge
    from gapless_sim.world.world import World


class Log(Oracle):
    """What is in the logs: the keys of all publications, in the order in which they came to light."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.keys: list[int] = []
        self._seen: set[tuple[str, int]] = set()

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """A PHB has said it."""
        data = knowledge.data
        for tick, event, length in zip(data.ticks, data.events, data.body_lengths, strict=True):
            if (knowledge.pubend, tick) not in self._seen:
                self._seen.add((knowledge.pubend, tick))
                self.keys.append(key_of(event[len(event) - length :]))


class ScenarioFixture:
    """Runs exactly these scenarios."""

    def __init__(self, *kinds: type[Scenario], seed: int = 1, **options: Any) -> None:
        self.options = Options(seed, workload="scenarios", clients=4, **options)
        self.trace = Trace()
        self.world = build(self.options, Choices(seed), self.trace)
        self.scenarios = Scenarios(self.world, kinds)
        self.state = self.scenarios.state
        self.ending = self.scenarios.ending
        self.log = Log(self.world)
        self.world.observe.add(self.log)
        self.broker = self.world.brokers["node1"]

    @property
    def hits(self) -> dict[str, int]:
        """The rare turns that came, without the word `scenario` before them."""
        return {name.removeprefix("scenario."): count for name, count in self.world.hits.items()}

    def begin(self, boot_after: int = 0) -> ScenarioFixture:
        """The applications start, and the broker after a while."""
        self.scenarios.begin()
        self.world.after(boot_after, "node1", "boot", self.broker.boot)
        return self

    def rest(self, seconds: float) -> ScenarioFixture:
        """Lets time pass."""
        self.world.run_until(self.world.now + int(seconds * SECOND))
        return self

    def end(self, seconds: int = 60) -> ScenarioFixture:
        """Brings all scenarios to their end, however long it takes."""
        for client in self.world.clients.values():
            client.paused_until = 0
            client.start()
        self.scenarios.begin_liveness()
        for _ in range(2 * seconds):
            self.rest(0.5)
            if not self.ending.missing():
                break
        return self.rest(3)

    def row(self, name: str) -> Row:
        """The newest row of that name."""
        return next(row for row in reversed(self.state.rows) if row.name == name)

    def publications(self) -> list[int]:
        """The keys of all publications that were ever written."""
        return [publication.key for assigned in self.state.outboxes for publication in assigned.outbox.publications]

    def play(self, seconds: float = 25) -> ScenarioFixture:
        """The whole scenario, from its beginning to its end."""
        return self.begin().rest(seconds).end()


def play_until(
    *turns: str, kinds: tuple[type[Scenario], ...], seconds: float = 25, **options: Any
) -> list[ScenarioFixture]:
    """Plays with one seed after the other until each of these turns has come; every scenario must come to its end."""
    fixtures: list[ScenarioFixture] = []
    missing = set(turns)
    for seed in range(1, 40):
        fixture = ScenarioFixture(*kinds, seed=seed, **options).play(seconds)
        assert fixture.ending.missing() == [], f"seed {seed}"
        fixtures.append(fixture)
        missing -= fixture.hits.keys()
        if not missing:
            return fixtures
    raise AssertionError(f"never happened: {sorted(missing)}")
