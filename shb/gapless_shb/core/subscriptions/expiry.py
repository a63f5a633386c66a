"""The expiry of subscriptions: one that is not consumed for long is given up, without a silent loss.

It is off unless `subscription_expiry_seconds` is set.

Time means uptime of this SHB, counted in beats of its monotonic timer. A wall clock that jumps, a broker that is down
and a process that stands still count for nothing, or for one beat. So none of them costs an application its
subscription. It expires when its time is over after its consumer left, at most two beats later.

Expiry removes the subscription, as `unsubscribe` does, so it holds no log back. Its name and position remain. A client
that subscribes with that name again continues at that position: it gets what the logs still have, and a gap for the
rest.

What is durable:

1. the uptime, once in a beat;
2. for each unconsumed subscription, when that was noticed; this is deleted *before* its return is answered;
3. name and position of a lapsed subscription, *before* it is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, takewhile
from struct import Struct

import msgspec
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import ClientSession, Delete, Operation, RecoveryReader, RequestHandler, Set
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Position, StartAt, Subscribe, TakeLease
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.shared.window import KeptWindow
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import PREPARING, Phase
from gapless_shb.core.subscriptions.waiting import Reason, Waiting

ABSENCES = "shb/leases"
"""`uptime` → milliseconds; subscription id → the uptime at which it was noticed that it has no consumer."""
LAPSED = "shb/lapsed"
"""client id, name → Lapsed."""
LAPSED_MAX = 100_000
"""How many positions of lapsed subscriptions are kept: the latest ones."""
BEATS = 16
"""How many beats that time has, if it is short."""
LAPSES_MOST = 1_000
"""How many subscriptions are given up in one beat at most, so that no turn is long."""
BEAT_MS_MAX = 600_000

_NOBODY_HAS_IT = PREPARING | {Phase.FREE}
_UPTIME = b"uptime"
_KEY = Struct(">Q")


class Lapsed(msgspec.Struct, array_like=True, frozen=True):
    """What is kept of a subscription that has expired."""

    sid: int
    client_id: str
    name: str
    lapsed_at: int
    """The uptime, in milliseconds."""
    starts: dict[PubendId, Tick]
    """From where it was owed events: where it continues with a token that does not name the pubend."""
    positions: dict[PubendId, Tick]
    """Up to where it was done with everything: where it continues without a token."""
    late_start: Tick = 0
    """The `late_start` of the subscription, for pubends found later."""
    start_wall: int = 0
    """And its `start_wall`."""
    windows: dict[PubendId, KeptWindow] = {}
    """Of a shared one: what was not settled."""


_encode = msgspec.msgpack.Encoder().encode
_decode_time = msgspec.msgpack.Decoder(int).decode
_decode_lapsed = msgspec.msgpack.Decoder(Lapsed).decode


def beat_of(expiry_ms: int) -> int:
    """Returns the length of a beat, in milliseconds."""
    return max(1, min(expiry_ms // BEATS, BEAT_MS_MAX))


class Expiry:
    """Which subscriptions have no consumer since when, which are returning, and which have lapsed."""

    def __init__(self, hosting: Hosting, waiting: Waiting, expiry_ms: int | None, reader: RecoveryReader) -> None:
        """Restores what the volume has. `expiry_ms` None: no subscription expires."""
        self._hosting = hosting
        self._waiting = waiting
        self._expiry_ms = expiry_ms
        self._uptime = 0
        self._left: dict[int, int] = {}
        """When each subscription without a consumer was noticed, the earliest first."""
        self._returning: set[int] = set()
        """The subscriptions whose return is not durable yet."""
        self.lapsed: dict[tuple[str, str], Lapsed] = {}
        """The lapsed subscriptions, by client id and name, the earliest first."""
        self._obsolete: list[Operation] = []
        self._recover(reader)

    def _recover(self, reader: RecoveryReader) -> None:
        found = {key: _decode_time(value) for key, value in reader.scan(ABSENCES)}
        if self._expiry_ms is None:
            # Returns are not noted while nothing expires. So these times would be wrong when that is on again.
            self._obsolete = [Delete(ABSENCES, key) for key in found]
        else:
            # The uptime is written once in a beat. It was at least the latest time that was noted.
            self._uptime = max(found.values(), default=0)
            found.pop(_UPTIME, None)
            left = sorted(((_KEY.unpack(key)[0], at) for key, at in found.items()), key=lambda item: item[1])
            self._left = {sid: at for sid, at in left if self._hosting.registry.get(sid) is not None}
        lapsed = (_decode_lapsed(value) for _, value in reader.scan(LAPSED))
        for one in sorted(lapsed, key=lambda one: one.lapsed_at):
            if self._hosting.registry.find(one.client_id, one.name) is None:
                self.lapsed[one.client_id, one.name] = one
            else:  # a crash lost the removal of the subscription
                self._obsolete.append(_forget(one.client_id, one.name))

    # ------------------------------------------------------------------------------------------ time

    @property
    def beat_ms(self) -> int | None:
        """How often `on_beat` has to be called; None: never."""
        return None if self._expiry_ms is None else beat_of(self._expiry_ms)

    def start(self) -> None:
        """Makes the first writes of a life."""
        if self._obsolete:
            self._hosting.outbox.write(self._obsolete)

    def on_beat(
        self, remove: Callable[[SubscriptionRecord], None], kept: Callable[[int], dict[PubendId, KeptWindow]]
    ) -> None:
        """One more beat has passed: notes subscriptions that lost their consumer, removes those that have expired.

        `kept`: returns what is not settled of a shared one.
        """
        assert self._expiry_ms is not None
        beat = beat_of(self._expiry_ms)
        self._uptime += beat
        operations: list[Operation] = [Set(ABSENCES, _UPTIME, _encode(self._uptime))]
        for sid in self._newly_left():
            self._left[sid] = self._uptime
            operations.append(Set(ABSENCES, _KEY.pack(sid), _encode(self._uptime)))
        self._hosting.outbox.write(operations)
        due = self._uptime - self._expiry_ms
        lapsing = takewhile(lambda item: item[1] <= due, self._left.items())
        for sid, _ in list(islice(lapsing, LAPSES_MOST)):
            subscription = self._hosting.registry.get(sid)
            assert subscription is not None, "who is removed is forgotten"
            self._lapse(subscription, kept(sid))
            remove(subscription)

    def _newly_left(self) -> Iterable[int]:
        hosting = self._hosting
        consumers = hosting.consumers
        if len(self._left) + len(self._returning) + len(consumers) >= len(hosting.registry):
            return []
        return [
            subscription.sid
            for subscription in hosting.registry
            if subscription.durable
            and subscription.sid not in self._left
            and subscription.sid not in self._returning
            and hosting.registry.phase(subscription.sid) in _NOBODY_HAS_IT
            and not self._waiting.is_awaited(subscription.sid, Reason.PREPARING)
        ]

    def _lapse(self, subscription: SubscriptionRecord, windows: dict[PubendId, KeptWindow]) -> None:
        """Writes the position of a subscription before it is removed; a crash between the two must not lose it."""
        hosting = self._hosting
        client_id, name = subscription.client_id, subscription.name
        on = {stream.pubend: stream.positions[subscription.sid] for stream in hosting.streams.values()}
        # Its token may have named pubends that are still unknown here. On these it stands where it started.
        starts = subscription.start | {pubend: position.start for pubend, position in on.items()}
        done = subscription.start | {
            pubend: hosting.streams[pubend].done_upto(position) for pubend, position in on.items()
        }
        late = subscription.late_start, subscription.start_wall
        lapsed = Lapsed(subscription.sid, client_id, name, self._uptime, starts, done, *late, windows)
        operations: list[Operation] = [Set(LAPSED, _name(client_id, name), _encode(lapsed))]
        self.lapsed.pop((client_id, name), None)
        self.lapsed[client_id, name] = lapsed
        while len(self.lapsed) > LAPSED_MAX:
            oldest = next(iter(self.lapsed))
            del self.lapsed[oldest]
            operations.append(_forget(*oldest))
        hosting.outbox.write(operations)
        text = f"subscription {name!r} of client {client_id!r} is given up: nobody consumed it until it expired"
        hosting.outbox.emit(Alarm(AlarmCode.SUBSCRIPTION_EXPIRED, text, f"{client_id}/{name}"))

    # ------------------------------------------------------------------------------------ coming back

    def note_return(
        self, session: ClientSession, request: Subscribe | TakeLease, sid: int, again: RequestHandler
    ) -> bool:
        """Deletes the note that a subscription has no consumer. Returns whether the request waits for that.

        It waits until the deletion is durable. Otherwise a crash would forget the return, and count the whole time
        before it as absence.
        """
        if sid not in self._returning:
            if self._left.pop(sid, None) is None:
                return False
            self._returning.add(sid)
            if self._hosting.registry.phase(sid) is Phase.FREE:  # otherwise it is being created, and that goes on
                self._hosting.registry.become(sid, Phase.RETURNING)
            self._hosting.outbox.write([Delete(ABSENCES, _KEY.pack(sid))], partial(self._returned, sid))
        self._waiting.put(Reason.RETURN, session, request, again, sid)
        return True

    def _returned(self, sid: int, now: int, wall: int) -> None:
        if sid in self._returning:
            self._returning.remove(sid)
            if self._hosting.registry.phase(sid) is Phase.RETURNING:
                self._hosting.registry.become(sid, Phase.FREE)
            self._waiting.wake(sid, Reason.RETURN, now, wall)

    def removed(self, sid: int) -> list[Operation]:
        """A subscription is removed. Returns the writes."""
        self._returning.discard(sid)
        return self.forget(sid)

    def forget(self, sid: int) -> list[Operation]:
        """Somebody has a subscription. Returns the writes that forget since when nobody had it."""
        return [] if self._left.pop(sid, None) is None else [Delete(ABSENCES, _KEY.pack(sid))]

    # ------------------------------------------------------------------------------------------ lapsed

    def forget_lapsed(self, client_id: str, name: str) -> list[Operation]:
        """Returns the writes that forget a lapsed subscription; none if there is none."""
        return [] if self.lapsed.pop((client_id, name), None) is None else [_forget(client_id, name)]

    def resumed(self, request: Subscribe, lapsed: Lapsed) -> Subscribe:
        """Returns a request to create a subscription, changed so that a lapsed name continues at its old position.

        Like a subscription that exists, it continues there whatever start the request has for a new one. With a token,
        the old position counts for the pubends that the token does not name. Events that are gone will be a gap.
        """
        given = list(request.positions or ()) if request.start is StartAt.TOKEN else []
        named = {position.pubend for position in given}
        given += [
            Position(pubend, tick)
            for pubend, tick in self._there(lapsed.starts if request.start is StartAt.TOKEN else lapsed.positions)
            if pubend not in named
        ]
        return replace(request, start=StartAt.TOKEN, positions=given)

    def _there(self, ticks: dict[PubendId, Tick]) -> Iterable[tuple[PubendId, Tick]]:
        """Yields the ticks without those of pubends that have begun anew since.

        Nor is 0 a position. It asks for the earliest tick, and no client has learned which one that is: the name lapsed
        while its subscription was being created.
        """
        streams = self._hosting.streams
        names = {pubend.rpartition("@")[0] for pubend in streams}
        for pubend, tick in ticks.items():
            if tick and (pubend in streams or pubend.rpartition("@")[0] not in names):
                yield pubend, tick


def _name(client_id: str, name: str) -> bytes:
    return _encode((client_id, name))


def _forget(client_id: str, name: str) -> Delete:
    return Delete(LAPSED, _name(client_id, name))
