"""Creating a volume, and opening one: only its owner may, and only if nothing that was durable is missing.

    directory/
      volume.json   whose it is (`identity`)
      lock          held while it is open
      fence         the last durable batch (`fence`)
      seal          what the database's files were at a clean close (`seal`)
      damaged       what of the database was found to be unreadable, if anything was
      reserve       room that is kept aside (`reserve`)
      rocksdb/      the database

The order of creation is a story in four steps, each durable before the next: volume.json says
"creating"; the database has its first batch; the fence says so; volume.json says "complete". Whoever
finds "creating" begins anew.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gapless import loggers
from gapless.errors import ConfigurationError, VolumeAbsentError, VolumeCorruptError, VolumeForeignError
from gapless.spi import Create, VolumeIdentity
from gapless_storage._rocksdb import wal
from gapless_storage._rocksdb.engine import Database, Tuning, says_damaged
from gapless_storage._rocksdb.fence import Fence
from gapless_storage._rocksdb.files import (
    PRIVATE_DIRECTORY,
    DirectoryLock,
    make_directory,
    make_private,
    storage_error,
    sync_directory,
    sync_file,
)
from gapless_storage._rocksdb.identity import (
    CREATING,
    FILE_NAME,
    Marker,
    check_identity,
    read_marker,
    write_marker,
)
from gapless_storage._rocksdb.layout import Mark
from gapless_storage._rocksdb.logformat import intact_records
from gapless_storage._rocksdb.presence import Presence
from gapless_storage._rocksdb.reserve import Reserve
from gapless_storage._rocksdb.seal import is_sealed
from gapless_storage._rocksdb.watchdog import Flushed, inspect_within

_LOGGER = loggers.logger("gapless.storage.rocksdb")

DAMAGE_NOTE = "damaged"
REPAIRED = "rocksdb.repaired"
"""Where a repair makes the new database. It is whole when there is no other."""

_BEGUN = {FILE_NAME, f"{FILE_NAME}.new", "lock"}
"""One of these says that a volume is here, or that somebody who was allowed to has begun to make one."""
_NOT_FOREIGN = {*_BEGUN, "lost+found"}
"""What a directory may hold that is to become a volume: the rest of an attempt, or a mount point's."""

_NO_PLACE = {
    errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL
}  # fmt: skip
"""Errors that say that the path or its permissions are wrong. All others are the disk's or the system's: a file
system that has become read-only, too, for that is what some do after an error of the disk."""

_ADVICE = (
    "Bring back a copy of the whole directory that was made later than what is missing, "
    "or move the directory away and start empty, which gives up everything in it. "
    "`gapless repair` cannot help here: it gives up records of streams, and nothing else"
)


@dataclass(slots=True)
class OpenVolume:
    """An open volume's parts."""

    directory: Path
    lock: DirectoryLock
    engine: Database
    fence: Fence
    reserve: Reserve
    identity: VolumeIdentity
    created: bool
    tuning: Tuning

    def presence(self) -> Presence:
        """What is there now."""
        return Presence(self.directory, self.database, [self.directory / name for name in (FILE_NAME, "fence", "lock")])

    @property
    def seal_path(self) -> Path:
        """Where the seal is kept."""
        return self.directory / "seal"

    @property
    def database(self) -> Path:
        """Where the database is kept."""
        return self.directory / "rocksdb"

    def note_damage(self, text: str) -> None:
        """Something of the database cannot be read: from now on, and after every opening, files are not merged.

        RocksDB takes no write of anybody any more when merging meets what it cannot read.
        """
        if self.engine.compacting:
            note_damage(self.directory, text)
            self.engine.stop_compacting()

    @property
    def damage(self) -> str:
        """What was found to be unreadable; "" when nothing was."""
        note = self.directory / DAMAGE_NOTE
        return note.read_text().strip() if note.exists() else ""


def note_damage(directory: Path, text: str) -> None:
    """Keeps in mind that something of the database in `directory` cannot be read."""
    note = directory / DAMAGE_NOTE
    if note.exists():
        return
    _LOGGER.error(
        "%s: a part of the data files cannot be read. Until `gapless repair` has been run they are not merged any "
        "more, and no space is given back to the disk: %s",
        directory,
        text,
    )
    try:
        note.write_text(f"{text}\n")
        sync_directory(directory)
    except OSError as error:
        _LOGGER.warning("%s cannot be written: %s", note, error)


