"""The process that publishes the flights: `python -m gapless_flights.publisher`.

It may be killed at any moment: whoever comes after it asks how many events its name has logged, and goes
on behind them. When the broker is killed, the connection comes back by itself.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from gapless.cli.connecting import run
from gapless_flights.data import properties_of, read_lines, topic_of
from gapless_flights.reporting import Reporter, Stop

if TYPE_CHECKING:
    from gapless import Connection, Message

NAME: Final = "timetable"
"""The publisher's name: it is what the broker counts by."""
PORTION: Final = 64
"""Flights between two looks at the clock, when the rate is limited."""


class PublisherLife:
    """One life of the publisher."""

    def __init__(self, path: Path, rate: float, stop: Stop) -> None:
        self._path = path
        self._rate = rate
        self._stop = stop
        self._reporter = Reporter()

    async def run(self, url: str) -> None:
        """Publishes what is not logged yet, up to the end of the file or until it is stopped."""
        import gapless

        connecting = gapless.connect(url, client_id="demo", wait=True)
        async with connecting as connection, connection.session() as session:
            publisher = session.publisher(name=NAME)
            published = (await publisher.recover()).sequence
            self._reporter.report(published=published)
            async for _ in publisher.send_all(self._messages(published)):
                published += 1
                if published % PORTION == 0 and self._reporter.is_due:
                    self._reporter.report(published=published)
            self._reporter.report(published=published, ends=await _ends(connection))

    async def _messages(self, start: int) -> AsyncIterator[Message]:
        from gapless import Message

        began = monotonic()
        for number, line in enumerate(read_lines(self._path, start)):
            if self._rate and number % PORTION == 0:
                await asyncio.sleep(max(0.0, began + number / self._rate - monotonic()))
            if self._stop:
                return
            yield Message(line.encode(), properties_of(line), topic_of(line))


async def _ends(connection: Connection) -> dict[str, int]:
    """The newest event of each pubend: whoever stands there has everything behind it."""
    return {info.pubend: info.newest for info in await connection.pubends()}


async def _main(url: str, path: Path, rate: float) -> None:
    await PublisherLife(path, rate, Stop()).run(url)


def main() -> None:
    """Reads the arguments and publishes."""
    parser = argparse.ArgumentParser(description="Publishes the demo's flights.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--flights", type=Path, required=True)
    parser.add_argument("--rate", type=float, default=0, help="flights a second at most; 0 = no limit")
    arguments = parser.parse_args()
    run(_main(arguments.url, arguments.flights, arguments.rate))


if __name__ == "__main__":
    main()
