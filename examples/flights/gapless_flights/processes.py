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
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
        worker.start().add_done_callback(self._on_ended)

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
            await asyncio.wait([task, self._failure], return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                self._failure.result()
            return task.result()
        finally:
            task.cancel()

    def _on_ended(self, keeping: asyncio.Task[None]) -> None:
        error = None if keeping.cancelled() else keeping.exception()
        if error is not None and not self._failure.done():
            self._failure.set_exception(error)
            self._failure.exception()  # marks it as seen: nobody may watch any more
