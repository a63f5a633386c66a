"""The Spark program as processes: the driver, its JVM and the workers of Python, found, killed and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from integration.broker_process import clean_environment
from spark_kills.driver import OURS, is_mishap

DRIVER: Final = Path(__file__).with_name("driver.py")
WORKER: Final = b"-m\0pyspark.daemon\0pyspark.worker\0"
"""In the command line of the daemon whose children run tasks; they keep it."""
END_SECONDS: Final = 30.0
"""A driver has so long to end, its JVM gone or told to stop."""
LIMIT: Final = 1 << 20
SAID: Final = "is over: "
"""In what the driver says when a query has failed."""
LAST_WORDS: Final = 4000
"""Characters of its log in which a driver says why it ends."""

Report = Mapping[str, Any]


class ProgramError(Exception):
    """The program failed though nobody killed it."""


class Program:
    """A driver that is started again whenever it ends, as a supervisor would.

    On a busy machine Spark gives up by itself now and then, when a process of its own is too slow to start: that, and
    nothing else, is noted in `mishaps`. Any other end that nobody caused sets `failure`, and is final.
    """

    def __init__(self, directory: Path, url: str, events: int, on_report: Callable[[Report], None]) -> None:
        """`events`: in a batch at most."""
        self.starts = 0
        self.mishaps: list[str] = []
        self.failure: ProgramError | None = None
        self._arguments = [str(DRIVER), url, str(directory), str(events)]
        self._log = directory / "driver.log"
        self._on_report = on_report
        self._log_begin = 0
        """Where this start's part of the log begins."""
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_awaited = False
        """Whether it is right that it ends."""

    async def start(self) -> None:
        """Starts it, in a session of its own: by that its processes are found."""
        self.starts += 1
        self._is_awaited = False
        # Spark starts many Pythons, and gives up when one takes ten seconds: none compiles what another one has.
        environment = {"PYTHONPYCACHEPREFIX": str(self._log.with_name("bytecode")), **clean_environment()}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self._log.open("ab") as log:
            self._log_begin = log.tell()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._arguments,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=LIMIT,
            )
        self._reading = asyncio.create_task(self._read(self._process))

    async def kill_jvm(self) -> bool:
        """SIGKILL to the JVM; the driver ends by that, and is started again. Returns False if there is none yet."""
        victims = self._jvms()
        if not victims:
            return False
        self._is_awaited = True
        _kill(victims[0])
        await self._end()
        await self.start()
        return True

    def kill_worker(self, choose: Callable[[list[int]], int]) -> bool:
        """SIGKILL to a process in which an executor runs tasks, one at work if there is. Returns False without any."""
        victims = self._workers()
        if not victims:
            return False
        _kill(choose([pid for pid in victims if _stat(pid)[:1] == [b"R"]] or victims))
        return True

    async def stop(self) -> None:
        """Ends it in order."""
        process = self._process
        if process is not None and process.returncode is None:
            self._is_awaited = True
            assert process.stdin is not None
            process.stdin.close()
            await self._end()

    async def abandon(self) -> None:
        """Leaves nothing of it behind."""
        self._is_awaited = True
        if self._process is not None:
            await self._bury(self._process)

    # Its processes.

    def _jvms(self) -> list[int]:
        return [pid for pid in self._pids() if _read(pid, "comm") == b"java\n"]

    def _workers(self) -> list[int]:
        daemons = {pid for pid in self._pids() if WORKER in _read(pid, "cmdline")}
        return sorted(pid for pid in daemons if _parent(pid) in daemons)

    def _pids(self) -> Iterator[int]:
        """Of all processes of its session, also of those whose parents are gone."""
        if self._process is not None:
            everybody = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
            yield from (pid for pid in everybody if _session(pid) == self._process.pid)

    async def _end(self) -> None:
        """Waits until the driver is gone. Orphans of the JVM may live on for a moment, as in reality."""
        assert self._process is not None
        assert self._reading is not None
        done, _ = await asyncio.wait([self._reading], timeout=END_SECONDS)
        if not done:
            await self._bury(self._process)
            raise ProgramError(f"the driver did not end:\n{self._last_words()}")

    async def _bury(self, process: Process) -> None:
        for pid in self._pids():
            _kill(pid)
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def _read(self, process: Process) -> None:
        """Passes on what it says, until it ends."""
        assert process.stdout is not None
        while line := await process.stdout.readline():
            with contextlib.suppress(ValueError):  # Spark says something on it, too
                said = json.loads(line)
                if isinstance(said, dict):
                    self._take(said)
        await process.wait()
        if self._is_awaited:
            return
        log = self._log_of_start()
        if may_start_again(log):
            self.mishaps.append(why_it_ended(log))
            await self.start()
        else:
            self.failure = ProgramError(f"the driver ended:\n{self._last_words()}")

    def _take(self, said: Report) -> None:
        if "mishap" in said:
            self.mishaps.append(said["mishap"])
        else:
            self._on_report(said)

    def _log_of_start(self) -> str:
        return self._log.read_bytes()[self._log_begin :].decode("utf-8", "replace")

    def _last_words(self) -> str:
        return self._log_of_start()[-LAST_WORDS:]


def may_start_again(log: str) -> bool:
    """Whether a driver with this log ended by a mishap of Spark's, and gapless has complained of nothing all along."""
    _, said, why = log.rpartition(SAID)
    return OURS not in log and is_mishap(why if said else log[-LAST_WORDS:])


def why_it_ended(log: str) -> str:
    """The line in which a driver says why it ends, or its last words."""
    return next((line for line in reversed(log.splitlines()) if SAID in line), log[-200:])


class Pace:
    """Whether anything moves."""

    def __init__(self, idle_max: float) -> None:
        """`idle_max`: seconds without any movement after which nothing will come any more."""
        self._idle_max = idle_max
        self._moved_at = monotonic()
        self._heard = asyncio.Event()

    def moved(self) -> None:
        """Something has."""
        self._moved_at = monotonic()
        self._heard.set()

    async def until(self, holds: Callable[[], bool]) -> bool:
        """Waits until something is so. Returns False when nothing has moved for too long."""
        while not holds():
            left = self._moved_at + self._idle_max - monotonic()
            if left <= 0:
                return False
            self._heard.clear()
            heard = asyncio.ensure_future(self._heard.wait())
            await asyncio.wait([heard], timeout=min(left, 1.0))
            heard.cancel()
        return True


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has just ended
        return b""


def _stat(pid: int) -> list[bytes]:
    """Its fields from the state on: the second one is the parent, the fourth the session."""
    return _read(pid, "stat").rpartition(b") ")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _session(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[3]) if fields else 0
