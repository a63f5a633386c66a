"""Sessions with a broker, one after another, and the publishers in them, which outlive them (protocol: session).

    NEW ─start─▶ ASKING ─credentials─▶ DIALLING ─link up─▶ GREETING ─Welcome─▶ OPEN
                    ▲ │                    │                  │                 │
                    │ └────────── none, refused, lost, too late ────────────────┤
                    └───────────────── WAITING ◀────────────────────────────────┘

    any ─close(), refused for good─▶ CLOSED

A client without credentials is never ASKING.
Links are numbered: what comes from an earlier link is ignored, as is every frame of an earlier session.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from gapless.core.client.credentials import OPEN_LINK, Credentials, LinkSecurity, NoCredentials, check_size
from gapless.core.client.link.addresses import Addresses
from gapless.core.client.link.backoff import MILLISECOND, SECOND, Backoff
from gapless.core.client.link.effects import (
    AskCredentials,
    Closed,
    CloseLink,
    Connected,
    Delayed,
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
from gapless.core.client.publishing.publisher import PublisherCore
from gapless.core.client.renewal import RENEWAL, Renewal
from gapless.core.deadlines import Deadlines
from gapless.core.wire.codec import decode_server, session_of
from gapless.core.wire.messages import (
    PROTOCOL,
    BrokerHeartbeat,
    Challenge,
    ClientMessage,
    Closing,
    Code,
    Goodbye,
    Hello,
    HelloRefused,
    PositionsStored,
    Proof,
    Published,
    PublisherOpened,
    PublishRefused,
    Renewed,
    RequestFailed,
    Waiting,
    Welcome,
)
from gapless.core.wire.messages.session import FRAME_BYTES_MAX
from gapless.core.wire.numbering import FramesLostError, Received, is_unnumbered
from gapless.errors import AuthenticationError, GaplessError, PublishUncertainError, RemoteProtocolError

if TYPE_CHECKING:
    from random import Random

    from gapless.core.client.link.attempts import Attempts
    from gapless.core.stream.columns import EventColumns
    from gapless.core.wire.tokens import BatchTokens


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The times of a client, in nanoseconds, and how much its publishers may give to a link."""

    connect: int = 10 * SECOND
    """How long dialling and greeting may take together; what the broker says that it takes longer is not in it."""
    wait_most: int = 60 * SECOND
    """How long a broker may say that it takes longer, on one link."""
    credentials: int = 30 * SECOND
    """How long the application may take to say its credentials."""
    renew_first: int = SECOND
    """The first delay before credentials that could not be renewed are asked for again."""
    renew_most: int = 30 * SECOND
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
    ASKING = "asking"
    """For the application's credentials."""
    DIALLING = "dialling"
    GREETING = "greeting"
    OPEN = "open"
    CLOSED = "closed"


