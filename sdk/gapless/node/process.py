"""The figures of the process that a node runs in, read when asked, under the names that Prometheus has for them.

What this system does not tell is left out.
"""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gapless.core.gauges import Family, Gauge

BUILD = Family("gapless_build_info", "Always 1; the labels say what runs.", ("version", "python"))
UPTIME = Family("gapless_process_uptime_seconds", "How long the process has been running.")
CPU = Family("process_cpu_seconds_total", "Processor time of all threads, of the user and of the system.", counter=True)
RESIDENT = Family("process_resident_memory_bytes", "Memory that is in use, without what is swapped out.")
OPEN_FDS = Family("process_open_fds", "Open file descriptors; each connection has one.")
MAX_FDS = Family("process_max_fds", "How many file descriptors may be open.")
START = Family("process_start_time_seconds", "When the process was started, in seconds since 1970.")
COLLECTIONS = Family(
    "python_gc_collections_total", "How often Python has looked for cycles of garbage.", ("generation",), counter=True
)

_PROC: Final = Path("/proc/self")


def _age() -> float:
    """How many seconds ago this process was started; 0 where the system does not say it."""
    try:
        ticks = int((_PROC / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
        return float(Path("/proc/uptime").read_text("ascii").split()[0]) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _version() -> str:
    return str(getattr(sys.modules["gapless"], "__version__", "unknown"))


_BEGAN: Final = time.monotonic() - _age()
_STARTED: Final = time.time_ns() / 1e9 - (time.monotonic() - _BEGAN)


def gauges() -> Iterator[Gauge]:
    """Yields all of them."""
    yield BUILD.gauge(1, _version(), platform.python_version())
    yield UPTIME.gauge(time.monotonic() - _BEGAN)
    yield START.gauge(_STARTED)
    yield CPU.gauge(time.process_time())
    for family, read in ((RESIDENT, _resident), (OPEN_FDS, _open_fds), (MAX_FDS, _max_fds)):
        if (value := read()) is not None:
            yield family.gauge(value)
    for generation, stats in enumerate(gc.get_stats()):
        yield COLLECTIONS.gauge(stats["collections"], generation)


def _resident() -> int | None:
    try:
        return int((_PROC / "statm").read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _open_fds() -> int | None:
    try:
        with os.scandir(_PROC / "fd") as found:
            return sum(1 for _ in found) - 1  # without the one that lists them
    except OSError:
        return None


def _max_fds() -> int | None:
    try:
        import resource  # not on Windows
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
