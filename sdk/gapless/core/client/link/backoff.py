"""Delays between tries: each is longer than the last, and random, so that clients do not return all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

MILLISECOND = 1_000_000
"""One millisecond in nanoseconds."""
SECOND = 1_000_000_000


class Backoff:
    """Doubling delays with jitter: the n-th is drawn from the upper half of `(0, first · 2ⁿ]`, up to `most`.

    With jitter, ten thousand clients of a restarted broker do not come back in the same moment.
    """

    def __init__(self, random: Random, first: int, most: int) -> None:
        """`first` and `most` are nanoseconds."""
        self._random = random
        self._first = first
        self._most = most
        self._tries = 0

    def next(self) -> int:
        """Returns the next delay in nanoseconds."""
        delay = min(self._first << min(self._tries, 32), self._most)
        self._tries += 1
        return int(delay * self._random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """The last try has succeeded: begins with the shortest delay again."""
        self._tries = 0
