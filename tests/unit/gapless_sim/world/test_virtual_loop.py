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
