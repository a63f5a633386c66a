"""Desks: what a home keeps of consumers that leave their position to it (protocol: committing; TS1 to TS5).

Such a consumer hands out a unit, an event or a batch, only when the commit of the unit before it is durable. So after
any crash one unit is in doubt: the one that was in hand. A desk is what is needed to recognise it:

- `epoch` counts attachments: a commit of an older one is not taken;
- `holder`: somebody may have been handed something since, and this is who; "" if the last one left in order;
- `settled`: whoever is in doubt, and leaves in order, leaves the doubt to the next one, but not on these pubends;
- `attempts`: the one event of a pubend that was taken before it was handed out, and was not committed;
- `units`: up to where batches were announced before they were handed out.

An attachment is answered when all of this is durable, and so is an announcement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from struct import Struct

import msgspec

from gapless.core.outbox import Then
from gapless.core.ports import Delete, Operation, RecoveryReader, Set
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Acknowledged, Attempts, Code, Position, Subscribe, Unit
from gapless_shb.core.admission import RefusedError
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.positions_ahead import PositionsAhead
from gapless_shb.core.rows import position_row

DESKS = "shb/desks"
"""Subscription id → Desk; none for a subscription that nobody ever left its position to."""
SOMEBODY = "?"
"""The holder of a desk to which a consumer came that does not commit."""
LEFT = "-"
"""The holder of a desk whose last consumer left in order, and left some of the doubt that it had found."""
_KEY = Struct(">Q")


class Attempt(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event that was taken, how often, and by whom the last time."""

    tick: Tick
    count: int
    by: str


class Desk(msgspec.Struct, array_like=True):
    """The desk of a subscription; see the module."""

    epoch: int = 0
    holder: str = ""
    attempts: dict[PubendId, Attempt] = {}
    units: dict[PubendId, Tick] = {}
    settled: tuple[PubendId, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenedDesk:
    """What a consumer is told of the desk that it has now."""

    epoch: int = 0
    doubt: bool = False
    settled: tuple[PubendId, ...] = ()
    attempts: tuple[Attempts, ...] = ()
    units: tuple[Position, ...] = ()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Desk).decode


