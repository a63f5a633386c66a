"""Delivers a group of pubends in one order to the consumers that asked for it (protocol: ordered-delivery; I11, T14).

    constream, readers ──▶ OrderedDelivery (one per consumer: an OrderedMerge) ──▶ the consumer's channel

A consumer in total order is served on each member as any other consumer is: live, or by a reader. But what it is served
goes into the merge, and leaves the merge in order, as its credit allows. The merge is bounded: a member that is far
ahead of the others does not fill the memory. Its consumer gets a reader there, which waits until its turn comes.
"""

from __future__ import annotations

from collections.abc import Mapping

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless_shb.core.catch_up.readers import BATCH, ReaderContext, unexpired
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.segments import GapSegment, too_large
from gapless_shb.core.total_order.merge import OrderedMerge, size_of
from gapless_shb.core.total_order.reader import OrderedReader, OrderedSink


class OrderedDelivery:
    """What one consumer gets of a group, in order."""

    def __init__(
        self,
        consumer: Consumer,
        streams: Mapping[PubendId, Constream],
        at: Mapping[PubendId, Tick],
        too_late: Mapping[PubendId, Tick],
        touched: dict[int, OrderedDelivery],
    ) -> None:
        """`at`: the members, and where the consumer goes on. `touched`: has those with something to be done."""
        self._consumer = consumer
        self._streams = streams
        self._merge = OrderedMerge(at, too_late)
        self._told = dict(at)
        self._touched = touched

    def __contains__(self, pubend: object) -> bool:
        return pubend in self._merge

    @property
    def waits(self) -> bool:
        """Whether something waits for another member, or for credit."""
        return any(member.waiting for member in self._merge.members())

    def touch(self) -> None:
        """Something has changed for this consumer: what may leave leaves at the end of the turn."""
        self._touched[self._consumer.sid] = self

    def add(self, pubend: PubendId, start: Tick) -> Tick:
        """A member was found late. Returns from where it is merged: not before what has left already."""
        self._told[pubend] = start = self._merge.add(pubend, start)
        return start

    def done_upto(self, pubend: PubendId) -> Tick:
        """Returns up to where everything of a member was sent, or is silence."""
        return self._merge.member(pubend).done_upto

    # What it is served.

    def reader(self, context: ReaderContext, number: int, position: SubscriptionPosition, at: Tick) -> OrderedReader:
        """Returns a reader that serves the consumer on a member, from `at` on."""
        pubend = context.stream.pubend
        return OrderedReader(context, number, self._consumer, position, at, OrderedSink(self, self._consumer, pubend))

    def is_full(self, pubend: PubendId) -> bool:
        """Whether a member has to wait for its turn. One of which nothing waits here never has to."""
        consumer, merge = self._consumer, self._merge
        much = merge.events >= consumer.credit_events or merge.bytes >= consumer.credit_bytes
        return much and merge.member(pubend).is_ahead

    def put(self, pubend: PubendId, events: EventBatch) -> EventBatch | None:
        """Takes as many events of a member as there is room for, one at least. Returns the rest, or None."""
        room = max(1, self._consumer.credit_events - self._merge.events)
        size = max(1, self._consumer.credit_bytes - self._merge.bytes)
        count = min(room, len(events), BATCH)
        while count > 1 and size_of(events.slice(0, count)) > size:
            count //= 2
        self._merge.put(pubend, events.slice(0, count))
        self.touch()
        return None if count == len(events) else events.slice(count, len(events))

    def offer(self, pubend: PubendId, events: EventBatch) -> bool:
        """Takes live events of a member, if there is room for all of them. Returns whether there is."""
        consumer, merge = self._consumer, self._merge
        fits = (
            merge.events + len(events) <= consumer.credit_events
            and merge.bytes + size_of(events) <= consumer.credit_bytes
        )
        if fits:
            self._merge.put(pubend, events)
        self.touch()
        return fits

    def gap(self, pubend: PubendId, start: Tick, end: Tick, reason: GapReason) -> None:
        """Takes a gap of a member."""
        self._merge.put(pubend, GapSegment(start, end, reason))
        self.touch()

    # What leaves.

    def hand_out(self, now: int, wall: int) -> None:
        """Sends what may leave, in order. Readers that waited for room go on."""
        consumer, merge, sid = self._consumer, self._merge, self._consumer.sid
        full = [member.pubend for member in merge.members() if self.is_full(member.pubend)]
        self._learn()
        while (item := merge.take(self._affordable)) is not None:
            pubend, segment = item
            stream = self._streams[pubend]
            if isinstance(segment, EventBatch):
                events = unexpired(segment, wall)
                if not len(events):
                    continue
                payload = events.payload((1 << len(events)) - 1)
                stream.positions[sid].sent = events.ticks[-1]
                if not consumer.is_too_large(payload):
                    self._count(stream, events)
                    consumer.send(pubend, len(events), payload)
                    continue
                segment = too_large(events.ticks[0])
            consumer.channel.gap(sid, pubend, segment.start, segment.end, segment.reason)
            stream.positions[sid].sent = segment.end
        for member in merge.members():
            stream = self._streams[member.pubend]
            stream.positions[sid].pass_over(member.done_upto)
            stream.touch(sid, stream.positions[sid])
        for pubend in full:
            if not self.is_full(pubend):
                self._streams[pubend].scheduler.step(sid, now, wall)

    def _count(self, stream: Constream, events: EventBatch) -> None:
        counts, sid = stream.counts, self._consumer.sid
        if sid in stream.live:
            counts.live += len(events)
        else:
            counts.on_read(events.ticks, stream.positions[sid].sent_before)

    def _affordable(self, events: EventBatch) -> int:
        return self._consumer.affordable(events, BATCH)

    def _learn(self) -> None:
        for member in self._merge.members():
            self._merge.know(member.pubend, self._streams[member.pubend].served_upto(self._consumer.sid))

    def say_silence(self) -> None:
        """Moves the consumer's position on each member up to the place that the merge has come to."""
        self._learn()
        for member in self._merge.members():
            upto = self._merge.silent_upto(member.pubend)
            if upto > self._told[member.pubend]:
                self._told[member.pubend] = upto
                behind = self._streams[member.pubend].client_position(upto)
                self._consumer.channel.silence(member.pubend, behind, [self._consumer.sid])


