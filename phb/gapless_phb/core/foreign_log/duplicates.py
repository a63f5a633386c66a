"""Which batches of a numbered log are duplicates (protocol: numbered-logs).

It follows from the log alone, so every gateway says the same, whatever it has sent itself. A batch is judged by the
marks above its `after` and below itself; whoever begins to read inside of a log reads from there first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from gapless.core.ports import LogMark
from gapless.core.stream.columns import EMPTY, EventBatch
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import Tick

MARKS_MAX = 20_000
"""For how many publishers marks are remembered; beyond that the older half is read again when a batch needs it."""


class Marks:
    """The marks of one log in (after, upto], as far as later batches can be duplicates of theirs."""

    def __init__(self, after: Tick) -> None:
        """Nothing is known of marks at or below `after`."""
        self.after = after
        self._met: dict[tuple[bool, str], list[tuple[Tick, int, int]]] = {}
        """By kind and name of the publisher: tick, epoch and last sequence of each batch that no later one outdoes."""

    def __len__(self) -> int:
        return len(self._met)

    def take(self, tick: Tick, mark: LogMark) -> bool:
        """Takes the mark of the next batch. Returns whether the batch is a duplicate of one that is here."""
        key = (mark.keyed, mark.publisher)
        met = self._met.get(key, [])
        is_duplicate = any(mark.after < at < tick and _settles(epoch, last, mark) for at, epoch, last in met)
        self._add(key, tick, mark.epoch, mark.first + mark.count - 1)
        if len(self._met) > MARKS_MAX:
            self._forget_older()
        return is_duplicate

    def begin_earlier(self, older: Marks) -> None:
        """Takes marks that lie before all of these, and end where these begin."""
        met, self._met, self.after = self._met, older._met, older.after
        for key, entries in met.items():
            for entry in entries:
                self._add(key, *entry)

    def _add(self, key: tuple[bool, str], tick: Tick, epoch: int, last: int) -> None:
        keyed, _ = key
        kept = [one for one in self._met.get(key, ()) if not _outdoes(epoch, last, *one[1:], keyed=keyed)]
        self._met[key] = [*kept, (tick, epoch, last)]

    def _forget_older(self) -> None:
        # Half of them at once, so that this is not done again for the next publisher.
        ticks = sorted(entries[-1][0] for entries in self._met.values())
        self.after = ticks[len(ticks) // 2]
        self._met = {key: entries for key, entries in self._met.items() if entries[-1][0] > self.after}


def _settles(epoch: int, last: int, mark: LogMark) -> bool:
    """Whether a batch before that of `mark` shows that the latter came twice, or too late."""
    if mark.keyed:
        return (epoch, last) >= (mark.epoch, mark.first)
    # A batch that begins its epoch was sent when nobody knew what the former one had logged: that may be the same.
    return epoch > mark.epoch or (last >= mark.first and (epoch == mark.epoch or mark.begins))


def _outdoes(epoch: int, last: int, other_epoch: int, other_last: int, *, keyed: bool) -> bool:
    """Whether all that a batch settles is settled by a later one, too."""
    if keyed:
        return (epoch, last) >= (other_epoch, other_last)
    return epoch >= other_epoch and last >= other_last


def window(marks: Iterable[tuple[Tick, LogMark]], begin: Tick) -> Tick:
    """Returns from where marks have to be known to judge these batches; `begin` if that is enough."""
    return min((mark.after for _, mark in marks), default=begin)


def without(batch: EventBatch, duplicates: IntervalSet) -> EventBatch:
    """Returns the events of a batch that are in no duplicate."""
    if not batch or not duplicates.within(batch.ticks[0] - 1, batch.ticks[-1]):
        return batch
    kept = duplicates.gaps(batch.ticks[0] - 1, batch.ticks[-1])
    return EventBatch.concatenate([between(batch, lo, hi) for lo, hi in kept]) if kept else EMPTY


def between(batch: EventBatch, lo: Tick, hi: Tick) -> EventBatch:
    """Returns the events of a batch at ticks in (lo, hi]."""
    return batch.slice(bisect_left(batch.ticks, lo + 1), bisect_left(batch.ticks, hi + 1))


def ticks_of(tick: Tick, mark: LogMark) -> tuple[Tick, Tick]:
    """Returns the ticks (lo, hi] of the events of a marked batch."""
    return tick - 1, tick + mark.count - 1


def judged(marks: Marks, batches: Iterable[tuple[Tick, LogMark]]) -> Iterator[tuple[Tick, LogMark, bool]]:
    """Yields each batch with whether it is a duplicate."""
    for tick, mark in batches:
        yield tick, mark, marks.take(tick, mark)
