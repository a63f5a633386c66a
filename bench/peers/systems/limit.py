"""No broker at all: what the disk, the loopback interface and the checks of the race cost by themselves.

A process appends what it is sent to a segment file, calls `fdatasync` for all that has arrived meanwhile,
answers, and writes to each connection the bodies that it wants: cut out once for all that want the same,
joined, and sent raw. No ticks, no positions, no credit, no checksums, no selectors, no recovery. Who comes
back gets what the segment file has, from its beginning. Nothing that delivers events to Python clients can
cost less on the machine: a system's figure beside this one says what its promises cost.

    python -m bench.peers.systems.limit PORT DIRECTORY
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Literal

from bench.peers.system import WINDOW, RaceError, Server, answers, free_port, started
from bench.peers.work import BODY_SIZE, Event, Subscriber, Tally

BATCH = 256
FRAME = Struct(">BBI")
"""Behind the topic's line: `PUBLISH`, 0 and the length of the records; or a place, the value wanted there, 0."""
PUBLISH = 255
PROPERTIES = Struct(">BB")
PLACE = {"quarter": 0, "percent": 1}
RECORD_SIZE = PROPERTIES.size + BODY_SIZE
DONE = b"\x06"
READ_BYTES = 1 << 18

Wanted = tuple[int, int]


# ------------------------------------------------------------------------------------------ the server


def shares(records: bytes) -> dict[Wanted, bytes]:
    """The bodies of these records, joined for each place and value that somebody may want."""
    found: dict[Wanted, list[bytes]] = {}
    for start in range(0, len(records), RECORD_SIZE):
        body = records[start + PROPERTIES.size : start + RECORD_SIZE]
        for wanted in enumerate(records[start : start + PROPERTIES.size]):
            found.setdefault(wanted, []).append(body)
    return {wanted: b"".join(bodies) for wanted, bodies in found.items()}


class Segment:
    """A topic's file, and who is connected."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._connected: dict[asyncio.StreamWriter, Wanted] = {}
        self._unsynced: list[tuple[asyncio.StreamWriter, bytes]] = []
        self._syncing = False
        self._past_size = 0
        self._past: dict[Wanted, bytes] = {}

    def publish(self, publisher: asyncio.StreamWriter, records: bytes) -> None:
        """Appends; what has come when a sync ends is synced by the next."""
        os.write(self._file, records)
        self._unsynced.append((publisher, records))
        self._sync()

    def subscribe(self, subscriber: asyncio.StreamWriter, wanted: Wanted) -> None:
        """First what is in the file, then what comes; in the race nobody publishes at this moment."""
        size = self._path.stat().st_size
        if size != self._past_size:
            self._past_size, self._past = size, shares(self._path.read_bytes())
        subscriber.write(DONE + self._past.get(wanted, b""))
        self._connected[subscriber] = wanted

    def leave(self, writer: asyncio.StreamWriter) -> None:
        """A connection has ended."""
        self._connected.pop(writer, None)

    def _sync(self) -> None:
        if self._unsynced and not self._syncing:
            self._syncing = True
            group, self._unsynced = self._unsynced, []
            synced = asyncio.get_running_loop().run_in_executor(None, os.fdatasync, self._file)
            synced.add_done_callback(lambda _: self._synced(group))

    def _synced(self, group: Sequence[tuple[asyncio.StreamWriter, bytes]]) -> None:
        self._syncing = False
        self._sync()
        for publisher, _ in group:
            publisher.write(DONE)
        if self._connected:
            share = shares(b"".join(records for _, records in group))
            for subscriber, wanted in self._connected.items():
                if wanted in share:
                    subscriber.write(share[wanted])


async def serve(port: int, directory: Path) -> None:
    """Until it is ended from outside."""
    segments: dict[str, Segment] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        topic = (await reader.readline()).decode().strip()
        segment = segments.get(topic) or segments.setdefault(topic, Segment(directory / f"{topic}.segment"))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                place, value, length = FRAME.unpack(await reader.readexactly(FRAME.size))
                if place == PUBLISH:
                    segment.publish(writer, await reader.readexactly(length))
                else:
                    segment.subscribe(writer, (place, value))
        segment.leave(writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port, limit=READ_BYTES)
    await server.serve_forever()


# ------------------------------------------------------------------------------------------ the clients


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
        command = [sys.executable, "-m", "bench.peers.systems.limit", str(port), str(directory)]
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        with started(command, directory, lambda: answers(port), {"PYTHONPATH": os.pathsep.join(paths)}) as process:
            yield Server(f"127.0.0.1:{port}", process.pid)

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


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
