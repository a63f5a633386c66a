"""Real errors of a real disk, made by a shim between the process and libc: EIO in a sync, and no space."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Each call on a file of the volume fails while the file that $FAIL_SYNC or $FAIL_WRITE names is there.
# Syncs are counted, too.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int on(const char *name) {
    const char *path = getenv(name);
    return path && access(path, F_OK) == 0;
}
static int ours(int fd) {
    char link[64], target[4096];
    const char *root = getenv("SHIM_ROOT");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0 || !root) return 0;
    target[length] = 0;
    return strncmp(target, root, strlen(root)) == 0;
}
int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    if (on("FAIL_SYNC") && ours(fd)) { errno = EIO; return -1; }
    return real(fd);
}
int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (on("FAIL_SYNC") && ours(fd)) { errno = EIO; return -1; }
    return real(fd);
}
ssize_t write(int fd, const void *bytes, size_t count) {
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (on("FAIL_WRITE") && ours(fd)) { errno = ENOSPC; return -1; }
    return real(fd, bytes, count);
}
"""

PROGRAM = """
import json, os, sys
from pathlib import Path
from gapless.errors import StorageError
from gapless.spi import Create, VolumeIdentity
from gapless_testing.storage.crashes import newest_whole_batch, write_batch
from gapless_storage.rocksdb import open_storage

said = {}

def outcome(name, act):
    try:
        said[name] = act()
    except StorageError as error:
        said[name] = type(error).__name__

def opened():
    return open_storage(os.environ["SHIM_ROOT"], VolumeIdentity("n", "a"), {"reserve_bytes": 1 << 20}, Create.YES)

def synced(number):
    write_batch(volume, number)
    volume.sync()
    return "durable"

fault = Path(os.environ[sys.argv[1]])
volume = opened()
outcome("before", lambda: synced(1))
fault.touch()
outcome("first failure", lambda: synced(2))
outcome("second try", lambda: synced(volume.stream("left").last + 1))
outcome("sync alone", lambda: volume.sync())
outcome("reading", lambda: [index for index, _ in volume.stream("left").read(0, 1)])
if sys.argv[2] == "healed":
    fault.unlink()
    outcome("after healing", lambda: synced(volume.stream("left").last + 1))
volume.close()
if sys.argv[2] == "lasting":
    for attempt in range(3):
        outcome("opening", lambda: opened().close())
    fault.unlink()
volume = opened()
found = newest_whole_batch(volume)
said["found"] = found
outcome("going on", lambda: synced(found + 1))
volume.close()
volume = opened()
said["at the end"] = newest_whole_batch(volume) - found
volume.close()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the shim needs Linux and a C compiler")
    directory = tmp_path_factory.mktemp("shim")
    (directory / "shim.c").write_text(SHIM)
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", directory / "shim.so", directory / "shim.c", "-ldl"], check=True
    )
    return directory / "shim.so"


def outcomes(shim: Path, tmp_path: Path, fault: str, how: str) -> dict[str, Any]:
    """What the program says that happened to it."""
    environment = {
        **os.environ,
        "LD_PRELOAD": str(shim),
        "SHIM_ROOT": str(tmp_path / "volume"),
        "FAIL_SYNC": str(tmp_path / "fail-sync"),
        "FAIL_WRITE": str(tmp_path / "fail-write"),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, fault, how], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("how", ["lasting", "healed"])
def test_a_sync_that_fails_is_never_taken_back(shim: Path, tmp_path: Path, how: str) -> None:
    """One that succeeds afterwards says nothing about what was lost."""
    said = outcomes(shim, tmp_path, "FAIL_SYNC", how)

    assert said["before"] == "durable"
    assert said["first failure"] == "VolumeFailedError"
    assert said["second try"] == said["sync alone"] == "VolumeFailedError"
    assert said["reading"] == [1]
    assert said.get("after healing", "VolumeFailedError") == "VolumeFailedError"
    assert said.get("opening", "VolumeFailedError") == "VolumeFailedError"
    assert said["found"] in (1, 2)
    assert said["going on"] == "durable"
    assert said["at the end"] == 1


@pytest.mark.parametrize("how", ["lasting", "healed"])
def test_a_full_disk_is_told_and_outlived(shim: Path, tmp_path: Path, how: str) -> None:
    said = outcomes(shim, tmp_path, "FAIL_WRITE", how)

    assert said["before"] == "durable"
    assert said["first failure"] == said["second try"] == said["sync alone"] == "VolumeFullError"
    assert said["reading"] == [1]
    assert said.get("after healing", "VolumeFullError") == "VolumeFullError"
    assert said.get("opening", "VolumeFullError") == "VolumeFullError"
    assert said["found"] in (1, 2)
    assert said["going on"] == "durable"
    assert said["at the end"] == 1
