"""A process that consumes durable subscriptions: `python -m gapless_flights.subscriber`.

Each of them has a SQLite database of its own: what was consumed and the token are committed in one transaction. So the
process may be killed at any moment: the flights that are in the database are those that the token stands behind.
The broker is told after the commit; that is housekeeping, and it does no harm if it is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gapless.cli.connecting import run
from gapless_flights.reporting import Reporter, Stop

if TYPE_CHECKING:
    from gapless import Batch, CheckpointToken, Event, Session, Subscription

SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS consumed (number INTEGER PRIMARY KEY AUTOINCREMENT, flight TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS position (subscription TEXT PRIMARY KEY, token TEXT NOT NULL);
"""
EVENTS_AT_ONCE: Final = 2048
PAUSE: Final = 0.2
"""Seconds without an event after which the position is looked at: silence moves it too."""
COMMITS_A_SECOND: Final = 100
"""So many transactions a process makes, about, if it has many subscriptions: each gathers events for one."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """One subscription that a process is to consume, and the database for it."""

    name: str
    topic: str
    selector: str
    database: str


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
    """One subscription in one life of the process."""

    def __init__(self, ledger: Ledger, gather: float) -> None:
        """`gather`: for so many seconds events are gathered for one transaction; 0: what is there is committed."""
        self._ledger = ledger
        self._gather = gather
        self._reporter = Reporter()
        self._position: CheckpointToken | None = None

    async def run(self, session: Session, wanted: Consumption, stop: Stop) -> None:
        """Consumes until it is told to stop, from the token on, if there is one."""
        start: CheckpointToken | Literal["earliest"] = self._ledger.token() or "earliest"
        name = wanted.name
        # Takeover: the broker may not know yet that whoever had it before was killed.
        subscribing = session.subscribe(
            wanted.topic, name=name, selector=wanted.selector, start=start, in_use="takeover"
        )
        async with subscribing as subscription:
            self._reporter.report(subscription=name, consumed=self._ledger.count)
            stop.then(subscription.drain)
            await self._consume(name, subscription)

    async def _consume(self, name: str, subscription: Subscription[Any, Any]) -> None:
        batches = subscription.batches(max_events=EVENTS_AT_ONCE, max_wait=self._gather)
        clock = asyncio.get_running_loop().time
        events: list[Event] = []
        due = clock()
        while True:
            coming = asyncio.ensure_future(_next(batches))
            while not (await asyncio.wait([coming], timeout=max(PAUSE, self._gather)))[0]:
                # All that was handed out is committed here, and silence may have moved the position.
                await self._keep(name, subscription, events, subscription.token)
                events, due = [], clock() + self._gather
            batch = coming.result()
            if batch is not None:
                events += batch
            if batch is None or clock() >= due:
                await self._keep(name, subscription, events, subscription.token)
                events, due = [], clock() + self._gather
            if batch is None:
                return

    async def _keep(
        self, name: str, subscription: Subscription[Any, Any], events: Sequence[Event], token: CheckpointToken
    ) -> None:
        """Commits, and then tells the broker and the supervisor."""
        if token != self._position:
            self._ledger.commit(events, token)
            self._position = token
            await subscription.acknowledge(token)
            self._reporter.report(subscription=name, consumed=self._ledger.count, position=dict(token.ticks))


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    """The next batch; None when there will be none."""
    async for batch in batches:
        return batch
    return None


async def consume_all(url: str, wanted: Sequence[Consumption], stop: Stop) -> None:
    """Consumes subscriptions over one connection, until it is told to stop."""
    import gapless

    gather = len(wanted) / COMMITS_A_SECOND if len(wanted) > 1 else 0
    connecting = gapless.connect(url, client_id="demo", wait=True)
    with ExitStack() as ledgers:
        opened = [ledgers.enter_context(closing(Ledger(Path(one.database), one.name))) for one in wanted]
        async with connecting as connection, connection.session() as session:
            await asyncio.gather(
                *(Consuming(ledger, gather).run(session, one, stop) for ledger, one in zip(opened, wanted, strict=True))
            )


def write_wanted(path: Path, wanted: Iterable[Consumption]) -> None:
    """Writes what a process is to consume, where it finds it."""
    path.write_text(json.dumps([asdict(one) for one in wanted]), "utf-8")


def read_wanted(path: Path) -> list[Consumption]:
    """Reads that."""
    return [Consumption(**one) for one in json.loads(path.read_text("utf-8"))]


async def _main(url: str, wanted: Sequence[Consumption]) -> None:
    await consume_all(url, wanted, Stop())


def main() -> None:
    """Reads the arguments and consumes."""
    parser = argparse.ArgumentParser(description="Consumes some of the demo's subscriptions.")
    parser.add_argument("--url", required=True)
    parser.add_argument("--subscriptions", type=Path, required=True, help="a file with what to consume, as JSON")
    arguments = parser.parse_args()
    run(_main(arguments.url, read_wanted(arguments.subscriptions)))


if __name__ == "__main__":
    main()
