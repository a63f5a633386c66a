"""The publishers of all sessions: windows, and the order of answers (protocol: publishing).

What this layer is responsible for:

* A publisher has at most one unanswered opening, or `window_batches` batches and `window_bytes` unanswered.
* Answers leave in the order of the batches, in whatever order the router answers. So `Published(sequence)` can promise
  everything up to that sequence. Batches that are answered in one step share one `Published`.
* A refusal answers all batches that the publisher sends before it knows of the refusal. Later batches are ignored until
  the requested batch comes, or another opening. So both ends count the same window.

Whether a batch was logged before, or leaves a hole, is decided by the pubend's host (protocol: publishers).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.ports import ClientSession
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.limits import PUBLISHERS, SessionLimits
from gapless.core.server.link_session import LinkSession
from gapless.core.server.outbox import LinkOutputs
from gapless.core.server.permissions import needs_of_publisher
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    KeyedPublished,
    OpenPublisher,
    PositionsStored,
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
    Verdict.ELSEWHERE: Code.REJECTED,
    Verdict.INVALID: Code.INVALID_MESSAGE,
    Verdict.FORBIDDEN: Code.FORBIDDEN,
    Verdict.FENCED: Code.FENCED,
    Verdict.STALE: Code.STALE,
    Verdict.FORGOTTEN: Code.FORGOTTEN,
    Verdict.RESUME: Code.RESUME,
    Verdict.RETRY: Code.RETRY,
    Verdict.UNCERTAIN: Code.RETRY,  # sending again is safe: if the batch was logged, it is recognised
}
"""The code for the client for each verdict but OK."""


class ReplyTo(Struct, frozen=True, gc=False):
    """Identifies an opening or a batch; the router returns it with its answer."""

    session: int
    publisher: int
    serial: int


class UnansweredBatch(Struct, eq=False):
    """A batch that is not answered yet, or whose answer waits for an earlier batch."""

    first: int
    size: int
    has_events: bool
    outcome: Outcome | None = None


class PublisherLink:
    """One opening of a publisher in one session. Another opening makes a new object."""

    __slots__ = (
        "allowed",
        "connection",
        "durable",
        "is_counted",
        "is_open",
        "logged",
        "number",
        "opening",
        "request",
        "resume_at",
        "session",
        "ticks",
        "unanswered",
        "unanswered_bytes",
    )

    def __init__(
        self, connection: LinkSession, session: int, number: int, request: OpenRequest, opening: int, allowed: int
    ) -> None:
        self.connection = connection
        self.allowed = allowed
        """The newest version of the rules that lets its client publish to its topic."""
        self.session = session
        self.number = number
        self.request = request
        """The request that opened it; it names its pubend once that is known."""
        self.is_counted = False
        """Whether it is one of those that its principal has open."""
        self.is_open = False
        """Whether batches may come: the opening has its answer, and it was no refusal."""
        self.opening = opening
        """The serial of the opening while it is unanswered, else 0."""
        self.unanswered: dict[int, UnansweredBatch] = {}
        """The batches by serial, in the order of their arrival."""
        self.unanswered_bytes = 0
        self.resume_at: int | None = None
        """After a refusal: batches above this sequence were sent before the client knew of the refusal."""
        self.logged = 0
        """Everything up to this sequence is logged, according to the answers so far."""
        self.durable: bool | None = None
        """Whether that survives the end of the process that keeps the pubend's log."""
        self.ticks: list[TickRun] = []
        """The ticks up to `logged` that were not sent to the client yet."""

    def count_no_more(self) -> None:
        """It is not open any more, or never was."""
        if self.is_counted and self.connection.budget is not None:
            self.connection.budget.publishers -= 1
        self.is_counted = False

    def take_answered(self) -> tuple[UnansweredBatch, Outcome] | None:
        """Takes the oldest batch out, if it has its answer. Returns both."""
        for serial, batch in self.unanswered.items():
            if batch.outcome is None:
                return None
            del self.unanswered[serial]
            self.unanswered_bytes -= batch.size
            return batch, batch.outcome
        return None

    def refuse(self, resume_at: int) -> None:
        """Notes a refusal: it answers all batches under way, and all that the client sends before it knows of it."""
        self.unanswered.clear()
        self.unanswered_bytes = 0
        self.resume_at = resume_at


