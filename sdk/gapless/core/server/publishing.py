"""The publishers of all sessions: batches go to the router, its answers back to the client, in order.

A publisher's answers are given in the order in which it asked, whatever order the router answers in, so
`Published(sequence)` can promise everything up to that sequence. Batches that are answered in one step
share one `Published`.

The refusal of a batch speaks for all batches that its publisher had sent by then: they stand behind a gap
now and cannot be logged, so their own answers are dropped, and the client may send them again at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.server.connection import Connection
from gapless.core.server.limits import Limits
from gapless.core.server.outbox import Outbox
from gapless.core.stream.ticks import PubendId
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    PublishRefused,
    TickRun,
)
from gapless.errors import RemoteProtocolError

CODES = {
    Verdict.REJECTED: Code.REJECTED,
    Verdict.INVALID: Code.INVALID_MESSAGE,
    Verdict.FORBIDDEN: Code.FORBIDDEN,
    Verdict.FENCED: Code.FENCED,
    Verdict.FORGOTTEN: Code.FORGOTTEN,
    Verdict.RESUME: Code.RESUME,
    Verdict.RETRY: Code.RETRY,
    Verdict.UNCERTAIN: Code.RETRY,  # sending again is safe: what was logged after all is recognised
}
"""How a verdict that is not OK is told to the client."""


class ReplyTo(Struct, frozen=True, gc=False):
    """What the router hands back with its answer to an opening or a batch of a session's publisher."""

    session: int
    publisher: int
    serial: int


class Waiting:
    """An opening or a batch that is not answered yet."""

    __slots__ = ("acknowledged", "first", "opening", "placed", "size")

    def __init__(self, first: int, size: int, acknowledged: int, *, opening: bool) -> None:
        self.first = first
        self.acknowledged = acknowledged
        """The last event that was acknowledged when it was asked."""
        self.size = size
        self.opening = opening
        self.placed: Submitted | None = None


class Publisher:
    """One publisher of one session."""

    __slots__ = (
        "connection",
        "highest",
        "number",
        "pubend",
        "request",
        "sequence",
        "ticks",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, connection: Connection, number: int, request: OpenRequest) -> None:
        self.connection = connection
        self.number = number
        self.request = request
        """What was asked last of the router: to open it."""
        self.pubend: PubendId = ""
        """Where it was last opened; "" before that."""
        self.waiting: dict[int, Waiting] = {}
        """What is not answered, by serial, in the order it was asked."""
        self.waiting_bytes = 0
        self.highest = 0
        """Where the batch begins that was placed last: the next one begins above it, or is sent again."""
        self.sequence = 0
        """Of the last event that was acknowledged since the publisher was opened; 0 before that."""
        self.ticks: list[TickRun] = []
        """Ticks of batches that are durable, up to `sequence`, but not told yet."""

    def wait(self, serial: int, first: int, size: int, *, opening: bool) -> None:
        """Notes a question."""
        self.waiting[serial] = Waiting(first, size, self.sequence, opening=opening)
        self.waiting_bytes += size

    def has_acknowledged(self, batch: Publish) -> bool:
        """Whether a batch is a copy of what was acknowledged since the publisher was opened."""
        return 0 < batch.first <= self.sequence - batch.events.count + 1

    @property
    def openings(self) -> int:
        """How many openings are not answered."""
        return sum(waiting.opening for waiting in self.waiting.values())

    def take_answered(self) -> Waiting | None:
        """The oldest question if it has its answer."""
        for serial, waiting in self.waiting.items():
            if waiting.placed is None:
                return None
            del self.waiting[serial]
            self.waiting_bytes -= waiting.size
            return waiting
        return None

    def drop_from(self, first: int) -> None:
        """The client sends again from a sequence on: the copies that it sent before need no answer any more."""
        for serial, waiting in list(self.waiting.items()):
            if not waiting.opening and waiting.first >= first:
                del self.waiting[serial]
                self.waiting_bytes -= waiting.size

    def drop_batches(self) -> None:
        """No answer to a batch sent so far will be given; openings stay."""
        self.waiting = {serial: waiting for serial, waiting in self.waiting.items() if waiting.opening}
        self.waiting_bytes = 0


