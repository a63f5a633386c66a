"""Kafka's plain types in bytes, as its *flexible* messages have them: lengths are varints, and tags end a structure.

What a message lacks, or has too much of, is a `ValueError`: it is a bug here or there, and the connection is of no use.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

Item = TypeVar("Item")

ID_BYTES: Final = 16
"""The length of a topic's id."""


@lru_cache(maxsize=1 << 12)
def varint(value: int) -> bytes:
    """An unsigned number, seven bits a byte; a signed one that is not negative is written as its double."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class Writer:
    """Puts a message together; each method adds one value."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def message(self) -> bytes:
        """All that was added."""
        return b"".join(self._parts)

    def int8(self, value: int) -> None:
        """One byte."""
        self._parts.append(struct.pack(">b", value))

    def int16(self, value: int) -> None:
        """Two bytes."""
        self._parts.append(struct.pack(">h", value))

    def int32(self, value: int) -> None:
        """Four bytes."""
        self._parts.append(struct.pack(">i", value))

    def int64(self, value: int) -> None:
        """Eight bytes."""
        self._parts.append(struct.pack(">q", value))

    def boolean(self, value: bool) -> None:  # noqa: FBT001 - one value, as all methods have
        """One byte, 0 or 1."""
        self.int8(int(value))

    def topic_id(self, value: bytes) -> None:
        """A topic's id."""
        if len(value) != ID_BYTES:
            raise ValueError(f"a topic id has {ID_BYTES} bytes, not {len(value)}")
        self._parts.append(value)

    def varint(self, value: int) -> None:
        """An unsigned number, seven bits a byte."""
        self._parts.append(varint(value))

    def blob(self, value: bytes | None) -> None:
        """Bytes, or null."""
        self.varint(0 if value is None else len(value) + 1)
        self._parts.append(value or b"")

    def string(self, value: str | None) -> None:
        """Text, or null."""
        self.blob(None if value is None else value.encode())

    def array(self, items: Sequence[Item] | None, write: Callable[[Item], object]) -> None:
        """Any number of values, each added by `write`; or null."""
        self.varint(0 if items is None else len(items) + 1)
        for item in items or ():
            write(item)

    def end(self) -> None:
        """Ends a structure; it has no tags."""
        self.varint(0)


class Reader:
    """Takes a message apart, in order."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self.at = at
        """Where it goes on."""

    def take(self, count: int) -> bytes:
        """So many bytes."""
        data = self._data[self.at : self.at + count]
        if len(data) != count:
            raise ValueError(f"a message ends after {len(self._data)} bytes, in the middle of a value")
        self.at += count
        return data

    def int8(self) -> int:
        """One byte."""
        return int.from_bytes(self.take(1), "big", signed=True)

    def int16(self) -> int:
        """Two bytes."""
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        """Four bytes."""
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        """Eight bytes."""
        return int.from_bytes(self.take(8), "big", signed=True)

    def boolean(self) -> bool:
        """One byte, 0 or not."""
        return self.int8() != 0

    def topic_id(self) -> bytes:
        """A topic's id."""
        return self.take(ID_BYTES)

    def varint(self) -> int:
        """An unsigned number of at most five bytes."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte <= 0x7F:
                return value
        raise ValueError("a varint has more than five bytes")

    def blob(self) -> bytes | None:
        """Bytes, or null."""
        length = self.varint() - 1
        return None if length < 0 else self.take(length)

    def string(self) -> str | None:
        """Text, or null."""
        data = self.blob()
        return None if data is None else data.decode()

    def array(self, read: Callable[[], Item]) -> tuple[Item, ...]:
        """Any number of values, each taken by `read`; null is none."""
        return tuple(read() for _ in range(self.varint() - 1))

    def end(self) -> dict[int, bytes]:
        """Ends a structure: its tags, as bytes."""
        tags = {}
        for _ in range(self.varint()):
            tag, size = self.varint(), self.varint()
            tags[tag] = self.take(size)
        return tags
