"""Group commit: one write per step, inline; syncs in threads of their own; completions in order.

    step ──▶ stage, write() ──▶ cookies wait ──▶ sync() in a thread ──▶ on_durable(cookies)

While a sync runs, the steps that follow are written and wait: the sync itself is the window in which a
group gathers, so load makes groups and an idle broker has no delay. Two syncs may run at a time, so that
the second one's log is on its way while the first one's fence is (reliability.md 4.6). A sync that ends
before an earlier one releases nothing: after a failure, what a later sync says cannot be trusted.

The threads take work from a queue and answer through the loop. An executor would do, for 40 µs of CPU
and latency more per sync (measured, on the loop's thread).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from gapless.core.effects import Chop, Delete, Operation, Put, Set

if TYPE_CHECKING:
    from gapless.node.machine import Cookie
    from gapless.spi import LogStream, LogVolume, Table

SYNCS_MAX = 2


class Group:
    """The cookies that one sync covers."""

    __slots__ = ("cookies", "synced")

    def __init__(self, cookies: list[Cookie]) -> None:
        self.cookies = cookies
        self.synced = False


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
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._streams: dict[str, LogStream] = {}
        self._tables: dict[str, Table] = {}
        self._cookies: list[Cookie] = []
        self._in_flight: deque[Group] = deque()
        self._syncs_max = syncs_max
        self._failed = False
        self._running = 0
        self._idle: asyncio.Future[None] | None = None
        # What is kept in memory is as durable at once as it will ever be: a thread would only cost time.
        self._threads = SyncThreads(volume, self._loop, syncs_max) if volume.capabilities.durable else None

    # Getters.

    @property
    def busy(self) -> bool:
        """Whether a sync runs or is due."""
        return self._running > 0 or (bool(self._cookies) and not self._failed)

    # Commands.

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        """Writes the operations as one atomic batch, and sees to it that they become durable.

        Operations without a cookie wait for the next sync. Raises what the volume's `write` raises; then
        nothing more may be committed.
        """
        assert not self._failed
        if operations:
            try:
                self._stage(operations)
                self._volume.write()
            except BaseException:
                self._failed = True
                raise
        self._cookies += cookies
        self._start()

    async def idle(self) -> None:
        """Waits until no sync runs and none is due."""
        while self.busy:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def fail(self) -> None:
        """Nothing is released any more, whatever the syncs that still run say."""
        self._failed = True

    def close(self) -> None:
        """Lets the threads go; a sync that still runs ends, and nobody hears of it."""
        self._failed = True
        if self._threads is not None:
            self._threads.close()

    # How it is done.

    def _stage(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            kind = type(operation)
            if kind is Put:
                self._stream(operation.stream).put(operation.index, operation.record)  # type: ignore[union-attr]
            elif kind is Set:
                self._table(operation.table).put(operation.key, operation.value)  # type: ignore[union-attr]
            elif kind is Delete:
                self._table(operation.table).delete(operation.key)  # type: ignore[union-attr]
            else:
                assert kind is Chop
                self._stream(operation.stream).chop(operation.upto)  # type: ignore[union-attr]

    def _stream(self, name: str) -> LogStream:
        stream = self._streams.get(name)
        if stream is None:
            stream = self._streams[name] = self._volume.stream(name)
        return stream

    def _table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._volume.table(name)
        return table

    def _start(self) -> None:
        if not self._cookies or self._running >= self._syncs_max:
            return
        group = Group(self._cookies)
        self._cookies = []
        self._in_flight.append(group)
        self._running += 1
        if self._threads is not None:
            self._threads.sync(group, self._on_synced)
        else:
            self._loop.call_soon(self._on_synced, group, sync(self._volume))

    def _on_synced(self, group: Group, error: BaseException | None) -> None:
        self._running -= 1
        if self._failed:
            self._wake()
            return
        if error is not None:
            self._failed = True
            self._wake()
            self._on_failed(error)
            return
        group.synced = True
        self._start()
        durable: list[Cookie] = []
        while self._in_flight and self._in_flight[0].synced:
            durable += self._in_flight.popleft().cookies
        if durable:
            self._on_durable(durable)
        self._wake()

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
