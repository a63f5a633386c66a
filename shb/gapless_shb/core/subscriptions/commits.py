"""Commit records: what a home keeps of consumers that leave their position to it (protocol: committing; TS1 to TS5).

Such a consumer hands out a unit, an event or a batch, only when the commit of the unit before it is durable. So after
any crash one unit is in doubt: the one that was in hand. A commit record is what is needed to recognise it:

- `epoch` counts attachments: a commit of an older one is not taken;
- `holder`: somebody may have been handed something since, and this is who; "" if the last one left in order;
- `doubt`: whether that one found doubt: if its answer is lost, it asks again, and is told the same;
- `cleared`: whoever is in doubt, and leaves in order, leaves the doubt to the next one, but not on these pubends;
- `attempts`: the one event of a pubend that was taken before it was handed out, and was not committed;
- `units`: up to where batches were announced before they were handed out;
- `former`: `units` without those of this consumer, who leaves in order with that and with what it was handed;
- `earlier`: doubt, attempts and units of the time before the filter changed, together with the filter of then;
- `enlisted`: the pubends where transactions may store the position, and `claim`, the epoch under which they may.

An attachment is answered when all of this is durable, and so is an announcement.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import Struct

import msgspec

from gapless.core.outbox import Then
from gapless.core.ports import Delete, Operation, RecoveryReader, Set
from gapless.core.stream.ticks import PubendId, Tick, tick_at
from gapless.core.wire.messages import Acknowledged, Attempts, Code, Earlier, Position, Subscribe, Unit
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import last_event
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.rows import position_row
from gapless_shb.core.subscriptions.claims import Claimed, Claims
from gapless_shb.core.subscriptions.earlier import added, attempts_at, furthest, resolved, uncommitted
from gapless_shb.core.subscriptions.unheard import may_be_there, of_its_name
from gapless_shb.core.subscriptions.unverified_positions import UnverifiedPositions

COMMIT_RECORDS = "shb/desks"
"""Subscription id → CommitRecord; none for a subscription that nobody ever left its position to."""
SOMEBODY = "?"
"""The holder of a commit record to which a consumer came that does not commit."""
LEFT = "-"
"""The holder of a commit record whose last consumer left in order, and left some of the doubt that it had found."""
_KEY = Struct(">Q")


class Attempt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event that was taken, how often, and by whom the last time."""

    tick: Tick
    count: int
    by: str


