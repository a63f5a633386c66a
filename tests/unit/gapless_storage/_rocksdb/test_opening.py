"""Opening: only its owner may, and nothing that was durable is ever missing unsaid."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from conformance.storages import SMALL_BUFFERS, RocksdbHarness, copy_at_rest, inspect_here
from gapless.errors import (
    ConfigurationError,
    StorageError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeForeignError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.spi import Create
from gapless_storage._rocksdb import opening, wal
from gapless_storage._rocksdb.engine import Database
from gapless_storage._rocksdb.fence import Fence
from gapless_storage._rocksdb.layout import Mark
from gapless_storage._rocksdb.logformat import intact_records
from gapless_storage.rocksdb import RocksdbVolume, open_storage
from gapless_testing.storage import IDENTITY
from gapless_testing.storage.crashes import newest_whole_batch, write_batch

SYNCED = 20


class Place:
    """A volume's directory, as its process left it when it was killed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = directory / "rocksdb"
        self.patience = 20
        """After so many seconds it hangs: seldom is a busy machine that slow."""

    def open(self, create: Create = Create.YES) -> RocksdbVolume:
        return open_storage(
            str(self.directory), IDENTITY, {"watchdog_seconds": self.patience, "reserve_bytes": 1 << 20}, create
        )

    def newest(self) -> int:
        """Opens it, closes it; the number of the newest batch, all before it being whole."""
        with closing(self.open()) as volume:
            return newest_whole_batch(volume)

    def log(self) -> Path:
        (log,) = wal.log_files(self.database)
        return log

    def manifest(self) -> Path:
        return self.database / (self.database / "CURRENT").read_text().strip()

    def content(self) -> dict[str, bytes]:
        """Every file, but for the lock's process id."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file() and path.name != "lock"
        }

    def copy_to(self, directory: Path) -> Place:
        copy_at_rest(self.directory, directory)
        return Place(directory)


def killed(directory: Path, *, unsynced: int = 0, closed_first: bool = False) -> Place:
    """A volume with 20 synced batches and more unsynced ones, of a process that was killed."""
    harness = RocksdbHarness(directory)
    volume = harness.open()
    if closed_first:
        write_batch(volume, 1)
        volume.close()
        volume = harness.open()
    for number in range(volume.stream("left").last + 1, SYNCED + 1):
        write_batch(volume, number)
        volume.sync()
    for number in range(SYNCED + 1, SYNCED + unsynced + 1):
        write_batch(volume, number)
    place = Place(harness.directory).copy_to(directory / "killed")
    volume.close()
    return place


@pytest.fixture
def watched() -> None:
    """An opening inspects the database in a process of its own, which may hang: as a broker's does."""


