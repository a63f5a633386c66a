"""Unpacks what producers have compressed, up to a limit: a few bytes can stand for more than there is memory."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import ModuleType

UNPACKED_MAX: Final = 64 << 20
"""The records of a batch may have so many bytes. Kafka limits what is packed; by default a producer fills 16 KiB."""
_GZIP: Final = 31
"""How zlib is told that gzip's header is before it, with the largest window."""
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD: Final = 16
"""It has versions, too, which all know to be 1."""
_LZ4_MOST: Final = 255
"""A byte of it adds no more than so many."""
_FIRST: Final = 20
"""So many times as much is expected at first, …"""
_NEXT: Final = 8
"""… and so many times more each time that was too little."""
_LEAST: Final = 1 << 14


class TooLargeError(ValueError):
    """There is more in it than may be, or it is damaged: of some ways to pack nobody can tell."""

    def __init__(self) -> None:
        super().__init__(f"its records cannot be unpacked, or have more than {UNPACKED_MAX >> 20} MiB")


def gzip(packed: memoryview) -> bytes:
    """Returns what was packed with gzip; it may have several parts. Raises zlib.error."""
    parts, size, rest = list[bytes](), 0, bytes(packed)
    while rest:
        unpacking = zlib.decompressobj(_GZIP)
        part = unpacking.decompress(rest, UNPACKED_MAX + 1 - size)
        size += len(part)
        if size > UNPACKED_MAX:
            raise TooLargeError
        if not unpacking.eof:
            raise zlib.error("it ends too early")
        parts.append(part)
        rest = unpacking.unused_data
    return b"".join(parts)


def snappy(packed: memoryview) -> bytes:
    """Returns what was packed with Snappy: in the blocks that Java's library makes, or as a whole."""
    raw = _cramjam().snappy
    blocks = _blocks(packed) if bytes(packed[: len(_XERIAL)]) == _XERIAL else [packed]
    if sum(raw.decompress_raw_len(block) for block in blocks) > UNPACKED_MAX:
        raise TooLargeError
    return b"".join(bytes(raw.decompress_raw(block)) for block in blocks)


def _blocks(packed: memoryview) -> list[memoryview]:
    found, at = list[memoryview](), _XERIAL_HEAD
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise ValueError("a block of it ends too early")
        found.append(packed[at + 4 : end])
        at = end
    return found


def lz4(packed: memoryview) -> bytes:
    """Returns what was packed as a frame of LZ4."""
    if _LZ4_MOST * len(packed) <= UNPACKED_MAX:  # the quicker way, where nothing can go wrong
        return bytes(_cramjam().lz4.decompress(packed))
    return _into(_cramjam().lz4.decompress_into, packed)


def zstd(packed: memoryview) -> bytes:
    """Returns what was packed with Zstandard."""
    return _into(_cramjam().zstd.decompress_into, packed)


def _into(unpack: Callable[[Any, Any], int], packed: memoryview) -> bytes:
    """Nothing tells before how much it is: so it is tried with more and more room."""
    room = min(UNPACKED_MAX, max(_LEAST, _FIRST * len(packed)))
    while True:
        into = bytearray(room)
        try:
            return bytes(memoryview(into)[: unpack(packed, into)])
        except Exception as error:  # one kind for all that may be wrong, too little room among it
            if room == UNPACKED_MAX:
                raise TooLargeError from error
        room = min(UNPACKED_MAX, room * _NEXT)


def _cramjam() -> ModuleType:
    import cramjam

    return cramjam
