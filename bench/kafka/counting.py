"""What Kafka sends, counted where it passes: a proxy between a Kafka and those who connect to it there.

Others connect to the same Kafka beside the proxy, and are not counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.kafka.ground import a_kafka
from bench.peers.system import Server, free_port
from gapless_testing.fault_proxy import FaultProxy

START_SECONDS_MAX = 10.0


class Counter:
    """Runs the proxy, in a thread of its own."""

    def __init__(self, target: str) -> None:
        self.address = ""
        self._proxy = FaultProxy(target)
        self._loop = asyncio.new_event_loop()
        self._ready, self._end = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(START_SECONDS_MAX)

    @property
    def sent(self) -> int:
        """How many bytes Kafka has sent through it."""
        return self._proxy.outward.passed

    def close(self) -> None:
        """Ends it, and all its connections."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        async with self._proxy as proxy:
            self.address = proxy.address
            self._ready.set()
            await self._end.wait()


@dataclass(frozen=True)
class CountedKafka:
    """A Kafka, and where what it sends is counted."""

    server: Server
    """Beside the proxy."""
    counter: Counter
    directory: Path


@contextmanager
def a_counted_kafka(topics: Sequence[str]) -> Iterator[CountedKafka]:
    """A fresh one with these topics: it names itself by the proxy's address to whoever came through that."""
    port, controller, behind = free_port(), free_port(), free_port()
    counter = Counter(f"127.0.0.1:{behind}")
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},COUNTED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},COUNTED://{counter.address}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,COUNTED:PLAINTEXT",
    }
    try:
        with a_kafka(topics, (port, controller), listeners) as (kafka, directory):
            yield CountedKafka(kafka, counter, directory)
    finally:
        counter.close()
