"""The process that writes flights to a Kafka topic: `python -m gapless_flights.kafka_producer`.

It is an ordinary producer, aiokafka's, and knows nothing of gapless. It waits for all replicas in sync, and is
idempotent, as anyone's should be who wants nothing lost or doubled when a broker of Kafka's dies.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any, Final

from gapless_flights.data import read_lines
from gapless_flights.kafka_access import KafkaAccess
from gapless_flights.kafka_records import record_of
from gapless_flights.reporting import Reporter, Stop

PORTION: Final = 64
"""Flights between two looks at the clock, when the rate is limited."""
UNDER_WAY_MAX: Final = 5000
"""So many records are handed over before the oldest of them is in the log."""
PATIENCE_MS: Final = 120_000
"""For a record that cannot be written at the moment."""


class KafkaProducing:
    """Writes the flights, in order, and reports how many are in the log."""

    def __init__(self, access: KafkaAccess, topic: str, rate: float, stop: Stop) -> None:
        self._access = access
        self._topic = topic
        self._rate = rate
        self._stop = stop
        self._reporter = Reporter()
        self._under_way: deque[asyncio.Future[Any]] = deque()
        self._published = 0
        self._ends: dict[int, int] = {}

    async def run(self, path: Path) -> None:
        """Writes up to the end of the file, or until it is stopped."""
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(
            **self._access.options(),
            acks="all",
            enable_idempotence=True,
            compression_type="lz4",
            linger_ms=10,
            request_timeout_ms=PATIENCE_MS,
        )
        async with producer:
            began = monotonic()
            for number, line in enumerate(read_lines(path, 0)):
                if self._rate and number % PORTION == 0:
                    await asyncio.sleep(max(0.0, began + number / self._rate - monotonic()))
                if self._stop:
                    break
                partition, key, value, headers = record_of(line)
                sent = await producer.send(self._topic, value.encode(), key, partition, headers=headers)
                self._under_way.append(sent)
                await self._confirm(UNDER_WAY_MAX)
            await self._confirm(0)
        self._report(ends=self._ends)

    async def _confirm(self, left: int) -> None:
        """Waits until no more than so many are under way, and counts those that are in the log."""
        while self._under_way and (len(self._under_way) > left or self._under_way[0].done()):
            written = await self._under_way.popleft()
            self._ends[written.partition] = written.offset + 1
            self._published += 1
            if self._published % PORTION == 0 and self._reporter.is_due:
                self._report()

    def _report(self, **more: Mapping[int, int]) -> None:
        self._reporter.report(published=self._published, **more)


async def _main(access: KafkaAccess, topic: str, path: Path, rate: float) -> None:
    await KafkaProducing(access, topic, rate, Stop()).run(path)


def main() -> None:
    """Reads the arguments and writes."""
    parser = argparse.ArgumentParser(description="Writes the demo's flights to a Kafka topic.")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--access", type=Path, help="a file with the tables [tls] and [sasl] of [[phb.kafka]]")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--flights", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=0, help="flights a second at most; 0 = no limit")
    arguments = parser.parse_args()
    access = KafkaAccess.of(arguments.servers, arguments.access)
    asyncio.run(_main(access, arguments.topic, arguments.flights, arguments.rate))


if __name__ == "__main__":
    main()
