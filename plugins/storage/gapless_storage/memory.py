"""The storage in memory: for tests, examples and the simulator. Fast, and honest about what it is.

The data lives in a `MemoryDisk`, which outlives the volume that is open on it, as a disk outlives a
process. It behaves like a real one: what was written is visible at once and durable after a sync, and
`crash` takes what was not synced, whole batches, newest first. What else can go wrong is switched on in
`MemoryDisk.faults`: a simulator decides it, and nothing is left to chance.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gapless.errors import (
    ConfigurationError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.plugins import hookimpl
from gapless.spi import StorageCapabilities, VolumeIdentity
from gapless_storage._memory import Batch, Change, Content, Log, Rows

_INDEX_MAX = 2**63 - 1


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong next. `write` and `sync` go off once, the others last until they are switched off.

    The batches of a failed write or sync are "kept" or "lost": there or not after reopening. Both happen
    on real disks, so nobody may rely on either.
    """

    full: bool = False
    """Every write finds the disk full, and leaves nothing."""
    write: Literal["", "kept", "lost"] = ""
    """The next write fails; readers do not see its batch before the volume is reopened."""
    sync: Literal["", "kept", "lost"] = ""
    """The next sync fails; it concerns all batches that were not synced."""
    lying: bool = False
    """Every sync returns, and makes nothing durable."""
    unreadable: set[tuple[str, int]] = field(default_factory=set)
    """Streams and indexes of records that cannot be read any more."""


