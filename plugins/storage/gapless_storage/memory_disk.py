"""The disk in memory, all that may happen to it, and the volume on it with its streams and tables.

A `MemoryDisk` outlives the volume that is open on it, as a disk outlives a process. What was written is
visible at once and durable after a sync. What goes wrong is chosen by whoever holds the disk, a test or a
simulator: nothing here is left to chance.

It is a model of what the RocksDB volume really does under faults. tests/sim plays the same histories on
both, and fails when the real one does what this one does not allow; what was seen is told in
docs/topics/simulated-disk.md.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Literal, NamedTuple, TypeAlias

from gapless.errors import (
    RecordsDamagedError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import GivenUp, StorageCapabilities, VolumeIdentity
from gapless_storage._memory import Change, Content, Records, Rows, UndoLog

_INDEX_MAX = 2**63 - 1

Part: TypeAlias = Literal["all", "database", "fence"]
"""Of a volume: the database holds its content, the fence says up to where that was durable."""


@dataclass(slots=True)
class DiskFaults:
    """What goes wrong next. `write` and `sync` go off once, the others last until they are switched off.

    The batches of a failed write or sync are "kept" or "lost": there or not after reopening. Both happen
    on real disks, so nobody may rely on either. An opening writes and syncs, too.
    """

    full: bool = False
    """Every write finds the disk full, and leaves nothing."""
    full_syncs: bool = False
    """Every sync finds the disk full, because it writes a little itself. Disks differ in this."""
    write: Literal["", "kept", "lost"] = ""
    """The next write fails; readers do not see its batch before the volume is reopened."""
    sync: Literal["", "kept", "lost"] = ""
    """The next sync that has something to do fails; it concerns all batches that were not synced."""
    lying: bool = False
    """Every sync returns, and makes nothing durable."""
    unreadable: set[tuple[str, int]] = field(default_factory=set)
    """Streams and indexes of records that cannot be read any more."""


class _Fence(NamedTuple):
    """What the fence says: so many batches were durable, in that opening of the volume."""

    opening: object
    written: int


class MemoryDisk:
    """What a volume's data lives in. One volume at a time is open on it."""

    def __init__(self, *, durable: bool = False, free_bytes: int | None = None) -> None:
        """`durable`: what its volumes say of themselves; a simulated disk stands for a durable one."""
        self.faults = DiskFaults()
        self.free_bytes = free_bytes
        self.capabilities = StorageCapabilities(durable=durable)
        self._identity: VolumeIdentity | None = None
        self._content = Content()
        self._batches: list[UndoLog] = []  # written and not synced, oldest first
        self._synced = 0  # how many batches came before those
        self._ghosts: list[list[Change]] = []  # could not be written, and are there after reopening
        # Two copies of a volume that both went on are told apart by their openings, each an object of its own.
        self._opening: object = None  # the newest that the database knows; None: there is no database
        self._opening_before: object = None
        self._fence: _Fence | None = None
        self._durable_fence: _Fence | None = None  # differs from `_fence` on a disk that lies
        self._volume: MemoryVolume | None = None
        self._lock = threading.Lock()

    def open(self, identity: VolumeIdentity) -> MemoryVolume:
        """The volume on this disk, made if there is none.

        Raises VolumeLockedError if one is open, VolumeForeignError if it belongs to somebody else,
        VolumeCorruptError if it lacks what was durable, and what a write and a sync may raise.
        """
        if self._volume is not None:
            raise VolumeLockedError("the volume in memory is in use: close it first")
        has = self._identity or identity
        if identity.network not in ("", has.network) or identity.node not in ("", has.node):
            raise VolumeForeignError(f"the volume in memory belongs to {has}, not to {identity}")
        self._try_opening()
        created = self._identity is None
        if created:
            self._create(has)
        for ghost in self._ghosts:
            self._apply(ghost)
        self._ghosts.clear()
        self._begin_opening()
        self._volume = MemoryVolume(self, has, self._content, created=created)
        return self._volume

    @property
    def written(self) -> int:
        """How many batches there are, synced or not. Each opening writes one."""
        return self._synced + len(self._batches)

    @property
    def unsynced(self) -> int:
        """How many of them a power cut may take."""
        return len(self._batches)

    # ----------------------------------------------------------------------- what a simulator does to it

    def kill(self) -> None:
        """The process is gone, the power is not: all that was written is left, synced or not.

        The volume that was open is dead: whatever writes raises VolumeFailedError. Open another one.
        """
        with self._lock:
            self._volume = None
            self._take_back(len(self._batches))

    def crash(self, keep: int = 0, *, fence: bool = False) -> None:
        """The process and the power are gone, and with them all unsynced batches but the first `keep`.

        A batch that was torn is one that is gone. `fence`, for a disk that lies: the fence that it was
        told to sync is there all the same, so that an opening sees what else is missing.
        """
        with self._lock:
            self._volume = None
            self._ghosts.clear()
            self._take_back(keep)
            if not fence:
                self._fence = self._durable_fence

    def copy(self) -> MemoryDisk:
        """A copy of this disk, to be restored later or to be opened beside it.

        It holds what was written up to now, and not what a failed write may have left behind.
        """
        copied = MemoryDisk(durable=self.capabilities.durable, free_bytes=self.free_bytes)
        with self._lock:
            copied._take(self, "all")
        return copied

    def restore(self, copied: MemoryDisk, part: Part = "all") -> None:
        """Puts back what `copy` has returned, or a part of it; the other part stays as it is now.

        An old copy of everything opens. Of one part alone, the next `open` tells whether it fits the other.
        Raises VolumeLockedError while a volume is open.
        """
        self._raise_if_open()
        self._take(copied, part)

    def wipe(self, part: Part = "all") -> None:
        """Everything is gone, and the next volume is another one; or a part, and then nothing opens any more.

        Without the database is like with one that is damaged where it was durable: nobody may serve it.
        Raises VolumeLockedError while a volume is open.
        """
        self._raise_if_open()
        self._take(MemoryDisk(), part)

    # ------------------------------------------------------------------------------------- for the volume

    def owned_by(self, volume: MemoryVolume) -> threading.Lock:
        """The lock under which that volume may touch the disk. Raises VolumeFailedError if it is over."""
        if self._volume is not volume:
            raise VolumeFailedError("the volume is closed, or its process has crashed")
        return self._lock

    def write(self, changes: list[Change]) -> None:
        """Applies a batch. Raises VolumeFullError or VolumeFailedError; then nothing was applied."""
        self._try_writing(changes)
        self._apply(changes)

    def sync(self, upto: int) -> None:
        """Makes the batches up to that one durable. Raises VolumeFullError or VolumeFailedError.

        When an earlier call has done so already, nothing is touched and nothing can fail.
        """
        if self._fence is None or upto > self._fence.written:
            self._try_syncing()
            self._prove(upto)

    def rewrite(self) -> None:
        """What giving back space may meet: it writes and syncs. Raises as `write` and `sync` do."""
        self._try_writing([])
        self._try_syncing()

    def let_go(self, volume: MemoryVolume) -> None:
        """The volume is closed. What a failed sync has lost is gone, and all that came after it."""
        if self._volume is volume:
            self.kill()

    # ------------------------------------------------------------------------------------- how it is done

    def _try_opening(self) -> None:
        if self.faults.full:
            raise VolumeFullError("the disk is full")
        self._raise_if_incomplete()
        self._try_writing([])
        try:
            self._try_syncing()
        except VolumeFailedError:
            self._take_back(len(self._batches))  # no volume is open that could show what is lost
            raise

    def _raise_if_incomplete(self) -> None:
        """The fence may be one opening behind, if that one was stopped before it came to the fence."""
        if self._identity is None:
            if self._opening or self._fence:
                raise VolumeForeignError("the disk in memory holds a part of a volume, and not whose it is")
            return
        fence = self._fence
        if fence is None or self._opening is None:
            raise VolumeCorruptError("a part of the volume in memory is missing or damaged")
        if self.written < fence.written:
            raise VolumeCorruptError(f"batches {self.written + 1} to {fence.written} are missing, and were durable")
        if fence.opening not in (self._opening, self._opening_before):
            raise VolumeCorruptError("the database and its fence come from different copies of this volume")

    def _create(self, identity: VolumeIdentity) -> None:
        self._identity = identity
        self._opening = object()
        self._fence = self._durable_fence = _Fence(self._opening, 0)

    def _begin_opening(self) -> None:
        """Recovery writes what it found anew, with a batch of its own, and syncs it."""
        batch = UndoLog()
        batch.undos.append((self._set_openings, (self._opening, self._opening_before)))
        self._set_openings((object(), self._opening))
        self._batches.append(batch)
        self._prove(self.written)

    def _set_openings(self, openings: tuple[object, object]) -> None:
        self._opening, self._opening_before = openings

    def _try_writing(self, changes: list[Change]) -> None:
        if self.faults.full:
            raise VolumeFullError("the disk is full")
        fault, self.faults.write = self.faults.write, ""
        if fault == "kept":
            self._ghosts.append(changes)
        if fault:
            raise VolumeFailedError("a write failed")

    def _try_syncing(self) -> None:
        if self.faults.full_syncs:
            raise VolumeFullError("the disk is full")
        fault, self.faults.sync = self.faults.sync, ""
        if fault == "lost" and self._batches:
            self._batches[0].lost = True
        if fault:
            raise VolumeFailedError("a sync failed")

    def _apply(self, changes: list[Change]) -> None:
        batch = UndoLog()
        for change, argument in changes:
            change(argument, batch)
        self._batches.append(batch)

    def _prove(self, upto: int) -> None:
        """Says that the batches up to that one are durable. Unless the disk lies, they are."""
        self._fence = _Fence(self._opening, upto)
        if not self.faults.lying:
            self._settle(upto)

    def _settle(self, upto: int) -> None:
        self._durable_fence = self._fence
        count = min([upto - self._synced, *self._lost])  # no later sync brings back what one has lost
        if count > 0:
            for batch in self._batches[:count]:
                for log, chopped in batch.chops:
                    log.settled = chopped
            del self._batches[:count]
            self._synced += count

    @property
    def _lost(self) -> list[int]:
        """The places of the batches that a failed sync has lost."""
        return [place for place, batch in enumerate(self._batches) if batch.lost]

    def _take_back(self, keep: int) -> None:
        least = min([keep, *self._lost])
        if len(self._batches) > least:
            self._ghosts.clear()  # they lie behind what is gone, and cannot be read without it
        while len(self._batches) > least:
            for undo, argument in reversed(self._batches.pop().undos):
                undo(argument)

    def _take(self, other: MemoryDisk, part: Part) -> None:
        """Becomes as durable as other people's copies are."""
        if part == "all":
            self._identity = other._identity
        if part != "fence":
            self._content = other._content.copy()
            self._batches, self._synced = [], other.written
            self._ghosts = []
            self._set_openings((other._opening, other._opening_before))
            self.faults.unreadable = set(other.faults.unreadable)
        if part != "database":
            self._fence = self._durable_fence = other._fence

    def _raise_if_open(self) -> None:
        if self._volume is not None:
            raise VolumeLockedError("the volume in memory is in use: end its process first")


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
