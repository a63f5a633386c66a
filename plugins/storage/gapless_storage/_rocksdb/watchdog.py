"""A verifying open with a deadline, in a child process that can be killed.

It costs some 40 ms at start-up, whatever the size of the volume, since the child does not replay the log.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from gapless import loggers
from gapless.errors import StorageError, VolumeCorruptError, VolumeFailedError, VolumeFullError
from gapless_storage._rocksdb.engine import says_failing, says_full
from gapless_storage._rocksdb.probe import inspect

_LOGGER = loggers.logger("gapless.storage.rocksdb")

# The child's import path is exactly ours (-I takes no other), whatever made it. The alarm ends a child that
# outlives us: the signal's default action needs no GIL.
_CHILD = """\
import sys
sys.path[:] = sys.argv.pop(1).split("\\n")
seconds = float(sys.argv.pop(1))
try:
    import signal
    signal.setitimer(signal.ITIMER_REAL, seconds)
except AttributeError:
    pass
from gapless_storage._rocksdb import probe
probe.main()
"""
_MANIFEST_BYTES_PER_SECOND = 1 << 20


@dataclass(frozen=True, slots=True)
class Flushed:
    """The mark in the data files of each family, encoded; None when nothing was flushed yet."""

    default: bytes | None
    log: bytes | None


def inspect_within(directory: Path, seconds_min: float) -> Flushed:
    """What is flushed in a database, found out by a child process.

    Raises VolumeFullError when the disk is full, VolumeFailedError when it cannot be read or written just now, and
    VolumeCorruptError when the database cannot be opened otherwise, also when that takes longer than `seconds_min`
    and one second more for each MiB of MANIFEST; then the child is killed.
    """
    seconds = seconds_min + _manifest_bytes(directory) / _MANIFEST_BYTES_PER_SECOND
    try:
        return _ask_child(directory, seconds)
    except subprocess.TimeoutExpired as error:
        raise VolumeCorruptError(f"opening {directory} hangs: it was given up after {seconds:.0f} s") from error
    except OSError as error:
        _LOGGER.warning("no child process can be started, so opening %s is not watched: %s", directory, error)
        return _ask_ourselves(directory)


def _ask_child(directory: Path, seconds: float) -> Flushed:
    """Raises OSError when the child could not do its work, for reasons that are not the database's."""
    if not sys.executable or getattr(sys, "frozen", False):
        raise OSError("there is no Python interpreter to start")
    interpreter = [sys.executable, "-I", "-c", _CHILD, "\n".join(sys.path), str(seconds + 1)]
    done = subprocess.run(  # noqa: S603 — our own interpreter, with our own code
        [*interpreter, str(directory), str(directory.parent)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=seconds,
        check=False,
    )
    word, _, answer = done.stdout.decode("utf-8", "replace").partition(" ")
    if word == "found":
        default, log = answer.split()
        return Flushed(_mark(default), _mark(log))
    if word == "error":
        raise _refusal(directory, answer)
    if done.returncode < 0:
        raise VolumeCorruptError(f"opening {directory} ends the process that tries, by signal {-done.returncode}")
    raise OSError(done.stderr.decode("utf-8", "replace").strip()[-500:])


def _ask_ourselves(directory: Path) -> Flushed:
    try:
        return Flushed(*inspect(str(directory), str(directory.parent)))
    except Exception as error:
        raise _refusal(directory, str(error)) from error


def _refusal(directory: Path, answer: str) -> StorageError:
    """What it means that the child could not open the database: rocksdict rewrites a file even to read."""
    words = f"{directory} cannot be opened: {answer}"
    if says_full(answer):
        return VolumeFullError(words)
    return VolumeFailedError(words) if says_failing(answer) else VolumeCorruptError(words)


def _mark(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def _manifest_bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("MANIFEST-*"))