@pytest.fixture(autouse=True)
def inspected_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An opening starts no process, unless a test asks to be `watched`: where files are spoilt, it may hang."""
    if "watched" not in request.fixturenames:
        monkeypatch.setattr(opening, "inspect_within", inspect_here)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return killed(tmp_path)


def refuses(place: Place, words: str) -> None:
    """It does not open, says why, and has changed nothing."""
    before = place.content()

    with pytest.raises(VolumeCorruptError, match=words) as caught:
        place.open()

    assert "Bring back a copy" in str(caught.value)
    assert place.content() == before


# -------------------------------------------------------------------------- what a kill or a power cut leaves


def test_a_killed_volume_opens(place: Place, watched: None) -> None:
    assert place.newest() == SYNCED


@pytest.mark.parametrize("keep", [0, 1, 50, 200])
def test_a_torn_unsynced_tail_is_cut_off(tmp_path: Path, keep: int) -> None:
    place = killed(tmp_path, unsynced=3)
    ends = [end for _, end in intact_records(place.log(), 1)]
    with place.log().open("r+b") as file:
        file.truncate(ends[-4] + keep)

    assert place.newest() == SYNCED


def test_garbage_behind_the_synced_tail_is_cut_off(tmp_path: Path) -> None:
    place = killed(tmp_path, unsynced=3)
    ends = [end for _, end in intact_records(place.log(), 1)]
    content = place.log().read_bytes()
    place.log().write_bytes(content[: ends[-4]] + os.urandom(10) + bytes(5000))

    assert place.newest() == SYNCED


def test_unsynced_batches_that_are_whole_are_kept(tmp_path: Path) -> None:
    assert killed(tmp_path, unsynced=3).newest() == SYNCED + 3


def test_a_hole_behind_the_fence_ends_the_volume_before_it(tmp_path: Path) -> None:
    """One record of the unsynced tail is damaged: none behind it may be there."""
    place = killed(tmp_path, unsynced=5)
    ends = [end for _, end in intact_records(place.log(), 1)]
    content = bytearray(place.log().read_bytes())
    content[ends[-4] + 20] ^= 1
    place.log().write_bytes(content)

    assert place.newest() == SYNCED + 2


@pytest.mark.parametrize("tail", [b"\0" * 30, b"\x99" * 30])
def test_a_torn_end_of_the_manifest_is_cut_off(place: Place, watched: None, tail: bytes) -> None:
    """RocksDB refuses it: a power cut may leave the length of a record and not its content."""
    before = place.manifest().read_bytes()
    header = b"\x12\x34\x56\x78" + (30).to_bytes(2, "little") + b"\x01"
    place.manifest().write_bytes(before + header + tail)

    assert place.newest() == SYNCED


# --------------------------------------------------------------------------------- what nobody may lose


@pytest.mark.parametrize("lost", [1, 2, 10, SYNCED])
def test_a_log_cut_between_records_is_refused(place: Place, lost: int) -> None:
    ends = [end for _, end in intact_records(place.log(), 1)]
    with place.log().open("r+b") as file:
        file.truncate(ends[-1 - lost])
    last = SYNCED + 1  # the creation's batch counts too

    refuses(place, f"batches {last - lost + 1} to {last} are missing")


def test_a_deleted_log_is_refused(place: Place) -> None:
    """Again and again: a refusal lets go of the lock, and heals nothing."""
    place.log().unlink()

    for _ in range(3):
        refuses(place, "are missing")


@pytest.mark.parametrize("mask", [0x01, 0x04])
def test_a_flipped_byte_of_the_log_is_refused(place: Place, mask: int) -> None:
    content = place.log().read_bytes()
    for at in [4, 5, 6, *range(0, len(content), len(content) // 12)]:
        spoilt = bytearray(content)
        spoilt[at] ^= mask
        place.log().write_bytes(spoilt)

        refuses(place, "are missing")


def test_a_log_of_another_volume_is_refused(place: Place, tmp_path: Path) -> None:
    other = killed(tmp_path / "other")
    shutil.copy(other.log(), place.log())

    refuses(place, "not this volume's")


def test_an_empty_manifest_is_refused(place: Place, watched: None) -> None:
    place.manifest().write_bytes(b"")

    refuses(place, "cannot be opened")


def test_a_manifest_that_opens_empty_is_refused(place: Place, watched: None) -> None:
    """One bit in the length of its first record: RocksDB takes the whole file for a torn tail."""
    content = bytearray(place.manifest().read_bytes())
    content[5] ^= 4
    place.manifest().write_bytes(content)

    refuses(place, "cannot be opened")


def test_a_manifest_on_which_rocksdb_hangs_is_refused(place: Place, watched: None) -> None:
    """One bit in a record's type: the open would never end, with the GIL held."""
    ends = [end for _, end in intact_records(place.manifest(), 1)]
    content = bytearray(place.manifest().read_bytes())
    content[ends[1] + 6] ^= 4
    place.manifest().write_bytes(content)

    place.patience = 1
    refuses(place, "hangs")


def test_any_flipped_byte_of_the_manifest_is_harmless_or_refused(place: Place, watched: None) -> None:
    content = place.manifest().read_bytes()
    before = place.directory
    for at in range(0, len(content), 7):
        place = Place(before).copy_to(before.with_name(f"flipped-{at}"))
        spoilt = bytearray(content)
        spoilt[at] ^= 2
        place.manifest().write_bytes(spoilt)
        place.patience = 1

        with suppress(VolumeCorruptError):
            assert place.newest() == SYNCED


@pytest.mark.parametrize("closed", [True, False])
def test_an_older_copy_of_the_database_is_refused(tmp_path: Path, closed: bool) -> None:
    """Even one that was closed cleanly and carries its seal."""
    place = killed(tmp_path / "a")
    if closed:
        place.newest()
    old = place.copy_to(tmp_path / "old")
    with closing(place.open()) as volume:
        write_batch(volume, SYNCED + 1)
        volume.sync()
    shutil.rmtree(place.database)
    shutil.copytree(old.database, place.database)
    if closed:
        shutil.copy(old.directory / "seal", place.directory)

    refuses(place, "are missing")


def test_a_database_that_went_on_without_its_fence_is_refused(place: Place, tmp_path: Path) -> None:
    """Two copies that both went on: the longer database under the other one's fence."""
    other = place.copy_to(tmp_path / "other")
    place.newest()
    for _ in range(2):
        with closing(other.open()) as volume:
            write_batch(volume, volume.stream("left").last + 1)
    shutil.copy(place.directory / "fence", other.directory)

    with pytest.raises(VolumeCorruptError, match="different copies"):
        other.open()


