"""What is wrong with the frames, or the events, that came, in words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

SHOWN_MAX = 5
"""How many are named; the rest is counted."""


def difference(came: Sequence[bytes], expected: Sequence[bytes], what: str = "frames") -> str:
    """What is wrong with `came`, or "" if it is as expected. `what` they are; they are numbered from 1."""
    if list(came) == list(expected):
        return ""
    numbers = {payload: number for number, payload in enumerate(expected, 1)}
    if len(numbers) < len(expected):
        return _first_difference(came, expected, what)
    known = [numbers[payload] for payload in came if payload in numbers]
    missing = sorted(set(numbers.values()) - set(known))
    strange = [index for index, payload in enumerate(came) if payload not in numbers]
    words = []
    if missing and strange:
        words.append(_altered(came[strange[0]], expected[missing[0] - 1], missing[0]))
    if missing:
        words.append(f"missing {_named(missing)}")
    if twice := sorted({number for number in known if known.count(number) > 1} if len(known) > len(set(known)) else ()):
        words.append(f"more than once {_named(twice)}")
    if early := [before for before, after in pairwise(known) if before > after]:
        words.append(f"out of order: #{early[0]} came before #{known[known.index(early[0]) + 1]}")
    return f"{len(set(known))} of {len(expected)} {what}, {'; '.join(words) or f'and {len(strange)} that nobody sent'}"


def _first_difference(came: Sequence[bytes], expected: Sequence[bytes], what: str) -> str:
    for number, (one, other) in enumerate(zip(came, expected, strict=False), 1):
        if one != other:
            return f"{len(came)} of {len(expected)} {what}, {_altered(one, other, number)}"
    return f"{len(came)} of {len(expected)} {what}"


def _altered(came: bytes, expected: bytes, number: int) -> str:
    if len(came) != len(expected):
        return f"#{number} came with {len(came)} bytes instead of {len(expected)}"
    at, upto = 0, len(came)
    while upto - at > 1:
        middle = (at + upto) // 2
        at, upto = (middle, upto) if came[at:middle] == expected[at:middle] else (at, middle)
    seen, wanted = came[at : at + 4].hex(), expected[at : at + 4].hex()
    return f"#{number} came with other bytes at {at}: {seen} instead of {wanted}"


def _named(numbers: Sequence[int]) -> str:
    named = ", ".join(f"#{number}" for number in numbers[:SHOWN_MAX])
    return named if len(numbers) <= SHOWN_MAX else f"{named} and {len(numbers) - SHOWN_MAX} more"
