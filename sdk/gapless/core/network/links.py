"""A link between two brokers, pure: who is at the other end, whether it lives, and the router's frames on it.

    dialer                                             listener
      │ ── NodeHello(who I am, whom I want, nonce) ──────────▶ │
      │ ◀───────────── NodeAnswer(who I am, nonce; its proof) ─│
      │ ── NodeProof ────────────────────────────────────────▶ │   up, if no other link between the two survives
   up │ ◀──────────────────────────────────────── Accepted │

Every payload begins with what it is and with the number of the link, which follows from the nonces: what was said on an
earlier link is not believed on a later one. A router's frame that is larger than `LinkSizes.part` travels in parts:
what is urgent overtakes between them, and each part that arrives shows that the link lives.

Each end says every `BEAT` how many bytes it has received. A link is over when three beats of one's own pass in which
nothing came, or three of the peer's that say that nothing reaches it. What was sent and is not said to have been
received waits there, whatever kernel or proxy holds it: so a router is told how full a link is, and so much is kept
back of what is not urgent that urgent frames have nothing to wait for (protocol: beats).
"""

from __future__ import annotations

import hmac
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from struct import Struct as Layout
from typing import Any, Final, TypeAlias

from msgspec import Struct

from gapless.core.foreign import UNREADABLE
from gapless.core.network.facts import BrokerId, LinkId
from gapless.core.network.greeting import (
    REASON_MAX,
    Accepted,
    Bye,
    Control,
    LinkIdentity,
    NodeAnswer,
    NodeHello,
    NodeProof,
    NodeWish,
    RefusedPeerError,
    Transcript,
    check_introduction,
    decode_control,
    encode_control,
)
from gapless.errors import RemoteProtocolError

SECOND: Final = 1_000_000_000
BEAT: Final = SECOND // 2
BEATS_MISSED_MAX: Final = 3
"""So many beats in a row may miss that anything came, or say that nothing arrives; then the link is over."""
GREETING_TIME: Final = 5 * SECOND
"""How long a link may take from the dial, or from its acceptance, until both ends are proven."""
GREETING_BYTES_MAX: Final = 4096
"""So much is taken in all from whoever has not proven who it is."""
QUEUE_BYTES_MAX: Final = 64 << 20
"""A link on which more waits than this is over."""

_HEAD = Layout("<BQ")
_COUNT = Layout("<Q")
HEAD_BYTES: Final = _HEAD.size
_CONTROL, _BEAT, _LAST, _PART, _LAST_URGENT, _PART_URGENT = range(6)

Payload: TypeAlias = "bytes | tuple[bytes, bytes]"

# ------------------------------------------------------------------------- what a link core asks for


class Connect(Struct, frozen=True, gc=False):
    """Dial a peer; answered by `on_connected`, or by `on_closed`."""

    link: LinkId
    peer: BrokerId
    address: str


class SendPayloads(Struct, frozen=True, gc=False):
    """Send these on a link, in this order; urgent ones overtake what has not left."""

    link: LinkId
    payloads: Sequence[Payload]
    urgent: bool


class RaiseFrameLimit(Struct, frozen=True, gc=False):
    """From now on take payloads of up to so many bytes."""

    link: LinkId
    limit: int


class EndLink(Struct, frozen=True, gc=False):
    """Give up a dial, or close a link once what was sent on it has left. Nothing more of it is to be said."""

    link: LinkId
    reason: str


class Waiting(Struct, frozen=True, gc=False):
    """So many bytes wait on a link that is up."""

    link: LinkId
    pending: int


class Received(Struct, frozen=True, gc=False):
    """A router's frame has arrived whole."""

    link: LinkId
    frame: bytes


class LinkTraffic:
    """What the links between this node and another one have carried, one after the other."""

    __slots__ = ("bytes_in", "bytes_out", "frames_in", "frames_out")

    def __init__(self) -> None:
        self.frames_in = self.frames_out = 0
        """Of routers, whole."""
        self.bytes_in = self.bytes_out = 0
        """Of these frames and of beats."""


class LinkPhase(Enum):
    """Where a link stands."""

    DIALING = "dialing"
    GREETING = "greeting"
    PROVING = "proving"
    """The own proof is sent; the peer's, or its acceptance, is to come."""
    UP = "up"
    OVER = "over"


class DeadLinkError(RemoteProtocolError):
    """Nothing gets through in one direction, or in none."""