def test_a_database_of_the_same_generation_but_another_opening_is_refused(place: Place, tmp_path: Path) -> None:
    other = place.copy_to(tmp_path / "other")
    place.newest()
    with closing(other.open()) as volume:
        write_batch(volume, SYNCED + 1)
    shutil.copy(place.directory / "fence", other.directory)

    with pytest.raises(VolumeCorruptError, match="different copies"):
        other.open()


@pytest.mark.parametrize("slot", [0, 1])
def test_a_fence_that_is_one_sync_behind_is_none_the_worse(place: Place, slot: int) -> None:
    spoilt = bytearray((place.directory / "fence").read_bytes())
    spoilt[slot * len(spoilt) // 2] ^= 1
    (place.directory / "fence").write_bytes(spoilt)

    assert place.newest() == SYNCED


@pytest.mark.parametrize("what", ["fence", "rocksdb"])
def test_a_missing_part_is_refused(place: Place, what: str) -> None:
    path = place.directory / what
    shutil.rmtree(path) if path.is_dir() else path.unlink()

    refuses(place, "missing")


@pytest.mark.parametrize("what", ["fence", "rocksdb"])
def test_another_volumes_part_is_refused(place: Place, tmp_path: Path, what: str) -> None:
    other = killed(tmp_path / "other")
    path = place.directory / what
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    source = other.directory / what
    shutil.copytree(source, path) if source.is_dir() else shutil.copy(source, path)

    refuses(place, "another volume|not this volume's")


def test_a_data_file_that_is_gone_is_refused(tmp_path: Path, watched: None) -> None:
    place = killed(tmp_path, closed_first=True)
    for path in place.database.glob("*.sst"):
        path.unlink()

    refuses(place, "cannot be opened|missing")


def test_families_that_disagree_are_refused(tmp_path: Path) -> None:
    """As when the newest files of one family are lost, and the other's are not."""
    harness = RocksdbHarness(tmp_path)
    volume = harness.open()
    write_batch(volume, 1)
    volume.sync()
    engine = harness.engine(volume)
    engine.write(engine.repeating_batch(Mark.decode(engine.mark() or b"").next()))
    volume.close()

    with pytest.raises(VolumeCorruptError, match="disagrees with itself"):
        harness.open()


def test_data_files_ahead_of_the_log_are_refused(tmp_path: Path) -> None:
    """One family is flushed, the other one's batches are only in the log, which is lost."""
    harness = RocksdbHarness(tmp_path)
    volume = harness.open()
    for number in range(1, SYNCED + 1):
        write_batch(volume, number)
    harness.engine(volume).flush_default_family()
    place = Place(harness.directory).copy_to(tmp_path / "killed")
    volume.close()
    for log in wal.log_files(place.database):
        log.unlink()

    refuses(place, "disagrees with itself")


# ------------------------------------------------------------------------------- creating, step by step


def fail(*_: object, **__: object) -> None:
    raise VolumeFailedError("stopped here")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (opening, "write_marker"),
        (Database, "__init__"),
        (Database, "write"),
        (Database, "sync_log"),
        (Fence, "create"),
        (Fence, "__init__"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_creation_that_stopped_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: object, name: str
) -> None:
    place = Place(tmp_path / "volume")
    with monkeypatch.context() as patch, pytest.raises(VolumeFailedError, match="stopped here"):
        patch.setattr(target, name, fail)
        place.open()

    with closing(place.open()) as volume:
        assert volume.created is (name != "__init__" or target is Database)
        write_batch(volume, 1)
        volume.sync()
    assert place.newest() == 1


@pytest.mark.parametrize(
    ("target", "name"),
    [(opening, "inspect_within"), (wal, "cut"), (Database, "write"), (Database, "sync_log"), (Fence, "advance")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_an_opening_that_stopped_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, target: object, name: str
) -> None:
    for _ in range(3):
        with monkeypatch.context() as patch, pytest.raises(VolumeFailedError, match="stopped here"):
            patch.setattr(target, name, fail)
            place.open()

    assert place.newest() == SYNCED
    assert place.newest() == SYNCED


# ----------------------------------------------------------------------------------------- who may open


def test_a_directory_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose this")

    with pytest.raises(VolumeForeignError, match=r"thesis\.tex"):
        Place(tmp_path).open()

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_volume_without_its_marker_is_refused(place: Place) -> None:
    (place.directory / "volume.json").unlink()
    before = place.content()

    with pytest.raises(VolumeForeignError, match=r"has no volume\.json"):
        place.open()

    assert place.content() == before


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(VolumeForeignError, match="is a file"):
        Place(tmp_path / "file").open()


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigurationError, match="no volume can be kept"):
        Place(tmp_path / "file" / "volume").open()


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.EIO, VolumeFailedError),
        (errno.EROFS, VolumeFailedError),
        (errno.EMFILE, VolumeFailedError),
        (errno.ENOSPC, VolumeFullError),
        (errno.EACCES, ConfigurationError),
        (errno.ENAMETOOLONG, ConfigurationError),
    ],
)
@pytest.mark.parametrize("what", ["_claim", "DirectoryLock"])
def test_a_disk_that_fails_is_not_taken_for_a_wrong_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, number: int, expected: type[Exception]
) -> None:
    """A node tries a storage that failed again, and gives up on what it was configured with."""

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(opening, what, fail)

    with pytest.raises(expected, match=os.strerror(number)) as caught:
        Place(tmp_path / "volume").open()

    assert str(tmp_path) in str(caught.value)


