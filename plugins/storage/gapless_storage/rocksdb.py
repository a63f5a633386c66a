"""The RocksDB storage: one database per volume, one log, one sync for streams and tables together.

`write` hands what is staged to RocksDB as one batch, on the caller's thread, without a sync. `sync` blocks
in two phases, each with a lock of its own, so that two threads may be in it at once and the next group's
log is synced while this group's fence is:

1. RocksDB's log is synced;
2. the fence is synced, which says up to which batch phase 1 came. Only then is a batch durable.

With the option `fence = "behind"` phase 1 makes a batch durable, and a thread of the volume's own lets the fence follow
within 20 ms, one write for all. Whether the volume is still ours is looked at before each receipt in either case.

Any failure of either is final for the volume object: close it and open it anew, which decides from what is
really on disk.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rocksdict import WriteBatch

from gapless import loggers
from gapless.errors import (
    ConfigurationError,
    StorageError,
    VolumeAbsentError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
)
from gapless.plugins import hookimpl
from gapless.spi import Create, StorageCapabilities, VolumeIdentity
from gapless_storage._rocksdb.engine import Tuning
from gapless_storage._rocksdb.excision import copy_readable, exchange
from gapless_storage._rocksdb.fence import FenceFollower
from gapless_storage._rocksdb.files import storage_error
from gapless_storage._rocksdb.forks import note
from gapless_storage._rocksdb.layout import (
    NEXT_ID_KEY,
    STREAM_ID_MAX,
    STREAM_NAMES,
    TABLE_NAMES,
    decode_id,
    encode_id,
    stream_name_key,
    table_name_key,
)
from gapless_storage._rocksdb.opening import OpenVolume, open_directory
from gapless_storage._rocksdb.seal import seal
from gapless_storage._rocksdb.streams import Reclaim, RocksdbStream, RocksdbTable

_LOGGER = loggers.logger("gapless.storage.rocksdb")


_NOT_OURS = (VolumeForeignError, VolumeAbsentError)
"""What is at the volume's path is somebody else's, or nothing."""


class RocksdbOptions(BaseModel):
    """The options of the RocksDB storage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    write_buffer_bytes: Annotated[int, Field(ge=64 << 10, le=1 << 30)] = 16 << 20
    """Memory for records before they are flushed to a data file. Four times as much log may have to be
    replayed after a crash."""
    compression: Literal["none", "lz4", "zstd"] = "lz4"
    """Of data files. zstd halves them once more, and reading takes twice as long."""
    reserve_bytes: Annotated[int, Field(ge=0)] | None = None
    """Room kept aside on the disk, to recover and to go on acknowledging when it is full. None: eight times
    `write_buffer_bytes`, twice what the opening of a volume may need whose process was killed."""
    fence: Literal["before", "behind"] = "before"
    """Whether the fence is synced before a receipt, or follows within 20 ms. With "behind" a receipt waits for one sync
    instead of two; a disk that loses what it had synced is noticed all the same, but for the last 20 ms."""
    watchdog_seconds: Annotated[float, Field(ge=1, le=3600)] = 8.0
    """How long a verifying open may take before the volume is called corrupt: whoever waits is told within ten."""