class BrokerLink:
    """One link's life. What is wrong with it is raised as RemoteProtocolError: its table ends it."""

    def __init__(
        self,
        number: LinkId,
        me: LinkIdentity,
        nodes: Mapping[BrokerId, frozenset[str]],
        nonce: bytes,
        emit: Callable[[Any], None],
        *,
        dialed: BrokerId = "",
        address: str = "",
        certificate: str = "",
        drawn_at: int = 0,
    ) -> None:
        """`nodes`: the roles of each node of the map. `dialed`: whom this end dials; "": the other end has dialed.

        `drawn_at`: when the nonce was drawn, as its table counts.
        """
        self.number = number
        self.asked_at = drawn_at
        """When the question was put that the peer answers next, or has answered last: by its proof, or a beat."""
        self._challenged: int | None = None
        """A peer that says that more than so many bytes arrived has answered what was asked last; None: nobody asks."""
        self.is_answered = False
        """Whether the peer has answered that, and its table has not seen it yet."""
        self.phase = LinkPhase.DIALING if dialed else LinkPhase.GREETING
        self.peer = dialed
        """Whom it is to; a listener believes it from PROVING on, and stands on it when UP."""
        self.dialed = bool(dialed)
        self.address = address
        """Of the other end, for people."""
        self.certificate = certificate
        """Whose name the transport saw in the other end's certificate."""
        self.theirs: NodeHello | None = None
        self.began: int | None = None
        """When it came up."""
        self.is_wished_there = True
        """Whether the peer's router wishes for it, as far as the peer has said."""
        self._wish_said = True
        """What the peer knows of this end's wish."""
        self.pending = 0
        """How many bytes wait on it."""
        self.asked: int | None = None
        """When the other end was to say first who it is."""
        self.round_trip: int | None = None
        """How long it took to answer that, in nanoseconds."""
        self.traffic = LinkTraffic()
        """Where it counts what it carries: with what earlier links to the peer have carried, once it is up."""
        self.behind = 0
        """How old the oldest of what the peer had not confirmed was at the last beat. Up to a beat is normal."""
        self._unconfirmed: deque[tuple[int, int]] = deque()
        """What was sent in all at a beat, and when that was: from the first that the peer has not confirmed on."""
        self._me = me
        self._sizes = me.sizes
        self._nodes = nodes
        self._nonce = nonce
        self._emit = emit
        self._ours: NodeHello | None = None
        self._session = 0
        self._transcript: Transcript | None = None
        self._greeted = 0
        """Bytes taken from an end that is not proven."""
        self._urgent: list[Payload] = []
        self._urgent_bytes = 0
        """Of frames and beats; what else is said there is not counted at either end."""
        self._ordinary: deque[Payload] = deque()
        """What waits for room: urgent frames overtake it here, and nowhere else for sure."""
        self._parts: dict[bool, bytearray] = {True: bytearray(), False: bytearray()}
        self._taken = self._sent = self._heard_of = 0
        """Bytes to be sent in all, those sent, and those of them that the peer says it has received."""
        self._window = me.sizes.window
        self._heard_before = 0
        """What the peer had received at the last beat."""
        self._received = self._reported = 0
        self._silent = self._unheard = 0
        self._received_before = 0

    # What happened.

    def on_connected(self, certificate: str) -> None:
        """The dial was answered."""
        self.certificate = certificate
        self.phase = LinkPhase.GREETING
        self._ours = self._me.hello(self.peer, self._nonce)
        self._control(self._ours)

    def on_payload(self, payload: bytes) -> Control | None:
        """Takes in what arrived; a control message that is left to the table is returned."""
        if len(payload) < HEAD_BYTES:
            raise RemoteProtocolError(f"a payload of {len(payload)} bytes has no head")
        kind, session = _HEAD.unpack_from(payload)
        if self.phase is not LinkPhase.UP:
            self._greeted += len(payload)
            if self._greeted > GREETING_BYTES_MAX:
                raise RemoteProtocolError(f"it said more than {GREETING_BYTES_MAX} bytes before it was known")
        if session != self._session:
            return None  # of an earlier link between the two
        if kind == _CONTROL:
            return self._on_control(payload)
        if self.phase is not LinkPhase.UP:
            raise RemoteProtocolError("it must first say who it is")
        self._received += len(payload)
        self.traffic.bytes_in += len(payload)
        if kind == _BEAT:
            self._on_beat(payload)
        else:
            self._on_data(kind, payload)
            if self._received - self._reported >= self._sizes.report:
                self._report()
        return None

    def on_beat_due(self, now: int) -> None:
        """Half a second has passed. Raises DeadLinkError when nothing comes any more."""
        self._silent = 0 if self._received > self._received_before else self._silent + 1
        self._received_before = self._received
        if self._silent >= BEATS_MISSED_MAX:
            raise DeadLinkError(f"nothing was heard of it for {BEATS_MISSED_MAX * BEAT / SECOND:g} s")
        if self._taken - self._sent > QUEUE_BYTES_MAX:
            raise DeadLinkError(f"more than {QUEUE_BYTES_MAX:,} bytes wait for it")
        self._window = max(self._sizes.window, (self._heard_of - self._heard_before) // 2)
        self._heard_before = self._heard_of
        while self._unconfirmed and self._unconfirmed[0][0] <= self._heard_of:
            self._unconfirmed.popleft()
        self.behind = now - self._unconfirmed[0][1] if self._unconfirmed else 0
        self._report()
        self._unconfirmed.append((self._sent + self._urgent_bytes, now))

    # Commands.

    def send(self, frame: bytes, *, urgent: bool) -> None:
        """Sends a router's frame, with the others of its turn."""
        assert self.phase is LinkPhase.UP
        before = self._taken
        put = self._urgent.append if urgent else self._ordinary.append
        last, part = (_LAST_URGENT, _PART_URGENT) if urgent else (_LAST, _PART)
        size = self._sizes.part
        if len(frame) > size:
            head = _HEAD.pack(part, self._session)
            cut = (len(frame) - 1) // size * size
            for at in range(0, cut, size):
                put((head, frame[at : at + size]))
            self._taken += cut + cut // size * HEAD_BYTES
            frame = frame[cut:]
        put((_HEAD.pack(last, self._session), frame))
        self.traffic.frames_out += 1
        self._taken += HEAD_BYTES + len(frame)
        if urgent:
            self._urgent_bytes += self._taken - before

    def flush(self) -> None:
        """Asks for what was sent to be sent: what is urgent at once, and of the rest what there is room for."""
        if self._urgent:
            urgent, self._urgent = self._urgent, []
            self._sent += self._urgent_bytes
            self.traffic.bytes_out += self._urgent_bytes
            self._urgent_bytes = 0
            self._emit(SendPayloads(self.number, urgent, urgent=True))
        if self._ordinary:
            upto, before, ordinary = self._heard_of + self._window, self._sent, []
            while self._ordinary and self._sent < upto:
                payload = self._ordinary.popleft()
                self._sent += _size(payload)
                ordinary.append(payload)
            if ordinary:
                self.traffic.bytes_out += self._sent - before
                self._emit(SendPayloads(self.number, ordinary, urgent=False))
        if self.phase is LinkPhase.UP:
            self._say_pending()

    def challenge(self, now: int) -> None:
        """Asks the peer whether it lives: with the next beat in which it says that this one has arrived, it answers."""
        assert self.phase is LinkPhase.UP
        if self._challenged is None:
            self.asked_at, self._challenged = now, self._sent
            self._report()

    @property
    def is_unanswered(self) -> bool:
        """Whether nothing has come from the other end."""
        return not self._greeted and self.phase in {LinkPhase.DIALING, LinkPhase.GREETING}

    @property
    def is_proven(self) -> bool:
        """Whether the peer has shown that it knows the network's secret."""
        return self.phase is LinkPhase.UP or (self.phase is LinkPhase.PROVING and self.dialed)

    def say_proof(self, shut_out: int) -> None:
        """The dialer's last word of the handshake. `shut_out`: see NodeProof."""
        self._control(NodeProof(self._proof(b"dialer"), shut_out))

    def say_accepted(self, shut_out: int) -> None:
        """The listener's last word of the handshake. `shut_out`: see Accepted."""
        self._control(Accepted(shut_out))

    def say_bye(self, reason: str, *, duplicate: bool = False, later: int = 0) -> None:
        """Why this end closes."""
        if self.phase is not LinkPhase.DIALING:
            self._control(Bye(reason[:REASON_MAX], duplicate, later))

    def say_wish(self, *, wanted: bool) -> None:
        """Whether this end's router wishes for the link, where the peer does not know that."""
        assert self.phase is LinkPhase.UP
        if wanted != self._wish_said:
            self._wish_said = wanted
            self._control(NodeWish(wanted))

    def come_up(self, now: int, traffic: LinkTraffic) -> None:
        """Both ends are proven. `traffic`: of all links to the peer."""
        self.traffic = traffic
        self.phase = LinkPhase.UP
        self.began = now
        self._emit(RaiseFrameLimit(self.number, HEAD_BYTES + self._sizes.part))

    # The handshake.

    def _on_control(self, payload: bytes) -> Control | None:
        try:
            message: Control = decode_control(memoryview(payload)[HEAD_BYTES:])
        except UNREADABLE as error:
            raise RemoteProtocolError(f"it said what is no message of links: {error}") from error
        expected = Bye, self._expected()
        if type(message) not in expected:
            raise RemoteProtocolError(f"it said {type(message).__name__} where {expected[1].__name__} was to come")
        if type(message) is NodeHello:
            self._on_hello(message)
        elif type(message) is NodeAnswer:
            self._on_answer(message)
            return message
        elif type(message) is NodeProof:
            self._check_proof(message.proof, b"dialer")
            return message
        else:
            return message
        return None

    def _expected(self) -> type:
        if self.phase is LinkPhase.GREETING:
            return NodeAnswer if self.dialed else NodeHello
        if self.phase is LinkPhase.PROVING:
            return Accepted if self.dialed else NodeProof
        return NodeWish

    def _on_hello(self, theirs: NodeHello) -> None:
        self._take_introduction(theirs)
        self.peer = theirs.node
        ours = self._ours = self._me.hello(theirs.node, self._nonce)
        self._know_both(theirs, ours)
        self._control(NodeAnswer(ours, self._proof(b"listener")), session=0)

    def _on_answer(self, message: NodeAnswer) -> None:
        assert self._ours is not None
        self._take_introduction(message.hello)
        self._know_both(self._ours, message.hello)
        self._check_proof(message.proof, b"listener")

    def _take_introduction(self, theirs: NodeHello) -> None:
        check_introduction(self._me, self._nodes, theirs, self.peer if self.dialed else theirs.node, self.certificate)
        self.theirs = theirs

    def _know_both(self, dialer: NodeHello, listener: NodeHello) -> None:
        self._transcript = Transcript.of(dialer, listener, self._me.secret)
        self._session = self._transcript.session
        self.phase = LinkPhase.PROVING

    def _proof(self, end: bytes) -> bytes:
        assert self._transcript is not None
        return self._transcript.proof(end)

    def _check_proof(self, proof: bytes, end: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(end)):
            raise RefusedPeerError(
                f"it calls itself {self.peer!r} and does not know the network's secret",
                "the proof is wrong: the secrets differ",
            )

    # Frames and beats.

    def _on_data(self, kind: int, payload: bytes) -> None:
        if kind > _PART_URGENT:
            raise RemoteProtocolError(f"it sent a payload of the kind {kind}, which there is not")
        parts = self._parts[kind >= _LAST_URGENT]
        if len(parts) + len(payload) - HEAD_BYTES > self._me.frame_bytes:
            raise RemoteProtocolError(f"it sent a frame of more than {self._me.frame_bytes} bytes")
        if kind & 1:  # there is more to come of it
            parts += memoryview(payload)[HEAD_BYTES:]
            return
        frame = payload[HEAD_BYTES:]
        if parts:
            frame = bytes(parts) + frame
            parts.clear()
        self.traffic.frames_in += 1
        self._emit(Received(self.number, frame))

    def _on_beat(self, payload: bytes) -> None:
        if len(payload) != HEAD_BYTES + _COUNT.size:
            raise RemoteProtocolError(f"it sent a beat of {len(payload)} bytes")
        (heard,) = _COUNT.unpack_from(payload, HEAD_BYTES)
        if heard > self._sent:
            raise RemoteProtocolError(f"it says that {heard} bytes arrived, of {self._sent} that were sent")
        if self._challenged is not None and heard > self._challenged:
            self._challenged, self.is_answered = None, True
        if heard > self._heard_of or self._sent == heard:
            self._heard_of, self._unheard = heard, 0
        else:
            self._unheard += 1
            if self._unheard >= BEATS_MISSED_MAX:
                raise DeadLinkError("it says that nothing arrives there: the link works one way only")
        self._say_pending()

    def _report(self) -> None:
        self._reported = self._received
        self._urgent.append(_HEAD.pack(_BEAT, self._session) + _COUNT.pack(self._received))
        self._taken += HEAD_BYTES + _COUNT.size
        self._urgent_bytes += HEAD_BYTES + _COUNT.size

    def _say_pending(self) -> None:
        pending = max(0, self._taken - self._heard_of - self._sizes.underway)
        if pending != self.pending:
            self.pending = pending
            self._emit(Waiting(self.number, pending))

    def _control(self, message: Control, *, session: int | None = None) -> None:
        head = _HEAD.pack(_CONTROL, self._session if session is None else session)
        self._urgent.append(head + encode_control(message))


def _size(payload: Payload) -> int:
    return len(payload) if isinstance(payload, bytes) else len(payload[0]) + len(payload[1])