def test_an_empty_mount_point_will_do(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()

    with closing(Place(tmp_path).open()) as volume:
        assert volume.created


def test_a_new_directory_is_made_with_all_above_it(tmp_path: Path) -> None:
    assert Place(tmp_path / "a" / "b" / "c").newest() == 0


def test_a_relative_path_is_meant_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    volume = open_storage("volume", IDENTITY, {}, Create.YES)
    write_batch(volume, 1)
    monkeypatch.chdir("/")
    write_batch(volume, 2)
    volume.close()

    assert Place(tmp_path / "volume").newest() == 2


HOLD = """
import sys
from gapless.spi import Create, VolumeIdentity
from gapless_storage.rocksdb import open_storage
volume = open_storage(sys.argv[1], VolumeIdentity("", ""), {}, Create.YES)
print("open", flush=True)
sys.stdin.read()
"""


def test_a_volume_of_another_process_is_locked(place: Place) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place.directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        before = (place.database / "rocksdict-config.json").stat().st_mtime_ns

        with pytest.raises(VolumeLockedError, match=str(holder.pid)):
            place.open()

        assert (place.database / "rocksdict-config.json").stat().st_mtime_ns == before
        holder.kill()

    assert place.newest() == SYNCED


# --------------------------------------------------------------------------------------------- the seal


def test_a_clean_close_spares_the_check(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.newest()
    monkeypatch.setattr(opening, "_check_database", fail)

    assert place.newest() == SYNCED


def spoil_manifest(place: Place) -> None:
    with place.manifest().open("ab") as file:
        file.write(b"\0")


def spoil_data(place: Place) -> None:
    with next(place.database.glob("*.sst")).open("ab") as file:
        file.write(b"\0")


def remove_data(place: Place) -> None:
    next(place.database.glob("*.sst")).unlink()


def spoil_seal(place: Place) -> None:
    (place.directory / "seal").write_text("{")


def remove_seal(place: Place) -> None:
    (place.directory / "seal").unlink()


def add_log(place: Place) -> None:
    (place.database / "999999.log").write_bytes(b"x")


@pytest.mark.parametrize("spoil", [spoil_manifest, spoil_data, remove_data, spoil_seal, remove_seal, add_log])
def test_whatever_changed_since_breaks_the_seal(
    place: Place, monkeypatch: pytest.MonkeyPatch, spoil: Callable[[Place], None]
) -> None:
    place.newest()
    spoil(place)
    monkeypatch.setattr(opening, "_check_database", fail)

    with pytest.raises(VolumeFailedError, match="stopped here"):
        place.open()


def test_an_opening_breaks_the_seal(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place.newest()
    with closing(place.open()):
        copied = place.copy_to(tmp_path / "copied")
    monkeypatch.setattr(opening, "_check_database", fail)

    with pytest.raises(StorageError, match="stopped here"):
        copied.open()


def test_small_buffers_open_as_well(tmp_path: Path) -> None:
    """Several logs and data files, and a manifest with many records."""
    harness = RocksdbHarness(tmp_path, SMALL_BUFFERS)
    volume = harness.open()
    for number in range(1, 101):
        volume.stream("big").put(number, bytes([number]) * 5_000)
        write_batch(volume, number)
    volume.sync()
    place = Place(harness.directory).copy_to(tmp_path / "killed")
    volume.close()

    assert place.newest() == 100


def test_a_log_whose_newest_records_are_damaged_opens_behind_a_seal(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its mark lies beside them. After a clean close nothing can be missing; after a crash nobody knows."""

    def fail_to_read(_: Database) -> bytes:
        raise VolumeCorruptError("block checksum mismatch")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "log_mark", fail_to_read)
        with pytest.raises(VolumeCorruptError, match="block checksum mismatch"):
            place.open()
    place.newest()

    with monkeypatch.context() as patch:
        patch.setattr(Database, "log_mark", fail_to_read)
        assert place.newest() == SYNCED

    assert "newest records of a stream are damaged" in caplog.text
