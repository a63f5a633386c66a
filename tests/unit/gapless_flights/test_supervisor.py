"""How far a run is, and when it is over; the processes are in tests/integration/test_demo.py."""

from __future__ import annotations

import asyncio

import pytest

from gapless_flights import supervisor
from gapless_flights.selections import SELECTIONS
from gapless_flights.supervisor import DemoProgress


def progress_of_two() -> DemoProgress:
    return DemoProgress(SELECTIONS[:2])


async def test_it_is_complete_when_everybody_stands_behind_everything() -> None:
    progress = progress_of_two()
    first, second = progress.consumed

    assert not progress.is_complete
    progress.positions = {first: {"p@1": 10}, second: {"p@1": 10}}
    assert not progress.is_complete
    progress.ends = {"p@1": 11}
    assert not progress.is_complete
    progress.positions[first] = {"p@1": 12}
    assert not progress.is_complete
    progress.positions[second] = {"p@1": 11}
    assert progress.is_complete


async def test_whoever_waits_hears_of_it() -> None:
    progress = progress_of_two()
    waiting = asyncio.ensure_future(progress.until(lambda: progress.published == 2))

    for published in (1, 2):
        await asyncio.sleep(0)
        before = progress.done
        progress.published = published
        progress.heard(before)

    assert await waiting


async def test_a_run_that_does_not_move_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "IDLE_MAX", 0.05)
    progress = progress_of_two()

    assert not await progress.until(lambda: False)


async def test_silence_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on for ever, and a run in which one subscriber is stuck must end."""
    monkeypatch.setattr(supervisor, "IDLE_MAX", 0.05)
    progress = progress_of_two()

    async def be_silent() -> None:
        while True:
            progress.heard(progress.done)
            await asyncio.sleep(0.001)

    silence = asyncio.ensure_future(be_silent())
    assert not await progress.until(lambda: False)
    silence.cancel()
