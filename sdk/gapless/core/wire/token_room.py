"""How much a token can hold: whatever its ticks are, a token that has room for its pubends has a text.

So a subscription that stands on too many pubends is refused when it is made, and not when an application asks for the
text of its position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gapless.core.stream.ticks import PubendId
from gapless.core.wire import token_plain

PUBENDS_MAX: Final = 16_384
"""How many pubends a token, or a message of positions, may name."""
TEXT_MAX: Final = 256 << 10
"""How many characters the text of a token may have; a longer one is refused before it is parsed."""
ID_BYTES_MAX: Final = 512
"""The longest id of a pubend, in UTF-8."""
DIGITS_MAX: Final = 18
"""A number of an id has at most so many digits; those before them belong to the stem."""
_DIGITS: Final = "0123456789"

_ORIGIN_CHARACTERS: Final = 1200
"""What a text says beside its pubends, at most."""
_FAMILY_BYTES: Final = 32
"""How a text describes a family, at most, without its names."""
_MEMBER_BYTES: Final = 9
"""A tick, and a run of numbers."""
_TAIL_BYTES: Final = 2
"""The length of what follows of a tail."""
_POSITION_BYTES: Final = 36
"""What a request to attach says of a pubend beside its id, which it may name twice."""


class TokenRoom:
    """Whether a token has room for some pubends, whatever their ticks are. They are added one by one, at any time."""

    __slots__ = ("_bytes", "_tails", "count", "request_bytes")

    def __init__(self, pubends: Iterable[PubendId] = ()) -> None:
        self.count = 0
        self.request_bytes = 0
        """The most that the pubends take in a request to attach again."""
        self._bytes = 0
        self._tails: dict[str, dict[str, int]] = {}
        """Of each stem, how many pubends have which tail."""
        for pubend in pubends:
            self.add(pubend)

    def add(self, pubend: PubendId) -> None:
        """Adds a pubend that was not added before."""
        stem, number, tail = parts_of(pubend)
        tails = self._tails.get(stem)
        if tails is None:
            tails = self._tails[stem] = {}
            self._bytes += _FAMILY_BYTES + len(stem.encode())
        same = tails[tail] = tails.get(tail, 0) + 1
        if same == 1:
            self._bytes += _TAIL_BYTES + len(tail.encode())
        elif same == 2:
            self._bytes += _FAMILY_BYTES
        digits = len(str(number - 1)) if number else 0
        self._bytes += _MEMBER_BYTES + max(1, -(-digits // 2))
        self.count += 1
        self.request_bytes += 2 * len(pubend.encode()) + _POSITION_BYTES

    @property
    def bound(self) -> int:
        """No packed text of a token of these pubends is longer."""
        return _ORIGIN_CHARACTERS + -(-4 * self._bytes // 3)

    @property
    def characters(self) -> int:
        """No text of a token of these pubends is longer."""
        return max(token_plain.CHARACTERS_MAX, self.bound)

    @property
    def problem(self) -> str:
        """Why a token has no room for them, as the end of a sentence about their consumer; "" if it has."""
        if self.count > PUBENDS_MAX:
            return f"stands on {self.count:,} pubends: a checkpoint token has room for {PUBENDS_MAX:,}"
        if self.characters > TEXT_MAX:
            return (
                f"stands on {self.count:,} pubends, with whose names a checkpoint token may have"
                f" {self.characters:,} characters: the most is {TEXT_MAX:,}"
            )
        return ""


def parts_of(pubend: PubendId) -> tuple[str, int, str]:
    """Returns stem, number and tail of an id. The number is counted from 1 on; 0: it has none."""
    name, at, epoch = pubend.rpartition("@")
    name, tail = (name, at + epoch) if at else (pubend, "")
    digits = name[len(name.rstrip(_DIGITS)) :]
    digits = digits[-DIGITS_MAX:].lstrip("0") or digits[-1:]
    return name[: len(name) - len(digits)], int(digits) + 1 if digits else 0, tail
