"""The parts of an archive on the disk: a description, manifests, and the files that the manifests name.

    PATH/_gapless/archive.json                  what is archived
    PATH/_gapless/batches/000000000007.json     what batch 7 accounts for, or several up to it that were compacted
    PATH/events/batch=7/date=…/*.parquet        the rows of a batch
    PATH/events/compacted=3-7/date=…/*.parquet  the rows of several

Only the manifests define what is in an archive: a file that no manifest names is not there yet, or not any more. A
manifest appears as a whole, under its name, when all files that it names are on the disk; from then on its batch
counts. Batches are numbered from 0, and each begins where the one before it ends. So the newest manifest also tells
where to continue.

Batches that were compacted have one manifest, under the number of the last of them; it also has the first number. It
takes the last one's place in a single step. The manifests before it lie within its range, and no longer count.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import ArchiveError

VERSION: Final = 1
_READ_AGAIN_MAX: Final = 10
"""How often manifests are read again because a compaction has removed some of them meanwhile."""

StructT = TypeVar("StructT", bound=msgspec.Struct)


class DataFile(msgspec.Struct, frozen=True):
    """A file with rows of one pubend, in the order of their ticks."""

    path: str
    """The path below the archive, with slashes."""
    rows: int
    events: int
    """How many of the rows are events; the others are gaps."""
    pubend: PubendId
    first: Tick
    """The lowest value of the column `tick`."""
    last: Tick
    """The highest value of the column `tick`."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch accounts for, or several batches that were compacted."""

    first: int = msgspec.field(name="from")
    """The first batch; equal to `batch`, unless several were compacted."""
    batch: int
    """The last batch."""
    files: list[DataFile]
    start: dict[PubendId, Tick]
    """Each pubend is accounted for from here …"""
    end: dict[PubendId, Tick]
    """… up to here: every tick between that is not in a row is silence."""
    gaps: list[tuple[PubendId, Tick, Tick]]
    """(pubend, start, end): events that were lost before they could be archived. These are rows, too."""
    token: str
    """The position after it, as the text of a checkpoint token."""

    @property
    def events(self) -> int:
        """How many events it has."""
        return sum(file.events for file in self.files)


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an archive."""

    version: int
    network: str
    client_id: str
    subscription: str
    topics: tuple[str, ...]
    selector: str
    start: dict[PubendId, Tick]
    """Where it begins."""
    token: str
    """Where it begins, as the text of a checkpoint token."""


class ArchiveFolder:
    """The folder of an archive. Reading needs no lock; adding batches needs one, and compacting needs another one."""

    def __init__(self, path: str | Path) -> None:
        """Touches nothing yet."""
        self.path = Path(path).absolute()
        self.private = self.path / "_gapless"
        self.events = self.path / "events"
        self._batches = self.private / "batches"
        self._description = self.private / "archive.json"

    # ------------------------------------------------------------------------------------ reading

    def description(self) -> Description | None:
        """Returns what is archived here; None if there is no archive. Raises ArchiveError if it cannot be read."""
        try:
            data = self._description.read_bytes()
        except FileNotFoundError:
            return None
        version = _decoded(data, _Versioned, self._description).version
        if version != VERSION:
            raise ArchiveError(f"{self.path} is an archive of version {version}; this gapless reads version {VERSION}")
        return _decoded(data, Description, self._description)

    def described(self) -> Description:
        """Returns what is archived here. Raises ArchiveError if there is no archive."""
        description = self.description()
        if description is None:
            raise ArchiveError(f"{self.path} is no archive: there is no {self._description.relative_to(self.path)}")
        return description

    def manifests(self) -> list[Manifest]:
        """Returns the manifests that count, in order: all batches from 0 on. Raises ArchiveError if one is missing."""
        for _ in range(_READ_AGAIN_MAX):
            try:
                found = [_decoded(path.read_bytes(), Manifest, path) for path in self._manifest_files()]
            except FileNotFoundError:
                continue
            return self._checked(counting(found))
        raise ArchiveError(f"the manifests of {self.path} change faster than they can be read")

    def last(self) -> Manifest | None:
        """Returns the newest manifest."""
        found = self.manifests()
        return found[-1] if found else None

    def batch_directory(self, batch: int) -> Path:
        """Returns the directory for the files of a batch."""
        return self.events / f"batch={batch}"

    def compacted_directory(self, first: int, last: int) -> Path:
        """Returns the directory for the files of several compacted batches."""
        return self.events / f"compacted={first}-{last}"

    # ------------------------------------------------------------------------------------ writing

    def describe(self, description: Description) -> None:
        """Makes the folder an archive. Raises ArchiveError if it is one already, or contains anything else."""
        strange = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if set(strange) - {"_gapless", "events"}:
            raise ArchiveError(f"{self.path} is no archive, and is not empty: there is {min(strange)}")
        self._batches.mkdir(parents=True, exist_ok=True)
        self.events.mkdir(exist_ok=True)
        sync_directory(self.path)
        self._write_new(self._description, description)

    def commit(self, manifest: Manifest) -> None:
        """Lets a batch count, whose files are on the disk. Raises ArchiveError if there is such a batch already."""
        self._write_new(self._manifest_file(manifest.batch), manifest)

    def replace(self, manifest: Manifest) -> None:
        """Replaces the files of several batches by others. The old files stay until `remove_replaced`."""
        write_whole(self._manifest_file(manifest.batch), manifest)
        sync_directory(self._batches)

    def remove_replaced(self, older_than: float) -> tuple[int, int]:
        """Removes files that compactions replaced before a time (seconds since 1970), and what killed compactions left.

        Returns how many files with rows were removed, and how many stay because they may still be read. The caller
        holds the lock for compactions.
        """
        found = self.manifests()
        counts = {manifest.batch for manifest in found}
        for path in self._manifest_files():
            if int(path.stem) not in counts:
                path.unlink()
        removed = kept = 0
        for directory, first, last in self._event_directories():
            owner = next((each for each in found if each.first <= first and last <= each.batch), None)
            if (owner is not None and (owner.first, owner.batch) == (first, last)) or self._is_ahead(first, found):
                continue
            files = len(list(directory.rglob("*.parquet")))
            if owner is not None and self._manifest_file(owner.batch).stat().st_mtime > older_than:
                kept += files
                continue
            shutil.rmtree(directory)
            removed += files
        return removed, kept

    def remove_unfinished(self) -> None:
        """Removes the files of batches that were never committed. The caller holds the lock for adding batches."""
        found = self.manifests()
        for directory, first, _ in self._event_directories():
            if self._is_ahead(first, found):
                shutil.rmtree(directory)

    @contextmanager
    def lock(self, purpose: str) -> Iterator[None]:
        """Locks the archive for a purpose. The lock ends with the process.

        Raises ArchiveError if it is held already.
        """
        self.private.mkdir(parents=True, exist_ok=True)
        with (self.private / f"{purpose}.lock").open("a+") as file:
            if not _locked(file.fileno()):
                file.seek(0)
                holder = file.read().strip()
                raise ArchiveError(f"{self.path}: another process is busy with it ({purpose}, process {holder or '?'})")
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield

    # ------------------------------------------------------------------------------------ inside

    def _manifest_file(self, batch: int) -> Path:
        return self._batches / f"{batch:012}.json"

    def _manifest_files(self) -> list[Path]:
        """Returns the manifest files of all batches, whether they count or not."""
        return sorted(path for path in self._batches.glob("*.json") if path.stem.isdecimal())

    def _event_directories(self) -> Iterator[tuple[Path, int, int]]:
        """Yields the directories with rows, each with the numbers of its first and last batch."""
        for directory in sorted(self.events.iterdir()) if self.events.is_dir() else []:
            kind, _, numbers = directory.name.partition("=")
            first, _, last = numbers.partition("-")
            if kind in {"batch", "compacted"} and first.isdecimal() and (last or first).isdecimal():
                yield directory, int(first), int(last or first)

    def _is_ahead(self, batch: int, found: Sequence[Manifest]) -> bool:
        """Whether a batch is not committed yet."""
        return not found or batch > found[-1].batch

    def _checked(self, found: list[Manifest]) -> list[Manifest]:
        """Returns the manifests, if none is missing between them."""
        following, position = 0, dict[PubendId, Tick]()
        for manifest in found:
            if manifest.first != following:
                raise ArchiveError(f"{self.path} is not whole: the manifest of batch {following} is missing")
            for pubend, tick in manifest.start.items():
                if position.get(pubend, tick) != tick:
                    raise ArchiveError(
                        f"{self.path} is not whole: batch {manifest.first} begins at {tick} of {pubend}, and the one"
                        f" before it ends at {position[pubend]}"
                    )
            following = manifest.batch + 1
            position.update(manifest.end)
        return found

    def _write_new(self, path: Path, content: msgspec.Struct) -> None:
        """Writes a file that must not exist yet: if two processes try, only one succeeds."""
        try:
            write_whole(path, content, new=True)
        except FileExistsError:
            raise ArchiveError(f"{path} is there already: somebody else writes to this archive") from None
        sync_directory(path.parent)


class _Versioned(msgspec.Struct):
    """The part that every version of a description has."""

    version: int


def counting(found: Sequence[Manifest]) -> list[Manifest]:
    """Returns the manifests without those that lie within the range of another one, in order."""
    counted: list[Manifest] = []
    for manifest in sorted(found, key=lambda each: (each.batch, -each.first), reverse=True):
        if not counted or manifest.batch < counted[-1].first:
            counted.append(manifest)
    return counted[::-1]


def sync_directory(directory: Path) -> None:
    """Makes durable what was created, renamed or removed in a directory."""
    if os.name == "nt":  # a directory cannot be opened there, but a rename is durable by itself
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(directory: Path) -> None:
    """Makes everything below a directory durable, including its own entry."""
    for folder, _, names in os.walk(directory):
        for name in names:
            with Path(folder, name).open("rb+") as file:
                os.fsync(file.fileno())
        sync_directory(Path(folder))
    sync_directory(directory.parent)


def _decoded(data: bytes, kind: type[StructT], path: Path) -> StructT:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ArchiveError(f"{path} is not what an archive has there: {error}") from error


def write_whole(path: Path, content: msgspec.Struct, *, new: bool = False) -> None:
    """Writes a file so that a reader finds nothing, or all of it. The next attempt overwrites what a crash leaves."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError:  # a file system without links: then only the lock and the lease protect the archive
            if path.exists():
                raise FileExistsError(errno.EEXIST, "it is there already", str(path)) from None
        else:
            temporary.unlink()
            return
    temporary.replace(path)


def _locked(descriptor: int) -> bool:
    """Locks a file unless another process has locked it. Returns True, too, where there are no such locks."""
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EWOULDBLOCK, errno.EACCES}
    return True
