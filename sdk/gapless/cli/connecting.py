"""A connection for one command, with a bound on how long a broker may stay silent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from gapless.errors import ConnectionClosedError, ConnectionRefusedByBrokerError

if TYPE_CHECKING:
    from types import FrameType

    from gapless import Connection

Result = TypeVar("Result")
INTERRUPTED: Final = 130
"""What shells report for a program that Ctrl-C ended."""
NO_ANSWER: Final = "no answer for"
NOBODY_THERE: Final = (NO_ANSWER, os.strerror(errno.ECONNREFUSED), "Name or service not known")
"""Of what is said of addresses where there is no broker; whoever has found one, and was refused, needs other advice."""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end, on uvloop where that is installed.

    A Ctrl-C that comes later, while the loop is being closed, ends the process at once.
    """
    before = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()

    async def main_and_then_no_more_interrupts() -> Result:
        try:
            return await main
        finally:
            if in_main_thread:
                signal.signal(signal.SIGINT, _end_at_once)

    try:
        try:
            import uvloop
        except ImportError:
            return asyncio.run(main_and_then_no_more_interrupts())
        return uvloop.run(main_and_then_no_more_interrupts())
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


def _end_at_once(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the process; a KeyboardInterrupt in the midst of closing a loop would make its threads print tracebacks."""
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(INTERRUPTED)


@asynccontextmanager
async def connected(url: str, client_id: str, wait: float) -> AsyncIterator[Connection]:
    """A connection that is open. Raises ConnectionClosedError when no broker answers within `wait` seconds."""
    import gapless

    connecting = gapless.connect(url, client_id=client_id)
    try:
        connection = await within(wait, connecting, f"{NO_ANSWER} {wait:g} seconds")
    except ConnectionRefusedByBrokerError:
        raise
    except ConnectionClosedError as error:
        nobody = any(sign in str(error) for sign in NOBODY_THERE)
        advice = ". `gapless broker` starts a broker; --url or GAPLESS_URL says where one is" if nobody else ""
        raise ConnectionClosedError(f"cannot connect to {url}: {error}{advice}") from error
    async with connection:
        yield connection


async def within(seconds: float, waiting: Awaitable[Result], otherwise: str) -> Result:
    """What is waited for. Raises ConnectionClosedError(otherwise) when it takes longer than that."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait([task], timeout=seconds)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise ConnectionClosedError(otherwise)
