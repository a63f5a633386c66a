"""Publishes to a numbered log through gapless (protocol: numbered-logs, publishers).

A publisher is answered when its batch was met in the log, below the end of what is decided (TK12). What is known of a
publisher (its epoch, its sequences, its last batches) comes from the marks in the log. Rows and checkpoints only
shorten how much of the log is read at a start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gapless.core.gauges import Gauge
from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.outbox import Outbox
from gapless.core.ports import Authorizer, LogMark
from gapless.core.stream.ticks import Tick
from gapless.core.traces import Sampler, logged
from gapless_phb.core import gauges
from gapless_phb.core.foreign_log.appends import Appends
from gapless_phb.core.foreign_log.followed import FollowedLog, Judged
from gapless_phb.core.publishers.checkpoints import Checkpoints
from gapless_phb.core.publishers.consumed import ClaimedPositions
from gapless_phb.core.publishers.handler import PublishHandler
from gapless_phb.core.publishers.keyed import NO_MARK, Keyed, Mark, logged_name
from gapless_phb.core.publishers.published import Published
from gapless_phb.core.publishers.table import NumberedPublisher, NumberedPublishers, PendingBatch, PublisherTable
from gapless_phb.core.publishers.validation import BatchCheck
from gapless_phb.core.records import checksum
from gapless_phb.core.rows import SavedPubend
from gapless_phb.core.source import SECOND, PubendContext, Timer, Timers

CHECKPOINT_EVERY = 60 * SECOND
"""So long, in nanoseconds, what was met of publishers is known from their marks alone."""
_READING = "the log is being read for what its publishers have sent before: try again"


class NumberedPublishing:
    """The publishers of one pubend on a numbered log."""

    def __init__(
        self,
        context: PubendContext,
        saved: SavedPubend,
        log: FollowedLog,
        tag: int,
        timers: Timers,
        published: Published,
        now: int,
    ) -> None:
        """Restores the publishers from their rows; `start` reads what the log has of them above those."""
        settings, outbox = context.settings, context.outbox
        self._log = log
        self._published = published
        self._traced = Sampler(context.traces, log.grain)
        self._outbox = outbox
        self._timers = timers
        self._checkpoint = saved.checkpoint.tick
        self._table = NumberedPublishers(saved.publishers, saved.checkpoint.epochs)
        self._table.begin(now)
        self._appends = Appends(log, context.tables, tag, outbox, timers, self._on_refused)
        self._checkpoints = Checkpoints(saved.number, self._appends, self._table, outbox, settings)
        self._checkpoints.recover(saved.checkpoint)
        check = NumberedCheck(
            saved.row.topics, settings.max_event_bytes, context.authorizer, self._appends, self._table
        )
        self._handler = PublishHandler(
            saved.number,
            self._appends,
            self._table,
            self._checkpoints,
            check,
            ClaimedPositions(saved.number, context.tables.consumed, {}, outbox),
            outbox,
            settings,
            _unanswered,
            read_only=False,
            audited=context.audited,
        )
        self._keyed = NumberedKeyed(saved.number, saved.keyed, self._appends, self._table, self._handler, check, outbox)
        self._is_started = self.is_scanned = False
        self.is_read = False
        """Whether everything was met that was in the log at the start, decided or not."""
        self._held: list[Judged] = []
        """What was met while the past is being read."""
        self._openings: list[tuple[Hashable, Callable[[], None]]] = []
        """Who waits to be opened, and what opens him, when the past has been read."""
        timers.on(Timer.FORGETTING, lambda now, _wall: self._forget_gone(now))
        timers.on(Timer.CHECKPOINT, lambda _now, _wall: self._write_checkpoint())

    def start(self, now: int) -> None:
        """Reads what the log has above the checkpoint, if anybody can publish here."""
        if self._log.found.refuses or self._is_started:
            return
        self._is_started = True

        def scanned(found: Sequence[Judged]) -> None:
            self.is_scanned = True
            held, self._held = self._held, []
            for tick, mark, is_duplicate in [*found, *held]:
                self._meet(tick, mark, now, is_duplicate=is_duplicate)
            openings, self._openings = self._openings, []
            for _, call in openings:
                call()
            self._appends.settle((), read)

        def read(_now: int, _wall: int) -> None:
            self.is_read = True

        self._log.scan(max(self._checkpoint, self._log.lost), scanned)
        self._forget_gone(now)

    # ------------------------------------------------------------------------------------------ publishing

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""
        return len(self._table) + len(self._keyed)

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published here."""
        return self._keyed.knows(publisher) if keyed else self._table.get(publisher) is not None

    def open(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """Opens a publisher; first the past has to be read."""
        if not self.is_scanned:
            self._openings.append((reply_to, lambda: self.open(request, reply_to, now, wall)))
        elif request.keyed:
            self._keyed.open(request, reply_to)
        else:
            self._handler.open(request, reply_to, now, wall)

    def take(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> Outcome | None:
        """Takes a batch. Returns None if the answer follows when the batch is met, else the answer."""
        if not self.is_scanned:
            return Outcome(Verdict.RETRY, _READING, pub.first)
        taker = self._keyed if pub.keyed else self._handler
        return taker.take(pub, reply_to, refusal, now, wall)

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """Closes a publisher, or notes that its session has ended."""
        self._handler.end(request, reply_to, now)
        self._forget_gone(now)

    def _forget_gone(self, now: int) -> None:
        due = self._handler.forget_gone(now)
        if due is not None:
            self._timers.wake(Timer.FORGETTING, due)

    # ----------------------------------------------------------------------------------------------- meeting

    def on_told(self, found: Sequence[Judged], now: int) -> None:
        """The log was told further, with these marked batches in it."""
        if not self.is_scanned:
            if self._is_started:
                self._held += found
            return
        for tick, mark, is_duplicate in found:
            self._meet(tick, mark, now, is_duplicate=is_duplicate)
        self._appends.on_told()
        if self._checkpoints.is_due:
            self._write_checkpoint()
        elif self._table.changed:
            self._timers.wake(Timer.CHECKPOINT, now + CHECKPOINT_EVERY)
        self.on_removed()

    def _meet(self, tick: Tick, mark: LogMark, now: int, *, is_duplicate: bool) -> None:
        """A batch is in the log. A duplicate is silence, and gives no answer: the first one has given it."""
        if is_duplicate or mark.count < 1:
            return
        name = logged_name(mark.publisher) if mark.keyed else mark.publisher
        batch = self._appends.met(name, mark.first, mark.count, mark.crc, tick)
        # It is not what waits here, so another gateway has sent it, or this one in a former life.
        if batch is None or batch.epoch < mark.epoch:
            self._give_way(name, mark)
        known = self._table.get(name)
        if mark.keyed:
            self._keyed.meet(mark)
        elif batch is None or known is not batch.publisher:
            self._table.meet(tick, mark)
        else:
            self._table.note(batch)
        if isinstance(known, NumberedPublisher):
            known.proven = max(known.proven, mark.epoch)
        if batch is not None:
            self._published.on_logged(batch, now)
            if self._traced.chooses(batch.tick, batch.last_tick):
                self._outbox.emit(logged(self._log.pubend, batch.tick, batch.columns, batch.came, is_in_volume=False))
            self._handler.acknowledge(batch)
            if batch.publisher.closed:
                self._handler.forget(batch.publisher)

    def _give_way(self, name: str, mark: LogMark) -> None:
        """An attempt of a former life, or of another gateway, was met: what it settles cannot be logged any more."""
        last = mark.first + mark.count - 1
        mine = [batch for batch in self._appends.batches if batch.publisher.name == name]
        if not any(_is_settled(batch, mark, last) for batch in mine):
            return
        handed = self._appends.drop(mine)
        for batch in mine:
            if batch in handed and not _is_settled(batch, mark, last):
                text = (
                    f"another attempt of publisher {mark.publisher!r} was logged first; this batch may be logged, too"
                )
                self._refuse(batch, Outcome(Verdict.UNCERTAIN, text, batch.first))
            else:
                text = (
                    f"another attempt of publisher {mark.publisher!r} was logged instead: recover() shows what is there"
                )
                self._refuse(batch, Outcome(Verdict.FENCED, text, batch.first))

    def _on_refused(self, refused: PendingBatch, why: str) -> None:
        """The log does not take a batch: what its publisher has sent since would leave a hole."""
        self._refuse(refused, Outcome(Verdict.INVALID, why, refused.first))
        if refused.publisher.name.startswith(logged_name("")):
            self._keyed.forget_assigned(refused.publisher.name)
            return
        later = [batch for batch in self._appends.batches if batch.publisher is refused.publisher]
        self._appends.drop(later)
        for batch in later:
            text = f"events from {refused.first} on were not logged"
            self._refuse(batch, Outcome(Verdict.RESUME, text, refused.first))

    def _refuse(self, batch: PendingBatch, outcome: Outcome) -> None:
        self._published.on_answer(outcome.verdict)
        for reply_to in batch.replies:
            self._outbox.emit(Submitted(reply_to, self._log.pubend, outcome))

    def end_all(self, why: str) -> None:
        """The log is gone: nobody will know what became of the batches on their way. Openings find another place."""
        batches = self._appends.batches
        self._appends.end(f"the log is gone: {why}")
        for batch in batches:
            self._refuse(batch, Outcome(Verdict.UNCERTAIN, self._appends.gone, batch.first))
        openings, self._openings = self._openings, []
        for reply_to, _ in openings:
            self._outbox.emit(Submitted(reply_to, self._log.pubend, Outcome(Verdict.RETRY, self._appends.gone)))

    # ------------------------------------------------------------------------------------------- checkpoints

    def on_removed(self) -> None:
        """Retention may have removed marks that no checkpoint covers: then only this broker's memory has them."""
        if self.is_scanned and self._log.lost > self._checkpoints.tick:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        if self._table.changed and not self._log.ended:
            self._checkpoints.begin(self._on_checkpoint)

    def _on_checkpoint(self, now: int, _wall: int) -> None:
        if self._table.changed:  # since it was begun
            self._timers.wake(Timer.CHECKPOINT, now + CHECKPOINT_EVERY)

    def covers(self, upto: Tick, again: Callable[[int], None]) -> bool:
        """Whether the rows of publishers cover the log up to a tick.

        Otherwise a checkpoint is begun, and `again` is called with the time when it is durable.
        """
        if self._log.found.refuses or self._checkpoints.tick >= min(upto, self._log.newest):
            return True
        if self.is_scanned:
            self._checkpoints.begin(lambda now, _wall: again(now))
        return False

    def gauges(self) -> Iterator[Gauge]:
        """Yields what is on its way into the log, and how many publishers are known."""
        name = self._log.pubend
        yield gauges.PENDING_BATCHES.gauge(len(self._appends.batches), name)
        yield gauges.PENDING_BYTES.gauge(self._appends.pending_bytes, name)
        yield gauges.PUBLISHERS.gauge(len(self._table), name)
        yield gauges.UNNAMED_PUBLISHERS.gauge(self._table.unnamed, name)
        yield gauges.REFUSING.gauge(bool(self._log.found.refuses), name)


class NumberedCheck(BatchCheck):
    """Also checks that the log can contain a batch, and encodes it for that."""

    def __init__(
        self,
        topics: tuple[str, ...],
        event_bytes_max: int,
        authorizer: Authorizer,
        appends: Appends,
        publishers: NumberedPublishers,
    ) -> None:
        super().__init__(topics, frozenset(), event_bytes_max, authorizer)
        self._appends = appends
        self._publishers = publishers

    def refused(self, pub: Pub) -> Outcome | None:
        """Returns the answer that refuses a batch; None if the batch is good."""
        return super().refused(pub) or self._appends.prepare(pub, self._publishers.get(pub.publisher))


class NumberedKeyed(Keyed):
    """The producers of keyed batches of a numbered log: their keys are in the marks, and so are found again."""

    def __init__(
        self,
        number: int,
        marks: Mapping[str, Mark],
        log: Appends,
        table: PublisherTable,
        publishing: PublishHandler,
        check: BatchCheck,
        outbox: Outbox,
    ) -> None:
        super().__init__(number, marks, log, table, publishing, check, outbox)
        self._met = dict(marks)
        """What was met in the log; `_marks` has what is on its way, too."""
        self._producers: dict[str, NumberedPublisher] = {}
        """The producers that have batches on their way, or had."""

    def knows(self, producer: str) -> bool:
        """Whether a producer has published here."""
        return logged_name(producer) in self._marks

    def meet(self, mark: LogMark) -> None:
        """A batch was met in the log: its mark is stored, beside the log that proves it."""
        name = logged_name(mark.publisher)
        met = max(self._met.get(name, NO_MARK), (mark.epoch, mark.first + mark.count - 1))
        self._met[name] = met
        self._marks[name] = max(self._marks.get(name, NO_MARK), met)
        self._write(name, met)

    def _answer(self, reply_to: Hashable, outcome: Outcome) -> None:
        if self._log.gone and outcome.verdict is Verdict.OK:  # what a batch repeats may never have been logged
            outcome = Outcome(Verdict.UNCERTAIN, self._log.gone, outcome.sequence)
        super()._answer(reply_to, outcome)

    def forget_assigned(self, name: str) -> None:
        """A batch of a producer was not logged: what counts is what was met."""
        self._marks[name] = self._met.get(name, NO_MARK)

    def _append(self, name: str, pub: Pub, dropped: int, reply_to: Hashable, now: int, wall: int) -> None:
        events = pub.events.slice(dropped, pub.events.count)
        logged = pub if not dropped else replace(pub, first=pub.first + dropped, events=events)
        producer = self._producers.setdefault(name, NumberedPublisher(name))
        self._log.append(producer, logged, (), checksum(events, pub.tokens), reply_to, now, wall, _unanswered)


def _is_settled(batch: PendingBatch, mark: LogMark, last: int) -> bool:
    """Whether a batch on its way would be a duplicate of what was met, or is fenced by it."""
    if mark.keyed:
        return (batch.epoch, batch.first) <= (mark.epoch, last)
    return batch.first <= last or batch.epoch < mark.epoch


def _unanswered(_indices: Sequence[Tick], _now: int, _wall: int) -> None:
    """A numbered log's answer is not what counts: batches are met by reading."""
