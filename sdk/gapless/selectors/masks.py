"""Masks: ints whose bit i stands for item i of a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final, TypeVar

Item = TypeVar("Item")

_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")
_DENSE: Final = 8
"""With more than one bit in so many, one pass over all items is faster than finding each bit."""


def select(items: Sequence[Item], mask: int) -> list[Item]:
    """Returns the items whose bit is set, in order."""
    if mask.bit_count() * _DENSE > len(items):
        return list(compress(items, f"{mask:b}".encode()[::-1].translate(_FLAGS)))
    selected: list[Item] = []
    while mask:
        # From the top down, so that the rest of a large mask becomes shorter.
        highest = mask.bit_length() - 1
        selected.append(items[highest])
        mask ^= 1 << highest
    selected.reverse()
    return selected
