"""What is told of the process: what the system itself says of it."""

from __future__ import annotations

import gc
import os
import platform
import sys
import time
from pathlib import Path

import pytest

import gapless
from gapless.core.gauges import value_of
from gapless.node import process


def told(name: str, **labels: str) -> float:
    return value_of(process.gauges(), name, **labels)


def test_what_runs_and_since_when() -> None:
    version = {"version": gapless.__version__, "python": platform.python_version()}

    assert told("gapless_build_info", **version) == 1
    assert 0 < told("gapless_process_uptime_seconds") <= time.monotonic()
    assert told("process_start_time_seconds") + told("gapless_process_uptime_seconds") == pytest.approx(
        time.time_ns() / 1e9, abs=1
    )


def test_processor_time_and_collections_grow() -> None:
    before = told("process_cpu_seconds_total"), told("python_gc_collections_total", generation="2")
    gc.collect()

    assert told("process_cpu_seconds_total") > before[0]
    assert told("python_gc_collections_total", generation="2") == before[1] + 1


@pytest.mark.skipif(platform.system() != "Linux", reason="other systems do not tell it")
def test_memory_and_descriptors() -> None:
    before = told("process_open_fds")
    reader, writer = os.pipe()

    assert told("process_open_fds") == before + 2
    assert before < told("process_max_fds")
    assert 1 << 20 < told("process_resident_memory_bytes") < 1 << 36
    os.close(reader)
    os.close(writer)


def test_what_the_system_does_not_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PROC", Path("/nowhere"))
    monkeypatch.setitem(sys.modules, "resource", None)

    names = {gauge.name for gauge in process.gauges()}

    assert not names & {"process_open_fds", "process_max_fds", "process_resident_memory_bytes"}
    assert "process_cpu_seconds_total" in names