class SessionCore:
    """Publishers, and the sessions in which they are, with one broker at a time: driven as a `ClientCore` is."""

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
        links: int = 0,
    ) -> None:
        """`instance` is unique to this object, `attempts` is common to all of this process.

        `random` is used for the jitter of delays alone.

        `has_credentials`: whether `AskCredentials` gets an answer; without, the client says nothing of itself.
        `links`: below the numbers of its links, a multiple of the number of addresses.
        """
        assert addresses
        self.phase = ConnectionPhase.NEW
        self.client_id = client_id
        self.network = ""
        """The network's id. From the first Welcome on, no other network is accepted."""
        self.trouble = ""
        """Why the newest link was lost, or did not come up."""
        self._instance = instance
        self._has_credentials = has_credentials
        self._proving: Credentials = NoCredentials()
        self._security = OPEN_LINK
        self._dismissed = ""
        """Why the broker has ended the newest session, where it said so."""
        self._may_wait = 0
        """How much longer the broker may still say that it takes, on this link."""
        self._settings = settings or ClientSettings()
        self._random = random
        delays = Backoff(random, self._settings.backoff_first, self._settings.backoff_most)
        self._reaching = Addresses(addresses, delays, links)
        self._outbox = ClientOutbox(self._settings.link_bytes, attempts)
        self._deadlines: Deadlines[Key] = Deadlines()
        self._opened_at = 0
        self._received = Received()
        self._liveness = Liveness(self._outbox, self._deadlines)
        self._renewal = Renewal(
            self._outbox, self._deadlines, Backoff(random, self._settings.renew_first, self._settings.renew_most)
        )
        self.publishers: ClientRegistry[PublisherCore] = ClientRegistry(self._outbox)
        """Those of this session."""
        self._registries: dict[ClientTimer, ClientRegistry[Any]] = {ClientTimer.PUBLISHER: self.publishers}
        self._handlers: dict[type, Callable[[Any], None]] = {
            BrokerHeartbeat: self._on_alive,
            Closing: self._on_closing,
            PublisherOpened: self.publishers.forward(PublisherCore.on_opened, "publisher"),
            Published: self.publishers.forward(PublisherCore.on_published, "publisher"),
            PositionsStored: self.publishers.forward(PublisherCore.on_stored, "publisher"),
            PublishRefused: self.publishers.forward(PublisherCore.on_refused, "publisher"),
            Renewed: self._renewal.on_renewed,
            RequestFailed: self._on_request_failed,
        }

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
        return self.publishers.get(number)

    # What happened.

    def on_credentials(self, link: int, credentials: Credentials, now: int) -> None:
        """The application has said its credentials: dials, or renews those of the session."""
        if link != self._outbox.link:
            return
        self._outbox.now = now
        if self.phase is ConnectionPhase.ASKING:
            self._proving = credentials
            self._open_link()
        elif self.phase is ConnectionPhase.OPEN:
            self._renewal.on_credentials(credentials)

    def on_no_credentials(self, link: int, reason: str, now: int) -> None:
        """The application has none now, for this reason."""
        if link != self._outbox.link:
            return
        self._outbox.now = now
        if self.phase is ConnectionPhase.ASKING:
            self._lost(reason)
        elif self.phase is ConnectionPhase.OPEN:
            self._renewal.on_failure(reason)

    def on_link_up(self, link: int, security: LinkSecurity, now: int) -> None:
        """The link that was dialled is up: sends Hello."""
        if self.phase is not ConnectionPhase.DIALLING or link != self._outbox.link:
            return
        self._outbox.now = now
        self.phase = ConnectionPhase.GREETING
        self._security = security
        self._may_wait = self._settings.wait_most
        proving = self._proving
        try:
            hello = Hello(
                PROTOCOL,
                self.network,
                self.client_id,
                self._instance,
                proving.first(security.binding, secure=security.secure),  # and in no variable, which tracebacks show
                proving.mechanism,
            )
            if hello.credentials:
                check_size(hello)
        except GaplessError as error:
            self._shut(str(error), error)
        else:
            self._outbox.send_last(hello)

    def on_link_down(self, link: int, reason: str, now: int) -> None:
        """A link is gone, or could not be dialled."""
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

    def on_deadline(self, now: int) -> None:
        """The deadline has come."""
        self._outbox.now = now
        for timer, number in self._deadlines.take_expired(now):
            if timer in self._registries:
                self._registries[timer].on_deadline(number)
            else:
                self._on_own_deadline(timer)

    # Commands.

    def start(self, now: int) -> None:
        """Begins to connect."""
        assert self.phase is ConnectionPhase.NEW
        self._outbox.now = now
        self._dial()

    def publish(self, publisher: int, events: EventColumns, tokens: BatchTokens, now: int) -> int:
        """Queues a batch of a publisher that is not over. Returns the ticket under which its answer comes."""
        self._outbox.now = now
        core = self.publishers.get(publisher)
        assert core is not None
        return core.publish(events, tokens)

    def close_publisher(self, publisher: int, now: int) -> None:
        """Ends a publisher. Batches without an answer are uncertain."""
        self._outbox.now = now
        self.publishers.fail(publisher, PublishUncertainError("the publisher was closed before the answer"))

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

    def ask_for_life(self, now: int) -> None:
        """Asks the broker for a sign of life, if there is a session."""
        self._outbox.now = now
        self._liveness.ask()

    def stands_still(self, now: int) -> bool:
        """Whether the broker has given no sign of life for long, although it was asked for one."""
        self._outbox.now = now
        return self._liveness.stands_still

    def close(self, now: int) -> None:
        """Sends Goodbye and ends everything. What has no answer by then is uncertain."""
        self._outbox.now = now
        if self.phase is ConnectionPhase.OPEN:
            self._outbox.send_last(Goodbye())
        self._shut("the connection was closed", None)

    # What to do.

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called."""
        return self._deadlines.next()

    def take_effects(self) -> list[Effect]:
        """Returns what to do, in order; empty until something else happens."""
        return self._outbox.take()

    def take_frames(self) -> Sequence[SendFrames]:
        """Returns frames that need not wait until all commands of a turn were given; `take_effects` has the others."""
        return self._outbox.take_frames()

    # Connecting.

    def _dial(self) -> None:
        """Tries the next address. The credentials come first: a broker does not wait long for a Hello."""
        address = self._reaching.next()
        self._outbox.link = self._reaching.turn
        if not self._has_credentials:
            self._open_link()
            return
        self.phase = ConnectionPhase.ASKING
        self._outbox.emit(AskCredentials(self._outbox.link, address))
        self._deadlines.set((ClientTimer.CONNECT, 0), self._outbox.now + self._settings.credentials)

    def _open_link(self) -> None:
        self.phase = ConnectionPhase.DIALLING
        self._outbox.emit(OpenLink(self._outbox.link, self._reaching.address))
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
            self._answer(message)
        elif isinstance(message, Waiting):
            self._wait_longer(message.wait_ms * MILLISECOND)
        else:
            raise RemoteProtocolError(f"the broker answered Hello with {type(message).__name__}")

    def _wait_longer(self, wait: int) -> None:
        """The broker says that it takes so long: no longer than `wait_most` in all, for it may say that for ever."""
        wait = max(0, min(wait, self._may_wait))
        self._may_wait -= wait
        self._outbox.tell(Delayed(self._reaching.address, wait))
        key, until = (ClientTimer.CONNECT, 0), self._outbox.now + wait + self._settings.connect
        self._deadlines.set(key, max(until, self._deadlines.at(key) or 0))

    def _answer(self, challenge: Challenge) -> None:
        proof = Proof(self._proving.answer(challenge.data))
        try:
            check_size(proof)
        except AuthenticationError as error:
            self._shut(str(error), error)
        else:
            self._outbox.send_last(proof)

    def _welcomed(self, welcome: Welcome) -> None:
        if not _makes_sense(welcome):
            raise RemoteProtocolError("the broker's Welcome makes no sense")
        self._proving.check_welcome()
        if self.network and welcome.network != self.network:
            reason = f"{self._reaching.address} is in network {welcome.network!r}, not in {self.network!r}"
            self._refused(HelloRefused(Code.NETWORK_MISMATCH, reason))
            return
        now = self._outbox.now
        self.phase = ConnectionPhase.OPEN
        self.network = welcome.network
        self._opened_at = now
        self._dismissed = ""
        self._reaching.on_open()
        self._outbox.begin_session(welcome)
        self._received = Received()
        self._deadlines.clear((ClientTimer.CONNECT, 0))
        self._liveness.begin(welcome.heartbeat_ms)
        self._proving = NoCredentials()  # they have done what they can
        if self._has_credentials:
            self._renewal.begin(welcome, self._reaching.address, self._security)
        self._outbox.tell(RaiseLimit(self._outbox.link, welcome.max_frame_bytes))
        self._outbox.tell(Connected(self._reaching.address, welcome.node, welcome.network))
        for registry in self._registries.values():
            registry.on_session()

    def _refused(self, refused: HelloRefused) -> None:
        """A refusal for good closes the connection once every address has given one since the last session."""
        if refused.code in TEMPORARY:
            self._hang_up(refused.reason)
            return
        # Whoever was sent away and may not come back hears why: a refusal does not tell.
        why = f"; the session before was ended because {self._dismissed}" if self._dismissed else ""
        error = error_of(refused.code, f"{refused.reason}{why}")
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
            self._outbox.tell(Unreachable(reasons, self._reaching.are_barred))
        self.phase = ConnectionPhase.WAITING
        self._proving = NoCredentials()
        self._outbox.link = 0
        self._deadlines.set((ClientTimer.CONNECT, 0), now + self._reaching.delay())

    def _end_session(self) -> None:
        self._outbox.session = 0
        self._liveness.end()
        self._renewal.end()
        for registry in self._registries.values():
            registry.on_session_over()

    def _shut(self, reason: str, error: GaplessError | None) -> None:
        """Closes the connection for good: no effect follows."""
        if self.phase is ConnectionPhase.CLOSED:
            return
        if self._outbox.link:
            self._outbox.emit(CloseLink(self._outbox.link, reason))
        self.phase = ConnectionPhase.CLOSED
        self._proving = NoCredentials()
        self._outbox.session = self._outbox.link = 0
        self._fail_all(reason, error)
        self._deadlines.clear_all()
        self._outbox.tell(Closed(error))

    def _fail_all(self, reason: str, error: GaplessError | None) -> None:
        """Ends what lives through all sessions."""
        self.publishers.fail_all(PublishUncertainError(f"{reason} before the broker answered"))

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

    def _on_alive(self, message: BrokerHeartbeat) -> None:
        """Every frame counts as a sign of life already. But from a broker that is cut off nothing can come."""
        if not message.cut_off:
            self._reaching.on_served()
        elif self._reaching.leaves_cut_off(self._outbox.now):
            self._hang_up(f"the broker is cut off: {message.cut_off}")

    def _on_closing(self, closing: Closing) -> None:
        self._dismissed = closing.reason
        self._hang_up(closing.reason or "the broker ended the session")

    def _on_request_failed(self, failed: RequestFailed) -> None:
        if failed.request == RENEWAL:
            self._renewal.on_failure(failed.reason)

    def _on_own_deadline(self, timer: ClientTimer) -> None:
        if timer is ClientTimer.HEARTBEAT:
            self._liveness.on_heartbeat()
        elif timer is ClientTimer.SILENCE:
            if reason := self._liveness.on_silence():
                self._hang_up(reason)
        elif timer is ClientTimer.RENEWAL:
            self._renewal.on_deadline()
        elif self.phase is ConnectionPhase.WAITING:
            self._dial()
        elif self.phase is ConnectionPhase.ASKING:
            self._hang_up("the credentials did not come in time")
        else:
            self._hang_up("the broker did not answer in time")


def _makes_sense(welcome: Welcome) -> bool:
    """Whether a broker may say this. What it says is believed from then on, so its limits have limits."""
    least = min(
        welcome.session,
        welcome.heartbeat_ms,
        welcome.max_event_bytes,
        welcome.max_frame_bytes,
        welcome.window_batches,
        welcome.window_bytes,
    )
    return welcome.protocol == PROTOCOL and least > 0 and welcome.max_frame_bytes <= FRAME_BYTES_MAX
