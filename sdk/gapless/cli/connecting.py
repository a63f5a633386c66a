"""A connection for one command, with a bound on how long a broker may stay silent."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from gapless.cli.output import one_line
from gapless.errors import ConfigurationError, ConnectionClosedError, ConnectionRefusedByBrokerError, GaplessError

if TYPE_CHECKING:
    from types import FrameType

    from gapless import BrokerStatus, Connection, Password
    from gapless.client.credentials import CredentialSource

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


def credentials_of(url: str, user: str) -> Password | None:
    """The user's password, which is asked for where nothing says in which file it is; None if the address says it all.

    Raises ConfigurationError.
    """
    from gapless.client.addresses import Remote, parse
    from gapless.client.credentials import PASSWORD_FILE, Password

    target = parse(url)
    login = target.login if isinstance(target, Remote) else None
    if login is not None and user and user != login.user:
        raise ConfigurationError(f"--user says {user!r}, and the address says something else; leave one of them out")
    name = user or ("" if login is None else login.user)
    file = os.environ.get(PASSWORD_FILE, "")
    if not name or (login is not None and (login.password_file or file)):
        return None
    return Password.from_file(name, file) if file else Password(name, _asked_password(name))


def address_for_workers(url: str, user: str) -> str:
    """The address with the user in it, for other processes: they are told no password, but the file that it is in.

    Raises ConfigurationError.
    """
    from gapless.client.addresses import Login, with_login
    from gapless.client.credentials import PASSWORD_FILE

    if not user:
        return url
    file = os.environ.get(PASSWORD_FILE, "")
    if not file:
        raise ConfigurationError(
            f"the processes that work for this command read the password of {user!r} from a file: name it in"
            f" {PASSWORD_FILE}, or in the address, gapless+tls://USER@HOST?password_file=FILE"
        )
    return with_login(url, Login(user, file))


def _asked_password(user: str) -> str:
    """What somebody types who is asked for a password, and does not see it. Raises ConfigurationError."""
    from getpass import GetPassWarning, getpass

    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)
        try:
            return getpass(f"Password of {one_line(user)}: ")
        except (GetPassWarning, EOFError):
            pass
    raise ConfigurationError(
        f"nobody is there to be asked for the password of {user!r}: put it into a file, and its name into"
        " GAPLESS_PASSWORD_FILE, or into the address: gapless+tls://USER@HOST?password_file=FILE"
    )


@asynccontextmanager
async def connected(
    url: str, client_id: str, wait: float, credentials: CredentialSource | None
) -> AsyncIterator[Connection]:
    """A connection that is open. Raises ConnectionClosedError when no broker answers within `wait` seconds."""
    import gapless

    connecting = gapless.connect(url, client_id=client_id, credentials=credentials)
    try:
        connection = await within(wait, connecting, f"{NO_ANSWER} {wait:g} seconds", lambda: connecting.delayed)
    except ConnectionRefusedByBrokerError:
        raise
    except ConnectionClosedError as error:
        nobody = any(sign in str(error) for sign in NOBODY_THERE)
        advice = ". `gapless broker` starts a broker; --url or GAPLESS_URL says where one is" if nobody else ""
        raise ConnectionClosedError(f"cannot connect to {url}: {error}{advice}") from error
    async with connection:
        yield connection


async def within(
    seconds: float, waiting: Awaitable[Result], otherwise: str, longer: Callable[[], float] = lambda: 0.0
) -> Result:
    """What is waited for. Raises ConnectionClosedError(otherwise) when it takes longer than that.

    `longer`: how many seconds more it has turned out to need since.
    """
    task = asyncio.ensure_future(waiting)
    until = time.monotonic() + seconds
    try:
        while not task.done() and (left := until + longer() - time.monotonic()) > 0:
            await asyncio.wait([task], timeout=left)
        if task.done():
            return task.result()
    finally:
        task.cancel()
    raise ConnectionClosedError(otherwise)


async def statuses(connection: Connection, names: Sequence[str]) -> dict[str, BrokerStatus | GaplessError]:
    """What each of these nodes says of itself, or why it does not: all are asked at once.

    So it takes no longer than the one that does not answer.
    """
    found = await asyncio.gather(*map(connection.status, names), return_exceptions=True)
    told: dict[str, BrokerStatus | GaplessError] = {}
    for name, status in zip(names, found, strict=True):
        if isinstance(status, BaseException) and not isinstance(status, GaplessError):
            raise status
        told[name] = status
    return told
