"""How long to wait before the next try: longer each time, and never the same as everybody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

MILLISECOND = 1_000_000
"""Nanoseconds."""
SECOND = 1_000_000_000


class Backoff:
    """Doubling delays with jitter: the n-th is drawn from the upper half of `(0, first · 2ⁿ]`, up to `most`.

    The jitter keeps ten thousand clients of a broker that has restarted from coming back in one moment.
    """

    def __init__(self, random: Random, first: int, most: int) -> None:
        """`first` and `most` are nanoseconds."""
        self._random = random
        self._first = first
        self._most = most
        self._tries = 0

    def next(self) -> int:
        """The next delay in nanoseconds."""
        delay = min(self._first << min(self._tries, 32), self._most)
        self._tries += 1
        return int(delay * self._random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """The last try succeeded."""
        self._tries = 0
