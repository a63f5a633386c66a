"""What becomes of a message whose sender is broken, or means harm: mostly one part of it is another one."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

INTEGERS = (0, 1, 2, 1 << 31, 1 << 40, 1 << 61, 1 << 62, (1 << 63) - 2, (1 << 63) - 1, (1 << 64) - 1, -1, -(1 << 63))
TEXTS = (
    "",
    "phb",
    "shb",
    "evil",
    "ib",
    "default@x",
    "#",
    "a..b",
    "x" * 300,
    "ok",
    "retry",
    "origin",
    "\x1b[2J",
    "\x00",
)
PARTS: tuple[Any, ...] = (None, 0, "", [], {}, b"", True, 1.5, [[1, 5]])
NEAR = (1, -1, 1 << 22, -(1 << 22), 1 << 32, 1000 << 22)
"""By what a number is another one that can be: a tick, a millisecond, seventeen minutes …"""


class Mutator:
    """Makes other messages of messages, always the same ones of a seed."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.mild = False
        """Whether what is said can be so: a number a little higher or lower, another flag, another name."""

    def frame(self, frame: bytes) -> bytes:
        """A payload of msgpack as another one: mostly one that parses, sometimes with bytes turned or cut off."""
        random = self.random
        if random.random() < 0.7:
            try:
                return msgspec.msgpack.encode(self.part(msgspec.msgpack.decode(frame, strict=False)))
            except (ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
                pass
        return self.noise(frame)

    def noise(self, data: bytes) -> bytes:
        """The bytes with some turned, cut off or put behind."""
        random, spoilt = self.random, bytearray(data)
        for _ in range(random.randrange(1, 4)):
            if spoilt:
                spoilt[random.randrange(len(spoilt))] ^= 1 << random.randrange(8)
        way = random.randrange(4)
        if way == 0:
            del spoilt[random.randrange(len(spoilt) + 1) :]
        elif way == 1:
            spoilt += random.randbytes(random.randrange(1, 20))
        return bytes(spoilt) or b"\0"

    def part(self, value: Any) -> Any:
        """A value, or one in it, is another one."""
        random = self.random
        if isinstance(value, list) and value and random.random() < 0.9:
            return self._list(list(value))
        if isinstance(value, dict) and value and random.random() < 0.85:
            key = random.choice(list(value))
            changed = dict(value)
            part = changed.pop(key)
            other = self._key(key) if random.random() < 0.3 else key
            return changed | {other: self.part(part) if random.random() < 0.7 else part}
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            near = [value + by for by in NEAR]
            return random.choice([each for each in near if each >= 0] if self.mild else [*INTEGERS, *near])
        if isinstance(value, str):
            return random.choice(TEXTS)
        if isinstance(value, bytes) and self.mild:
            return value
        if isinstance(value, bytes):
            return self.frame(value)
        return value if self.mild else random.choice(PARTS)

    def _list(self, value: list[Any]) -> list[Any]:
        index = self.random.randrange(len(value))
        way = 1.0 if self.mild else self.random.random()
        if way < 0.04:
            value.insert(index, value[index])
        elif way < 0.08:
            value.pop(index)
        else:
            value[index] = self.part(value[index])
        return value

    def _key(self, key: Any) -> Any:
        return self.random.choice(INTEGERS[:8] if isinstance(key, int) else TEXTS)