class RocksdbVolume:
    """A volume in a directory; see `gapless.spi.LogVolume`. Made by `open_storage`."""

    capabilities = StorageCapabilities(durable=True)

    def __init__(self, opened: OpenVolume, fence: Literal["before", "behind"]) -> None:
        self.identity = opened.identity
        self.created = opened.created
        self._opened = opened
        self._engine = opened.engine
        self._fence = opened.fence
        self._presence = opened.presence()
        self._mark = opened.fence.mark  # of the newest batch written
        self._synced = opened.fence.mark  # of the newest batch that phase 1 covers
        self._batch: WriteBatch | None = None
        self._batch_mark = self._mark
        self._streams: dict[str, RocksdbStream] = {}
        self._chopping: list[RocksdbStream] = []  # whose chop is staged
        self._growing: list[RocksdbStream] = []  # with records that are staged
        self._tables: dict[str, RocksdbTable] = {}
        self._next_id: int | None = None
        self._failure: StorageError | None = None
        self._closed = False
        self._is_over = False  # it has failed, or is closed
        self._make_locks()
        note(self)
        self._follower = FenceFollower(self._sync_fence) if fence == "behind" else None

    # ------------------------------------------------------------------------------ what it holds

    def stream(self, name: str) -> RocksdbStream:
        """The stream of that name; a new one is made with the first write after this call."""
        if name not in self._streams:
            stream_id = self._id_of(stream_name_key(name))
            self._streams[name] = RocksdbStream(
                name,
                stream_id,
                self._engine,
                self._staged,
                self._chopping,
                self._growing,
                self._opened.note_damage,
            )
        return self._streams[name]

    def table(self, name: str) -> RocksdbTable:
        """The table of that name; a new one is made with the first write after this call."""
        if name not in self._tables:
            self._tables[name] = RocksdbTable(name, self._id_of(table_name_key(name)), self._engine, self._staged)
        return self._tables[name]

    def stream_names(self) -> Sequence[str]:
        """All streams."""
        return [key[1:].decode() for key, _ in self._engine.scan(STREAM_NAMES)]

    def table_names(self) -> Sequence[str]:
        """All tables."""
        return [key[1:].decode() for key, _ in self._engine.scan(TABLE_NAMES)]

    @property
    def reclaimable(self) -> int:
        """About how many bytes `reclaim` would give back. None while a part of the files cannot be read."""
        if not self._engine.compacting:
            return 0
        return sum(stream.reclaimable for stream in self._streams.values())

    @property
    def free_bytes(self) -> int:
        """Bytes left on the disk, without those that the reserve lacks."""
        return self._opened.reserve.free_bytes

    # ------------------------------------------------------------------------- writing and syncing

    def write(self) -> None:
        """Applies all that is staged as one atomic batch. Raises VolumeFailedError, VolumeFullError."""
        with self._write_lock:
            if self._is_over:
                raise self._refusal()
            batch, self._batch = self._batch, None  # rocksdict consumes it, whether it is written or not
            if batch is None:
                return
            while self._growing:
                self._growing.pop().stage_end(batch)
            try:
                self._engine.write(batch)
            except StorageError as error:
                raise self._fail(error) from error
            self._mark = self._batch_mark
        while self._chopping:
            self._chopping.pop().apply_chop()

    def sync(self) -> None:
        """Blocks until everything written before the call is durable.

        Raises VolumeFailedError, VolumeForeignError when somebody else has opened the volume meanwhile, and
        VolumeAbsentError when nobody will find it again.
        """
        self._sync_log()
        if self._follower is None:
            self._sync_fence()
        else:
            self._check_owner()
            self._follower.follow()
        try:
            self._presence.check(thoroughly=False)
        except StorageError as error:
            raise self._fail(error) from error

    def tend(self) -> None:
        """Looks whether the volume is still where it was opened, and after its reserve. Raises VolumeAbsentError."""
        if self._is_over:
            raise self._refusal()
        reserve = self._opened.reserve
        with self._reserve_lock:
            try:
                self._presence.check(thoroughly=True)
                reserve.tend()
                if not self._engine.compact_within(reserve.free_bytes):
                    self._engine.check_background()
                    self._give_back_rests_unless_reclaiming()
            except StorageError as error:
                raise self._fail(error) from error
            except OSError as error:  # somebody else was quicker: publishers wait as long as it is not whole
                _LOGGER.warning("%s: the reserve cannot be kept aside: %s", self._opened.directory, error)

    def _sync_log(self) -> None:
        with self._log_lock:
            if self._is_over:
                raise self._refusal()
            mark = self._mark  # read before the sync: what is written during it may be missed
            if mark is self._synced:
                return
            try:
                self._engine.sync_log()
            except StorageError as error:
                raise self._fail(error) from error
            self._synced = mark

    def _sync_fence(self) -> None:
        with self._fence_lock:
            if self._is_over:
                raise self._refusal()
            mark = self._synced  # at least what this thread's phase 1 covered, maybe a later thread's
            if mark.counter <= self._fence.mark.counter:
                return
            try:
                self._fence.advance(mark)
            except OSError as error:
                raise self._fail(storage_error(error, "the fence cannot be written")) from error
            except StorageError as error:
                raise self._fail(error) from error

    def _check_owner(self) -> None:
        if self._is_over:
            raise self._refusal()
        try:
            self._fence.check_owner()
        except OSError as error:
            raise self._fail(storage_error(error, "the fence cannot be read")) from error
        except StorageError as error:
            raise self._fail(error) from error

    # ---------------------------------------------------------------------------------- reclaiming

    def reclaim(self) -> int:
        """Gives the space of chopped records back to the disk. Blocks; writes wait a few ms for it once."""
        with self._reclaim_lock:
            if self._is_over:
                raise self._refusal()
            if not self._engine.compacting:
                return 0
            plans = [plan for stream in [*self._streams.values()] if (plan := stream.plan_reclaim())]
            if not plans:
                return 0
            try:
                with self._fence_lock:  # one thread at a time looks at it
                    self._fence.check_owner()
                self._remove(plans)
                self._give_back_rests()
            except StorageError as error:
                raise self._fail(error) from error
        return sum(plan.bytes for plan in plans)

    def _remove(self, plans: list[Reclaim]) -> None:
        """What is in memory goes to files first, so that the deleted ranges are alone in theirs."""
        self._engine.flush_log_family()
        with self._write_lock:
            if self._is_over:
                raise self._refusal()
            batch = self._engine.repeating_batch(self._mark)
            for plan in plans:
                plan.stream.stage_reclaim(plan, batch)
            self._engine.isolate_in_file(batch)
        self._engine.flush_log_family()
        self._engine.flush_default_family()  # or what has just been moved to data files stays in the log too
        for plan in plans:
            plan.stream.finish_reclaim(plan)

    def _give_back_rests_unless_reclaiming(self) -> None:
        if self._reclaim_lock.acquire(blocking=False):
            try:
                self._give_back_rests()
            finally:
                self._reclaim_lock.release()

    def _give_back_rests(self) -> None:
        """What was removed goes from the disk, if there is room for what has to be written anew for that.

        Without that room RocksDB would try for ever: it is left as it is till more is removed, or somebody makes room.
        """
        streams = [stream for stream in [*self._streams.values()] if stream.has_rest]
        if not streams:
            return
        # What is chopped, and not yet removed, is written anew like all else.
        live = sum([stream.size + stream.reclaimable for stream in [*self._streams.values()]])
        with self._opened.reserve.used_for(min(live, self._engine.rewritten_at_most())) as has_room:
            for stream in streams if has_room else ():
                stream.give_back_rest()

    # ----------------------------------------------------------------------------------- repairing

    @property
    def damage(self) -> str:
        """What was found to be unreadable, and is still there; "" when nothing was."""
        return self._opened.damage

    def excise(self) -> str:
        """Makes the database anew of all that can be read, and closes the volume."""
        self._sync_all()
        copy_readable(self._opened, [self.stream(name) for name in self.stream_names()], self._mark)
        with self._reclaim_lock, self._log_lock, self._fence_lock, self._write_lock:
            self._closed = self._is_over = True
            self._batch = None
            self._fence.close()
            self._engine.close()
            kept = exchange(self._opened, self._mark)
            self._opened.lock.release()
        return f"the old database is kept in {kept}: remove it when you need it no more"

    # ------------------------------------------------------------------------------------- closing

    def close(self) -> None:
        """Syncs if it can, lets go of the volume in any case. What is staged and not written is dropped.

        Never raises: what the last sync could not make durable, nobody was told to be.
        """
        if self._closed:
            return
        try:
            if self._failure is None:
                self._sync_all()
        except StorageError as error:
            _LOGGER.warning("%s: the last sync failed: %s", self._opened.directory, error)
        finally:
            if self._follower is not None:
                self._follower.stop()
            with self._reclaim_lock, self._log_lock, self._fence_lock, self._write_lock:
                self._closed = self._is_over = True
                self._release()

    def leave_to_parent(self) -> None:
        """This is a forked child, and the volume is its parent's: nothing is done with it here."""
        self._closed = self._is_over = True
        self._failure = VolumeFailedError("the volume belongs to the process this one was forked from")
        self._make_locks()  # a thread of the parent may hold one: here it will never let go
        self._engine.abandon()
        self._opened.lock.leave_to_parent()

    def _make_locks(self) -> None:
        # Always taken in this order, never the other way round.
        self._reserve_lock = threading.Lock()
        self._reclaim_lock = threading.Lock()
        self._log_lock = threading.Lock()
        self._fence_lock = threading.Lock()
        self._write_lock = threading.Lock()

    def _sync_all(self) -> None:
        """Log and fence: nothing follows any more."""
        if self._follower is not None:
            self._follower.stop()
        self.sync()
        self._sync_fence()

    def _release(self) -> None:
        fence = self._fence.mark
        self._batch = None
        is_ours = self._is_ours()
        self._fence.close()
        if not is_ours:
            self._engine.abandon()
        elif self._engine.close() and self._failure is None:
            seal(self._opened.seal_path, self._opened.database, fence)
        self._opened.lock.release()

    def _is_ours(self) -> bool:
        """Whether nobody else has opened the volume, as far as the fence can be read."""
        if isinstance(self._failure, _NOT_OURS):
            return False
        try:
            self._fence.check_owner()
            self._presence.check(thoroughly=True)
        except _NOT_OURS as error:
            _LOGGER.error("%s", error)  # noqa: TRY400 - what happened, not where
            return False
        except (OSError, StorageError):
            return True
        return True

    # ----------------------------------------------------------------------------------- internals

    def _staged(self) -> WriteBatch:
        """The batch that the next `write` applies."""
        if self._batch is None:
            self._batch_mark = self._mark.next()
            self._batch = self._engine.marked_batch(self._batch_mark)
        return self._batch

    def _id_of(self, name_key: bytes) -> int:
        """The number of a stream or table; a new one is staged with its name."""
        known = self._engine.get(name_key)
        if known is not None:
            return decode_id(known)
        if self._next_id is None:
            counted = self._engine.get(NEXT_ID_KEY)
            self._next_id = decode_id(counted) if counted is not None else 1
        number = self._next_id
        assert number <= STREAM_ID_MAX
        self._next_id += 1
        batch = self._staged()
        batch.put(NEXT_ID_KEY, encode_id(self._next_id))
        batch.put(name_key, encode_id(number))
        return number

    def _fail(self, error: StorageError) -> StorageError:
        """Remembers the first failure; what to raise for this one."""
        if isinstance(error, VolumeCorruptError):
            self._opened.note_damage(str(error))
        if not isinstance(error, _NOT_OURS):
            try:  # what fails may fail because the volume is gone; then it is not to be opened again
                self._presence.check(thoroughly=True)
            except VolumeAbsentError as absence:
                error = absence
            except StorageError:
                pass
        if not isinstance(error, (VolumeFailedError, *_NOT_OURS)):
            error = VolumeFailedError(str(error))
        self._failure = self._failure or error
        self._is_over = True
        return error

    def _refusal(self) -> StorageError:
        """Why nothing can be done with the volume any more."""
        if self._failure is None:
            return VolumeFailedError("the volume is closed")
        kinds = (VolumeFullError, *_NOT_OURS)
        kind = next((kind for kind in kinds if isinstance(self._failure, kind)), VolumeFailedError)
        return kind(f"the volume has failed before and must be reopened: {self._failure}")


@hookimpl
def open_storage(path: str, identity: VolumeIdentity, options: Mapping[str, Any], create: Create) -> RocksdbVolume:
    """The volume in the directory `path`; made if it is not there and may be.

    Raises ConfigurationError, VolumeAbsentError, VolumeForeignError, VolumeLockedError, VolumeCorruptError,
    VolumeFullError, VolumeFailedError.
    """
    if not path:
        raise ConfigurationError("the RocksDB storage needs a path: a directory of its own")
    checked = _checked(options)
    tuning = Tuning(checked.write_buffer_bytes, checked.compression)
    reserve = 8 * tuning.write_buffer_bytes if checked.reserve_bytes is None else checked.reserve_bytes
    opened = open_directory(Path(path).absolute(), identity, tuning, checked.watchdog_seconds, reserve, create)
    return RocksdbVolume(opened, checked.fence)


def _checked(options: Mapping[str, Any]) -> RocksdbOptions:
    try:
        return RocksdbOptions.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        known = ", ".join(RocksdbOptions.model_fields)
        raise ConfigurationError(
            f"storage option {key!r}: {first['msg']}; the options of the RocksDB storage are {known}"
        ) from None
