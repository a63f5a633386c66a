"""The verifying open: in a child, with a deadline, and honest about what it could not do."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.storages import RocksdbHarness
from gapless.errors import StorageError, VolumeCorruptError, VolumeFailedError, VolumeFullError
from gapless_storage._rocksdb import watchdog
from gapless_storage._rocksdb.layout import Mark
from gapless_storage._rocksdb.watchdog import Flushed, inspect_within
from gapless_testing.storage.crashes import write_batch


@pytest.fixture
def database(tmp_path: Path) -> Path:
    harness = RocksdbHarness(tmp_path)
    volume = harness.open()
    write_batch(volume, 1)
    volume.close()
    return harness.directory / "rocksdb"


def test_it_tells_what_is_flushed(database: Path) -> None:
    found = inspect_within(database, 10)

    assert found.default == found.log
    assert Mark.decode(found.default or b"").counter == 2


def test_it_changes_nothing(database: Path) -> None:
    before = {path.name: path.read_bytes() for path in database.iterdir()}

    inspect_within(database, 10)

    assert {path.name: path.read_bytes() for path in database.iterdir()} == before


def test_a_hang_is_given_up(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child holds its GIL for ever, as RocksDB does, and is gone afterwards."""
    monkeypatch.setattr(watchdog, "_CHILD", "import re; re.match('(a*)*b', 'a' * 60)")

    with pytest.raises(VolumeCorruptError, match="hangs"):
        inspect_within(database, 0.3)


def test_a_child_that_outlives_its_parent_ends_by_itself(database: Path) -> None:
    """Its alarm needs no GIL."""
    code = watchdog._CHILD.replace("probe.main()", "import re; re.match('(a*)*b', 'a' * 60)")

    done = subprocess.run(
        [sys.executable, "-I", "-c", code, "\n".join(sys.path), "0.3", str(database), str(database.parent)],
        timeout=30,
        check=False,
    )

    assert done.returncode < 0


def test_a_crash_is_the_databases_fault(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")

    with pytest.raises(VolumeCorruptError, match="by signal 9"):
        inspect_within(database, 10)


def test_what_rocksdb_says_is_passed_on(database: Path) -> None:
    (database / "CURRENT").write_text("MANIFEST-999999\n")

    with pytest.raises(VolumeCorruptError, match=r"cannot be opened: .*MANIFEST-999999"):
        inspect_within(database, 10)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("IO error: No space left on device: While appending to file: /d/x", VolumeFullError),
        ("Read-only file system (os error 30)", VolumeFailedError),
        ("IO error: While pread offset 0 len 8: /d/5.sst: Input/output error", VolumeFailedError),
        ("IO error: While open a file for random read: /d/5.sst: Too many open files", VolumeFailedError),
        ("IO error: No such file or directory: While open a file for random read: /d/5.sst", VolumeCorruptError),
    ],
)
def test_a_disk_that_fails_just_now_is_no_damage(
    database: Path, monkeypatch: pytest.MonkeyPatch, answer: str, kind: type[StorageError]
) -> None:
    """Damage is final, and a broker that meets it gives up; what may pass is tried again."""
    monkeypatch.setattr(watchdog, "_CHILD", f"import sys; sys.stdout.write('error ' + {answer!r})")

    with pytest.raises(StorageError) as caught:
        inspect_within(database, 10)

    assert type(caught.value) is kind


@pytest.mark.parametrize("executable", ["", "/no/such/interpreter"])
def test_without_a_child_it_looks_for_itself_and_says_so(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, executable: str
) -> None:
    expected = inspect_within(database, 10)
    monkeypatch.setattr(sys, "executable", executable)

    with caplog.at_level(logging.WARNING):
        found = inspect_within(database, 10)

    assert found == expected != Flushed(None, None)
    assert "is not watched" in caplog.text


def test_a_broken_installation_is_not_the_databases_fault(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "_CHILD", "import no_such_module")

    with caplog.at_level(logging.WARNING):
        inspect_within(database, 10)

    assert "no_such_module" in caplog.text
