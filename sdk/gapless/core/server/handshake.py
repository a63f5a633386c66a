"""The handshake: the only frames of a connection that are parsed before the client is authenticated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from gapless.core.foreign import UNREADABLE
from gapless.core.principals import NOBODY, Admission, Later, Principal, Refusal
from gapless.core.server.limits import BrokerIdentity, SessionLimits
from gapless.core.wire.codec import session_of
from gapless.core.wire.messages import (
    PROTOCOL,
    AddUser,
    AskStatus,
    Challenge,
    ChangeUser,
    Code,
    Extend,
    Hello,
    HelloRefused,
    ListUsers,
    Proof,
    RemoveUser,
    Renew,
    Settle,
    Take,
    Welcome,
)
from gapless.core.wire.messages.checks import HELLO_BYTES_MAX, problem_of
from gapless.core.wire.numbering import SESSION_BYTES
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.core.ports import Authentication
    from gapless.core.principals import PeerInfo
    from gapless.core.server.reception import Reception

_First = TypeVar("_First", Hello, Proof)
ROUNDS_MAX: Final = 8
"""How often a client may be challenged."""


ANSWERS: Final = tuple(
    kind.__name__ for kind in (AskStatus, Renew, AddUser, ChangeUser, RemoveUser, ListUsers, Take, Settle, Extend)
)
"""See `Welcome.answers`."""
NOT_VALID: Final = "the credentials are not valid here"
"""All that a client hears whose credentials are wrong, whatever is wrong with them."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A client whose handshake has succeeded."""

    client_id: str
    instance: str
    principal: Principal
    until: int | None
    """As in `Admission`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A client is not let in."""

    answer: HelloRefused
    reason: str
    """For the broker's log."""
    principal: Principal = NOBODY
    """Who the client is, if that is known."""

    @classmethod
    def of(cls, code: Code, reason: str) -> Refused:
        """The client hears the same that is logged."""
        return cls(HelloRefused(code, reason), reason)


@dataclass(frozen=True, slots=True)
class Postponed:
    """What becomes of the client holds after a while."""

    wait: int
    """Nanoseconds."""
    then: Admitted | Challenge | Refused


class Handshake:
    """The handshake of one client: a Hello, and a Proof for each Challenge. No other frame is parsed."""

    __slots__ = ("_authentication", "_hello", "_rounds")

    def __init__(self) -> None:
        self._hello: Hello | None = None
        self._authentication: Authentication | None = None
        self._rounds = 0

    @property
    def client_id(self) -> str:
        """What the client calls itself; "" if it has not said."""
        return "" if self._hello is None else self._hello.client_id

    @property
    def awaited(self) -> str:
        """The name of the frame that has to come next."""
        return "Hello" if self._hello is None else "Proof"

    def on_frame(
        self, payload: bytes, peer: PeerInfo, broker: BrokerIdentity, reception: Reception
    ) -> Admitted | Challenge | Refused | Postponed:
        """Judges the next frame. Before authentication the answer reveals nothing about the network.

        Raises RemoteProtocolError if it is not the frame that has to come, and whatever the authenticator raises.
        """
        if self._hello is None or self._authentication is None:
            hello = self._hello = _parse(payload, Hello, "first frame")
            if hello.protocol != PROTOCOL:
                reason = f"this broker speaks protocol {PROTOCOL}, the client {hello.protocol}"
                return Refused.of(Code.PROTOCOL_VERSION, reason)
            problem = problem_of(hello)
            if problem is not None:
                return Refused.of(*problem)
            self._authentication = reception.begin(hello.mechanism, hello.client_id, peer)
            if self._authentication is None:
                return Refused.of(Code.UNAUTHORIZED, nobody_judges(hello.mechanism, reception))
            credentials = hello.credentials
        else:
            hello, credentials = self._hello, _parse(payload, Proof, "answer to a challenge").data
        judged = self._authentication.answer(credentials)
        if isinstance(judged, Later):
            return Postponed(judged.wait, self._verdict(judged.then, hello, broker, reception))
        return self._verdict(judged, hello, broker, reception)

    def _verdict(
        self, judged: Admission | Refusal | bytes, hello: Hello, broker: BrokerIdentity, reception: Reception
    ) -> Admitted | Challenge | Refused:
        if isinstance(judged, bytes):
            self._rounds += 1
            if self._rounds <= ROUNDS_MAX:
                return Challenge(judged)
            return Refused.of(Code.UNAUTHORIZED, f"{ROUNDS_MAX} challenges did not tell who the client is")
        if isinstance(judged, Refusal):
            return Refused(HelloRefused(Code.UNAUTHORIZED, NOT_VALID), judged.reason)
        if not judged.principal.name and not reception.is_within:
            reason = "the authenticator has given it no name, and only the broker's own process goes without one"
            return Refused(HelloRefused(Code.UNAUTHORIZED, NOT_VALID), reason)
        # After the authentication, because the answer reveals the network.
        if hello.network and hello.network != broker.network:
            reason = f"this broker is in network {broker.network!r}, not in {hello.network!r}"
            return Refused(HelloRefused(Code.NETWORK_MISMATCH, reason), reason, judged.principal)
        return Admitted(hello.client_id, hello.instance, judged.principal, judged.until)


def nobody_judges(mechanism: str, reception: Reception) -> str:
    """Why a client with such credentials is not let in by anybody."""
    offered = f"offers {mechanism!a}" if mechanism else "offers no credentials"
    return f"this broker takes {reception.takes()}; the client {offered}"


def _parse(payload: bytes, kind: type[_First], which: str) -> _First:
    """Decodes a Hello or a Proof. Raises RemoteProtocolError if the payload is anything else."""
    if len(payload) > HELLO_BYTES_MAX:
        raise RemoteProtocolError(f"the {which} has {len(payload)} bytes, more than {HELLO_BYTES_MAX}")
    if session_of(payload):
        raise RemoteProtocolError(f"the {which} names a session; it must be a {kind.__name__}")
    try:
        return msgspec.msgpack.decode(memoryview(payload)[SESSION_BYTES:], type=kind)
    except UNREADABLE as error:
        raise RemoteProtocolError(f"the {which} is not a {kind.__name__}: {error}") from error


def welcome(session: int, broker: BrokerIdentity, limits: SessionLimits, expires_ms: int) -> Welcome:
    """Returns the Welcome for an admitted client; `expires_ms`: when its credentials expire, or 0."""
    return Welcome(
        protocol=PROTOCOL,
        session=session,
        network=broker.network,
        node=broker.node,
        durable=broker.durable,
        heartbeat_ms=limits.heartbeat // 1_000_000,
        max_event_bytes=limits.event_bytes,
        max_frame_bytes=limits.frame_bytes,
        window_batches=limits.window_batches,
        window_bytes=limits.window_bytes,
        answers=ANSWERS,
        expires_ms=expires_ms,
    )
