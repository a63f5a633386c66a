"""The state that all parts of an SHB share, with its pubends and the ways to clients and the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from gapless.core.link_credit import LinkCredit
from gapless.core.network.facts import BrokerId, Interest
from gapless.core.outbox import Then
from gapless.core.ports import Authorizer, ClientSession, EndSession, Operation, Tell
from gapless.core.principal_limits import NO_LIMITS
from gapless.core.principals import Principal
from gapless.core.server.audit import of_lost_right, of_subscription, wanted
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.messages import DeliverSilence, ServerMessage, Subscribe, Subscribed
from gapless.core.wire.token_room import TokenRoom
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.broker_state import BrokerState
from gapless_shb.core.state.consumers import Channel, Consumer
from gapless_shb.core.state.places import Places
from gapless_shb.core.state.registry import Registry, SubscriptionRecord
from gapless_shb.core.state.rows import position_row, pubend_row
from gapless_shb.core.state.seals import Seals
from gapless_shb.core.state.session_ends import SessionEnds
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import Taker
from gapless_shb.core.total_order.delivery import Ordering

MOVED = "its client has attached a subscription in another session, or an older request for it came late"
"""Why a session ends whose consumer is replaced by one of the same client instance.

Mostly that session is over. But the request of an earlier one may come later than this one's (it was on its way in a
network, by mail): then whoever sent it is gone, and the client must not go on believing that it is served.
"""


EVENT_BYTES = 64
"""As many bytes stand for an event where a rate of events limits a link, which counts bytes: few are smaller."""


class Hosting(BrokerState):
    """The state of an SHB, and the operations on it that several parts need."""

    def __init__(self, shb: ShbId, seals: Seals, registry: Registry, places: Places, authorizer: Authorizer) -> None:
        super().__init__(shb, registry)
        self.authorizer = authorizer
        self.seals = seals
        self.places = places
        self.session_ends = SessionEnds()
        """What ends with the session of a client."""
        self.streams: dict[PubendId, Constream] = {}
        self.announced: dict[PubendId, int] = {}
        """When pubends were first heard of that do not count this broker yet, by the monotonic clock."""
        self.token_room = TokenRoom()
        """Whether a token has room for all of them."""
        self.ordering = Ordering(self.streams)
        self._unflushed: list[Channel] = []
        self._announcing: dict[int, Interest] = {}
        self._announced = 0
        """The highest version of the interest that is durable in this life; 0 until `started`."""
        self._dropping: dict[int, SubscriptionRecord] = {}
        """Subscriptions as they were before a version that is not durable yet: removed, or with another filter."""
        self.started_at = 0
        """When this broker started, in monotonic nanoseconds."""
        self.life = 0
        """Names this life to other SHBs: it is above those of all earlier lives. 0 until it is durable."""
        self.tell_elsewhere: Callable[[int, ServerMessage], None] = _to_nobody
        """Sends a message to a session at another SHB; these have negative numbers (protocol: roaming)."""
        self.ended_elsewhere: Callable[[int], None] = _to_nobody
        """The consumer of a subscription at another SHB has lost it."""
        self.note_forbidden: Callable[[SubscriptionRecord], None] = _to_nobody
        """Whoever has made a durable subscription may not have it, as the rules are now."""
        self.limits = NO_LIMITS
        """What each principal may have."""
        self.pinned: dict[str, int] = {}
        """Of principals whose offline subscriptions may hold back so many bytes: how many they do (`Pinned`)."""
        self.is_audited = False
        """Whether anybody writes what `tell_audit` is told."""
        self.asked_from: Callable[[int], BrokerId] = _from_here
        """The node that has asked for a client of its own, whose session has a negative number here."""

    def add_stream(self, stream: Constream) -> None:
        """This SHB has another pubend."""
        self.streams[stream.pubend] = stream
        self.announced.pop(stream.pubend, None)
        self.token_room.add(stream.pubend)

    # -------------------------------------------------------------------------------------- the way out

    def tell(self, session: int, message: ServerMessage) -> None:
        """Sends a message to a session, after everything that was sent to it before.

        0: that of the consumer that stands for all of a shared subscription, and has none.
        """
        if not session:
            return
        if session < 0:
            self.tell_elsewhere(session, message)
            return
        channel = self.channels.get(session)
        if channel is not None:
            channel.flush()
        self.outbox.emit(Tell(session, message))

    def tell_audit(
        self,
        kind: Literal["creation", "removal"],
        subscription: SubscriptionRecord,
        by: ClientSession | None,
        reason: str,
    ) -> None:
        """Tells the audit of a durable subscription. `by`: who has asked for it; None: nobody has."""
        if self.is_audited:
            node = self.asked_from(by.number) if by is not None and by.number < 0 else ""
            what = wanted(subscription.topics, subscription.selector)
            self.outbox.emit(of_subscription(kind, by, subscription.client_id, subscription.name, what, reason, node))

    def tell_audit_of_loss(
        self, principal: Principal, session: int, subscription: SubscriptionRecord, reason: str
    ) -> None:
        """Tells the audit that other rules have taken a subscription from a session, or a read of it."""
        if self.is_audited:
            what, of = wanted(subscription.topics, subscription.selector), subscription
            line = of_lost_right(principal, max(0, session), of.client_id, of.name, what, reason)
            self.outbox.emit(line)

    def write_then_tell(self, operations: Iterable[Operation], session: int, message: ServerMessage) -> None:
        """Writes the operations, and sends a message to a session when they are durable."""
        self.outbox.write(operations, lambda _now, _wall: self.tell(session, message))

    def write_interest(
        self,
        operations: Iterable[Operation],
        then: Then | None = None,
        *,
        add: SubscriptionRecord | None = None,
        drop: SubscriptionRecord | None = None,
        former: SubscriptionRecord | None = None,
    ) -> None:
        """Writes a new version of the interest, and announces it when it is durable. `then` is called after that.

        `former`: what `add` was before, if it was there and has another filter now.
        """
        version = self.registry.version
        added = {} if add is None else {add.sid: add.filter}
        dropped = frozenset(() if drop is None else (drop.sid,))
        self._announcing[version] = Interest(self.shb, version - 1, version, added, dropped)
        before = drop or former
        if before is not None:
            self._dropping[version] = before
        self.outbox.write(operations, lambda _now, _wall: self.announce(version))
        if then is not None:
            self.outbox.write((), then)

    def write_start(self) -> None:
        """Makes the first write of a life: a new version of the interest, because undurable changes are gone."""
        operations = self.registry.next_version()
        version = self.registry.version
        self.outbox.write(operations, lambda _now, _wall: self.started(version))

    def leap(self, other: int) -> None:
        """Another process of this SHB has run: what was filtered for its versions was not filtered for this one.

        So the interest gets a version above all of them, and every subscription joins once more: what was believed
        beyond its position is asked for again. Nobody here consumes one of them.
        """
        operations = self.registry.leap(other)
        if operations is None:
            return
        version = self.registry.version
        for stream in self.streams.values():
            for sid, position in list(stream.positions.items()):
                if position.guest or sid not in self.registry.durable_sids:
                    continue
                operations.append(position_row(sid, stream.pubend, stream.change(sid, version)))
        self.outbox.write(operations, lambda _now, _wall: self.started(version))

    def write_holds(self, stream: Constream, *with_it: Operation) -> None:
        """Writes a pubend's row of holds. The row may be sent under its version only when that version is durable."""
        holds, version = stream.holds, stream.holds.version

        def durable(_now: int, _wall: int) -> None:
            holds.durable = version

        self.outbox.write([pubend_row(stream), *with_it], durable)

    def announce(self, version: int) -> None:
        """Announces a version to the network, now that it is durable."""
        self._announced = max(self._announced, version)
        self._dropping.pop(version, None)
        self.outbox.emit(self._announcing.pop(version))

    def started(self, version: int) -> None:
        """The first version of this life is durable: announces the whole interest."""
        self._announced = max(self._announced, version)
        self.life = version
        self.announce_in_full()

    def announce_in_full(self) -> None:
        """Announces the whole interest as it is durable, without the changes that are being written."""
        if not self._announced:
            return
        # What is not durable yet does not count, be it a removal or another filter: a crash would bring it back.
        subscriptions = [*self.registry, *self._dropping.values()]
        filters = {s.sid: s.filter for s in subscriptions if s.version <= self._announced}
        self.outbox.emit(Interest(self.shb, 0, self._announced, filters, full=True))

    def announce_version(self) -> None:
        """Repeats the version, so that a router that has lost a change notices it and asks."""
        if not self._announced:
            return
        self.outbox.emit(Interest(self.shb, self._announced, self._announced, {}))

    def take_effects(self) -> list[object]:
        """Returns everything that was asked for since the last call: one write first, then the rest in order."""
        while self._unflushed:
            self._unflushed.pop().flush()
        return self.outbox.take()

    # -------------------------------------------------------------------------------------- consumers

    def channel(self, session: ClientSession) -> Channel:
        """Returns the session's channel, and creates it with its first use.

        It is given no more at a time than its principal may be sent in a second. When there is room again on its link
        the node says later, if that was too much already.
        """
        channel = self.channels.get(session.number)
        if channel is None:
            most, limit = self.catch_up.link_bytes, self.limits.of(session.principal)
            if limit is not None:
                rates = limit.bytes_per_second_out, (limit.events_per_second_out or 0) * EVENT_BYTES
                most = min(filter(None, (most, *rates)))
            credit = LinkCredit(most, self.memory.least // 2)
            channel = Channel(session.number, self.outbox.emit, self._unflushed, credit, self.memory, self.counts)
            channel.is_limited = most < self.catch_up.link_bytes
            self.channels[session.number] = channel
        return channel

    def new_consumer(
        self,
        subscription: SubscriptionRecord,
        session: ClientSession,
        taker: Taker,
        request: Subscribe | None,
        wall: int,
    ) -> Consumer:
        """Returns a consumer of a subscription. `request`: None if another SHB serves it, and has told of it later."""
        number, events, size, most = 0, 0, 0, 0
        if request is not None:
            number, events, size = request.request, request.credit_events, request.credit_bytes
            most = self.payload_max
        channel, who = self.channel(session), session.principal
        return Consumer(subscription, channel, taker, who, events, size, most, number, since=wall)

    def attach(self, consumer: Consumer, at: Mapping[PubendId, Tick], answer: Subscribed, now: int, wall: int) -> None:
        """Answers the client, then serves the consumer from these positions on, unless it is at another SHB."""
        self.take_consumer(consumer, Phase.CONSUMED)
        self.tell(consumer.channel.session, answer)
        if consumer.is_elsewhere:
            return
        for pubend, tick in at.items():
            self.streams[pubend].attach(consumer, tick, now, wall)

    def take_consumer(self, consumer: Consumer, phase: Phase) -> None:
        """The subscription has this consumer now. `phase`: whether it is served, or only chosen."""
        self.registry.become(consumer.sid, phase)
        self.consumers[consumer.sid] = consumer
        consumer.channel.consumers[consumer.sid] = consumer

    def consumer_of(self, session: int, sid: int) -> Consumer | None:
        """Returns the consumer of a subscription, if it is in this session.

        What comes from a former one counts for nothing: another one may have the subscription now (U09).
        """
        consumer = self.consumers.get(sid)
        return consumer if consumer is not None and consumer.channel.session == session else None

    def attach_to_new(self, stream: Constream, group: str, now: int, wall: int) -> None:
        """Attaches every consumer to a new pubend, at the start of its subscription, where that is known.

        `group`: the group that the pubend is in; "" for none.
        """
        for consumer in list(self.consumers.values()):
            start = stream.positions[consumer.sid].start
            if stream.positions[consumer.sid].sought or not self._is_served(consumer):
                continue
            if consumer.ordered is not None and consumer.subscription.group == group:
                start = consumer.ordered.add(stream.pubend, start)
            self._attach_at(stream, consumer, start, now, wall)

    def attach_to_found(self, stream: Constream, sid: int, now: int, wall: int) -> None:
        """Attaches the consumer of a subscription, if it has one, to a pubend that has found where it starts.

        A consumer that came with a position there was attached at once.
        """
        consumer = self.consumers.get(sid)
        if consumer is not None and self._is_served(consumer) and not stream.serves(sid):
            self._attach_at(stream, consumer, stream.positions[sid].start, now, wall)

    def _is_served(self, consumer: Consumer) -> bool:
        """Whether a consumer is served here, and not only chosen."""
        return not consumer.is_elsewhere and self.registry.phase(consumer.sid) is not Phase.ATTACHING

    def _attach_at(self, stream: Constream, consumer: Consumer, start: Tick, now: int, wall: int) -> None:
        """Tells a consumer of a pubend that it has not been told of, and serves it there from `start` on.

        Those who share a subscription know of no positions, and are not told.
        """
        if consumer.ordered is not None and consumer.subscription.shared is not None:
            stream.attach(consumer, consumer.ordered.add(stream.pubend, start), now, wall)
            return
        consumer.channel.flush()
        number = consumer.channel.number(stream.pubend)
        self.outbox.emit(Tell(consumer.channel.session, DeliverSilence(number, start, [consumer.sid])))
        stream.attach(consumer, start, now, wall)

    def detach(self, sid: int) -> Consumer | None:
        """Ends the consumption of a subscription. Returns its former consumer, if it had one."""
        consumer = self.consumers.pop(sid, None)
        if consumer is None:
            return None
        self.registry.become(sid, Phase.FREE)
        consumer.channel.consumers.pop(sid, None)
        self.ordering.end(sid)
        for stream in self.streams.values():
            stream.detach(sid)
        if consumer.is_elsewhere:
            self.ended_elsewhere(sid)
        return consumer

    def end_session(self, session: int, reason: str) -> None:
        """Closes a client's session, if it is one of this SHB."""
        if session <= 0:
            return
        self.outbox.emit(EndSession(session, reason))


def _to_nobody(*_: Any) -> None:
    """There is nobody at another SHB."""


def _from_here(_session: int) -> BrokerId:
    """There are no other nodes."""
    return ""
