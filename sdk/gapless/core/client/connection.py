"""The client's side of the protocol: one session after another, and what outlives them (protocol: session).

    NEW ─start─▶ DIALLING ─link up─▶ GREETING ─Welcome─▶ OPEN
                    ▲ │                 │                 │
                    │ └──────── refused, lost, too late ──┤      any ─close(), refused for good─▶ CLOSED
                    └─────────── WAITING ◀────────────────┘

Publishers, subscriptions and requests live here through all sessions. Each has one number, from one counter, and every
effect about it carries this number. Links are numbered, too: what comes from an earlier link is ignored, as is every
frame of an earlier session.

Rules of this module, as for every core (`gapless.core`): no clock, no I/O, no task, no randomness of its own. `now` is
in monotonic nanoseconds. A frame that breaks the protocol changes nothing, but ends the link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gapless.core.client.consuming.subscriptions import Subscriptions
from gapless.core.client.hosts import DirectSessions
from gapless.core.client.link.addresses import Addresses
from gapless.core.client.link.backoff import MILLISECOND, SECOND, Backoff
from gapless.core.client.link.effects import (
    Closed,
    CloseLink,
    Connected,
    Disconnected,
    Effect,
    Notice,
    OpenLink,
    RaiseLimit,
    SendFrames,
    Unreachable,
)
from gapless.core.client.link.errors import TEMPORARY, error_of
from gapless.core.client.link.liveness import Liveness
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.registry import ClientRegistry, ClientTimer, Key
from gapless.core.client.link.requests import HeldLease, Query, Requests
from gapless.core.client.publishing.publisher import PublisherCore
from gapless.core.client.ranges.reading import RangeReading
from gapless.core.client.ranges.requests import RangeRequests
from gapless.core.deadlines import Deadlines
from gapless.core.wire.codec import check_sendable, decode_server, session_of
from gapless.core.wire.messages import (
    PROTOCOL,
    AskStatus,
    BrokerHeartbeat,
    Challenge,
    ClientMessage,
    Closing,
    Code,
    Goodbye,
    Hello,
    HelloRefused,
    ListPubends,
    ListSubscriptions,
    PositionsStored,
    Proof,
    Published,
    PublisherOpened,
    PublishRefused,
    RequestFailed,
    Retire,
    Unsubscribe,
    Welcome,
)
from gapless.core.wire.numbering import FramesLostError, Received, is_unnumbered
from gapless.errors import (
    ConnectionClosedError,
    GaplessError,
    PublishUncertainError,
    RemoteProtocolError,
)

if TYPE_CHECKING:
    from random import Random

    from gapless.core.client.consuming.items import Item
    from gapless.core.client.consuming.subscription import SubscribeOptions, SubscriptionCore
    from gapless.core.client.link.attempts import Attempts
    from gapless.core.stream.columns import EventColumns
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import BatchTokens


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The times of a client, in nanoseconds, and how much its publishers may give to a link."""

    connect: int = 10 * SECOND
    """How long dialling and greeting may take together."""
    backoff_first: int = 100 * MILLISECOND
    backoff_most: int = 4 * SECOND
    steady: int = SECOND
    """How long a session must last for the next try to come soon after it."""
    retry_first: int = 100 * MILLISECOND
    """The first delay before a publisher or a subscription repeats what the broker refused for now."""
    retry_most: int = 5 * SECOND
    publish_retry_most: int = 2 * SECOND
    """The same of a publisher: when the broker of its pubend is back, it is to hear within 5 s what became of it."""
    acknowledge: int = 100 * MILLISECOND
    """The shortest time between two sendings of acknowledgements."""
    link_bytes: int = 16 << 20
    """How many bytes of what is published may wait on a link; one batch may go beyond that."""


CLOSED = "the broker closed the connection"
CLOSED_AT_ONCE = f"{CLOSED} before it answered: it may speak TLS (gapless+tls://…), or ask for another certificate"


class ConnectionPhase(Enum):
    """The state of the connection."""

    NEW = "new"
    WAITING = "waiting"
    DIALLING = "dialling"
    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


class Credentials:
    """How a client proves who it is on one link. This class proves nothing; others override both methods."""

    def first(self) -> bytes:
        """Returns the credentials in Hello."""
        return b""

    def answer(self, challenge: bytes) -> bytes:
        """Returns the answer to a challenge. Raises RemoteProtocolError if it shows that the broker is an impostor."""
        raise RemoteProtocolError("the broker asks who this is, and there are no credentials to tell it")


