"""A loop in a thread, and calls into it."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from gapless.errors import ConnectionClosedError
from gapless.sync.runner import Runner


async def after(seconds: float, result: int = 7) -> int:
    await asyncio.sleep(seconds)
    return result


def test_a_call_gives_the_result_or_the_error() -> None:
    runner = Runner()
    try:
        assert runner.call(lambda: after(0)) == 7
        assert runner.do(threading.get_ident) != threading.get_ident()

        async def fail() -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            runner.call(fail, timeout=5)

        async def late() -> None:
            raise TimeoutError("the work's own")

        with pytest.raises(TimeoutError, match="the work's own"):
            runner.call(late, timeout=5)
    finally:
        runner.stop()


def test_after_a_timeout_the_work_goes_on_unless_it_is_given_up() -> None:
    runner = Runner()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0.1)
            ended.append("well")
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    try:
        with pytest.raises(TimeoutError):
            runner.call(work, timeout=0.01)
        with pytest.raises(TimeoutError):
            runner.call(work, timeout=0.01, give_up=True)
        time.sleep(0.2)
        assert ended == ["cancelled", "well"]
    finally:
        runner.stop()


def test_stop_ends_the_thread_and_whatever_runs_in_it() -> None:
    runner = Runner()
    waiting = runner.begin(lambda: after(1000))
    runner.stop()
    runner.stop()

    assert not runner.alive
    assert not runner._thread.alive
    assert waiting.cancelled()
    with pytest.raises(ConnectionClosedError):
        runner.call(lambda: after(0))


def test_what_is_shared_lives_as_long_as_one_uses_it(tmp_path: Path) -> None:
    first, second, other = Runner(tmp_path), Runner(tmp_path), Runner()
    try:
        assert first.loop is second.loop
        assert first.loop is not other.loop
        first.stop()
        first.stop()

        assert not first.alive
        with pytest.raises(ConnectionClosedError):
            first.call(lambda: after(0))
        assert second.call(lambda: after(0)) == 7
    finally:
        second.stop()
        other.stop()
    assert not second._thread.alive

    again = Runner(tmp_path)
    try:
        assert again.call(lambda: after(0)) == 7
    finally:
        again.stop()
