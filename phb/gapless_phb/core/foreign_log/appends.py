"""Batches on their way into a numbered log: handed over, and met again by reading (protocol: numbered-logs).

All batches of a turn leave as one `Append`, and the next one leaves when the fate of this one is known. So of one
publisher's batches none overtakes another. A batch is done with when it is met in the log. The answer of the log alone
proves nothing (TK12): an earlier attempt may lie below it. If it is not known whether a batch was logged, or if it
is not where the log said, everything up to the end of the log is read first. What is not met then is handed over again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence

from gapless.core.network.facts import Outcome, Pub, Verdict
from gapless.core.outbox import Outbox, Then, ThenAppended
from gapless.core.ports import Appended, Located, LogMark, LogStart, Operation, Refused, Uncertain
from gapless.core.stream.ticks import PubendId, Tick, tick_at
from gapless.core.wire.tokens import Tokens
from gapless_phb.core.foreign_log.followed import FollowedLog, MeanSizes
from gapless_phb.core.publishers.table import NumberedPublisher, PendingBatch, PublisherState
from gapless_phb.core.records import checksum
from gapless_phb.core.rows import Tables
from gapless_phb.core.source import SECOND, Timer, Timers

LOOK_EVERY = 5 * SECOND
"""When to find the end of the log again, in nanoseconds."""


class Appends:
    """Takes batches, hands them over, and knows which were met. It is a `publishers.appender.Appender`."""

    def __init__(
        self,
        log: FollowedLog,
        tables: Tables,
        tag: int,
        outbox: Outbox,
        timers: Timers,
        on_refused: Callable[[PendingBatch, str], None],
    ) -> None:
        """`on_refused`: called with a batch that the log does not take, and with the reason; it was dropped."""
        self.pubend: PubendId = log.pubend
        self.tables = tables
        self.pending_bytes = 0
        self.gone = ""
        self.durable = log.found.capabilities.durable
        self._log = log
        self._tag = tag
        self._outbox = outbox
        self._timers = timers
        self._on_refused = on_refused
        self._record_max = log.found.capabilities.record_max
        self._batches: dict[int, tuple[PendingBatch, Pub, bytes, bool]] = {}
        """Every batch that is not met yet, by its number, in order; with its record, and `LogMark.begins` in that."""
        self._number = 0
        self._handed: list[int] = []
        """The numbers of those in the append under way."""
        self._alone: set[int] = set()
        """Those that were refused together with others: each of them goes alone."""
        self._is_due = False
        self._prepared: tuple[Pub, bytes, bool] | None = None
        self._waiting: deque[tuple[Tick, int, Callable[[], None]]] = deque()
        """What is done once the log is told up to a tick, and no batch with a lower number is on its way."""
        self._settling: dict[int, Then] = {}
        """Who waits to hear that everything before him is settled."""
        self._settled = 0
        timers.on(Timer.END, self._look)

    @property
    def newest(self) -> Tick:
        """The newest event that was sent to the network."""
        return self._log.newest

    @property
    def index(self) -> MeanSizes:
        """Estimates how many bytes of the log lie where."""
        return self._log.index

    @property
    def batches(self) -> Sequence[PendingBatch]:
        """Every batch that is not met yet, in order."""
        return [batch for batch, _, _, _ in self._batches.values()]

    def opened_at(self, _now: int, wall: int) -> Tick:
        """Returns the present. It is a time, and no tick of the log."""
        return tick_at(wall)

    # -------------------------------------------------------------------------------------- taking batches

    def prepare(self, pub: Pub, publisher: PublisherState | None) -> Outcome | None:
        """Encodes a batch that is about to be appended. Returns why it cannot be, or None."""
        begins = publisher is None or _begins(publisher, pub)
        try:
            raw = self._encode(pub, begins=begins)
        except ValueError as error:
            return Outcome(Verdict.INVALID, str(error), pub.first)
        if self._record_max is not None and len(raw) > self._record_max:
            return Outcome(
                Verdict.INVALID,
                f"the batch would take {len(raw):,} bytes, and the log of {self.pubend} takes {self._record_max:,} at"
                " once: send smaller batches",
                pub.first,
            )
        self._prepared = pub, raw, begins
        return None

    def _encode(self, pub: Pub, *, begins: bool) -> bytes:
        """Encodes a batch with its mark.

        `after` is how far the log has been told now, before the batch is handed over (TK14). It may be handed over
        later: if an earlier attempt is met until then, it is not handed over at all.
        """
        mark = LogMark(
            pub.publisher,
            pub.epoch,
            pub.first,
            pub.events.count,
            checksum(pub.events, pub.tokens),
            self._log.stable,
            pub.tokens,
            pub.keyed,
            self._tag,
            begins,
        )
        return self._log.found.format.encode(mark, pub.events)

    def append(
        self,
        publisher: PublisherState,
        pub: Pub,
        tokens: Tokens,
        crc: int,
        reply_to: Hashable,
        now: int,
        _wall: int,
        _then: ThenAppended,
    ) -> PendingBatch:
        """Takes a batch that was prepared. It has no tick before it is met."""
        if self._prepared is not None and self._prepared[0] is pub:
            _, raw, begins = self._prepared
        else:
            begins = _begins(publisher, pub)
            raw = self._encode(pub, begins=begins)
        self._prepared = None
        batch = PendingBatch(publisher, pub.epoch, pub.first, 0, pub.events, tokens, crc, reply_to, now)
        publisher.pending.append(batch)
        self.pending_bytes += pub.events.size
        self._number += 1
        self._batches[self._number] = batch, pub, raw, begins
        self._hand_over_soon()
        return batch

    def drop(self, dropped: Sequence[PendingBatch]) -> list[PendingBatch]:
        """Drops batches. Returns those that were handed over before, and so may turn up in the log."""
        handed = [self._batches[number][0] for number in self._handed]
        for number in [number for number, (batch, _, _, _) in self._batches.items() if batch in dropped]:
            self._remove(number)
        return [batch for batch in dropped if batch in handed]

    def _remove(self, number: int) -> PendingBatch:
        batch, _, _, _ = self._batches.pop(number)
        batch.publisher.pending.remove(batch)
        self.pending_bytes -= batch.columns.size
        self._alone.discard(number)
        if number in self._handed:
            self._handed.remove(number)
        if not self._handed:
            self._hand_over_soon()
        return batch

    # ----------------------------------------------------------------------------------------- handing over

    def _hand_over_soon(self) -> None:
        if not self._is_due and not self._handed and self._batches:
            self._is_due = True
            self._outbox.before_take(self._hand_over)

    def _hand_over(self) -> None:
        """Hands over all batches that go into one record of the log; the first one goes in any case."""
        self._is_due = False
        if self._handed or not self._batches or self._log.ended:
            return
        size, records = 0, list[bytes]()
        beginning: dict[PublisherState, None] = {}
        for number in list(self._batches):
            batch, pub, raw, begins = self._batches[number]
            if batch.publisher in beginning:
                continue
            if _begins(batch.publisher, pub):
                # Until a batch of its epoch is met, it may be a duplicate of what is fenced itself. Then it is handed
                # over again, and nothing of its publisher may have overtaken it.
                beginning[batch.publisher] = None
            elif begins:
                raw = self._encode(pub, begins=False)
                self._batches[number] = batch, pub, raw, False
            size += len(raw)
            if records and (number in self._alone or (self._record_max is not None and size > self._record_max)):
                break
            records.append(raw)
            self._handed.append(number)
            if number in self._alone:
                break
        numbers = tuple(self._handed)
        self._outbox.append_to(self.pubend, records, lambda answer, now, _wall: self._on_answer(numbers, answer, now))

    def _on_answer(self, numbers: Sequence[int], answer: Appended | Refused | Uncertain, now: int) -> None:
        if self._log.ended:
            return
        if isinstance(answer, Refused):
            left = [number for number in numbers if number in self._batches]
            if len(left) > 1:  # one of them is at fault, and nobody says which
                self._alone.update(left)
                self._handed = []
                self._hand_over_soon()
            elif left:
                self._on_refused(self._remove(left[0]), answer.why)
        elif isinstance(answer, Appended):
            self._when_told(max(answer.indices), 0, lambda: self._try_again(numbers), now)
        else:
            self._outbox.locate(
                self.pubend,
                LogStart.LATEST,
                lambda located, now, _wall: self._when_told(located.tick, 0, lambda: self._try_again(numbers), now),
            )

    def _try_again(self, numbers: Sequence[int]) -> None:
        """Everything up to the end of the log was read: hands over again what was not met, with a fresh mark."""
        left = [number for number in numbers if number in self._batches]
        if not left:
            return
        for number in left:
            batch, pub, _, _ = self._batches[number]
            begins = _begins(batch.publisher, pub)
            self._batches[number] = batch, pub, self._encode(pub, begins=begins), begins
        self._handed = []
        self._hand_over_soon()

    # ------------------------------------------------------------------------------------------------ met

    def met(self, name: str, first: int, count: int, crc: int, tick: Tick) -> PendingBatch | None:
        """A batch was met in the log. Returns it if it is one of these; then it is done with."""
        for number, (batch, _, _, _) in self._batches.items():
            if (batch.first, batch.count, batch.crc) == (first, count, crc) and batch.publisher.name == name:
                batch.tick, batch.last_tick = tick, tick + (count - 1) * batch.step
                return self._remove(number)
        return None

    def settle(self, operations: Sequence[Operation], then: Then) -> None:
        """Makes operations durable; then reads to the end of the log, decided or not (TK13); then calls `then`."""
        number = self._number
        self._settled += 1
        key = self._settled
        self._settling[key] = then

        def settled(now: int, wall: int) -> None:
            if self._settling.pop(key, None) is not None:
                then(now, wall)

        def located(located: Located, now: int, wall: int) -> None:
            self._when_told(located.tick, number, lambda: settled(now, wall), now)

        def durable(_now: int, _wall: int) -> None:
            if not self.gone:
                self._outbox.locate(self.pubend, LogStart.LATEST, located)

        self._outbox.write(operations, durable)

    def end(self, why: str) -> None:
        """The log is gone for good: drops all batches. Whoever waits for something is told at once, and sees `gone`."""
        self.gone = why
        self.drop(self.batches)
        self._waiting.clear()
        settling, self._settling = self._settling, {}
        for then in settling.values():
            then(0, 0)

    def _when_told(self, tick: Tick, number: int, then: Callable[[], None], now: int) -> None:
        self._waiting.append((tick, number, then))
        self._timers.wake(Timer.END, now + LOOK_EVERY)
        self.on_told()

    def on_told(self) -> None:
        """The log was told further, or batches are done with: goes on with all that waits for that."""
        oldest = next(iter(self._batches), self._number + 1)
        waiting, self._waiting = self._waiting, deque()
        for tick, number, then in waiting:
            if self._log.stable >= tick and oldest > number:
                then()
            else:
                self._waiting.append((tick, number, then))

    def _look(self, now: int, _wall: int) -> None:
        """Finds the end of the log again: it may have been cut off before what somebody waits for was told."""
        if not self._waiting or self._log.ended:
            return
        asked = list(self._waiting)

        def located(located: Located, now: int, _wall: int) -> None:
            for each in asked:
                if each in self._waiting and each[0] > located.tick:
                    self._waiting.remove(each)
                    self._waiting.append((located.tick, *each[1:]))
            self.on_told()
            if self._waiting:
                self._timers.wake(Timer.END, now + LOOK_EVERY)

        self._outbox.locate(self.pubend, LogStart.LATEST, located)


def _begins(publisher: PublisherState, pub: Pub) -> bool:
    """Whether no batch of this epoch is known to be in the log. Keys of producers need no such proof."""
    return not pub.keyed and isinstance(publisher, NumberedPublisher) and publisher.proven < pub.epoch
