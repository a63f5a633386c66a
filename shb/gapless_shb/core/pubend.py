"""What an SHB knows of a pubend beside its knowledge: how far it is, where each subscription stands, who is live.

The constream moves it on, readers and deliveries look things up here and note where they leave a subscription
(protocol: positions, constream).
"""

from __future__ import annotations

from collections.abc import Iterator, ValuesView
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace, nsmallest

from gapless.core.network.facts import Held, Hold, PubendMeta
from gapless.core.stream.ticks import STEP, PubendId, ShbId, Tick, tick_at
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.fetches import GapSegment
from gapless_shb.core.pfs import Pfs
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.state import BrokerState
from gapless_shb.core.subscriptions import SubscriptionRecord

REPEAT = 1_000_000_000
"""How long an unanswered row of holds waits before it is sent again, in nanoseconds."""


class ServedPubend:
    """One pubend at one SHB. See the module."""

    def __init__(self, meta: PubendMeta, head: Tick, pfs: Pfs, state: BrokerState) -> None:
        self.meta = meta
        self.pubend = meta.pubend
        self.head = head
        self.newest_event = 0
        """The last event up to the head; 0: none is known, since this broker started."""
        self.latest_delivered = head
        self.released = 0
        """The highest released(p) ever given to a checkpoint: a start below it needs a hold."""
        self.reported = 0
        """The highest released(p) of a durable checkpoint."""
        self.holds = PubendHolds(state.shb, meta.pubend)
        self.lost = 0
        self.enrolled = False
        self.enrolled_at = 0
        """From where on the PHB counts this SHB: below that others may have let go of what it needs."""
        self.pfs = pfs
        self.positions: dict[int, SubscriptionPosition] = {}
        self.retention_floor = RetentionFloor()
        """The positions that are not idle: only these hold released(p) back for long."""
        self.droppable_holds: dict[int, None] = {}
        """Whose hold may have done its work: the others are not done with what was reported as released, and pin."""
        self.live: dict[int, Consumer] = {}
        self._changed: dict[int, None] = {}
        self.floors: dict[int, Tick] = {}
        """Live consumers whose own position is ahead of the head (T11)."""
        self.open_gaps: dict[int, GapSegment] = {}
        """What live consumers are not told yet, while the head moves on: more of it may follow."""
        self.durable_sids = state.registry.durable_sids

    def learn(self, meta: PubendMeta) -> None:
        """What its PHB says of it; an older word, that is late, knows less of voids and seals."""
        if meta.stable >= self.meta.stable:
            self.meta = meta

    def enrol(self, at: Tick) -> bool:
        """The PHB counts this SHB from `at` on, or did before a crash; returns whether that is news.

        A later `at` than before: this SHB was given up (T10) and has been counted anew.
        """
        if self.enrolled and at <= self.enrolled_at:
            return False
        self.enrolled, self.enrolled_at = True, at
        return True

    def behind(self, tick: Tick) -> Tick:
        """A position up to which everything is known, as it may be told.

        It never stands at a place of events where there is none: that would look like an event which was lost
        (`is_lost`). The tick behind the place says the same, for no event can ever stand there.
        """
        stands_as_event = self.meta.residue is not None and tick % STEP == self.meta.residue
        return tick + 1 if stands_as_event and tick != self.newest_event else tick

    def start_of(self, subscription: SubscriptionRecord) -> Tick:
        """Where a subscription begins here, also if this pubend was found later."""
        known = subscription.start.get(self.pubend)
        if known is not None:
            return known
        late = subscription.late_start if self.meta.timed else 0  # it is a time
        return self.behind(max(self.meta.created, late))

    def at(self, wall: int) -> Tick:
        """The position behind which all events of a wall time and later stand.

        Where ticks are no times only the pubend's host could tell: it is the beginning then, which is never too late.
        """
        return max(0, tick_at(wall) - 1) if self.meta.timed else 0

    def done_upto(self, position: SubscriptionPosition) -> Tick:
        """How far everything is done with, as it may be told."""
        done = position.done_upto
        return done if done == position.acked else self.behind(done)

    def is_lost(self, tick: Tick) -> bool:
        """Whether a token at this tick comes from data that the pubend has lost: from an event in a void.

        Of silence nobody can know: it may be this log's, which goes on over its voids.
        """
        residue = self.meta.residue
        if residue is None or tick % STEP != residue:
            return False
        return any(lo < tick <= hi for lo, hi in self.meta.voids)

    def touch(self, sid: int, position: SubscriptionPosition) -> None:
        """A position changed: finds out whether it is idle, and so goes along with what is delivered."""
        if position.changed:
            self._changed[sid] = None
        if position.is_idle:
            self.release(position)
            self.retention_floor.discard(sid)
        else:
            self.retention_floor.put(sid, position)
        if position.held and position.done_upto >= self.reported:
            self.droppable_holds[sid] = None

    def release(self, position: SubscriptionPosition) -> Tick:
        """Brings what a position has released up to date, and returns it."""
        return position.release(self.latest_delivered, self.head, self.released)

    def silent(self, position: SubscriptionPosition) -> tuple[Tick, Tick]:
        """(lo, hi]: silence to every reader of a subscription, whatever the log still knows of it."""
        self.release(position)
        return position.silent()

    def take_changed(self) -> list[int]:
        """The durable subscriptions whose positions changed since the last call."""
        changed, self._changed = self._changed, {}
        for sid in changed:
            if sid in self.positions:
                self.positions[sid].changed = False
        return [sid for sid in changed if sid in self.positions and sid in self.durable_sids]

    def durable(self, latest_delivered: Tick, released: Tick) -> None:
        """A checkpoint with these values is durable."""
        assert released <= latest_delivered <= self.head, "nobody is done with what was not delivered"
        self.latest_delivered = max(self.latest_delivered, latest_delivered)
        self.reported = max(self.reported, released)

    def go_live(self, consumer: Consumer, at: Tick) -> None:
        """The consumer has everything up to `at`, and is served with all others from there on."""
        self.live[consumer.sid] = consumer
        if at > self.head:
            self.floors[consumer.sid] = at

    def send_gap(self, sid: int) -> None:
        """Sends a live consumer the gap that is open: it ends here."""
        gap = self.open_gaps.pop(sid)
        self.live[sid].channel.gap(sid, self.pubend, gap.start, self.behind(gap.end), gap.reason)


