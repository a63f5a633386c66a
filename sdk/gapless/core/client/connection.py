"""The client's side of the protocol: one session after another, and what outlives them (protocol: session).

Publishers, subscriptions and requests live here through all sessions. Each has one number, from one counter, and every
effect about it carries this number. A session with a broker is `session`; those with the hosts of pubends are `hosts`.

Rules of this module, as for every core (`gapless.core`): no clock, no I/O, no task, no randomness of its own. `now` is
in monotonic nanoseconds. A frame that breaks the protocol changes nothing, but ends the link.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.core.client.consuming.subscriptions import Subscriptions
from gapless.core.client.hosts import DirectSessions
from gapless.core.client.link.backoff import Backoff
from gapless.core.client.link.effects import Effect
from gapless.core.client.link.registry import ClientTimer
from gapless.core.client.link.requests import HeldLease, Query, Requests
from gapless.core.client.publishing.publisher import PublisherCore
from gapless.core.client.ranges.reading import RangeReading
from gapless.core.client.ranges.requests import RangeRequests
from gapless.core.client.renewal import RENEWAL
from gapless.core.client.session import ClientSettings, SessionCore
from gapless.core.wire.codec import check_sendable
from gapless.core.wire.messages import (
    AddUser,
    AskStatus,
    ChangeUser,
    ListPubends,
    ListSubscriptions,
    ListUsers,
    PublisherOpened,
    RemoveUser,
    RequestFailed,
    Retire,
    Unsubscribe,
)
from gapless.errors import ConnectionClosedError, GaplessError

if TYPE_CHECKING:
    from random import Random

    from gapless.core.client.consuming.held import HeldDelivery, HeldGap
    from gapless.core.client.consuming.items import Item
    from gapless.core.client.consuming.sharing import SharedCore
    from gapless.core.client.consuming.subscription import SubscribeOptions, SubscriptionCore
    from gapless.core.client.credentials import Credentials, LinkSecurity
    from gapless.core.client.link.attempts import Attempts
    from gapless.core.stream.columns import EventColumns
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import Kind, Verifier
    from gapless.core.wire.tokens import BatchTokens


class ClientCore(SessionCore):
    """One client: report to it what happened, give it commands, then do what `take_effects` returns."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str,
        instance: str,
        attempts: Attempts,
        random: Random,
        has_credentials: bool,
        settings: ClientSettings | None = None,
    ) -> None:
        """See `SessionCore`."""
        super().__init__(
            addresses,
            client_id=client_id,
            instance=instance,
            attempts=attempts,
            random=random,
            has_credentials=has_credentials,
            settings=settings,
        )
        self.app_id = client_id or instance
        """The JMSXAppID of what it publishes if it identifies itself."""
        self._acknowledged_at = -self._settings.acknowledge
        self._numbers = 0

        def backoff() -> Backoff:
            return Backoff(random, self._settings.retry_first, self._settings.retry_most)

        self._hosts = DirectSessions(
            addresses, self, self._begin_host_session, lambda first, most: Backoff(random, first, most)
        )
        self._subscriptions = Subscriptions(self._outbox, self._deadlines, backoff)
        self._requests = Requests(self._outbox, self._deadlines, backoff, self._number)
        self._registries |= {ClientTimer.SUBSCRIPTION: self._subscriptions, ClientTimer.REQUEST: self._requests}
        self.ranges = RangeRequests(self._outbox, self._requests)
        """The requests about subscriptions whose position the application keeps itself."""
        self._open_publisher = self._handlers[PublisherOpened]
        self._handlers |= self._subscriptions.handlers()
        self._handlers |= self._requests.handlers(Query, HeldLease, RangeReading)
        self._handlers[PublisherOpened] = self._on_publisher_opened
        self._fail_request = self._requests.forward(lambda request, failed: request.on_failed(failed))

    # Getters.

    def publisher(self, number: int) -> PublisherCore | None:
        """Returns the publisher with this number, unless it is over."""
        host = self._hosts.core_of(number)
        return super().publisher(number) if host is None else host.publisher(number)

    def reaches(self, publisher: int) -> bool:
        """Whether there is a session with the broker that this publisher publishes through."""
        host = self._hosts.core_of(publisher)
        return self.connected if host is None else host.connected

    def subscription(self, number: int) -> SubscriptionCore | None:
        """Returns the subscription with this number, unless it is over, or shared."""
        return self._subscriptions.plain(number)

    def shared_subscription(self, number: int) -> SharedCore | None:
        """Returns the consumer of a shared subscription with this number, unless it is over."""
        return self._subscriptions.shared(number)

    # What happened.

    def on_credentials(self, link: int, credentials: Credentials, now: int) -> None:
        """The application has said its credentials: dials, or renews those of the session."""
        if (host := self._hosts.core_of_link(link)) is None:
            super().on_credentials(link, credentials, now)
        else:
            self._outbox.now = now
            host.on_credentials(link, credentials, now)

    def on_no_credentials(self, link: int, reason: str, now: int) -> None:
        """The application has none now, for this reason."""
        if (host := self._hosts.core_of_link(link)) is None:
            super().on_no_credentials(link, reason, now)
        else:
            self._outbox.now = now
            host.on_no_credentials(link, reason, now)

    def on_link_up(self, link: int, security: LinkSecurity, now: int) -> None:
        """The link that was dialled is up: sends Hello."""
        if (host := self._hosts.core_of_link(link)) is None:
            super().on_link_up(link, security, now)
        else:
            self._outbox.now = now
            host.on_link_up(link, security, now)

    def on_link_down(self, link: int, reason: str, now: int) -> None:
        """A link is gone, or could not be dialled."""
        if (host := self._hosts.core_of_link(link)) is None:
            super().on_link_down(link, reason, now)
        else:
            self._outbox.now = now
            host.on_link_down(link, reason, now)

    def on_frames(self, link: int, payloads: Sequence[bytes], now: int) -> None:
        """Frames have arrived on a link."""
        if link == self._outbox.link or (host := self._hosts.core_of_link(link)) is None:
            super().on_frames(link, payloads, now)
        else:
            self._outbox.now = now
            host.on_frames(link, payloads, now)

    def on_room(self, link: int, now: int) -> None:
        """There is room on a link, as `AskRoom` has asked for: publishers that had to wait go on."""
        if link == self._outbox.link or (host := self._hosts.core_of_link(link)) is None:
            super().on_room(link, now)
        else:
            self._outbox.now = now
            host.on_room(link, now)

    def on_deadline(self, now: int) -> None:
        """The deadline has come."""
        super().on_deadline(now)
        self._hosts.on_deadline(now)

    # Commands.

    def open_publisher(self, name: str, instance: str, topic: str | None, now: int) -> int:
        """Opens a publisher; `instance` is unique to it. The answer is PublisherReady, or Failed."""
        check_sendable((name, topic))
        self._outbox.now = now
        number = self._number()
        backoff = Backoff(self._random, self._settings.retry_first, self._settings.publish_retry_most)
        publisher = PublisherCore(number, name, instance, topic, backoff, self._outbox, self._deadlines)
        self.publishers.add(publisher)
        return number

    def publish(self, publisher: int, events: EventColumns, tokens: BatchTokens, now: int) -> int:
        """Queues a batch of a publisher that is not over. Returns the ticket under which its answer comes."""
        self._outbox.now = now
        core = self.publishers.get(publisher)
        return self._hosts.publish(publisher, events, tokens, now) if core is None else core.publish(events, tokens)

    def close_publisher(self, publisher: int, now: int) -> None:
        """Ends a publisher. Batches without an answer are uncertain."""
        super().close_publisher(publisher, now)
        self._hosts.close_publisher(publisher, now)

    def subscribe(self, wanted: SubscribeOptions, now: int) -> int:
        """Attaches to a subscription. The answer is Attached; Failed may come instead, or later.

        If this client consumes a subscription of the same name already, the new one takes it over.
        """
        check_sendable((wanted, tuple(wanted.positions or ())))
        self._outbox.now = now
        return self._subscriptions.subscribe(self._number(), wanted)

    def take(self, subscription: int, now: int, events_max: int | None = None) -> Item | None:
        """Returns the next item for the application. Everything that was taken before counts as done with.

        Without `events_max`, events come as they arrived; with it, up to so many consecutive events of one pubend.
        """
        self._outbox.now = now
        core = self._subscriptions.plain(subscription)
        return None if core is None else core.take(events_max)

    def take_held(self, subscription: int, now: int, events_max: int, wanted: int) -> HeldDelivery | HeldGap | None:
        """Returns the next item of a shared subscription: up to so many events of one pubend; see `SharedCore.take`."""
        self._outbox.now = now
        core = self._subscriptions.shared(subscription)
        return None if core is None else core.take(events_max, wanted)

    def acknowledge(self, subscription: int, positions: Mapping[PubendId, Tick], now: int) -> None:
        """The application is done with everything up to these positions.

        It is sent at the end of this turn, or soon.
        """
        self._outbox.now = now
        if self._subscriptions.acknowledge(subscription, positions):
            self._deadlines.set_earlier(
                (ClientTimer.ACKNOWLEDGE, 0), max(now, self._acknowledged_at + self._settings.acknowledge)
            )

    def take_unit(self, subscription: int, now: int, events_max: int | None = None) -> Item | None:
        """Returns the next item of a subscription that commits: up to so many events; without `events_max`, one."""
        self._outbox.now = now
        core = self._subscriptions.plain(subscription)
        return None if core is None else core.take_unit(events_max or 1)

    def commit(self, subscription: int, positions: Mapping[PubendId, Tick], events_max: int, now: int) -> bool:
        """The application is done with everything up to these positions, and wants up to so many events next.

        It is sent at once. Returns whether something is under way; `SubscriptionCore.committing` shows whether it is
        durable, and `Arrived` follows then.
        """
        self._outbox.now = now
        core = self._subscriptions.plain(subscription)
        if core is None:
            return False
        waits = core.commit(positions, events_max)
        if not waits:
            self.acknowledge(subscription, positions, now)
        return waits

    def enlist(self, subscription: int, pubend: PubendId, now: int) -> None:
        """A transaction is going to store a subscription's position at a pubend; `Arrived` follows."""
        self._outbox.now = now
        core = self._subscriptions.plain(subscription)
        if core is not None:
            core.enlist(pubend)

    def stored(self, subscription: int, positions: Mapping[PubendId, Tick], now: int) -> None:
        """A transaction has stored these positions of a subscription. Its home need not know at once."""
        core = self._subscriptions.plain(subscription)
        if core is not None and core.committing is not None:
            core.committing.stored(positions)
            self.acknowledge(subscription, positions, now)

    def recover(self, subscription: int, handed: Mapping[PubendId, Tick], now: int) -> int:
        """Hands out again, from the log, what a subscription was handed and is not acknowledged. Nothing is under way.

        `handed`: up to where it was handed events. It ends, and another one goes on in its place, whose number is
        returned: the answer is Attached, or Failed.
        """
        self._outbox.now = now
        number = self._number()
        self._subscriptions.recover(subscription, number, handed)
        return number

    def settle(
        self, subscription: int, kind: Kind, numbers: Iterable[int], now: int, delay_ms: int = 0
    ) -> tuple[list[int], list[int]]:
        """The application says something of what it holds, by delivery numbers; it is sent at the end of this turn.

        Returns the numbers of the settlements, which `SettlementAnswered` answers, and the delivery numbers of what it
        does not hold. The subscription is shared, and not over.
        """
        self._outbox.now = now
        core = self._subscriptions.shared(subscription)
        assert core is not None
        return core.settle(kind, numbers, delay_ms)

    def extend(self, subscription: int, numbers: Iterable[int], now: int) -> list[int]:
        """The application still works on these. Returns those that it does not hold; else as `settle`."""
        self._outbox.now = now
        core = self._subscriptions.shared(subscription)
        assert core is not None
        return core.extend(numbers)

    def drain(self, subscription: int, now: int) -> None:
        """Lets `take` find nothing from now on."""
        self._outbox.now = now
        core = self._subscriptions.get(subscription)
        if core is not None:
            core.drain()

    def detach(self, subscription: int, now: int) -> None:
        """Ends the consumption of a subscription. No effect about it follows."""
        self._outbox.now = now
        self._subscriptions.detach(subscription)

    def unsubscribe(self, name: str, client_id: str, now: int) -> int:
        """Removes a durable subscription. The answer is None."""
        return self._requests.begin(Query, lambda number: Unsubscribe(number, name, client_id), now)

    def list_subscriptions(self, now: int) -> int:
        """Asks for all durable subscriptions of the network. The answer is `Listed`."""
        return self._requests.begin(Query, ListSubscriptions, now)

    def list_pubends(self, now: int) -> int:
        """Asks for all pubends of the network. The answer is `Listed`."""
        return self._requests.begin(Query, ListPubends, now)

    def ask_status(self, node: str, now: int) -> int:
        """Asks for the figures and alarms of a node; "" is the broker's own. The answer is `Listed`, with both."""
        return self._requests.begin(Query, lambda number: AskStatus(number, node), now)

    def list_users(self, now: int) -> int:
        """Asks for the users of the broker. The answer is `Listed`."""
        return self._requests.begin(Query, ListUsers, now)

    def add_user(self, name: str, verifier: Verifier, groups: tuple[str, ...], now: int) -> int:
        """Makes a user of the broker. The answer is None."""
        return self._requests.begin(Query, lambda number: AddUser(number, name, verifier, groups), now)

    def change_user(self, name: str, verifier: Verifier | None, groups: tuple[str, ...] | None, now: int) -> int:
        """Gives a user of the broker another password, or other groups; None: they stay. The answer is None."""
        return self._requests.begin(Query, lambda number: ChangeUser(number, name, verifier, groups), now)

    def remove_user(self, name: str, now: int) -> int:
        """Removes a user of the broker. The answer is None."""
        return self._requests.begin(Query, lambda number: RemoveUser(number, name), now)

    def retire(self, shb: str, now: int, *, only_look: bool, running: bool) -> int:
        """Gives an SHB up for good, or asks what that would do. The answer is the broker's `Retired`."""
        return self._requests.begin(Query, lambda number: Retire(number, shb, only_look, running), now)

    def ask_for_life(self, now: int) -> None:
        """Asks each broker with which there is a session for a sign of life."""
        super().ask_for_life(now)
        self._hosts.ask_for_life(now)

    def stands_still(self, now: int) -> bool:
        """Whether one of these brokers has given no sign of life for long, although it was asked for one."""
        return super().stands_still(now) or self._hosts.stands_still(now)

    def close(self, now: int) -> None:
        """Sends Goodbye and ends everything. What has no answer by then is uncertain."""
        self._outbox.now = now
        if self.connected:
            self._subscriptions.send_acknowledgements()
            self._subscriptions.send_settlements()
        super().close(now)

    def end(self, error: GaplessError, now: int) -> None:
        """There will be no broker any more, for this reason. What has no answer by then is uncertain."""
        self._outbox.now = now
        self._shut(str(error), error)

    # What to do.

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        due = super().deadline()
        if self._hosts.is_used and (theirs := self._hosts.deadline()) is not None:
            return theirs if due is None else min(due, theirs)
        return due

    def take_effects(self) -> list[Effect]:
        """Returns what to do, in order; empty until something else happens."""
        self._subscriptions.send_settlements()
        effects = super().take_effects()
        if self._hosts.is_used:
            effects += self._hosts.take()
            effects += self._outbox.take()
        return effects

    # How it is done.

    def _begin_host_session(self, address: str, links: int) -> SessionCore:
        core = SessionCore(
            (address,),
            client_id=self.client_id,
            instance=f"{self._instance}/{links}",
            attempts=self._outbox.attempts,
            random=self._random,
            has_credentials=self._has_credentials,
            settings=self._settings,
            links=links,
        )
        core.network = self.network
        return core

    def _on_publisher_opened(self, opened: PublisherOpened) -> None:
        self._open_publisher(opened)
        publisher = self.publishers.get(opened.publisher)
        if publisher is not None:
            self._hosts.on_opened(publisher)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _end_session(self) -> None:
        super()._end_session()
        self._hosts.on_session_over()

    def _fail_all(self, reason: str, error: GaplessError | None) -> None:
        for effect in self._hosts.close(self._outbox.now):
            self._outbox.tell(effect)
        super()._fail_all(reason, error)
        self._subscriptions.fail_all(error or ConnectionClosedError(reason))
        self._requests.fail_all(error or ConnectionClosedError(reason))

    def _on_request_failed(self, failed: RequestFailed) -> None:
        is_used = any(self._subscriptions) or any(self.publishers)
        if not is_used and self._requests.goes_elsewhere(failed, self._reaching.address, self._reaching.count):
            self._hang_up(failed.reason)
            self._deadlines.set((ClientTimer.CONNECT, 0), self._outbox.now)  # nothing has failed: it goes on at once
        elif self._requests.get(failed.request) is not None:
            self._fail_request(failed)
        elif failed.request == RENEWAL:
            super()._on_request_failed(failed)
        else:
            self._subscriptions.on_request_failed(failed)

    def _on_own_deadline(self, timer: ClientTimer) -> None:
        if timer is ClientTimer.ACKNOWLEDGE:
            self._acknowledged_at = self._outbox.now
            self._subscriptions.send_acknowledgements()
        elif timer is ClientTimer.HOST:
            self._hosts.look_again()
        else:
            super()._on_own_deadline(timer)
