"""The publishers of all sessions: windows, and the order of answers (protocol: publishing).

What this layer owes, and no more:

* a publisher has one opening or `window_batches` batches and `window_bytes` unanswered, never more;
* answers leave in the order of the batches, whatever order the router answers in, so `Published(sequence)` can
  promise everything up to that sequence. Batches that are answered in one step share one `Published`;
* a refusal is the answer to all batches that its publisher sends before it knows of it: what comes behind is
  ignored until the batch that was asked for comes, or another opening. So both ends count the same window.

Whether a batch was logged before, or leaves a hole, is for the pubend's host to say (protocol: publishers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.ports import ClientSession
from gapless.core.server.limits import SessionLimits
from gapless.core.server.link_session import LinkSession
from gapless.core.server.outbox import LinkOutputs
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    KeyedPublished,
    OpenPublisher,
    Publish,
    Published,
    PublisherOpened,
    PublishKeyed,
    PublishRefused,
    RequestFailed,
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


class UnansweredBatch(Struct, eq=False):
    """A batch that is not answered yet, or whose answer waits for an earlier one."""

    first: int
    size: int
    outcome: Outcome | None = None


class PublisherLink:
    """One opening of a publisher in one session. Another opening begins with a new one of these."""

    __slots__ = (
        "connection",
        "durable",
        "is_open",
        "number",
        "opening",
        "request",
        "resume_at",
        "session",
        "ticks",
        "unanswered",
        "unanswered_bytes",
    )

    def __init__(self, connection: LinkSession, session: int, number: int, request: OpenRequest, opening: int) -> None:
        self.connection = connection
        self.session = session
        self.number = number
        self.request = request
        """How it was opened; names its pubend once that is known."""
        self.is_open = False
        """Whether batches may come: the opening was answered, and not by a refusal."""
        self.opening = opening
        """The serial of the opening as long as that has no answer, else 0."""
        self.unanswered: dict[int, UnansweredBatch] = {}
        """By serial, in the order in which they came."""
        self.unanswered_bytes = 0
        self.resume_at: int | None = None
        """After a refusal: batches above this sequence were sent before the client knew of it."""
        self.durable = 0
        """The sequence up to which all is durable, as far as it was answered."""
        self.ticks: list[TickRun] = []
        """Ticks up to `durable` that are not sent yet."""

    def take_answered(self) -> tuple[int, Outcome] | None:
        """Where the oldest batch begins and how it ended, if it has; then the next one is the oldest."""
        for serial, batch in self.unanswered.items():
            if batch.outcome is None:
                return None
            del self.unanswered[serial]
            self.unanswered_bytes -= batch.size
            return batch.first, batch.outcome
        return None

    def refuse(self, resume_at: int) -> None:
        """One refusal answers all that is on its way, and what the client sends before it knows."""
        self.unanswered.clear()
        self.unanswered_bytes = 0
        self.resume_at = resume_at


class Publishing:
    """All publishers of all sessions."""

    def __init__(self, limits: SessionLimits, outbox: LinkOutputs, effects: list[object]) -> None:
        """Questions for the router are appended to `effects`, answers for clients go to `outbox`."""
        self._limits = limits
        self._outbox = outbox
        self._effects = effects
        self._sessions: dict[int, dict[int, PublisherLink]] = {}
        """By session, and by the client's number."""
        self.durable: dict[tuple[int, int], PublisherLink] = {}
        """Whose batches became durable in this step: `send_published` is due."""
        self._serial = 0
        """Of the last question to the router, by whomever: a client may use the number of a publisher again."""

    # What happened.

    def on_open(self, connection: LinkSession, client: ClientSession, message: OpenPublisher) -> None:
        """A client opens a publisher, or opens it again: then nothing that it sent before is answered any more.

        Raises RemoteProtocolError if it has an opening unanswered.
        """
        request = OpenRequest(
            message.name,
            message.instance,
            message.attempt,
            message.topic,
            message.pubend,
            message.epoch,
            principal=client.principal,
        )
        session = client.number
        publishers = self._sessions.setdefault(session, {})
        earlier = publishers.get(message.publisher)
        if earlier is not None:
            if earlier.opening:
                raise RemoteProtocolError(f"publisher {message.publisher} is opened again before the answer came")
            self._send_durable(earlier)
        elif len(publishers) >= self._limits.publishers:
            refused = PublishRefused(
                message.publisher, 0, Code.REJECTED, f"a session may have {self._limits.publishers} publishers"
            )
            self._outbox.tell(connection.link, session, refused)
            return
        serial = self._next_serial()
        publishers[message.publisher] = PublisherLink(connection, session, message.publisher, request, serial)
        self._effects.append(SubmitOpen(request, ReplyTo(session, message.publisher, serial)))

    def on_publish(self, connection: LinkSession, client: ClientSession, message: Publish) -> None:
        """A batch. Raises RemoteProtocolError beyond the window, or if the publisher is not open."""
        session = client.number
        publisher = self._sessions.get(session, {}).get(message.publisher)
        if publisher is None or not publisher.is_open:
            raise RemoteProtocolError(f"a batch of publisher {message.publisher}, which is not open")
        if publisher.resume_at is not None:
            if message.first > publisher.resume_at:
                return
            publisher.resume_at = None
        size = message.events.size
        self._check_window(publisher, size)
        serial = self._next_serial()
        publisher.unanswered[serial] = UnansweredBatch(message.first, size)
        publisher.unanswered_bytes += size
        name, pubend = publisher.request.publisher, publisher.request.pubend
        pub = Pub(name, message.epoch, message.first, message.events, pubend, principal=client.principal)
        self._effects.append(Submit(pub, ReplyTo(session, message.publisher, serial)))

    def on_close(self, session: int, message: ClosePublisher) -> None:
        """A client needs a publisher no more. One whose opening was refused here was never known."""
        publisher = self._sessions.get(session, {}).pop(message.publisher, None)
        if publisher is not None:
            self._end(publisher, Ending.CLOSED)

    def on_placed(self, reply_to: ReplyTo, placed: Submitted) -> None:
        """The router's answer to an opening or a batch. What is over, or was refused meanwhile, needs none."""
        publisher = self._sessions.get(reply_to.session, {}).get(reply_to.publisher)
        if publisher is None:
            return
        if reply_to.serial == publisher.opening:
            self._on_opened(publisher, placed)
        elif (batch := publisher.unanswered.get(reply_to.serial)) is not None:
            batch.outcome = placed.outcome
            while (answered := publisher.take_answered()) is not None:
                self._on_answered(publisher, *answered)

    def on_session_over(self, session: int, ending: Ending) -> None:
        """A session's publishers are gone; what they had placed may still be logged."""
        for publisher in self._sessions.pop(session, {}).values():
            self._end(publisher, ending)

    # What to do.

    def send_published(self) -> None:
        """Puts what became durable in this step into the outbox."""
        for publisher in list(self.durable.values()):
            self._send_durable(publisher)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _end(self, publisher: PublisherLink, ending: Ending) -> None:
        """Says to the pubend that an opening is over. Nobody waits for the answer."""
        self.durable.pop((publisher.session, publisher.number), None)
        request = replace(publisher.request, ending=ending)
        reply_to = ReplyTo(publisher.session, publisher.number, self._next_serial())
        self._effects.append(SubmitOpen(request, reply_to))

    def _on_opened(self, publisher: PublisherLink, placed: Submitted) -> None:
        publisher.opening = 0
        outcome, number = placed.outcome, publisher.number
        answer: PublisherOpened | PublishRefused
        if outcome.verdict is Verdict.OK:
            publisher.is_open = True
            publisher.request = replace(publisher.request, pubend=placed.pubend)
            answer = PublisherOpened(number, placed.pubend, outcome.epoch, outcome.sequence, outcome.tick)
        else:
            # The topic is all that an opening can get wrong.
            code = Code.INVALID_TOPIC if outcome.verdict is Verdict.INVALID else CODES[outcome.verdict]
            answer = PublishRefused(number, 0, code, outcome.reason)
        self._outbox.tell(publisher.connection.link, publisher.session, answer)

    def _on_answered(self, publisher: PublisherLink, first: int, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.OK:
            publisher.durable = outcome.sequence
            append_runs(publisher.ticks, outcome.ticks)
            self.durable[publisher.session, publisher.number] = publisher
            return
        asked_for = outcome.sequence if outcome.verdict in {Verdict.RESUME, Verdict.RETRY} else 0
        sequence = asked_for or first
        publisher.refuse(sequence)
        self._send_durable(publisher)
        refused = PublishRefused(publisher.number, sequence, CODES[outcome.verdict], outcome.reason)
        self._outbox.tell(publisher.connection.link, publisher.session, refused)

    def _send_durable(self, publisher: PublisherLink) -> None:
        if self.durable.pop((publisher.session, publisher.number), None) is not None:
            published = Published(publisher.number, publisher.durable, publisher.ticks)
            publisher.ticks = []
            self._outbox.tell(publisher.connection.link, publisher.session, published)

    def _check_window(self, publisher: PublisherLink, size: int) -> None:
        limits, waiting = self._limits, publisher.unanswered_bytes
        if len(publisher.unanswered) >= limits.window_batches:
            what = f"{limits.window_batches} batches"
        elif waiting and waiting + size > limits.window_bytes:
            what = f"{limits.window_bytes} bytes"
        else:
            return
        raise RemoteProtocolError(f"publisher {publisher.number} has more than {what} unanswered")


def append_runs(runs: list[TickRun], more: Sequence[TickRun]) -> None:
    """Appends runs of ticks, joining the first to the last one there if it goes on in the same steps."""
    if runs and more:
        last, first = runs[-1], more[0]
        if last.step == first.step and last.first + last.step * last.count == first.first:
            runs[-1] = TickRun(last.first, last.step, last.count + first.count)
            runs.extend(more[1:])
            return
    runs.extend(more)


UNANSWERED_MAX: Final = 256
"""Keyed batches that a session may have unanswered."""


class KeyedReply(Struct, frozen=True, gc=False):
    """What the router hands back with its answer to either question of a keyed batch."""

    session: int
    serial: int
    is_placed: bool
    """Whether the question was to log it; else where its producer belongs."""


class KeyedBatches:
    """The keyed batches of all sessions: each is a question, which first finds its pubend, and is answered once.

    Where a producer belongs is asked with every batch. That costs a turn of the router, and no state here that could be
    wrong; a sink's batches are large.
    """

    def __init__(self, outbox: LinkOutputs, effects: list[object]) -> None:
        """Questions for the router are appended to `effects`, answers for clients go to `outbox`."""
        self._outbox = outbox
        self._effects = effects
        self._serial = 0
        self._unanswered: dict[int, dict[int, PublishKeyed]] = {}
        """By session, and by the serial of the latest question: a client may send one again under the same number."""

    def on_publish(self, connection: LinkSession, client: ClientSession, message: PublishKeyed) -> None:
        """A batch."""
        session = client.number
        if len(self._unanswered.get(session, ())) >= UNANSWERED_MAX:
            self._refuse(connection, session, message, Code.RETRY, f"{UNANSWERED_MAX} keyed batches are unanswered")
            return
        topic, who = message.topic or None, client.principal
        request = OpenRequest(message.producer, "", 0, topic, keyed=True, principal=who)
        self._effects.append(SubmitOpen(request, self._ask(session, message, is_placed=False)))

    def on_placed(self, connection: LinkSession, reply_to: KeyedReply, placed: Submitted) -> None:
        """The router's answer to either question, of a session that lives."""
        session = reply_to.session
        message = self._unanswered.get(session, {}).pop(reply_to.serial, None)
        if message is None:
            return
        outcome = placed.outcome
        if outcome.verdict is not Verdict.OK:
            self._refuse(connection, session, message, CODES[outcome.verdict], outcome.reason)
        elif reply_to.is_placed:
            answer = KeyedPublished(message.request, placed.pubend, list(outcome.ticks))
            self._outbox.tell(connection.link, session, answer)
        else:
            assert connection.client is not None
            who, events = connection.client.principal, message.events
            pub = Pub(message.producer, message.epoch, message.index, events, placed.pubend, keyed=True, principal=who)
            self._effects.append(Submit(pub, self._ask(session, message, is_placed=True)))

    def on_session_over(self, session: int) -> None:
        """Nobody receives the answers any more; what was placed may still be logged."""
        self._unanswered.pop(session, None)

    def _ask(self, session: int, message: PublishKeyed, *, is_placed: bool) -> KeyedReply:
        self._serial += 1
        self._unanswered.setdefault(session, {})[self._serial] = message
        return KeyedReply(session, self._serial, is_placed)

    def _refuse(self, connection: LinkSession, session: int, message: PublishKeyed, code: Code, reason: str) -> None:
        self._outbox.tell(connection.link, session, RequestFailed(message.request, code, reason))
