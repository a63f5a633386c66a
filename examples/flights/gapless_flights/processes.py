"""Processes in a directory: killed when told to, and none is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from typing_extensions import Self

from gapless_flights.worker import Worker


class Processes:
    """Starts processes, kills whom it is told to, and sees to it that none is left behind.

    Use it as a context. Whatever fails by itself is raised by `watch`.
    """

    def __init__(self, directory: Path) -> None:
        """`directory`: where their logs go; it does not exist yet."""
        self._workers: dict[str, Worker] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._logs = directory / "logs"
        self._logs.mkdir(parents=True)

    async def __aenter__(self) -> Self:
        """Nothing runs yet."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Ends every process that is left."""
        await asyncio.gather(*(worker.abandon() for worker in self._workers.values()))

    @property
    def kills(self) -> dict[str, int]:
        """How often each process was killed."""
        return {name: worker.kills for name, worker in self._workers.items()}

    def start(self, name: str, command: Any, on_report: Any, *, may_fail_to_start: bool = False) -> None:
        """Starts one more process, and keeps it running as `Worker` says. Nobody else has its name."""
        log = self._logs / f"{name}.log"
        worker = self._workers[name] = Worker(name, command, on_report, log, may_fail_to_start=may_fail_to_start)
        self._tasks.append(worker.start())

    async def kill(self, name: str) -> bool:
        """Kills a process with SIGKILL; it is started again. Returns False if it had ended for good."""
        return await self._workers[name].kill()

    async def stop(self, name: str) -> None:
        """Ends a process in order."""
        await self._workers[name].stop()

    async def watch(self, waiting: Any) -> Any:
        """What is waited for. Raises WorkerFailedError as soon as a process fails by itself."""
        task = asyncio.ensure_future(waiting)
        try:
            while not task.done():
                tasks = [keeping for keeping in self._tasks if not keeping.done()]
                await asyncio.wait([task, *tasks], return_when=asyncio.FIRST_COMPLETED)
                for keeping in self._tasks:
                    if keeping.done() and not keeping.cancelled():
                        keeping.result()
            return task.result()
        finally:
            task.cancel()
