"""The texts of tokens of few pubends: each pubend for itself (protocol: tokens).

    text  := ("gl1." | "gl2.") base64url(head) ("." names | "~" base64url(names))
    head  := subscription, generation, seal (length, bytes), network (length, UTF-8), in gl2 home (length, UTF-8),
             number of pubends, highest tick; per pubend, in the order of their ids: how many bytes its id shares
             with the one before, how many follow, highest tick minus its tick; CRC-32 of all that and of the names
    names := what follows of each id; in readable characters, "~" for "@", if all of them are safe in a URL

Numbers are LEB128, the checksum has four bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.core.wire.token_bytes import (
    Origin,
    Reader,
    checked_fields,
    checksum,
    decoded,
    names_text,
    put_bytes,
    put_number,
    shared_length,
    to_base64,
)

CHARACTERS_MAX: Final = 4096
"""No text of this form is longer: every version of gapless reads so much."""
_PUBEND_CHARACTERS_MIN: Final = 4
"""What a pubend takes at least: three bytes of the head."""
_GL2: Final = zlib.crc32(b"gl2")
"""Begins the checksum of a text with a home."""


def encode(origin: Origin, ticks: Mapping[PubendId, Tick]) -> str | None:
    """Returns the text; None if it would be too long for this form."""
    if len(ticks) * _PUBEND_CHARACTERS_MIN > CHARACTERS_MAX:
        return None
    names = _Names.of(tuple(ticks))
    if len(ticks) * _PUBEND_CHARACTERS_MIN + len(names.text) > CHARACTERS_MAX:
        return None
    *_, home = origin
    highest = max(ticks.values(), default=0)
    head = bytearray(_encoded_origin(*origin))
    put_number(head, len(ticks))
    put_number(head, highest)
    for pubend, lengths in names.pubends:
        head += lengths
        put_number(head, highest - ticks[pubend])
    head += checksum(head, names.rests, _GL2 if home else 0)
    text = f"gl{2 if home else 1}.{to_base64(head)}{names.text}"
    return text if len(text) <= CHARACTERS_MAX else None


def decode(head: bytes, names: bytes, *, has_home: bool) -> tuple[Origin, dict[PubendId, Tick]]:
    """Returns what a text of this form holds. Raises InvalidTokenError."""
    reader, rests = Reader(checked_fields(head, names, _GL2 if has_home else 0)), Reader(names)
    sid, generation, sealed = reader.number(), reader.number(), reader.take(reader.number())
    network = decoded(reader.take(reader.number()))
    home = decoded(reader.take(reader.number())) if has_home else ""
    count, highest = reader.number(), reader.number()
    ticks: dict[PubendId, Tick] = {}
    pubend = b""
    for _ in range(count):  # if the count is wrong, the bytes run out and the loop ends with an error
        shared, length, behind = reader.number(), reader.number(), reader.number()
        pubend = pubend[:shared] + rests.take(length)
        ticks[decoded(pubend)] = highest - behind
    return (network, sid, generation, sealed, home), ticks


# A subscription's tokens differ in their ticks alone. So the rest of their texts is made once.


@lru_cache(maxsize=256)
def _encoded_origin(network: str, sid: int, generation: int, seal: bytes, home: ShbId) -> bytes:
    head = bytearray()
    put_number(head, sid)
    put_number(head, generation)
    for part in (seal, network.encode(), *([home.encode()] if home else ())):
        put_bytes(head, part)
    return bytes(head)


class _Names(NamedTuple):
    """What a text says of pubends, whatever their ticks are."""

    pubends: tuple[tuple[PubendId, bytes], ...]
    """In the order of their ids; with each, the two lengths of its id."""
    rests: bytes
    text: str

    @staticmethod
    @lru_cache(maxsize=256)
    def of(pubends: tuple[PubendId, ...]) -> _Names:
        before, rests, placed = b"", bytearray(), []
        for name, pubend in sorted((pubend.encode(), pubend) for pubend in pubends):
            shared = shared_length(before, name)
            rests += name[shared:]
            lengths = bytearray()
            put_number(lengths, shared)
            put_number(lengths, len(name) - shared)
            placed.append((pubend, bytes(lengths)))
            before = name
        return _Names(tuple(placed), bytes(rests), names_text(rests))
