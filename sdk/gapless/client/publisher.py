"""A publisher: takes events, gives receipts. Under load it sends events in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from typing_extensions import Unpack

from gapless import tracing
from gapless.client.awaitable import ClosedWhenLeft
from gapless.client.driver import Driver, Recipient
from gapless.client.messages import Encoder, Message
from gapless.client.pipeline import BATCH_EVENTS, Pipeline, batch_bytes
from gapless.client.receipts import Receipt, Recovery, Submission
from gapless.core.client.link.effects import NotPublished, PublisherReady, Receipted
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.tokens import CheckpointToken, Tokens, join_tokens, merge_tokens
from gapless.errors import (
    ConnectionClosedError,
    GaplessError,
    InvalidMessageError,
    InvalidTokenError,
    PublishRejectedError,
    PublishUncertainError,
)

if TYPE_CHECKING:
    from gapless.core.stream.events import Property
    from gapless.core.wire.messages import Welcome
    from gapless.selectors.headers import SentHeaders

TRANSACTION_BYTES = 64 << 10
"""What a batch of a transaction may take beside its events: the positions of its subscriptions."""
UNANSWERED_BYTES_MAX: Final = 256 << 20
"""If more bytes than this wait for receipts, `send` refuses further events."""
HEAD_BYTES: Final = 64
"""An upper bound for the bytes of a batch before its lengths and events."""


def checked_tokens(token: CheckpointToken | Iterable[CheckpointToken] | None) -> Tokens:
    """Returns the tokens that an application gives with a batch. Raises InvalidTokenError if they are none."""
    if token is None:
        return ()
    tokens = (token,) if isinstance(token, CheckpointToken) else tuple(token)
    for given in tokens:
        if not isinstance(given, CheckpointToken):
            raise InvalidTokenError(f"a CheckpointToken goes with a batch, not {type(given).__name__}")
    return merge_tokens((), tokens)


class GatheringBatch(Struct, eq=False):
    """Events of one topic that were not given to the core yet."""

    topic: str
    events: list[bytes] = []
    body_lengths: list[int] = []
    waiters: list[asyncio.Future[Receipt]] = []
    size: int = 0


class Publisher(ClosedWhenLeft, Recipient):
    """Publishes events, in order, each logged once, however often the connection breaks.

    Made by `Session.publisher`. A publisher with a name continues where that name stopped, also in another process. A
    newer publisher with the same name owns the name, and ends this one. So publishers that run at the same time need a
    name each, or none.
    """

    def __init__(self, driver: Driver, name: str, instance: str, topic: str | None) -> None:
        """For gapless itself."""
        self.name = name
        self.topic = topic
        self._driver = driver
        self._encoder = Encoder(topic, driver.stamp)
        self._error: GaplessError | None = None
        self._unheard: GaplessError | None = None
        """The error of an event that was not published, and for which no caller waits any more."""
        self._ready: asyncio.Future[PublisherReady] = driver.loop.create_future()
        self._submissions: dict[int, Submission] = {}
        self._batch: GatheringBatch | None = None
        driver.check_open()
        self._number = driver.core.open_publisher(name, instance, topic, driver.now())
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        return f"<Publisher {self.name!r} of {self.topic!r}{', over' if self._error else ''}>"

    # Publishing.

    async def send(
        self,
        body: Any,
        properties: Mapping[str, Property | None] | None = None,
        *,
        topic: str | None = None,
        **headers: Unpack[SentHeaders],
    ) -> Receipt:
        """Publishes one event. When it returns, the event is logged.

        `headers` are those of a `Message`: priority, expiration, and the others.

        If it is cancelled, the event is published all the same; `flush` waits for it.

        Raises InvalidMessageError or InvalidTopicError (nothing was sent), PublishRejectedError (nothing was logged),
        PublisherFencedError (a newer publisher owns this name) and PublishUncertainError (the connection was closed
        before the answer).
        """
        message = Message(body, properties or {}, topic, **headers)
        if not tracing.is_active():
            return await self._sent(message)
        with tracing.sending([message], topic or self.topic) as [traced]:
            return await self._sent(traced)

    async def _sent(self, message: Message) -> Receipt:
        waiter = self.submit(message)
        try:
            return await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was answered at the same moment
                self.note_unheard(waiter.exception())
            raise

    def submit(self, message: Message) -> asyncio.Future[Receipt]:
        """Publishes a Message like `send`, without waiting: the future gets the receipt."""
        self._check_open()
        topic = self._encoder.topic_of(message)
        event, body_length = self._encoder.encode(message, self.limits.max_event_bytes)
        if self.unanswered_bytes > UNANSWERED_BYTES_MAX:
            raise PublishRejectedError(f"{self.unanswered_bytes} bytes wait for their receipts; this is not taken")
        batch, most = self._batch, batch_bytes(self.limits)
        if batch is None or batch.topic != topic or batch.size + len(event) > most:
            self.ship()
            batch = self._batch = GatheringBatch(topic)
            # Full or not, the batch leaves at the end of this turn: batching costs no waiting.
            self._driver.at_end_of_turn(self.ship)
        waiter: asyncio.Future[Receipt] = self._driver.loop.create_future()
        batch.waiters.append(waiter)
        batch.events.append(event)
        batch.body_lengths.append(body_length)
        batch.size += len(event)
        if len(batch.events) >= BATCH_EVENTS or batch.size >= most:
            self.ship()
        return waiter

    async def send_batch(
        self, messages: Iterable[Message], *, token: CheckpointToken | Iterable[CheckpointToken] | None = None
    ) -> list[Receipt]:
        """Publishes events as one atomic append: all of them are logged, or none.

        `token`: the position up to which the events cover their input, or one of each of several subscriptions. It is
        stored with the publisher's name, in the same write; `recover` returns it. So whoever consumes, publishes what
        follows from that, and starts again from the stored token, publishes it once. With a token there may be no
        messages: then the position is stored alone. A publisher with a name stores the tokens of at most 8
        subscriptions, of at most 64 pubends each.

        Raises the errors of `send`; InvalidMessageError also if the events do not fit into one frame; StaleTokenError
        if a token stands before the stored one (nothing was logged).
        """
        if not tracing.is_active():
            return await self.receipts(self.submit_batch(messages, checked_tokens(token)))
        with tracing.sending(list(messages), self.topic) as traced:
            return await self.receipts(self.submit_batch(traced, checked_tokens(token)))

    def submit_batch(self, messages: Iterable[Message], tokens: Tokens) -> Submission:
        """Publishes like `send_batch`, without waiting."""
        self._check_open()
        encoded = self._encoder.encode_all(list(messages), self.limits.max_event_bytes)
        if encoded.error is not None:
            raise encoded.error
        self.ship()
        if not encoded.columns.count and not tokens:
            empty = Submission()
            empty.succeed("", (), durable=False)
            return empty
        return self.give(encoded.columns, tokens)

    def send_all(self, messages: Iterable[Message] | AsyncIterable[Message]) -> AsyncGenerator[Receipt, None]:
        """Publishes events, many at a time, and yields their receipts in order.

        It reads from `messages` as far as there is room on the way. It raises the errors of `send` in the place of the
        first receipt that will not come; later events may be logged. If the iteration ends early, everything that was
        read is published all the same; `flush` waits for it.
        """
        return Pipeline(self, self._encoder).run(messages)

    async def flush(self) -> None:
        """Waits until everything sent so far is answered.

        If a `send` was cancelled, and its event then failed, it raises that error, once.
        """
        self._driver.check_here()
        self.ship()
        last = next(reversed(self._submissions), 0)
        while next(iter(self._submissions), last + 1) <= last:
            await self._driver.change()
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    async def recover(self) -> Recovery:
        """Returns how many events this name ever logged, whoever opened it, as soon as the broker has reported that.

        The tokens that were stored with them (`send_batch`) are there, too.

        After a PublishUncertainError, a publisher with the same name can tell from it whether the event was logged, if
        no other publisher had the name meanwhile. Raises PublisherFencedError and PublishRejectedError.
        """
        self._driver.check_here()
        if not self._ready.done():
            await asyncio.shield(self._ready)
        if self._error is not None:
            raise self._error
        core = self._driver.core.publisher(self._number)
        ready = self._ready.result()
        return Recovery(ready.sequence, ready.tokens) if core is None else Recovery(core.logged, core.tokens)

    async def close(self) -> None:
        """Waits until everything sent is answered, as long as the broker is there and can log. Then it ends.

        A broker that gives no sign of life for 3 s is not waited for, nor one behind it that answers nothing for 4 s.
        What has no answer then is uncertain: it raises PublishUncertainError if no caller waits for it. Idempotent.
        """
        if self._error is None:
            self._driver.check_here()
        self.ship()
        if self.is_flushing:
            await self._driver.while_alive(self._flushed())
        self.abandon()
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            raise unheard

    @property
    def waiting(self) -> str:
        """Why sent events have no receipt at present; "" if no obstacle is known, or all are answered.

        Waiting events go on by themselves. They fail only when it is certain what became of them.
        """
        core = self._driver.core.publisher(self._number)
        if core is None or not (self._submissions or self._batch is not None):
            return ""
        if not self._driver.core.reaches(self._number):
            return f"there is no connection to the broker ({self._driver.core.trouble})"
        return core.stalled

    # Used by the session, the pipeline and the blocking facade.

    def check_here(self) -> None:
        """Raises ConnectionClosedError if the caller runs on another event loop."""
        self._driver.check_here()

    async def receipts(self, submission: Submission) -> list[Receipt]:
        """Waits for the receipts of a batch. Raises the error; if it is cancelled, `flush` or `close` does."""
        try:
            return await submission.answer()
        except asyncio.CancelledError:
            self.note_unheard(submission.error)
            raise

    def note_unheard(self, error: BaseException | None) -> None:
        """An event was not published, and its caller has gone: `flush` or `close` raises the error."""
        if isinstance(error, GaplessError) and self._unheard is None:
            self._unheard = error

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or ended by the broker, and there is no error left to be raised."""
        return self._error is not None and self._unheard is None

    @property
    def has_unanswered(self) -> bool:
        """Whether something has no receipt, or there is an error left to be raised."""
        return bool(self._submissions) or self._batch is not None or self._unheard is not None

    @property
    def is_flushing(self) -> bool:
        """Whether something is unanswered, and may be answered soon."""
        core = self._driver.core.publisher(self._number)
        if core is None or not self._submissions:
            return False
        return self._driver.core.reaches(self._number) and not core.stalled

    @property
    def unanswered_bytes(self) -> int:
        """The bytes that the core has, without a receipt."""
        core = self._driver.core.publisher(self._number)
        return core.unanswered_bytes if core is not None else 0

    def new_encoder(self) -> Encoder:
        """Returns an encoder like its own, for another thread."""
        return Encoder(self.topic, self._driver.stamp)

    @property
    def limits(self) -> Welcome:
        """The limits of the broker."""
        welcome = self._driver.core.welcome
        assert welcome is not None, "a connection is handed out when its first session is open"
        return welcome

    def give(
        self, columns: EventColumns, tokens: Tokens, waiters: Sequence[asyncio.Future[Receipt]] = ()
    ) -> Submission:
        """Gives a batch to the core. Raises InvalidMessageError if it does not fit into one frame."""
        self._check_open()
        size = columns.size + len(join_tokens(tokens))
        if size + HEAD_BYTES > self.limits.max_frame_bytes:
            raise InvalidMessageError(
                f"a batch of {size} bytes: this broker takes at most {self.limits.max_frame_bytes} at once;"
                " send_all() makes batches that fit, and a transform does with a smaller max_events"
            )
        submission = Submission(waiters)
        ticket = self._driver.core.publish(self._number, columns, tokens, self._driver.now())
        self._submissions[ticket] = submission
        self._driver.touch()
        return submission

    @property
    def number(self) -> int:
        """Its number in the core."""
        return self._number

    @property
    def error(self) -> GaplessError | None:
        """Why it is over; None: it is not."""
        return self._error

    def encoded(self, messages: Iterable[Message]) -> EventColumns:
        """Returns messages as the batch of a transaction. Raises the errors of `send_batch`."""
        self._check_open()
        encoded = self._encoder.encode_all(list(messages), self.limits.max_event_bytes)
        if encoded.error is not None:
            raise encoded.error
        size = encoded.columns.size
        if size + TRANSACTION_BYTES > self.limits.max_frame_bytes:
            raise InvalidMessageError(
                f"a transaction of {size} bytes: this broker takes at most {self.limits.max_frame_bytes} at once"
            )
        return encoded.columns

    def expect(self, ticket: int) -> Submission:
        """A transaction has given a batch to the core, under this ticket. Returns where its answer comes."""
        submission = self._submissions[ticket] = Submission(listener=self._driver.tell_change)
        return submission

    def ship(self) -> None:
        """Gives the gathered events to the core."""
        batch, self._batch = self._batch, None
        if batch is not None:
            try:
                self.give(EventColumns.of(batch.events, batch.body_lengths), (), batch.waiters)
            except GaplessError as error:
                if not Submission(batch.waiters).fail(error):
                    self.note_unheard(error)

    def abandon(self) -> None:
        """Ends it now. Unanswered events are uncertain."""
        self.ship()
        self._driver.core.close_publisher(self._number, self._driver.now())
        self._driver.pump()

    # Effects of the core.

    def on_answered(self, result: Any) -> None:
        """The publisher is open."""
        if not self._ready.done():
            self._ready.set_result(result)
            self._driver.tell_change()

    def on_receipted(self, receipted: Receipted) -> None:
        """A batch is logged."""
        submission = self._submissions.pop(receipted.ticket)
        submission.succeed(receipted.pubend, receipted.ticks, durable=receipted.durable)
        self._driver.tell_change()

    def on_not_published(self, refused: NotPublished) -> None:
        """A batch will get no receipt."""
        submission = self._submissions.pop(refused.ticket)
        if not submission.fail(refused.error):
            self.note_unheard(refused.error)
        self._driver.tell_change()

    def on_dropped(self, error: GaplessError) -> None:
        """It is over here, and what has no receipt is somebody else's to answer for."""
        self._error = error
        self._batch = None
        self._submissions.clear()

    def on_failed(self, error: GaplessError) -> None:
        """The publisher is over."""
        self._error = error
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as seen: `recover` raises it, if it is called at all
        self._driver.tell_change()

    # How it is done.

    async def _flushed(self) -> None:
        while self.is_flushing:
            await self._driver.change()

    def _check_open(self) -> None:
        if self._error is None:
            self._driver.check_here()
            return
        if isinstance(self._error, PublishUncertainError):
            if self._driver.error is not None:
                raise self._driver.error
            raise ConnectionClosedError(f"publisher {self.name!r} is closed")
        raise self._error
