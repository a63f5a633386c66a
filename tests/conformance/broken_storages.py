"""Storages that break one promise each, to see that the suite notices.

Each is the memory storage with one thing done wrong, patched in for one test; or the journal of `journal_storage`, with
one of its faults, where it takes files and processes to see them.
"""

from __future__ import annotations

import inspect
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conformance.journal_storage import FAULTS, JournalHarness
from conformance.storages import MemoryHarness
from gapless.errors import StorageError, VolumeFailedError
from gapless.spi import LogVolume
from gapless_storage._memory import Records, Rows, UndoLog
from gapless_storage.memory import MemoryDisk, MemoryStream, MemoryTable, MemoryVolume
from gapless_testing.storage import StorageHarness
from gapless_testing.storage.power import MissingError, PowerHarness


@dataclass(frozen=True)
class Breach:
    """One method done wrong, and a test of the suite that has to fail then."""

    owner: type
    name: str
    replacement: Any
    test: Callable[..., object]
    arguments: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        what = getattr(self.replacement, "__name__", "property")
        return f"{self.owner.__name__}.{self.name}-{what}-{self.test.__name__}"

    def check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The test fails with the breach. Without it our storages pass the suite in `conformance.test_storage`."""
        monkeypatch.setattr(self.owner, self.name, self.replacement, raising=False)
        assert notices(self.test, **self.arguments)


def notices(test: Callable[..., object], **arguments: object) -> bool:
    """Whether a test of the suite fails on a memory storage, as it is patched now."""
    return fails(test, MemoryHarness(), **arguments) != ""


def fails(
    test: Callable[..., object], harness: StorageHarness, power: StorageHarness | None = None, /, **arguments: object
) -> str:
    """What a test of the suite says of a storage; "" if it has nothing against it."""
    parameters = inspect.signature(test).parameters
    given = dict.fromkeys(("power", "crashing", "failing", "starting"), power or harness) | {"harness": harness}
    try:
        fixtures = {name: given[name] for name in given if name in parameters}
        volume = {"volume": harness.open()} if "volume" in parameters else {}
        test(None, **fixtures, **volume, **arguments)
    except pytest.skip.Exception:
        return ""  # it has nothing against it
    except (
        AssertionError,
        pytest.fail.Exception,
        StorageError,
        StopIteration,
        ValueError,
        IndexError,
        OSError,
    ) as error:
        return str(error) or type(error).__name__
    return ""


# ------------------------------------------------------------------------------------------- streams


def put_at_once(self: MemoryStream, index: int, record: bytes) -> None:
    if not self.last < index < 2**63:
        raise ValueError(index)
    self.last = index
    self._log.put((index, record), UndoLog())


def put_anything(self: MemoryStream, index: int, record: bytes) -> None:
    self.last = max(self.last, index)
    self._staged.append((self._log.put, (index, record)))


def put_with_last_of_yesterday(self: MemoryStream, index: int, record: bytes) -> None:
    if not self._log.last < index < 2**63:
        raise ValueError(index)
    self._staged.append((self._log.put, (index, record)))


def put_truncated(self: Records, entry: tuple[int, bytes], batch: UndoLog) -> None:
    index, record = entry
    self._indexes.append(index)
    self._records.append(record[:65_535])
    self.last = index
    self.size += len(record)


def read_exclusive(self: Records, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """Without the record that covers `upto`, when it lies beyond."""
    place = bisect_right(self._indexes, max(after, self.first))
    stop = bisect_right(self._indexes, upto)
    return list(zip(self._indexes[place:stop], self._records[place:stop], strict=True))


def read_inclusive(self: Records, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """With the record at `after`."""
    place = bisect_left(self._indexes, max(after, self.first + 1))
    stop = bisect_left(self._indexes, upto) + 1
    return list(zip(self._indexes[place:stop], self._records[place:stop], strict=True))


def read_beyond(self: MemoryStream, after: int, upto: int, max_bytes: int = 1 << 20) -> Any:
    """An empty range gives a record, too."""
    return self._log.read(after, max(upto, after + 1), max_bytes)


_read = Records.read


def read_all(self: Records, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
    return _read(self, after, upto, 1 << 60)


def read_at_most(self: Records, after: int, upto: int, max_bytes: int) -> list[tuple[int, bytes]]:
    """Never more than `max_bytes`, so that a large record is never read."""
    found = _read(self, after, upto, max_bytes)
    while found and sum(len(record) for _, record in found) > max_bytes:
        found.pop()
    return found


def _last_record(self: MemoryStream) -> int:
    return self._log._indexes[-1] if self._log._indexes else 0


last_of_what_is_there = property(_last_record, lambda *_: None)


def chop_at_once(self: MemoryStream, upto: int) -> None:
    self._log.chop(min(upto, self.last), UndoLog())


def chop_beyond(self: MemoryStream, upto: int) -> None:
    self._staged.append((self._log.chop, upto))


def chop_back(self: Records, upto: int, batch: UndoLog) -> None:
    self._move_chop_point(upto, sign=1)


def chop_and_forget_last(self: Records, upto: int, batch: UndoLog) -> None:
    _chop(self, upto, batch)
    if self.last <= upto:
        self.last = 0


_chop = Records.chop

# -------------------------------------------------------------------------------------------- tables


def scan_unsorted(self: Rows, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return [row for row in self.values.items() if row[0].startswith(prefix)]


def scan_everything(self: Rows, prefix: bytes) -> list[tuple[bytes, bytes]]:
    return sorted(self.values.items())


def scan_to_a_bound(self: Rows, prefix: bytes) -> list[tuple[bytes, bytes]]:
    """Up to the prefix with its last byte raised: wrong for the highest byte."""
    bound = prefix[:-1] + bytes([min(prefix[-1] + 1, 255)]) if prefix else b"\xff\xff\xff"
    return [row for row in sorted(self.values.items()) if prefix <= row[0] < bound]


def scan_live(self: MemoryTable, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    for key in sorted(self._rows.values):
        if key.startswith(prefix) and key in self._rows.values:
            yield key, self._rows.values[key]


def get_without_empty(self: MemoryTable, key: bytes) -> bytes | None:
    return self._rows.values.get(key) or None


def put_row_at_once(self: MemoryTable, key: bytes, value: bytes) -> None:
    self._rows.change((key, value), UndoLog())


def delete_nothing(self: MemoryTable, key: bytes) -> None:
    """Forgets to."""


def delete_what_is_there(self: MemoryTable, key: bytes) -> None:
    """As of the call, and not in the batch's own order."""
    if key in self._rows.values:
        self._staged.append((self._rows.change, (key, None)))


