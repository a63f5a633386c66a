"""The link between two nodes, in the hands of a benchmark: whoever of them dials, what is said passes here."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter

from typing_extensions import Self

BUFFER = 32 << 10
"""Bytes of a direction that this proxy and its sockets may hold: what waits is to wait at the sender, who counts it."""

LATE_MAX = 0.1
"""Seconds that a slow link may make good: a busy machine wakes this process late."""


class LinkProxy:
    """Stands between two nodes: each of them dials it where it would dial the other."""

    def __init__(self, one: str, other: str, ports: dict[str, int]) -> None:
        """`ports`: where each of the two takes the links of other nodes."""
        self.name = f"{one}-{other}"
        self.ends = one, other
        self.addresses: dict[str, str] = {}
        """By node: where the other end dials it."""
        self.passed: Counter[str] = Counter()
        """Bytes that have passed, by the node that they went to."""
        self.rates: dict[str, float] = {}
        """Bytes a second that pass, by the node that they go to; all, where nothing is said."""
        self.swallows: set[str] = set()
        """What goes to these nodes is read and lost."""
        self._ports = ports
        self._open = asyncio.Event()
        self._open.set()
        self._dead = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        for node in self.ends:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            sock.bind(("127.0.0.1", 0))

            async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, node: str = node) -> None:
                await self._on_connection(node, reader, writer)

            self._servers.append(await asyncio.start_server(take, sock=sock, limit=BUFFER))
            self.addresses[node] = f"127.0.0.1:{sock.getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """What there is breaks; the next dial gets through."""
        for writer in self._writers:
            writer.transport.abort()

    def kill(self) -> None:
        """It breaks, and nobody gets through any more."""
        self._dead = True
        self.cut()

    def revive(self) -> None:
        """Dials get through again."""
        self._dead = False

    def stall(self) -> None:
        """Nothing passes, but nothing breaks."""
        self._open.clear()

    def go_on(self) -> None:
        """It passes again, at any rate, in both directions."""
        self._open.set()
        self.rates.clear()
        self.swallows.clear()

    async def _on_connection(self, to: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Somebody dials one of the two: it can only be the other one."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        try:
            if self._dead:
                return
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
            ends.append(writer)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self._ports[to]))
            back, outward = await asyncio.open_connection(sock=sock, limit=BUFFER)
            ends.append(outward)
            self._writers |= set(ends)
            back_to = self.ends[to == self.ends[0]]
            ways = [
                asyncio.ensure_future(self._pass_on(reader, outward, to)),
                asyncio.ensure_future(self._pass_on(back, writer, back_to)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        except OSError:
            pass  # that node is down: so are we
        finally:
            for end in ends:
                self._writers.discard(end)
                end.close()
            self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: str) -> None:
        writer.transport.set_write_buffer_limits(BUFFER)
        now = asyncio.get_running_loop().time
        due = now()
        with contextlib.suppress(OSError):
            while data := await reader.read(self._portion(to)):
                await self._open.wait()
                rate = self.rates.get(to)
                if rate is not None:
                    due = max(due, now() - LATE_MAX) + len(data) / rate
                    await asyncio.sleep(due - now())
                self.passed[to] += len(data)
                if to in self.swallows:
                    continue
                writer.write(data)
                await writer.drain()

    def _portion(self, to: str) -> int:
        """So much at a time that a slow link moves twenty times a second."""
        return max(1024, min(BUFFER, int(self.rates.get(to, 1e9) / 20)))
