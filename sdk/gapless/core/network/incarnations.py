"""Which processes run under one node's name, and which of them counts (protocol: two-processes).

Each process of a node has an *incarnation*: a number with the time of its start, and bits that it has drawn. The number
stands in its volume, and the next process takes a higher one. So of two processes on copies of one volume the one that
was started later has the higher number, and where two volumes know nothing of each other, the clock decides. The order
says which of two counts, and nothing else: a lower number alone shows no fault, because a clock may have been set back.

That two of them run at the same time is proven by three answers to questions that nobody could foresee: one process
answered, then another one answered a question that was put after that, then the first one a question that was put after
that. Old connections, late frames and clocks cannot bring that about.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Final, NamedTuple

DRAWN_BITS: Final = 20
"""So many bits of an incarnation are drawn."""
MET_MAX: Final = 16
"""So many processes are remembered of one name, the latest."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)


def new_incarnation(wall: int, before: int, drawn: int) -> int:
    """Names a process that starts now (milliseconds since 1970), on a volume on which `before` was started; 0: none."""
    return max(wall, (before >> DRAWN_BITS) + 1) << DRAWN_BITS | drawn % (1 << DRAWN_BITS)


def started(incarnation: int) -> str:
    """When a process was started by its own clock, for people."""
    try:
        at = _EPOCH + timedelta(milliseconds=incarnation >> DRAWN_BITS)
    except OverflowError:
        return "at a time that there is not"
    return f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03} UTC"


class Twice(NamedTuple):
    """Two processes that ran at the same time."""

    earlier: int
    later: int


@dataclass(slots=True)
class _Process:
    """What is known of one. Times are counted: each question and each answer has a later one than all before it."""

    first: int
    """When it answered first."""
    asked: int
    """When the question was put that it has answered last."""
    answered: int
    """When that answer came."""


class Incarnations:
    """The processes that have answered under one node's name."""

    def __init__(self) -> None:
        self._met: dict[int, _Process] = {}
        self._shut_out: dict[int, int] = {}
        """An earlier process that ran beside a later one, and the later one."""

    def answered(self, incarnation: int, asked: int, now: int) -> list[Twice]:
        """A process has answered, now, a question that was put at `asked`.

        Returns which processes that shows to have run at the same time, and nothing has shown before. Of each pair the
        earlier is shut out for good.
        """
        mine = self._met.pop(incarnation, None)
        mine = self._met[incarnation] = _Process(now if mine is None else mine.first, asked, now)
        while len(self._met) > MET_MAX:
            del self._met[next(iter(self._met))]
        pairs = [
            Twice(min(incarnation, other), max(incarnation, other))
            for other, theirs in self._met.items()
            if other != incarnation and mine.first < theirs.asked and theirs.answered < asked
        ]
        new = [twice for twice in pairs if self._shut_out.get(twice.earlier, 0) < twice.later]
        for earlier, later in new:
            self._shut_out[earlier] = max(later, self._shut_out.pop(earlier, 0))
        while len(self._shut_out) > MET_MAX:
            del self._shut_out[next(iter(self._shut_out))]
        return new

    def later_than(self, incarnation: int) -> int:
        """The later process for which this one is shut out; 0: it is not."""
        return self._shut_out.get(incarnation, 0)

    def shut_out_before(self, incarnation: int) -> int:
        """The latest process that is shut out and was started before this one; 0 if there is none."""
        return max((earlier for earlier in self._shut_out if earlier < incarnation), default=0)
