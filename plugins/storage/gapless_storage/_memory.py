"""What is on a disk in memory: records and rows, and how a batch of changes is taken back."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(slots=True)
class UndoLog:
    """What it takes to take a batch back, and to know that it is durable."""

    undos: list[tuple[Callable[[Any], None], Any]] = field(default_factory=list)
    chops: list[tuple[Records, int]] = field(default_factory=list)
    lost: bool = False


Change: TypeAlias = "tuple[Callable[[Any, UndoLog], None], Any]"
"""A method that makes a change and notes in the batch how to take it back, and its argument."""


class Records:
    """The records of a stream: two lists side by side, so that a place is found by bisection."""

    def __init__(self) -> None:
        self.first = 0
        self.last = 0
        self.size = 0
        self.chopped_bytes = 0
        self.settled = 0  # the durable chop point: below it records may really go
        self.given_up: tuple[tuple[int, int], ...] = ()  # what an operator has given up
        self._indexes: list[int] = []
        self._records: list[bytes] = []
        self._lock = threading.Lock()  # `reclaim` may come while another thread reads

    def put(self, entry: tuple[int, bytes], batch: UndoLog) -> None:
        """Adds a record."""
        index, record = entry
        batch.undos.append((self._unput, self.last))
        self._indexes.append(index)
        self._records.append(record)
        self.last = index
        self.size += len(record)

    def chop(self, upto: int, batch: UndoLog) -> None:
        """Moves the chop point; the records below it stay until `reclaim`."""
        if upto > self.first:
            batch.undos.append((self._unchop, self.first))
            batch.chops.append((self, upto))
            self._move_chop_point(upto, sign=1)

    def give_up(self, lost: tuple[int, int], batch: UndoLog) -> None:
        """Notes what an operator gives up."""
        batch.undos.append((self._set_given_up, self.given_up))
        self._set_given_up((*self.given_up, lost))

    def read(self, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
        """What overlaps (after, upto]; see `gapless.spi.LogStream.read`."""
        with self._lock:
            place = bisect_right(self._indexes, max(after, self.first))
            stop = min(bisect_left(self._indexes, upto, lo=place) + 1, len(self._indexes))
            end = place
            while end < stop and (end == place or max_bytes > 0):
                max_bytes -= len(self._records[end])
                end += 1
            return list(zip(self._indexes[place:end], self._records[place:end], strict=True))

    def copy(self) -> Records:
        """Another one with the same records, all of it durable."""
        log = Records()
        with self._lock:
            log.first = log.settled = self.first
            log.last, log.size, log.chopped_bytes = self.last, self.size, self.chopped_bytes
            log._indexes, log._records = self._indexes.copy(), self._records.copy()
            log.given_up = self.given_up
        return log

    def reclaim(self) -> int:
        """Lets go of the records below the durable chop point; returns their bytes."""
        with self._lock:
            count = bisect_right(self._indexes, self.settled)
            freed = sum(map(len, self._records[:count]))
            del self._indexes[:count]
            del self._records[:count]
            self.chopped_bytes -= freed
            return freed

    def _set_given_up(self, given_up: tuple[tuple[int, int], ...]) -> None:
        self.given_up = given_up

    def _unput(self, last: int) -> None:
        self._indexes.pop()
        self.size -= len(self._records.pop())
        self.last = last

    def _unchop(self, first: int) -> None:
        self._move_chop_point(first, sign=-1)

    def _move_chop_point(self, to: int, sign: int) -> None:
        low, high = sorted((bisect_right(self._indexes, self.first), bisect_right(self._indexes, to)))
        moved = sign * sum(map(len, self._records[low:high]))
        self.size -= moved
        self.chopped_bytes += moved
        self.first = to


class Rows:
    """The rows of a table; their order is made when somebody asks for it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._keys: list[bytes] | None = []

    def change(self, row: tuple[bytes, bytes | None], batch: UndoLog) -> None:
        """Sets a value, or removes it with None."""
        key, value = row
        batch.undos.append((self._set, (key, self.values.get(key))))
        self._set((key, value))

    def copy(self) -> Rows:
        """Another one with the same rows."""
        rows = Rows()
        rows.values = self.values.copy()
        rows._keys = None
        return rows

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """All pairs whose key starts with `prefix`, in order."""
        if self._keys is None:
            self._keys = sorted(self.values)
        start = end = bisect_left(self._keys, prefix)
        while end < len(self._keys) and self._keys[end].startswith(prefix):
            end += 1
        return [(key, self.values[key]) for key in self._keys[start:end]]

    def _set(self, row: tuple[bytes, bytes | None]) -> None:
        key, value = row
        if value is None:
            if self.values.pop(key, None) is not None:
                self._keys = None
        else:
            if key not in self.values:
                self._keys = None
            self.values[key] = value


@dataclass(slots=True)
class Content:
    """All that is on the disk."""

    logs: dict[str, Records] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)

    def copy(self) -> Content:
        """The same once more, so that what happens to one does not happen to the other."""
        logs = {name: log.copy() for name, log in self.logs.items()}
        return Content(logs, {name: rows.copy() for name, rows in self.rows.items()})
