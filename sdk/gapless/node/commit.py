"""Group commit on the event loop: writes inline, syncs in threads of their own, completions in order.

    step ──▶ stage, write() ──▶ cookies wait ──▶ sync() in a thread ──▶ on_durable(cookies)

The threads take work from a queue and answer through the loop. An executor would do, for 40 µs of CPU
and latency more per sync (measured, on the loop's thread).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from gapless.node.groups import SYNCS_MAX, Group, Groups

if TYPE_CHECKING:
    from gapless.core.ports import Operation
    from gapless.node.machine import Cookie
    from gapless.spi import LogVolume


class GroupCommit:
    """Makes a volume's writes durable, in groups.

    `on_durable` gets the cookies of everything that has become durable, in the order of the commits.
    `on_failed` gets the error of a failed sync, once; from then on nothing is released any more. Both are
    called on the loop, never from within `commit`.
    """

    def __init__(
        self,
        volume: LogVolume,
        on_durable: Callable[[list[Cookie]], None],
        on_failed: Callable[[BaseException], None],
        *,
        syncs_max: int = SYNCS_MAX,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._volume = volume
        self._groups = Groups(volume, syncs_max=syncs_max)
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._idle: asyncio.Future[None] | None = None
        # What is kept in memory is as durable at once as it will ever be: a thread would only cost time.
        self._threads = SyncThreads(volume, self._loop, syncs_max) if volume.capabilities.durable else None

    # Getters.

    @property
    def busy(self) -> bool:
        """Whether a sync runs or is due."""
        return self._groups.busy

    # Commands.

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes the operations as one atomic batch, and sees to it that they become durable.

        Operations without a cookie wait for the next sync. Raises what the volume's `write` raises; then
        nothing more may be committed.
        """
        self._groups.commit(operations, cookies)
        self._start()

    async def idle(self) -> None:
        """Waits until no sync runs and none is due."""
        while self.busy:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def fail(self) -> None:
        """Nothing is released any more, whatever the syncs that still run say."""
        self._groups.failed = True

    def close(self) -> None:
        """Lets the threads go; a sync that still runs ends, and nobody hears of it."""
        self._groups.failed = True
        if self._threads is not None:
            self._threads.close()

    # How it is done.

    def _start(self) -> None:
        group = self._groups.next()
        if group is None:
            return
        if self._threads is not None:
            self._threads.sync(group, self._on_synced)
        else:
            self._loop.call_soon(self._on_synced, group, sync(self._volume))

    def _on_synced(self, group: Group, error: BaseException | None) -> None:
        failed_before = self._groups.failed
        durable = self._groups.on_synced(group, error)
        self._start()
        if durable:
            self._on_durable(durable)
        self._wake()
        if error is not None and not failed_before:
            self._on_failed(error)

    def _wake(self) -> None:
        if self._idle is not None and not self.busy:
            self._idle.set_result(None)
            self._idle = None


class SyncThreads:
    """Threads that do nothing but `volume.sync()`."""

    def __init__(self, volume: LogVolume, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self._volume = volume
        self._loop = loop
        self._queue: SimpleQueue[tuple[Group, Answer] | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, name=f"gapless-sync-{number}") for number in range(count)]
        for thread in self._threads:
            thread.daemon = True  # a stalled disk must not keep the process from ending
            thread.start()

    def sync(self, group: Group, answer: Answer) -> None:
        """Syncs; then calls `answer(group, error)` on the loop."""
        self._queue.put((group, answer))

    def close(self) -> None:
        """Ends the threads once they have done what was asked."""
        for _ in self._threads:
            self._queue.put(None)

    def _run(self) -> None:
        while (task := self._queue.get()) is not None:
            group, answer = task
            error = sync(self._volume)
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                self._loop.call_soon_threadsafe(answer, group, error)


Answer = Callable[[Group, "BaseException | None"], None]


def sync(volume: LogVolume) -> BaseException | None:
    """Syncs, and returns what went wrong: an error in a thread must reach the loop, whatever it is."""
    try:
        volume.sync()
    except BaseException as error:  # noqa: BLE001 - it is handed on, not swallowed
        return error
    return None
