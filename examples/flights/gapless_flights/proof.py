"""The proof: what a subscriber consumed, held against what the data says it should have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

_NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class SubscriptionProof:
    """How one subscription did. Right only if every count of wrong rows is 0."""

    subscription: str
    selector: str
    expected: int
    consumed: int
    missing: int
    """Expected, and never consumed."""
    doubled: int
    """Consumed once more, each further time."""
    unselected: int
    """Consumed, and not among the expected."""
    reordered: int
    """Consumed for the first time after one that comes later in the data."""
    first_difference: str
    """Names the first row that is not the expected one; "" if there is none."""

    @property
    def is_right(self) -> bool:
        """Exactly the rows that were expected, in order, each once."""
        return not (self.missing or self.doubled or self.unselected or self.reordered)


def prove(subscription: str, selector: str, expected: Sequence[str], consumed: Iterable[str]) -> SubscriptionProof:
    """Compares row by row; no row is expected twice."""
    places = {row: place for place, row in enumerate(expected)}
    seen = bytearray(len(expected))
    highest = -1
    count = doubled = unselected = reordered = 0
    first_difference = ""
    for wanted, row in zip_longest(expected, consumed):
        if wanted != row and not first_difference:
            first_difference = _difference(count, wanted, row)
        if row is None:
            continue
        count += 1
        place = places.get(row)
        if place is None:
            unselected += 1
        elif seen[place]:
            doubled += 1
        else:
            seen[place] = 1
            reordered += place < highest
            highest = max(highest, place)
    missing = len(expected) - sum(seen)
    return SubscriptionProof(
        subscription,
        selector,
        len(expected),
        count,
        missing,
        doubled,
        unselected,
        reordered,
        first_difference,
    )


def prove_streams(
    subscription: str, selector: str, expected: Mapping[str, Sequence[str]], consumed: Iterable[str]
) -> SubscriptionProof:
    """The same where several streams are published, each in an order of its own. No row is in two of them.

    Whatever is in none of them is not among the expected.
    """
    stream_of = {row: stream for stream, rows in expected.items() for row in rows}
    parts: dict[str, list[str]] = {stream: [] for stream in expected}
    for row in consumed:
        parts.setdefault(stream_of.get(row, ""), []).append(row)
    proofs = [prove(subscription, selector, expected.get(stream, ()), rows) for stream, rows in parts.items()]
    return SubscriptionProof(
        subscription,
        selector,
        sum(proof.expected for proof in proofs),
        sum(proof.consumed for proof in proofs),
        sum(proof.missing for proof in proofs),
        sum(proof.doubled for proof in proofs),
        sum(proof.unselected for proof in proofs),
        sum(proof.reordered for proof in proofs),
        next((proof.first_difference for proof in proofs if proof.first_difference), ""),
    )


def _difference(place: int, wanted: str | None, row: str | None) -> str:
    return f"row {place + 1:,}: expected {wanted or _NOTHING}; consumed {row or _NOTHING}"
