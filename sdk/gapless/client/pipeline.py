"""`Publisher.send_all`: many batches on their way at once, receipts in order, and no more read than fits.

A synchronous source is read in the generator itself, one batch at a time. An asynchronous source is read by a task of
its own, because receipts must come while the source has nothing; a batch is then everything that the source gave within
one turn of the loop. So the first event leaves at once, and under load batches grow.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

from gapless.client.messages import Message
from gapless.tracing import Sending

if TYPE_CHECKING:
    from gapless.client.messages import Encoded, Encoder
    from gapless.client.receipts import Receipt, Submission
    from gapless.core.stream.columns import EventColumns
    from gapless.core.wire.messages import Welcome
    from gapless.core.wire.tokens import Tokens

BATCH_EVENTS: Final = 512
BATCH_BYTES: Final = 256 << 10
"""A growing batch is sent when it has so many events, or so many bytes, or when the loop's turn ends."""
PORTION_FIRST: Final = 16
"""How many messages are read before their size is known."""
PATIENCE: Final = 0.002
"""After so many seconds a batch is sent, although a synchronous source might give more."""


class ReadAhead:
    """Decides how many messages to read at once: as many as make a batch."""

    def __init__(self) -> None:
        self.size = PORTION_FIRST

    def read(self, source: Iterator[Message], messages: list[Message]) -> bool:
        """Reads a portion: until it is full, too slow, or the source is empty. Returns whether there may be more."""
        size, clock = self.size, time.monotonic
        until = clock() + PATIENCE
        for message in source:
            messages.append(message)
            if len(messages) >= size or clock() > until:
                return True
        return False

    def adapt(self, encoded: Encoded) -> None:
        """Adapts to the size of the last portion."""
        columns = encoded.columns
        if columns.count:
            average = len(columns.blob) // columns.count
            self.size = max(1, min(BATCH_EVENTS, BATCH_BYTES // max(1, average)))


def batch_bytes(limits: Welcome) -> int:
    """Returns how many bytes of events a batch may gather: it fits into a frame, with a length for each of them."""
    return min(BATCH_BYTES, limits.max_frame_bytes // 2)


class BatchSink(Protocol):
    """A publisher, as far as a pipeline has to know it."""

    topic: str | None
    """The topic for messages without one."""

    @property
    def limits(self) -> Welcome:
        """The limits of the broker."""

    @property
    def unanswered_bytes(self) -> int:
        """The bytes without a receipt."""

    def ship(self) -> None:
        """Gives the events that `send` has gathered to the core."""

    def give(self, columns: EventColumns, tokens: Tokens) -> Submission:
        """Gives a batch to the core. Raises InvalidMessageError if it does not fit into one frame."""

    def note_unheard(self, error: BaseException | None) -> None:
        """An event was not published, and its caller has gone."""


class Pipeline:
    """One run of `send_all`."""

    def __init__(self, publisher: BatchSink, encoder: Encoder) -> None:
        self._publisher = publisher
        self._encoder = encoder
        self._portion = ReadAhead()
        self._messages: list[Message] = []
        """The messages that were read and not given to the core yet."""
        self._submissions: deque[Submission] = deque()
        self._sendings: list[Sending[Message]] = []
        """Those of what is on its way that have spans."""
        self._error: Exception | None = None
        """Why reading has ended."""
        self._exhausted = False
        self._told = False
        """Whether the error of a batch was raised: those of later batches follow from it."""
        self._awaken: asyncio.Future[None] | None = None

    async def run(self, messages: Iterable[Message] | AsyncIterable[Message]) -> AsyncGenerator[Receipt, None]:
        """Publishes everything that is read, and yields the receipts."""
        feeder = source = None
        if isinstance(messages, AsyncIterable):
            feeder = asyncio.get_running_loop().create_task(self._feed(messages))
        else:
            source = iter(messages)
        try:
            while not self._is_done():
                if source is not None and self._wants_more:
                    self._read(source)
                    await asyncio.sleep(0)  # lets the batch leave, and other tasks run
                if self._submissions and self._submissions[0].answered:
                    self._told = self._submissions[0].error is not None
                    for receipt in self._submissions.popleft().receipts():
                        yield receipt
                    self._wake()
                elif not self._is_done() and (source is None or not self._wants_more):
                    await self._change()
            if self._error is not None:
                raise self._error
        finally:
            await self._leave(feeder)

    # Reading.

    def _is_done(self) -> bool:
        return self._exhausted and not self._submissions and not self._messages

    @property
    def _wants_more(self) -> bool:
        """Whether there is something to read, and room for it: in the broker's window, and for receipts here."""
        if self._exhausted:
            return False
        limits = self._publisher.limits
        few = len(self._submissions) < limits.window_batches
        return few and self._publisher.unanswered_bytes < limits.window_bytes

    def _read(self, source: Iterator[Message]) -> None:
        """Reads a batch from a synchronous source."""
        try:
            self._exhausted = not self._portion.read(source, self._messages)
        except Exception as error:  # noqa: BLE001 - it is raised after the receipts of the messages before it
            self._stop_reading(error)
        self._ship()

    async def _feed(self, source: AsyncIterable[Message]) -> None:
        """Reads from an asynchronous source."""
        loop = asyncio.get_running_loop()
        messages = self._messages
        try:
            async for message in source:
                messages.append(message)
                if len(messages) >= self._portion.size:
                    self._ship()
                    while not self._wants_more and not self._exhausted:
                        await self._change()
                elif len(messages) == 1:
                    loop.call_soon(self._ship)
                if self._exhausted:  # a message was wrong
                    break
        except Exception as error:  # noqa: BLE001 - it is raised after the receipts of the messages before it
            self._stop_reading(error)
        self._exhausted = True
        self._ship()
        self._wake()

    def _ship(self) -> None:
        """Gives the messages that were read to the core, after those that `send` has gathered."""
        if not self._messages:
            return
        sending = Sending(self._messages, self._publisher.topic)
        encoded = self._encoder.encode_all(sending.messages, self._publisher.limits.max_event_bytes)
        self._messages.clear()
        self._portion.adapt(encoded)
        self._publisher.ship()
        submission: Submission | None = None
        try:
            for columns in encoded.columns.portions(batch_bytes(self._publisher.limits), BATCH_EVENTS):
                submission = self._publisher.give(columns, ())
                submission.listener = self._wake
                self._submissions.append(submission)
        except Exception as error:  # noqa: BLE001 - as above
            self._stop_reading(error)
        if encoded.error is not None:
            self._stop_reading(encoded.error)
            self._wake()
        if sending.is_traced:
            self._end_with(submission, sending, encoded.error)

    def _end_with(self, last: Submission | None, sending: Sending[Message], error: Exception | None) -> None:
        """Ends a span when the last batch of its messages is answered; none, if all of them were wrong."""
        if last is None:
            sending.end(error or self._error)
            return

        def answered() -> None:
            sending.end(last.error or error)
            self._sendings.remove(sending)
            self._wake()

        self._sendings.append(sending)
        last.listener = answered

    def _stop_reading(self, error: Exception) -> None:
        self._error = self._error or error
        self._exhausted = True

    # Waiting.

    async def _change(self) -> None:
        """Waits until a batch is answered, or the source is exhausted."""
        if self._awaken is None or self._awaken.done():
            self._awaken = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._awaken)

    def _wake(self) -> None:
        if self._awaken is not None and not self._awaken.done():
            self._awaken.set_result(None)

    async def _leave(self, feeder: asyncio.Task[None] | None) -> None:
        """The iteration ends: publishes what was read; its receipts will be dropped."""
        if feeder is not None:
            feeder.cancel()
            await asyncio.wait([feeder])
        self._ship()
        for sending in self._sendings:
            sending.end()
        for submission in self._submissions:
            submission.listener = None
            if not self._told:
                self._publisher.note_unheard(submission.error)
