"""A publisher, blocking."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Self, Unpack

from gapless.client.messages import Message
from gapless.client.pipeline import BATCH_EVENTS, ReadAhead, batch_bytes
from gapless.client.publisher import checked_tokens

if TYPE_CHECKING:
    import gapless.client.publisher as awaited
    from gapless.client.receipts import Receipt, Recovery
    from gapless.core.stream.columns import EventColumns
    from gapless.core.stream.events import Property
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.selectors.headers import SentHeaders
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
        """The topic for messages without one."""
        return self._publisher.topic

    @property
    def waiting(self) -> str:
        """Why sent events have no receipt at present; see `gapless.Publisher.waiting`."""
        return self._publisher.waiting

    def send(
        self,
        body: Any,
        properties: Mapping[str, Property | None] | None = None,
        *,
        topic: str | None = None,
        timeout: float | None = None,
        **headers: Unpack[SentHeaders],
    ) -> Receipt:
        """Publishes one event. When it returns, the event is logged. See `gapless.Publisher.send`.

        Raises TimeoutError after `timeout` seconds; its text names the obstacle. The event is still on its way then,
        and is logged once when the obstacle is gone: `flush` waits for it.
        """
        future = self.submit(Message(body, properties or {}, topic, **headers))
        return self._runner.result(future, timeout, waiting=lambda: self.waiting)

    def submit(self, message: Message) -> Future[Receipt]:
        """Publishes like `send`, without waiting: the future gets the receipt, or the error."""

        async def send() -> Receipt:
            return await self._publisher.submit(message)

        return self._runner.begin(send)

    def send_batch(
        self,
        messages: Iterable[Message],
        timeout: float | None = None,
        *,
        token: CheckpointToken | Iterable[CheckpointToken] | None = None,
    ) -> list[Receipt]:
        """Publishes events as one atomic append, with their input's position; see `gapless.Publisher.send_batch`."""
        listed, tokens = list(messages), checked_tokens(token)
        return self._runner.call(
            lambda: self._publisher.send_batch(listed, token=tokens), timeout, waiting=lambda: self.waiting
        )

    def send_all(self, messages: Iterable[Message], timeout: float | None = None) -> Iterator[Receipt]:
        """Publishes events, many at a time, and yields their receipts in order.

        It reads `messages` in the caller's thread. `timeout` is for the receipts of each batch. See
        `gapless.Publisher.send_all` for the rest.
        """
        encoder = self._publisher.new_encoder()
        bytes_max = self._publisher.limits.max_event_bytes
        portion = ReadAhead()
        parts: deque[Future[list[Receipt]]] = deque()
        source = iter(messages)
        error: Exception | None = None
        reading = True
        while reading or parts:
            if reading:
                listed: list[Message] = []
                try:
                    reading = portion.read(source, listed)
                except Exception as raised:  # noqa: BLE001 - it is raised after the receipts of the messages before it
                    error, reading = raised, False
                encoded = encoder.encode_all(listed, bytes_max)
                portion.adapt(encoded)
                for columns in encoded.columns.portions(batch_bytes(self._publisher.limits), BATCH_EVENTS):
                    parts.append(self._runner.begin(_Part(self._publisher, columns)))
                if encoded.error is not None:
                    error, reading = encoded.error, False
            while parts and (parts[0].done() or not reading or len(parts) >= PARTS_MAX):
                yield from self._runner.result(parts.popleft(), timeout, waiting=lambda: self.waiting)
        if error is not None:
            raise error

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far is answered; see `gapless.Publisher.flush`."""
        self._runner.call(self._publisher.flush, timeout, waiting=lambda: self.waiting)

    def recover(self, timeout: float | None = None) -> Recovery:
        """Returns how many events this name ever logged; see `gapless.Publisher.recover`."""
        return self._runner.call(self._publisher.recover, timeout)

    def close(self, timeout: float | None = None) -> None:
        """Closes it; see `gapless.Publisher.close`. Idempotent."""
        if self._runner.alive:
            self._runner.call(self._publisher.close, timeout)


class _Part:
    """Gives a batch to the publisher and waits for its receipts, in the loop's thread."""

    def __init__(self, publisher: awaited.Publisher, columns: EventColumns) -> None:
        self._publisher = publisher
        self._columns = columns

    async def __call__(self) -> list[Receipt]:
        self._publisher.ship()
        return await self._publisher.give(self._columns, ()).answer()