# ------------------------------------------------------------------------------------------- volumes


def one_table(self: MemoryVolume, name: str) -> MemoryTable:
    return MemoryTable(name, self._content.rows.setdefault("", Rows()), self._staged)


def one_stream(self: MemoryVolume, name: str) -> MemoryStream:
    log = self._content.logs.setdefault("", Records())
    return self._streams.setdefault(name, MemoryStream(name, log, self._staged, self._disk))


def new_stream(self: MemoryVolume, name: str) -> MemoryStream:
    return MemoryStream(name, self._content.logs.setdefault(name, Records()), self._staged, self._disk)


def close_and_write(self: MemoryVolume) -> None:
    self.write()
    _close(self)


def close_without_sync(self: MemoryVolume) -> None:
    self._disk.let_go(self)
    self._disk._take_back(0)


_close = MemoryVolume.close


def close_raising(self: MemoryVolume) -> None:
    if self._failure is not None:
        raise self._failure
    _close(self)


def open_for_all(self: MemoryDisk, identity: Any) -> MemoryVolume:
    self._volume = None
    return _open(self, identity)


def open_for_strangers(self: MemoryDisk, identity: Any) -> MemoryVolume:
    self._identity = None if self._identity is None else identity
    return _open(self, identity)


def open_created(self: MemoryDisk, identity: Any) -> MemoryVolume:
    volume = _open(self, identity)
    volume.created = True
    return volume


