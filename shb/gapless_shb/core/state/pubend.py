"""The state of one pubend at an SHB: its positions, the positions of subscriptions, and the live consumers.

The constream moves these on. Readers and deliveries look them up, and note how far they have served a subscription
(protocol: positions, constream).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, ValuesView
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from itertools import pairwise

from msgspec.structs import replace

from gapless.core.network.facts import Held, Hold, PubendMeta
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import STEP, PubendId, ShbId, Tick, tick_at
from gapless.core.traces import Sampler
from gapless.core.wire.messages import GapReason
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state.broker_state import BrokerState
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.segments import GapSegment

NEW = 3_000_000_000
"""For so long after a pubend was described here first, others that its PHB has may be on their way, in nanoseconds."""
REPEAT = 1_000_000_000
"""How long a row of holds waits for its answer before it is sent again, in nanoseconds."""


class ServedPubend:
    """One pubend at one SHB; see the module."""

    def __init__(self, meta: PubendMeta, head: Tick, pfs: Pfs, state: BrokerState) -> None:
        self.meta = meta
        self.pubend = meta.pubend
        self.head = head
        self.newest_event = 0
        """The last event at or below the head; 0 if none is known since this broker started."""
        self.latest_delivered = head
        self.released = 0
        """The highest released(p) that was ever given to a checkpoint. A start below it needs a hold."""
        self.reported = 0
        """The highest released(p) of a durable checkpoint; only this value is reported."""
        self.holds = PubendHolds(state.shb, meta.pubend)
        self.lost = 0
        self.gone_upto = 0
        """If it is gone with its host's volume: everything up to here that is not known here is lost. Else 0."""
        self.followed_by: PubendId = ""
        """A pubend of the volume that its host had instead when it was found to be gone."""
        self.heard_upto = head
        """Up to where everything of it was known here when it was found to be gone."""
        self.has_rivals = False
        """Whether pubends of another volume of its host are known here: one of the volumes is lost."""
        self.enrolled = False
        self._seen_at: int | None = None
        self.enrolled_at = 0
        """The tick from which the PHB counts this SHB.

        Events below it may have been given up without asking this SHB.
        """
        self.traced = Sampler(state.traces, meta.grain)
        self.pfs = pfs
        self.positions: dict[int, SubscriptionPosition] = {}
        self.retention_floor = RetentionFloor()
        """The positions that are not idle. Only these keep released(p) low for long."""
        self.droppable_holds: dict[int, None] = {}
        """Ids of subscriptions whose hold can probably be dropped.

        A subscription that is not here has not yet acknowledged up to `reported`; its hold is still needed.
        """
        self.live: dict[int, Consumer] = {}
        self._changed: dict[int, None] = {}
        self.floors: dict[int, Tick] = {}
        """The own positions of live consumers that are ahead of the head (T11)."""
        self.open_gaps: dict[int, GapSegment] = {}
        """Gaps that live consumers have not been sent yet, while the head moves on: a gap may still become longer."""
        self.durable_sids = state.registry.durable_sids
        self.counts = state.counts

    def seen(self, now: int) -> None:
        """The PHB has described the pubend."""
        if self._seen_at is None:
            self._seen_at = now

    def is_new(self, now: int) -> bool:
        """Whether the PHB has described it for the first time since this broker started just now, or not yet."""
        return self._seen_at is None or now - self._seen_at < NEW

    def learn(self, meta: PubendMeta) -> None:
        """Takes the PHB's description of the pubend, unless a newer one was taken: voids would be missing.

        Where the pubend began stays as it was heard first: a gateway that has lost its volume says that a log begins
        later, and subscriptions are owed what lies between.
        """
        if meta.stable >= self.meta.stable:
            self.meta = replace(meta, created=min(meta.created, self.meta.created))

    def why_lost(self, otherwise: GapReason) -> GapReason:
        """Returns why ticks are lost that the pubend does not have any more: with its volume, or `otherwise`."""
        return GapReason.VOLUME_LOST if self.gone_upto else otherwise

    def enrol(self, at: Tick) -> bool:
        """The PHB counts this SHB from `at` on, or did so before a crash. Returns whether that is new.

        If `at` is later than before, this SHB was given up (T10) and has been enrolled again.
        """
        if self.enrolled and at <= self.enrolled_at:
            return False
        self.enrolled, self.enrolled_at = True, at
        return True

    def client_position(self, tick: Tick) -> Tick:
        """Returns a position for clients that means: everything up to `tick` is known.

        A position must not stand at a place of events without an event, because it would look like a token of a lost
        event (`is_lost`). In that case the next tick is returned. It means the same, since no event can stand there.
        Where a log numbers its records, it must not stand inside a void, and the end of that means the same.
        """
        if not self.meta.timed:
            for lo, hi in reversed(self.meta.voids):
                if lo < tick:
                    return max(tick, hi)
            return tick
        stands_as_event = self.meta.residue is not None and tick % STEP == self.meta.residue
        return tick + 1 if stands_as_event and tick != self.newest_event else tick

    def start_of(self, subscription: SubscriptionRecord) -> Tick:
        """Returns where a subscription starts on this pubend, also if the pubend was found later.

        If only the pubend can say that, it is 0 until it has (`seeks`).
        """
        known = subscription.start.get(self.pubend)
        if known is not None:
            return known
        if not self.meta.timed:  # `late_start` is a time, but for a start at the earliest
            return self.meta.created if subscription.late_start and not self.seeks(subscription) else 0
        return self.client_position(max(self.meta.created, subscription.late_start))

    def seeks(self, subscription: SubscriptionRecord) -> bool:
        """Whether the pubend has yet to be asked where a subscription starts that was there before it was found.

        The subscription asked for a time, and only the pubend knows which of its ticks that is. Its answer goes into
        the record.
        """
        return not self.meta.timed and subscription.start_wall > 0 and self.pubend not in subscription.start

    def seek(self, subscription: SubscriptionRecord, now: int) -> SubscriptionPosition:
        """Returns the position of such a subscription. The pubend is asked for its place, and keeps all until then.

        What a guest asks for, its home seeks.
        """
        if not subscription.home:
            self.holds.put(subscription.sid, 0, now, subscription.late_wall)
        return SubscriptionPosition(0, held=not subscription.home, sought=True, guest=bool(subscription.home))

    def beginning(self, lost: Tick) -> Tick:
        """Returns the first position from which the pubend has everything, if all up to `lost` is gone from its log.

        That is what "earliest" means, for subscriptions and for ranges. A log that numbers its records is older than
        its pubend: `created` only says where a gateway has found it.
        """
        return max(lost, self.meta.created) if self.meta.timed else lost

    def at(self, wall: int) -> Tick:
        """Returns the position after which all events of a wall time and later stand.

        If the ticks of the pubend are not times, only its host knows that position: then it is 0, and the hold that
        asks for it says the time (`PubendHolds.times`).
        """
        return max(0, tick_at(wall) - 1) if self.meta.timed else 0

    def done_upto(self, position: SubscriptionPosition) -> Tick:
        """Returns a position for clients: the subscription is done with everything up to it."""
        done = position.done_upto
        return done if done == position.acked else self.client_position(done)

    def why_damaged(self, lo: Tick, hi: Tick) -> GapReason:
        """Returns why the pubend cannot say what was in (lo, hi], which it has given up."""
        return GapReason.TWICE if any(lo < end and start < hi for start, end in self.meta.forks) else GapReason.DAMAGED

    def is_lost(self, tick: Tick) -> bool:
        """Whether a token at this tick was made from data that the pubend has lost: the tick is of an event in a void.

        A token at silence cannot be judged: it may have been made from this log, which goes on after its voids. Where a
        log numbers its records, all ticks are places of events, and no position ends inside a void.
        """
        if not self.meta.timed:
            return any(lo < tick < hi for lo, hi in self.meta.voids)
        residue = self.meta.residue
        if residue is None or tick % STEP != residue:
            return False
        if any(lo < tick <= hi for lo, hi in self.meta.forks):
            return False  # another process of its broker has logged it
        return any(lo < tick <= hi for lo, hi in self.meta.voids)

    def cut(self, knowledge: Knowledge) -> Ranges:
        """Returns the ranges whose events, if there were any, are lost although they are silent now (TK19).

        A log that numbers its records may lose the newest ones when it changes its leader; and with the end of a
        transaction, what is below that may not be committed any more. A subscription that had matched one of them has
        to be told: what knowledge does not have, which is not filtered, will never come. Above the head nothing was
        noted as a match.
        """
        lo, hi, events = knowledge.lo, min(knowledge.hi, self.head), knowledge.data.ticks
        if self.meta.timed or knowledge.damaged or lo >= hi:
            return ()
        ticks = (lo, *events[: bisect_right(events, hi)], hi + 1)
        return tuple((before, tick - 1) for before, tick in pairwise(ticks) if before < tick - 1)

    def touch(self, sid: int, position: SubscriptionPosition) -> None:
        """A position has changed: notes that, and whether it is idle now (then it follows what is delivered)."""
        # Its home writes it down and holds the log back for it.
        if position.guest:
            return
        if position.changed:
            self._changed[sid] = None
        if position.is_idle:
            self.release(position)
            self.retention_floor.discard(sid)
        else:
            self.retention_floor.put(sid, position)
        if position.held and position.done_upto >= self.reported:
            self.droppable_holds[sid] = None

    def saved(self, sid: int) -> None:
        """The row of a position is written as it is now: no checkpoint need write it again."""
        self.positions[sid].changed = False
        self._changed.pop(sid, None)

    def release(self, position: SubscriptionPosition) -> Tick:
        """Updates the `released` of a position, and returns it."""
        return position.release(self.latest_delivered, self.head, self.released)

    def silent(self, position: SubscriptionPosition) -> tuple[Tick, Tick]:
        """Returns (lo, hi]: silence for every reader of a subscription, whatever is left of the log."""
        self.release(position)
        return position.silent()

    def take_changed(self) -> list[int]:
        """Returns the durable subscriptions whose positions have changed since the last call."""
        changed, self._changed = self._changed, {}
        for sid in changed:
            if sid in self.positions:
                self.positions[sid].changed = False
        return [sid for sid in changed if sid in self.positions and sid in self.durable_sids]

    def durable(self, latest_delivered: Tick, released: Tick) -> None:
        """Notes that a checkpoint with these values is durable."""
        assert released <= latest_delivered <= self.head, "nobody is done with what was not delivered"
        self.latest_delivered = max(self.latest_delivered, latest_delivered)
        self.reported = max(self.reported, released)

    def go_live(self, consumer: Consumer, at: Tick) -> None:
        """Serves a consumer, which has everything up to `at`, together with all live consumers from now on."""
        assert consumer.sid in self.positions, "who is served has a position"
        self.live[consumer.sid] = consumer
        # It was sent more in a former life of this broker, or by another SHB. None of that is sent again.
        if at > self.head:
            self.floors[consumer.sid] = at

    def send_gap(self, sid: int) -> None:
        """Sends the open gap to a live consumer: the gap ends here."""
        gap = self.open_gaps.pop(sid)
        self.live[sid].gap(self.pubend, gap.start, self.client_position(gap.end), gap.reason)


