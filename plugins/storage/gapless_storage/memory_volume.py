"""A volume on a disk in memory, with its streams and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from gapless.errors import RecordsDamagedError, VolumeCorruptError, VolumeFailedError
from gapless.spi import GivenUp
from gapless_storage._memory import Change, Content, Records, Rows

if TYPE_CHECKING:
    from gapless.spi import VolumeIdentity
    from gapless_storage.memory_disk import MemoryDisk

_INDEX_MAX = 2**63 - 1


class MemoryVolume:
    """A volume in memory; see `gapless.spi.LogVolume`. Made by `MemoryDisk.open`."""

    def __init__(self, disk: MemoryDisk, identity: VolumeIdentity, content: Content, *, created: bool) -> None:
        self.identity = identity
        self.capabilities = disk.capabilities
        self.created = created
        self._disk = disk
        self._content = content
        self._staged: list[Change] = []
        self._streams: dict[str, MemoryStream] = {}
        self._tables: dict[str, MemoryTable] = {}
        self._failure: VolumeFailedError | None = None

    def stream(self, name: str) -> MemoryStream:
        """The stream of that name."""
        if name not in self._streams:
            log = self._content.logs.setdefault(name, Records())
            self._streams[name] = MemoryStream(name, log, self._staged, self._disk)
        return self._streams[name]

    def table(self, name: str) -> MemoryTable:
        """The table of that name."""
        if name not in self._tables:
            self._tables[name] = MemoryTable(name, self._content.rows.setdefault(name, Rows()), self._staged)
        return self._tables[name]

    def stream_names(self) -> Sequence[str]:
        """All streams."""
        return sorted(self._content.logs)

    def table_names(self) -> Sequence[str]:
        """All tables."""
        return sorted(self._content.rows)

    def write(self) -> None:
        """Applies all that is staged as one atomic batch. Raises VolumeFailedError, VolumeFullError."""
        with self._disk.owned_by(self):
            self._raise_if_failed()
            if self._staged:
                changes = self._staged.copy()
                self._staged.clear()
                try:
                    self._disk.write(changes)
                except VolumeFailedError as error:
                    self._failure = error
                    raise

    def sync(self, upto: int | None = None) -> None:
        """Makes everything written before the call durable. Raises VolumeFailedError.

        A simulator in which a sync takes time asks `MemoryDisk.written` when it begins, and calls this
        with that number as `upto` when it ends.
        """
        with self._disk.owned_by(self):
            self._raise_if_failed()
            try:
                self._disk.sync(self._disk.written if upto is None else upto)
            except VolumeFailedError as error:
                self._failure = error
                raise

    def tend(self) -> None:
        """Memory stays where it is."""

    def reclaim(self) -> int:
        """Lets go of the records whose removal is durable; returns their bytes.

        Raises VolumeFailedError, VolumeFullError.
        """
        with self._disk.owned_by(self):
            self._raise_if_failed()
            if self.reclaimable:
                try:
                    self._disk.rewrite()
                except VolumeFailedError as error:
                    self._failure = error
                    raise
            return sum([log.reclaim() for log in [*self._content.logs.values()]])

    @property
    def reclaimable(self) -> int:
        """How many bytes `reclaim` would give back, once the last chop is synced."""
        return sum([log.chopped_bytes for log in [*self._content.logs.values()]])

    @property
    def free_bytes(self) -> int | None:
        """What the disk was made with: None for a plugin, a simulator's choice otherwise."""
        return self._disk.free_bytes

    @property
    def damage(self) -> str:
        """What cannot be read."""
        spoilt = sorted(self._disk.faults.unreadable)
        return ", ".join(f"{name}: record {index}" for name, index in spoilt)

    def excise(self) -> str:
        """Forgets what cannot be read, and closes the volume."""
        unreadable = self._disk.faults.unreadable
        for name, index in sorted(unreadable):
            if not any(after < index <= upto for after, upto in self.stream(name).lost):
                raise VolumeCorruptError(f"{name}: record {index} cannot be read, and was not given up")
        unreadable.clear()
        self.close()
        return ""

    def close(self) -> None:
        """Syncs if it can and lets go of the disk. What is staged and not written is dropped. Idempotent."""
        try:
            if self._failure is None:
                self.sync()
        except VolumeFailedError:  # it failed, is closed or crashed; nobody was told that this was durable
            pass
        finally:
            self._disk.let_go(self)

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(f"the volume has failed before and must be reopened: {self._failure}")


