"""Decoding bytes that another process wrote: a client, a broker, a node of another version, or somebody who means harm.

msgspec raises its own errors for most of what does not parse, but a text that is not UTF-8, and types within types
without end, come as errors of Python. Whoever catches only some of them lets one frame end a node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from gapless.errors import RemoteProtocolError

Message = TypeVar("Message")

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding with msgspec may raise."""


def reader_of(kind: type[Message], what: str) -> Callable[[bytes | memoryview], Message]:
    """Returns what decodes a `kind`, and raises RemoteProtocolError alone. `what` it is said to be, for that error."""
    decode = msgspec.msgpack.Decoder(kind).decode

    def read(data: bytes | memoryview) -> Message:
        try:
            return decode(data)
        except UNREADABLE as error:
            raise RemoteProtocolError(f"{what} does not parse: {error}") from error

    return read