class Publishing:
    """All publishers of all sessions."""

    def __init__(self, limits: Limits, outbox: Outbox, effects: list[object]) -> None:
        """Questions for the router are appended to `effects`, answers for clients go to `outbox`."""
        self._limits = limits
        self._outbox = outbox
        self._effects = effects
        self._untold: dict[tuple[int, int], Publisher] = {}
        self._serial = 0
        """Of the last question to the router, by whomever: a client may use the number of a publisher again."""

    # What happened.

    def on_open(self, connection: Connection, session: int, message: OpenPublisher) -> None:
        """A client opens a publisher, or opens it again. Raises RemoteProtocolError beyond its window.

        Openings count by themselves: one that follows a refusal finds as many batches as there may be, all sent
        before the client heard of it.
        """
        request = OpenRequest(
            message.name,
            message.instance,
            message.attempt,
            message.topic,
            message.pubend,
            message.epoch,
            principal=connection.principal,
        )
        publisher = connection.publishers.get(message.publisher)
        if publisher is None:
            if len(connection.publishers) >= self._limits.publishers:
                reason = f"a session may have {self._limits.publishers} publishers"
                self._refuse(connection, session, message, reason)
                return
            publisher = connection.publishers[message.publisher] = Publisher(connection, message.publisher, request)
        self._check_count(publisher, publisher.openings, "openings")
        publisher.request = request
        serial = self._next_serial()
        publisher.wait(serial, 0, 0, opening=True)
        self._effects.append(SubmitOpen(request, ReplyTo(session, message.publisher, serial)))

    def on_publish(self, connection: Connection, session: int, message: Publish) -> None:
        """A batch. Raises RemoteProtocolError beyond the window, or if the publisher was never opened.

        A copy of what was acknowledged has its answer: the receipt was on its way when the client sent it again.
        When that comes, the client sends what the window then has room for, so the copy must take none of it.
        """
        publisher = connection.publishers.get(message.publisher)
        if publisher is None or not publisher.pubend:
            raise RemoteProtocolError(f"a batch of publisher {message.publisher}, which is not open")
        size = message.events.size
        if message.first <= publisher.highest:
            publisher.drop_from(message.first)
        publisher.highest = message.first
        if publisher.has_acknowledged(message):
            return
        self._check_window(publisher, size)
        serial = self._next_serial()
        publisher.wait(serial, message.first, size, opening=False)
        name, who = publisher.request.publisher, connection.principal
        pub = Pub(name, message.epoch, message.first, message.events, publisher.pubend, principal=who)
        self._effects.append(Submit(pub, ReplyTo(session, message.publisher, serial)))

    def on_close(self, connection: Connection, session: int, message: ClosePublisher) -> None:
        """A client needs a publisher no more. One whose opening was refused here was never known."""
        publisher = connection.publishers.pop(message.publisher, None)
        if publisher is not None:
            self._end(session, publisher, Ending.CLOSED)

    def on_placed(self, connection: Connection, reply_to: ReplyTo, placed: Submitted) -> None:
        """The router's answer to an opening or a batch of a session that lives."""
        publisher = connection.publishers.get(reply_to.publisher)
        if publisher is None:
            return  # it is closed
        waiting = publisher.waiting.get(reply_to.serial)
        if waiting is None:
            return  # the refusal of a batch before it spoke for it
        waiting.placed = placed
        while (answered := publisher.take_answered()) is not None:
            assert answered.placed is not None
            self._answer(reply_to.session, publisher, answered, answered.placed)

    def on_session_over(self, session: int, connection: Connection, ending: Ending) -> None:
        """A session's publishers are gone; what they had placed may still be logged."""
        for publisher in connection.publishers.values():
            self._end(session, publisher, ending)

    # What to do.

    def tell_published(self) -> None:
        """Puts what became durable in this step into the outbox."""
        if self._untold:
            for (session, _), publisher in self._untold.items():
                self._tell_durable(session, publisher)
            self._untold.clear()

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _end(self, session: int, publisher: Publisher, ending: Ending) -> None:
        """Says to the pubend that an opening is over. Nobody waits for the answer."""
        self._untold.pop((session, publisher.number), None)
        request = replace(publisher.request, pubend=publisher.pubend or publisher.request.pubend, ending=ending)
        self._effects.append(SubmitOpen(request, ReplyTo(session, publisher.number, self._next_serial())))

    def _answer(self, session: int, publisher: Publisher, waiting: Waiting, placed: Submitted) -> None:
        outcome = placed.outcome
        if outcome.verdict is not Verdict.OK:
            self._tell_refused(session, publisher, waiting, outcome)
        elif waiting.opening:
            publisher.pubend = placed.pubend
            opened = PublisherOpened(publisher.number, placed.pubend, outcome.epoch, outcome.sequence, outcome.tick)
            self._tell_durable(session, publisher)
            publisher.sequence = 0  # what was logged before may be sent again, and is then to be answered
            self._outbox.tell(publisher.connection.link, session, opened)
        elif outcome.sequence > publisher.sequence:  # else a batch sent again: a later one has spoken for it
            publisher.sequence = outcome.sequence
            append_runs(publisher.ticks, outcome.ticks)
            self._untold[session, publisher.number] = publisher

    def _tell_refused(self, session: int, publisher: Publisher, waiting: Waiting, outcome: Outcome) -> None:
        code = CODES[outcome.verdict]
        if waiting.opening and outcome.verdict is Verdict.INVALID:
            code = Code.INVALID_TOPIC  # the topic is all that an opening can get wrong
        if not waiting.opening:
            publisher.drop_batches()
        sequence = waiting.first
        if outcome.verdict in {Verdict.RESUME, Verdict.RETRY} and outcome.sequence:
            # On its way to the pubend a batch may be overtaken by the next, which is then asked to wait for it.
            # By now it may have come: what is acknowledged is not asked for again.
            # What was acknowledged before the batch was placed, and is asked for all the same, the pubend has lost.
            has_lost = outcome.sequence <= waiting.acknowledged
            sequence = outcome.sequence if has_lost else max(outcome.sequence, publisher.sequence + 1)
        self._tell_durable(session, publisher)
        refused = PublishRefused(publisher.number, sequence, code, outcome.reason)
        self._outbox.tell(publisher.connection.link, session, refused)

    def _tell_durable(self, session: int, publisher: Publisher) -> None:
        if publisher.ticks:
            published = Published(publisher.number, publisher.sequence, publisher.ticks)
            publisher.ticks = []
            self._outbox.tell(publisher.connection.link, session, published)

    def _check_window(self, publisher: Publisher, size: int) -> None:
        limits = self._limits
        self._check_count(publisher, len(publisher.waiting), "batches")
        if publisher.waiting_bytes and publisher.waiting_bytes + size > limits.window_bytes:
            raise RemoteProtocolError(
                f"publisher {publisher.number} has more than {limits.window_bytes} bytes unanswered"
            )

    def _check_count(self, publisher: Publisher, unanswered: int, what: str) -> None:
        most = self._limits.window_batches
        if unanswered >= most:
            raise RemoteProtocolError(f"publisher {publisher.number} has more than {most} {what} unanswered")

    def _refuse(self, connection: Connection, session: int, message: OpenPublisher, reason: str) -> None:
        refused = PublishRefused(message.publisher, 0, Code.REJECTED, reason)
        self._outbox.tell(connection.link, session, refused)


def append_runs(runs: list[TickRun], more: Sequence[TickRun]) -> None:
    """Appends runs of ticks, joining the first to the last one there if it goes on in the same steps."""
    if runs and more:
        last, first = runs[-1], more[0]
        if last.step == first.step and last.first + last.step * last.count == first.first:
            runs[-1] = TickRun(last.first, last.step, last.count + first.count)
            runs.extend(more[1:])
            return
    runs.extend(more)
