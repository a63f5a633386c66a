"""A thread with an event loop, and calls into it from other threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from gapless.errors import ConnectionClosedError

Result = TypeVar("Result")

STOP_TIMEOUT = 5.0
"""How many seconds a loop may take to end before its thread is left alone."""

_numbers = count(1)


class LoopThread:
    """One loop in one thread, shared by all runners that use it. It ends with the last of them."""

    def __init__(self) -> None:
        self.loop = _new_loop()
        self.process = os.getpid()
        self._users = 0
        self._thread = threading.Thread(target=self._run, name=f"gapless-{next(_numbers)}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.get_ident() == self._thread.ident

    def enter(self) -> None:
        """Counts one more user."""
        self._users += 1

    def leave(self) -> bool:
        """Counts one user less. Returns whether it was the last: then the caller has to call `stop`."""
        self._users -= 1
        return not self._users

    def stop(self) -> None:
        """Ends the loop and its thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(STOP_TIMEOUT)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._cancel_all()
            asyncio.set_event_loop(None)
            self.loop.close()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        gathered: Any = asyncio.gather(*tasks, return_exceptions=True)
        self.loop.run_until_complete(_until(gathered))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())


_lock = threading.Lock()
_shared: dict[Path, LoopThread] = {}
"""The shared threads by the directory of an embedded broker, because such a broker lives on one loop."""


class Runner:
    """One connection's use of a thread with a loop. All methods may be called from any thread but that one."""

    def __init__(self, shared: Path | None = None) -> None:
        """`shared` None: a thread of its own; otherwise the thread of all runners with the same `shared`."""
        self._share = shared
        with _lock:
            thread = None if shared is None else _shared.get(shared)
            # A forked child inherits this table, but not the threads.
            if thread is None or thread.process != os.getpid():
                thread = LoopThread()
            if shared is not None:
                _shared[shared] = thread
            thread.enter()
        self._thread = thread
        self._stopped = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs in the thread."""
        return self._thread.loop

    @property
    def alive(self) -> bool:
        """Whether calls are possible: not after `stop`, and not in a forked child."""
        return not self._stopped and os.getpid() == self._thread.process

    def begin(self, work: Callable[[], Awaitable[Result]]) -> Future[Result]:
        """Begins some work in the loop's thread. Raises ConnectionClosedError if that has ended."""
        if os.getpid() != self._thread.process:
            raise ConnectionClosedError("the connection belongs to the process this one was forked from: connect anew")
        if self._stopped:
            raise ConnectionClosedError("the connection is closed")
        if self._thread.is_current:
            raise RuntimeError("a blocking call in the loop's own thread would wait for itself")

        async def run() -> Result:
            return await work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop)

    def call(
        self,
        work: Callable[[], Awaitable[Result]],
        timeout: float | None = None,
        *,
        give_up: bool = False,
        waiting: Callable[[], str] | None = None,
    ) -> Result:
        """Runs some work in the loop's thread, and returns its result.

        Raises TimeoutError after `timeout` seconds; its text includes what `waiting` returns. The work goes on then.
        With `give_up` it is cancelled, and an interrupt cancels it, too.
        """
        return self.result(self.begin(work), timeout, give_up=give_up, waiting=waiting)

    @staticmethod
    def result(
        future: Future[Result],
        timeout: float | None,
        *,
        give_up: bool = False,
        waiting: Callable[[], str] | None = None,
    ) -> Result:
        """Waits for the result of work that was begun; the arguments are those of `call`."""
        try:
            return future.result(timeout)
        except FutureTimeoutError:
            if future.done():
                raise  # the work itself has raised it
            if give_up:
                future.cancel()
            why = waiting() if waiting is not None else ""
            raise TimeoutError(f"not done within {timeout:g} s{why and f': {why}. It goes on by itself'}") from None
        except BaseException:
            if give_up:
                future.cancel()
            raise

    def do(self, work: Callable[[], Result]) -> Result:
        """Calls a plain function in the loop's thread, and returns its result."""

        async def run() -> Result:
            return work()

        return self.call(run)

    def stop(self) -> None:
        """Ends this use of the thread; the last use ends the thread. Idempotent."""
        if not self.alive:
            return
        self._stopped = True
        with _lock:
            is_last = self._thread.leave()
            if is_last and self._share is not None:
                del _shared[self._share]
        if is_last:
            self._thread.stop()


async def _until(gathered: Any) -> None:
    await gathered


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
