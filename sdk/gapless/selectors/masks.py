"""Masks: ints whose bit i stands for item i of a sequence."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import compress
from typing import Final, TypeVar

Item = TypeVar("Item")
Value = TypeVar("Value", bound=Hashable)

_FLAGS: Final = bytes.maketrans(b"01", b"\0\1")
_DENSE: Final = 8
"""With more than one bit in so many, one pass over all items is faster than finding each bit."""

_FEW: Final = 16
"""With so many distinct items at most, one pass over all items for each of them is faster than a step for each item."""
_SHORT: Final = 128
"""Of so many items or fewer, steps are faster in any case."""
_PIECE: Final = 4096
"""So many items are gone through at a time: each step builds a mask anew, which costs more the longer it is."""
_DIGITS: Final = [bytes(48 + (code == wanted) for code in range(256)) for wanted in range(_FEW)]
"""For each code the table that makes 1 of it and 0 of any other."""


_bits: list[int] = []


def bits_of_events(count: int) -> Sequence[int]:
    """Returns the masks of single items: `1 << i` for item i, for at least so many items.

    All batches of the process share them, for a thousand readers need them of pages with thousands of events each. A
    list is replaced by a longer one and never changed, so threads may do this at once.
    """
    global _bits  # noqa: PLW0603 - it is a table of constants, as long as somebody has needed it
    bits = _bits
    if len(bits) < count:
        _bits = bits = [*bits, *(1 << event for event in range(len(bits), count))]
    return bits


def masks_of(items: Sequence[Value]) -> dict[Value, int]:
    """Returns the mask of each distinct item, in the order in which they come first."""
    if len(items) > _SHORT and len(set(items[:_SHORT])) <= _FEW:
        distinct = dict.fromkeys(items)
        if len(distinct) <= _FEW:
            codes = {item: code for code, item in enumerate(distinct)}
            digits = bytes(map(codes.__getitem__, items))[::-1]
            return {item: int(digits.translate(_DIGITS[code]), 2) for item, code in codes.items()}
    masks: dict[Value, int] = {}
    bits = bits_of_events(min(len(items), _PIECE))
    for start in range(0, len(items), _PIECE):
        piece: dict[Value, int] = {}
        get = piece.get
        for item, bit in zip(items[start : start + _PIECE], bits):  # noqa: B905  # there may be more bits than items
            piece[item] = get(item, 0) | bit
        if not start:
            masks = piece
            continue
        for item, mask in piece.items():
            masks[item] = masks[item] | mask << start if item in masks else mask << start
    return masks


def mask_at(places: Sequence[int]) -> int:
    """Returns the mask of the items at these places."""
    if not places:
        return 0
    top = max(places)
    digits = bytearray(b"0") * (top + 1)
    for place in places:
        digits[top - place] = 49
    return int(digits, 2)


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
