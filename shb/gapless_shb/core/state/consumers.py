"""The connected clients: a channel per session, a consumer per attached subscription, and their credit.

A consumer is never sent more events and bytes than it granted. Without credit it gets a reader; nothing is queued for
it (protocol: credit; T26). The link that all consumers of a session share has a credit, too: else what waits there
would be as much as all of them have granted. And all links share the memory of the broker (`memory`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Protocol, TypeVar

from gapless.core.link_credit import LinkCredit
from gapless.core.ports import AskRoom, Tell, Transmit
from gapless.core.principals import Principal
from gapless.core.stream.batch_bytes import COUNT_BYTES, ROW
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.codec import deliver_head, deliver_held_head
from gapless.core.wire.messages import DeliverGap, DeliverHeldGap, DeliverSilence, GapReason, PubendNumber
from gapless_shb.core.state.counts import Counts
from gapless_shb.core.state.memory import Memory
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.takers import Taker

AnyT = TypeVar("AnyT")


@dataclass(slots=True)
class Channel:
    """Sends messages to one session. It numbers the pubends, and gathers the deliveries of a step."""

    session: int
    emit: Callable[[object], None]
    unflushed: list[Channel]
    """Channels with gathered deliveries. All channels share this list."""
    credit: LinkCredit
    """Of the link, which all consumers and range reads of the session share."""
    memory: Memory
    """Of the broker, which all links share."""
    counts: Counts
    """Of the broker."""
    consumers: dict[int, Consumer] = field(default_factory=dict)
    _numbers: dict[PubendId, int] = field(default_factory=dict)
    _told: dict[PubendId, Tick] = field(default_factory=dict)
    _pending: list[tuple[bytes, bytes]] = field(default_factory=list)
    is_limited: bool = False
    """Whether its credit is what the principal may be sent in a second: then no piece goes far beyond that."""
    rooms: int = 0
    """How often there was room again."""
    _counted: int = 0
    """How much of what it was given counts in the memory. As long as that is little, nobody asks what has left."""
    _refuses: bool = False
    """Whether something had to wait since there was room."""
    _is_awaiting: bool = False
    """Whether it waits until the memory has room for its next piece."""

    @property
    def share(self) -> int:
        """How many bytes of the memory the next delivery may take; 0 or less: none."""
        memory = self.memory
        if self._is_awaiting:
            return 0
        share = max(memory.least, memory.free_for(proven=self.rooms > 0)) - self.credit.given
        return min(share, self.credit.room) if self.is_limited else share

    @property
    def is_full(self) -> bool:
        """Whether events have to wait until there is room. Then those that wait go on."""
        full = self.credit.room <= 0 or self.share <= 0
        self._refuses |= full
        return full

    def admits(self, size: int) -> bool:
        """Whether a piece of `size` bytes may be given to the link. If not, the link is full until that may be.

        It may be larger than its share, but not than what is free, or no bound would hold for many links together.
        """
        if self.is_full:
            return False
        memory, proven = self.memory, self.rooms > 0
        if size <= memory.least or size <= memory.free_for(proven=proven) or not memory.links:
            return True
        self._is_awaiting = self._refuses = True
        memory.wait(self.session, size, proven=proven)
        return False

    def charge(self, size: int) -> None:
        """So many bytes of events are given to the link."""
        if self.credit.charge(size):
            self.emit(AskRoom(self.session, self.credit.upto))
        self._count()

    def on_room(self, left: int) -> bool:
        """Only so many bytes still wait of what was given. Returns whether those that had to wait may go on."""
        self.credit.on_room(left)
        self.rooms += 1
        self._count()
        return self._goes_on()

    def on_memory(self) -> bool:
        """The memory has room for its next piece. Returns whether those that had to wait may go on."""
        self._is_awaiting = False
        return self._goes_on()

    def close(self) -> None:
        """The session is over: nothing waits on its link any more."""
        self.memory.links -= self._counted
        self._counted = 0
        self.memory.leave(self.session)

    def _goes_on(self) -> bool:
        if not self._refuses or self._is_awaiting:
            return False
        self._refuses = False
        return True

    def _count(self) -> None:
        given = self.credit.given
        counted = given if given > self.credit.upto else 0
        self.memory.links += counted - self._counted
        assert self.memory.links >= counted, "each link counts what it was given, once"
        self._counted = counted

    def number(self, pubend: PubendId) -> int:
        """Returns the session's number for a pubend, and announces it with its first use."""
        number = self._numbers.get(pubend)
        if number is None:
            number = self._numbers[pubend] = len(self._numbers)
            self.emit(Tell(self.session, PubendNumber(number, pubend)))
        return number

    def deliver(self, sid: int, pubend: PubendId, payload: bytes) -> None:
        """Sends events. They leave with the step's other deliveries to this session, in order."""
        if not self._pending:
            self.unflushed.append(self)
        self._pending.append((deliver_head(self.session, sid, self.number(pubend)), payload))
        self.charge(len(payload))

    def deliver_held(
        self, sid: int, pubend: PubendId, payload: bytes, first: int, *, careful: bool, attempts: bytes
    ) -> None:
        """Sends events of a shared subscription, which its consumer holds from now on under these numbers."""
        if not self._pending:
            self.unflushed.append(self)
        number = self.number(pubend)
        head = deliver_held_head(self.session, sid, number, first, careful=careful, attempts=attempts)
        self._pending.append((head, payload))
        self.charge(len(payload))

    def flush(self) -> None:
        """Sends the gathered deliveries. It comes before any other message to the session."""
        if self._pending:
            self.emit(Transmit(self.session, tuple(self._pending)))
            self._pending.clear()

    def silence(self, pubend: PubendId, upto: Tick, sids: list[int] | None) -> None:
        """Sends silence up to `upto`: to these consumers, or to all of the session."""
        self.flush()
        self.counts.silences += 1
        self.emit(Tell(self.session, DeliverSilence(self.number(pubend), upto, sids)))

    def gap(self, sid: int, pubend: PubendId, start: Tick, end: Tick, reason: GapReason) -> None:
        """Sends a gap: events in (start, end] may have been lost."""
        assert start < end, "a gap has a tick in it"
        self.flush()
        self.counts.gaps[reason] += 1
        self.emit(Tell(self.session, DeliverGap(sid, self.number(pubend), start, end, reason.value)))

    def gap_held(
        self, sid: int, pubend: PubendId, held: int, gap: tuple[Tick, Tick, GapReason], *, careful: bool, attempts: int
    ) -> None:
        """Sends a gap of a shared subscription, which its consumer holds from now on."""
        start, end, reason = gap
        self.flush()
        self.counts.gaps[reason] += 1
        number = self.number(pubend)
        said = DeliverHeldGap(sid, number, held, careful, attempts, start, end, reason.value)
        self.emit(Tell(self.session, said))

    def tell_idle(self, pubend: PubendId, head: Tick, live: dict[int, Consumer]) -> None:
        """Sends the silence that moves the position of every live consumer, at most once per head."""
        if self._told.get(pubend, 0) >= head:
            return
        # A consumer in total order is told by its delivery, which may be behind the head.
        sids = [
            sid
            for sid, consumer in self.consumers.items()
            if sid in live and (consumer.ordered is None or pubend not in consumer.ordered)
        ]
        if sids:
            self._told[pubend] = head
            self.silence(pubend, head, None if len(sids) == len(self.consumers) else sids)


