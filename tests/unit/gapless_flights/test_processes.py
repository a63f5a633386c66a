"""Processes are watched, whenever they were started."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from gapless_flights.processes import Processes
from gapless_flights.worker import WorkerFailedError


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def unheard(_: object) -> None:
    raise AssertionError


async def test_who_fails_is_told_of_although_it_was_started_later(tmp_path: Path) -> None:
    async with Processes(tmp_path / "run") as processes:
        processes.start("one", lambda: program("input()"), unheard)
        watching = asyncio.ensure_future(processes.watch(asyncio.Event().wait()))
        await asyncio.sleep(0)

        processes.start("other", lambda: program("raise SystemExit(7)"), unheard)

        with pytest.raises(WorkerFailedError, match="other ended with status 7"):
            await watching


async def test_what_is_waited_for_is_returned(tmp_path: Path) -> None:
    async with Processes(tmp_path / "run") as processes:
        processes.start("one", lambda: program(""), unheard)
        await processes.stop("one")

        assert await processes.watch(asyncio.sleep(0, "result")) == "result"
