"""A transform: consumes events, publishes outputs, and stores its position in the publisher's own batches.

The order of its steps makes it exactly-once (protocol: transforms; TS9 to TS11):

1. The publisher is opened first. From then on no rival can store anything.
2. The input is consumed from the token that the publisher has stored, and taken over from a rival.
3. The outputs of an input batch are one append, with the token behind that batch.
4. The input is acknowledged after the receipt, in order. Otherwise the system might release events that have to be
   read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from gapless.client.awaitable import ClosedWhenLeft
from gapless.client.batches import Batch
from gapless.core.client import Gap
from gapless.core.client.consuming.transforming import TAKEN_OVER, TransformPositions
from gapless.errors import GaplessError, PublisherFencedError, SubscriptionError
from gapless.tracing import Sending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from gapless.client.messages import Message
    from gapless.client.publisher import Publisher
    from gapless.client.receipts import Submission
    from gapless.client.subscription import Subscription
    from gapless.core.wire.tokens import CheckpointToken

GapT = TypeVar("GapT")
"""Gap, with `on_gap="deliver"`; otherwise Never."""

IDLE_SECONDS: Final = 5.0
"""After so long without input the position behind silence is stored and acknowledged, so that it can be released."""


class InputBatch(Batch):
    """Events of one pubend, of which a transform makes outputs."""

    __slots__ = ("_transform",)

    def __init__(self, batch: Batch, transform: Transform[Any]) -> None:
        """For gapless itself."""
        super().__init__(batch.pubend, batch._content, batch._origin, batch._positions)  # noqa: SLF001 - its own base
        self._transform = transform

    async def publish(self, messages: Iterable[Message]) -> None:
        """Publishes the outputs of this batch, in one append with the position behind it; once for each batch.

        Without messages, only the position moves on. It returns as soon as there is room for another batch; receipts
        are waited for at the end of the block. An error meanwhile is raised by the next call, by the iteration, or at
        the end of the block.

        Raises InvalidMessageError if the messages do not fit into one append: nothing was sent then, and a smaller
        `max_events` helps. Raises the errors of `Publisher.send_batch`, too; PublisherFencedError if another transform
        of this name has taken over.
        """
        await self._transform.publish(self, self._transform.outputs(messages))


class Transform(ClosedWhenLeft, Generic[GapT]):
    """Iterates over batches of its input: `async for batch in work: await batch.publish(…)`.

    Made by `Session.transform`. One task at a time may iterate.
    """

    def __init__(
        self,
        publisher: Publisher,
        subscription: Subscription[Any, GapT],
        attach: Callable[[CheckpointToken], Awaitable[Subscription[Any, GapT]]],
        max_events: int,
        max_wait: float,
    ) -> None:
        """For gapless itself. The publisher was open before the subscription was attached.

        `attach(token)`: attaches the input again, from `token`.
        """
        self._publisher = publisher
        self._subscription = subscription
        self._attach = attach
        self._draining = False
        self._max_events = max_events
        self._max_wait = max_wait
        self._positions = TransformPositions(subscription.token)
        self._in_hand: InputBatch | None = None
        """The batch that was handed out and not published."""
        self._unanswered: deque[tuple[Submission, Sending[Message]]] = deque()
        self._error: GaplessError | None = None
        self._changed: asyncio.Future[None] | None = None
        self._idle: asyncio.TimerHandle

    def __repr__(self) -> str:
        return f"<Transform {self.name!r} to {self._publisher.topic!r}>"

    @property
    def name(self) -> str:
        """The name of its publisher, and of its subscription."""
        return self._publisher.name

    @property
    def token(self) -> CheckpointToken:
        """The position behind everything that was published so far, with a receipt or without."""
        return self._positions.token

    def __aiter__(self) -> Transform[GapT]:
        return self

    async def __anext__(self) -> InputBatch | GapT:
        self._check()
        if self._in_hand is not None:
            raise SubscriptionError(
                "the batch before was not published: the next position covers it, so it would be lost;"
                " batch.publish(()) moves on without outputs"
            )
        try:
            batch = await self._take()
        except TAKEN_OVER as error:
            await self._take_back(error)
            batch = await self._take()
        if isinstance(batch, Gap):
            return cast("GapT", batch)
        self._in_hand = InputBatch(batch, self)
        return self._in_hand

    def drain(self) -> None:
        """Ends the iteration after the current batch. It is a plain call, for use in signal handlers."""
        self._draining = True
        self._subscription.drain()

    async def close(self) -> None:
        """Waits for all receipts, as `Publisher.close` does, acknowledges the input, and ends. Idempotent.

        A batch that was handed out and not published comes again. Raises the error of an earlier batch, and
        PublishUncertainError for batches without a receipt: at the next start the stored position shows which were
        logged.
        """
        try:
            await self._publisher.close()
            self._check()
            await self._subscription.close()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Ends now. Batches without a receipt may be logged or not; at the next start the stored position shows it."""
        self._subscription.abandon()
        self._publisher.abandon()
        for _, outputs in self._unanswered:
            outputs.end()

    # Used by the batches and the blocking facade.

    def put_back(self, item: Batch | Gap) -> None:
        """Takes back the item that was handed out last, because its caller had left: it is handed out next."""
        self._in_hand = None
        self._subscription.put_back(item)

    def outputs(self, messages: Iterable[Message]) -> Sending[Message]:
        """Returns outputs with the context of the caller's span."""
        return Sending(list(messages), self._publisher.topic)

    async def publish(self, batch: InputBatch, outputs: Sending[Message]) -> None:
        """Publishes the outputs of the batch in hand."""
        try:
            self._check()
            if batch is not self._in_hand:
                raise SubscriptionError("the outputs of a batch are published once, before the next batch is asked for")
            if outputs.messages or self._positions.moved(batch.token):
                self._submit(outputs, batch.token)
        except BaseException as error:
            outputs.end(error)
            raise
        self._in_hand = None
        limits = self._publisher.limits
        while self._error is None and (
            len(self._unanswered) >= limits.window_batches or self._publisher.unanswered_bytes >= limits.window_bytes
        ):
            await self._change()

    # How it is done.

    def _check(self) -> None:
        if self._error is None:
            self._publisher.check_here()
            return
        # To a fenced publisher, batches that it had sent are uncertain. Here the stored position shows their fate.
        fenced = self._publisher.error
        raise fenced if isinstance(fenced, PublisherFencedError) else self._error

    def _submit(self, outputs: Sending[Message], token: CheckpointToken) -> None:
        """Gives a batch to the publisher. Raises the error if that is not possible; nothing has changed then."""
        submission = self._publisher.submit_batch(outputs.messages, (token,))
        self._positions.sent(token)
        submission.listener = self._settle
        self._unanswered.append((submission, outputs))

    def _settle(self) -> None:
        """Receipts have come: acknowledges the input that they cover, in order."""
        done: CheckpointToken | None = None
        unanswered = self._unanswered
        while unanswered and unanswered[0][0].answered and self._error is None:
            submission, outputs = unanswered.popleft()
            outputs.end(submission.error)
            if submission.error is None:
                done = self._positions.receipted()
            else:
                self._fail(submission.error)
        if done is not None:
            self._subscription.acknowledge_ticks(done.ticks)
        owed = self._positions.owed()
        if owed is not None and self._error is None:
            self._store(owed)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _store(self, token: CheckpointToken) -> None:
        """Stores a position alone."""
        try:
            self._submit(_nothing(), token)
        except GaplessError as error:
            self._fail(error)

    def _fail(self, error: GaplessError) -> None:
        """A batch will not be logged, so no later one may be: ends the input, which wakes the iteration."""
        self._error = error
        self._subscription.abandon()
        for _, outputs in self._unanswered:
            outputs.end(error)

    async def _change(self) -> None:
        """Waits until a receipt has come, or an error."""
        self._changed = asyncio.get_running_loop().create_future()
        await self._changed

    def _store_silence(self) -> None:
        """Stores the position behind silence, after a while without input, and sets the timer for the next time."""
        if self._error is None and not self._subscription.is_over:
            token = self._subscription.token
            if token != self._positions.token and not self._unanswered:
                self._store(token)
            self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._store_silence)

    async def _take(self) -> Batch | Gap:
        """Waits for the next batch, or gap. Silence is stored meanwhile."""
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._store_silence)
        try:
            return await self._subscription.take_batch(self._max_events, self._max_wait)
        except TAKEN_OVER:
            raise
        except SubscriptionError:
            self._check()  # a failed batch has ended the subscription
            raise
        finally:
            self._idle.cancel()

    async def _take_back(self, taken_over: SubscriptionError) -> None:
        """Attaches the input again, which another consumer has taken over, if this transform still owns the name.

        Raises PublisherFencedError if it does not, because a rival has opened the publisher since. To find that out the
        transform sends its position: the broker refuses that of a fenced publisher. If it is not fenced, the other
        consumer is a rival that opened the publisher earlier, was paused, and took the input over when it woke. That
        rival is fenced, and has no use for the input.
        """
        positions = self._positions
        try:
            if positions.lost_input():
                self._submit(_nothing(), positions.token)
            while not positions.takes_back() and self._error is None:
                await self._change()
            self._check()
        except PublisherFencedError as fenced:
            raise fenced from taken_over
        self._subscription = await self._attach(self._subscription.token)
        positions.took_back()
        if self._draining:
            self._subscription.drain()


def _nothing() -> Sending[Message]:
    """No outputs: a position is stored alone."""
    return Sending((), None)