class Credited:
    """A receiver that grants credit in events and bytes. An event that is larger than all credit is sent alone."""

    __slots__ = ("channel", "credit_bytes", "credit_events", "payload_max")
    channel: Channel
    credit_events: int
    credit_bytes: int
    payload_max: int
    """What is larger than this cannot be sent at all."""

    @property
    def starved(self) -> bool:
        """Whether not even one event may be sent now: by its credit, or because the link is full."""
        return not self.has_credit or self.channel.is_full

    @property
    def has_credit(self) -> bool:
        """Whether its client has room for an event."""
        return self.credit_events > 0 and self.credit_bytes > 0

    def spend_all(self, events: int, size: int) -> bool:
        """Takes so much from the credit if all of it may be sent at once, in one frame. Returns whether it may."""
        if events > self.credit_events or size > self.credit_bytes or size > self.payload_max:
            return False
        if not self.channel.admits(size):
            return False
        self.credit_events -= events
        self.credit_bytes -= size
        return True

    def affordable(self, events: EventBatch, events_max: int, bytes_max: int = FOREVER) -> int:
        """Returns how many of the first events may be sent at once by credit and limits: one at least, with credit.

        That one may be too large to be sent at all. 0: nothing may be sent now, and `starved` says so.
        """
        if self.starved:
            return 0
        most = min(len(events), self.credit_events, events_max)
        room = min(self.credit_bytes, bytes_max, self.payload_max - COUNT_BYTES, self.channel.share)
        if most == len(events) and events.size + ROW.size * most <= room:
            return most
        ends = list(accumulate(map(ROW.size.__add__, islice(events.lengths, most))))
        if fitting := bisect_right(ends, room):
            return fitting
        return int(ends[0] > self.payload_max or self.channel.admits(ends[0]))

    def is_too_large(self, payload: bytes) -> bool:
        """Whether a payload, which has a single event then, cannot be sent at all."""
        return len(payload) > self.payload_max

    def spend(self, events: int, size: int) -> None:
        """Takes what is being sent from the credit. One event may take more bytes than there are, and goes alone."""
        assert events <= self.credit_events, "no more events are sent than the client has room for"
        self.credit_events -= events
        self.credit_bytes -= size

    def grant(self, events: int, size: int) -> None:
        """Adds credit: the client has taken messages and has room for more."""
        self.credit_events += events
        self.credit_bytes += size