def open_directory(
    directory: Path, wanted: VolumeIdentity, tuning: Tuning, watchdog_seconds: float, reserve_bytes: int, create: Create
) -> OpenVolume:
    """Opens the volume in `directory`, or makes one if there is nothing and it may.

    Raises ConfigurationError (no such place), VolumeAbsentError, VolumeForeignError, VolumeLockedError,
    VolumeCorruptError, VolumeFullError, VolumeFailedError.
    """
    try:
        _claim(directory, create)
        lock = DirectoryLock(directory)
    except OSError as error:
        if error.errno in _NO_PLACE:
            raise ConfigurationError(f"no volume can be kept in {directory}: {error.strerror}") from error
        raise storage_error(error, f"{directory} cannot be opened") from error
    try:
        make_private(directory)
        reserve = Reserve(directory, reserve_bytes)
        marker = read_marker(directory)
        if marker is None or marker.state == CREATING:
            return _create(directory, lock, reserve, wanted, tuning)
        check_identity(directory, marker, wanted)
        reserve.give_up_if_needed()
        tuning = replace(tuning, compacts=reserve.free_bytes >= tuning.compaction_bytes)
        return _open(directory, lock, reserve, marker, tuning, watchdog_seconds)
    except OSError as error:
        lock.release()
        raise storage_error(error, f"{directory} cannot be opened") from error
    except BaseException:
        lock.release()
        raise


def _claim(directory: Path, create: Create) -> None:
    """Makes the directory if it is not there and may be; refuses one that others use, or where a volume is missing."""
    is_there = directory.exists()
    if is_there and not directory.is_dir():
        raise VolumeForeignError(f"{directory} is a file: a volume needs a directory of its own")
    names = {path.name for path in directory.iterdir()} if is_there else set()
    if FILE_NAME not in names and (strange := sorted(names - _NOT_FOREIGN)):
        raise VolumeForeignError(
            f"{directory} is not empty and is no volume: it has no {FILE_NAME}, but {strange[0]!r}. "
            "Give the volume a directory of its own"
        )
    if not names & _BEGUN and (create is Create.NO or (is_there and create is Create.WHERE_NOTHING_IS)):
        what = "the directory is empty, as one is whose mount has failed" if is_there else "there is no such directory"
        raise VolumeAbsentError(
            f"there is no volume in {directory}: {what}. If there should be one, bring it back or mount its disk; "
            "a new one is made by `gapless broker --create`"
            + (", or where there is no directory" if create is Create.WHERE_NOTHING_IS else "")
        )
    make_directory(directory)


# ---------------------------------------------------------------------------------------- creating


def _create(
    directory: Path, lock: DirectoryLock, reserve: Reserve, identity: VolumeIdentity, tuning: Tuning
) -> OpenVolume:
    database, fence_path = directory / "rocksdb", directory / "fence"
    _LOGGER.info("making a volume in %s for node %r of network %r", directory, identity.node, identity.network)
    shutil.rmtree(database, ignore_errors=True)
    fence_path.unlink(missing_ok=True)
    (directory / DAMAGE_NOTE).unlink(missing_ok=True)
    volume = os.urandom(16)
    marker = Marker(identity.network, identity.node, volume.hex(), CREATING)
    write_marker(directory, marker)
    _keep_aside(reserve, directory)
    database.mkdir(PRIVATE_DIRECTORY)
    engine = Database(database, tuning, create=True, compacting=True)
    try:
        mark = Mark(volume, generation=1, opening=_random_opening(), previous=0, counter=1)
        engine.write(engine.marked_batch(mark))
        engine.sync_log()
        sync_directory(directory)
        Fence.create(fence_path, mark)
        write_marker(directory, marker.completed())
        fence = Fence(fence_path)
    except BaseException:
        engine.close()
        raise
    return OpenVolume(directory, lock, engine, fence, reserve, identity, created=True, tuning=tuning)


def _keep_aside(reserve: Reserve, directory: Path) -> None:
    try:
        reserve.take()
    except OSError as error:
        what = f"{directory} has no room for the reserve of a new volume: make some, or set storage.reserve_bytes"
        raise storage_error(error, what) from error