_open = MemoryDisk.open


def owned_by_anyone(self: MemoryDisk, volume: MemoryVolume) -> Any:
    return self._lock


def reclaim_too_much(self: Records) -> int:
    self.settled += 1
    return _reclaim(self)


def reclaim_nothing(self: Records) -> int:
    return 0


def reclaim_unsettled(self: Records) -> int:
    self.settled = self.first
    return _reclaim(self)


_reclaim = Records.reclaim

# ----------------------------------------------------------------------------------- crashes, failures


def crash_losing_one(self: MemoryDisk, keep: int = 0) -> None:
    """One batch that was synced."""
    self._batches.append(UndoLog())
    log = self._content.logs.get("left")
    if log is not None and log._indexes:
        log._unput(log._indexes[-2] if len(log._indexes) > 1 else 0)
    self._volume = None


def crash_keeping_half(self: MemoryDisk, keep: int = 0) -> None:
    """The unsynced batches' rows stay, their records go."""
    self._volume = None
    for batch in reversed(self._batches):
        for undo, argument in reversed(batch.undos):
            if undo.__name__ == "_unput":
                undo(argument)
    self._batches.clear()


def crash_with_staged(self: MemoryDisk, keep: int = 0) -> None:
    if self._volume is not None:
        self._volume.write()
    self._batches.clear()
    self._volume = None


def forgiving(self: MemoryVolume) -> None:
    """Forgets that it has failed."""
    self._failure = None


def sync_too_little(self: MemoryVolume, upto: int | None = None) -> None:
    _sync(self, max(0, self._disk.written - 1))


_sync = MemoryVolume.sync


def write_failing_plainly(self: MemoryDisk, changes: Any) -> None:
    if self.faults.full:
        raise VolumeFailedError("something is wrong")
    _write(self, changes)


_write = MemoryDisk.write


def read_leaving_out(self: MemoryStream, after: int, upto: int, max_bytes: int = 1 << 20) -> Any:
    return [
        (index, record)
        for index, record in self._log.read(after, upto, max_bytes)
        if (self.name, index) not in self._faults.unreadable
    ]


def read_ending_early(self: MemoryStream, after: int, upto: int, max_bytes: int = 1 << 20) -> Any:
    found = []
    for index, record in self._log.read(after, upto, max_bytes):
        if (self.name, index) in self._faults.unreadable:
            break
        found.append((index, record))
    return found


def read_only_when_well(self: LogVolume, name: str) -> Any:
    assert isinstance(self, MemoryVolume)
    self._raise_if_failed()
    return _stream(self, name)


_stream = MemoryVolume.stream

# --------------------------------------------------------------------------------- in files, in processes


@dataclass(frozen=True)
class JournalBreach:
    """What is wrong with a journal (`journal_storage.FAULTS`), and a test of the suite that has to fail then."""

    fault: str
    test: Callable[..., object]
    arguments: dict[str, object] = field(default_factory=dict)
    says: str = ""
    """What the failure has to say, as a regular expression."""

    def __str__(self) -> str:
        return f"{self.fault}-{self.test.__name__}"

    def check(self, directory: Path) -> None:
        """The test fails on a journal with this fault."""
        said = journal_fails(self.test, JournalHarness(directory / "volumes", self.fault), **self.arguments)

        assert said, f"{self.test.__name__} does not notice: {FAULTS[self.fault]}"
        assert re.search(self.says, said), said


def journal_fails(test: Callable[..., object], harness: JournalHarness, **arguments: object) -> str:
    """What a test of the suite says of a journal; "" if it has nothing against it. Skips where there is no shim."""
    harness.place = harness.root
    harness.root.mkdir()
    try:
        power = PowerHarness(harness, harness.root)
    except MissingError as error:
        pytest.skip(str(error))
    try:
        return fails(test, harness, power, **arguments)
    finally:
        power.end()
