"""`Publisher.send_all`: many batches on their way at once, receipts in order, and no more read than fits.

A source that is at hand is read in the generator itself, a batch at a time. A source that is awaited is
read by a task of its own, because receipts must come while it has nothing; a batch is then whatever it
gave within one turn of the loop. So the first event leaves at once, and load makes the batches.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from gapless.client.messages import Message, check_message

if TYPE_CHECKING:
    from gapless.client.messages import Encoder
    from gapless.client.publisher import Publisher
    from gapless.client.receipts import Receipt, Submission

BATCH_EVENTS: Final = 512
BATCH_BYTES: Final = 256 << 10
"""A batch that forms by itself is sent when it has so many events, or bytes, or the loop's turn ends."""
PATIENCE: Final = 0.002
"""Seconds after which a batch is sent although a source that is at hand could give more."""


class Pipeline:
    """One run of `send_all`."""

    def __init__(self, publisher: Publisher, encoder: Encoder) -> None:
        self._publisher = publisher
        self._encode = encoder.encode
        self._bytes_max = publisher.limits.max_event_bytes
        self._submissions: deque[Submission] = deque()
        self._events: list[bytes] = []
        self._body_lengths: list[int] = []
        self._size = 0
        self._error: BaseException | None = None
        """Why nothing more is read."""
        self._exhausted = False
        self._awaken: asyncio.Future[None] | None = None

    async def run(self, messages: Iterable[Message] | AsyncIterable[Message]) -> AsyncGenerator[Receipt, None]:
        """Publishes what is read and yields the receipts."""
        feeder = source = None
        if isinstance(messages, AsyncIterable):
            feeder = asyncio.get_running_loop().create_task(self._feed(messages))
        else:
            source = iter(messages)
        try:
            while not self._is_done():
                if source is not None and self._wants_more:
                    self._read(source)
                    await asyncio.sleep(0)  # what was read leaves, and others have their turn
                if self._submissions and self._submissions[0].answered:
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
        return self._exhausted and not self._submissions and not self._events

    @property
    def _wants_more(self) -> bool:
        """Whether there is something to read, and room: in the broker's window, and for receipts here."""
        if self._exhausted:
            return False
        limits = self._publisher.limits
        few = len(self._submissions) < limits.window_batches
        return few and self._publisher.unanswered_bytes < limits.window_bytes

    def _read(self, source: Iterator[Message]) -> None:
        """Reads a batch from a source that is at hand: until it is full, slow, or empty.

        `_add`, written out: this loop is where a publisher's time goes.
        """
        encode, bytes_max, clock = self._encode, self._bytes_max, time.monotonic
        events, body_lengths, size = self._events, self._body_lengths, 0
        until = clock() + PATIENCE
        try:
            for message in source:
                if type(message) is not Message:
                    check_message(message)
                event, body_length = encode(message, bytes_max)
                events.append(event)
                body_lengths.append(body_length)
                size += len(event)
                if size >= BATCH_BYTES or len(events) >= BATCH_EVENTS or clock() > until:
                    break
            else:
                self._exhausted = True
        except Exception as error:  # noqa: BLE001 - raised in its place, behind the receipts of what came before
            self._stop_reading(error)
        self._ship()

    async def _feed(self, source: AsyncIterable[Message]) -> None:
        """Reads from a source that is awaited."""
        loop = asyncio.get_running_loop()
        try:
            async for message in source:
                full = self._add(message)
                if full:
                    self._ship()
                elif len(self._events) == 1:
                    loop.call_soon(self._ship)
                while not self._wants_more:
                    await self._change()
        except Exception as error:  # noqa: BLE001 - raised in its place, behind the receipts of what came before
            self._stop_reading(error)
        self._exhausted = True
        self._ship()
        self._wake()

    def _add(self, message: Message) -> bool:
        """Adds a message to the batch; returns whether that is full."""
        check_message(message)
        event, body_length = self._encode(message, self._bytes_max)
        events = self._events
        events.append(event)
        self._body_lengths.append(body_length)
        size = self._size = self._size + len(event)
        return size >= BATCH_BYTES or len(events) >= BATCH_EVENTS

    def _ship(self) -> None:
        """Gives the batch to the core, behind what `send` has gathered."""
        events, body_lengths = self._events, self._body_lengths
        if not events:
            return
        self._events, self._body_lengths, self._size = [], [], 0
        self._publisher.ship()
        try:
            submission = self._publisher.give(events, body_lengths)
        except Exception as error:  # noqa: BLE001 - as above
            self._stop_reading(error)
            return
        submission.listener = self._wake
        self._submissions.append(submission)

    def _stop_reading(self, error: BaseException) -> None:
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
        """What was read is published; nobody here will hear of it."""
        if feeder is not None:
            feeder.cancel()
            await asyncio.wait([feeder])
        self._ship()
        for submission in self._submissions:
            submission.listener = None