class CommitRecord(msgspec.Struct, array_like=True):
    """The commit record of a subscription; see the module."""

    epoch: int = 0
    holder: str = ""
    attempts: dict[PubendId, Attempt] = {}
    units: dict[PubendId, Tick] = {}
    cleared: tuple[PubendId, ...] = ()
    enlisted: tuple[PubendId, ...] = ()
    claim: int = 0
    doubt: bool = True
    former: dict[PubendId, Tick] = {}
    earlier: tuple[Earlier, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenedRecord:
    """What a consumer is told of the commit record that it has now."""

    epoch: int = 0
    doubt: bool = False
    cleared: tuple[PubendId, ...] = ()
    attempts: tuple[Attempts, ...] = ()
    units: tuple[Position, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    claim: int = 0
    enlisted: tuple[PubendId, ...] = ()
    claims: bool = False
    """Whether it has to be claimed at all of `enlisted` before anything is handed out."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CommitRecord).decode


class CommitRecords:
    """All commit records of an SHB."""

    def __init__(self, hosting: Hosting, ahead: UnverifiedPositions, claims: Claims, reader: RecoveryReader) -> None:
        """Restores what the volume has."""
        self._hosting = hosting
        self._claims = claims
        self._ahead = ahead
        self._commit_records: dict[int, CommitRecord] = {}
        for key, value in reader.scan(COMMIT_RECORDS):
            (sid,) = _KEY.unpack(key)
            if hosting.registry.get(sid) is not None:
                self._commit_records[sid] = _decode(value)

    def open(self, consumer: Consumer, request: Subscribe) -> tuple[OpenedRecord, list[Operation]] | None:
        """A consumer attaches. Returns what to tell it when these writes are durable; None: none is concerned.

        Raises RefusedError if it goes on with what it was handed before, and somebody else was served meanwhile.
        """
        sid = consumer.sid
        record = self._commit_records.get(sid)
        if not request.commits or not consumer.subscription.durable:
            if record is None or (record.holder in {"", SOMEBODY, LEFT} and not record.enlisted):
                return None
            return self._pass_on(record), [self._row(sid, record)]
        record = record or CommitRecord()
        goes_on = bool(request.sid)
        is_new = record.holder != consumer.holder
        # With an epoch it has left in between, to have come again what it did not commit.
        if is_new and (goes_on or request.epoch not in {0, record.epoch}):
            raise RefusedError(Code.TAKEN_OVER, "another consumer had the subscription meanwhile")
        self._commit_records[sid] = record
        others_were_here = is_new and record.holder == SOMEBODY
        if is_new:
            record.doubt = bool(record.holder)
            # Only who left in order has said on which pubends it is in no doubt.
            record.cleared = record.cleared if record.holder == LEFT else ()
            record.holder = consumer.holder
            # If this consumer is handed nothing of them, they are in the hands of those before it still (`close`).
            record.former = dict(record.units)
        if is_new or goes_on:  # otherwise it asks again, because it has not been answered: it was handed nothing
            # Whoever goes on for another one of its process sees by the epoch if somebody was here meanwhile.
            record.epoch += 2 if others_were_here else 1
        if is_new:  # otherwise nobody else was here, and its transactions go on
            record.claim = record.epoch
        row = self._row(sid, record)
        attempts = tuple(Attempts(pubend, taken.tick, taken.count) for pubend, taken in record.attempts.items())
        units = _units(record, knows_earlier=bool(request.process))
        # Who goes on has claimed it before, and nobody else has since.
        claims = bool(record.enlisted) and not goes_on
        doubt, cleared = (False, ()) if goes_on else (record.doubt, record.cleared)
        opened = OpenedRecord(
            record.epoch, doubt, cleared, attempts, units, record.earlier, record.claim, record.enlisted, claims
        )
        return opened, [row, *self._positions(sid)]

    def claim(self, subscription: SubscriptionRecord, opened: OpenedRecord, then: Claimed) -> None:
        """Claims a subscription for whoever is attached now; `then` hears of what transactions have stored (TS13)."""
        self._claims.claim(subscription, opened.claim, opened.enlisted, then)

    def advance(self, subscription: SubscriptionRecord, ticks: Mapping[PubendId, Tick], now: int) -> None:
        """Transactions have consumed everything up to these positions.

        Raises RefusedError if that cannot be noted yet, and BeyondError if a position has to be judged first.
        """
        sid, consumed = subscription.sid, [Acknowledged(pubend, tick, tick) for pubend, tick in ticks.items()]
        for position in self.news(subscription, consumed, now):
            stream = self._hosting.streams[position.pubend]
            stream.acknowledge(sid, position.tick, last_event(stream.positions[sid], stream.head, position.tick))
        self._hosting.unsaved = True

    def news(
        self, subscription: SubscriptionRecord, acknowledged: Sequence[Acknowledged], now: int
    ) -> list[Acknowledged]:
        """Returns the positions that are above what is acknowledged already.

        Raises RefusedError if one of them cannot be kept yet, and BeyondError if one has to be judged first.
        """
        if unknown := self.unknown_of(acknowledged, now):
            raise RefusedError(Code.RETRY, f"{unknown} is not known here yet")
        return self._ahead.news(subscription, acknowledged)

    def is_current(self, sid: int, epoch: int) -> bool:
        """Whether a commit of this epoch is taken."""
        record = self._commit_records.get(sid)
        return record is not None and record.epoch == epoch

    def commit(
        self,
        consumer: Consumer,
        positions: Sequence[Acknowledged],
        unit: Unit | None,
        enlists: PubendId,
        durable: Then,
        now: int,
    ) -> None:
        """Writes a consumer's positions and the unit that it hands out next, then calls `durable`.

        `enlists`: a pubend at which a transaction will store the position, or "". It is claimed there, too, before
        `durable` is called.

        Positions ahead of this SHB are verified first. If a pubend is unknown here, nothing is written: a roaming
        consumer's SHB repeats the request; a local session is closed, and its client reconnects.
        """
        sid, hosting = consumer.sid, self._hosting
        known = [
            (hosting.streams[position.pubend], position) for position in positions if position.pubend in hosting.streams
        ]
        if len(known) < len(positions) and (unknown := self.unknown_of(positions, now)):
            hosting.end_session(consumer.channel.session, f"{unknown} is not known here yet")
            return
        for stream, position in known:
            if position.tick <= stream.head or consumer.is_elsewhere:
                continue
            if self._ahead.is_beyond(position.pubend, position.tick) and position.tick > stream.positions[sid].acked:

                def again(now: int, _wall: int) -> None:
                    if hosting.consumers.get(sid) is consumer:
                        self.commit(consumer, positions, unit, enlists, durable, now)

                self._ahead.judge(consumer, position, again, now)
                return
        rows: list[Operation] = []
        for stream, position in known:
            stream.acknowledge(sid, position.tick, position.event)
            rows.append(position_row(sid, stream.pubend, stream.positions[sid]))
            stream.saved(sid)
        if unit is not None:
            record = self._commit_records[sid]
            if unit.counted:
                self._take(record, unit, before=max(1, attempts_at(record.earlier, unit)))
                record.earlier = resolved(record.earlier, unit)
            self._announce(record, unit)
            rows.append(self._row(sid, record))
        if enlists:
            rows.append(self._enlist(sid, enlists))
            durable = partial(self._claim_enlisted, consumer, enlists, durable)
        hosting.outbox.write(rows, durable)
        hosting.unsaved = True

    def unknown_of(self, positions: Iterable[Acknowledged], now: int) -> PubendId:
        """Returns a pubend that this home has not heard of yet, so it can keep no position on it; "" if there is none.

        The SHB that serves a consumer may know of it earlier, or may have known of it before it crashed.
        """
        hosting = self._hosting
        for position in positions:
            if position.pubend not in hosting.streams and (
                not of_its_name(position.pubend, hosting) or may_be_there(position.pubend, hosting, now)
            ):
                return position.pubend
        return ""

    def close(self, consumer: Consumer, handed: Iterable[Unit] | None, cleared: Iterable[PubendId] | None) -> None:
        """A consumer leaves. In order, if it says what it was handed and has not committed.

        `cleared`: the pubends on which it was not, or no longer, in doubt; None: it was in no doubt.
        """
        record = self._commit_records.get(consumer.sid)
        if record is None or handed is None or not _is_of(record, consumer.instance):
            return
        record.units = dict(record.former)  # what was announced for this one and not handed out is in nobody's hands
        for unit in handed:
            self._take(record, unit, before=0)
            self._announce(record, unit)
        record.holder = "" if cleared is None else LEFT
        record.cleared = () if cleared is None else tuple(p for p in cleared if p in self._hosting.streams)
        self._hosting.outbox.write([self._row(consumer.sid, record)])

    def adopted(self, sid: int, instance: str) -> list[Operation]:
        """A consumer was served elsewhere that this home did not know of. Returns what has to be written."""
        record = self._commit_records.get(sid)
        if record is None or record.holder in {"", LEFT} or _is_of(record, instance):
            return []
        opened, subscription = self._pass_on(record), self._hosting.registry.get(sid)
        if opened.claims and subscription is not None:
            claim = partial(self.claim, subscription, opened, _nothing)
            self._hosting.outbox.write((), lambda _now, _wall: claim())
        return [self._row(sid, record)]

    def changed(self, former: SubscriptionRecord, wall: int) -> list[Operation]:
        """A subscription gets another filter than it had. Returns what has to be written with it.

        Which event is the first behind the position may be another one from now on, and a batch would have had others.
        """
        record = self._commit_records.get(former.sid)
        if record is None:
            return []
        self._row(former.sid, record)  # without what is committed
        firsts: dict[PubendId, Tick] = {}
        if record.holder:
            cleared = record.cleared if record.holder == LEFT else ()
            for pubend, stream in self._hosting.streams.items():
                # After a crash the head is behind what was sent; of a log of others nothing else is known.
                sent = max(stream.head, tick_at(wall)) if stream.meta.timed else stream.head
                taken = record.attempts.get(pubend)
                if pubend not in cleared and sent > stream.positions[former.sid].acked:
                    firsts[pubend] = sent if taken is None else taken.tick
        selected = former.filter
        earlier = Earlier(
            former.version,
            selected.topics,
            selected.selector,
            tuple(Position(pubend, tick) for pubend, tick in firsts.items()),
            tuple(Position(pubend, tick) for pubend, tick in record.units.items()),
            tuple(Attempts(pubend, taken.tick, taken.count) for pubend, taken in record.attempts.items()),
        )
        record.earlier = added(record.earlier, earlier)
        record.holder, record.cleared, record.attempts, record.units, record.former = "", (), {}, {}, {}
        return [self._row(former.sid, record)]

    def remove(self, subscription: SubscriptionRecord) -> list[Operation]:
        """Returns the removal of a subscription's commit record."""
        record = self._commit_records.pop(subscription.sid, None)
        if record is None:
            return []
        forgotten = self._claims.forget(subscription, record.enlisted) if record.enlisted else []
        return [Delete(COMMIT_RECORDS, _KEY.pack(subscription.sid)), *forgotten]

    def needs_fence(self, sid: int) -> bool:
        """Whether transactions may have stored where a subscription stands, and nobody consumes it now."""
        record = self._commit_records.get(sid)
        return record is not None and bool(record.enlisted) and sid not in self._hosting.consumers

    def fence(self, subscription: SubscriptionRecord, then: Claimed) -> None:
        """Somebody reads a subscription who is no consumer: what a former one has under way does not count any more."""
        record = self._commit_records[subscription.sid]
        opened = self._pass_on(record)
        row = self._row(subscription.sid, record)
        self._hosting.outbox.write([row], lambda _now, _wall: self.claim(subscription, opened, then))

    # How it is done.

    @staticmethod
    def _pass_on(record: CommitRecord) -> OpenedRecord:
        """Somebody comes who does not commit."""
        if record.holder not in {"", LEFT}:  # whoever left in order does not come back
            record.holder = SOMEBODY
        if record.enlisted:
            record.epoch += 1
            record.claim = record.epoch
        return OpenedRecord(claim=record.claim, enlisted=record.enlisted, claims=bool(record.enlisted))

    def _enlist(self, sid: int, pubend: PubendId) -> Set:
        record = self._commit_records[sid]
        if pubend not in record.enlisted:
            record.enlisted = (*record.enlisted, pubend)
        return self._row(sid, record)

    def _claim_enlisted(self, consumer: Consumer, pubend: PubendId, durable: Then, _now: int, _wall: int) -> None:
        """A pubend is enlisted durably. Its claim precedes the first transaction there (TS12)."""
        record, sid = self._commit_records.get(consumer.sid), consumer.sid
        if record is None or self._hosting.consumers.get(sid) is not consumer:
            return

        def claimed(_ticks: Mapping[PubendId, Tick], reason: str, now: int, wall: int) -> None:
            if reason:  # whoever is elsewhere asks again, another one connects again
                self._hosting.end_session(consumer.channel.session, reason)
            else:
                durable(now, wall)

        self._claims.claim(consumer.subscription, record.claim, (pubend,), claimed)

    @staticmethod
    def _take(record: CommitRecord, unit: Unit, *, before: int) -> None:
        """One more attempt. Asked again by the same consumer, it is still the same attempt.

        `before`: how often it was handed out before, if none of that was counted: once where there was doubt.

        What an SHB told as a gap, another one may have still: then an event comes that is before the one of the last
        attempt, and everything up to that one may have been handed out.
        """
        former = record.attempts.get(unit.pubend)
        if former is not None and former.tick > unit.first:
            for units in (record.units, record.former):
                units[unit.pubend] = max(former.tick, units.get(unit.pubend, 0))
        if former is None or former.tick != unit.first:
            record.attempts[unit.pubend] = Attempt(unit.first, before + 1, record.holder)
        elif former.by != record.holder:
            record.attempts[unit.pubend] = Attempt(unit.first, former.count + 1, record.holder)

    @staticmethod
    def _announce(record: CommitRecord, unit: Unit) -> None:
        """A batch is handed out. What an earlier consumer was handed, and did not commit, may go further."""
        if unit.last > unit.first:
            record.units[unit.pubend] = max(unit.last, record.units.get(unit.pubend, 0))

    def _row(self, sid: int, record: CommitRecord) -> Set:
        """Returns the write of a commit record, without what is committed meanwhile."""
        acked = {pubend: stream.positions[sid].acked for pubend, stream in self._hosting.streams.items()}
        record.attempts = {p: taken for p, taken in record.attempts.items() if taken.tick > acked.get(p, 0)}
        record.units = {p: upto for p, upto in record.units.items() if upto > acked.get(p, 0)}
        record.former = {p: upto for p, upto in record.former.items() if upto > acked.get(p, 0)}
        record.earlier = uncommitted(record.earlier, acked)
        return Set(COMMIT_RECORDS, _KEY.pack(sid), _encode(record))

    def _positions(self, sid: int) -> list[Operation]:
        """Returns the writes of positions that no checkpoint has yet: what the answer names is durable."""
        streams = self._hosting.streams.values()
        return [
            position_row(sid, stream.pubend, stream.positions[sid])
            for stream in streams
            if stream.positions[sid].changed
        ]


def _nothing(_ticks: Mapping[PubendId, Tick], _reason: str, _now: int, _wall: int) -> None:
    """Nobody waits for a claim."""


def _units(record: CommitRecord, *, knows_earlier: bool) -> tuple[Position, ...]:
    """Returns up to where batches may have been handed out.

    A client that is too old to be told of earlier filters marks everything of that time.
    """
    upto = dict(record.units)
    if not knows_earlier:  # it does not name its process either
        for pubend, tick in furthest(record.earlier).items():
            upto[pubend] = max(tick, upto.get(pubend, 0))
    return tuple(Position(pubend, tick) for pubend, tick in upto.items())


def _is_of(record: CommitRecord, instance: str) -> bool:
    """Whether a commit record is open for a consumer of this process."""
    return record.holder.rpartition("/")[0] == instance