@dataclass(slots=True)
class PubendHolds:
    """One SHB's row of holds at one pubend: it keeps events that the SHB has already reported as released.

    A subscription that starts in the past (earliest, a time, a token) needs events that the SHB no longer held. Its
    hold asks the pubend to keep them, and is durable there before the client gets its answer. There is one row per SHB
    and pubend. It has a version, and is always sent whole (protocol: holds, members).
    """

    shb: ShbId
    pubend: PubendId
    version: int = 0
    durable: int = 0
    """The version that is durable at this SHB. A higher one must not be sent: after a crash it might be sent again with
    another content."""
    row: dict[int, Tick] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    """From which wall time on an entry at 0 needs events, where only the pubend can find the tick."""
    answered: int = 0
    send_at: int | None = None
    """When the row has to be sent (again), as soon as it is durable; None if it is answered."""

    def put(self, sid: int, at: Tick, now: int, wall: int | None = None) -> None:
        """Asks the pubend to keep events above `at`; 0 asks for the earliest, and with `wall` for that time."""
        self.row[sid] = at
        if wall is not None:
            self.times[sid] = wall
        self.say_again(now)

    def drop(self, sid: int, now: int) -> bool:
        """Removes the hold of a subscription that needs it no longer. Returns whether it had one."""
        self.times.pop(sid, None)
        if self.row.pop(sid, None) is None:
            return False
        self.say_again(now)
        return True

    def renew(self, now: int) -> None:
        """Sends the row again after a restart: the pubend may have missed the last change, or that no hold is left."""
        if self.version:
            self.say_again(now)

    def on_held(self, held: Held) -> list[tuple[int, Tick]]:
        """The pubend keeps a row. Returns the ticks that its entries got, if this answers the current row."""
        if held.version != self.version or self.answered == self.version:
            return []
        self.answered = self.version
        self.send_at = None
        resolved = [(sid, held.at[sid]) for sid in self.row if sid in held.at]
        # An entry at 0 has asked for the earliest, or for a time. From now on the row says which tick that was.
        self.row.update(resolved)
        self.times.clear()
        return resolved

    def waits_for(self, sid: int) -> bool:
        """Whether it is not known yet that the pubend keeps the subscription's entry."""
        return sid in self.row and self.answered != self.version

    @property
    def unanswered_from(self) -> Tick | None:
        """The lowest entry, if it is not known yet that the pubend keeps the row."""
        return min(self.row.values()) if self.row and self.answered != self.version else None

    def due(self, now: int) -> Hold | None:
        """Returns the row if it has to be sent (again) now."""
        if self.send_at is None or now < self.send_at or self.durable < self.version:
            return None
        self.send_at = now + REPEAT
        return Hold(self.shb, self.pubend, self.version, dict(self.row), dict(self.times))

    @property
    def deadline(self) -> int | None:
        """When `due` has to be called next."""
        return self.send_at if self.durable >= self.version else None

    def say_again(self, now: int) -> None:
        """Gives the row, unchanged, a new version. An answer to it is certainly given after this call."""
        self.version += 1
        self.send_at = now


