"""Redis Streams: one stream, synced at every write, read by everyone from a position that is kept in Redis.

Redis does not filter: every subscriber reads everything and drops what it does not want. Plain `XREAD`
with a position of one's own (a hash field, written once a second together with the next read) costs less
than a consumer group, which would log every hand-out. Answers are taken as hiredis, the parser in C, makes
them.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from bench.peers.system import Acknowledged, Server, answers, free_port, missing_package, started
from bench.peers.work import ORIGIN, Event, Rhythm, Subscriber, Tally

PIPELINE = 512
READ = 1000
FIELD = {"quarter": 3, "percent": 5}
"""Where the value of a property stands in an entry; the body stands at 1."""


class _Publisher:
    def __init__(self, client: Any, topic: str) -> None:
        self._client = client
        self._topic = topic

    async def publish(self, events: Sequence[Event]) -> None:
        """Pipelines one after another; the client has one in flight."""
        for start in range(0, len(events), PIPELINE):
            pipeline = self._client.pipeline(transaction=False)
            for body, quarter, percent in events[start : start + PIPELINE]:
                pipeline.xadd(self._topic, {"body": body, "quarter": quarter, "percent": percent, "origin": ORIGIN})
            await pipeline.execute()


class Redis:
    """Redis with redis-py and hiredis."""

    title = "Redis Streams, AOF always, redis-py with hiredis"
    filters: Literal["server", "client"] = "client"
    portions: Mapping[str, float] = {"selective": 0.25}
    under_way = PIPELINE
    acknowledged: Acknowledged = "on the disk"
    promise = "The event is on the disk: its log is synced before the answer. All data must fit into memory."

    def missing(self) -> str:
        """The clients come from PyPI, the server from the system."""
        if missing := missing_package("redis", "hiredis"):
            return missing
        return "" if shutil.which("redis-server") else "there is no redis-server (Debian: apt-get install redis-server)"

    def version(self) -> str:
        """Of redis-server and redis-py."""
        command = [shutil.which("redis-server") or "", "--version"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return f"{said.split('v=')[1].split()[0]}, redis-py {version('redis')}"

    @contextlib.contextmanager
    def running(self, directory: Path) -> Iterator[Server]:
        """One server, no snapshots, the append-only file synced at every write."""
        port = free_port()
        options = {"port": port, "bind": "127.0.0.1", "dir": directory, "appendonly": "yes", "appendfsync": "always"}
        command = ["redis-server", "--save", ""]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        with started(command, directory, lambda: answers(port)) as process:
            yield Server(f"redis://127.0.0.1:{port}", (process.pid,))

    @contextlib.asynccontextmanager
    async def publisher(self, address: str, topic: str) -> AsyncIterator[_Publisher]:
        """One connection; the first event makes the stream."""
        async with _client(address) as client:
            await client.ping()
            yield _Publisher(client, topic)

    async def receive(
        self, address: str, topic: str, subscriber: Subscriber, tally: Tally, ready: Callable[[], None]
    ) -> None:
        """Reads on from its position, and writes that down with the next read."""
        place, value = FIELD[subscriber.wanted], b"%d" % subscriber.value
        positions = f"{topic}:positions"
        async with _client(address) as client:
            position = await client.hget(positions, subscriber.name) or b"0"
            ready()
            rhythm = Rhythm()
            while not tally.done():
                pipeline = client.pipeline(transaction=False)
                if rhythm.due():
                    pipeline.hset(positions, subscriber.name, position)
                pipeline.xread({topic: position}, count=READ, block=1000)
                if answer := (await pipeline.execute())[-1]:
                    entries = answer[0][1]
                    tally.take([fields[1] for _, fields in entries if fields[place] == value])
                    position = entries[-1][0]
            await client.hset(positions, subscriber.name, position)


def _client(address: str) -> Any:
    """A client that hands answers on as they were parsed."""
    from redis.asyncio import Redis as Client

    client = Client.from_url(address, protocol=2, socket_timeout=60, single_connection_client=True)
    client.set_response_callback("XREAD", lambda answer, **_: answer)
    return client
