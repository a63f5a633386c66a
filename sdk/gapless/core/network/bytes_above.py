"""The mail by which an SHB learns how many bytes of a log lie above ticks: its host alone knows (protocol: pinning).

It is mail (C10): an SHB asks again every few seconds, and takes an answer that comes twice or late for what it is.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from gapless.core.foreign import UNREADABLE
from gapless.core.network.facts import Real
from gapless.core.stream.ticks import PubendId

HOST: Final = "phb"
"""The role that is asked."""
ASKER: Final = "shb"
"""The role that asks."""
TICKS_MAX: Final = 2000
"""So many ticks one mail asks about: its answer fits into one mail, too."""

Ticks = Annotated[tuple[Real, ...], msgspec.Meta(max_length=TICKS_MAX)]


class AskBytesAbove(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """To the host of a pubend, which is to say how many bytes of its log lie above each of these ticks."""

    pubend: PubendId
    ticks: Ticks


class BytesAbove(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """To the SHB that has asked. Its tag is none of the other mail to SHBs."""

    pubend: PubendId
    ticks: Ticks
    above: Ticks
    """Of each tick: about how many bytes."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(AskBytesAbove).decode


def encode(mail: AskBytesAbove | BytesAbove) -> bytes:
    """Returns the bytes of a message."""
    return _encode(mail)


def decode_question(data: bytes) -> AskBytesAbove | None:
    """Returns the question; None if the bytes are none that this version knows."""
    try:
        return _decode(data)
    except UNREADABLE:
        return None
