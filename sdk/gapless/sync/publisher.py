"""A publisher, blocking."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Self

from gapless.client.messages import PRIORITY, Encoder, Message, check_message
from gapless.client.pipeline import BATCH_BYTES, BATCH_EVENTS, PATIENCE

if TYPE_CHECKING:
    import gapless.client.publisher as awaited
    from gapless.client.receipts import Receipt, Recovery
    from gapless.core.events import Property
    from gapless.sync.runner import Runner

PARTS_MAX = 32
"""How many batches `send_all` has on their way at once."""

PublisherT = TypeVar("PublisherT", bound="Publisher")


class Publisher:
    """Publishes events; see `gapless.Publisher`. Made by `Session.publisher`."""

    def __init__(self, runner: Runner, publisher: awaited.Publisher) -> None:
        """Use `Session.publisher`."""
        self._runner = runner
        self._publisher = publisher

    def __repr__(self) -> str:
        return repr(self._publisher)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner.alive:
            self._runner.call(lambda: self._publisher.__aexit__(kind, error, None))

    @property
    def name(self) -> str:
        """Its name."""
        return self._publisher.name

    @property
    def topic(self) -> str | None:
        """Where messages go that name no topic."""
        return self._publisher.topic

    def send(
        self,
        body: Any,
        properties: Mapping[str, Property | None] | None = None,
        *,
        topic: str | None = None,
        priority: int = PRIORITY,
        expiration: datetime | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        type: str | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publishes one event; when it returns, the event is logged. See `gapless.Publisher.send`."""
        message = Message(body, properties or {}, topic, priority, expiration, correlation_id, reply_to, type)

        async def send() -> Receipt:
            return await self._publisher.submit(message)

        return self._runner.call(send, timeout)

    def send_batch(self, messages: Iterable[Message], timeout: float | None = None) -> list[Receipt]:
        """Publishes events as one atomic append; see `gapless.Publisher.send_batch`."""
        listed = list(messages)
        return self._runner.call(lambda: self._publisher.send_batch(listed), timeout)

    def send_all(self, messages: Iterable[Message], timeout: float | None = None) -> Iterator[Receipt]:
        """Publishes events, many at a time, and yields their receipts in order.

        `messages` is read in the caller's thread. `timeout` is for each batch's receipts. Otherwise as
        `gapless.Publisher.send_all`.
        """
        encoder = Encoder(self._publisher.topic)
        parts: deque[Future[list[Receipt]]] = deque()
        source = iter(messages)
        error: Exception | None = None
        reading = True
        while reading or parts:
            if reading:
                events, body_lengths, reading, error = self._read(source, encoder)
                if events:
                    parts.append(self._runner.begin(_Part(self._publisher, events, body_lengths)))
            while parts and (parts[0].done() or not reading or len(parts) >= PARTS_MAX):
                yield from parts.popleft().result(timeout)
        if error is not None:
            raise error

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far is answered; see `gapless.Publisher.flush`."""
        self._runner.call(self._publisher.flush, timeout)

    def recover(self, timeout: float | None = None) -> Recovery:
        """How many events this name ever logged; see `gapless.Publisher.recover`."""
        return self._runner.call(self._publisher.recover, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Ends well; see `gapless.Publisher.close`. Idempotent."""
        if self._runner.alive:
            self._runner.call(self._publisher.close, timeout)

    def _read(
        self, source: Iterator[Message], encoder: Encoder
    ) -> tuple[list[bytes], list[int], bool, Exception | None]:
        """A batch, whether there is more, and why not if that is an error."""
        events: list[bytes] = []
        body_lengths: list[int] = []
        size = 0
        until = time.monotonic() + PATIENCE
        bytes_max = self._publisher.limits.max_event_bytes
        try:
            for message in source:
                event, body_length = encoder.encode(check_message(message), bytes_max)
                events.append(event)
                body_lengths.append(body_length)
                size += len(event)
                if len(events) >= BATCH_EVENTS or size >= BATCH_BYTES or time.monotonic() > until:
                    return events, body_lengths, True, None
        except Exception as error:  # noqa: BLE001 - raised in its place, behind the receipts of what came before
            return events, body_lengths, False, error
        return events, body_lengths, False, None


class _Part:
    """Gives a batch to the publisher and waits for its receipts, in the loop's thread."""

    def __init__(self, publisher: awaited.Publisher, events: list[bytes], body_lengths: list[int]) -> None:
        self._publisher = publisher
        self._events = events
        self._body_lengths = body_lengths

    async def __call__(self) -> list[Receipt]:
        self._publisher.ship()
        return await self._publisher.give(self._events, self._body_lengths).answer()
