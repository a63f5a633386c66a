"""A process that consumes a durable subscription: `python -m gapless_flights.subscriber`.

It keeps what it consumed and its token in one SQLite database, and commits both in one transaction. So it
may be killed at any moment: the flights that are in the database are those that the token stands behind.
The broker is told after the commit; that is housekeeping, and it does no harm if it is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gapless.cli.connecting import run
from gapless_flights.reporting import Reporter, Stop

if TYPE_CHECKING:
    from gapless import Batch, CheckpointToken, Event, Subscription

SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS consumed (number INTEGER PRIMARY KEY AUTOINCREMENT, flight TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS position (subscription TEXT PRIMARY KEY, token TEXT NOT NULL);
"""
EVENTS_AT_ONCE: Final = 2048
PAUSE: Final = 0.2
"""Seconds without an event after which the position is looked at: silence moves it too."""


class Ledger:
    """What was consumed, and the token that stands behind it: committed together."""

    def __init__(self, path: Path, subscription: str) -> None:
        self._subscription = subscription
        self._db = sqlite3.connect(path)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.executescript(SCHEMA)
        self.count = self._db.execute("SELECT count(*) FROM consumed").fetchone()[0]

    def token(self) -> CheckpointToken | None:
        """The position, or None before the first commit."""
        from gapless import CheckpointToken

        row = self._db.execute("SELECT token FROM position WHERE subscription = ?", (self._subscription,)).fetchone()
        return CheckpointToken.parse(row[0]) if row else None

    def commit(self, events: Sequence[Event], token: CheckpointToken) -> None:
        """Takes the events in and moves the position, both or neither."""
        flights = [(event.body.decode(),) for event in events]
        with self._db:
            self._db.executemany("INSERT INTO consumed (flight) VALUES (?)", flights)
            self._db.execute("INSERT OR REPLACE INTO position VALUES (?, ?)", (self._subscription, str(token)))
        self.count += len(flights)

    def close(self) -> None:
        """Closes the database."""
        self._db.close()


def consumed_flights(path: Path) -> Iterator[str]:
    """What a subscriber has consumed, in the order in which it did; nothing if it never ran."""
    if not path.exists():
        return
    with closing(sqlite3.connect(path)) as db:
        for (flight,) in db.execute("SELECT flight FROM consumed ORDER BY number"):
            yield flight


class Consuming:
    """One life of a subscriber."""

    def __init__(self, ledger: Ledger, stop: Stop) -> None:
        self._ledger = ledger
        self._stop = stop
        self._reporter = Reporter()
        self._position: CheckpointToken | None = None

    async def run(self, url: str, name: str, topic: str, selector: str) -> None:
        """Consumes until it is told to stop, from the token on, if there is one."""
        import gapless

        start: CheckpointToken | Literal["earliest"] = self._ledger.token() or "earliest"
        self._reporter.report(consumed=self._ledger.count)
        connecting = gapless.connect(url, client_id="demo", wait=True)
        async with connecting as connection, connection.session() as session:
            # Takeover: the broker may not know yet that whoever had it before was killed.
            subscribing = session.subscribe(topic, name=name, selector=selector, start=start, in_use="takeover")
            async with subscribing as subscription:
                self._stop.then(subscription.drain)
                await self._consume(subscription)

    async def _consume(self, subscription: Subscription[Any, Any]) -> None:
        batches = subscription.batches(max_events=EVENTS_AT_ONCE)
        while True:
            coming = asyncio.ensure_future(_next(batches))
            while not (await asyncio.wait([coming], timeout=PAUSE))[0]:
                # Nothing is in hand that was not committed, and silence may have moved the position.
                await self._keep(subscription, (), subscription.token)
            batch = coming.result()
            if batch is None:
                return
            await self._keep(subscription, batch, batch.token)

    async def _keep(
        self, subscription: Subscription[Any, Any], events: Sequence[Event], token: CheckpointToken
    ) -> None:
        """Commits, and then tells the broker and the supervisor."""
        if token != self._position:
            self._ledger.commit(events, token)
            self._position = token
            await subscription.acknowledge(token)
            self._reporter.report(consumed=self._ledger.count, position=dict(token.ticks))


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    """The next batch; None when there will be none."""
    async for batch in batches:
        return batch
    return None


async def _main(database: Path, url: str, name: str, topic: str, selector: str) -> None:
    with closing(Ledger(database, name)) as ledger:
        await Consuming(ledger, Stop()).run(url, name, topic, selector)


def main() -> None:
    """Reads the arguments and consumes."""
    parser = argparse.ArgumentParser(description="Consumes one of the demo's subscriptions.")
    for name in ("--url", "--name", "--topic", "--selector"):
        parser.add_argument(name, required=True)
    parser.add_argument("--database", type=Path, required=True)
    arguments = parser.parse_args()
    run(_main(**vars(arguments)))


if __name__ == "__main__":
    main()
