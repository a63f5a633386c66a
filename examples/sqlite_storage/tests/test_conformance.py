"""The SQLite storage against the suite that gapless ships for everyone's."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gapless import plugins
from gapless.errors import ConfigurationError, VolumeForeignError
from gapless.spi import LogVolume, VolumeIdentity
from gapless.testing.storage import IDENTITY, StorageHarness, StorageSuite
from gapless_sqlite_storage import SqliteVolume, open_storage


class FullDisk:
    """A connection on which nothing can be added."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        if statement.startswith("INSERT"):
            raise sqlite3.OperationalError("database or disk is full")
        return self.connection.execute(statement, values)


class SqliteHarness(StorageHarness):
    """A file, and what can happen to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / "volume.sqlite"
        self.others = 0

    def open(self, identity: VolumeIdentity = IDENTITY) -> LogVolume:
        return open_storage(str(self.path), identity, {})

    def fresh(self) -> SqliteHarness:
        self.others += 1
        return SqliteHarness(self.directory / f"other-{self.others}")

    def crash(self, volume: LogVolume) -> None:
        """Goes on with a copy of the files, in which no transaction is open."""
        self.others += 1
        after = self.directory / f"after-crash-{self.others}"
        after.mkdir()
        for path in self.path.parent.glob("volume.sqlite*"):
            shutil.copy(path, after)
        volume.close()
        self.path = after / self.path.name

    def fail_next_sync(self, volume: LogVolume) -> None:
        def fail() -> None:
            raise sqlite3.OperationalError("disk I/O error")

        assert isinstance(volume, SqliteVolume)
        volume._commit = fail  # type: ignore[method-assign]

    def fill(self, volume: LogVolume) -> None:
        assert isinstance(volume, SqliteVolume)
        volume._connection = FullDisk(volume._connection)  # type: ignore[assignment]

    def damage(self, volume: LogVolume, stream: str, index: int) -> LogVolume:
        volume.close()
        content = bytearray(self.path.read_bytes())
        content[content.index(b"record %d " % index * 2)] ^= 1
        self.path.write_bytes(content)
        return self.open()


class TestSqlite(StorageSuite):
    history_examples = 10

    @pytest.fixture
    def harness(self, tmp_path: Path) -> StorageHarness:
        return SqliteHarness(tmp_path)


def test_it_is_found_by_its_name(tmp_path: Path) -> None:
    """What `storage = "sqlite"` in a configuration does."""
    open_named = plugins.load("storage", "sqlite")

    volume = open_named(path=str(tmp_path / "volume"), identity=IDENTITY, options={})

    assert isinstance(volume, SqliteVolume)
    volume.close()


def test_other_peoples_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, and longer than a header has to be" * 10)
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = (tmp_path / "other").read_bytes()

    for name in ("text", "other"):
        with pytest.raises(VolumeForeignError):
            open_storage(str(tmp_path / name), IDENTITY, {})

    assert (tmp_path / "text").read_text().startswith("not a database")
    assert len((tmp_path / "other").read_bytes()) == len(before)


def test_it_has_no_options() -> None:
    with pytest.raises(ConfigurationError, match="'pages'"):
        open_storage("volume", IDENTITY, {"pages": 1})