@dataclass(slots=True)
class PubendHolds:
    """One SHB's row at one pubend: what keeps that from forgetting what the SHB has already reported as released.

    A subscription that starts in the past (earliest, a time, a token) needs events that the SHB no longer
    pinned. Its hold says so to the pubend, durably there, before the subscription is acknowledged. One row
    per SHB and pubend, under a version, always sent whole (protocol: holds, members).
    """

    shb: ShbId
    pubend: PubendId
    version: int = 0
    durable: int = 0
    """The version that is durable here: a higher one may not be sent, or it could be sent twice, differently."""
    row: dict[int, Tick] = field(default_factory=dict)
    answered: int = 0
    send_at: int | None = None
    """When the row is to be sent (again), as soon as it is durable; None: it is answered."""

    def put(self, sid: int, at: Tick, now: int) -> None:
        """Asks for events above `at`; 0 asks for the earliest."""
        self.row[sid] = at
        self.say_again(now)

    def drop(self, sid: int, now: int) -> bool:
        """The subscription needs its hold no longer; returns whether it had one."""
        if self.row.pop(sid, None) is None:
            return False
        self.say_again(now)
        return True

    def renew(self, now: int) -> None:
        """After a restart: the pubend may not have heard the last change, least of all that nothing is held."""
        if self.version:
            self.say_again(now)

    def on_held(self, held: Held) -> list[tuple[int, Tick]]:
        """The pubend keeps the row; returns what the entries were resolved to, if the answer is to this row."""
        if held.version != self.version or self.answered == self.version:
            return []
        self.answered = self.version
        self.send_at = None
        resolved = [(sid, held.at[sid]) for sid in self.row if sid in held.at]
        self.row.update(resolved)
        return resolved

    def waits_for(self, sid: int) -> bool:
        """Whether the subscription's entry is not known to be kept yet."""
        return sid in self.row and self.answered != self.version

    def due(self, now: int) -> Hold | None:
        """The row, if it must be sent (again) now."""
        if self.send_at is None or now < self.send_at or self.durable < self.version:
            return None
        self.send_at = now + REPEAT
        return Hold(self.shb, self.pubend, self.version, dict(self.row))

    @property
    def deadline(self) -> int | None:
        """When `due` wants to be asked."""
        return self.send_at if self.durable >= self.version else None

    def say_again(self, now: int) -> None:
        """A new version of the row, as it is: whatever the pubend answers to it, it answers after this."""
        self.version += 1
        self.send_at = now


class RetentionFloor:
    """Who pins the log, and how far down: what makes released(p) cheap to know (protocol: positions).

    Only positions that are not idle do: the others go along with what is delivered. Their lowest is the top of
    a heap, whose entries are brought up to date when they come to the top, and not before: what is done with only
    grows while a position pins, so an old entry is too low, never too high. A checkpoint costs what changed at the
    bottom, not what there is.
    """

    __slots__ = ("_heap", "_queued", "pinning")

    def __init__(self) -> None:
        self.pinning: dict[int, SubscriptionPosition] = {}
        self._heap: list[tuple[Tick, int]] = []
        self._queued: set[int] = set()
        """Who has an entry in the heap: one each, also if it pins no more."""

    def __len__(self) -> int:
        return len(self.pinning)

    def __contains__(self, sid: object) -> bool:
        return sid in self.pinning

    def __iter__(self) -> Iterator[int]:
        return iter(self.pinning)

    def values(self) -> ValuesView[SubscriptionPosition]:
        """All of the positions."""
        return self.pinning.values()

    def put(self, sid: int, position: SubscriptionPosition) -> None:
        """This one pins from what it is done with on."""
        self.pinning[sid] = position
        if sid not in self._queued:
            self._queued.add(sid)
            heappush(self._heap, (position.done_upto, sid))

    def discard(self, sid: int) -> None:
        """It pins nothing any more."""
        self.pinning.pop(sid, None)

    def lowest_few(self, count: int) -> list[int]:
        """Who is done with least, so many of them."""
        return nsmallest(count, self.pinning, key=lambda sid: (self.pinning[sid].done_upto, sid))

    def lowest(self) -> Tick | None:
        """How far everybody who pins is done; None when nobody does."""
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