class Ordering:
    """All consumers in total order of an SHB."""

    def __init__(self, streams: Mapping[PubendId, Constream]) -> None:
        self._streams = streams
        self._deliveries: dict[int, OrderedDelivery] = {}
        self._touched: dict[int, OrderedDelivery] = {}
        self._heads: list[Tick] = []
        """The heads of all pubends when what may leave left last."""

    def begin(self, consumer: Consumer, at: Mapping[PubendId, Tick], too_late: Mapping[PubendId, Tick]) -> None:
        """A consumer goes on from here, in total order. `too_late`: up to where events of members come too late."""
        delivery = OrderedDelivery(consumer, self._streams, at, too_late, self._touched)
        consumer.ordered = self._deliveries[consumer.sid] = delivery

    def end(self, sid: int) -> None:
        """A consumer has gone. What waited for its turn is sent to the next one."""
        self._deliveries.pop(sid, None)
        self._touched.pop(sid, None)

    def finish_turn(self, now: int, wall: int) -> None:
        """Sends what may leave, to every consumer for which something has changed."""
        if not self._deliveries:
            return
        heads = [stream.head for stream in self._streams.values()]
        if heads != self._heads:
            self._heads = heads
            self._touched.update((sid, each) for sid, each in self._deliveries.items() if each.waits)
        while self._touched:
            sid, delivery = next(iter(self._touched.items()))
            del self._touched[sid]
            delivery.hand_out(now, wall)

    def say_silence(self) -> None:
        """Moves the positions of all consumers in total order."""
        for delivery in self._deliveries.values():
            delivery.say_silence()
