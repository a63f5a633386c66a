"""The base of all messages of the client protocol: the two directions, and the codes of refusals."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, TypeAlias

import msgspec

from gapless.core.stream.ticks import FOREVER, ShbId, Tick

PROTOCOL = 2
"""The version of the client protocol that this build speaks."""


NUMBER_MAX = (1 << 63) - 1

Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
"""A count, a credit, or a number that a client or a broker has given to something. Others cannot be decoded."""
Number32: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""A number with 32 bits in binary messages."""
Wall: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 53), le=1 << 53)]
"""A wall time in milliseconds since 1970."""
RealTick: TypeAlias = Annotated[Tick, msgspec.Meta(ge=0, le=FOREVER)]
"""A possible tick. Others cannot be decoded: a client's impossible tick must not be passed on to other brokers."""
Seal: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=64)]
"""The seal of a token."""
Process: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]
"""The name of a client's process, drawn at random; "" of an older client."""
Home: TypeAlias = Annotated[ShbId, msgspec.Meta(max_length=512)]
"""The SHB that keeps a subscription; "" in no network."""


class Code(str, Enum):
    """Why a request was refused. The client has one error class for each."""

    CONFIGURATION = "configuration"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NETWORK_MISMATCH = "network-mismatch"
    PROTOCOL_VERSION = "protocol-version"
    INVALID_SELECTOR = "invalid-selector"
    INVALID_TOPIC = "invalid-topic"
    INVALID_MESSAGE = "invalid-message"
    INVALID_TOKEN = "invalid-token"
    TOKEN_MISMATCH = "token-mismatch"
    TOKEN_AHEAD = "token-ahead"
    NOT_FOUND = "subscription-not-found"
    IN_USE = "subscription-in-use"
    TAKEN_OVER = "subscription-taken-over"
    MISMATCH = "subscription-mismatch"
    UNSUBSCRIBED = "unsubscribed"
    FENCED = "publisher-fenced"
    STALE = "stale-token"
    FORGOTTEN = "publisher-forgotten"
    REJECTED = "publish-rejected"
    RESUME = "publish-resume"
    NO_ANSWER = "no-answer"
    RETRY = "retry"
    CLOSED = "closed"


class ClientMessage(msgspec.Struct, array_like=True, frozen=True, tag_field="kind"):
    """A message from a client."""


class ServerMessage(msgspec.Struct, array_like=True, frozen=True, tag_field="kind"):
    """A message to a client."""
