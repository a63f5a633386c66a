"""What a broker does with its disk, under virtual time: writes, syncs, reads, and the upkeep of its volume.

    commit ──▶ written ──sync, a while later──▶ durable, or failed
                  └──a chop, a second later at most──▶ reclaimed, as far as it is durable by then

In production a thread waits for each sync and for each read, and the node's upkeep looks once a second
whether there is space to be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gapless.core.ports import Chop
from gapless.errors import RecordsDamagedError, StorageError
from gapless.node.commit import GroupCommit, SyncGroup
from gapless_sim.world.options import MILLISECOND, SECOND

if TYPE_CHECKING:
    from gapless.core.ports import Operation
    from gapless.node.machine import Cookie, Machine
    from gapless.spi import LogVolume
    from gapless_sim.world.broker import SimBroker

_LOOK_MS = 1_000
"""The upkeep looks once in this time (`gapless.node.upkeep`)."""


class DiskDriver:
    """The open volume of one life of a broker, and everything that is under way on it."""

    def __init__(self, broker: SimBroker, volume: LogVolume) -> None:
        self.volume = volume
        self._broker = broker
        self._world = broker.world
        self._life = broker.life
        self._choices = broker.world.choices.stream("disk")
        self._upkeep_choices = broker.world.choices.stream("upkeep")
        self._commit = GroupCommit(volume, self._begin_sync, self._on_durable, self._on_failed)
        self._reclaim_is_due = False

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes at once; the sync takes a while."""
        try:
            self._commit.commit(operations, cookies, self._world.now)
        except StorageError:
            self._world.observe.failed_to_write(self._broker, operations)
            raise
        if operations:
            self._world.observe.written(self._broker, operations)
            self._note_chops(operations)

    def records(self, stream: str, after: int) -> Sequence[tuple[int, bytes]]:
        """All records of a stream whose index is above that, as far as they were written and can be read."""
        log = self.volume.stream(stream)
        found: list[tuple[int, bytes]] = []
        while True:
            try:
                records = log.read(after, (1 << 63) - 1, 1 << 40)
            except RecordsDamagedError as error:
                after = error.upto
                continue
            if not records:
                return found
            found += records
            after = records[-1][0]

    # Syncs.

    def _begin_sync(self, group: SyncGroup) -> None:
        world, faults = self._world, self._world.options.disk
        duration = self._choices.delay(100_000, faults.sync_time)
        if self._choices.chance(faults.stall):
            duration += self._choices.draw(8) * SECOND // 2
            world.sometimes("disk.stalled")
        end = max(world.now + duration, self._broker.stalled_until)
        world.at(end, self._broker.name, "synced", self._synced, group, self._broker.disk.written, life=self._life)

    def _synced(self, group: SyncGroup, upto: int) -> None:
        broker, world = self._broker, self._world
        if broker.paused_until > world.now:
            world.at(broker.paused_until, broker.name, "synced", self._synced, group, upto, life=self._life)
            return
        machine = broker.machine
        assert machine is not None
        if not machine.alive:
            return
        error: BaseException | None = None
        try:
            broker.disk.sync(self.volume, upto)
        except StorageError as failure:
            error = failure
        self._commit.on_synced(group, error, world.now)

    def _on_durable(self, cookies: Sequence[Cookie]) -> None:
        assert self._broker.machine is not None
        self._broker.machine.on_durable(cookies)

    def _on_failed(self, error: BaseException) -> None:
        assert self._broker.machine is not None
        self._broker.machine.fail(error)

    # Reads.

    def read(self, machine: Machine) -> None:
        """One read after another, each of which takes a while."""
        world = self._world
        duration = self._choices.delay(50_000, world.options.disk.read_time)
        world.at(world.now + duration, self._broker.name, "read", self._read, machine, life=self._life)

    def _read(self, machine: Machine) -> None:
        if machine.alive and machine.reads:
            self._broker.reads += 1
            machine.read_one()

    # Upkeep.

    def _note_chops(self, operations: Sequence[Operation]) -> None:
        """What was chopped is reclaimed when the upkeep looks the next time."""
        if self._reclaim_is_due or not any(type(operation) is Chop for operation in operations):
            return
        self._reclaim_is_due = True
        wait = (_LOOK_MS - self._upkeep_choices.draw(_LOOK_MS)) * MILLISECOND
        self._world.after(wait, self._broker.name, "upkeep", self._reclaim, life=self._life)

    def _reclaim(self) -> None:
        self._reclaim_is_due = False
        machine = self._broker.machine
        if machine is None or not machine.alive:
            return
        try:
            if self.volume.reclaim():
                self._world.sometimes("disk.reclaimed")
        except StorageError as error:
            machine.fail(error)
