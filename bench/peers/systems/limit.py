"""No broker at all: what the disk, the loopback interface and the checks of the race cost by themselves.

The server, `bench.peers.segment`, promises as little as the works allow, and its clients take raw bodies
from raw connections. Nothing that delivers events to Python clients can cost less on the machine: a
system's figure beside this one says what its promises cost.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from bench.peers.segment import DONE, FRAME, PLACE, PROPERTIES, PUBLISH, READ_BYTES
from bench.peers.system import WINDOW, Acknowledged, RaceError, Server, answers, free_port, started
from bench.peers.work import BODY_SIZE, Event, Subscriber, Tally

BATCH = 256


class _Publisher:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def publish(self, events: Sequence[Event]) -> None:
        """In batches, as many under way as the window allows."""
        flying = 0
        for start in range(0, len(events), BATCH):
            if flying >= WINDOW // BATCH:
                await self._reader.readexactly(1)
                flying -= 1
            batch = events[start : start + BATCH]
            records = b"".join([PROPERTIES.pack(quarter, percent) + body for body, quarter, percent in batch])
            self._writer.write(FRAME.pack(PUBLISH, 0, len(records)) + records)
            flying += 1
        await self._reader.readexactly(flying)


class Limit:
    """What no system can go below."""

    title = "no broker: a segment file with fdatasync, raw loopback writes"
    filters: Literal["server", "client"] = "server"
    portions: Mapping[str, float] = {}
    under_way = WINDOW
    acknowledged: Acknowledged = "on the disk"
    promise = "The bytes are on the disk: appended to a file and synced (fdatasync). Nobody's position is kept."

    def missing(self) -> str:
        """It is here."""
        return ""

    def version(self) -> str:
        """Of what it stands on."""
        return f"{platform.system()} {platform.release()}, Python {platform.python_version()}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """The process that writes."""
        port = free_port()
        command = [sys.executable, "-m", "bench.peers.segment", str(port), str(directory)]
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        with started(command, directory, lambda: answers(port), {"PYTHONPATH": os.pathsep.join(paths)}) as process:
            yield Server(f"127.0.0.1:{port}", (process.pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """One connection; its first line makes the file."""
        async with _connected(address, topic) as (reader, writer):
            yield _Publisher(reader, writer)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """Bodies, one behind the other."""
        async with _connected(address, topic) as (reader, writer):
            writer.write(FRAME.pack(PLACE[subscriber.wanted], subscriber.value, 0))
            await reader.readexactly(len(DONE))
            ready()
            rest = b""
            while not tally.done():
                if not (read := await reader.read(READ_BYTES)):
                    raise RaceError("the limit's server has gone")
                data = rest + read
                whole = len(data) - len(data) % BODY_SIZE
                tally.take([data[start : start + BODY_SIZE] for start in range(0, whole, BODY_SIZE)])
                rest = data[whole:]


@contextlib.asynccontextmanager
async def _connected(address: str, topic: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=READ_BYTES)
    writer.write(f"{topic}\n".encode())
    try:
        yield reader, writer
    finally:
        writer.close()
