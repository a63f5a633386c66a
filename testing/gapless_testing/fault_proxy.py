"""A TCP proxy that does to connections what networks, and machines in between, do to them.

It knows nothing of gapless. What it is told holds for all its connections, those that are there and those to come: it
cuts and refuses them; and in each direction it stalls, slows down, swallows or changes what passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import Self

BUFFER: Final = 32 << 10
"""Bytes of a direction that a proxy and its sockets may hold: what waits is to wait at the sender, who counts it."""
LATE_MAX: Final = 0.1
"""Seconds that a slow direction may make good: a busy machine wakes the proxy late."""
PAUSE: Final = 0.005
"""Seconds between two pieces of what came in one."""


class Passing(NamedTuple):
    """What passes in the place of what came."""

    pieces: Sequence[bytes]
    is_end: bool = False
    """Whether nothing passes any more, and the connection ends."""


Filter: TypeAlias = Callable[[bytes], Passing]
"""Says of one direction of one connection what passes; it is called with all that comes, in order."""


@dataclass(eq=False)
class Direction:
    """One direction of all connections of a proxy."""

    rate: float | None = None
    """Bytes a second that pass; None: as many as come."""
    swallows: bool = False
    """Whether what comes is read and lost."""
    passed: int = 0
    """Bytes that have come through so far, those that were swallowed too."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear: nothing passes, but nothing breaks."""

    def __post_init__(self) -> None:
        self.is_open.set()

    def heal(self) -> None:
        """From now on it passes on what comes, at any rate."""
        self.rate, self.swallows = None, False
        self.is_open.set()

    @property
    def portion(self) -> int:
        """So much is read at a time that a slow direction moves twenty times a second."""
        return BUFFER if self.rate is None else max(1024, min(BUFFER, int(self.rate / 20)))


class FaultProxy:
    """Passes on what comes to its address, until it is told to do worse."""

    def __init__(self, target: str = "", filter_of: Callable[[Direction], Filter] | None = None) -> None:
        """`target`: `HOST:PORT`. `filter_of`: makes the filter of one direction of a new connection."""
        self.target = target
        """Where connections are passed on to; "": nobody gets through."""
        self.refuses = False
        """Whether nobody gets through."""
        self.inward, self.outward = Direction(), Direction()
        """To the target, and back from it."""
        self.connections = 0
        """How often somebody has connected."""
        self._filter_of = filter_of
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        sock = _small_socket()
        sock.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._on_connection, sock=sock, limit=BUFFER)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    @property
    def is_used(self) -> bool:
        """Whether there is any connection."""
        return bool(self._writers)

    def cut(self) -> None:
        """Every connection breaks, at both ends; the next one gets through."""
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Nothing passes, in both directions, but nothing breaks."""
        self.inward.is_open.clear()
        self.outward.is_open.clear()

    def go_on(self) -> None:
        """It passes again."""
        self.inward.is_open.set()
        self.outward.is_open.set()

    def heal(self) -> None:
        """Everybody gets through, and everything passes."""
        self.refuses = False
        self.inward.heal()
        self.outward.heal()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        ends = [writer]
        try:
            if self.refuses or not self.target:
                return
            host, _, port = self.target.rpartition(":")
            sock = _small_socket()
            try:
                await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
            except BaseException:
                sock.close()
                raise
            back, onward = await asyncio.open_connection(sock=sock, limit=BUFFER)
            ends.append(onward)
            self._writers |= set(ends)
            ways = [
                asyncio.ensure_future(self._pass_on(self.inward, reader, onward)),
                asyncio.ensure_future(self._pass_on(self.outward, back, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except OSError:
            pass  # the target is down: so are we
        finally:
            for end in ends:
                self._writers.discard(end)
                end.close()
            self._tasks.discard(task)

    async def _pass_on(self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(BUFFER)
        judge = self._filter_of(direction) if self._filter_of is not None else None
        now = asyncio.get_running_loop().time
        due = now()
        with contextlib.suppress(OSError):
            while data := await reader.read(direction.portion):
                await direction.is_open.wait()
                if direction.rate is not None:
                    due = max(due, now() - LATE_MAX) + len(data) / direction.rate
                    await asyncio.sleep(due - now())
                direction.passed += len(data)
                if direction.swallows:
                    continue
                passing = Passing([data]) if judge is None else judge(data)
                for number, piece in enumerate(passing.pieces):
                    await asyncio.sleep(PAUSE if number else 0)
                    if writer.is_closing():
                        return
                    writer.write(piece)
                await writer.drain()
                if passing.is_end:
                    return


def _small_socket() -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    return sock
