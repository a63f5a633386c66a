"""What an SHB knows of a pubend beside its knowledge: how far it is, where each subscription stands, who is live.

The constream moves it on, readers and deliveries look things up here and note where they leave a subscription
(protocol: positions, constream).
"""

from __future__ import annotations

from gapless.core.network.facts import PubendMeta
from gapless.core.stream.ticks import STEP, Tick, tick_at
from gapless_shb.core.consumers import Consumer
from gapless_shb.core.fetches import GapSegment
from gapless_shb.core.holds import PubendHolds
from gapless_shb.core.pfs import Pfs
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.retention_floor import RetentionFloor
from gapless_shb.core.state import BrokerState
from gapless_shb.core.subscriptions import SubscriptionRecord


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
