"""Files that are whole, and a lock that lets one in."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.errors import VolumeFailedError, VolumeFullError, VolumeLockedError
from gapless_storage._rocksdb.files import DirectoryLock, make_directory, replace_file, storage_error


def test_a_file_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    replace_file(path, b"old")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="injected"):
        replace_file(path, b"new")

    assert path.read_bytes() == b"old"


def test_a_directory_is_made_with_all_above_it(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b")
    make_directory(tmp_path / "a" / "b")

    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_told_apart(number: int) -> None:
    assert type(storage_error(OSError(number, "x"), "what")) is VolumeFullError
    assert type(storage_error(OSError(errno.EIO, "x"), "what")) is VolumeFailedError


def test_the_same_process_is_locked_out(tmp_path: Path) -> None:
    """By another name of the directory too."""
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    lock = DirectoryLock(tmp_path / "directory")

    with pytest.raises(VolumeLockedError, match="this very process"):
        DirectoryLock(tmp_path / "link")

    lock.release()
    lock.release()
    DirectoryLock(tmp_path / "link").release()


TAKE = """
import sys
from pathlib import Path
from gapless.errors import VolumeLockedError
from gapless_storage._rocksdb.files import DirectoryLock
try:
    DirectoryLock(Path(sys.argv[1]))
except VolumeLockedError as error:
    print(error)
"""


def take_in_another_process(directory: Path) -> str:
    done = subprocess.run([sys.executable, "-c", TAKE, str(directory)], capture_output=True, text=True, check=True)
    return done.stdout


def test_another_process_is_locked_out(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    during = take_in_another_process(tmp_path)
    lock.release()

    assert f"in use by another process (its id: {os.getpid()})" in during
    assert take_in_another_process(tmp_path) == ""


FORK = """
import os, sys
from pathlib import Path
from gapless_storage._rocksdb.files import DirectoryLock
lock = DirectoryLock(Path(sys.argv[1]))
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
print("forked", flush=True)
os._exit(0)
"""


def test_a_fork_does_not_keep_the_lock(tmp_path: Path) -> None:
    """A process that outlives its parent must not lock out the parent's successor."""
    with subprocess.Popen(
        [sys.executable, "-c", FORK, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.wait() == 0

        assert take_in_another_process(tmp_path) == ""
