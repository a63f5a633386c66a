"""A thread with an event loop, and calls into it from other threads.

The one rule of the blocking facade is here. A caller leaves a call by an exception: its time is over, or a signal
handler has raised, as Ctrl-C does. Then nobody has the outcome of the call. So the work is cancelled, as a task of
asyncio is; and what it had done by then goes back to where it came from, or is told later (`Call`).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from itertools import count
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakSet

from gapless import loggers
from gapless.client.driver import FORKED
from gapless.errors import ConnectionClosedError, GaplessError

Result = TypeVar("Result")
Below = TypeVar("Below")
Back: TypeAlias = "Callable[[asyncio.Future[Any]], object]"
"""Is given a done future, with the result or the error that nobody has."""

STOP_TIMEOUT = 5.0
"""How many seconds a loop may take to end before its thread is left alone."""

loggers.logger("asyncio")  # what an event loop of ours has to say, of a task that has failed, say
_numbers = count(1)
_lock = threading.Lock()
_threads: WeakSet[LoopThread] = WeakSet()
_shared: dict[Path, LoopThread] = {}
"""The shared threads by the directory of an embedded broker, because such a broker lives on one loop."""


class LoopThread:
    """One loop in one thread, shared by all runners that use it. It ends with the last of them."""

    def __init__(self) -> None:
        loggers.start_handing_over()
        self.loop = _new_loop()
        self.is_here = True
        """Whether it runs in this process: a forked child has a copy of this object, but not the thread."""
        self.left: set[Call[Any]] = set()
        """Those whose callers have gone, until what they had done has gone back."""
        self.cancelled: set[asyncio.Future[Any]] = set()
        """What is being cancelled, because its caller has gone."""
        self.calls: set[Call[Any]] = set()
        """Those that have no outcome yet."""
        self._users = 0
        self._thread = threading.Thread(target=self._run, name=f"gapless-{next(_numbers)}", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # a signal handler raised in here, and the thread may run or be about to
            self.loop.call_soon_threadsafe(self.loop.stop)
            raise
        _threads.add(self)

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
            for call in list(self.calls):  # those that came while it ended: it never began them
                call.drop()

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        gathered: Any = asyncio.gather(*tasks, return_exceptions=True)
        self.loop.run_until_complete(_until(gathered))
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())


def _forget_the_parent() -> None:
    """This is a forked child: none of the threads is here, and one of them may have held the lock."""
    global _lock  # noqa: PLW0603 - the parent's may be locked for ever
    _lock = threading.Lock()
    _shared.clear()
    for thread in list(_threads):
        thread.is_here = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parent)


class Call(Generic[Result]):
    """A call into the loop's thread, and the caller that waits in another thread for its outcome.

    Whoever leaves it without the outcome calls `leave`: then the work is cancelled. If the work was done by then,
    `back` is called with it in the loop's thread. All this happens before any later call of that caller begins.

    A signal handler may raise between any two of the caller's instructions. So the caller waits for a plain lock, which
    it shares with nobody; a Condition that is interrupted may keep its own lock for ever.
    """

    def __init__(self, thread: LoopThread, work: Callable[[], Awaitable[Result]], back: Back | None) -> None:
        """`work` is called in the loop's thread; what it returns is waited for there. See `start`."""
        self.is_done = False
        """Whether there is an outcome."""
        self.error: BaseException | None = None
        """The error that is the outcome."""
        self.on_done: Callable[[], object] = _nothing
        """Called in the loop's thread, when there is an outcome."""
        self._thread = thread
        self._work = work
        self._back = back
        self._task: asyncio.Future[Result] | None = None
        self._has_left = False
        self._done = threading.Lock()
        self._done.acquire()

    def start(self) -> None:
        """Begins the work, whatever happens to the caller. Raises ConnectionClosedError if the loop has ended."""
        self._thread.calls.add(self)
        try:
            self._thread.loop.call_soon_threadsafe(self._begin)
        except RuntimeError as error:
            self._thread.calls.discard(self)
            raise ConnectionClosedError("the connection is closed") from error

    def wait(self, timeout: float | None) -> bool:
        """Waits for the outcome. Returns whether there is one; after `timeout` seconds there may be none."""
        return self.is_done or self._done.acquire(timeout=-1 if timeout is None else max(0, timeout))

    def result(self, timeout: float | None = None, waiting: Callable[[], str] | None = None) -> Result:
        """Waits for the outcome. Raises TimeoutError after `timeout` seconds; its text has what `waiting` returns."""
        if not self.wait(timeout):
            why = waiting() if waiting is not None else ""
            raise TimeoutError(f"not done within {timeout:g} s{why and f': {why}. It goes on by itself'}")
        if self.error is not None:
            raise self.error
        task = self._task
        assert task is not None
        return task.result()

    def leave(self) -> None:
        """The caller has gone without the outcome. It waits for nothing. Idempotent."""
        self._thread.left.add(self)
        try:
            self._thread.loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed: all is over
            self._thread.left.discard(self)

    def drop(self) -> None:
        """The loop has ended before the work had: the outcome is that."""
        self._tell(ConnectionClosedError("the connection was closed"))

    # In the loop's thread.

    def _begin(self) -> None:
        try:
            waited_for = self._work()
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._task = self._thread.loop.create_future()
            self._task.set_exception(error)
        else:
            cancelled = self._thread.cancelled
            if cancelled and asyncio.iscoroutine(waited_for):
                self._task = asyncio.ensure_future(_after(cancelled.copy(), waited_for))
                self._task.add_done_callback(lambda _: waited_for.close())  # it may never have been begun
            else:
                self._task = asyncio.ensure_future(waited_for)
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Future[Result]) -> None:
        if task.cancelled():
            self.drop()
        else:
            self._tell(task.exception())

    def _tell(self, error: BaseException | None) -> None:
        self.error = error
        self.is_done = True
        self._thread.calls.discard(self)
        self._done.release()
        self.on_done()

    def _end(self) -> None:
        task = self._task
        if task is None:  # it was interrupted before it could begin
            self._thread.left.discard(self)
        elif not self._has_left:
            self._has_left = True
            if not task.done():
                self._thread.cancelled.add(task)
                task.add_done_callback(self._thread.cancelled.discard)
                task.cancel()
            task.add_done_callback(self._give_back)

    def _give_back(self, task: asyncio.Future[Result]) -> None:
        self._thread.left.discard(self)
        if not task.cancelled() and self._back is not None:
            self._back(task)


