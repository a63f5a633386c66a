"""Opens the publishers of one pubend and takes their batches (protocol: publishers; T21, T39)."""

from __future__ import annotations

from collections.abc import Hashable

from gapless.core.network.facts import Ending, OpenRequest, Outcome, Pub, Submitted, Verdict, is_unnamed
from gapless.core.outbox import Outbox, ThenAppended
from gapless.core.ports import Set
from gapless.core.server.audit import of_publisher
from gapless.core.wire.tokens import ConsumedToken, Tokens, merge_tokens
from gapless.errors import InvalidTokenError, InvalidTopicError, StaleTokenError
from gapless_phb.core import rows
from gapless_phb.core.publishers import consumed
from gapless_phb.core.publishers.appender import Appender
from gapless_phb.core.publishers.checkpoints import Checkpoints
from gapless_phb.core.publishers.table import (
    PendingBatch,
    PublisherState,
    PublisherTable,
    runs_of,
    term_of,
)
from gapless_phb.core.publishers.validation import BatchCheck, fault_of_name
from gapless_phb.core.records import checksum
from gapless_phb.core.settings import Settings
from gapless_phb.core.source import SECOND

FORGET_AT_ONCE = 1000
"""How many publishers are forgotten in one turn. After an outage many publishers may expire in the same moment."""
FORGET_PAUSE = SECOND // 100


