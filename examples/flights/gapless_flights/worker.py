"""One process of the demo: started, heard, killed, and started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from gapless.errors import GaplessError

END_TIMEOUT: Final = 20.0
"""Seconds that a process has for an orderly end."""
LINE_BYTES_MAX: Final = 1 << 20
STARTS_MAX: Final = 5
"""So many starts in a row may fail of a worker that may."""
PAUSE: Final = 0.5
"""Seconds between a failed start and the next one."""
TAIL_LINES: Final = 12


def environment() -> dict[str, str]:
    """Our own without the settings of a broker: the demo's has a configuration of its own."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GAPLESS_")}


class WorkerFailedError(GaplessError):
    """A process of the demo ended although nobody had killed it."""


class Worker:
    """Keeps a process running: who is killed is started again, until it ends by itself or is stopped.

    `on_report` hears each line of JSON that the process prints. What it says on its standard error output
    is kept in `log`. The end of its standard input tells it to end in order. It has a session of its own: a
    Ctrl-C of the terminal is not for it.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        on_report: Callable[[dict[str, Any]], None],
        log: Path,
        *,
        may_fail_to_start: bool = False,
    ) -> None:
        self.name = name
        self.kills = 0
        self._command = command
        self._on_report = on_report
        self._log = log
        self._starts_left = STARTS_MAX if may_fail_to_start else 1
        self._may_fail = may_fail_to_start
        self._process: Process | None = None
        self._running = asyncio.Event()
        self._killed = False
        self._stopping = False
        self._keeping: asyncio.Task[None] | None = None

    # Commands.

    def start(self) -> asyncio.Task[None]:
        """Starts the process. The task ends when it has ended well; it raises WorkerFailedError otherwise."""
        self._keeping = asyncio.create_task(self._keep(), name=self.name)
        return self._keeping

    async def kill(self) -> bool:
        """SIGKILL, whatever the process is doing. Returns False if it has ended already, for good."""
        assert self._keeping is not None
        running = asyncio.ensure_future(self._running.wait())
        await asyncio.wait([running, self._keeping], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        if self._process is None or self._keeping.done():
            return False
        self._killed = True
        self._running.clear()
        self.kills += 1
        self._send(signal.SIGKILL)
        return True

    async def stop(self) -> None:
        """Asks the process to end, and waits for that. Raises WorkerFailedError if it does not end well."""
        self._stopping = True
        self._close_stdin()
        if self._keeping is not None:
            await asyncio.wait([self._keeping], timeout=END_TIMEOUT)
            if not self._keeping.done():
                raise WorkerFailedError(f"{self.name} does not end, {END_TIMEOUT:g} seconds after it was told to")
            await self._keeping

    async def abandon(self) -> None:
        """Ends the process at once, wherever it is, and waits until it is gone. Never raises."""
        self._stopping = True
        self._send(signal.SIGKILL)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._process is not None:
            self._send(signal.SIGKILL)
            await self._process.wait()

    # How it is done.

    async def _keep(self) -> None:
        while True:
            self._killed = False
            status = await self._live()
            if self._killed:
                continue
            if status == 0:
                return
            self._starts_left -= 1
            if self._stopping or not self._starts_left:
                raise WorkerFailedError(f"{self.name} ended with status {status}:\n{self._tail()}")
            await asyncio.sleep(PAUSE)

    async def _live(self) -> int:
        """One life of the process; returns its exit status."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=environment(),
                limit=LINE_BYTES_MAX,
                start_new_session=True,
            )
        self._running.set()
        if self._stopping:  # told so while the process was being started
            self._close_stdin()
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self._hear(line)
        status = await self._process.wait()
        self._running.clear()
        return status

    def _hear(self, line: bytes) -> None:
        if not line.endswith(b"\n"):  # killed in the middle of it
            return
        if self._may_fail:
            self._starts_left = STARTS_MAX
        self._on_report(json.loads(line))

    def _close_stdin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _tail(self) -> str:
        lines = self._log.read_text("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:]) or "(it said nothing)"
