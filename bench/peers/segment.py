"""The server of `systems/limit.py`, which is no broker: a file to append to, and sockets to write to.

    python -m bench.peers.segment PORT DIRECTORY

It appends what it is sent to a segment file, calls `fdatasync` for all that has arrived meanwhile, answers,
and writes to each connection the bodies that it wants: cut out once for all that want the same, joined,
and sent raw. No ticks, no positions, no credit, no checksums, no selectors, no recovery. Who comes back
gets what the segment file has, from its beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from struct import Struct

from bench.peers.work import BODY_SIZE

FRAME = Struct(">BBI")
"""Behind the topic's line: `PUBLISH`, 0 and the length of the records; or a place, the value wanted there, 0."""
PUBLISH = 255
PROPERTIES = Struct(">BB")
PLACE = {"quarter": 0, "percent": 1}
RECORD_SIZE = PROPERTIES.size + BODY_SIZE
DONE = b"\x06"
READ_BYTES = 1 << 18
BACKLOG = 4096
"""All subscribers may come at once."""

Wanted = tuple[int, int]


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

    server = await asyncio.start_server(talk, "127.0.0.1", port, limit=READ_BYTES, backlog=BACKLOG)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