class RetentionFloor:
    """Finds the lowest position that holds the log back; this makes released(p) cheap (protocol: positions).

    Only positions that are not idle hold the log back; idle ones follow what is delivered. The lowest position is the
    top of a heap. An entry of the heap is updated only when it comes to the top. Therefore an old entry may be too low,
    but never too high, because a position only grows while it is in here. So a checkpoint costs as much as has changed
    at the bottom, however many subscriptions there are.
    """

    __slots__ = ("_heap", "_queued", "pinning")

    def __init__(self) -> None:
        self.pinning: dict[int, SubscriptionPosition] = {}
        self._heap: list[tuple[Tick, int]] = []
        self._queued: set[int] = set()
        """Subscriptions with an entry in the heap. Each has at most one, and may have one although it is idle now."""

    def __len__(self) -> int:
        return len(self.pinning)

    def __contains__(self, sid: object) -> bool:
        return sid in self.pinning

    def __iter__(self) -> Iterator[int]:
        return iter(self.pinning)

    def values(self) -> ValuesView[SubscriptionPosition]:
        """All positions in here."""
        return self.pinning.values()

    def put(self, sid: int, position: SubscriptionPosition) -> None:
        """Adds a position: it holds the log back from `done_upto` on."""
        self.pinning[sid] = position
        if sid not in self._queued:
            self._queued.add(sid)
            heappush(self._heap, (position.done_upto, sid))

    def discard(self, sid: int) -> None:
        """Removes a position: it holds nothing back any more."""
        self.pinning.pop(sid, None)

    def lowest(self) -> Tick | None:
        """Returns up to where all positions in here are done; None if there are none."""
        heap = self._heap
        while heap:
            entered, sid = heap[0]
            position = self.pinning.get(sid)
            if position is None:
                heappop(heap)
                self._queued.discard(sid)
            elif position.done_upto > entered:
                heapreplace(heap, (position.done_upto, sid))
            else:
                return entered
        return None
