"""A transform in a client's process: consumes, and publishes what follows, with its position in its own batches.

There is no database. A `Recipe` is the program: what it consumes, and what it makes of each input, the same in every
process and every time. Its position is where its pubend has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.client import Delivery, Gap
from gapless.core.client.consuming.transforming import TAKEN_OVER, TransformPositions
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.messages import InUse
from gapless.core.wire.tokens import CheckpointToken
from gapless_sim.world.consumer import Consumer, Row
from gapless_sim.world.producer import Outbox, Producer, Publication, key_of

if TYPE_CHECKING:
    from gapless.core.client.link import effects as e
    from gapless.core.wire.tokens import Tokens
    from gapless.errors import GaplessError
    from gapless_sim.world.application import SimClient

OUTPUTS = 1 << 32
"""The keys of outputs begin here: others are counted from 1 on."""
OUTPUTS_MOST = 4
"""Of one input."""
UNANSWERED_MOST = 3
"""How many batches are on their way before the next input is taken."""


@dataclass(slots=True, eq=False)
class Recipe:
    """What a transform does, whichever process runs it."""

    number: int
    """From 1 on, unique."""
    row: Row
    """Its subscription: no database keeps a token of it."""
    outbox: Outbox
    """Its publisher's name and topic; there are no publications in it."""
    made: dict[int, tuple[Publication, ...]] = field(default_factory=dict)
    """The outputs of each input, by its key, as they are each time."""

    def outputs(self, key: int) -> tuple[Publication, ...]:
        """What is made of the input with that key: nothing, or one output, or two."""
        made = self.made.get(key)
        if made is None:
            first = (self.number * OUTPUTS + key) * OUTPUTS_MOST
            made = tuple(Publication(first + index, self.outbox.topic, {}) for index in range((key * 7 + 3) % 3))
            self.made[key] = made
        return made


def input_of(output: int) -> tuple[int, int, int] | None:
    """The number of the recipe, the key of the input, and which of its outputs this is; None: it is no output."""
    rest, index = divmod(output, OUTPUTS_MOST)
    number, key = divmod(rest, OUTPUTS)
    return (number, key, index) if number else None


