"""How a test of a suite runs: on a loop of its own, in bounded time, with a watchdog, leaving nothing behind."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from typing import Any, TypeVar

import pytest

Suite = TypeVar("Suite")
Result = TypeVar("Result")

WAIT_SECONDS_MAX = 5.0
"""What has not happened by then does not happen. Little here takes a thousandth of it: closing, and handshakes."""

TEST_SECONDS_MAX = 20.0
"""After this a test has failed. Each wait within it is bounded by itself, and says what it waited for."""
LEFT_SECONDS_MAX = 1.0
"""How long tasks and threads may take to end, once all links and listeners are closed."""

BREACHES: ContextVar[list[str]] = ContextVar("BREACHES")
"""What was noticed in the running test. Told before anything else: the rest often follows from it."""

PERIOD_SECONDS = 0.1
PERIODS_MAX = 5
"""So many periods without a turn of the loop are too many. A machine that is short of time delays the count as well."""


class LoopHarness:
    """What every suite has to be told whose tests are coroutines."""

    patience: float = 1.0
    """How many times as long all waiting takes here as elsewhere. More than 1 for what runs in a server of its own."""

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """The loop to run a test on."""
        return asyncio.new_event_loop()


Harness = TypeVar("Harness", bound=LoopHarness)


class LoopBlockedError(Exception):
    """Raised in the middle of what blocks the loop."""


class Watchdog:
    """A thread that notices when the loop stands still, says where, and frees it where the system lets it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, breaches: list[str]) -> None:
        """Says what it finds in `breaches`."""
        self._loop = loop
        self._breaches = breaches
        self._turned = False
        self._over = threading.Event()
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="gapless-watchdog", daemon=True)
        self._can_free = hasattr(signal, "pthread_kill") and threading.current_thread() is threading.main_thread()
        self._handler: Any = None

    def __enter__(self) -> None:
        if self._can_free:
            self._handler = signal.signal(signal.SIGUSR1, _free)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._can_free:
            signal.signal(signal.SIGUSR1, self._handler)

    def _watch(self) -> None:
        missed = 0
        self._ask()
        while not self._over.wait(PERIOD_SECONDS):
            missed = 0 if self._turned else missed + 1
            if self._turned:
                self._ask()
            if missed == PERIODS_MAX:
                seconds = PERIODS_MAX * PERIOD_SECONDS
                self._breaches.insert(0, f"the event loop stood still for {seconds:g} s, {self._where()}")
                if self._can_free:
                    signal.pthread_kill(self._watched, signal.SIGUSR1)
                    missed = 0

    def _ask(self) -> None:
        self._turned = False
        self._loop.call_soon_threadsafe(self._turn)

    def _turn(self) -> None:
        self._turned = True

    def _where(self) -> str:
        """The innermost calls."""
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 — there is no public way to another thread's
        calls: list[str] = []
        while frame is not None and len(calls) < 3:
            code = frame.f_code
            calls.append(f"{code.co_name} ({code.co_filename}:{frame.f_lineno})")
            frame = frame.f_back
        return "in " + ", called by ".join(calls)


def _free(_: int, __: object) -> None:
    raise LoopBlockedError("the watchdog ended a call that blocked the loop")


def bounded(
    test: Callable[[Suite, Harness], Coroutine[Any, Any, None]],
) -> Callable[[Suite, Harness], None]:
    """Makes a plain test of a coroutine: on the harness's loop, in bounded time.

    Whatever the loop reports meanwhile (a callback that raised, a task whose error nobody saw) fails it; so do
    a loop that stands still, a call that comes when it must not, and a task or a thread that is left behind.
    """

    @functools.wraps(test)
    def run(self: Suite, harness: Harness) -> None:
        reports: list[dict[str, Any]] = []
        breaches: list[str] = []
        threads = set(threading.enumerate())
        token = BREACHES.set(breaches)
        loop = harness.new_loop()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        try:
            with Watchdog(loop, breaches):
                loop.run_until_complete(_within(test(self, harness), TEST_SECONDS_MAX * harness.patience))
                loop.run_until_complete(_nothing_is_left())
        except (Exception, pytest.fail.Exception) as error:
            if breaches:
                raise AssertionError(_text(breaches)) from error
            raise
        finally:
            BREACHES.reset(token)
            loop.run_until_complete(_end_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
        assert not breaches, _text(breaches)
        assert reports == []
        _no_thread_is_left(threads)

    return run


def _text(breaches: list[str]) -> str:
    """Each once, the first few."""
    return "; ".join(list(dict.fromkeys(breaches))[:3])


async def within(work: Awaitable[Result], what: str) -> Result:
    """The result of `work`; fails, saying `what` did not happen, when there is none in time."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=WAIT_SECONDS_MAX)
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_SECONDS_MAX)
        raise AssertionError(f"{what} within {WAIT_SECONDS_MAX:g} s")
    return task.result()


async def settle() -> None:
    """Gives what must not happen the time to happen: many turns of the loop."""
    for _ in range(6):
        await asyncio.sleep(0.001)


async def _within(work: Awaitable[None], seconds: float) -> None:
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        where = "".join(str(frame) for frame in task.get_stack())
        task.cancel()
        await asyncio.wait({task}, timeout=WAIT_SECONDS_MAX)
        raise AssertionError(f"still waiting after {seconds:g} s: {where}")
    task.result()


async def _nothing_is_left() -> None:
    """Fails when a task goes on although all that the test made is closed."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=LEFT_SECONDS_MAX)
    names = sorted({getattr(task.get_coro(), "__qualname__", str(task)) for task in left})
    assert not left, f"{len(left)} tasks go on although all that the test made is closed: {', '.join(names)}"


def _no_thread_is_left(before: set[threading.Thread]) -> None:
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(LEFT_SECONDS_MAX)
    names = sorted(thread.name for thread in left if thread.is_alive())
    assert not names, f"{len(names)} threads go on although all that the test made is closed: {', '.join(names)}"


async def _end_all() -> None:
    """Ends what a failed test has left running."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LEFT_SECONDS_MAX)
