"""The log of one pubend: its growing end and its vanishing beginning (protocol: log, tick-reservation, release).

    lost                       newest      stable        last assigned
      |   records, durable        |   silence |   pending      |   never used
    --+---------------------------+-----------+----------------+------------------> ticks

Rules for this file. Nothing above `stable` has been said to anybody, and nothing at or below it will ever
change. Nothing leaves before it is durable: an event with its record, a silence with the reservation of ticks
that keeps every later incarnation above it.

The ticks are this broker's own. So it stands on a log that takes the indices that are proposed, that nobody else
appends to, and that shares one write with the tables; of any other it is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from gapless.core.network.facts import Know, Pub
from gapless.core.outbox import Outbox, Then, ThenAppended
from gapless.core.ports import Chop, LogFacts, Operation, Set
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.events import Header
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, PubendId, Tick
from gapless.errors import ConfigurationError
from gapless_phb.core import rows
from gapless_phb.core.clock import TickClock
from gapless_phb.core.damage import Damage
from gapless_phb.core.publishers import PendingBatch, PublisherState
from gapless_phb.core.records import Record, decode_record, encode_record, tag_of
from gapless_phb.core.retention import ByteIndex


def stream_of(pubend: PubendId) -> str:
    """The name of a pubend's log stream."""
    return f"phb.{pubend}"


def check_log(facts: LogFacts) -> None:
    """Raises ConfigurationError where ticks that this broker gives out itself cannot be kept in a log."""
    can = facts.capabilities
    if can.numbers != "own" or not (can.alone and can.atomic and can.timed):
        raise ConfigurationError(
            f"the log {facts.log!r} cannot take this broker's own ticks: its host has to number its records, alone, by "
            f"times, and in one write with its tables; it is {can}"
        )


