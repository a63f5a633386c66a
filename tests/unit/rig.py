"""A rig for one role: it lives on a disk in memory, under two clocks, and does only what a test makes it do.

    rig.feed(message)         a router says something; with a session, a client asks something
    rig.sync()                what was written is durable, and the role is told
    rig.read()                what the role asked to read is read and answered
    rig.advance(1_000)        time passes, and what becomes due is done
    rig.crash()               power fails: what was not synced is gone, and the role comes back

Each returns what the role said then; all it ever said is in `said`, and `sent(Kind)` picks from it. The rig stands
where a node stands: it knows of a role what `gapless.core.ports.Role` promises, and its disk is the one that the
simulator uses, with all that may happen to it (`gapless_storage.memory_disk`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from gapless.core.network.facts import OrderedGroup
from gapless.core.ports import (
    Append,
    Appended,
    Authorizer,
    ClientSession,
    Operation,
    Read,
    ReadResult,
    Role,
    RoleContext,
    Write,
)
from gapless.core.principal_limits import NO_LIMITS
from gapless.errors import RecordsDamagedError
from gapless.node.commit import VolumeWriter
from gapless.node.recovery import VolumeReader
from gapless.security.allow_all import AllowAll
from gapless.spi import LogVolume, VolumeIdentity
from gapless_storage.memory_disk import MemoryDisk

R = TypeVar("R", bound=Role)
K = TypeVar("K")

NANOSECONDS = 1_000_000
"""In a millisecond."""
IDENTITY = VolumeIdentity("network", "broker")


def disk_with(*operations: Operation) -> VolumeReader:
    """What a role is shown of a disk on which there is only this."""
    volume = MemoryDisk().open(IDENTITY)
    VolumeWriter(volume).write(operations)
    return VolumeReader(volume)


class Rig(Generic[R]):
    """See the module."""

    def __init__(self, make: Callable[[RoleContext], R], *, role: str, now: int, wall: int) -> None:
        """`now` in nanoseconds, `wall` in milliseconds. The role is made and started; nothing is synced yet."""
        self.make = make
        self.disk = MemoryDisk(durable=True)
        self.now = now
        self.wall = wall
        self.storage_id = "storage-1"
        self.name = role
        self.roles = frozenset({role})
        self.rules: Authorizer = AllowAll()
        self.groups: tuple[OrderedGroup, ...] = ()
        self.audited = False
        self.limits = NO_LIMITS
        self.traces = 0.0
        self.said: list[object] = []
        self.reads: list[Read] = []
        self.performed: list[Read] = []
        self.unsynced: list[Write] = []
        self.role: R
        self._pumping = False
        self.boot()

    # ----------------------------------------------------------------------------------- life and death

    def boot(self) -> list[object]:
        """Makes the role from what is on the disk, and starts it."""
        self.reads.clear()
        self._open()
        context = RoleContext(
            self.name,
            IDENTITY.node,
            IDENTITY.network,
            self.storage_id,
            VolumeReader(self.volume),
            self.now,
            self.wall,
            b"secret",
            self.rules,
            roles=self.roles,
            groups=self.groups,
            audited=self.audited,
            limits=self.limits,
            traces=self.traces,
        )
        try:
            self.role = self.make(context)
            return self._call(self.role.start, self.now, self.wall)
        except BaseException:
            self.disk.kill()
            raise

    def crash(self, keep: int = 0) -> list[object]:
        """Power fails, and the role comes back. The oldest `keep` writes happen to be durable all the same."""
        self.lose_power(keep)
        return self.boot()

    def lose_power(self, keep: int = 0) -> None:
        """The process is gone, and nobody serves the volume."""
        self._sync(keep)
        self.disk.crash()

    # -------------------------------------------------------------------------------- what a node does

    def feed(self, message: object, session: ClientSession | None = None) -> list[object]:
        """A router says something to the role; with a session, its client asks something."""
        if session is None:
            return self._call(self.role.handlers()[type(message)], message, self.now, self.wall)
        return self._call(self.role.requests()[type(message)], session, message, self.now, self.wall)

    def sync(self, count: int | None = None) -> list[object]:
        """The oldest writes, or all, become durable, as one group."""
        before = len(self.said)
        for write in self._sync(count):
            for operation in write.operations:
                if isinstance(operation, Append):
                    appended = Appended(operation.cookie, operation.indices or ())
                    self.role.handlers()[Appended](appended, self.now, self.wall)
            if write.cookie is not None:
                self.role.on_durable(write.cookie, self.now, self.wall)
        self.pump()
        return self.said[before:]

    def read(self, count: int | None = None) -> list[object]:
        """Answers the oldest reads, or all that there will be."""
        before = len(self.said)
        while self.reads and (count is None or count > 0):
            self.answer(self.perform(self.reads.pop(0)))
            count = None if count is None else count - 1
        return self.said[before:]

    def perform(self, read: Read) -> ReadResult:
        """Reads; the chop point is sampled as well."""
        self.performed.append(read)
        stream = self.volume.stream(read.stream)
        try:
            records = stream.read(read.after, read.upto, read.max_bytes)
        except RecordsDamagedError as error:
            return ReadResult(read.cookie, (), stream.first, str(error), error.upto)
        return ReadResult(read.cookie, records, stream.first)

    def answer(self, result: ReadResult) -> list[object]:
        """A read is answered."""
        return self._call(self.role.on_read, result, self.now, self.wall)

    def advance(self, ms: int, *, wall: bool = True, sync: bool = True) -> list[object]:
        """Time passes, and what becomes due is done at its time. `wall` False: that clock stands still."""
        before = len(self.said)
        end = self.now + ms * NANOSECONDS
        while (due := self.role.deadline()) is not None and due <= end:
            self._pass(max(due, self.now), wall=wall)
            self.role.on_deadline(self.now, self.wall)
            self.pump()
            if sync:
                self.sync()
        self._pass(end, wall=wall)
        return self.said[before:]

    def pause(self, ms: int) -> list[object]:
        """Time passes at a stroke; what was due is done late, and once."""
        before = len(self.said)
        self._pass(self.now + ms * NANOSECONDS, wall=True)
        due = self.role.deadline()
        if due is not None and due <= self.now:
            self.role.on_deadline(self.now, self.wall)
        self.pump()
        return self.said[before:]

    def pump(self) -> None:
        """Does what the role asks for, and notes what it says."""
        if self._pumping:
            return  # what `on_said` feeds is answered after what was said with it
        self._pumping = True
        try:
            while effects := self.role.take_effects(self.now, self.wall):
                for effect in effects:
                    self._do(effect)
        finally:
            self._pumping = False

    @contextmanager
    def one_turn(self) -> Iterator[None]:
        """What is fed meanwhile comes in one turn of the node: what the role asks for is done at its end."""
        self._pumping = True
        try:
            yield
        finally:
            self._pumping = False
        self.pump()

    def on_said(self, effect: object) -> None:
        """For worlds around a role: it has said this."""

    # ------------------------------------------------------------------------------------------ looking

    def sent(self, kind: type[K]) -> list[K]:
        """All that was said of a kind."""
        return [effect for effect in self.said if isinstance(effect, kind)]

    def records(self, stream: str) -> list[tuple[int, bytes]]:
        """The records that are in a stream now, synced or not, above its chop point."""
        return _records(self.volume, stream)

    def rows(self, table: str) -> dict[bytes, bytes]:
        """The rows that are in a table now, synced or not, in the order of their keys."""
        return dict(self.volume.table(table).scan())

    def everything(self) -> dict[str, object]:
        """All streams and tables as they are now."""
        streams: dict[str, object] = {name: self.records(name) for name in self.volume.stream_names()}
        return streams | {name: self.rows(name) for name in self.volume.table_names()}

    def durable(self, table: str) -> dict[bytes, bytes]:
        """The rows that a table would have after a loss of power."""
        volume = self._booted.copy().open(IDENTITY)
        writer = VolumeWriter(volume)
        for write in self._synced:
            writer.write(write.operations)
        return dict(volume.table(table).scan())

    # -------------------------------------------------------------------------------- damage and repair

    @contextmanager
    def repairing(self) -> Iterator[LogVolume]:
        """The volume in somebody else's hands: what he stages is on the disk, durably, and the role knows nothing."""
        assert not self.unsynced, "sync first, or lose power"
        yield self.volume
        self.volume.write()
        self.volume.sync()
        self._begin()

    def change_rows(self, *operations: Operation) -> None:
        """Somebody else has written this."""
        with self.repairing():
            self._writer.write(operations)

    def change_records(
        self, stream: str, change: Callable[[list[tuple[int, bytes]]], object], *, last: int | None = None
    ) -> None:
        """Somebody else has changed the records of a stream. Its storage remembers the last index, or this one."""
        assert not self.unsynced, "sync first, or lose power"
        unreadable = self.disk.faults.unreadable.copy()
        self.disk.faults.unreadable.clear()
        records = self.records(stream)
        change(records)
        old, self.disk = self.volume, MemoryDisk(durable=True)
        self._open()
        for table in old.table_names():
            for row in old.table(table).scan():
                self.volume.table(table).put(*row)
        for name in old.stream_names():
            log, copy = old.stream(name), self.volume.stream(name)
            if log.first:
                copy.put(log.first, b"")  # or there is nothing to chop
            for entry in records if name == stream else _records(old, name):
                copy.put(*entry)
            for lost in log.given_up:
                copy.give_up(*lost)
            self.volume.write()
            copy.chop(log.first)
        self.volume.write()
        self.volume.sync()
        self.disk._content.logs[stream].last = old.stream(stream).last if last is None else last
        self.disk.faults.unreadable.update(unreadable)
        self._begin()

    # ------------------------------------------------------------------------------------ how it is done

    def _open(self) -> None:
        self.volume = self.disk.open(IDENTITY)
        self._writer = VolumeWriter(self.volume)
        self._begin()

    def _begin(self) -> None:
        """All that is on the disk is durable."""
        self._booted = self.disk.copy()
        self._synced: list[Write] = []
        self.unsynced = []

    def _sync(self, count: int | None) -> Sequence[Write]:
        synced, self.unsynced = self.unsynced[:count], [] if count is None else self.unsynced[count:]
        self.volume.sync(self.disk.written - sum(bool(write.operations) for write in self.unsynced))
        self._synced += synced
        return synced

    def _do(self, effect: object) -> None:
        if isinstance(effect, Write):
            self._writer.write(effect.operations)
            self.unsynced.append(effect)
        elif isinstance(effect, Read):
            self.reads.append(effect)
        else:
            self.said.append(effect)
            self.on_said(effect)

    def _pass(self, now: int, *, wall: bool) -> None:
        if wall:
            self.wall += now // NANOSECONDS - self.now // NANOSECONDS
        self.now = now

    def _call(self, function: Callable[..., Any], *arguments: Any) -> list[object]:
        before = len(self.said)
        function(*arguments)
        self.pump()
        return self.said[before:]


def _records(volume: LogVolume, stream: str) -> list[tuple[int, bytes]]:
    return list(VolumeReader(volume).records(stream, volume.stream(stream).first))
