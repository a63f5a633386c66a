"""What a server used between two moments: processor time, bytes written, memory; it and its children."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.processes import cpu_seconds


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                found += family(int(child))
    return found


def written_bytes(pid: int) -> int:
    """Bytes that a process has caused to be written to the disk so far."""
    return _field(pid, "io", "write_bytes:")


def peak_memory_bytes(pid: int) -> int:
    """The most memory that a process had resident since it was last asked to forget."""
    return 1024 * _field(pid, "status", "VmHWM:")


def _field(pid: int, file: str, name: str) -> int:
    for line in Path(f"/proc/{pid}/{file}").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0


def forget_cached(directory: Path) -> None:
    """Has the kernel write back and forget what it keeps of these files, as it does in the course of time."""
    for file in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # servers remove files, too
            if file.is_file():
                descriptor = os.open(file, os.O_RDONLY)
                try:
                    os.fdatasync(descriptor)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                finally:
                    os.close(descriptor)


@dataclass(frozen=True)
class Usage:
    """What was used, of the machine, by a server."""

    cpu_seconds: float
    written_bytes: int
    peak_memory_bytes: int


class Meter:
    """Measures a server from now on."""

    def __init__(self, pids: Sequence[int]) -> None:
        """`pids`: the first process of each of its parts."""
        self._pids = pids
        for each in self._family():
            with contextlib.suppress(OSError):
                Path(f"/proc/{each}/clear_refs").write_text("5")  # VmHWM begins anew
        self._start = self._now()

    def read(self) -> Usage:
        """What was used since."""
        now = self._now()
        return Usage(
            now.cpu_seconds - self._start.cpu_seconds,
            now.written_bytes - self._start.written_bytes,
            now.peak_memory_bytes,
        )

    def _family(self) -> list[int]:
        return [each for pid in self._pids for each in family(pid)]

    def _now(self) -> Usage:
        cpu, written, memory = 0.0, 0, 0
        for each in self._family():
            with contextlib.suppress(OSError):  # children come and go
                cpu += cpu_seconds(each)
                written += written_bytes(each)
                memory += peak_memory_bytes(each)
        return Usage(cpu, written, memory)
