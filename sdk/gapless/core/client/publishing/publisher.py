"""A publisher: takes batches and gives receipts, over as many sessions as necessary (protocol: publishers, publishing).

The rules of every core hold here, too (`gapless.core`). Nothing is sent without a session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Answered, Failed, Notice, NotPublished, PublisherReady, Receipted
from gapless.core.client.link.errors import TEMPORARY, publish_error
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientTimer, Key
from gapless.core.client.publishing.batches import BatchQueue, QueuedBatch
from gapless.core.deadlines import Deadlines
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    ClosePublisher,
    Code,
    OpenPublisher,
    PositionsStored,
    Publish,
    Published,
    PublisherOpened,
    PublishRefused,
    TickRun,
)
from gapless.core.wire.tokens import BatchTokens, CheckpointToken, Tokens, join_tokens, merge_tokens, own_tokens
from gapless.errors import (
    GaplessError,
    InvalidTokenError,
    PublisherFencedError,
    PublishRejectedError,
    PublishUncertainError,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from gapless.core.stream.columns import EventColumns


class PublisherPhase(Enum):
    """How far the publisher is opened, in the present session."""

    UNOPENED = "unopened"
    OPENING = "opening"
    OPEN = "open"
    OVER = "over"


class PublisherCore:
    """One publisher of one connection."""

    def __init__(
        self,
        number: int,
        name: str,
        instance: str,
        topic: str | None,
        backoff: Backoff,
        outbox: ClientOutbox,
        deadlines: Deadlines[Key],
    ) -> None:
        self.number = number
        self.name = name
        self.phase = PublisherPhase.UNOPENED
        self.host = ""
        """The node that hosts its pubend, as far as a broker has named it."""
        self.stalled = ""
        """Why the broker cannot log at present, from its last refusal; "" if it can."""
        self.tokens: Tokens = ()
        """The tokens that are known to be stored under its name; the one stored last is last."""
        self._instance = instance
        self._topic = topic
        self._outbox = outbox
        self._deadlines = deadlines
        self._backoff = backoff
        self._attempt = 0
        self._pubend = ""
        self._epoch = 0
        self._was_open = False
        self._is_forgotten = False
        """Whether it is opened anew because nobody knows what of it was logged."""
        self._paused = False
        self._batches = BatchQueue()
        self._tickets = 0
        self._window_batches = 1
        self._window_bytes = 0
        self._durable = False
        """What the broker says of its own volume: older ones say it of no receipt."""

    # Getters.

    @property
    def pubend(self) -> PubendId:
        """Where it is open; "" before it was for the first time."""
        return self._pubend

    @property
    def over(self) -> bool:
        """Whether it was closed, or refused for good."""
        return self.phase is PublisherPhase.OVER

    @property
    def unanswered(self) -> int:
        """How many batches have no receipt yet, sent or not."""
        return len(self._batches)

    @property
    def unanswered_bytes(self) -> int:
        """The bytes of all batches without a receipt."""
        return self._batches.bytes

    @property
    def logged(self) -> int:
        """How many events of this name are known to be logged."""
        return self._batches.logged

    # What happened.

    def on_session(self) -> None:
        """A session is open: opens the publisher in it. Every opening is a new attempt."""
        welcome = self._outbox.welcome
        assert welcome is not None
        self._window_batches = welcome.window_batches
        self._window_bytes = welcome.window_bytes
        self._durable = welcome.durable
        self._attempt += 1
        self._batches.on_session()
        self._resume()
        self._open()

    def on_session_over(self) -> None:
        """The session is over. What was sent may be logged or not, so it stays in the queue."""
        self._batches.on_session_over()
        self.phase = PublisherPhase.UNOPENED
        self._resume()

    def on_opened(self, opened: PublisherOpened) -> None:
        """The broker has opened the publisher, and reports how many events of its name are logged, and its tokens.

        If others are logged than this publisher has sent, it is over: a former one of the name has sent them, they came
        into a log of others late, and what this one was given to publish may be the same.

        Raises RemoteProtocolError if they are no tokens.
        """
        if self.phase is not PublisherPhase.OPENING:
            return
        may_be_logged = self._is_forgotten or any(batch.first or batch.uncertain for batch in self._batches)
        self._is_forgotten = False
        if self._was_open and opened.sequence > self.logged and not may_be_logged:
            text = f"events up to {opened.sequence} of publisher {self.name!r} were logged late, and are not its own"
            self.fail(PublisherFencedError(f"{text}: recover() shows what is there"))
            return
        try:
            self.tokens = tuple(map(CheckpointToken.parse, opened.tokens))
        except InvalidTokenError as error:
            raise RemoteProtocolError(f"the broker stores what is no token: {error}") from error
        self._pubend = opened.pubend
        self.host = opened.node or self.host
        self._epoch = opened.epoch
        self._settle_sequence(opened.sequence)
        self.phase = PublisherPhase.OPEN
        self._answered_well()
        if not self._was_open:
            self._was_open = True
            self._outbox.tell(Answered(self.number, PublisherReady(opened.pubend, opened.sequence, self.tokens)))
        self._send()

    def on_published(self, published: Published) -> None:
        """Everything up to a sequence is durable. Raises RemoteProtocolError if the sequence was never sent."""
        logged = self._batches.logged
        if self.phase is not PublisherPhase.OPEN or published.sequence <= logged:
            return
        count = self._batches.count_up_to(published.sequence)
        durable = self._says_durable(published)
        ticks = _ticks_of(published.ticks, published.sequence - logged)
        position = 0
        for batch in self._batches.take_logged(count):
            share = ticks[position : position + batch.events.count]
            position += batch.events.count
            self.tokens = merge_tokens(self.tokens, own_tokens(batch.tokens))
            self._outbox.tell(Receipted(self.number, batch.ticket, self._pubend, share, durable))
        self._answered_well()
        self._send()

    def _says_durable(self, published: Published) -> bool:
        """What the answer says of the pubend's log; of an older broker, what it says of its own volume."""
        return self._durable if published.durable is None else published.durable

    def on_stored(self, _stored: PositionsStored) -> None:
        """The tokens of a batch without events are durable. Raises RemoteProtocolError if there is no such batch."""
        if self.phase is not PublisherPhase.OPEN:
            return
        batch = self._batches.take_stored()
        self.tokens = merge_tokens(self.tokens, own_tokens(batch.tokens))
        self._outbox.tell(Receipted(self.number, batch.ticket, self._pubend, (), self._durable))
        self._answered_well()
        self._send()

    def on_refused(self, refused: PublishRefused) -> None:
        """The broker has refused a batch or the opening. Raises RemoteProtocolError if that makes no sense."""
        if self.phase is PublisherPhase.OPENING:
            if not refused.sequence:  # otherwise it is about a batch that was sent before the opening
                self._on_opening_refused(refused)
        elif self.phase is PublisherPhase.OPEN:
            if refused.code is Code.FENCED:
                self.fail(publish_error(refused.code, refused.reason))
            elif refused.code is Code.FORGOTTEN:
                self._begin_anew(refused.reason)
            elif refused.code is Code.RESUME:
                self._rewind(refused)
                self._send()
            elif refused.code in TEMPORARY:
                self._rewind(refused)
                # `_rewind` may have opened the publisher anew. Then the next step is the answer to that.
                if self.phase is PublisherPhase.OPEN:
                    self._pause()
                self._stall(refused.reason)
            else:
                self._drop(refused)

    def on_deadline(self) -> None:
        """The delay is over: repeats what the broker refused for now."""
        self._paused = False
        if not self._outbox.open:
            return
        if self.phase is PublisherPhase.OPENING:
            self._open()
        else:
            self._send()

    # Commands.

    def publish(self, events: EventColumns, tokens: BatchTokens) -> int:
        """Queues a batch, with events or tokens or both. Returns the ticket under which its answer comes."""
        assert self.phase is not PublisherPhase.OVER
        assert events.count or tokens, "a batch has something to be logged"
        self._tickets += 1
        self._batches.append(QueuedBatch(events, tokens, self._tickets))
        self._send()
        return self._tickets

    def move(self, outbox: ClientOutbox, deadlines: Deadlines[Key]) -> None:
        """Goes on in another session. That this one is over for it is no different from its end."""
        if self.phase is not PublisherPhase.UNOPENED:
            self.on_session_over()
        self._outbox = outbox
        self._deadlines = deadlines

    def fail(self, error: GaplessError) -> None:
        """Ends the publisher, and reports the error for every batch.

        A refusal in this session is true for everything that was sent in it, because answers come in order. It tells
        nothing about a batch that was sent in an earlier session: that batch may be logged, so it is uncertain.
        """
        self.phase = PublisherPhase.OVER
        self._deadlines.clear((ClientTimer.PUBLISHER, self.number))
        if self._outbox.open:
            self._outbox.send_last(ClosePublisher(self.number))
        for batch in self._batches:
            fate = error
            if batch.uncertain and not isinstance(error, PublishUncertainError):
                fate = PublishUncertainError(f"the publisher ended before the answer came: {error}")
            self._outbox.tell(NotPublished(self.number, batch.ticket, fate))
        self._batches.clear()
        self._outbox.tell(Failed(self.number, error))

    # How it is done.

    def _open(self) -> None:
        self.phase = PublisherPhase.OPENING
        message = OpenPublisher(
            self.number, self.name, self._instance, self._attempt, self._topic, self._pubend, self._epoch, self.host
        )
        self._outbox.send_last(message)  # if it overtook an earlier batch, it would fence that batch

    def _send(self) -> None:
        """Sends queued batches as far as the window and the link allow; if none is on its way, one at least."""
        if self.phase is not PublisherPhase.OPEN or self._paused:
            return
        for batch in self._batches.send(self._window_batches, self._window_bytes, self._outbox.room):
            self._outbox.publish(
                Publish(self.number, self._epoch, batch.first, batch.events, join_tokens(batch.tokens))
            )
        if self._batches.has_unsent and self._outbox.room <= 0:
            self._outbox.wait_for_room(self.number, self._send)

    def _settle_sequence(self, sequence: int) -> None:
        """Decides the sequences of the queue, now that the broker has reported how much is logged.

        1. Nothing of the queue can be logged: it continues after what is logged.
        2. Something may be logged: the broker recognises it by its sequences, so they stay.
        3. The broker has less than it once acknowledged: it has lost data (its volume was in memory, or an old copy was
           restored). The queue cannot be there either, so it continues after what is left, and a person should know.
        """
        ambiguous = any(batch.uncertain for batch in self._batches)
        if not ambiguous or sequence < self.logged:
            if sequence < self.logged:
                self._outbox.tell(Notice(_lost_text(self.name, self.logged, sequence)))
            self._batches.follow(sequence)

    def _rewind(self, refused: PublishRefused) -> None:
        """Sends again from a sequence on.

        If the broker asks for a sequence that has its receipt already, there are two explanations: a batch has arrived
        late, after the next one; or the broker has lost what it had acknowledged. Another opening shows what it has,
        and the queue continues after that.
        """
        if refused.sequence <= self.logged:
            self._open_anew()
        else:
            self._batches.rewind(refused.sequence)

    def _open_anew(self) -> None:
        self._batches.rewind(self.logged + 1)
        self._attempt += 1
        self._resume()
        self._open()

    def _drop(self, refused: PublishRefused) -> None:
        """Drops a batch that was refused for good. Later batches take its sequences, in another epoch.

        Why another epoch: a late copy of a later batch, under its first sequences, would look like the next batch in
        the same epoch, and would be logged a second time.
        """
        batch = self._batches.drop(refused.sequence)
        error = publish_error(refused.code, refused.reason)
        self._outbox.tell(NotPublished(self.number, batch.ticket, error))
        if batch.tokens:
            self._drop_covering(batch, f"a batch before it was refused, and its token covers that one: {error}")
        self._attempt += 1
        self._resume()
        self._open()

    def _drop_covering(self, refused: QueuedBatch, reason: str) -> None:
        """Drops the batches with tokens behind one with tokens that will not be logged: theirs would say that it was.

        None of them is logged, because a batch is taken only after those before it.
        """
        for batch in self._batches.take_covering(refused.ticket):
            self._outbox.tell(NotPublished(self.number, batch.ticket, PublishRejectedError(reason)))

    def _begin_anew(self, reason: str) -> None:
        """The broker no longer knows the publisher: what was sent is uncertain, and the rest begins with a new epoch.

        It names the epoch that it had: if another one owns the name, it is fenced. Batches that were sent only in this
        session are uncertain, too. On the way to a pubend elsewhere a batch may have been sent twice, and the broker
        may have logged the first copy before it crashed and forgot the publisher.
        """
        error = PublishUncertainError(f"whether this was logged before is not known any more: {reason}")
        uncertain = self._batches.take_sent()
        for batch in uncertain:
            self._outbox.tell(NotPublished(self.number, batch.ticket, error))
        covered = next((batch for batch in uncertain if batch.tokens), None)
        if covered is not None:
            self._drop_covering(covered, f"a batch before it is uncertain, and its token covers that one: {error}")
        self._batches.follow(0)
        self._is_forgotten = True
        self._attempt += 1
        self._resume()
        self._open()

    def _pause(self) -> None:
        self._paused = True
        self._deadlines.set((ClientTimer.PUBLISHER, self.number), self._outbox.now + self._backoff.next())

    def _resume(self) -> None:
        self._paused = False
        self._deadlines.clear((ClientTimer.PUBLISHER, self.number))

    def _on_opening_refused(self, refused: PublishRefused) -> None:
        if refused.code in TEMPORARY or refused.code is Code.RESUME:
            self._pause()
            self._stall(refused.reason)
        elif refused.code is Code.FORGOTTEN:
            self._epoch = 0
            self._begin_anew(refused.reason)
        else:
            self.fail(publish_error(refused.code, refused.reason))

    def _stall(self, reason: str) -> None:
        before, self.stalled = self.stalled, reason or "the broker cannot log at present"
        if not before:
            self._outbox.tell(Notice(f"publisher {self.name!r} waits and will try again: {reason}"))

    def _answered_well(self) -> None:
        self._backoff.reset()
        self.stalled = ""


def _lost_text(name: str, acknowledged: int, left: int) -> str:
    return (
        f"the broker had acknowledged {acknowledged} events of publisher {name!r} and now knows of {left}:"
        " it has lost what it had logged"
    )


def _ticks_of(runs: Sequence[TickRun], count: int) -> Sequence[Tick]:
    """Returns the last `count` ticks of the runs; 0 for ticks that the broker no longer knows."""
    spans: deque[range] = deque()
    for run in reversed(runs):
        if run.count < 1 or run.step < 1:
            raise RemoteProtocolError(f"the broker gives {run.count} ticks in steps of {run.step}")
        share = min(run.count, count)
        count -= share
        if share:
            last = run.first + run.step * (run.count - 1)
            spans.appendleft(range(last - run.step * (share - 1), last + 1, run.step))
    if len(spans) == 1 and not count:
        return spans[0]
    return [0] * count + list(chain.from_iterable(spans))