class MemoryDisk:
    """What a volume's data lives in. One volume at a time is open on it."""

    def __init__(self, *, durable: bool = False, free_bytes: int | None = None) -> None:
        """`durable`: what its volumes say of themselves; a simulated disk stands for a durable one."""
        self.faults = DiskFaults()
        self.free_bytes = free_bytes
        self.capabilities = StorageCapabilities(durable=durable)
        self._identity: VolumeIdentity | None = None
        self._content = Content()
        self._batches: list[Batch] = []  # written and not synced, oldest first
        self._synced = 0  # how many batches came before those
        self._ghosts: list[list[Change]] = []  # could not be written, and are there after reopening
        self._volume: MemoryVolume | None = None
        self._lock = threading.Lock()

    def open(self, identity: VolumeIdentity) -> MemoryVolume:
        """The volume on this disk, made if there is none.

        Raises VolumeLockedError if one is open, VolumeForeignError if it belongs to somebody else.
        """
        if self._volume is not None:
            raise VolumeLockedError("the volume in memory is in use: close it first")
        created = self._identity is None
        has = self._identity or identity
        if identity.network not in ("", has.network) or identity.node not in ("", has.node):
            raise VolumeForeignError(f"the volume in memory belongs to {has}, not to {identity}")
        self._identity = has
        for ghost in self._ghosts:
            self._apply(ghost)
        self._ghosts.clear()
        if not self.faults.lying:  # recovery writes what it found anew, and syncs it
            self._settle(self.written)
        self._volume = MemoryVolume(self, has, self._content, created=created)
        return self._volume

    def crash(self, keep: int = 0) -> None:
        """The process and the power are gone, and with them all unsynced batches but the first `keep`.

        The volume that was open is dead: whatever writes raises VolumeFailedError. Open another one.
        """
        with self._lock:
            self._volume = None
            self._ghosts.clear()
            self._take_back(keep)

    @property
    def written(self) -> int:
        """How many batches there are, synced or not."""
        return self._synced + len(self._batches)

    @property
    def unsynced(self) -> int:
        """How many of them a crash would take."""
        return len(self._batches)

    # ------------------------------------------------------------------------------ for the volume

    def owned_by(self, volume: MemoryVolume) -> threading.Lock:
        """The lock under which that volume may touch the disk. Raises VolumeFailedError if it is over."""
        if self._volume is not volume:
            raise VolumeFailedError("the volume is closed, or its process has crashed")
        return self._lock

    def write(self, changes: list[Change]) -> None:
        """Applies a batch. Raises VolumeFullError or VolumeFailedError; then nothing was applied."""
        if self.faults.full:
            raise VolumeFullError("the disk is full")
        fault, self.faults.write = self.faults.write, ""
        if fault == "kept":
            self._ghosts.append(changes)
        if fault:
            raise VolumeFailedError("a write failed")
        self._apply(changes)

    def sync(self, upto: int) -> None:
        """Makes the batches up to that one durable. Raises VolumeFailedError."""
        fault, self.faults.sync = self.faults.sync, ""
        if fault == "lost" and self._batches:
            self._batches[0].lost = True
        if fault:
            raise VolumeFailedError("a sync failed")
        if not self.faults.lying:
            self._settle(upto)

    def let_go(self, volume: MemoryVolume) -> None:
        """The volume is closed. What a failed sync has lost is gone, and all that came after it."""
        with self._lock:
            if self._volume is volume:
                self._volume = None
                self._take_back(len(self._batches))

    def _apply(self, changes: list[Change]) -> None:
        batch = Batch()
        for change, argument in changes:
            change(argument, batch)
        self._batches.append(batch)

    def _settle(self, upto: int) -> None:
        count = upto - self._synced
        if count > 0:
            for batch in self._batches[:count]:
                for log, chopped in batch.chops:
                    log.settled = chopped
            del self._batches[:count]
            self._synced = upto

    def _take_back(self, keep: int) -> None:
        lost = [place for place, batch in enumerate(self._batches) if batch.lost]
        while len(self._batches) > min([keep, *lost]):
            for undo, argument in reversed(self._batches.pop().undos):
                undo(argument)


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
            log = self._content.logs.setdefault(name, Log())
            self._streams[name] = MemoryStream(name, log, self._staged, self._disk)
        return self._streams[name]

    def table(self, name: str) -> MemoryTable:
        """The table of that name."""
        if name not in self._tables:
            self._tables[name] = MemoryTable(name, self._content.rows.setdefault(name, Rows()), self._staged)
        return self._tables[name]

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

    def reclaim(self) -> int:
        """Lets go of the records whose removal is durable; returns their bytes."""
        with self._disk.owned_by(self):
            return sum([log.reclaim() for log in [*self._content.logs.values()]])

    @property
    def reclaimable(self) -> int:
        """How many bytes `reclaim` would give back, once the last chop is synced."""
        return sum(log.chopped_bytes for log in self._content.logs.values())

    @property
    def free_bytes(self) -> int | None:
        """What the disk was made with: None for a plugin, a simulator's choice otherwise."""
        return self._disk.free_bytes

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

    def __init__(self, name: str, log: Log, staged: list[Change], disk: MemoryDisk) -> None:
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
        found = self._log.read(after, upto, max_bytes) if after < upto else []
        for index, _ in found if self._faults.unreadable else ():
            if (self.name, index) in self._faults.unreadable:
                raise VolumeCorruptError(f"{self.name}: record {index} cannot be read")
        return found

    def chop(self, upto: int) -> None:
        """Stages the removal of all records with an index <= `upto`."""
        self._staged.append((self._log.chop, min(upto, self.last)))


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


# ---------------------------------------------------------------------------------------- the plugin

_disks: dict[str, MemoryDisk] = {}


def disk(name: str) -> MemoryDisk:
    """The disk of that name in this process, made if there is none. It lives until `forget`."""
    return _disks.setdefault(name, MemoryDisk())


def forget(name: str) -> None:
    """Drops the disk of that name and all that is on it. An unknown name is no error."""
    _disks.pop(name, None)


@hookimpl
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any]) -> MemoryVolume:
    """The volume in memory named `path`, which outlives its closing; "": a private one, which does not.

    Raises ConfigurationError (it has no options), VolumeLockedError, VolumeForeignError.
    """
    if options:
        raise ConfigurationError(f"storage option {min(options)!r} is unknown: the memory storage has none")
    return (disk(path) if path else MemoryDisk()).open(identity)
