"""A verifying open with a deadline, in a child process that can be killed.

It costs some 50 ms at start-up, whatever the size of the volume, since the child does not replay the log.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

from gapless.errors import VolumeCorruptError
from gapless_storage._rocksdb.probe import Flushed, inspect

_LOGGER = logging.getLogger("gapless.storage.rocksdb")

# The child's import path is exactly ours (-I takes no other), whatever made it. The alarm ends a child that
# outlives us: the signal's default action needs no GIL.
_CHILD = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop(1))
deadline = float(sys.argv.pop(1))
try:
    import signal
    signal.setitimer(signal.ITIMER_REAL, deadline)
except AttributeError:
    pass
from gapless_storage._rocksdb import probe
probe.main()
"""
_MANIFEST_BYTES_PER_SECOND = 1 << 20


def inspect_within(directory: Path, seconds_min: float) -> Flushed:
    """What is flushed in a database, found out by a child process.

    Raises VolumeCorruptError when it cannot be opened, and when that takes longer than `seconds_min` and
    one second more for each MiB of MANIFEST; then the child is killed.
    """
    seconds = seconds_min + _manifest_bytes(directory) / _MANIFEST_BYTES_PER_SECOND
    try:
        answer = _ask_child(directory, seconds)
    except subprocess.TimeoutExpired as error:
        raise VolumeCorruptError(f"opening {directory} hangs: it was given up after {seconds:.0f} s") from error
    except OSError as error:
        _LOGGER.warning("no child process can be started, so opening %s is not watched: %s", directory, error)
        answer = _ask_in_process(directory)
    if isinstance(answer, str):
        raise VolumeCorruptError(f"{directory} cannot be opened: {answer}")
    return answer


def _ask_child(directory: Path, seconds: float) -> Flushed | str:
    if not sys.executable or getattr(sys, "frozen", False):
        raise OSError("there is no Python interpreter to start")
    done = subprocess.run(  # noqa: S603 — our own interpreter, with our own code
        [sys.executable, "-I", "-c", _CHILD, json.dumps(sys.path), str(seconds + 1), str(directory)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        if done.returncode > 0:
            raise OSError(done.stderr.decode("utf-8", "replace")[-500:]) from None
        return f"it ended the process that tried with signal {-done.returncode}"
    if "error" in answer:
        return str(answer["error"])
    return Flushed(_bytes(answer["default"]), _bytes(answer["log"]))


def _ask_in_process(directory: Path) -> Flushed | str:
    try:
        return inspect(str(directory))
    except Exception as error:  # noqa: BLE001 — rocksdict raises bare exceptions
        return str(error)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _manifest_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("MANIFEST-*"))
