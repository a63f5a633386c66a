"""A loop in a thread, and calls into it."""

from __future__ import annotations

import asyncio
import threading
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


def test_a_thread_whose_start_is_interrupted_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = threading.Thread.start
    begun: list[threading.Thread] = []

    def interrupted(thread: threading.Thread) -> None:
        begin(thread)
        begun.append(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Runner()

    [thread] = begun
    thread.join(10)
    assert not thread.is_alive()


def test_a_caller_that_gives_up_cancels_the_work_before_its_next_call_begins() -> None:
    runner = Runner()
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # it takes a few turns
            await asyncio.sleep(0)
            ended.append("cancelled")
            raise

    async def look() -> list[str]:
        return list(ended)

    try:
        with pytest.raises(TimeoutError, match=r"not done within 0\.01 s: the disk is full\. It goes on by itself"):
            runner.call(work, timeout=0.01, waiting=lambda: "the disk is full")
        assert runner.call(look) == ["cancelled"]
    finally:
        runner.stop()


def test_what_was_done_when_its_caller_had_gone_goes_back() -> None:
    runner = Runner()
    back: list[object] = []

    def note(done: asyncio.Future[int]) -> None:
        back.append(done.exception() or done.result())

    async def fail() -> int:
        raise ZeroDivisionError

    try:
        for work in (lambda: after(0), fail):
            call = runner.prepare(work, note)
            call.start()
            assert call.wait(5)
            call.leave()
            call.leave()
        runner.do(lambda: None)
        assert back[0] == 7
        assert isinstance(back[1], ZeroDivisionError)
        assert len(back) == 2
    finally:
        runner.stop()


def test_the_outcome_that_the_caller_has_does_not_go_back() -> None:
    runner = Runner()
    back: list[object] = []

    async def fail() -> None:
        raise ZeroDivisionError

    try:
        assert runner.call(lambda: after(0), back=back.append) == 7
        with pytest.raises(ZeroDivisionError):
            runner.call(fail, back=back.append)
        runner.do(lambda: None)
        assert back == []
    finally:
        runner.stop()


def test_stop_ends_the_thread_and_whatever_runs_in_it() -> None:
    runner = Runner()
    waiting = runner.prepare(lambda: after(1000))
    waiting.start()
    runner.stop()
    runner.stop()

    assert not runner.alive
    assert not runner.loop.is_running()
    with pytest.raises(ConnectionClosedError, match="was closed"):
        waiting.result()
    waiting.leave()
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
    assert not second.loop.is_running()

    again = Runner(tmp_path)
    try:
        assert again.call(lambda: after(0)) == 7
    finally:
        again.stop()