class PublishHandler:
    """Opens publishers and takes their batches; a refused request changes nothing.

    A named publisher is known for ever. A publisher without a name is forgotten when it is closed, or
    `publisher_expiry_seconds` after its session has ended. If a forgotten publisher comes back, the broker answers
    FORGOTTEN and the client opens it anew. The broker cannot know any more whether it had logged a batch for which the
    client never got a receipt.
    """

    def __init__(
        self,
        number: int,
        log: Appender,
        table: PublisherTable,
        checkpoints: Checkpoints,
        check: BatchCheck,
        claims: consumed.ClaimedPositions,
        outbox: Outbox,
        settings: Settings,
        on_appended: ThenAppended,
        *,
        read_only: bool,
        audited: bool,
    ) -> None:
        """`on_appended`: called when a record is logged; `read_only`: only publishers that are known may publish.

        `audited`: whether anybody writes an audit.
        """
        self._audited = audited
        self._number = number
        self._log = log
        self._table = table
        self._checkpoints = checkpoints
        self._check = check
        self._claims = claims
        self._outbox = outbox
        self._settings = settings
        self.on_appended = on_appended
        self._read_only = read_only
        self.ran_twice = False
        """Whether another process of this node has opened publishers, on a copy of this volume."""
        self._expiry = round(settings.publisher_expiry_seconds * SECOND)

    def _answer(self, reply_to: Hashable, outcome: Outcome) -> None:
        self._outbox.emit(Submitted(reply_to, self._log.pubend, outcome))

    # --------------------------------------------------------------------------------------------- opening

    def open(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """Opens a publisher. Answers when its epoch, and all assigned before, is durable (protocol: publishers).

        An instance that comes back after another instance opened the name is fenced: it is the paused rival, however
        new its attempt. From this step on, batches of a lower epoch are fenced, too.

        The answer waits for the row of the publisher, and for everything that was assigned before. It names what is
        durable then: a paused rival may have stored a token that was still on its way when the opening came (TS8).
        """
        publisher = self._table.get(request.publisher)
        # It had an epoch here, and was forgotten since. Its batches may be logged, so it must not begin again
        # unnoticed.
        if publisher is None and request.epoch and is_unnamed(request.publisher):
            self._answer(reply_to, _forgotten(request.publisher))
            return
        fault = fault_of_name(request.publisher, request.instance) or self.fault(request.publisher, request.topic)
        if fault:
            self._answer(reply_to, Outcome(Verdict.REJECTED, fault))
            return
        if publisher is not None and publisher.is_newer_than(request.instance, request.epoch):
            self._answer(reply_to, Outcome(Verdict.FENCED, _owned(request.publisher)))
            return
        if publisher is None or not publisher.is_same_opening(request.instance, request.attempt):
            if publisher is None and self._audited and not is_unnamed(request.publisher):
                self._outbox.emit(of_publisher(request, self._log.pubend))
            at = self._log.opened_at(now, wall)
            publisher = self._table.open(request.publisher, request.instance, request.attempt, request.epoch, at)
        opened, epoch = publisher, publisher.epoch

        def durable(_now: int, _wall: int) -> None:
            if self._log.gone:
                self._answer(reply_to, Outcome(Verdict.RETRY, self._log.gone))
                return
            tokens = tuple(map(str, opened.tokens))
            outcome = Outcome(Verdict.OK, epoch=epoch, sequence=opened.sequence, tick=opened.tick, tokens=tokens)
            self._answer(reply_to, outcome)

        key = rows.key(self._number, publisher.name)
        self._log.settle([Set(self._log.tables.publishers, key, rows.encode(publisher.row))], durable)

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """A publisher is closed, or its session has ended.

        After a close no batch of it can come any more; after the end of a session none can come until it is resumed.
        Only a publisher without a name is ever forgotten, and only if no other session opened it anew meanwhile.
        """
        publisher = self._table.get(request.publisher)
        if (
            publisher is not None
            and is_unnamed(publisher.name)
            and not publisher.is_opened_since(request.instance, request.attempt)
        ):
            self._table.leave(publisher, now)
            publisher.closed = request.ending is Ending.CLOSED
            if publisher.closed:
                self.forget(publisher)
        self._answer(reply_to, Outcome(Verdict.OK))

    def forget(self, publisher: PublisherState) -> None:
        """Forgets a publisher that is closed, unless one of its batches is still on its way to the disk."""
        if self._table.forget(publisher):
            self._checkpoints.forget([publisher.name])

    def forget_gone(self, now: int) -> int | None:
        """Forgets publishers that have expired, a limited number at a time; returns when to look again."""
        forgotten = self._table.forget_gone(now - self._expiry, FORGET_AT_ONCE)
        if forgotten:
            self._checkpoints.forget(forgotten)
        first = self._table.first_gone
        return None if first is None else max(first + self._expiry, now + FORGET_PAUSE)

    def _has_room(self) -> bool:
        """Whether one more publisher can be known.

        If the table is full, one whose session has ended is forgotten for it.
        """
        if len(self._table) < self._settings.max_publishers:
            return True
        forgotten = self._table.give_way()
        if forgotten is None:
            return False
        self._checkpoints.forget([forgotten])
        return True

    def fault(self, name: str, topic: str | None) -> str:
        """Returns why a publisher of this name, known or new, cannot publish to this pubend, or ""."""
        if self._table.get(name) is None:
            if self._read_only:
                return f"pubend {self._log.pubend} is no longer configured, and takes no new publishers"
            if not self._has_room():
                return (
                    f"pubend {self._log.pubend} knows {len(self._table):,} publishers, as many as it may "
                    "(phb.max_publishers)"
                )
        try:
            if topic is not None:
                self._check.topic(topic)
        except InvalidTopicError as error:
            return str(error)
        return ""

    # ------------------------------------------------------------------------------------------ publishing

    def take(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> Outcome | None:
        """Takes a batch. Returns None if the answer follows when the batch is durable, else the answer.

        `refusal`: why nothing new can be taken now, or "".
        """
        publisher = self._table.get(pub.publisher)
        crc = checksum(pub.events, pub.tokens)
        # A batch of an older epoch is fenced, unless it is logged or pending already: a late copy of a batch that its
        # own instance has logged was not refused, so it gets the same answer as any other copy.
        if publisher is None or (
            pub.epoch != publisher.epoch and not publisher.knows(pub.epoch, pub.first, pub.events.count, crc)
        ):
            return self._unknown(publisher, pub)
        following = publisher.assigned + 1
        if pub.first > following:
            return Outcome(Verdict.RESUME, f"events {following} to {pub.first - 1} are missing", following)
        # Repeats are answered before `refusal` is looked at: they need no room on the disk.
        if pub.first < following:
            return self._repeated(publisher, pub, crc, reply_to)
        # Tokens are looked at behind repeats: what is logged stands at or before what is stored by now (TS6).
        if not pub.events.count and crc == publisher.moved:
            self._move(publisher, (), crc, reply_to)
            return None
        tokens: Tokens = ()
        for_subscriptions: tuple[ConsumedToken, ...] = ()
        if pub.tokens:
            try:
                tokens = consumed.checked(pub.tokens, publisher.assigned_tokens)
                for_subscriptions = self._claims.checked(pub.tokens)
            except StaleTokenError as error:
                return Outcome(Verdict.STALE, str(error), pub.first)
            except InvalidTokenError as error:
                return Outcome(Verdict.INVALID, str(error), pub.first)
        refusal = refusal or self.backlog(pub)
        if refusal:
            return Outcome(Verdict.RETRY, refusal, following)
        if pub.tokens and not pub.events.count:
            self._claims.store(for_subscriptions)
            self._move(publisher, tokens, crc, reply_to)
            return None
        if (refused := self._check.refused(pub)) is not None:
            return refused
        publisher.assigned_tokens = merge_tokens(publisher.assigned_tokens, tokens)
        self._claims.store(for_subscriptions)
        self._log.append(publisher, pub, tokens, crc, reply_to, now, wall, self.on_appended)
        return None

    def _unknown(self, publisher: PublisherState | None, pub: Pub) -> Outcome:
        """Refuses a batch whose epoch is not the newest of its publisher, and that is not known to be logged.

        This volume may never have given that epoch: another process did, on a copy of it, or it is an old copy. What
        was sent under it may be logged there, and nobody knows here. Opened again, the publisher is fenced if another
        one owns the name.
        """
        if publisher is None:
            return _forgotten(pub.publisher)
        if pub.epoch > publisher.epoch or self.ran_twice:
            had = f"another process of this broker had publisher {pub.publisher!r}"
            return Outcome(Verdict.FORGOTTEN, f"{had}, or this is an old copy of its volume")
        if term_of(publisher.epoch) != term_of(pub.epoch):
            return Outcome(Verdict.FENCED, _owned(pub.publisher))
        return Outcome(Verdict.FENCED, f"publisher {pub.publisher!r} was opened anew by its own client since")

    def _move(self, publisher: PublisherState, tokens: Tokens, crc: int, reply_to: Hashable) -> None:
        """Stores the tokens of a batch without events: in rows alone, because nothing has a tick.

        Its publisher sends nothing behind it before it is answered. So a repetition is the last one that there was, and
        is recognised by its checksum, whatever was stored for its subscriptions since.
        """
        publisher.moved = crc
        publisher.assigned_tokens = merge_tokens(publisher.assigned_tokens, tokens)
        publisher.moves.append(tokens)
        outcome = Outcome(Verdict.OK, sequence=publisher.assigned)

        def durable(_now: int, _wall: int) -> None:
            publisher.move()
            self._answer(reply_to, outcome)

        key = rows.key(self._number, publisher.name)
        self._outbox.write([Set(self._log.tables.publishers, key, rows.encode(publisher.row))], durable)

    def backlog(self, pub: Pub) -> str:
        """Returns why a batch would be too much just now, or "".

        A batch is always taken when nothing else is pending.
        """
        waiting = self._log.pending_bytes
        if not waiting or waiting + pub.events.size <= self._settings.max_pending_bytes:
            return ""
        return f"the broker's disk is behind: {waiting:,} bytes wait to be written (phb.max_pending_bytes)"

    def acknowledge(self, batch: PendingBatch) -> None:
        """Sends the receipts for a batch that is durable and was sent to the network."""
        outcome = Outcome(Verdict.OK, sequence=batch.last, ticks=runs_of(batch), durable=self._log.durable)
        for reply_to in batch.replies:
            self._outbox.emit(Submitted(reply_to, self._log.pubend, outcome))

    def _repeated(self, publisher: PublisherState, pub: Pub, crc: int, reply_to: Hashable) -> Outcome | None:
        """Answers a batch whose sequences are already used.

        The same batch of the same instance gets the same answer again; any other batch is refused. Of batches older
        than the last W the broker knows only that their sequences are logged. A publisher has at most W batches
        unanswered, so it got those receipts long ago. A late copy of such a batch gets a receipt without ticks.
        """
        last = pub.first + pub.events.count - 1
        if publisher.owner(pub.first) != term_of(pub.epoch):
            text = f"events {pub.first} to {last} are another instance's: recover() shows what is there"
            # Where that may be logged late, and the same events with it, whoever opened the name did not know.
            return Outcome(Verdict.FENCED if publisher.may_be_late else Verdict.INVALID, text, pub.first)
        pending = publisher.find_pending(pub.first)
        if pending is not None and (pending.crc, pending.count) == (crc, pub.events.count):
            pending.replies.append(reply_to)
            return None
        logged = publisher.find_logged(pub.first)
        if logged is not None and (logged.crc, logged.count) == (crc, pub.events.count):
            return Outcome(Verdict.OK, sequence=last, ticks=runs_of(logged), durable=self._log.durable)
        if 0 < pub.first <= last < publisher.known_from:
            text = "logged long ago: its ticks are no longer known"
            return Outcome(Verdict.OK, text, last, durable=self._log.durable)
        return Outcome(Verdict.INVALID, f"events {pub.first} to {last} were sent before, with other content", pub.first)


def _owned(name: str) -> str:
    return (
        f"another publisher {name!r} was opened since, and owns the name: "
        "publishers that run at the same time need a name each, or none"
    )


def _forgotten(name: str) -> Outcome:
    why = " (phb.publisher_expiry_seconds)" if is_unnamed(name) else ": its volume is an old copy, or another one"
    return Outcome(Verdict.FORGOTTEN, f"the broker no longer knows publisher {name!r}{why}")
