"""What a PFS block notes, read the slow and obvious way: an oracle must not trust the code it judges."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.stream.ticks import Tick


class Bytes:
    """A block that is taken apart from its beginning on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, width: int) -> int:
        """The next integer. Raises ValueError when there is none."""
        end = self._at + width
        if end > len(self._data):
            raise ValueError("the block ends too early")
        number = int.from_bytes(self._data[self._at : end], "little")
        self._at = end
        return number

    def numbers(self, count: int, width: int) -> list[int]:
        """The next few integers."""
        return [self.number(width) for _ in range(count)]

    @property
    def rest(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at


def noted(index: Tick, record: bytes) -> Counter[Tick]:
    """How many matches a block notes of each of its ticks. Raises ValueError when it is none."""
    block = Bytes(record)
    flags, shift, count, subscriptions = block.number(1), block.number(1), block.number(2), block.number(4)
    gaps = block.numbers(count - 1, 1 << (flags & 3))
    ticks = [index]
    for gap in reversed(gaps):
        ticks.insert(0, ticks[0] - (gap << shift))
    sids = block.numbers(subscriptions, 1 << (flags >> 2 & 3))
    if sids != sorted(set(sids)):
        raise ValueError("the subscriptions do not ascend")
    block.numbers(subscriptions, 1 << (flags >> 4 & 3))
    kinds = block.numbers(subscriptions, 1) if count > 1 else [255] * subscriptions
    matches = Counter(dict.fromkeys(ticks, 0))
    for kind in kinds:
        matches.update(ticks[position] for position in _positions(block, kind, count))
    if block.rest:
        raise ValueError("the block goes on behind its last column")
    return matches


def _positions(block: Bytes, kind: int, count: int) -> list[int]:
    if kind == 255:
        return list(range(count))
    if kind:
        return block.numbers(kind, 1 if count <= 256 else 2)
    bitmap = block.numbers((count + 7) // 8, 1)
    return [position for position in range(count) if bitmap[position // 8] >> position % 8 & 1]
