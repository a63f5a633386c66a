"""A publisher, blocking."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

import gapless.client.publisher as awaited
from gapless import tracing
from gapless.client.messages import Message
from gapless.client.pipeline import BATCH_EVENTS, ReadAhead, batch_bytes
from gapless.client.publisher import checked_tokens
from gapless.errors import GaplessError
from gapless.sync.blocking import Blocking

if TYPE_CHECKING:
    import asyncio

    from gapless.client.receipts import Receipt, Recovery
    from gapless.core.stream.columns import EventColumns
    from gapless.core.stream.events import Property
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.selectors.headers import SentHeaders
    from gapless.sync.runner import Call

PARTS_MAX = 32
"""How many batches `send_all` has on their way at once."""


class Publisher(Blocking[awaited.Publisher]):
    """Publishes events; see `gapless.Publisher`. Made by `Session.publisher`."""

    @property
    def name(self) -> str:
        """Its name."""
        return self._awaited.name

    @property
    def topic(self) -> str | None:
        """The topic for messages without one."""
        return self._awaited.topic

    @property
    def waiting(self) -> str:
        """Why sent events have no receipt at present; see `gapless.Publisher.waiting`."""
        return self._awaited.waiting

    @property
    def error(self) -> GaplessError | None:
        """Why it is over; None: it is not."""
        return self._awaited.error

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
        and is logged once when the obstacle is gone: `flush` waits for it. So it is after an interrupt. If it is not
        logged then, `flush` or `close` raises the reason.
        """
        return self.publish(Message(body, properties or {}, topic, **headers), timeout)

    def publish(self, message: Message, timeout: float | None = None) -> Receipt:
        """Publishes a Message like `send`."""
        with tracing.sending([message], message.topic or self._awaited.topic) as [traced]:
            return self._runner.call(
                lambda: self._awaited.submit(traced), timeout, back=self._note, waiting=lambda: self.waiting
            )

    def submit(self, message: Message) -> Future[Receipt]:
        """Publishes like `send`, without waiting: the future gets the receipt, or the error.

        If the future is cancelled, the event is published all the same; `flush` waits for it, and raises its error.
        """
        future: Future[Receipt] = Future()
        message = tracing.carrying(message)
        call = self._runner.prepare(lambda: self._awaited.submit(message), self._note)

        def tell() -> None:
            if not future.set_running_or_notify_cancel():
                return
            if call.error is not None:
                future.set_exception(call.error)
            else:
                future.set_result(call.result())

        call.on_done = tell
        future.add_done_callback(lambda _: call.leave() if future.cancelled() else None)
        try:
            call.start()
            return future
        except BaseException:
            call.leave()
            raise

    def send_batch(
        self,
        messages: Iterable[Message],
        timeout: float | None = None,
        *,
        token: CheckpointToken | Iterable[CheckpointToken] | None = None,
    ) -> list[Receipt]:
        """Publishes events as one atomic append, with their input's position; see `gapless.Publisher.send_batch`."""
        listed, tokens = list(messages), checked_tokens(token)
        with tracing.sending(listed, self._awaited.topic) as traced:
            return self._runner.call(
                lambda: self._awaited.receipts(self._awaited.submit_batch(traced, tokens)),
                timeout,
                back=self._note,
                waiting=lambda: self.waiting,
            )

    def send_all(self, messages: Iterable[Message], timeout: float | None = None) -> Iterator[Receipt]:
        """Publishes events, many at a time, and yields their receipts in order.

        It reads `messages` in the caller's thread. `timeout` is for the receipts of each batch. See
        `gapless.Publisher.send_all` for the rest.
        """
        parts: deque[Call[list[Receipt]]] = deque()
        sendings: dict[tracing.Sending[Message], None] = {}
        has_failed = False
        try:
            yield from self._receipts(messages, parts, sendings, timeout)
        except GaplessError:
            has_failed = True
            raise
        finally:
            for sending in list(sendings):
                sending.end()
            for part in parts:
                if not (has_failed and part.is_done):  # what became of later ones follows from that error
                    part.leave()

    def _receipts(
        self,
        messages: Iterable[Message],
        parts: deque[Call[list[Receipt]]],
        sendings: dict[tracing.Sending[Message], None],
        timeout: float | None,
    ) -> Iterator[Receipt]:
        """Publishes, and yields receipts. `parts`: the batches on their way; `sendings`: their spans."""
        encoder = self._awaited.new_encoder()
        bytes_max = self._awaited.limits.max_event_bytes
        portion = ReadAhead()
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
                sending = tracing.Sending(listed, self._awaited.topic)
                encoded = encoder.encode_all(sending.messages, bytes_max)
                portion.adapt(encoded)
                batches = list(encoded.columns.portions(batch_bytes(self._awaited.limits), BATCH_EVENTS))
                for number, columns in enumerate(batches, 1):
                    parts.append(self._runner.prepare(_Part(self._awaited, columns), self._note))
                    if number == len(batches) and sending.is_traced:
                        sendings[sending] = None
                        parts[-1].on_done = partial(_end, sending, sendings, parts[-1], encoded.error)
                    parts[-1].start()
                if not batches:
                    sending.end(encoded.error)
                if encoded.error is not None:
                    error, reading = encoded.error, False
            while parts and (parts[0].is_done or not reading or len(parts) >= PARTS_MAX):
                receipts = parts[0].result(timeout, waiting=lambda: self.waiting)
                parts.popleft()
                yield from receipts
        if error is not None:
            raise error

    def flush(self, timeout: float | None = None) -> None:
        """Waits until everything sent so far is answered; see `gapless.Publisher.flush`."""
        self._runner.call(self._awaited.flush, timeout, back=self._note, waiting=lambda: self.waiting)

    def recover(self, timeout: float | None = None) -> Recovery:
        """Returns how many events this name ever logged; see `gapless.Publisher.recover`."""
        return self._runner.call(self._awaited.recover, timeout)

    def _note(self, done: asyncio.Future[Any]) -> None:
        """A caller has gone before it had the outcome of its call: `flush` or `close` raises the error."""
        self._awaited.note_unheard(done.exception())


def _end(
    sending: tracing.Sending[Message],
    sendings: dict[tracing.Sending[Message], None],
    part: Call[list[Receipt]],
    error: Exception | None,
) -> None:
    """The last batch of a span is answered."""
    sendings.pop(sending, None)
    sending.end(part.error or error)


class _Part:
    """Gives a batch to the publisher and waits for its receipts, in the loop's thread."""

    def __init__(self, publisher: awaited.Publisher, columns: EventColumns) -> None:
        self._publisher = publisher
        self._columns = columns

    def __call__(self) -> Coroutine[Any, Any, list[Receipt]]:
        self._publisher.ship()
        return self._publisher.receipts(self._publisher.give(self._columns, ()))
