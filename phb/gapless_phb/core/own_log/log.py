"""The log of one pubend: its growing end and its vanishing beginning (protocol: log, tick-reservation, release).

    lost                       newest      stable        last assigned
      |   records, durable        |   silence |   pending      |   never used
    --+---------------------------+-----------+----------------+------------------> ticks

Rules for this file. Nothing above `stable` has been sent to anybody, and nothing at or below it will ever change.
Nothing is sent before it is durable: an event waits for its record; silence waits for the reservation of ticks that
keeps every later incarnation from using them.

This broker assigns the ticks itself. So it needs a log that takes the proposed indices, that no one else appends to,
and that shares one write with the tables. `check_log` refuses any other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Sequence

from gapless.core.network.facts import Know, Pub
from gapless.core.outbox import Outbox, Then, ThenAppended
from gapless.core.ports import Chop, LogFacts, Operation, ReadResult, Set
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, PubendId, Tick
from gapless.core.wire.tokens import Tokens
from gapless.errors import ConfigurationError, VolumeCorruptError
from gapless_phb.core import rows
from gapless_phb.core.damage import Damage
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.publishers.table import PendingBatch, PublisherState
from gapless_phb.core.records import decode_record, encode_record, tag_of
from gapless_phb.core.source import ANSWER_BYTES, Found, Piece, ThenFound


def stream_of(pubend: PubendId) -> str:
    """Returns the name of a pubend's log stream."""
    return f"phb.{pubend}"


def check_log(facts: LogFacts) -> None:
    """Raises ConfigurationError if a log cannot keep ticks that this broker assigns itself."""
    can = facts.capabilities
    if can.numbers != "own" or not (can.alone and can.atomic and can.timed):
        raise ConfigurationError(
            f"the log {facts.log!r} cannot take this broker's own ticks: its host has to number its records, alone, by "
            f"times, and in one write with its tables; it is {can}"
        )