class Log:
    """Appends, decides, promises and chops; says what is decided as `Know`."""

    def __init__(
        self,
        network: str,
        pubend: PubendId,
        tables: rows.Tables,
        number: int,
        clock: TickClock,
        outbox: Outbox,
        reservation_span: Tick,
    ) -> None:
        """The empty log of a new pubend; `recover` sets the positions of an old one."""
        self.pubend = pubend
        self.stream = stream_of(pubend)
        self.tag = tag_of(network, pubend)
        self.tables = tables
        self.grain = MILLISECOND
        self.clock = clock
        self._key = rows.key(number)
        self._outbox = outbox
        self._reservation_span = reservation_span
        self.index = ByteIndex()
        self.damage = Damage(pubend)
        self.lost: Tick = 0
        """Durable: what is at or below it may be gone."""
        self.lost_asked: Tick = 0
        """The highest value of `lost` that was ever given to a write: it is handed over."""
        self.newest: Tick = 0
        """The last tick of the newest record that was told."""
        self.stable: Tick = 0
        """Everything at or below it is decided, durable and told."""
        self.ready = False
        """Whether what recovery found is durable; before, nothing may be said of it."""
        self.reserved: Tick = 0
        """Durable: silence may be asserted up to here, for no incarnation will log at or below it (T2)."""
        self._reserved_asked: Tick = 0
        self._renewed_above: Tick = 0
        """Above this less than half of the reservation is left, and a fresh one is asked for."""
        self.last_assigned: Tick = 0
        """The last tick that has an event, durable or not; the next record is linked to it."""
        self.said_at = 0
        """When something was decided last, in monotonic nanoseconds."""
        self.pending: deque[PendingBatch] = deque()
        """On its way to the disk, in order."""
        self.pending_bytes = 0
        self.untold: list[PendingBatch] = []
        """Durable, and not yet told."""

    def recover(self, newest: Tick, lost: Tick, reserved: Tick, index: ByteIndex, damage: Damage) -> None:
        """Takes the positions that were found at start-up. Says nothing yet."""
        self.damage = damage
        self.newest = self.last_assigned = newest
        self.lost = self.lost_asked = lost
        self.reserved = self._reserved_asked = reserved
        self._renewed_above = reserved - self._reservation_span // 2
        self.index = index

    # ------------------------------------------------------------------------------------ the growing end

    def begin(self, stable: Tick, time: Tick, then: Then) -> None:
        """Adopts what recovery found: a fresh reservation is durable before anything is said of it (T44).

        A failed group commit may have left its record in the log after all. The write that carries the
        reservation is synced behind that record, so from then on it is as durable as any.
        """

        def adopted(now: int, wall: int) -> None:
            self.stable, self.ready, self.said_at = stable, True, now
            then(now, wall)

        self._reserve(time, adopted)

    def append(
        self,
        publisher: PublisherState,
        pub: Pub,
        headers: list[Header],
        crc: int,
        reply_to: Hashable,
        now: int,
        wall: int,
        then: ThenAppended,
    ) -> PendingBatch:
        """Gives a batch its ticks and asks for its record, with a fresh reservation when the last one grows old.

        `then` hears the log's answer, and says so to `appended`.
        """
        tick = self.clock.take(pub.events.count, now, wall)
        assert tick > self.last_assigned, "ticks ascend"
        batch = PendingBatch(publisher, pub.epoch, pub.first, tick, pub.events, headers, crc, reply_to)
        raw = encode_record(self.tag, publisher.name, pub.epoch, pub.first, tick, self.last_assigned, pub.events, crc)
        self.pending.append(batch)
        publisher.pending.append(batch)
        self.pending_bytes += pub.events.size
        self.last_assigned = batch.last_tick
        self.index.add(batch.last_tick, len(raw))
        self._outbox.append(self.stream, batch.last_tick, raw, then)
        if self.clock.latest > self._renewed_above:
            self._reserve(self.clock.latest, None)
        return batch

    def appended(self, indices: Sequence[Tick], now: int) -> list[PendingBatch]:
        """The log has the oldest pending batches, durably, under these indices. Returns them; they are not told yet."""
        batches = [self.pending.popleft() for _ in indices]
        for index, batch in zip(indices, batches, strict=True):
            assert index == batch.last_tick, "the log takes the ticks that were proposed, in that order"
            self.pending_bytes -= batch.columns.size
        self.untold += batches
        self.said_at = now
        return batches

    def announce(self) -> list[PendingBatch]:
        """Tells what has become durable as one piece of knowledge; returns the batches to acknowledge.

        Silence between events is decided with them, but never across a batch that is still pending and
        never beyond what is durably reserved: a pending batch may be lost in a crash, and the wall clock may then
        put another event where its silence was (T40).
        """
        batches, self.untold = self.untold, []
        if batches:
            newest = batches[-1].last_tick
            undecided = self.pending[0].tick if self.pending else self.last_assigned + 1
            data = EventBatch.concatenate([batch.events for batch in batches])
            self.newest = newest
            self._say(max(newest, min(undecided - 1, self.reserved)), data)
        return batches

    def promise(self, now: int, wall: int) -> None:
        """Decides that there is silence up to the present, if nothing is pending (protocol: tick-reservation; T2).

        The silence of a tick says that it will never be used, by this incarnation (the clock is told) or
        by a later one (the reservation is durable).
        """
        assert not self.untold, "what is durable is told first"
        if self.pending or not self.ready:
            return
        time = self.clock.read(now, wall)
        upto = min(time, self.reserved)
        if upto > self.stable:
            self.clock.promise(upto)
            self._say(upto, EMPTY)
        self.said_at = now
        if time > self._renewed_above:
            self._reserve(time, None)

    def _reserve(self, time: Tick, then: Then | None) -> None:
        reserved = self._reserved_asked = max(time + self._reservation_span, self._reserved_asked)
        self._renewed_above = reserved - self._reservation_span // 2

        def durable(now: int, wall: int) -> None:
            self.reserved = reserved
            if then is not None:
                then(now, wall)

        operations: list[Operation] = [
            Set(self.tables.reservations, self._key, rows.encode(reserved)),
            Set(self.tables.ages, self._key, rows.encode(self.clock.aged)),
        ]
        self._outbox.write(operations, durable)

    def _say(self, upto: Tick, data: EventBatch) -> None:
        assert upto > self.stable, "what was decided stays decided"
        self._outbox.emit(Know(Knowledge(self.pubend, self.stable, upto, data, self.lost)))
        self.stable = upto

    # ------------------------------------------------------------------------------ the vanishing beginning

    def decode(self, index: Tick, raw: bytes) -> Record:
        """A record of this log. Raises VolumeCorruptError if it is not what was put there."""
        return decode_record(self.tag, index, raw)

    @property
    def suspect(self) -> bool:
        """Whether nobody knows how old an event is: the wall clock has leapt (C01)."""
        return self.clock.suspect

    def has_something(self, upto: Tick) -> bool:
        """Whether giving up everything to a tick would remove at least one record."""
        following = self.index.next(self.lost_asked)
        return following is not None and following <= upto

    def chop(self, upto: Tick) -> None:
        """Gives up everything up to a tick. The caller has a checkpoint of the publishers above it (T21).

        `lost` and the chop go in one write, which is atomic: a record that is gone is never missed by a
        recovery that does not know it was given up, and knowledge says `lost` only once that is durable.
        The chop ends at a record, so that a storage which remembers its end by what is left knows it.
        """
        assert upto > self.lost_asked, "what is lost never falls"
        self.lost_asked = upto

        def durable(_now: int, _wall: int) -> None:
            self.lost = upto
            self.index.chop(upto)

        self._outbox.write(
            [Set(self.tables.lost, self._key, rows.encode(upto)), Chop(self.stream, min(upto, self.newest))],
            durable,
        )
