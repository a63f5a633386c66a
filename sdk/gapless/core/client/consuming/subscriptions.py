"""All subscriptions of one connection, and the numbers that the broker uses for them in a session."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

from gapless.core.client.consuming.sharing import SharedCore
from gapless.core.client.consuming.subscription import (
    ConsumerCore,
    SubscribeOptions,
    SubscriptionCore,
    SubscriptionPhase,
)
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Notice
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientRegistry, Key
from gapless.core.deadlines import Deadlines
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    Code,
    Committed,
    Delayed,
    Deliver,
    DeliverGap,
    DeliverHeld,
    DeliverHeldGap,
    DeliverSilence,
    Detach,
    Detached,
    HoldLost,
    InUse,
    PubendNumber,
    RequestFailed,
    Settled,
    Subscribed,
    Taken,
)
from gapless.errors import RemoteProtocolError, SubscriptionInUseError


class Subscriptions(ClientRegistry[ConsumerCore]):
    """All subscriptions of one connection, by the client's number, and in a session also by the broker's id."""

    def __init__(self, outbox: ClientOutbox, deadlines: Deadlines[Key], backoff: Callable[[], Backoff]) -> None:
        super().__init__(outbox)
        self._deadlines = deadlines
        self._backoff = backoff
        self._attached: dict[int, ConsumerCore] = {}
        """The attached subscriptions by the broker's id, in this session."""
        self._pubends: dict[int, PubendId] = {}
        """The pubends by the broker's number, in this session."""
        self._unsent: dict[int, SubscriptionCore] = {}
        """The subscriptions with acknowledgements that were not sent."""
        self._abandoned: dict[int, str | None] = {}
        """The names of subscriptions that were asked for and given up since, by the number of the request."""
        self._settlements: dict[str | None, Callable[[], int]] = {}
        """Counts the settlements of this client, by the name of the shared subscription."""

    def plain(self, number: int) -> SubscriptionCore | None:
        """Returns the subscription with this number, unless it is over, or shared."""
        consumer = self.get(number)
        return consumer if isinstance(consumer, SubscriptionCore) else None

    def shared(self, number: int) -> SharedCore | None:
        """Returns the consumer of a shared subscription with this number, unless it is over."""
        consumer = self.get(number)
        return consumer if isinstance(consumer, SharedCore) else None

    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Returns a handler for each message about subscriptions. A subscription that is over gets no message."""
        return {
            Deliver: self._on_deliver,
            DeliverSilence: self._on_silence,
            DeliverGap: self._on_gap,
            PubendNumber: self._on_pubend_number,
            Subscribed: self._on_subscribed,
            Detached: self._on_detached,
            Delayed: self._on_delayed,
            Committed: self._on_committed,
            DeliverHeld: self._on_deliver_held,
            DeliverHeldGap: self._on_held_gap,
            Taken: self._forward_shared(SharedCore.on_taken),
            Settled: self._forward_shared(SharedCore.on_settled),
            HoldLost: self._forward_shared(SharedCore.on_hold_lost),
        }

    # What happened.

    def on_session(self) -> None:
        """A session is open."""
        super().on_session()
        self._unsent.clear()

    def on_session_over(self) -> None:
        """The session is over, and the broker's numbers are no longer valid."""
        self._attached.clear()
        self._pubends.clear()
        self._abandoned.clear()
        super().on_session_over()

    def on_request_failed(self, message: RequestFailed) -> None:
        """The broker has refused a Subscribe; it is ignored if its subscription is not waiting for an answer."""
        self._abandoned.pop(message.request, None)
        subscription = self.get(message.request)
        if subscription is None or subscription.phase is not SubscriptionPhase.ASKING:
            return
        if message.code is Code.IN_USE and subscription.was_in_own_way:
            subscription.was_in_own_way = False
            subscription.on_session()
            return
        subscription.on_failed(message)
        self._forget_if_over(subscription)

    # Commands.

    def subscribe(self, number: int, wanted: SubscribeOptions) -> int:
        """Attaches, at once if there is a session."""
        if wanted.sharing is None:
            self.add(SubscriptionCore(number, wanted, self._backoff(), self._outbox, self._deadlines))
            return number
        settlements = self._settlements.setdefault(wanted.name, count(1).__next__)
        shared = SharedCore(number, wanted, self._backoff(), self._outbox, self._deadlines, settlements)
        if any(other.wanted.name == wanted.name and isinstance(other, SharedCore) for other in self):
            reason = f"this connection consumes the shared subscription {wanted.name!r} already: several tasks may"
            shared.fail(SubscriptionInUseError(f"{reason} iterate over it, each with an `async for` of its own"))
        else:
            self.add(shared)
        return number

    def acknowledge(self, number: int, positions: Mapping[PubendId, Tick]) -> bool:
        """Notes an acknowledgement. Returns whether there is something to send."""
        subscription = self.plain(number)
        if subscription is None or not subscription.acknowledge(positions):
            return False
        self._unsent[number] = subscription
        return True

    def send_acknowledgements(self) -> None:
        """Sends the acknowledgements that have gathered: one message per subscription."""
        for subscription in self._unsent.values():
            subscription.send_acknowledgement()
        self._unsent.clear()

    def send_settlements(self) -> None:
        """Sends what was settled in this turn: one message per shared subscription."""
        if self._settlements:
            for consumer in self:
                if isinstance(consumer, SharedCore):
                    consumer.send_settlements()

    def detach(self, number: int) -> None:
        """Ends the consumption of a subscription, if it is not over."""
        subscription = self.get(number)
        if subscription is not None:
            self._release(subscription)
            subscription.end()
            self._forget_if_over(subscription)

    def recover(self, number: int, again: int, handed: Mapping[PubendId, Tick]) -> None:
        """Detaches a subscription and attaches it at what is acknowledged, under another number, if it is not over."""
        former = self.plain(number)
        if former is not None:
            subscription = SubscriptionCore(
                again, former.acknowledged(), self._backoff(), self._outbox, self._deadlines
            )
            subscription.recovers(former, handed)
            self.detach(number)
            self.add(subscription)

    # How it is done.

    def _forget_if_over(self, subscription: ConsumerCore) -> None:
        super()._forget_if_over(subscription)
        if subscription.over:
            self._unsent.pop(subscription.number, None)
            if self._attached.get(subscription.session_sid) is subscription:
                del self._attached[subscription.session_sid]

    def _on_subscribed(self, message: Subscribed) -> None:
        subscription = self.get(message.request)
        if subscription is None:
            self._let_go(message)
            return
        if subscription.phase is not SubscriptionPhase.ASKING:
            raise RemoteProtocolError(f"subscription {message.sid} was attached twice")
        other = self._attached.get(message.sid)
        if other is not None:
            raise RemoteProtocolError(f"the broker gives one id, {message.sid}, to two subscriptions")
        subscription.on_subscribed(message)
        if not subscription.over:
            self._attached[message.sid] = subscription
        self._forget_if_over(subscription)

    def _release(self, subscription: ConsumerCore) -> None:
        """Asks the broker to end a subscription's consumption: now, or as soon as it has an id."""
        if subscription.phase is SubscriptionPhase.ASKING:
            self._abandoned[subscription.number] = subscription.wanted.name
        subscription.release()

    def _let_go(self, message: Subscribed) -> None:
        """Handles an attachment whose application has gone meanwhile; it may have asked for the same name again.

        1. subscribe (a), given up before the answer; subscribe (b).
        2. The broker attaches (a), then finds (b) in conflict with it: it refuses (b), lets it wait, or takes the
           subscription, with the same id, from (a).
        3. The answer to (a) arrives here, and we detach (a): unless (b) has taken it, because that would end (b). If
           (b) was refused, it was refused because of a consumer that was no longer wanted, so it asks once more.
        """
        name = self._abandoned.pop(message.request, None)
        newer = [] if name is None else [core for core in self if core.wanted.name == name]
        if not any(core.wanted.in_use is InUse.TAKEOVER for core in newer):
            self._outbox.send(Detach(message.sid, message.request))
        for core in newer:
            core.was_in_own_way = True

    def _on_detached(self, message: Detached) -> None:
        subscription = self._attached.get(message.sid)
        if subscription is not None:
            subscription.on_detached(message.code, message.reason)
            self._forget_if_over(subscription)

    def _on_committed(self, message: Committed) -> None:
        subscription = self._attached_plain(message.sid)
        if subscription is not None:
            subscription.on_committed(message)

    def _on_delayed(self, message: Delayed) -> None:
        if message.sid in self._attached:
            self._outbox.tell(Notice(message.reason))

    def _on_pubend_number(self, message: PubendNumber) -> None:
        self._pubends[message.number] = message.pubend

    def _on_deliver(self, message: Deliver) -> None:
        pubend = self._pubend(message.number)
        subscription = self._attached_plain(message.sid)
        if subscription is not None:
            subscription.on_events(pubend, message.columns)
            self._forget_if_over(subscription)

    def _on_silence(self, message: DeliverSilence) -> None:
        pubend = self._pubend(message.number)
        for subscription in self._meant(message.sids):
            subscription.on_silence(pubend, message.upto)
            self._forget_if_over(subscription)

    def _on_gap(self, message: DeliverGap) -> None:
        pubend = self._pubend(message.number)
        subscription = self._attached_plain(message.sid)
        if subscription is not None:
            subscription.on_gap(pubend, message.start, message.end, message.reason)
            self._forget_if_over(subscription)

    def _on_deliver_held(self, message: DeliverHeld) -> None:
        pubend = self._pubend(message.number)
        consumer = self._attached_shared(message.sid)
        if consumer is not None:
            consumer.on_events(pubend, message)

    def _on_held_gap(self, message: DeliverHeldGap) -> None:
        pubend = self._pubend(message.number)
        consumer = self._attached_shared(message.sid)
        if consumer is not None:
            consumer.on_gap(pubend, message)

    def _forward_shared(self, handle: Callable[[SharedCore, Any], None]) -> Callable[[Any], None]:
        """Returns a handler that passes each message to the consumer of a shared subscription that it is for."""

        def on_message(message: Any) -> None:
            consumer = self._attached_shared(message.sid)
            if consumer is not None:
                handle(consumer, message)

        return on_message

    def _meant(self, sids: list[int] | None) -> Iterable[SubscriptionCore]:
        """Returns those that a silence is for. Those of shared subscriptions have no position, so no silence."""
        meant = self._attached.values() if sids is None else map(self._attached.get, sids)
        return [each for each in meant if isinstance(each, SubscriptionCore)]

    def _attached_plain(self, sid: int) -> SubscriptionCore | None:
        consumer = self._attached.get(sid)
        if consumer is None or isinstance(consumer, SubscriptionCore):
            return consumer
        raise RemoteProtocolError(f"subscription {sid} is shared, and the broker treats it as one that is not")

    def _attached_shared(self, sid: int) -> SharedCore | None:
        consumer = self._attached.get(sid)
        if consumer is None or isinstance(consumer, SharedCore):
            return consumer
        raise RemoteProtocolError(f"subscription {sid} is not shared, and the broker treats it as one that is")

    def _pubend(self, number: int) -> PubendId:
        pubend = self._pubends.get(number)
        if pubend is None:
            raise RemoteProtocolError(f"the broker speaks of pubend number {number}, which it never named")
        return pubend