# ----------------------------------------------------------------------------------------- opening


def _open(
    directory: Path, lock: DirectoryLock, reserve: Reserve, marker: Marker, tuning: Tuning, watchdog_seconds: float
) -> OpenVolume:
    try:
        fence = _open_fence(directory, marker)
        try:
            engine = _open_database(directory, fence, tuning, watchdog_seconds)
        except BaseException:
            fence.close()
            raise
    except VolumeCorruptError as error:
        raise VolumeCorruptError(f"{error}. {_ADVICE}") from error
    return OpenVolume(directory, lock, engine, fence, reserve, marker.identity, created=False, tuning=tuning)


def _open_fence(directory: Path, marker: Marker) -> Fence:
    fence = Fence(directory / "fence")
    if fence.mark.volume.hex() != marker.volume:
        fence.close()
        raise VolumeCorruptError(f"the fence in {directory} is another volume's")
    return fence


def _open_database(directory: Path, fence: Fence, tuning: Tuning, watchdog_seconds: float) -> Database:
    database = directory / "rocksdb"
    if not database.is_dir() and (directory / REPAIRED).is_dir():
        _LOGGER.warning("%s: a repair was stopped at its last step, which is done now", directory)
        (directory / REPAIRED).rename(database)
        sync_directory(directory)
    if not database.is_dir():
        raise VolumeCorruptError(f"the database {database} is missing")
    sealed = is_sealed(directory / "seal", database, fence.mark)
    if not sealed:
        _check_database(database, fence.mark, watchdog_seconds)
    if not (directory / DAMAGE_NOTE).exists():
        try:
            return _begun(database, fence, tuning, sealed=sealed, compacting=True)
        except VolumeCorruptError as error:
            if not says_damaged(str(error)):
                raise
            note_damage(directory, str(error))
    return _begun(database, fence, tuning, sealed=sealed, compacting=False)


def _begun(database: Path, fence: Fence, tuning: Tuning, *, sealed: bool, compacting: bool) -> Database:
    engine = Database(database, tuning, create=False, compacting=compacting)
    try:
        _begin_generation(engine, fence, database, sealed=sealed)
    except VolumeForeignError:
        engine.abandon()
        raise
    except BaseException:
        engine.close()
        raise
    return engine


def _check_database(database: Path, fence: Mark, watchdog_seconds: float) -> None:
    """Proves that every batch up to the fence is there; then cuts off what was never durable."""
    try:
        chain = _proven_chain(database, inspect_within(database, watchdog_seconds), fence)
    except VolumeCorruptError as error:
        torn = torn_manifest(database)
        if torn is None:
            raise
        chain = _chain_on_trial(database, torn, fence, watchdog_seconds, error)
        _LOGGER.warning("%s: cutting off its end, which was never synced", torn.path)
        torn.cut_off()
    for part in chain.cuts:
        _LOGGER.warning("%s: cutting off %d bytes that were never synced", part.path, part.cut_bytes)
    wal.cut(chain)


def _chain_on_trial(
    database: Path, torn: TornManifest, fence: Mark, watchdog_seconds: float, refusal: VolumeCorruptError
) -> wal.Chain:
    """The chain without the last record of the MANIFEST. Raises `refusal` if that does not reach the fence."""
    try:
        with torn.without_tail() as trial:
            return _proven_chain(database, inspect_within(trial, watchdog_seconds), fence)
    except (VolumeCorruptError, OSError):  # OSError: a file system without links
        raise refusal from None


def _proven_chain(database: Path, found: Flushed, fence: Mark) -> wal.Chain:
    """What the logs hold on top of the data files. Raises VolumeCorruptError unless it reaches the fence."""
    flushed = [_decode(encoded, database).counter if encoded else 0 for encoded in (found.default, found.log)]
    chain = wal.follow(database, fence.volume, min(flushed))
    if chain.counter < max(flushed):
        raise VolumeCorruptError(
            f"{database} disagrees with itself: the log ends at batch {chain.counter}, "
            f"but data files hold batch {max(flushed)} ({chain.reason or 'logs are missing'})"
        )
    if chain.counter < fence.counter:
        raise VolumeCorruptError(
            f"batches {chain.counter + 1} to {fence.counter} are missing from {database}: they were durable, "
            f"and the log ends at batch {chain.counter} ({chain.reason or 'logs are missing'})"
        )
    return chain


