"""An event loop in virtual time."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

import pytest

from gapless_sim.world.options import SECOND
from gapless_sim.world.virtual_loop import VirtualLoop


class Time:
    """A world with nothing but a loop in it."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[int] = []
        self.loop = VirtualLoop(lambda: self.now, lambda when: heappush(self._due, when))

    def pass_until(self, end: int) -> None:
        while self._due and self._due[0] <= end:
            self.now = max(self.now, heappop(self._due))
            self.loop.run()
        self.now = end


def test_what_waits_for_time_or_for_others_goes_on() -> None:
    time = Time()
    seen: list[tuple[str, int]] = []

    async def work() -> None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(2, event.set)
        try:
            await asyncio.wait_for(event.wait(), 1)
        except asyncio.TimeoutError:
            seen.append(("too early", time.now // SECOND))
        await event.wait()
        seen.append(("set", time.now // SECOND))

    task = time.loop.create_task(work())
    time.pass_until(10 * SECOND)

    assert task.done()
    assert seen == [("too early", 1), ("set", 2)]


def test_a_task_that_fails_ends_the_run() -> None:
    time = Time()

    async def work() -> None:
        raise ValueError("a bug")

    def done(task: asyncio.Task[None]) -> None:
        error = task.exception()
        task.get_loop().call_exception_handler({"message": "it failed", "exception": error})

    time.loop.create_task(work()).add_done_callback(done)

    with pytest.raises(ValueError, match="a bug"):
        time.pass_until(SECOND)


def test_nothing_runs_any_more_when_its_process_is_gone() -> None:
    time = Time()
    seen: list[str] = []

    async def work() -> None:
        await asyncio.sleep(1)
        seen.append("too late")

    task = time.loop.create_task(work())
    time.pass_until(SECOND // 2)
    time.loop.end()
    time.pass_until(10 * SECOND)
    time.loop.call_soon(seen.append, "much too late")
    time.pass_until(20 * SECOND)

    assert seen == []
    assert not task.done()