class Log:
    """Appends batches, decides ticks, promises silence and chops; emits what is decided as `Know`."""

    def __init__(
        self,
        network: str,
        pubend: PubendId,
        tables: rows.Tables,
        number: int,
        clock: TickClock,
        outbox: Outbox,
        reservation_span: Tick,
        *,
        durable: bool,
    ) -> None:
        """Creates the empty log of a new pubend; `recover` sets the positions of an existing one."""
        self.pubend = pubend
        self.durable = durable
        self.stream = stream_of(pubend)
        self.tag = tag_of(network, pubend)
        self.tables = tables
        self.grain = MILLISECOND
        self.gone = ""
        self.clock = clock
        self._key = rows.key(number)
        self._outbox = outbox
        self._reservation_span = reservation_span
        self.index = ByteIndex()
        self.damage = Damage(pubend)
        self.lost: Tick = 0
        """Durable: events at or below it may be gone."""
        self.lost_asked: Tick = 0
        """The highest value of `lost` that was ever given to a write. The write may not be durable yet."""
        self.newest: Tick = 0
        """The last tick of the newest record that was sent to the network."""
        self._found_newest: Tick = 0
        """The last tick of the newest record that was found at the start."""
        self.stable: Tick = 0
        """Everything at or below it is decided, durable and sent to the network."""
        self.ready = False
        """Whether the findings of recovery are durable; before, none of them may be sent."""
        self.reserved: Tick = 0
        """Durable: silence may be asserted up to here, because no later incarnation will log at or below it (T2)."""
        self._reserved_asked: Tick = 0
        self._renewed_above: Tick = 0
        """Above this tick less than half of the reservation is left, and a fresh one is asked for."""
        self.last_assigned: Tick = 0
        """The last tick that was assigned to an event, durable or not; the next record is linked to it."""
        self.first_assigned: Tick = 0
        """The first tick that was assigned since this start; 0 before."""
        self._forks: deque[tuple[Tick, Tick]] = deque()
        """What nothing is said of when `stable` gets there."""
        self.said_at = 0
        """When something was decided last, in monotonic nanoseconds."""
        self.pending: deque[PendingBatch] = deque()
        """The batches on their way to the disk, in order."""
        self.pending_bytes = 0
        self.untold: list[PendingBatch] = []
        """The batches that are durable but not sent to the network yet."""

    def recover(self, newest: Tick, lost: Tick, reserved: Tick, index: ByteIndex, damage: Damage) -> None:
        """Takes the positions that were found at start-up. Sends nothing yet."""
        assert not self.pending, "a log that was found is taken over before it grows"
        assert not self.last_assigned, "a log that was found is taken over before it grows"
        self.damage = damage
        self.newest = self.last_assigned = self._found_newest = newest
        self.lost = self.lost_asked = lost
        self.reserved = self._reserved_asked = reserved
        self._renewed_above = reserved - self._reservation_span // 2
        self.index = index

    # ------------------------------------------------------------------------------------ the growing end

    def begin(self, stable: Tick, time: Tick, then: Then) -> None:
        """Takes over what recovery found. A fresh reservation has to be durable before any of it is sent (T44).

        A group commit that failed may have left its record in the log after all. The write with the reservation is
        synced after that record; so when the reservation is durable, the record is, too.
        """

        def adopted(now: int, wall: int) -> None:
            self.stable, self.ready, self.said_at = max(self.stable, stable), True, now
            then(now, wall)

        self._reserve(time, adopted)

    def append(
        self,
        publisher: PublisherState,
        pub: Pub,
        tokens: Tokens,
        crc: int,
        reply_to: Hashable,
        now: int,
        wall: int,
        then: ThenAppended,
    ) -> PendingBatch:
        """Gives a batch its ticks and asks for its record; also asks for a fresh reservation when half of it is used.

        `tokens`: those of `pub`. `then` is called with the log's answer; the caller passes the answer on to `appended`.
        """
        tick = self.clock.take(pub.events.count, now, wall)
        assert tick > self.last_assigned, "ticks ascend"
        batch = PendingBatch(publisher, pub.epoch, pub.first, tick, pub.events, tokens, crc, reply_to, now)
        raw = encode_record(
            self.tag, publisher.name, pub.epoch, pub.first, tick, self.last_assigned, pub.events, pub.tokens, crc
        )
        self.pending.append(batch)
        publisher.pending.append(batch)
        self.pending_bytes += pub.events.size
        self.first_assigned = self.first_assigned or tick
        self.last_assigned = batch.last_tick
        self.index.add(batch.last_tick, len(raw))
        self._outbox.append(self.stream, batch.last_tick, raw, then)
        # Any write would do; a batch causes one anyway, so the reservation costs nothing.
        if self.clock.latest > self._renewed_above:
            self._reserve(self.clock.latest, None)
        return batch

    def opened_at(self, now: int, wall: int) -> Tick:
        """Returns the present, for the row of a publisher that is opened."""
        return self.clock.read(now, wall)

    def settle(self, operations: Sequence[Operation], then: Then) -> None:
        """Makes operations durable, and calls `then` when all that was appended before is durable, too.

        Writes become durable in order.
        """
        self._outbox.write(operations, then)

    def appended(self, indices: Sequence[Tick], now: int) -> list[PendingBatch]:
        """The log answered: the oldest pending batches are durable under these indices.

        Returns them; they are unsent.
        """
        assert len(indices) <= len(self.pending), "the log answers what it was asked, once"
        batches = [self.pending.popleft() for _ in indices]
        for index, batch in zip(indices, batches, strict=True):
            assert index == batch.last_tick, "the log takes the ticks that were proposed, in that order"
            self.pending_bytes -= batch.columns.size
        self.untold += batches
        self.said_at = now
        return batches

    def announce(self) -> list[PendingBatch]:
        """Sends what has become durable as one piece of knowledge; returns the batches that now get their receipts.

        It also decides the silence between these events. Two limits keep that silence true (T40):

        1. It ends before the first batch that is still pending. A crash may lose that batch, and another event may then
           get a tick of the same time.
        2. It ends at what is durably reserved.
        """
        batches, self.untold = self.untold, []
        if batches:
            newest = batches[-1].last_tick
            # Silence that was sent for one of these ticks would hide the event from every subscription for good.
            assert batches[0].tick > self.stable, "an event's tick is undecided until the event is durable"
            undecided = self.pending[0].tick if self.pending else self.last_assigned + 1
            data = EventBatch.concatenate([batch.events for batch in batches])
            self.newest = newest
            self._say(max(newest, min(undecided - 1, self.reserved)), data)
        return batches

    def promise(self, now: int, wall: int) -> None:
        """Decides silence up to the present, if nothing is pending (protocol: tick-reservation; T2).

        Silence at a tick asserts that no event will ever have this tick. This incarnation keeps that promise because
        the clock is told; later ones keep it because the reservation is durable.
        """
        assert not self.untold, "what is durable is told first"
        if self.pending or not self.ready:
            return
        time = self.clock.read(now, wall)
        upto = min(time, self.reserved)
        if upto > self.stable:
            # Above the reservation another incarnation may log, after a crash of this one.
            assert upto <= self.reserved, "silence is promised only where ticks are reserved, durably"
            self.clock.promise(upto)
            self._say(upto, EMPTY)
        self.said_at = now
        # Half of the reservation is used: renew it now, so that an idle pubend never has to wait for it.
        if time > self._renewed_above:
            self._reserve(time, None)

    def _reserve(self, time: Tick, then: Then | None) -> None:
        reserved = self._reserved_asked = max(time + self._reservation_span, self._reserved_asked)
        self._renewed_above = reserved - self._reservation_span // 2

        def durable(now: int, wall: int) -> None:
            assert reserved >= self.reserved, "reservations become durable in order, and never fall"
            self.reserved = reserved
            if then is not None:
                then(now, wall)

        operations: list[Operation] = [
            Set(self.tables.reservations, self._key, rows.encode(reserved)),
            Set(self.tables.ages, self._key, rows.encode(self.clock.aged)),
            Set(self.tables.clocks, self._key, rows.encode(self.clock.age())),
        ]
        self._outbox.write(operations, durable)

    def fork(self, upto: Tick, now: int, wall: int) -> list[tuple[Tick, Tick]]:
        """Another process may have logged events under this log's name: gives up where, and returns that.

        It did so since the two logs differ: since the last record that this start has found, at the latest. What this
        process has logged since stays; nothing tells what the other one logged between its events. So the present is
        given up, too: it is where everybody still comes by. `upto`: how far somebody was told by the other process, at
        least. Nothing is logged up to there any more: those who were told would never get it.
        """
        present = self.clock.read(now, wall)
        first = self.first_assigned
        lo = self.newest if not first else max(self.stable, self.last_assigned)
        hi = max(present, self.stable, lo + MILLISECOND, upto + MILLISECOND)
        self.clock.promise(hi)
        if not first or self.stable >= self.last_assigned:
            self.stable = hi
        else:
            self._forks.append((lo, hi))
        forks = [(lo, hi)] if not first else [(self._found_newest, first - 1), (lo, hi)]
        forks = [(low, high) for low, high in forks if low < high]
        for low, high in forks:
            self.damage.give_up(low, high, high)
        return forks

    def _say(self, upto: Tick, data: EventBatch) -> None:
        assert upto > self.stable, "what was decided stays decided"
        if self._forks and upto > self._forks[0][0]:
            lo, hi = self._forks.popleft()
            before = bisect_right(data.ticks, lo)
            if lo > self.stable:
                self._say(lo, data.slice(0, before))
            self.stable = hi
            if upto > hi:
                self._say(upto, data.slice(before, len(data)))
            return
        assert not data or self.stable < data.ticks[0] <= data.ticks[-1] <= upto, (
            "events lie in the piece that has them"
        )
        self._outbox.emit(Know(Knowledge(self.pubend, self.stable, upto, data, self.lost)))
        self.stable = upto

    # ------------------------------------------------------------------------------ the vanishing beginning

    def read(self, after: Tick, upto: Tick, then: ThenFound) -> None:
        """Reads the records that overlap (after, upto], or the first of them."""

        def answered(result: ReadResult, now: int, _wall: int) -> None:
            records, fault, hole = self._linked(after, upto, result)
            reached = records[-1].last_tick if records else 0 if fault else upto
            size = sum(len(raw) for _, raw in result.records)
            then(Found(records, reached, result.first, size, fault, hole), now)

        self._outbox.read(self.stream, after, upto, answered, ANSWER_BYTES)

    def _linked(self, after: Tick, upto: Tick, result: ReadResult) -> tuple[list[Piece], str, Tick]:
        """Returns the records up to the first fault, the fault, and the index behind which reading can go on, or 0.

        A fault is a damaged record, or a record that should be there and is missing. There is always a record at or
        above `upto`; so if a read finds none above `after`, it has met a chop or a hole.
        """
        if result.error and upto > result.first:  # otherwise the whole range is chopped, and the damage lies behind it
            return [], result.error, result.damaged_upto
        records: list[Piece] = []
        reached = max(after, result.first)
        for index, raw in result.records:
            try:
                record = decode_record(self.tag, index, raw)
            except VolumeCorruptError as error:
                return records, str(error), index
            if record.previous != reached if records else record.previous > reached:
                return records, f"the record at tick {record.previous} is missing", 0
            records.append(record)
            reached = record.last_tick
        if not records and upto > result.first:
            return [], f"no record is found between ticks {reached} and {upto}", 0
        return records, "", 0

    @property
    def suspect(self) -> bool:
        """Whether the age of events is unknown, because the wall clock has leapt (C01)."""
        return self.clock.suspect

    def answered_upto(self, tick: Tick) -> Tick:
        """Returns how far the answer goes to a want that ends at `tick`: as far as all is decided."""
        return min(tick, self.stable)

    def is_silent(self, lo: Tick, _hi: Tick) -> bool:
        """Whether it is known without a read that no event is above `lo`."""
        return lo >= self.newest

    def has_something(self, upto: Tick) -> bool:
        """Whether giving up everything to a tick would remove at least one record."""
        following = self.index.next(self.lost_asked)
        return following is not None and following <= upto

    def chop(self, upto: Tick) -> None:
        """Gives up everything up to a tick. The caller has written a checkpoint of the publishers above it (T21).

        `lost` and the chop are one atomic write. So a recovery never misses a record without finding in `lost` that it
        was given up. Knowledge carries the new `lost` only once it is durable. The chop ends at a record at the latest:
        a storage that derives the end of its stream from the records that are left still finds it.
        """
        assert upto > self.lost_asked, "what is lost never falls"
        assert upto <= self.stable, "what is undecided cannot be given up"
        self.lost_asked = upto

        def durable(_now: int, _wall: int) -> None:
            assert upto > self.lost, "chops become durable in order"
            self.lost = upto
            self.index.chop(upto)

        self._outbox.write(
            [Set(self.tables.lost, self._key, rows.encode(upto)), Chop(self.stream, min(upto, self.newest))],
            durable,
        )