class Publishing:
    """All publishers of all sessions."""

    def __init__(
        self,
        limits: SessionLimits,
        outbox: LinkOutputs,
        effects: list[object],
        audit: Audit,
        authority: Authority,
    ) -> None:
        """Questions for the router are appended to `effects`; answers for clients go to `outbox`."""
        self._authority = authority
        self._audit = audit
        self._limits = limits
        self._outbox = outbox
        self._effects = effects
        self._sessions: dict[int, dict[int, PublisherLink]] = {}
        """The publishers by session, and by the client's number."""
        self.answered: dict[tuple[int, int], PublisherLink] = {}
        """The publishers with batches that were logged in this step: `send_published` is due."""
        self._serial = 0
        """The serial of the last question to the router.

        It is never reused; a client may reuse the number of a publisher.
        """

    # What happened.

    def on_open(self, connection: LinkSession, client: ClientSession, message: OpenPublisher) -> None:
        """Opens a publisher, or opens it again: then nothing that the client sent before is answered any more.

        Raises RemoteProtocolError if an opening of the publisher is unanswered.
        """
        request = OpenRequest(
            message.name,
            message.instance,
            message.attempt,
            message.topic,
            message.pubend,
            message.epoch,
            node=message.node,
            principal=client.principal.sent,
        )
        session = client.number
        publishers = self._sessions.setdefault(session, {})
        earlier = publishers.get(message.publisher)
        if earlier is not None:
            if earlier.opening:
                raise RemoteProtocolError(f"publisher {message.publisher} is opened again before the answer came")
            self._send_logged(earlier)
        elif len(publishers) >= self._limits.publishers:
            reason = f"a session may have {self._limits.publishers} publishers ({PUBLISHERS})"
            self._answer(connection, session, PublishRefused(message.publisher, 0, Code.REJECTED, reason))
            return
        is_counted = earlier is not None and earlier.is_counted
        if (budget := connection.budget) is not None and not is_counted:
            if reason := budget.refuses_publisher(client.principal):
                self._answer(connection, session, PublishRefused(message.publisher, 0, Code.REJECTED, reason))
                return
            budget.publishers += 1
            is_counted = True
        serial = self._next_serial()
        opened = publishers[message.publisher] = PublisherLink(
            connection, session, message.publisher, request, serial, self._authority.version
        )
        opened.is_counted = is_counted
        self._effects.append(SubmitOpen(request, ReplyTo(session, message.publisher, serial)))

    def on_publish(self, connection: LinkSession, client: ClientSession, message: Publish) -> None:
        """Takes a batch. Raises RemoteProtocolError if it exceeds the window, or the publisher is not open."""
        session = client.number
        publisher = self._sessions.get(session, {}).get(message.publisher)
        if publisher is None or not publisher.is_open:
            raise RemoteProtocolError(f"a batch of publisher {message.publisher}, which is not open")
        if publisher.resume_at is not None:
            # It was sent before the client knew of the refusal, which has answered it already.
            if message.first > publisher.resume_at:
                return
            publisher.resume_at = None
        size = message.events.size + len(message.tokens)
        self._check_window(publisher, size)
        serial = self._next_serial()
        batch = publisher.unanswered[serial] = UnansweredBatch(message.first, size, message.events.count > 0)
        publisher.unanswered_bytes += size
        if publisher.allowed != self._authority.version and (refusal := self._refusal_of(publisher, client)):
            batch.outcome = Outcome(Verdict.FORBIDDEN, refusal, message.first)
            self._answer_batches(publisher)
            return
        name, pubend = publisher.request.publisher, publisher.request.pubend
        pub = Pub(
            name, message.epoch, message.first, message.events, pubend, message.tokens, principal=client.principal.sent
        )
        self._effects.append(Submit(pub, ReplyTo(session, message.publisher, serial), publisher.request.node))

    def on_close(self, session: int, message: ClosePublisher) -> None:
        """Closes a publisher. If its opening was refused here, it was never known."""
        publisher = self._sessions.get(session, {}).pop(message.publisher, None)
        if publisher is not None:
            self._end(publisher, Ending.CLOSED)

    def on_placed(self, reply_to: ReplyTo, placed: Submitted) -> None:
        """The router has answered an opening or a batch.

        The answer is dropped if the publisher is over or was refused.
        """
        publisher = self._sessions.get(reply_to.session, {}).get(reply_to.publisher)
        if publisher is None:
            return
        if reply_to.serial == publisher.opening:
            self._on_opened(publisher, placed)
        elif (batch := publisher.unanswered.get(reply_to.serial)) is not None:
            batch.outcome = placed.outcome
            self._answer_batches(publisher)

    def on_session_over(self, session: int, ending: Ending) -> None:
        """Ends the publishers of a session. Batches under way may still be logged."""
        for publisher in self._sessions.pop(session, {}).values():
            self._end(publisher, ending)

    # What to do.

    def send_published(self) -> None:
        """Sends the receipts for everything that was logged in this step."""
        for publisher in list(self.answered.values()):
            self._send_logged(publisher)

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial

    def _end(self, publisher: PublisherLink, ending: Ending) -> None:
        """Informs the pubend that an opening is over. The answer will be dropped."""
        publisher.count_no_more()
        self.answered.pop((publisher.session, publisher.number), None)
        request = replace(publisher.request, ending=ending)
        reply_to = ReplyTo(publisher.session, publisher.number, self._next_serial())
        self._effects.append(SubmitOpen(request, reply_to))

    def _refusal_of(self, publisher: PublisherLink, client: ClientSession) -> str:
        """Other rules count than those under which a publisher was opened. Returns why it may not go on; "" if it may.

        The host of its pubend judges each topic in a batch.
        """
        needs = needs_of_publisher(publisher.request.topic, publisher.request.publisher)
        refusals = (self._authority.refusal(client.principal, *need) for need in needs)
        refusal = next(filter(None, refusals), "")
        if not refusal:
            publisher.allowed = self._authority.version
        return refusal

    def _answer_batches(self, publisher: PublisherLink) -> None:
        """Answers the oldest batches of a publisher, as far as their outcomes are known."""
        while (answered := publisher.take_answered()) is not None:
            self._on_answered(publisher, *answered)

    def _on_opened(self, publisher: PublisherLink, placed: Submitted) -> None:
        publisher.opening = 0
        outcome, number = placed.outcome, publisher.number
        answer: PublisherOpened | PublishRefused
        if outcome.verdict is Verdict.OK:
            publisher.is_open = True
            node = placed.node or publisher.request.node
            publisher.request = replace(publisher.request, pubend=placed.pubend, node=node)
            answer = PublisherOpened(
                number, placed.pubend, outcome.epoch, outcome.sequence, outcome.tick, placed.node, outcome.tokens
            )
        else:
            # An opening carries nothing else that could be invalid.
            code = Code.INVALID_TOPIC if outcome.verdict is Verdict.INVALID else CODES[outcome.verdict]
            answer = PublishRefused(number, 0, code, outcome.reason)
            publisher.count_no_more()
        self._answer(publisher.connection, publisher.session, answer)

    def _answer(self, connection: LinkSession, session: int, answer: PublisherOpened | PublishRefused) -> None:
        """Answers an opening."""
        if self._audit.is_wanted:
            self._audit.on_answer(session, answer)
        self._outbox.tell(connection.link, session, answer)

    def _on_answered(self, publisher: PublisherLink, batch: UnansweredBatch, outcome: Outcome) -> None:
        if outcome.verdict is Verdict.OK and not batch.has_events:
            # The receipts of the batches before it go first: it is the oldest one without an answer then.
            self._send_logged(publisher)
            self._outbox.tell(publisher.connection.link, publisher.session, PositionsStored(publisher.number))
            return
        if outcome.verdict is Verdict.OK:
            publisher.logged = outcome.sequence
            publisher.durable = outcome.durable
            append_runs(publisher.ticks, outcome.ticks)
            self.answered[publisher.session, publisher.number] = publisher
            return
        asked_for = outcome.sequence if outcome.verdict in {Verdict.RESUME, Verdict.RETRY} else 0
        sequence = asked_for or batch.first
        publisher.refuse(sequence)
        if self._audit.is_wanted and outcome.verdict is Verdict.FORBIDDEN:
            request = publisher.request
            self._audit.on_batch_refused(publisher.connection, request.topic, request.publisher, outcome.reason)
        # The receipts of the batches before it go first: answers leave in order.
        self._send_logged(publisher)
        refused = PublishRefused(publisher.number, sequence, CODES[outcome.verdict], outcome.reason)
        self._outbox.tell(publisher.connection.link, publisher.session, refused)

    def _send_logged(self, publisher: PublisherLink) -> None:
        if self.answered.pop((publisher.session, publisher.number), None) is not None:
            published = Published(publisher.number, publisher.logged, publisher.ticks, publisher.durable)
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
    """Appends runs of ticks. The first one is joined to the last run if it continues it in the same steps."""
    if runs and more:
        last, first = runs[-1], more[0]
        if last.step == first.step and last.first + last.step * last.count == first.first:
            runs[-1] = TickRun(last.first, last.step, last.count + first.count)
            runs.extend(more[1:])
            return
    runs.extend(more)


