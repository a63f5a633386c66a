"""A broker of its own for a benchmark, and how much processor time processes use."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from msgspec import convert

from gapless.core.gauges import Gauge

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Broker:
    """A running broker."""

    url: str
    process: subprocess.Popen[str]
    data: Path

    @property
    def pid(self) -> int:
        """Of its process."""
        return self.process.pid

    def gauges(self) -> list[Gauge]:
        """The figures that its node gives of itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("status\n")
        self.process.stdin.flush()
        return convert(json.loads(self.process.stdout.readline()), list[Gauge])

    def cpu_seconds(self) -> float:
        """Processor time it has used so far, all threads, user and system."""
        return cpu_seconds(self.pid)

    def written_bytes(self) -> int:
        """Bytes it has caused to be written to the disk so far."""
        for line in Path(f"/proc/{self.pid}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return int(line.split()[1])
        return 0

    def memory_bytes(self) -> int:
        """The most memory it has had since it began, or since `forget_memory`."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def forget_memory(self) -> None:
        """From now on `memory_bytes` counts anew."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


@contextlib.contextmanager
def running_broker(
    configuration: str = "", under: Path | None = None, storage: str = "", slower_sync: float = 0.0
) -> Iterator[Broker]:
    """A broker process on RocksDB and TCP, on a free port of loopback; its data is removed afterwards.

    `configuration`: further sections; `storage`: further options of the storage; `slower_sync`: the seconds by which
    each sync takes longer than on this disk.
    """
    data = Path(tempfile.mkdtemp(prefix="gapless-bench-", dir=under))
    config = data / "gapless.toml"
    config.write_text(
        f'[storage]\npath = "{data}/volume"\n{storage}\n\n[[listen]]\naddress = "127.0.0.1:0"\n\n{configuration}'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.status_broker", str(config), str(slower_sync)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        yield Broker(url, process, data)
    finally:
        process.terminate()
        process.wait(timeout=30)
        shutil.rmtree(data, ignore_errors=True)


def spawn(module: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of this package that talks over its standard input and output."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@contextlib.contextmanager
def running(module: str, url: str, step: str, *numbers: str) -> Iterator[list[subprocess.Popen[str]]]:
    """`step` client processes, told who they are: from which number on they take every `step`-th."""
    clients = [spawn(module, "client", url, str(first), step, *numbers) for first in range(int(step))]
    try:
        yield clients
    finally:
        for client in clients:
            client.kill()
            client.wait()


def medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds."""
    return {key: median(figures[key] for figures in rounds) for key in rounds[0]}


def quantile(values: Sequence[float], share: float) -> float:
    """Below or at which so large a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(title: str, figures: dict[str, float]) -> None:
    """Prints figures for people."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("figure", "median", title=title)
    for key, value in figures.items():
        shown.add_row(key.replace("_", " "), f"{value:,.2f}" if value < 100 else f"{value:,.0f}")
    Console().print(shown)
