"""Power cuts for any storage that keeps files: what was not synced is not there afterwards.

The volume is opened in another process, under a shim (`power_shim.c`) that keeps, for each file, what it held when
it was last synced. A power cut kills that process, and puts in the place of its files what such a cut may leave:

* of the content of each file what a sync covers, and of a file that was never synced nothing;
* of the names either all (a new name may stand for an empty file), or those whose directory was synced.

Needs Linux and a C compiler, and an engine that syncs through libc: no io_uring, no system calls of its own.
"""

from __future__ import annotations

import copy
import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gapless.spi import LogVolume, VolumeIdentity
from gapless_testing.storage.child import described
from gapless_testing.storage.harness import IDENTITY, HarnessFixtures, StorageHarness, overrides
from gapless_testing.storage.remote import Factory, RemoteProcess, RemoteVolume

SOURCE = Path(__file__).with_name("power_shim.c")

SYNCS, WRITES, CUT_AT_SYNC, CUT_AT_WRITE, HOLD, HELD, FAIL_SYNCS, FULL = range(8)
"""The fields of the shim, as `power_shim.c` numbers them."""

Names = Literal["all", "synced"]


class MissingError(Exception):
    """Something that a power cut needs is not here."""


@functools.cache
def compiled_shim() -> Path:
    """The shim as a library, compiled once in a process. Raises MissingError."""
    if sys.platform != "linux":
        raise MissingError("power cuts are imitated on Linux only")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MissingError("power cuts need a C compiler (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    library = Path(tempfile.mkdtemp(prefix="gapless-power-")) / "power_shim.so"
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lpthread"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 — our own code
    if done.returncode:
        raise MissingError(f"power cuts need a C compiler that works: {done.stderr.strip()[-300:]}")
    return library


@functools.cache
def factory() -> Factory:
    """What processes with volumes are forked from, with the shim where there can be one."""
    try:
        library = compiled_shim()
    except MissingError:
        library = None
    return Factory(library)


class Copies:
    """What is certain of the files below a directory: kept beside it by the shim, and put in their place by a cut."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.place = self.root.with_name(f"{self.root.name}-power")
        self._begin()

    def cut(self, names: Names) -> None:
        """Leaves what a power cut may leave; all of that is certain from now on."""
        left = self.place / "left"
        left.mkdir()
        if names == "all":
            self._leave_all(self.root, left)
        else:
            self._leave_synced(self.root.stat().st_ino, left)
        for path in self.root.iterdir():
            _remove(path)
        for path in left.iterdir():
            path.rename(self.root / path.name)
        self._begin()

    def close(self) -> None:
        """Removes the copies."""
        shutil.rmtree(self.place, ignore_errors=True)

    def _begin(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()
        for directory in [self.root, *(path for path in self.root.rglob("*") if path.is_dir())]:
            lines = []
            for path in directory.iterdir():
                status = path.lstat()
                lines.append(f"{status.st_ino} {'d' if path.is_dir() else 'f'} {path.name}\0")
                if path.is_file():
                    (self.place / f"{status.st_ino}.base").hardlink_to(path)
            (self.place / f"{directory.stat().st_ino}.names").write_text("".join(lines), "utf-8", "surrogateescape")

    def _leave_all(self, directory: Path, target: Path) -> None:
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                (target / path.name).mkdir(0o700)
                self._leave_all(path, target / path.name)
            elif path.is_file():
                self._leave_file(path.stat().st_ino, target / path.name)

    def _leave_synced(self, directory: int, target: Path) -> None:
        listing = self.place / f"{directory}.names"
        text = listing.read_text("utf-8", "surrogateescape") if listing.exists() else ""
        for line in text.split("\0")[:-1]:
            inode, kind, name = line.split(" ", 2)
            if kind == "d":
                (target / name).mkdir(0o700)
                self._leave_synced(int(inode), target / name)
            else:
                self._leave_file(int(inode), target / name)

    def _leave_file(self, inode: int, target: Path) -> None:
        for what in ("synced", "base"):
            if (kept := self.place / f"{inode}.{what}").exists():
                target.hardlink_to(kept)
                return
        target.touch(0o600)


class PowerHarness(StorageHarness):
    """Another harness, whose volumes are open in processes of their own, on a disk whose power can be cut."""

    def __init__(self, harness: StorageHarness, root: Path) -> None:
        """`root`: below which the volume's files are. Raises MissingError."""
        compiled_shim()
        self.outlives_close = harness.outlives_close
        self.chops_at_once = harness.chops_at_once
        self._harness = harness
        self._copies = Copies(root)
        self._processes: list[RemoteProcess] = []

    def open(self, identity: VolumeIdentity = IDENTITY) -> RemoteVolume:
        """Opens the volume in a new process. Skips the test if it is not durable by its own words."""
        process = factory().fork(described(self._harness), self._copies.root, self._copies.place)
        self._processes.append(process)
        volume = RemoteVolume(process, "open", identity)
        if not volume.capabilities.durable:
            pytest.skip("the volume's capabilities say that it is not durable")
        return volume

    def fresh(self) -> StorageHarness:
        """One for another volume, on the same disk."""
        other = copy.copy(self)
        vars(other)["_harness"] = self._harness.fresh()
        return other

    def crash(self, volume: LogVolume) -> None:
        """Cuts the power, and leaves all names."""
        self.cut(volume, "all")

    def fail_next_sync(self, volume: LogVolume) -> None:
        """The next sync of a file fails with EIO."""
        self.tell(volume, FAIL_SYNCS, 1)

    def fill(self, volume: LogVolume) -> None:
        """Every write to a file fails with ENOSPC, until the volume is opened in another process."""
        self.tell(volume, FULL, 1)

    def cut(self, volume: LogVolume, names: Names) -> None:
        """Cuts the power. `names`: which names are left."""
        assert isinstance(volume, RemoteVolume)
        if volume.has_synced and not volume.process.ended and self.ask(volume, SYNCS) == 0:
            raise AssertionError(
                "the volume was written to and synced, and not one fsync, fdatasync, msync or sync of a file below "
                f"{self._copies.root} was seen. Either `sync` makes nothing durable; or its files are elsewhere (say "
                "where with StorageHarness.place), or it does not sync through libc (override StorageHarness.crash)"
            )
        volume.process.kill()
        self._copies.cut(names)

    def kill(self, volume: LogVolume) -> None:
        """Kills the process; its files stay as they are."""
        assert isinstance(volume, RemoteVolume)
        volume.process.kill()

    def ask(self, volume: LogVolume, field: int) -> int:
        """A field of the shim."""
        assert isinstance(volume, RemoteVolume)
        return int(volume.process.ask("shim", "", "get", field))

    def tell(self, volume: LogVolume, field: int, value: int) -> None:
        """Sets one."""
        assert isinstance(volume, RemoteVolume)
        volume.process.ask("shim", "", "set", field, value)

    def end(self) -> None:
        """Ends all processes, and removes what was kept."""
        for process in self._processes:
            process.kill()
        self._copies.close()


class PowerFixtures(HarnessFixtures):
    """Harnesses that can do what only the shim can, where they cannot do it themselves."""

    @pytest.fixture
    def power(self, harness: StorageHarness, tmp_path: Path) -> Iterator[PowerHarness]:
        """A harness whose power can be cut. Skips the test, and says why, where there can be none."""
        if missing := _missing(harness):
            pytest.skip(missing)
        power = PowerHarness(harness, harness.place or tmp_path)
        yield power
        power.end()

    @pytest.fixture
    def crashing(self, harness: StorageHarness, request: pytest.FixtureRequest) -> StorageHarness:
        """A harness that can crash."""
        return _able(harness, request, "crash")

    @pytest.fixture
    def failing(self, harness: StorageHarness, request: pytest.FixtureRequest) -> StorageHarness:
        """A harness whose syncs can fail, and whose disk can be full."""
        return _able(harness, request, "fail_next_sync", "fill")

    @pytest.fixture
    def starting(self, harness: StorageHarness, request: pytest.FixtureRequest) -> StorageHarness:
        """A harness that can crash, if there is a way."""
        return harness if _missing(harness) else _able(harness, request, "crash")


def _able(harness: StorageHarness, request: pytest.FixtureRequest, *abilities: str) -> StorageHarness:
    if all(overrides(harness, ability) for ability in abilities):
        return harness
    power: PowerHarness = request.getfixturevalue("power")
    return power


def _missing(harness: StorageHarness) -> str:
    if not harness.keeps_files:
        return f"{type(harness).__name__} keeps no files"
    try:
        described(harness)
        compiled_shim()
    except ValueError as error:
        return f"{type(harness).__name__} cannot be made again in another process: {error}"
    except MissingError as error:
        return str(error)
    return ""


def another_process(harness: StorageHarness) -> RemoteProcess:
    """A process that can open the volume, its files as they are. Skips the test where there can be none."""
    assert harness.place is not None
    try:
        return factory().fork(described(harness), harness.place, None)
    except ValueError as error:
        pytest.skip(f"{type(harness).__name__} cannot be made again in another process: {error}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