def _begin_generation(engine: Database, fence: Fence, database: Path, *, sealed: bool) -> None:
    """Compares the open database with the fence, and begins the next generation in both."""
    default, log = (_decode(encoded, database) if encoded else None for encoded in _marks(engine, sealed=sealed))
    if default is None or default != log:
        raise VolumeCorruptError(f"{database} disagrees with itself: {default} and {log}")
    _check_place(default, fence.mark, database)
    mark = Mark(
        volume=default.volume,
        generation=fence.mark.generation + 1,
        opening=_random_opening(),
        previous=fence.mark.opening,
        counter=default.counter + 1,
    )
    engine.write(engine.marked_batch(mark))
    engine.sync_log()
    fence.advance(mark)


def _marks(engine: Database, *, sealed: bool) -> tuple[bytes | None, bytes | None]:
    """The mark of each family. That of the log lies beside a stream's newest records, and is damaged with them.

    Behind a seal it is not needed: the files are those of a clean close, and so as new as the other family's.
    Then whoever reads what is damaged is told, and all else is served.
    """
    default = engine.mark()
    try:
        return default, engine.log_mark()
    except VolumeCorruptError as error:
        if not sealed:
            raise
        _LOGGER.warning("the newest records of a stream are damaged: %s", error)
        return default, default


def _check_place(mark: Mark, fence: Mark, database: Path) -> None:
    """The fence may be an opening behind, if that one was stopped before it came to the fence."""
    if mark.volume != fence.volume:
        raise VolumeCorruptError(f"{database} is the database of another volume")
    if mark.counter < fence.counter:
        raise VolumeCorruptError(
            f"batches {mark.counter + 1} to {fence.counter} are missing from {database}, and were durable"
        )
    same = (mark.generation, mark.opening) == (fence.generation, fence.opening)
    next_one = (mark.generation, mark.previous) == (fence.generation + 1, fence.opening)
    if not same and not next_one:
        raise VolumeCorruptError(
            f"{database} and its fence come from different copies of this volume: "
            f"openings {mark.generation} and {fence.generation}"
        )


def _decode(encoded: bytes, database: Path) -> Mark:
    try:
        return Mark.decode(encoded)
    except ValueError as error:
        raise VolumeCorruptError(f"a mark in {database} is garbled: {error}") from error


def _random_opening() -> int:
    return int.from_bytes(os.urandom(8), "big")


@dataclass(frozen=True, slots=True)
class TornManifest:
    """A MANIFEST that is intact only in its first bytes: a power cut has spoilt its last record.

    RocksDB drops a last record that is too short, but refuses one that has its length and not its content,
    which a power cut leaves as well. Then the last change to the set of data files is undone, on trial: in a
    copy, made of links. Whether anything durable is missing without it, the log and the fence decide, as ever.
    """

    path: Path
    keep_bytes: int

    @contextmanager
    def without_tail(self) -> Iterator[Path]:
        """A copy of the database, but for its logs, in which the damaged end of the MANIFEST is cut off."""
        database = self.path.parent
        trial = database.with_name("trial")
        shutil.rmtree(trial, ignore_errors=True)
        trial.mkdir()
        try:
            for path in database.glob("*.sst"):
                os.link(path, trial / path.name)
            shutil.copy(database / "CURRENT", trial)
            (trial / self.path.name).write_bytes(self.path.read_bytes()[: self.keep_bytes])
            yield trial
        finally:
            shutil.rmtree(trial, ignore_errors=True)

    def cut_off(self) -> None:
        """Cuts the damaged end off, durably."""
        with self.path.open("r+b") as file:
            file.truncate(self.keep_bytes)
            sync_file(file.fileno())


def torn_manifest(database: Path) -> TornManifest | None:
    """The MANIFEST of a database if it ends in damage, and None if it is intact or has no beginning."""
    try:
        path = database / (database / "CURRENT").read_text("ascii").strip()
        keep = max((end for _, end in intact_records(path, 0)), default=0)
        size = path.stat().st_size
    except (OSError, ValueError):
        return None
    return TornManifest(path, keep) if 0 < keep < size else None
