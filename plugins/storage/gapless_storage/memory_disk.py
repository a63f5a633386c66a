"""The disk in memory: what a volume's data lives in, and all that may happen to it.

A `MemoryDisk` outlives the volume that is open on it, as a disk outlives a process. What was written is
visible at once and durable after a sync. What goes wrong is chosen by whoever holds the disk, a test or a
simulator: nothing here is left to chance.

It is a model of what the RocksDB volume really does under faults. tests/sim plays the same histories on
both, and fails when the real one does what this one does not allow; what was seen is told in
docs/topics/simulated-disk.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from gapless.errors import (
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import StorageCapabilities, VolumeIdentity
from gapless_storage._memory import Change, Content, UndoLog
from gapless_storage.memory_volume import MemoryVolume

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