class InOrder(Protocol):
    """What stands between a consumer in total order and the pubends of its group (`total_order.delivery`)."""

    def __contains__(self, pubend: object) -> bool:
        """Whether a pubend is of the group."""

    def add(self, pubend: PubendId, start: Tick) -> Tick:
        """A member was found late. Returns from where on it is merged."""

    def done_upto(self, pubend: PubendId) -> Tick:
        """Returns up to where the consumer has everything of a member."""

    def offer(self, pubend: PubendId, events: EventBatch) -> bool:
        """Takes live events of a member, all or none."""

    def gap(self, pubend: PubendId, start: Tick, end: Tick, reason: GapReason) -> None:
        """Takes a gap of a member, in its place."""

    def touch(self) -> None:
        """Something has changed for the consumer: what may leave leaves at the end of the turn."""


@dataclass(slots=True)
class Consumer(Credited):
    """A subscription that is attached to a session."""

    subscription: SubscriptionRecord
    channel: Channel
    taker: Taker
    """Who it is, and when it was asked for."""
    principal: Principal
    """As whom it is judged when other rules count."""
    credit_events: int
    credit_bytes: int
    payload_max: int
    request: int
    """The number that the client gave to its request to attach."""
    since: int
    """The wall time of the attachment, in milliseconds since 1970."""
    ordered: InOrder | None = None
    """What it gets in total order; None without such an order."""
    grants: int = 0
    """How often it was granted credit."""
    starved_at: int | None = None
    """Since when a reader has seen it without credit."""

    def send(self, pubend: PubendId, events: int, payload: bytes) -> None:
        """Sends so many events, which the credit covers."""
        self.spend(events, len(payload))
        self.channel.deliver(self.sid, pubend, payload)

    def gap(self, pubend: PubendId, start: Tick, end: Tick, reason: GapReason) -> None:
        """Sends a gap, in its place in the order."""
        if self.ordered is not None and pubend in self.ordered:
            self.ordered.gap(pubend, start, end, reason)
        else:
            self.channel.gap(self.sid, pubend, start, end, reason)

    def grant(self, events: int, size: int) -> None:
        """Adds credit: the client has taken messages and has room for more."""
        Credited.grant(self, events, size)
        self.grants += 1

    @property
    def sid(self) -> int:
        """The id of the subscription."""
        return self.subscription.sid

    @property
    def instance(self) -> str:
        """The connection."""
        return self.taker.instance

    @property
    def holder(self) -> str:
        """Names it through all its sessions: the client's process, and what is attached in it."""
        return f"{self.instance}/{self.request}"

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is attached at another SHB, which serves it."""
        return self.channel.session < 0


def rotated(items: Sequence[AnyT], by: int) -> Sequence[AnyT]:
    """Returns the items, beginning with another one each turn, so that none is starved of the shared credit."""
    first = by % max(1, len(items))
    return [*items[first:], *items[:first]]