class Desks:
    """All desks of an SHB."""

    def __init__(self, hosting: Hosting, ahead: PositionsAhead, reader: RecoveryReader) -> None:
        """Restores what the volume has."""
        self._hosting = hosting
        self._ahead = ahead
        self._desks: dict[int, Desk] = {}
        for key, value in reader.scan(DESKS):
            (sid,) = _KEY.unpack(key)
            if hosting.registry.get(sid) is not None:
                self._desks[sid] = _decode(value)

    def open(self, consumer: Consumer, request: Subscribe) -> tuple[OpenedDesk, list[Operation]] | None:
        """A consumer attaches. Returns what to tell it when these writes are durable; None: no desk is concerned.

        Raises RefusedError if it goes on with what it was handed before, and somebody else was served meanwhile.
        """
        sid = consumer.sid
        desk = self._desks.get(sid)
        if not request.commits or not consumer.subscription.durable:
            if desk is None or desk.holder in {"", SOMEBODY, LEFT}:
                return None
            desk.holder = SOMEBODY
            return OpenedDesk(), [self._row(sid, desk)]
        desk = desk or Desk()
        goes_on = bool(request.sid)
        if goes_on and desk.holder != consumer.holder:
            raise RefusedError(Code.TAKEN_OVER, "another consumer had the subscription meanwhile")
        self._desks[sid] = desk
        doubt = bool(desk.holder) and not goes_on
        settled = desk.settled if desk.holder == LEFT else ()
        desk.epoch += 1
        desk.holder = consumer.holder
        row = self._row(sid, desk)
        attempts = tuple(Attempts(pubend, taken.tick, taken.count) for pubend, taken in desk.attempts.items())
        units = tuple(Position(pubend, upto) for pubend, upto in desk.units.items())
        return OpenedDesk(desk.epoch, doubt, settled, attempts, units), [row, *self._positions(sid)]

    def is_current(self, sid: int, epoch: int) -> bool:
        """Whether a commit of this epoch is taken."""
        desk = self._desks.get(sid)
        return desk is not None and desk.epoch == epoch

    def commit(
        self, consumer: Consumer, said: Iterable[Acknowledged], unit: Unit | None, durable: Then, now: int
    ) -> None:
        """A consumer is done with everything up to these positions, and will be handed the unit next.

        `durable` is called when both are. A position that is ahead of all that is known here is judged first. If a
        pubend is not known here yet, nothing is answered: a consumer elsewhere asks again, another one connects again.
        """
        sid, hosting = consumer.sid, self._hosting
        unknown = self.unknown_of(said)
        if unknown:
            hosting.end_session(consumer.channel.session, f"{unknown} is not known here yet")
            return
        on = [(hosting.streams[each.pubend], each) for each in said if each.pubend in hosting.streams]
        for stream, each in on:
            beyond = not consumer.is_elsewhere and self._ahead.is_beyond(each.pubend, each.tick)
            if beyond and each.tick > stream.positions[sid].acked:
                again = partial(self._commit_again, consumer, list(said), unit, durable)
                self._ahead.judge(consumer, each, again, now)
                return
        rows: list[Operation] = []
        for stream, each in on:
            stream.acknowledge(sid, each.tick, each.event)
            rows.append(position_row(sid, stream.pubend, stream.positions[sid]))
        if unit is not None:
            desk = self._desks[sid]
            if unit.careful:
                self._take(desk, unit)
            self._announce(desk, unit)
            rows.append(self._row(sid, desk))
        hosting.outbox.write(rows, durable)
        hosting.unsaved = True

    def unknown_of(self, said: Iterable[Acknowledged]) -> PubendId:
        """Returns a pubend that this home has not heard of yet, so it can keep no position on it; "" if there is none.

        The SHB that serves a consumer may know of it earlier, or may have known of it before it crashed.
        """
        unknown = [each.pubend for each in said if each.pubend not in self._hosting.streams]
        if not unknown:
            return ""
        names = {pubend.rpartition("@")[0] for pubend in self._hosting.streams}
        return next((pubend for pubend in unknown if pubend.rpartition("@")[0] not in names), "")

    def close(self, consumer: Consumer, handed: Iterable[Unit] | None, settled: Iterable[PubendId] | None) -> None:
        """A consumer leaves. In order, if it says what it was handed and has not committed.

        `settled`: the pubends on which it was not, or no longer, in doubt; None: it was in no doubt.
        """
        desk = self._desks.get(consumer.sid)
        if desk is None or handed is None or not _is_of(desk, consumer.instance):
            return
        for unit in handed:
            self._take(desk, unit)
            self._announce(desk, unit)
        desk.holder = "" if settled is None else LEFT
        desk.settled = () if settled is None else tuple(p for p in settled if p in self._hosting.streams)
        self._hosting.outbox.write([self._row(consumer.sid, desk)])

    def adopted(self, sid: int, instance: str) -> list[Operation]:
        """A consumer was served elsewhere that this home did not know of. Returns what has to be written."""
        desk = self._desks.get(sid)
        if desk is None or desk.holder in {"", LEFT} or _is_of(desk, instance):
            return []
        desk.holder = SOMEBODY
        return [self._row(sid, desk)]

    def remove(self, sid: int) -> list[Operation]:
        """Returns the removal of a subscription's desk."""
        return [] if self._desks.pop(sid, None) is None else [Delete(DESKS, _KEY.pack(sid))]

    # How it is done.

    def _commit_again(
        self,
        consumer: Consumer,
        said: list[Acknowledged],
        unit: Unit | None,
        durable: Then,
        now: int,
        _wall: int,
    ) -> None:
        if self._hosting.consumers.get(consumer.sid) is consumer:
            self.commit(consumer, said, unit, durable, now)

    @staticmethod
    def _take(desk: Desk, unit: Unit) -> None:
        """One more attempt. Asked again by the same consumer, it is still the same attempt."""
        former = desk.attempts.get(unit.pubend)
        if former is None or former.tick != unit.first:
            desk.attempts[unit.pubend] = Attempt(unit.first, 1, desk.holder)
        elif former.by != desk.holder:
            desk.attempts[unit.pubend] = Attempt(unit.first, former.count + 1, desk.holder)

    @staticmethod
    def _announce(desk: Desk, unit: Unit) -> None:
        """A batch is handed out. What an earlier consumer was handed, and did not commit, may go further."""
        if unit.last > unit.first:
            desk.units[unit.pubend] = max(unit.last, desk.units.get(unit.pubend, 0))

    def _row(self, sid: int, desk: Desk) -> Set:
        """Returns the write of a desk, without what is committed meanwhile."""
        acked = {pubend: stream.positions[sid].acked for pubend, stream in self._hosting.streams.items()}
        desk.attempts = {p: taken for p, taken in desk.attempts.items() if taken.tick > acked.get(p, 0)}
        desk.units = {p: upto for p, upto in desk.units.items() if upto > acked.get(p, 0)}
        return Set(DESKS, _KEY.pack(sid), _encode(desk))

    def _positions(self, sid: int) -> list[Operation]:
        """Returns the writes of positions that no checkpoint has yet: what the answer names is durable."""
        streams = self._hosting.streams.values()
        return [
            position_row(sid, stream.pubend, stream.positions[sid])
            for stream in streams
            if stream.positions[sid].changed
        ]


def _is_of(desk: Desk, instance: str) -> bool:
    """Whether a desk is open for a consumer of this process."""
    return desk.holder.rpartition("/")[0] == instance
