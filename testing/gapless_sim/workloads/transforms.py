"""The workload `transforms`: applications that consume, and publish what follows, without a database.

It is run when it is asked for by its name, and draws from a stream of its own: no other run depends on it. Each client
has two processes, and any of them may run any of its transforms: a rival may begin at any time, while the first one
works, stands still or is dead. Brokers die, too, now and then together with the processes of a client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gapless.core.wire.messages import StartAt
from gapless.errors import (
    ConnectionClosedError,
    PublisherFencedError,
    PublishUncertainError,
    SubscriptionInUseError,
    SubscriptionTakenOverError,
)
from gapless_sim.recording.observation import Violation
from gapless_sim.workloads.filters import PATTERNS, SELECTORS, combine
from gapless_sim.workloads.publications import TOPICS
from gapless_sim.workloads.rivals import RivalledApplication, RivalledApplications
from gapless_sim.world.consumer import Row
from gapless_sim.world.options import MILLISECOND
from gapless_sim.world.producer import Outbox, Producer
from gapless_sim.world.transform import Recipe, Transform

if TYPE_CHECKING:
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Consumer

SOMETIMES = (
    "transforms.published",
    "transforms.began from a stored position",
    "transforms.began beside a rival",
    "transforms.rival stood still",
    "transforms.stood still with outputs unsent",
    "transforms.fenced",
    "transforms.input taken over",
    "transforms.input taken back",
    "transforms.process crashed",
    "transforms.client and broker died together",
    "transforms.moved on later",
    "transforms.stored silence",
)

INPUTS = [pattern for pattern in PATTERNS if pattern[0] in {"a.#", "a.*", "*.b.#", "b.b.c"}]
"""None of them matches an output: no transform consumes what it or another one publishes."""


class TransformingApplication(RivalledApplication):
    """One client: an outbox with inputs for others, and its transforms, of which no database knows anything."""

    def __init__(self, workload: Transforms, client: SimClient, number: int) -> None:
        super().__init__(workload, client)
        self.recipes: list[Recipe] = []
        self.running: dict[int, list[Transform]] = {}
        """The transforms of each recipe that are not over, as far as their processes know."""
        self.outbox = Outbox(f"out-{number}", self.draws.pick(TOPICS))
        self.rival.on_start = self._start_transforms

    def start(self, client: SimClient) -> None:
        """A process begins: it publishes, and maybe runs a transform."""
        self.producer = Producer(client, self.outbox)
        self.producer.on_over = self._on_producer_over
        self._start_transforms(client)

    def _start_transforms(self, client: SimClient) -> None:
        for recipe in self.recipes:
            if self.draws.chance(0.5):
                self.transform(client, recipe)

    def add(self, number: int, start: StartAt) -> None:
        """One more transform."""
        selector, matches = self.draws.pick(SELECTORS)
        terms = combine([self.draws.pick(INPUTS)], self.draws.pick(("", selector)), matches)
        if not terms.selector:
            terms = combine([pattern for pattern in INPUTS if pattern[0] == terms.topics[0]], "", lambda _: True)
        name = f"transform-{number}"
        row = Row(number, self.client.name, name, terms.topics, terms.selector, terms.matches, start)
        row.keeps_token = False
        recipe = Recipe(number, row, Outbox(name, f"output.of.{number}", common=True))
        self.recipes.append(recipe)
        for process in self.processes[:1]:
            self.transform(process, recipe)

    def transform(self, client: SimClient, recipe: Recipe) -> None:
        """A process runs a transform, whoever else does."""
        living = self.running.setdefault(recipe.number, [])
        living[:] = [transform for transform in living if transform.alive]
        if any(transform.client is client for transform in living):
            return
        if living:
            self.world.sometimes("transforms.began beside a rival")
        portion = self.draws.pick((1, 2, 2, 3, 8))
        pace = self.draws.pick((0, 20, 300, 900)) * MILLISECOND
        transform = Transform(client, recipe, portion=portion, pace=pace)
        transform.on_over = self._on_fenced
        living.append(transform)

    def crash(self) -> None:
        """A process dies; maybe both, and maybe the broker that they are at."""
        draws, dying = self.draws, self.processes
        if not dying:
            return
        if draws.chance(0.5):
            dying = [draws.pick(dying)]
        elif draws.chance(0.5):
            self.world.sometimes("transforms.client and broker died together")
            broker = self.world.brokers[self.client.addresses[0]]
            broker.crash(draws.draw(1 + broker.disk.unsynced))
        for process in dying:
            self.world.sometimes("transforms.process crashed")
            process.crash()
            self.world.after(draws.between(50, 3_000) * MILLISECOND, process.name, "start", process.start)

    def go_over(self) -> None:
        """A process begins with a transform that another one runs, which may stand still meanwhile."""
        draws, able = self.draws, self.processes
        if not able or not self.recipes:
            return
        client, recipe = draws.pick(able), draws.pick(self.recipes)
        for transform in self.running.get(recipe.number, ()):
            if transform.alive and transform.client is not client:
                if draws.chance(0.5):
                    transform.on_made = partial(self._stand_still, transform, client)
                    return
                self.world.sometimes("transforms.rival stood still")
                transform.client.pause(draws.between(50, 6_000) * MILLISECOND)
        self.transform(client, recipe)

    def _stand_still(self, transform: Transform, rival: SimClient) -> None:
        """A process stands still between making something and sending it, and a rival takes over meanwhile."""
        self.world.sometimes("transforms.stood still with outputs unsent")
        transform.client.pause(self.draws.between(50, 3_000) * MILLISECOND)
        if rival.running:
            self.transform(rival, transform.recipe)

    def finish(self) -> None:
        """What was not handed to the publisher yet is; each transform runs somewhere, and stores where it stands."""
        super().finish()
        for recipe in self.recipes:
            living = [transform for transform in self.running.get(recipe.number, ()) if transform.alive]
            for transform in living:
                transform.hurry()
                transform.store_silence()
            if not any(transform.client.core.connected for transform in living):
                for process in self.connected[:1]:
                    self.transform(process, recipe)

    def idle(self) -> None:
        """Some transform has had no input for a while."""
        for transforms in self.running.values():
            for transform in transforms:
                if self.draws.chance(0.3):
                    transform.store_silence()

    def settled(self) -> bool:
        """Whether each transform runs."""
        return all(
            any(transform.working for transform in self.running.get(recipe.number, ())) for recipe in self.recipes
        )

    def _on_fenced(self, producer: Producer, error: GaplessError) -> None:
        if isinstance(error, PublisherFencedError):
            self.world.sometimes("transforms.fenced")
        elif not isinstance(error, PublishUncertainError):
            raise error

    def _on_producer_over(self, _producer: Producer, error: GaplessError) -> None:
        if not isinstance(error, PublishUncertainError):
            raise error


class Transforms(RivalledApplications[TransformingApplication]):
    """The applications of one world."""

    name = "transforms"
    missing = "a transform has no process"

    def lost_subscription(self, consumer: Consumer, error: GaplessError) -> None:
        """A rival has taken the input over, or its process ends."""
        if not self.has(consumer.client):
            return
        if isinstance(error, SubscriptionTakenOverError):
            self.world.sometimes("transforms.input taken over")
        elif not isinstance(error, ConnectionClosedError | SubscriptionInUseError):  # a rival may just be creating it
            raise Violation("J3", f"{consumer.lane} lost its input: {type(error).__name__}: {error}")

    def _application(self, client: SimClient, number: int) -> TransformingApplication:
        return TransformingApplication(self, client, number)

    def _add(self, start: StartAt) -> None:
        self.draws.pick(self.applications).add(self.row_number(), start)

    def _act(self, application: TransformingApplication) -> None:
        if self.draws.chance(0.04):
            application.crash()
        elif self.draws.chance(0.1):
            application.go_over()
        else:
            application.publish()
        if self.draws.chance(0.05):
            application.idle()
