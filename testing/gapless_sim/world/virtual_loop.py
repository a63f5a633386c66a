"""An event loop of asyncio in virtual time: coroutines of a plugin run in a simulated process, as in a real one.

It has no selector, no sockets and no threads. What is ready runs when the world calls `run`; a timer is asked of the
world. The order is asyncio's own, first come first served, so a seed is the same run everywhere.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections.abc import Callable
from contextvars import Context
from typing import Any

from gapless_sim.world.options import SECOND


class _NoSelector:
    """No file is ever ready."""

    def select(self, _timeout: float | None) -> list[Any]:
        """Returns at once."""
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop that does not run by itself."""

    def __init__(self, now: Callable[[], int], wake_at: Callable[[int], None]) -> None:
        """`now`: the time in nanoseconds. `wake_at` is asked for a call of `run` at that time at the latest."""
        self._running = False
        self._is_over = False
        self._nanoseconds = now
        self._wake_at = wake_at
        self._selector = _NoSelector()
        super().__init__()
        self.set_task_factory(_silent_task)
        self.set_exception_handler(self._failed)
        self._failures: list[BaseException] = []

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self._nanoseconds() / SECOND

    def run(self) -> None:
        """Runs what is ready, and what that makes ready, until nothing is."""
        if self._is_over:
            return
        outer = events._get_running_loop()  # noqa: SLF001 - how asyncio's own `run_forever` does it
        events._set_running_loop(self)  # noqa: SLF001
        self._running = True
        try:
            self._run_once()  # type: ignore[attr-defined]
            while self._ready:  # type: ignore[attr-defined]
                self._run_once()  # type: ignore[attr-defined]
        finally:
            self._running = False
            events._set_running_loop(outer)  # noqa: SLF001
        if self._failures:  # whatever a callback or a task raises is what a simulation looks for
            raise self._failures[0]
        due = [handle.when() for handle in self._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]
        if due:
            self._wake_at(max(self._nanoseconds() + 1, round(min(due) * SECOND) + 1))

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(context.get("exception") or RuntimeError(context["message"]))

    def end(self) -> None:
        """The process is gone. Its coroutines stand where they stood, and nothing of them ever runs again."""
        self._is_over = True

    def __del__(self) -> None:
        """Nobody closes it: a process that is gone closes nothing."""

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio's; from outside of `run`, the world is asked to run it."""
        if self._is_over:
            return asyncio.Handle(callback, args, self, context)
        if not self._running:
            self._wake_at(self._nanoseconds())
        return super().call_soon(callback, *args, context=context)

    def is_running(self) -> bool:
        """Whether `run` is under way."""
        return self._running

    def _process_events(self, _event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody waits for a wake-up."""


def _silent_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """A task that may be destroyed while it is pending: its process is gone, or the run has ended."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    return task