class Transform(Producer):
    """A process that runs a recipe. As a producer it has only what it made of its input."""

    def __init__(self, client: SimClient, recipe: Recipe, *, portion: int, pace: int) -> None:
        """Opens the publisher. `portion`: inputs at once; `pace`: nanoseconds between two batches."""
        super().__init__(client, recipe.outbox)
        self.recipe = recipe
        self.portion = portion
        self.pace = pace
        self.consumer: InputConsumer | None = None
        self.on_made: Callable[[], None] | None = None
        """Called once, when it has made something and not sent it yet."""
        self._positions: TransformPositions | None = None

    @property
    def has_room(self) -> bool:
        """Whether one more batch may be on its way."""
        return self._positions is None or len(self._positions) < UNANSWERED_MOST

    @property
    def working(self) -> bool:
        """Whether it has its input, and nobody has taken it over, as far as it knows."""
        return self.alive and self.open and self.consumer is not None and self.consumer.works

    def on_answered(self, ready: e.PublisherReady) -> None:
        """It is open: from now on no rival stores anything. It goes on from what is stored."""
        super().on_answered(ready)
        for token in ready.tokens:
            self.client.world.observe.stored(self, token)
        self._opened(ready.tokens)

    def _opened(self, tokens: Tokens) -> None:
        if tokens:
            self.client.world.sometimes("transforms.began from a stored position")
        self._consume(tokens)

    def _consume(self, tokens: Tokens) -> None:
        if not self.over:
            row = self.recipe.row
            wanted = row.wanted(in_use=InUse.TAKEOVER, token=tokens[-1] if tokens else None)
            self.consumer = InputConsumer(self, row, wanted)
            self.consumer.on_over = self._lost_input

    def _lost_input(self, _consumer: Consumer, error: GaplessError) -> None:
        """If it was taken over, the answer to its last batch tells whether by a rival; else it is over."""
        positions = self._positions
        can_ask = self.alive and self.client.core.publisher(self.number) is not None
        if positions is None or not can_ask or not isinstance(error, TAKEN_OVER):
            self.end()
        elif positions.lost_input():
            self._publish([], positions.token)

    def attached(self, position: CheckpointToken) -> None:
        """Its input is attached, or attached again."""
        if self._positions is None:
            self._positions = TransformPositions(position)
        else:
            self._positions.took_back()

    def take(self, item: Delivery | Gap, position: CheckpointToken) -> None:
        """An input, and the position behind it."""
        assert self._positions is not None
        keys = [key_of(event.body) for event in item.events()] if isinstance(item, Delivery) else []
        outputs = [output for key in keys for output in self.recipe.outputs(key)]
        if outputs or self._positions.moved(position):
            self._publish(outputs, position)
        elif len(self._positions):
            self.client.world.sometimes("transforms.moved on later")

    def made(self) -> None:
        """It has made something of an input, which leaves at the end of this turn."""
        on_made, self.on_made = self.on_made, None
        if on_made is not None:
            on_made()

    def hurry(self) -> None:
        """From now on it takes its input as fast as it comes."""
        if self.pace and self.consumer is not None:
            self.pace = 0
            self.consumer.go_on()

    def store_silence(self) -> None:
        """Nothing came for a while: the position behind the silence is stored."""
        consumer, positions = self.consumer, self._positions
        if self.working and consumer is not None and positions is not None and not len(positions):
            position = consumer.token()
            if position != positions.token:
                self.client.world.sometimes("transforms.stored silence")
                self._publish([], position)

    def _publish(self, outputs: Sequence[Publication], position: CheckpointToken) -> None:
        """All outputs of an input and its position go as one batch (TS11)."""
        assert self._positions is not None
        self._positions.sent(position)
        self._send(outputs, (position,))

    def _send(self, outputs: Sequence[Publication], tokens: Tokens) -> None:
        client, world = self.client, self.client.world
        if self.over:
            return
        for publication in outputs:
            if publication.published_at < 0:
                publication.published_at = world.now
            publication.sender = self.name
        if outputs:
            world.observe.published(self, outputs)
        columns = EventColumns.of(
            [publication.event for publication in outputs], [len(publication.body) for publication in outputs]
        )
        ticket = client.core.publish(self.number, columns, tokens, client.monotonic())
        self._tickets[ticket] = outputs
        client.schedule_pump()

    def on_receipted(self, receipted: e.Receipted) -> None:
        """A batch and its position are durable: the input may be released up to there (TS10)."""
        super().on_receipted(receipted)
        positions, consumer = self._positions, self.consumer
        assert positions is not None
        assert consumer is not None
        stored = positions.receipted()
        self.client.world.observe.stored(self, stored)
        if consumer.works:
            consumer.acknowledge(stored.ticks)
        owed = positions.owed()
        if owed is not None:
            self._publish([], owed)
        if positions.takes_back():
            self.client.world.sometimes("transforms.input taken back")
            self._consume((consumer.token(),))
        elif consumer.works:
            consumer.go_on(self.pace)

    def on_not_published(self, refused: e.NotPublished) -> None:
        """A batch is not logged: nothing behind it may be."""
        super().on_not_published(refused)
        self.end()

    def on_failed(self, error: GaplessError) -> None:
        """It is fenced, or its process ends."""
        super().on_failed(error)
        self.end()

    def end(self) -> None:
        """It is over: it consumes no more, and publishes no more."""
        if self.consumer is not None:
            self.consumer.leave()
        self.close()


class InputConsumer(Consumer):
    """The input of a transform."""

    def __init__(self, transform: Transform, row: Row, wanted: object) -> None:
        self.transform = transform
        super().__init__(
            transform.client,
            row,
            wanted,  # type: ignore[arg-type]
            pace=transform.pace,
            portion=transform.portion,
            acknowledges="never",
        )

    @property
    def works(self) -> bool:
        """Whether it is attached, and nobody has taken it over, as far as it knows."""
        return self.attached and not self.over

    def on_answered(self, attached: e.Attached) -> None:
        """It has its input."""
        super().on_answered(attached)
        self.transform.attached(self.token())

    def commit(self) -> None:
        """There is no database."""

    def _take_one(self) -> bool:
        if not self.transform.has_room or not self.transform.alive:
            return False
        item = self.client.core.take(self.number, self.client.monotonic(), self.portion)
        if item is None:
            return False
        self.client.world.observe.handed_out(self, item)
        if isinstance(item, (Delivery, Gap)):
            self.transform.take(item, self.token())
            self.transform.made()
        return not self.over
