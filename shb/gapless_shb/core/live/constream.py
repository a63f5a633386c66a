"""One pubend as an SHB follows it: the istream gathers knowledge, the constream delivers it (protocol: constream).

All live consumers share the constream. There are two horizons (T28): the *head*, up to which everything is known and
was sent to them, and behind it *latestDelivered*, up to which the PFS holds that durably. A consumer that is not live
is served by a reader (protocol: readers).
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.gauges import Gauge
from gapless.core.network.facts import Held, PubendMeta, Want
from gapless.core.stream.curiosity import CuriosityStream
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge, KnowledgeConflict, KnowledgeStream
from gapless.core.stream.ticks import FOREVER, Tick
from gapless.core.wire.messages import GapReason
from gapless_shb.core.catch_up.fetches import Window
from gapless_shb.core.catch_up.scheduler import Scheduler
from gapless_shb.core.live.delivery import LiveDelivery
from gapless_shb.core.live.joining import JoiningSubscriptions
from gapless_shb.core.pfs.index import Pfs
from gapless_shb.core.state import gauges
from gapless_shb.core.state.broker_state import BrokerState
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend
from gapless_shb.core.state.segments import GapSegment, Lost

_BUFFER_BYTES = 32 << 20
"""How much knowledge the istream keeps beyond a hole. More is dropped, and asked for again."""


class Constream(ServedPubend):
    """One pubend at one SHB; see the module."""

    def __init__(self, meta: PubendMeta, head: Tick, pfs: Pfs, state: BrokerState) -> None:
        super().__init__(meta, head, pfs, state)
        self._state = state
        self._istream = KnowledgeStream(meta.pubend, head)
        self._curiosity = CuriosityStream()
        self.scheduler = Scheduler(self, state, self._curiosity)
        self._joining = JoiningSubscriptions(state.shb, self._istream)
        self._target = head
        """The pubend is decided up to here, as far as this SHB knows."""
        self._asked_ahead = False
        self._window = Window(meta.grain, 1000)
        self._moved_at = 0
        """When the head last moved, or an answer came, or something from further ahead than before."""
        self._heard_at = 0
        """When it last heard of ticks that are later than all that it had heard of."""

    def gauges(self) -> Iterator[Gauge]:
        """Yields its positions, and how many consumers are live, or have readers."""
        name = self.pubend
        yield gauges.HEAD.gauge(self.head, name)
        yield gauges.LATEST_DELIVERED.gauge(self.latest_delivered, name)
        yield gauges.RELEASED.gauge(self.reported, name)
        yield gauges.LIVE.gauge(len(self.live), name)
        yield gauges.PINNING.gauge(len(self.retention_floor), name)
        yield gauges.HOLDS.gauge(len(self.holds.row), name)
        yield from self.scheduler.gauges()

    # ------------------------------------------------------------------------------------ positions

    def move_back(self, sid: int, upto: Tick, version: int) -> None:
        """Moves a position that is ahead of the whole pubend, where no consumer can have been, back to its end."""
        position = self.positions[sid]
        position.start, position.acked = min(position.start, upto), min(position.acked, upto)
        position.acked_event = min(position.acked_event, upto)
        position.released, position.nothing_upto = min(position.released, upto), min(position.nothing_upto, upto)
        position.sent, position.sent_before = min(position.sent, upto), min(position.sent_before, upto)
        position.before = None
        if upto < position.since < FOREVER:
            self._joining.remove(sid)
            position.join_again()
            self._joining.add(sid, position, version)
        position.changed = True
        self.touch(sid, position)

    def change(self, sid: int, version: int) -> SubscriptionPosition:
        """A subscription has another filter, under a new version. It stays where it is, and joins once more (T46)."""
        position = self.positions[sid]
        self.release(position)  # what may be on its way to the disk as released is gone for the new filter, too
        position.begin_anew(self.done_upto(position))
        self._joining.remove(sid)
        self._join(sid, position, version)
        self.touch(sid, position)
        return position

    def add(self, sid: int, position: SubscriptionPosition, version: int) -> None:
        """Adds a subscription's position on this pubend."""
        position.reading = sid not in self.durable_sids and not position.guest
        self.positions[sid] = position
        self._join(sid, position, version)
        self.touch(sid, position)

    def _join(self, sid: int, position: SubscriptionPosition, version: int) -> None:
        """Lets a subscription join. On a pubend that is gone it need not: no silence will honour it any more."""
        if self.gone_upto and position.since == FOREVER:
            position.since = max(position.start, self.gone_upto)
            position.changed = True
        self._joining.add(sid, position, version)

    def remove(self, sid: int) -> None:
        """Removes a subscription."""
        self.detach(sid)
        self.positions.pop(sid, None)
        self.retention_floor.discard(sid)
        self.droppable_holds.pop(sid, None)
        self._joining.remove(sid)
        self.pfs.forget(sid)

    def acknowledge(self, sid: int, tick: Tick, event: Tick) -> None:
        """The application is done with everything up to `tick`; `event` is the last event of that."""
        position = self.positions.get(sid)
        if position is not None:
            self.counts.acknowledged += tick > position.acked
            position.acknowledge(tick, event)
            consumer = self._state.consumers.get(sid)
            if consumer is not None and consumer.ordered is not None and self.pubend in consumer.ordered:
                position.pass_over(consumer.ordered.done_upto(self.pubend))
            elif sid in self.scheduler.readers:
                position.pass_over(self.scheduler.readers[sid].horizon)
            elif sid in self.live:
                position.pass_over(self.head)
            self.touch(sid, position)

    def passed_elsewhere(self, sid: int, upto: Tick) -> None:
        """The SHB that serves a consumer found nothing to send up to `upto`.

        That is no acknowledgement: what the application has stored may be older.
        """
        position = self.positions.get(sid)
        if position is not None and upto > position.nothing_upto:
            position.nothing_upto = upto
            self.touch(sid, position)

    # ------------------------------------------------------------------------------------ consumers

    def attach(self, consumer: Consumer, at: Tick, now: int, wall: int) -> None:
        """Serves a consumer from `at` on: live if it stands at the head, by a reader otherwise."""
        position = self.positions[consumer.sid]
        position.attach(at, self.head)
        if at >= self.head and position.since <= at:
            self.go_live(consumer, at)
            self.touch(consumer.sid, position)
        else:
            self._start_reader(consumer, position, at)
            self.scheduler.pump(now, wall)

    def detach(self, sid: int) -> None:
        """Ends the consumption of a subscription. The PFS goes on noting what matches it."""
        self.live.pop(sid, None)
        self.scheduler.end(sid)
        self.floors.pop(sid, None)
        position = self.positions.get(sid)
        if position is not None and position.reading:
            position.reading = False
            self.touch(sid, position)

    def serves(self, sid: int) -> bool:
        """Whether a subscription has a consumer that is attached here."""
        return sid in self.live or sid in self.scheduler.readers

    def served_upto(self, sid: int) -> Tick:
        """Returns up to where everything was given to a consumer, or to the merge that it is served by."""
        reader = self.scheduler.readers.get(sid)
        if reader is not None:
            return reader.settled
        if sid in self.open_gaps:
            return self.open_gaps[sid].start
        return max(self.head, self.floors.get(sid, 0)) if sid in self.live else 0

    @property
    def told_upto(self) -> Tick:
        """The highest tick that this SHB has ever received something about."""
        return max(self._target, self._istream.known_upto)

    def _start_reader(self, consumer: Consumer, position: SubscriptionPosition, at: Tick) -> None:
        """Gives a consumer that is not, or no longer, at the head a reader that serves it from `at` on."""
        self.live.pop(consumer.sid, None)
        self.floors.pop(consumer.sid, None)
        self.scheduler.start(consumer, position, at)

    # ------------------------------------------------------------------------------------ knowledge

    def on_knowledge(self, knowledge: Knowledge, now: int, wall: int) -> None:
        """Takes knowledge. It may arrive in any order, and more than once."""
        if self.meta.timed or not self.meta.voids:
            self._take(knowledge, now, wall)
            return
        for part in knowledge.without_events_in(self.meta.voids):
            self._take(part, now, wall)

    def _take(self, knowledge: Knowledge, now: int, wall: int) -> None:
        self.lost = max(self.lost, knowledge.lost)
        self._target = max(self._target, self.lost)
        if knowledge.reply:
            self._curiosity.answered(knowledge.lo, knowledge.hi, now)
            self._window.learn(knowledge.hi - knowledge.lo, knowledge.data.size)
        else:
            self._hear(knowledge.hi, now)
        self._curiosity.clear(((knowledge.lo, knowledge.hi),), knowledge.stamp)
        scheduler = self.scheduler
        if knowledge.data or knowledge.reply:
            scheduler.sizes.learn(len(knowledge.data), knowledge.data.size)
        try:
            if scheduler.is_listening:
                scheduler.on_knowledge(knowledge, now, wall)
            # Behind a hole the buffer is bounded. What is dropped is asked for again when the head has come nearer.
            is_too_much = knowledge.lo > self.head and self._istream.size > _BUFFER_BYTES
            if knowledge.hi > self.head and not is_too_much:
                if knowledge.reply or knowledge.hi > self._istream.known_upto:
                    self._moved_at = now
                self._istream.accumulate(knowledge)
                self._advance(now, wall)
        except KnowledgeConflict as conflict:
            text = f"two brokers contradict each other about {self.pubend}: {conflict}"
            self._state.outbox.emit(Alarm(AlarmCode.BROKERS_CONTRADICT, text, self.pubend))
            if not self.meta.timed:
                # With the end of a log the end of a transaction may be cut off, and another one decides otherwise.
                self._istream.forget(max(knowledge.lo, self.head), knowledge.hi)
                scheduler.forget(knowledge.lo, knowledge.hi, now)
                self._want_unknown(self._istream.known_upto, now)

    def catch_up(self, upto: Tick, now: int) -> None:
        """The pubend is decided up to `upto`: asks for what is missing, one window at a time."""
        self._hear(upto, now)
        self._target = max(self._target, upto)
        if self.head < self._target:
            self._want_next(now)

    def _hear(self, upto: Tick, now: int) -> None:
        """The pubend says something of ticks up to there without being asked. After a standstill the way is free."""
        if upto > self.told_upto:
            if now - self._heard_at >= self._curiosity.times.stall:
                self._curiosity.begin_anew(now)
            self._heard_at = now

    def begin_anew(self, now: int) -> None:
        """The PHB was down, and has forgotten what it was asked for before. Or its log was cut, by another void."""
        self._curiosity.begin_anew(now)
        if not self.meta.timed:
            for lo, hi in self.meta.voids:
                self._istream.forget(max(lo, self.head), hi)
                self.scheduler.forget(lo, hi, now)
            self._want_unknown(self._istream.known_upto, now)

    def forget_forks(self, before: Ranges, now: int) -> None:
        """Another process of the PHB may have logged something: what was told as silence is asked for again.

        `before`: the forks that were known before.
        """
        for fork in self.meta.forks:
            if fork not in before:
                self._istream.forget_silence(max(fork[0], self.head), self._istream.known_upto)
                self.scheduler.forget(fork[0], self.told_upto, now)
        self._curiosity.begin_anew(now)
        # If this SHB was told more than the PHB has, that learns of it now, before it logs anything there.
        self._ask_ahead(now)
        self._want_unknown(self._istream.known_upto, now)

    def _ask_ahead(self, now: int) -> None:
        self._asked_ahead = True
        self._curiosity.add(((max(self.head, self.told_upto), FOREVER),), self._joining.need, now, urgent=True)

    # ------------------------------------------------------------------------------- when it is gone

    def lose(self, upto: Tick) -> None:
        """The pubend is gone with the volume of its host: what is not known here up to a tick is lost.

        Nobody is asked for anything from now on; what is lost has to be delivered (`lost_knowledge`). Subscriptions
        that wait for silence that honours them are covered from there on, because none will come.
        """
        self.gone_upto = upto
        self.enrolled = True
        for sid, (version, position) in list(self._joining.waiting.items()):
            self._joining.remove(sid)
            self._join(sid, position, version)
            self.touch(sid, position)

    def come_back(self, now: int) -> None:
        """The pubend is there again: its volume was put back. What was given up stays so, for it was told."""
        self.gone_upto = 0
        self.holds.renew(now)
        self.catch_up(self.told_upto, now)

    @property
    def lost_knowledge(self) -> Knowledge:
        """What is known of a pubend that is gone: all of it is lost."""
        return Knowledge(self.pubend, 0, self.gone_upto, lost=self.gone_upto, reply=True)

    def takes_answer(self, now: int) -> bool:
        """Whether something is asked of a pubend that is gone. It counts as answered (`lost_knowledge`)."""
        if not self._curiosity.due(now):
            return False
        self._curiosity.clear(((0, FOREVER),))
        return True

    def answer_for_host(self, now: int) -> Held | None:
        """Answers the row of holds of a pubend that is gone, in place of its host: nothing is left to be kept.

        None: no row is due.
        """
        row = self.holds.due(now)
        if row is None:
            return None
        upto = self.gone_upto
        return Held(row.shb, row.pubend, row.version, {sid: max(at, upto) for sid, at in row.at.items()}, upto)

    # ------------------------------------------------------------------------------------------- time

    def on_deadline(self, now: int, stalled_after: int) -> None:
        """Asks for what lies ahead if nothing new has come for `stalled_after` ns (DCT).

        What is known to be missing is asked for anyway, window by window. All of it at once would be more than a slow
        link carries in that time.
        """
        if self.gone_upto:
            self._moved_at = now
        elif now - self._moved_at >= stalled_after:
            self._moved_at = now
            self._asked_ahead = True
            # A log that numbers its records alone moves its end: nobody can be asked for more (TK22).
            if self.meta.timed:
                self._ask_ahead(now)
            self._want_unknown(self._istream.known_upto, now)
            if self.head < self._target:
                self._want_next(now)

    def finish_turn(self, now: int, stalled_after: int) -> int:
        """Sends holds and wants, for the first time or again, where they are due.

        Returns when this, or `on_deadline`, has to be called next.
        """
        due = self._moved_at + stalled_after
        if self.gone_upto:
            pending = self.holds.deadline, self._curiosity.deadline(), self.scheduler.deadline()
            return min([due, *(each for each in pending if each is not None)])
        if self.holds.send_at is not None:
            if (row := self.holds.due(now)) is not None:
                self._state.outbox.emit(row)
            if (held := self.holds.deadline) is not None:
                due = min(held, due)
        if (wants := self._curiosity.deadline()) is not None:
            if wants <= now:
                for ranges, need, again in self._curiosity.due(now):
                    self._state.outbox.emit(Want(self.pubend, ranges, need, self._state.shb, again))
                wants = self._curiosity.deadline() or due
            due = min(wants, due)
        if self.scheduler.readers and (readers := self.scheduler.deadline()) is not None:
            due = min(readers, due)
        return due

    def _advance(self, now: int, wall: int) -> None:
        """Moves the head as far as everything is known. Subscriptions that join on the way count from there on."""
        known_upto = self._istream.known_upto
        while self.head < known_upto:
            horizon = self._istream.horizon(self.head, self._joining.need)
            if horizon < self.lost:
                horizon = self._before_open_loss(horizon)
            if horizon <= self.head:
                break
            if self._joining.waiting and (activated := self._joining.activate(self.head, horizon)):
                # What the activated subscriptions require may end the horizon earlier, so it is computed again.
                self._activated(activated)
                continue
            if self._joining.later:
                horizon = min(horizon, self._joining.next_change(self.head))
            self._pass(horizon, now, wall)
            self._moved_at = now
        # The head stops here for now, and the event that would end a gap may never come.
        for sid in list(self.open_gaps):
            self.send_gap(sid)
        if self._asked_ahead and self._moved_at == now:
            # The head does move: there is no need to ask for what lies ahead.
            self._asked_ahead = False
            self._curiosity.clear(((max(known_upto, self._target), FOREVER),))
        if self.head < known_upto:
            self._want_unknown(known_upto, now)
        if self.head < self._target:
            self._want_next(now)
        if self.scheduler.readers:
            self.scheduler.on_head(now, wall)

    def _pass(self, horizon: Tick, now: int, wall: int) -> None:
        """Makes one step of the head: readers that wait at the head go live, then events are delivered."""
        if self.scheduler.readers:
            self.scheduler.promote_waiting(now)
        need = self._joining.need
        # A log of others keeps nothing for this SHB's sake: there it has nothing to do with being counted.
        why = self.why_lost(GapReason.RETIRED if self.meta.timed else GapReason.CUT)
        gone = [(lo, hi, why) for lo, hi in self._istream.lost_in(self.head, horizon, need)]
        damaged = [(lo, hi, self.why_damaged(lo, hi)) for lo, hi in self._istream.damaged_in(self.head, horizon, need)]
        if lost := sorted(gone + damaged, key=itemgetter(0)):
            horizon = self._deliver_lost(lost, horizon)
        assert horizon >= self.head, "the head never falls"
        batch = self._istream.take(self.head, horizon)
        previous, self.head = self.head, horizon
        if len(batch):
            self.newest_event = batch.ticks[-1]
            delivery = LiveDelivery(self, batch, previous)
            self._state.unsaved |= delivery.run(self._state.matcher, self.scheduler.page_cache, wall)
            if self.traced.chooses(batch.ticks[0], batch.ticks[-1]):
                self._state.outbox.emit(delivery.traced)
            self.scheduler.demoted += len(delivery.demoted)
            for demoted in delivery.demoted:
                self._start_reader(*demoted)
        self._istream.trim(horizon)
        if self._joining.later:
            self._joining.passed(horizon)
        if self.floors:
            # Their own position is behind the head now, so the head alone decides what they get.
            self.floors = {sid: floor for sid, floor in self.floors.items() if floor > horizon}

    def _before_open_loss(self, horizon: Tick) -> Tick:
        """Returns where lost ticks begin that reach the horizon, or else the horizon.

        What follows them is not known and may be lost as well: it was asked for, and a gap waits for its end.
        """
        events = self._istream.take(self.head, horizon).ticks
        after = events[-1] if events else self.head
        lost = self._istream.lost_in(after, horizon, self._joining.need)
        return lost[0][0] if lost else horizon

    def _activated(self, sids: list[int]) -> None:
        self._joining.passed(self.head)
        for sid in sids:
            position = self.positions[sid]
            position.changed = True
            self.touch(sid, position)

    def _deliver_lost(self, lost: list[Lost], horizon: Tick) -> Tick:
        """Opens a gap for every live consumer, and returns how far the step may go.

        The constream meets lost ticks only if this SHB was retired while it was away (T10), if events were damaged
        before they reached it, or if a log of others is gone, or was trimmed further than it was read. The gap stays
        open until an event follows it, or the head stops. The step ends before known events, and before lost ticks
        with another reason, because what is sent must leave in order.
        """
        start, _, reason = lost[0]
        horizon = next((lo for lo, _, why in lost if why != reason), horizon)
        known = self._istream.take(self.head, horizon).ticks
        if known and known[0] <= start:
            return start
        horizon = known[0] - 1 if known else horizon
        end = max(hi for _, hi, why in lost if hi <= horizon and why == reason)
        for sid, consumer in list(self.live.items()):
            if self.positions[sid].guest:  # its reader asks its home before it tells a gap
                self._start_reader(consumer, self.positions[sid], max(self.head, self.floors.get(sid, 0)))
        for sid in self.live:
            floor = self.floors.get(sid, 0)
            if floor < end:
                if sid in self.open_gaps and self.open_gaps[sid].reason != reason:
                    self.send_gap(sid)
                self.open_gaps[sid] = GapSegment(max(start, floor), end, reason).after(self.open_gaps.get(sid))
        for sid, position in self.positions.items():
            self.release(position)
            position.since = max(position.since, end)
            if sid in self.live and sid not in self.durable_sids:
                position.acknowledge(end, end)  # nobody else acknowledges for a subscription that is not durable
            position.changed = True
            self.touch(sid, position)
        return horizon

    def _want_next(self, now: int) -> None:
        # Of what the pubend has given up not much is left: all of it is asked for, as its gap waits for that.
        upto = max(self._window.upto(self.head, self._target), self.lost)
        self._want_unknown(upto, now, urgent=True)

    def _want_unknown(self, upto: Tick, now: int, *, urgent: bool = False) -> None:
        need = self._joining.need
        ranges = self._istream.unknown(self.head, upto, need)
        if ranges:
            self._curiosity.add(ranges, need, now, urgent=urgent)
