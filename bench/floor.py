"""The floor of fan-out: what the same bytes cost with no protocol at all, on the same machine in the same run.

A process that reads batches from one connection, logs each as one RocksDB record with a sync, and writes
to each of the other connections the joined slices that are its share. No ticks, no tokens, no credit, no
checksums, no selectors, no recovery: nothing that delivers events can cost less in Python.

    python -m bench.floor broker PORT_FILE        python -m bench.floor client PORT FIRST STEP TOTAL
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from itertools import compress
from pathlib import Path
from struct import Struct
from typing import cast

from rocksdict import Options, Rdict, WriteBatch

from gapless.cli.connecting import run as run_loop
from gapless.core.stream.batch_bytes import mask_flags
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.delivered import DeliveredColumns

HEAD = Struct("<IBI")
SUBSCRIBE, PUBLISH, DELIVER = 1, 2, 3


class FloorBroker:
    """Logs what comes and passes each subscriber its share."""

    def __init__(self) -> None:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        self._log = Rdict(tempfile.mkdtemp(prefix="gapless-floor-"), options)
        self._subscribers: dict[int, asyncio.Transport] = {}
        self._count = 0
        self._pending: list[tuple[asyncio.Transport, int, bytes]] = []
        self._syncing = False

    def frame(self, transport: asyncio.Transport, kind: int, number: int, payload: bytes) -> None:
        """A frame arrived."""
        if kind == SUBSCRIBE:
            self._subscribers[number] = transport
            return
        batch = WriteBatch(raw_mode=True)
        self._count += 1
        batch.put(self._count.to_bytes(8, "big"), payload)
        self._log.write(batch)
        self._pending.append((transport, number, payload))
        self._sync()

    def _sync(self) -> None:
        if self._syncing or not self._pending:
            return
        self._syncing = True
        group, self._pending = self._pending, []
        future = asyncio.get_running_loop().run_in_executor(None, self._log.flush_wal, True)
        future.add_done_callback(lambda _: self._synced(group))

    def _synced(self, group: list[tuple[asyncio.Transport, int, bytes]]) -> None:
        self._syncing = False
        for transport, count, payload in group:
            transport.write(HEAD.pack(0, PUBLISH, count))
            self._fan_out(count, payload)
        self._sync()

    def _fan_out(self, count: int, payload: bytes) -> None:
        batch = EventColumns(count, payload[: 8 * count], payload[8 * count :]).batch(range(count))
        residues = [header.properties["w"] for header in batch.headers]
        shares = [
            mask_flags(sum(1 << at for at, w in enumerate(residues) if w == residue), count) for residue in range(4)
        ]
        rows, events = batch.rows, batch.events
        for number, transport in self._subscribers.items():
            share = shares[number & 3]
            body = b"".join((*compress(rows, share), *compress(events, share)))
            transport.writelines((HEAD.pack(len(body), DELIVER, share.count(1)), body))


class Frames(asyncio.Protocol):
    """Cuts a connection's bytes into frames."""

    def __init__(self, broker: FloorBroker) -> None:
        self._broker = broker
        self._buffer = bytearray()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A connection is there."""
        # uvloop's transports are no subclass of asyncio's, so this cannot be checked, only said.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self._buffer += data
        offset = 0
        while len(self._buffer) - offset >= HEAD.size:
            length, kind, number = HEAD.unpack_from(self._buffer, offset)
            end = offset + HEAD.size + length
            if len(self._buffer) < end:
                break
            self._broker.frame(self._transport, kind, number, bytes(self._buffer[offset + HEAD.size : end]))
            offset = end
        del self._buffer[:offset]


async def serve(port_file: str) -> None:
    """Runs the broker until it is ended from outside."""
    broker = FloorBroker()
    server = await asyncio.get_running_loop().create_server(lambda: Frames(broker), "127.0.0.1", 0)
    Path(port_file).write_text(str(server.sockets[0].getsockname()[1]))  # noqa: ASYNC240 - before it serves
    await server.serve_forever()


async def consume(port: int, number: int, wanted: int) -> None:
    """One subscriber: counts events and decodes every one of them."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    writer.write(HEAD.pack(0, SUBSCRIBE, number))
    got = 0
    while got < wanted:
        length, _, count = HEAD.unpack(await reader.readexactly(HEAD.size))
        body = await reader.readexactly(length)
        columns = DeliveredColumns.parse(count.to_bytes(4, "little") + body, 0)
        assert all(event.properties["w"] == number & 3 for event in columns.events("floor"))
        got += count
    writer.close()


async def consume_all(port: int, first: int, step: int, total: int, wanted: int) -> None:
    """The subscribers of one client process."""
    await asyncio.gather(*(consume(port, number, wanted) for number in range(first, total, step)))


def main(arguments: list[str]) -> None:
    """Runs one of the two parts."""
    if arguments[0] == "broker":
        run_loop(serve(arguments[1]))
        return
    port, first, step, total, wanted = map(int, arguments[1:])
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.process_time()
    run_loop(consume_all(port, first, step, total, wanted))
    print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