class MemoryStream:
    """A stream in memory; see `gapless.spi.LogStream`."""

    def __init__(self, name: str, log: Records, staged: list[Change], disk: MemoryDisk) -> None:
        self.name = name
        self.last = log.last
        self._log = log
        self._staged = staged
        self._faults = disk.faults

    @property
    def first(self) -> int:
        """The chop point."""
        return self._log.first

    @property
    def size(self) -> int:
        """How many bytes the records above the chop point have."""
        return self._log.size

    def put(self, index: int, record: bytes) -> None:
        """Stages a record. Raises ValueError if the index does not increase or is out of bounds."""
        if not self.last < index <= _INDEX_MAX:
            raise ValueError(f"{self.name}: index {index} is not in ({self.last}, {_INDEX_MAX}]")
        self.last = index
        self._staged.append((self._log.put, (index, record)))

    def read(self, after: int, upto: int, max_bytes: int = 1 << 20) -> Sequence[tuple[int, bytes]]:
        """The written records that overlap (after, upto], in order; at least one, else up to `max_bytes`."""
        if after >= upto:
            return []
        read = partial(self._read, max_bytes=max_bytes)
        return GivenUp(self.name, self._log.given_up).read(max(after, self.first), upto, read)

    @property
    def given_up(self) -> Sequence[tuple[int, int]]:
        """What an operator has given up."""
        return GivenUp(self.name, self._log.given_up).above(self.first)

    @property
    def lost(self) -> Sequence[tuple[int, int]]:
        """The same, and what of it is below the chop point; and all that is."""
        return (*self._log.given_up, (0, self.first))

    def give_up(self, after: int, upto: int) -> None:
        """Stages that the records in (after, upto] are lost."""
        self._staged.append((self._log.give_up, (after, upto)))

    def _read(self, after: int, upto: int, max_bytes: int) -> Sequence[tuple[int, bytes]]:
        found = self._log.read(after, upto, max_bytes)
        if not self._faults.unreadable:
            return found
        whole = list(takewhile(self._is_readable, found))
        if found and not whole:
            end = self._damaged_upto(after)
            text = f"{self.name}: the records between {after} and {end} cannot be read"
            raise RecordsDamagedError(text, after, end, given_up=False)
        return whole

    def _is_readable(self, entry: tuple[int, bytes]) -> bool:
        return (self.name, entry[0]) not in self._faults.unreadable

    def _damaged_upto(self, after: int) -> int:
        """Where the records that cannot be read end, as `RecordsDamagedError.upto` says it."""
        while found := self._log.read(after, after + 1, 0):
            if self._is_readable(found[0]):
                return found[0][0] - 1
            after = found[0][0]
        return self.last

    def chop(self, upto: int) -> None:
        """Stages the removal of all records with an index <= `upto`."""
        upto = min(upto, self.last)
        if upto > self._log.first:
            self._staged.append((self._log.chop, upto))


class MemoryTable:
    """A table in memory; see `gapless.spi.Table`."""

    def __init__(self, name: str, rows: Rows, staged: list[Change]) -> None:
        self.name = name
        self._rows = rows
        self._staged = staged

    def get(self, key: bytes) -> bytes | None:
        """The value written under `key`, or None."""
        return self._rows.values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Stages `value` under `key`."""
        self._staged.append((self._rows.change, (key, value)))

    def delete(self, key: bytes) -> None:
        """Stages the removal of `key`."""
        self._staged.append((self._rows.change, (key, None)))

    def scan(self, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        """All written pairs whose key starts with `prefix`, in key order, as of the call."""
        return iter(self._rows.scan(prefix))
