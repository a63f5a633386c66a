"""The records of a stream that an operator has given up, and reading around them: for storages.

A range that was given up is a hole with an end on either side. It must never look like a range in which
nothing was put: whoever reads is told where it is, once its own turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from gapless.core.intervals import IntervalSet
from gapless.errors import RecordsDamagedError


class GivenUp:
    """The ranges (after, upto] of one stream, in order, none of which touch."""

    def __init__(self, name: str, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """`name`: of the stream, for errors."""
        self._name = name
        self._ranges = IntervalSet(ranges)

    def above(self, first: int) -> Sequence[tuple[int, int]]:
        """Those of which anything is above the chop point."""
        return tuple((max(after, first), upto) for after, upto in self._ranges.ranges if upto > first)

    def add(self, after: int, upto: int) -> None:
        """One more."""
        self._ranges.add(after, upto)

    def read(
        self, after: int, upto: int, read: Callable[[int, int], Sequence[tuple[int, bytes]]]
    ) -> Sequence[tuple[int, bytes]]:
        """What `read` finds in (after, upto] before the next range; raises RecordsDamagedError if that is nothing.

        `read` is as `LogStream.read`, so it may find a record behind that range, and does not count then.
        """
        for low, high in self._ranges.ranges:
            if high <= after:
                continue
            before = read(after, min(upto, low)) if after < low else ()
            if found := [entry for entry in before if entry[0] <= low]:
                return found
            text = f"{self._name}: the records between {low} and {high} were given up: they could not be read"
            raise RecordsDamagedError(text, low, high, given_up=True)
        return read(after, upto)
