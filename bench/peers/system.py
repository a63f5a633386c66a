"""What a system is to the race. To add one: a module under `systems`, and a line in its `__init__`.

The server runs in processes of its own; `publisher` and `receive` run in client processes, one that
publishes and two that receive, the same for all. Both are asynchronous (uvloop, as gapless has it by
default); a client that blocks does so in threads of its own. Libraries are imported inside functions,
so that a system that is not installed disturbs nobody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal, Protocol

from bench.peers.work import Event, Subscriber, Tally
from gapless_testing.jars import Jars, JarsUnavailableError, print_progress
from gapless_testing.ports import free_ports

WINDOW = 16_384
"""How many events a publisher may have unacknowledged: of gapless's batches of 256 that are the 64 it may have."""

START_SECONDS = 60


Acknowledged = Literal["on the disk", "page cache"]


class RaceError(Exception):
    """A system did not do what was asked of it; the race says so and goes on."""


@dataclass(frozen=True)
class Server:
    """A running server: where its clients find it, and the first process of each of its parts."""

    address: str
    pids: tuple[int, ...]


class Publisher(Protocol):
    """An open publisher."""

    async def publish(self, events: Sequence[Event]) -> None:
        """Publishes in this order, with at most WINDOW unacknowledged; returns when all are acknowledged."""


class System(Protocol):
    """One that runs in the race."""

    title: str
    """What it is called, with its client."""
    filters: Literal["server", "client"]
    """Where events that a subscriber does not want are dropped."""
    portions: Mapping[str, float]
    """How much of the events it is given in which work: all, but where the race would take too long with it."""
    under_way: int
    """How many events a publisher has unacknowledged at the most."""
    acknowledged: Acknowledged
    """Where an event is when it has acknowledged it."""
    promise: str
    """The same in a sentence or two: what holds then."""

    def missing(self) -> str:
        """Why it cannot run here, and what would help; nothing where it can. May fetch what it needs."""

    def version(self) -> str:
        """Of the server, and of the client library."""

    def running(self, directory: Path) -> AbstractContextManager[Server]:
        """A server of its own on loopback, all its data in this directory; gone when the block ends."""

    def publisher(self, address: str, topic: str) -> AbstractAsyncContextManager[Publisher]:
        """Opens a publisher; makes the topic if it has to be made."""

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """A durable subscriber, made by its first visit, on a connection of its own, until `tally.done()`.

        Gives the tally what the subscriber wants and nothing else; calls `ready` as soon as whatever is
        published from then on will reach it. Its position is kept by the server: it acknowledges what it has
        taken, or records how far it is, each time or once a second (`Rhythm`), whichever costs less; and in
        the end.
        """


def missing_package(*names: str) -> str:
    """Which of these packages is not installed, as a system says it; nothing if all are."""
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            return f"{name} is not installed (dependency group `bench`)"
    return ""


def missing_jars(jars: Jars) -> str:
    """Why these cannot be had, as a system says it; nothing if they are there now."""
    try:
        jars.fetch(print_progress)
    except JarsUnavailableError as error:
        return str(error)
    return ""


# ------------------------------------------------------------------------------------ starting servers


def free_port() -> int:
    """A port of loopback on which nobody listens."""
    return free_ports(1)[0]


def answers(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def started(
    command: Sequence[str],
    directory: Path,
    is_ready: Callable[[], bool],
    environment: dict[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process from the time it is ready until the block ends; what it says goes to a file."""
    log = directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RaceError(f"{command[0]} did not start: {last_words(log)}")
            time.sleep(0.05)
        yield process
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and whatever it started: politely, then not."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_words(log: Path) -> str:
    """The end of what a process said."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return " / ".join(line.strip() for line in lines[-2:]) or "it said nothing"
