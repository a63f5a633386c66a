"""The first frame of a connection: the only one that is parsed before its sender is authenticated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from gapless.core.codec import session_of
from gapless.core.messages import PROTOCOL, Code, Hello, Refused, Welcome
from gapless.core.messages.checks import problem_of
from gapless.core.numbering import SESSION_BYTES
from gapless.core.sessions.limits import HELLO_BYTES_MAX, BrokerIdentity, Limits
from gapless.errors import RemoteProtocolError

if TYPE_CHECKING:
    from gapless.spi import Authenticator

_decode_hello = msgspec.msgpack.Decoder(Hello).decode


@dataclass(frozen=True, slots=True)
class Admitted:
    """A client that may come in."""

    client_id: str
    instance: str
    principal: str


def parse_hello(payload: bytes) -> Hello:
    """The Hello in a payload. Raises RemoteProtocolError when it holds anything else."""
    if len(payload) > HELLO_BYTES_MAX:
        raise RemoteProtocolError(f"the first frame has {len(payload)} bytes, more than {HELLO_BYTES_MAX}")
    if session_of(payload):
        raise RemoteProtocolError("the first frame names a session; it must be a Hello")
    try:
        return _decode_hello(memoryview(payload)[SESSION_BYTES:])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the first frame is not a Hello: {error}") from error


def judge_hello(hello: Hello, peer: str, broker: BrokerIdentity, authenticator: Authenticator) -> Admitted | Refused:
    """Whether the sender may come in. Only someone authenticated learns anything of the network."""
    if hello.protocol != PROTOCOL:
        reason = f"this broker speaks protocol {PROTOCOL}, the client {hello.protocol}"
        return Refused(Code.PROTOCOL_VERSION, reason)
    problem = problem_of(hello)
    if problem is not None:
        return Refused(*problem)
    principal = authenticator.authenticate(hello.client_id, hello.credentials, peer)
    if principal is None:
        return Refused(Code.UNAUTHORIZED, "the credentials are not valid here")
    if hello.network and hello.network != broker.network:
        reason = f"this broker is in network {broker.network!r}, not in {hello.network!r}"
        return Refused(Code.NETWORK_MISMATCH, reason)
    return Admitted(hello.client_id, hello.instance, principal.name)


def welcome(session: int, broker: BrokerIdentity, limits: Limits) -> Welcome:
    """What an admitted client is told."""
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
    )