def _nothing() -> None:
    """Nobody wants to be called."""


class Runner:
    """One connection's use of a thread with a loop. All methods may be called from any thread but that one."""

    def __init__(self, shared: Path | None = None) -> None:
        """`shared` None: a thread of its own; otherwise the thread of all runners with the same `shared`."""
        self._share = shared
        with _lock:
            thread = None if shared is None else _shared.get(shared)
            if thread is None:
                thread = LoopThread()
            if shared is not None:
                _shared[shared] = thread
            thread.enter()
        self._thread = thread
        self._stopped = False
        self.kept: list[GaplessError] = []
        """Errors whose callers had gone: closing the connection raises the first."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs in the thread."""
        return self._thread.loop

    @property
    def alive(self) -> bool:
        """Whether calls are possible: not after `stop`, and not in a forked child."""
        return not self._stopped and self._thread.is_here

    def prepare(self, work: Callable[[], Awaitable[Result]], back: Back | None = None) -> Call[Result]:
        """Returns a call that has not begun. Raises ConnectionClosedError if the loop's thread has ended."""
        if not self._thread.is_here:
            raise ConnectionClosedError(FORKED)
        if self._stopped:
            raise ConnectionClosedError("the connection is closed")
        if self._thread.is_current:
            raise RuntimeError("a blocking call in the loop's own thread would wait for itself")
        return Call(self._thread, work, back)

    def call(
        self,
        work: Callable[[], Awaitable[Result]],
        timeout: float | None = None,
        *,
        back: Back | None = None,
        waiting: Callable[[], str] | None = None,
    ) -> Result:
        """Runs some work in the loop's thread, and returns its result.

        Raises TimeoutError after `timeout` seconds; its text includes what `waiting` returns.

        This function returns or raises the outcome, or the work has no caller any more. Between its end and the return
        to the application nothing may be called: a signal handler would run there.
        """
        call = self.prepare(work, back)
        try:
            call.start()
            return call.result(timeout, waiting)
        except BaseException as error:
            if error is not call.error:
                try:
                    call.leave()
                except BaseException:  # one more interrupt
                    call.leave()
                    raise
            raise

    @property
    def left(self) -> Collection[Call[Any]]:
        """What has yet to go back, as its caller has gone. If it is not empty, `settle` comes before anything is read.

        It is always the same object, to be kept: it is looked at for each event.
        """
        return self._thread.left

    def settle(self) -> None:
        """Waits until everything has gone back whose caller has gone."""
        self.do(_nothing)

    def do(self, work: Callable[[], Result], *, back: Back | None = None) -> Result:
        """Calls a plain function in the loop's thread, and returns its result."""

        async def run() -> Result:
            return work()

        return self.call(run, back=back)

    def make(
        self,
        begin: Callable[[], Awaitable[Below]],
        facade: Callable[[Runner, Below], Result],
        end: Callable[[Below], object],
        timeout: float | None = None,
    ) -> Result:
        """Begins something in the loop's thread, and returns its facade; if the caller has gone, it is ended."""
        begun: list[Below] = []

        async def run() -> Result:
            begun.append(await begin())
            return facade(self, begun[0])

        return self.call(run, timeout, back=lambda _: [end(each) for each in begun])

    def keep(self, done: asyncio.Future[Any]) -> None:
        """A caller has gone before the end of something was told to it: closing the connection raises the error."""
        error = done.exception()
        if isinstance(error, GaplessError):
            self.kept.append(error)

    def tell_kept(self) -> None:
        """Raises the first error whose caller had gone, once."""
        kept, self.kept = self.kept, []
        if kept:
            raise kept[0]

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


async def _after(cancelled: Iterable[asyncio.Future[Any]], work: Coroutine[Any, Any, Result]) -> Result:
    """Does the work when what is being cancelled has ended."""
    await asyncio.wait(cancelled)
    return await work


async def _until(gathered: Any) -> None:
    await gathered


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