class ClientCore:
    """One client: report to it what happened, give it commands, then do what `take_effects` returns."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        client_id: str,
        instance: str,
        attempts: Attempts,
        random: Random,
        credentials: Callable[[], Credentials] | None = None,
        settings: ClientSettings | None = None,
        links: int = 0,
    ) -> None:
        """`instance` is unique to this object, `attempts` is common to all of this process.

        `random` is used for the jitter of delays alone.

        `credentials` makes new credentials for each link; None: there are none. `links`: below the numbers of its
        links, a multiple of the number of addresses.
        """
        assert addresses
        self.phase = ConnectionPhase.NEW
        self.client_id = client_id
        self.network = ""
        """The network's id. From the first Welcome on, no other network is accepted."""
        self.app_id = client_id or instance
        """The JMSXAppID of what it publishes if it identifies itself."""
        self.trouble = ""
        """Why the newest link was lost, or did not come up."""
        self._instance = instance
        self._credentials = credentials or Credentials
        self._proving = self._credentials()
        self._settings = settings or ClientSettings()
        delays = Backoff(random, self._settings.backoff_first, self._settings.backoff_most)
        self._reaching = Addresses(addresses, delays, links)
        self._outbox = ClientOutbox(self._settings.link_bytes, attempts)
        self._deadlines: Deadlines[Key] = Deadlines()
        self._opened_at = 0
        self._received = Received()
        self._liveness = Liveness(self._outbox, self._deadlines)
        self._acknowledged_at = -self._settings.acknowledge
        self._numbers = 0

        def backoff() -> Backoff:
            return Backoff(random, self._settings.retry_first, self._settings.retry_most)

        self.publishers: ClientRegistry[PublisherCore] = ClientRegistry(self._outbox)
        """Those of this session: not those that are with their pubends' hosts."""
        self._hosts = DirectSessions(
            addresses, self, self._begin_host_session, lambda first, most: Backoff(random, first, most)
        )
        self._random = random
        self._subscriptions = Subscriptions(self._outbox, self._deadlines, backoff)
        self._requests = Requests(self._outbox, self._deadlines, backoff, self._number)
        self._registries: dict[ClientTimer, ClientRegistry[Any]] = {
            ClientTimer.PUBLISHER: self.publishers,
            ClientTimer.SUBSCRIPTION: self._subscriptions,
            ClientTimer.REQUEST: self._requests,
        }
        self.ranges = RangeRequests(self._outbox, self._requests)
        """The requests about subscriptions whose position the application keeps itself."""
        self._handlers: dict[type, Callable[[Any], None]] = {
            BrokerHeartbeat: self._on_alive,
            Closing: self._on_closing,
            PublisherOpened: self._on_publisher_opened,
            Published: self.publishers.forward(PublisherCore.on_published, "publisher"),
            PositionsStored: self.publishers.forward(PublisherCore.on_stored, "publisher"),
            PublishRefused: self.publishers.forward(PublisherCore.on_refused, "publisher"),
            **self._subscriptions.handlers(),
            **self._requests.handlers(Query, HeldLease, RangeReading),
            RequestFailed: self._on_request_failed,
        }
        self._open_publisher = self.publishers.forward(PublisherCore.on_opened, "publisher")
        self._fail_request = self._requests.forward(lambda request, failed: request.on_failed(failed))

    # Getters.

    @property
    def connected(self) -> bool:
        """Whether a session is open."""
        return self.phase is ConnectionPhase.OPEN

    @property
    def welcome(self) -> Welcome | None:
        """The broker's Welcome to the newest session."""
        return self._outbox.welcome

    @property
    def node(self) -> str:
        """The node with which there was a session last; "" if there was none."""
        return "" if self._outbox.welcome is None else self._outbox.welcome.node

    @property
    def address(self) -> str:
        """The address of the newest try."""
        return self._reaching.address

    @property
    def now(self) -> int:
        """The time of the newest call."""
        return self._outbox.now

    def publisher(self, number: int) -> PublisherCore | None:
        """Returns the publisher with this number, unless it is over."""
        host = self._hosts.core_of(number)
        return self.publishers.get(number) if host is None else host.publisher(number)

    def reaches(self, publisher: int) -> bool:
        """Whether there is a session with the broker that this publisher publishes through."""
        host = self._hosts.core_of(publisher)
        return self.connected if host is None else host.connected

    def subscription(self, number: int) -> SubscriptionCore | None:
        """Returns the subscription with this number, unless it is over."""
        return self._subscriptions.get(number)

    # What happened.

    def on_link_up(self, link: int, now: int) -> None:
        """The link that was dialled is up: sends Hello."""
        if (host := self._hosts.core_of_link(link)) is not None:
            self._outbox.now = now
            host.on_link_up(link, now)
            return
        if self.phase is not ConnectionPhase.DIALLING or link != self._outbox.link:
            return
        self._outbox.now = now
        self.phase = ConnectionPhase.GREETING
        self._proving = self._credentials()
        hello = Hello(PROTOCOL, self.network, self.client_id, self._instance, self._proving.first())
        self._outbox.send_last(hello)

    def on_link_down(self, link: int, reason: str, now: int) -> None:
        """A link is gone, or could not be dialled."""
        if (host := self._hosts.core_of_link(link)) is not None:
            self._outbox.now = now
            host.on_link_down(link, reason, now)
            return
        if link == self._outbox.link and self.phase in {
            ConnectionPhase.DIALLING,
            ConnectionPhase.GREETING,
            ConnectionPhase.OPEN,
        }:
            self._outbox.now = now
            self._lost(reason or (CLOSED_AT_ONCE if self.phase is ConnectionPhase.GREETING else CLOSED))

    def on_frames(self, link: int, payloads: Sequence[bytes], now: int) -> None:
        """Frames have arrived on a link."""
        self._outbox.now = now
        if link != self._outbox.link:
            if (host := self._hosts.core_of_link(link)) is not None:
                host.on_frames(link, payloads, now)
            return
        self._liveness.heard_at = now
        try:
            for payload in payloads:
                if self.phase is ConnectionPhase.OPEN:
                    self._on_frame(payload)
                elif self.phase is ConnectionPhase.GREETING:
                    self._on_greeting(payload)
                else:
                    return
        except FramesLostError as error:
            self._hang_up(str(error))
        except RemoteProtocolError as error:
            self._hang_up(f"protocol violation: {error}")

    def on_room(self, link: int, now: int) -> None:
        """There is room on a link, as `AskRoom` has asked for: publishers that had to wait go on."""
        self._outbox.now = now
        if link == self._outbox.link:
            self._outbox.on_room()
        elif (host := self._hosts.core_of_link(link)) is not None:
            host.on_room(link, now)

    def on_deadline(self, now: int) -> None:
        """The deadline has come."""
        self._outbox.now = now
        for timer, number in self._deadlines.take_expired(now):
            if timer in self._registries:
                self._registries[timer].on_deadline(number)
            elif timer is ClientTimer.ACKNOWLEDGE:
                self._acknowledged_at = now
                self._subscriptions.send_acknowledgements()
            elif timer is ClientTimer.HOST:
                self._hosts.look_again()
            else:
                self._on_own_deadline(timer)
        self._hosts.on_deadline(now)

    # Commands.

    def start(self, now: int) -> None:
        """Begins to connect."""
        assert self.phase is ConnectionPhase.NEW
        self._outbox.now = now
        self._dial()

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
        self._outbox.now = now
        self.publishers.fail(publisher, PublishUncertainError("the publisher was closed before the answer"))
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
        core = self._subscriptions.get(subscription)
        return None if core is None else core.take(events_max)

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
        core = self._subscriptions.get(subscription)
        return None if core is None else core.take_unit(events_max or 1)

    def commit(self, subscription: int, positions: Mapping[PubendId, Tick], events_max: int, now: int) -> bool:
        """The application is done with everything up to these positions, and wants up to so many events next.

        It is sent at once. Returns whether something is under way; `SubscriptionCore.committing` shows whether it is
        durable, and `Arrived` follows then.
        """
        self._outbox.now = now
        core = self._subscriptions.get(subscription)
        if core is None:
            return False
        waits = core.commit(positions, events_max)
        if not waits:
            self.acknowledge(subscription, positions, now)
        return waits

    def enlist(self, subscription: int, pubend: PubendId, now: int) -> None:
        """A transaction is going to store a subscription's position at a pubend; `Arrived` follows."""
        self._outbox.now = now
        core = self._subscriptions.get(subscription)
        if core is not None:
            core.enlist(pubend)

    def stored(self, subscription: int, positions: Mapping[PubendId, Tick], now: int) -> None:
        """A transaction has stored these positions of a subscription. Its home need not know at once."""
        core = self._subscriptions.get(subscription)
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

    def retire(self, shb: str, now: int, *, only_look: bool, running: bool) -> int:
        """Gives an SHB up for good, or asks what that would do. The answer is the broker's `Retired`."""
        return self._requests.begin(Query, lambda number: Retire(number, shb, only_look, running), now)

    def ask_for_life(self, now: int) -> None:
        """Asks each broker with which there is a session for a sign of life."""
        self._outbox.now = now
        self._liveness.ask()
        self._hosts.ask_for_life(now)

    def stands_still(self, now: int) -> bool:
        """Whether one of these brokers has given no sign of life for long, although it was asked for one."""
        self._outbox.now = now
        return self._liveness.stands_still or self._hosts.stands_still(now)

    def close(self, now: int) -> None:
        """Sends Goodbye and ends everything. What has no answer by then is uncertain."""
        self._outbox.now = now
        if self.phase is ConnectionPhase.OPEN:
            self._subscriptions.send_acknowledgements()
            self._outbox.send_last(Goodbye())
        self._shut("the connection was closed", None)

    def end(self, error: GaplessError, now: int) -> None:
        """There will be no broker any more, for this reason. What has no answer by then is uncertain."""
        self._outbox.now = now
        self._shut(str(error), error)

    # What to do.

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        due = self._deadlines.next()
        if self._hosts.is_used and (theirs := self._hosts.deadline()) is not None:
            return theirs if due is None else min(due, theirs)
        return due

    def take_effects(self) -> list[Effect]:
        """Returns what to do, in order; empty until something else happens."""
        effects = self._outbox.take()
        if self._hosts.is_used:
            effects += self._hosts.take()
            effects += self._outbox.take()
        return effects

    def take_frames(self) -> Sequence[SendFrames]:
        """Returns frames that need not wait until all commands of a turn were given; `take_effects` has the others."""
        return self._outbox.take_frames()

    # Publishers with their pubends' hosts.

    def adopt(self, publisher: PublisherCore) -> None:
        """Goes on with a publisher of another session of this client. Its number is unique in all of them."""
        publisher.move(self._outbox, self._deadlines)
        self.publishers.add(publisher)

    def send_last(self, message: ClientMessage) -> None:
        """Sends a control message behind everything else, if there is a session."""
        if self._outbox.open:
            self._outbox.send_last(message)

    def set_timer(self, timer: ClientTimer, at: int) -> None:
        """Sets a timer of the connection."""
        self._deadlines.set((timer, 0), at)

    def _begin_host_session(self, address: str, links: int) -> ClientCore:
        core = ClientCore(
            (address,),
            client_id=self.client_id,
            instance=f"{self._instance}/{links}",
            attempts=self._outbox.attempts,
            random=self._random,
            credentials=self._credentials,
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

    # Connecting.

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _dial(self) -> None:
        self.phase = ConnectionPhase.DIALLING
        address = self._reaching.next()
        self._outbox.link = self._reaching.turn
        self._outbox.emit(OpenLink(self._outbox.link, address))
        self._deadlines.set((ClientTimer.CONNECT, 0), self._outbox.now + self._settings.connect)

    def _on_greeting(self, payload: bytes) -> None:
        if session_of(payload):
            return
        message = decode_server(payload)
        if isinstance(message, HelloRefused):
            self._refused(message)
        elif isinstance(message, Welcome):
            self._welcomed(message)
        elif isinstance(message, Challenge):
            self._outbox.send_last(Proof(self._proving.answer(message.data)))
        else:
            raise RemoteProtocolError(f"the broker answered Hello with {type(message).__name__}")

    def _welcomed(self, welcome: Welcome) -> None:
        if not welcome.session or welcome.protocol != PROTOCOL or welcome.heartbeat_ms < 1:
            raise RemoteProtocolError("the broker's Welcome makes no sense")
        if self.network and welcome.network != self.network:
            reason = f"{self._reaching.address} is in network {welcome.network!r}, not in {self.network!r}"
            self._refused(HelloRefused(Code.NETWORK_MISMATCH, reason))
            return
        now = self._outbox.now
        self.phase = ConnectionPhase.OPEN
        self.network = welcome.network
        self._opened_at = now
        self._reaching.on_open()
        self._outbox.begin_session(welcome)
        self._received = Received()
        self._deadlines.clear((ClientTimer.CONNECT, 0))
        self._liveness.begin(welcome.heartbeat_ms)
        self._outbox.tell(RaiseLimit(self._outbox.link, welcome.max_frame_bytes))
        self._outbox.tell(Connected(self._reaching.address, welcome.node, welcome.network))
        for registry in self._registries.values():
            registry.on_session()

    def _refused(self, refused: HelloRefused) -> None:
        """A refusal for good closes the connection once every address has given one since the last session."""
        if refused.code in TEMPORARY:
            self._hang_up(refused.reason)
            return
        error = error_of(refused.code, refused.reason)
        if self._reaching.on_refusal(error):
            self._shut(str(error), error)
        else:
            self._outbox.tell(Notice(f"{self._reaching.address} refuses this client: {refused.reason}"))
            self._hang_up(refused.reason)

    def _hang_up(self, reason: str) -> None:
        self._outbox.emit(CloseLink(self._outbox.link, reason))
        self._lost(reason)

    def _lost(self, reason: str) -> None:
        """The link is gone: tries the next address after a delay."""
        now = self._outbox.now
        self.trouble = reason
        if self.phase is ConnectionPhase.OPEN:
            if now - self._opened_at >= self._settings.steady:
                self._reaching.on_steady()
            self._end_session()
            self._outbox.tell(Disconnected(self._reaching.address, reason))
        elif reasons := self._reaching.on_failure(reason):
            self._outbox.tell(Unreachable(reasons))
        self.phase = ConnectionPhase.WAITING
        self._outbox.link = 0
        self._deadlines.set((ClientTimer.CONNECT, 0), now + self._reaching.delay())

    def _end_session(self) -> None:
        self._outbox.session = 0
        self._liveness.end()
        for registry in self._registries.values():
            registry.on_session_over()
        self._hosts.on_session_over()

    def _shut(self, reason: str, error: GaplessError | None) -> None:
        """Closes the connection for good: no effect follows."""
        if self.phase is ConnectionPhase.CLOSED:
            return
        if self._outbox.link:
            self._outbox.emit(CloseLink(self._outbox.link, reason))
        self.phase = ConnectionPhase.CLOSED
        self._outbox.session = self._outbox.link = 0
        for effect in self._hosts.close(self._outbox.now):
            self._outbox.tell(effect)
        self.publishers.fail_all(PublishUncertainError(f"{reason} before the broker answered"))
        self._subscriptions.fail_all(error or ConnectionClosedError(reason))
        self._requests.fail_all(error or ConnectionClosedError(reason))
        self._deadlines.clear_all()
        self._outbox.tell(Closed(error))

    # In a session.

    def _on_frame(self, payload: bytes) -> None:
        if not payload.startswith(self._outbox.head):
            session_of(payload)  # raises if it is too short for one
            return
        message = decode_server(payload)
        if not (isinstance(message, Closing) and is_unnumbered(payload)) and not self._received.is_new(payload):
            return  # a repeated frame
        handler = self._handlers.get(type(message))
        if handler is None:
            raise RemoteProtocolError(f"an unexpected {type(message).__name__}")
        handler(message)

    def _on_request_failed(self, failed: RequestFailed) -> None:
        is_used = any(self._subscriptions) or any(self.publishers)
        if not is_used and self._requests.goes_elsewhere(failed, self._reaching.address, self._reaching.count):
            self._hang_up(failed.reason)
            self._deadlines.set((ClientTimer.CONNECT, 0), self._outbox.now)  # nothing has failed: it goes on at once
        elif self._requests.get(failed.request) is not None:
            self._fail_request(failed)
        else:
            self._subscriptions.on_request_failed(failed)

    def _on_alive(self, message: BrokerHeartbeat) -> None:
        """Every frame counts as a sign of life already. But from a broker that is cut off nothing can come."""
        if not message.cut_off:
            self._reaching.on_served()
        elif self._reaching.leaves_cut_off(self._outbox.now):
            self._hang_up(f"the broker is cut off: {message.cut_off}")

    def _on_closing(self, closing: Closing) -> None:
        self._hang_up(closing.reason or "the broker ended the session")

    def _on_own_deadline(self, timer: ClientTimer) -> None:
        if timer is ClientTimer.HEARTBEAT:
            self._liveness.on_heartbeat()
        elif timer is ClientTimer.SILENCE:
            if reason := self._liveness.on_silence():
                self._hang_up(reason)
        elif self.phase is ConnectionPhase.WAITING:
            self._dial()
        else:
            self._hang_up("the broker did not answer in time")
