"""A process is started, heard, killed, and started again."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gapless_flights.worker import Worker, WorkerFailedError, environment

SAY = "import json, os, sys\ndef say(**fields): print(json.dumps(fields), flush=True)\n"
WAIT = "sys.stdin.read()\n"


class Heard:
    """What a worker reports, for who waits for it."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def next(self) -> dict[str, Any]:
        return await self.reports.get()


@asynccontextmanager
async def working(
    tmp_path: Path, program: str | Callable[[], str], *, may_fail_to_start: bool = False
) -> AsyncIterator[tuple[Worker, Heard, asyncio.Task[None]]]:
    heard = Heard()

    def command() -> list[str]:
        return [sys.executable, "-c", SAY + (program if isinstance(program, str) else program())]

    worker = Worker("w", command, heard.reports.put_nowait, tmp_path / "w.log", may_fail_to_start=may_fail_to_start)
    keeping = worker.start()
    try:
        yield worker, heard, keeping
    finally:
        await worker.abandon()


async def test_who_is_killed_is_started_again(tmp_path: Path) -> None:
    async with working(tmp_path, "say(pid=os.getpid())\n" + WAIT) as (worker, heard, _):
        pids = [(await heard.next())["pid"]]
        for _ in range(2):
            assert await worker.kill()
            pids.append((await heard.next())["pid"])

        assert worker.kills == 2
        assert len(set(pids)) == 3
        await worker.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[-1], 0)


async def test_who_ends_well_is_not_started_again(tmp_path: Path) -> None:
    async with working(tmp_path, "say(done=True)") as (worker, heard, keeping):
        await keeping

        assert await heard.next() == {"done": True}
        assert not await worker.kill()
        await worker.stop()


async def test_who_fails_says_why(tmp_path: Path) -> None:
    async with working(tmp_path, "sys.exit('the reason')") as (_, _, keeping):
        with pytest.raises(WorkerFailedError, match="w ended with status 1:\nthe reason"):
            await keeping


async def test_who_may_fail_to_start_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_flights.worker.PAUSE", 0)
    programs = iter(["sys.exit(1)", "sys.exit(1)", "say(up=True)\n" + WAIT])

    async with working(tmp_path, lambda: next(programs), may_fail_to_start=True) as (worker, heard, _):
        assert await heard.next() == {"up": True}
        await worker.stop()


async def test_who_never_starts_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_flights.worker.PAUSE", 0)

    async with working(tmp_path, "sys.exit(1)", may_fail_to_start=True) as (_, _, keeping):
        with pytest.raises(WorkerFailedError):
            await keeping


async def test_half_a_report_is_none(tmp_path: Path) -> None:
    """Whoever is killed while it writes leaves half a line."""
    async with working(tmp_path, "say(n=1)\nsys.stdout.write('{')") as (_, heard, keeping):
        await keeping

        assert await heard.next() == {"n": 1}
        assert heard.reports.empty()


async def test_who_does_not_end_in_order_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless_flights.worker.END_TIMEOUT", 0.05)

    async with working(tmp_path, "say(up=True)\nimport time\ntime.sleep(60)") as (worker, heard, _):
        await heard.next()
        with pytest.raises(WorkerFailedError, match="w does not end"):
            await worker.stop()


def test_settings_of_other_brokers_are_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAPLESS_STORAGE__PATH", "/elsewhere")
    monkeypatch.setenv("KEPT", "yes")

    assert environment()["KEPT"] == "yes"
    assert "GAPLESS_STORAGE__PATH" not in environment()