UNANSWERED_MAX: Final = 256
"""How many keyed batches of a session may be unanswered."""


class KeyedReply(Struct, frozen=True, gc=False):
    """Identifies a question about a keyed batch; the router returns it with its answer."""

    session: int
    serial: int
    is_placed: bool
    """Whether the question was to log the batch; otherwise it was where the producer belongs."""


class KeyedBatches:
    """The keyed batches of all sessions. Each is a request: it first finds its pubend, and has one answer.

    Where a producer belongs is asked with every batch. That costs one turn of the router, but needs no state here that
    could be wrong; and the batches of a sink are large.
    """

    def __init__(self, outbox: LinkOutputs, effects: list[object], audit: Audit) -> None:
        """Questions for the router are appended to `effects`; answers for clients go to `outbox`."""
        self._audit = audit
        self._outbox = outbox
        self._effects = effects
        self._serial = 0
        self._unanswered: dict[int, dict[int, PublishKeyed]] = {}
        """The batches by session and by the latest question's serial: a client may repeat one under its number."""

    def on_publish(self, connection: LinkSession, client: ClientSession, message: PublishKeyed) -> None:
        """Takes a batch, and asks where its producer belongs."""
        session = client.number
        if len(self._unanswered.get(session, ())) >= UNANSWERED_MAX:
            self._refuse(connection, session, message, Code.RETRY, f"{UNANSWERED_MAX} keyed batches are unanswered")
            return
        topic, who = message.topic or None, client.principal.sent
        request = OpenRequest(message.producer, "", 0, topic, keyed=True, principal=who)
        self._effects.append(SubmitOpen(request, self._ask(session, message, is_placed=False)))

    def on_placed(self, connection: LinkSession, reply_to: KeyedReply, placed: Submitted) -> None:
        """The router has answered one of the two questions; the session still exists."""
        session = reply_to.session
        message = self._unanswered.get(session, {}).pop(reply_to.serial, None)
        if message is None:
            return
        outcome = placed.outcome
        if outcome.verdict is not Verdict.OK:
            self._refuse(connection, session, message, CODES[outcome.verdict], outcome.reason)
        elif reply_to.is_placed:
            answer = KeyedPublished(message.request, placed.pubend, list(outcome.ticks), outcome.durable)
            self._answer(connection, session, answer)
        else:
            assert connection.client is not None
            who, events = connection.client.principal.sent, message.events
            pub = Pub(
                message.producer, message.epoch, message.index, events, placed.pubend, b"", keyed=True, principal=who
            )
            self._effects.append(Submit(pub, self._ask(session, message, is_placed=True), placed.node))

    def on_session_over(self, session: int) -> None:
        """Drops the batches of a session. Those under way may still be logged."""
        self._unanswered.pop(session, None)

    def _ask(self, session: int, message: PublishKeyed, *, is_placed: bool) -> KeyedReply:
        self._serial += 1
        self._unanswered.setdefault(session, {})[self._serial] = message
        return KeyedReply(session, self._serial, is_placed)

    def _refuse(self, connection: LinkSession, session: int, message: PublishKeyed, code: Code, reason: str) -> None:
        self._answer(connection, session, RequestFailed(message.request, code, reason))

    def _answer(self, connection: LinkSession, session: int, answer: KeyedPublished | RequestFailed) -> None:
        if self._audit.is_wanted:
            self._audit.on_answer(session, answer)
        self._outbox.tell(connection.link, session, answer)
