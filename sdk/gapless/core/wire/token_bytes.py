"""What the texts of tokens are made of: numbers, names, base64 and a checksum (protocol: tokens)."""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final, TypeAlias

from gapless.core.stream.ticks import ShbId
from gapless.errors import InvalidTokenError

Origin: TypeAlias = tuple[str, int, int, bytes, ShbId]
"""Network, subscription, generation, seal and home."""

_READABLE: Final = re.compile(rb"[A-Za-z0-9_.@-]*")
_CHECKSUM_BYTES: Final = 4


class Reader:
    """Takes bytes apart. If bytes are missing, or are no number, it raises InvalidTokenError."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are not taken yet."""
        return len(self._data) - self._at

    def take(self, length: int) -> bytes:
        """Returns the next bytes."""
        part = self._data[self._at : self._at + length]
        if len(part) < length:
            raise InvalidTokenError("the text of a token is garbled: it ends too early")
        self._at += length
        return part

    def number(self) -> int:
        """Returns the next number."""
        value = 0
        for shift in range(0, 64, 7):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and value < 1 << 64:
                return value
        raise InvalidTokenError("the text of a token is garbled: a number in it is out of range")


def put_number(target: bytearray, number: int) -> None:
    """Appends a number, as LEB128."""
    append = target.append
    while number >= 0x80:
        append(number & 0x7F | 0x80)
        number >>= 7
    append(number)


def put_bytes(target: bytearray, data: bytes) -> None:
    """Appends bytes behind their length."""
    put_number(target, len(data))
    target += data


def shared_length(left: bytes, right: bytes) -> int:
    """Returns how many bytes both have in common at the beginning."""
    for position, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return position
    return min(len(left), len(right))


def to_base64(data: bytes | bytearray) -> str:
    """Returns bytes as text."""
    return urlsafe_b64encode(data).decode().rstrip("=")


def from_base64(text: str) -> bytes:
    """Returns the bytes of a text. Raises InvalidTokenError."""
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except Base64Error as error:
        raise InvalidTokenError("the text of a token is garbled or cut off") from error


def names_text(names: bytes | bytearray) -> str:
    """Returns the text of names, with the sign before it: in readable characters, if all are safe in a URL."""
    if _READABLE.fullmatch(names) is not None:
        return "." + names.decode().replace("@", "~")
    return "~" + to_base64(names)


def names_of(kind: str, text: str) -> bytes:
    """Returns the names of a text, and of the sign before it. Raises InvalidTokenError."""
    return text.replace("~", "@").encode() if kind == "." else from_base64(text)


def checked_fields(head: bytes, names: bytes, seed: int) -> bytes:
    """Returns a head without its checksum. Raises InvalidTokenError if that does not match."""
    fields, found = head[:-_CHECKSUM_BYTES], head[-_CHECKSUM_BYTES:]
    if checksum(fields, names, seed) != found:
        raise InvalidTokenError("the text of a token is garbled or cut off: its checksum does not match")
    return fields


def checksum(fields: bytes | bytearray, names: bytes | bytearray, seed: int) -> bytes:
    """Returns the checksum of a text. `seed`: of its version, so that none is good under another one."""
    return zlib.crc32(names, zlib.crc32(fields, seed)).to_bytes(_CHECKSUM_BYTES, "big")


def decoded(data: bytes) -> str:
    """Returns a name. Raises InvalidTokenError."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidTokenError("the text of a token is garbled: a name in it is not UTF-8") from error
