"""A sink that numbers its own batches, as a task of a batch engine does: it publishes under keys, and repeats itself.

An epoch's publications are in its database before the first of them is published, so every attempt has the same ones
in the same order. It cuts them differently each time. An epoch is repeated when its process dies, when it is not sure
that it was done, and now and then by a second attempt beside the first. In the end each publication must be logged
once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.stream.columns import EventColumns
from gapless.errors import ConnectionClosedError, PublishRejectedError
from gapless_sim.world.options import MILLISECOND

if TYPE_CHECKING:
    from gapless.core.wire.messages import KeyedPublished
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.choices import Stream
    from gapless_sim.world.producer import Publication

SOMETIMES = (
    "sink.all of a part was logged before",
    "sink.epoch repeated",
    "sink.part logged",
    "sink.part of a part was logged before",
    "sink.two attempts at once",
)


@dataclass(slots=True, eq=False)
class Epochs:
    """What a sink keeps in its database."""

    name: str
    topic: str
    epoch: int = 0
    publications: list[Publication] = field(default_factory=list)
    """Of the epoch that is not done; none: the next one has not begun."""


class Sink:
    """The producer of one database, in one process. To oracles it is a publisher."""

    waiting = 0
    """Nobody demands an answer of it: it is repeated until there is one."""

    def __init__(self, client: SimClient, outbox: Epochs, draws: Stream, write: Callable[[str], Publication]) -> None:
        self.client = client
        self.outbox = outbox
        self.name = outbox.name
        self.over = False
        self.in_liveness = False
        """Whether no new epoch is begun."""
        self._draws = draws
        self._write = write
        self._attempts = 0
        self._begin()

    def _begin(self) -> None:
        """The next epoch, or the one that was not done once more."""
        if self.over:
            return
        epochs, draws = self.outbox, self._draws
        if epochs.publications:
            self.client.world.sometimes("sink.epoch repeated")
        elif self.in_liveness:
            return
        else:
            epochs.epoch += 1
            epochs.publications = [self._write(epochs.topic) for _ in range(draws.between(1, 12))]
        self._attempts = 1
        Attempt(self, list(epochs.publications))
        if draws.chance(0.2):
            self.client.world.sometimes("sink.two attempts at once")
            self._attempts += 1
            Attempt(self, list(epochs.publications))

    def done(self) -> None:
        """An attempt has come to its end."""
        self._attempts -= 1
        if self._attempts:
            return
        if not self._draws.chance(0.25):
            self.outbox.publications = []
        self._later(self._begin, self._draws.draw(1500))

    def fail(self, error: GaplessError) -> None:
        """Its pubend is gone; or its process ends. Whoever starts the sink again repeats the epoch."""
        if self.over or isinstance(error, ConnectionClosedError):
            return
        if not isinstance(error, PublishRejectedError):
            raise error
        self.over = True

    def write(self, count: int) -> int:
        """How many publications the next part has, of so many."""
        return min(count, self._draws.between(1, 5))

    def _later(self, call: Callable[[], None], milliseconds: int) -> None:
        def go_on() -> None:
            call()
            self.client.pump()

        world = self.client.world
        at = max(world.now + (1 + milliseconds) * MILLISECOND, self.client.paused_until)
        world.at(at, self.client.name, "sink", go_on, life=self.client.life)


class Attempt:
    """One time that an epoch is published, from its beginning, a part after the other."""

    def __init__(self, sink: Sink, publications: list[Publication]) -> None:
        self._sink = sink
        self._publications = publications
        self._epoch = sink.outbox.epoch
        self._at = 0
        self._part: list[Publication] = []
        self._publish()

    def _publish(self) -> None:
        client, at = self._sink.client, self._at
        part = self._part = self._publications[at : at + self._sink.write(len(self._publications) - at)]
        for publication in part:
            if publication.published_at < 0:
                publication.published_at = client.world.now
            publication.sender = self._sink.name
        for start in range(len(part)):  # what was logged before is cut off by the broker
            client.world.observe.published(self._sink, part[start:])
        columns = EventColumns.of(
            [publication.event for publication in part], [len(publication.body) for publication in part]
        )
        epochs = self._sink.outbox
        number = client.core.ranges.publish(epochs.name, self._epoch, at, epochs.topic, columns, client.monotonic())
        client.ask(number, self._on_published, self._sink.fail)

    def _on_published(self, answer: KeyedPublished) -> None:
        sink, part = self._sink, self._part
        ticks = [run.first + run.step * at for run in answer.ticks for at in range(run.count)]
        before = len(part) - len(ticks)
        outcome = "part logged" if not before else "part of a part was logged before"
        sink.client.world.sometimes(f"sink.{outcome if ticks else 'all of a part was logged before'}")
        for publication, tick in zip(part, [0] * before + ticks, strict=True):
            sink.client.world.observe.receipted(sink, publication, answer.pubend, tick, durable=bool(answer.durable))
        self._at += len(part)
        if self._at < len(self._publications):
            self._publish()
        else:
            sink.done()
