"""The plugin against the suite that gapless ships for storages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gapless_sqlite_storage.volume import FILE, SqliteVolume

from gapless import plugins
from gapless.errors import VolumeForeignError
from gapless.spi import Create, LogVolume, VolumeIdentity
from gapless_testing.storage import IDENTITY, StorageHarness, StorageSuite


class SqliteHarness(StorageHarness):
    """A directory. Crashes, failures and damage are the suite's own."""

    chops_at_once = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / "volume"
        self._count = 0

    def open(self, identity: VolumeIdentity = IDENTITY) -> LogVolume:
        return self._open(identity, Create.YES)

    def open_existing(self) -> LogVolume:
        return self._open(IDENTITY, Create.NO)

    def _open(self, identity: VolumeIdentity, create: Create) -> LogVolume:
        open_storage = plugins.load("storage", "sqlite")
        volume: LogVolume = open_storage(path=str(self._directory), identity=identity, options={}, create=create)
        return volume

    def remove(self, volume: LogVolume) -> None:
        shutil.rmtree(self._directory)

    def fresh(self) -> SqliteHarness:
        self._count += 1
        return SqliteHarness(self._root / f"other-{self._count}")


class TestSqlite(StorageSuite):
    """All of it."""

    history_examples = 10

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return SqliteHarness(tmp_path)


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not lose this")

    with pytest.raises(VolumeForeignError):
        SqliteVolume(tmp_path, IDENTITY, Create.YES)

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_copy_of_the_files_taken_after_a_sync_has_everything(tmp_path: Path) -> None:
    """What `sync` leaves on disk is enough: the files of a volume that is never closed, opened elsewhere."""
    volume = SqliteVolume(tmp_path / "volume", IDENTITY, Create.YES)
    for index in range(1, 200):
        volume.stream("s").put(index, b"x" * 500)
        volume.write()
    volume.sync()
    shutil.copytree(tmp_path / "volume", tmp_path / "copy")
    volume.close()

    copy = SqliteVolume(tmp_path / "copy", IDENTITY, Create.NO)

    assert (tmp_path / "copy" / FILE).exists()
    assert copy.stream("s").last == 199
    copy.close()
