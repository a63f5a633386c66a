"""A publisher: events in, receipts out. Batches form by themselves where there is load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from typing_extensions import Self, Unpack

from gapless.client.driver import Driver, Recipient
from gapless.client.messages import Encoder, Message
from gapless.client.pipeline import BATCH_BYTES, BATCH_EVENTS, Pipeline
from gapless.client.receipts import Receipt, Recovery, Submission
from gapless.core.client.effects import NotPublished, PublisherReady, Receipted
from gapless.core.stream.columns import EventColumns
from gapless.errors import (
    ConnectionClosedError,
    GaplessError,
    InvalidMessageError,
    PublishRejectedError,
    PublishUncertainError,
)

if TYPE_CHECKING:
    from gapless.core.stream.events import Property
    from gapless.core.wire.messages import Welcome
    from gapless.selectors.headers import SentHeaders

UNANSWERED_BYTES_MAX: Final = 256 << 20
"""So much may wait for its receipts before `send` refuses to take more."""
HEAD_BYTES: Final = 64
"""More than a batch has in front of its lengths and events."""

PublisherT = TypeVar("PublisherT", bound="Publisher")


class GatheringBatch(Struct, eq=False):
    """Events of one topic that are not given to the core yet."""

    topic: str
    events: list[bytes] = []
    body_lengths: list[int] = []
    waiters: list[asyncio.Future[Receipt]] = []
    size: int = 0


class Publisher(Recipient):
    """Publishes events, in order, each logged once however often the connection breaks.

    Made by `Session.publisher`. A publisher with a name goes on where that name stopped, also in another
    process. A newer publisher of the same name owns it, and ends this one: several that run at the same time
    need a name each, or none.
    """

    def __init__(self, driver: Driver, name: str, instance: str, topic: str | None) -> None:
        """For gapless itself."""
        self.name = name
        self.topic = topic
        self._driver = driver
        self._encoder = Encoder(topic)
        self._error: GaplessError | None = None
        self._unheard: GaplessError | None = None
        """Why something was not published that nobody waits for any more."""
        self._ready: asyncio.Future[PublisherReady] = driver.loop.create_future()
        self._submissions: dict[int, Submission] = {}
        self._batch: GatheringBatch | None = None
        driver.check_open()
        self._number = driver.core.open_publisher(name, instance, topic, driver.now())
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        return f"<Publisher {self.name!r} of {self.topic!r}{', over' if self._error else ''}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            self.abandon()

    # Publishing.

    async def send(
        self,
        body: Any,
        properties: Mapping[str, Property | None] | None = None,
        *,
        topic: str | None = None,
        **headers: Unpack[SentHeaders],
    ) -> Receipt:
        """Publishes one event; when it returns, the event is logged.

        `headers` are those of a `Message`: priority, expiration, and the others.

        If it is cancelled, the event is published all the same; `flush` waits for it.

        Raises InvalidMessageError or InvalidTopicError (nothing was sent), PublishRejectedError (nothing
        was logged), PublisherFencedError (a newer publisher of this name owns it) and PublishUncertainError
        (the connection was closed before the answer).
        """
        return await self.submit(Message(body, properties or {}, topic, **headers))

    def submit(self, message: Message) -> asyncio.Future[Receipt]:
        """As `send`, for a Message, and without waiting: the receipt is the future's."""
        self._check_open()
        topic = self._encoder.topic_of(message)
        event, body_length = self._encoder.encode(message, self.limits.max_event_bytes)
        if self.unanswered_bytes > UNANSWERED_BYTES_MAX:
            raise PublishRejectedError(f"{self.unanswered_bytes} bytes wait for their receipts; this is not taken")
        batch = self._batch
        if batch is None or batch.topic != topic:
            self.ship()
            batch = self._batch = GatheringBatch(topic)
            self._driver.loop.call_soon(self._ship_if_still, batch)
        waiter: asyncio.Future[Receipt] = self._driver.loop.create_future()
        batch.waiters.append(waiter)
        batch.events.append(event)
        batch.body_lengths.append(body_length)
        batch.size += len(event)
        if len(batch.events) >= BATCH_EVENTS or batch.size >= BATCH_BYTES:
            self.ship()
        return waiter

    async def send_batch(self, messages: Iterable[Message]) -> list[Receipt]:
        """Publishes events as one atomic append: all of them are logged, or none.

        Raises as `send` does; InvalidMessageError also when they do not fit into one frame.
        """
        return await self.submit_batch(messages).answer()

    def submit_batch(self, messages: Iterable[Message]) -> Submission:
        """As `send_batch`, without waiting."""
        self._check_open()
        encoded = self._encoder.encode_all(list(messages), self.limits.max_event_bytes)
        if encoded.error is not None:
            raise encoded.error
        self.ship()
        if not encoded.events:
            empty = Submission()
            empty.succeed("", (), durable=False)
            return empty
        return self.give(encoded.events, encoded.body_lengths)

    def send_all(self, messages: Iterable[Message] | AsyncIterable[Message]) -> AsyncGenerator[Receipt, None]:
        """Publishes events, many at a time, and yields their receipts in order.

        Reads from `messages` as far as there is room on the way. Raises as `send` does, in the place of
        the first receipt that will not come; events behind it may be logged. If the iteration is left
        early, what was read is published all the same; `flush` waits for it.
        """
        return Pipeline(self, self._encoder).run(messages)

    async def flush(self) -> None:
        """Waits until everything sent so far is answered.

        Raises the error of what nobody waits for any more, because its `send` was cancelled; once.
        """
        self.ship()
        last = next(reversed(self._submissions), 0)
        while next(iter(self._submissions), last + 1) <= last:
            await self._driver.change()
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    async def recover(self) -> Recovery:
        """How many events this name ever logged, whoever opened it, once the broker has said so.

        After a PublishUncertainError, a publisher of the same name knows whether it was logged, if no other one
        had the name meanwhile. Raises PublisherFencedError and PublishRejectedError.
        """
        if not self._ready.done():
            await asyncio.shield(self._ready)
        if self._error is not None:
            raise self._error
        core = self._driver.core.publisher(self._number)
        return Recovery(core.logged if core is not None else self._ready.result().sequence)

    async def close(self) -> None:
        """Waits until everything sent is answered, as long as the broker can be reached and logs; then ends.

        What has no answer then is uncertain: raises PublishUncertainError if nobody waits for it. Idempotent.
        """
        self.ship()
        while self.is_flushing:
            await self._driver.change()
        self.abandon()
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    @property
    def waiting(self) -> str:
        """Why what was sent has no receipt at present; "" if nothing is known to be in its way, or all is answered.

        What waits goes on by itself, and ends with an error only where it is certain what became of it.
        """
        core = self._driver.core.publisher(self._number)
        if core is None or not (self._submissions or self._batch is not None):
            return ""
        if not self._driver.core.connected:
            return f"there is no connection to the broker ({self._driver.core.trouble})"
        return core.stalled

    # For the session, the pipeline and the blocking facade.

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or ended by the broker, and nobody has yet to hear of it."""
        return self._error is not None and self._unheard is None

    @property
    def is_flushing(self) -> bool:
        """Whether something is unanswered, and there is hope that it will be soon."""
        core = self._driver.core.publisher(self._number)
        if core is None or not self._submissions:
            return False
        return self._driver.core.connected and not core.stalled

    @property
    def unanswered_bytes(self) -> int:
        """Bytes that the core has and no receipt covers."""
        core = self._driver.core.publisher(self._number)
        return core.unanswered_bytes if core is not None else 0

    @property
    def limits(self) -> Welcome:
        """What the broker takes."""
        welcome = self._driver.core.welcome
        assert welcome is not None, "a connection is handed out when its first session is open"
        return welcome

    def give(
        self,
        events: Sequence[bytes],
        body_lengths: Sequence[int],
        waiters: Sequence[asyncio.Future[Receipt]] = (),
    ) -> Submission:
        """Gives a batch to the core. Raises InvalidMessageError if it does not fit into one frame."""
        self._check_open()
        columns = EventColumns.of(events, body_lengths)
        if columns.size + HEAD_BYTES > self.limits.max_frame_bytes:
            raise InvalidMessageError(
                f"a batch of {columns.size} bytes: this broker takes at most {self.limits.max_frame_bytes} at once;"
                " send_all() makes batches that fit"
            )
        submission = Submission(waiters)
        ticket = self._driver.core.publish(self._number, columns, self._driver.now())
        self._submissions[ticket] = submission
        self._driver.touch()
        return submission

    def ship(self) -> None:
        """Gives what has gathered to the core."""
        batch, self._batch = self._batch, None
        if batch is not None:
            try:
                self.give(batch.events, batch.body_lengths, batch.waiters)
            except GaplessError as error:
                self._note_unheard(error, Submission(batch.waiters).fail(error))

    def abandon(self) -> None:
        """Ends now; what is unanswered is uncertain."""
        self.ship()
        self._driver.core.close_publisher(self._number, self._driver.now())
        self._driver.pump()

    # What the core says.

    def on_answered(self, result: Any) -> None:
        """The publisher is open."""
        if not self._ready.done():
            self._ready.set_result(result)

    def on_receipted(self, receipted: Receipted) -> None:
        """A batch is logged."""
        submission = self._submissions.pop(receipted.ticket)
        submission.succeed(receipted.pubend, receipted.ticks, durable=receipted.durable)
        self._driver.tell_change()

    def on_not_published(self, refused: NotPublished) -> None:
        """A batch gets no receipt."""
        submission = self._submissions.pop(refused.ticket)
        self._note_unheard(refused.error, submission.fail(refused.error))
        self._driver.tell_change()

    def on_failed(self, error: GaplessError) -> None:
        """The publisher is over."""
        self._error = error
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # `recover` raises it; nobody has to ask

    # How it is done.

    def _check_open(self) -> None:
        if self._error is None:
            return
        if isinstance(self._error, PublishUncertainError):
            raise ConnectionClosedError(f"publisher {self.name!r} is closed")
        raise self._error

    def _note_unheard(self, error: GaplessError, heard: bool) -> None:  # noqa: FBT001
        if not heard and self._unheard is None:
            self._unheard = error

    def _ship_if_still(self, batch: GatheringBatch) -> None:
        """The turn in which a batch was begun is over."""
        if self._batch is batch:
            self.ship()
