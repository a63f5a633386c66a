"""The token in the application's database: what a kill loses or doubles (nothing), and what saving it costs.

Flights are published all the time. One application keeps those that it consumes, with its token, in PostgreSQL,
another one in SQLite. Both are killed with SIGKILL at random moments, and so are the broker and the PostgreSQL server.
Meanwhile an application is paused (SIGSTOP) at each point of its work; a rival claims the token and goes on; then the
paused one wakes (SIGCONT). At the end both databases are held against the data: each row once, in order. If one is
not, or if nothing moves any more, the exit status is 1.

Then the cost: the same loop, which commits the effects of 100 events in PostgreSQL, with `TokenStore.save` and without,
in alternating rounds.

    python -m bench tokens [--kills N] [--pauses N] [--seed N] [--rounds N] [--json]
    python -m bench.tokens --database … --url … --name …         one of the applications
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import signal
import sqlite3
import sys
from asyncio import FIRST_COMPLETED
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import psycopg

import gapless
from bench.processes import running_broker
from bench.rivals import Rivals, Run, Stops, show
from bench.rounds import in_turn
from gapless.cli.connecting import run as run_loop
from gapless_flights.data import made_up_flights, properties_of, topic_of
from gapless_flights.plan import BROKER, PUBLISHER
from gapless_flights.proof import prove
from gapless_flights.reporting import Reporter, Stop
from gapless_flights.supervisor import Supervisor

TESTS = Path(__file__).resolve().parents[1] / "tests"
if str(TESTS) not in sys.path:
    sys.path.append(str(TESTS))

from integration.postgres import Postgres, programs, running  # noqa: E402

RATE: Final = 250
"""Flights published a second."""
FLIGHTS_PER_KILL: Final = 8 * RATE
FLIGHTS_PER_PAUSE: Final = 40 * RATE
"""More than are published meanwhile, even on a busy machine; at the end the publisher is told to stop."""
EVENTS: Final = 100
"""Of a batch, at most."""

POINTS: Final = (
    "before the claim",
    "the claim is not committed",
    "before subscribing",
    "before the first batch",
    "a batch is in hand",
    "the token is not saved",
    "nothing is committed",
    "before acknowledging",
    "after acknowledging",
)
"""Where an application is paused."""
IN_A_BATCH: Final = POINTS[4:]
"""There it is paused in its third batch."""
LOCKING: Final = (POINTS[1], POINTS[5], POINTS[6])
"""There it has a transaction open, for which SQLite lets everybody else wait."""
IDLE_IN_TRANSACTION: Final = "-c idle_in_transaction_session_timeout=1s"
"""PostgreSQL lets the rival wait no longer than that."""

POSTGRES: Final = "PostgreSQL"
SERVER: Final = "server of PostgreSQL"
SQLITE: Final = "SQLite"
MEANWHILE: Final = "broker, while one is paused"
WITH: Final = "with token"
WITHOUT: Final = "without token"
ROUND: Final = 5
"""Batches: so few that both loops meet the same moods of the machine."""
COST_MOST: Final = 1.1

LOST: Final = (psycopg.OperationalError, psycopg.InternalError, sqlite3.OperationalError)
"""The transaction is not made, or nobody knows: the database was killed, has ended it, or lets it wait too long."""


# ------------------------------------------------------------------------------------- one application


class Effects:
    """What an application has consumed: a table of its database, in which the token is as well."""

    def __init__(self, database: str, *, serializable: bool = False) -> None:
        """`database`: what libpq connects to, or the path of a file."""
        self.db: Any
        if "=" in database:
            self.db = psycopg.connect(database, options=IDLE_IN_TRANSACTION)
            self.db.isolation_level = psycopg.IsolationLevel.SERIALIZABLE if serializable else None
        else:
            self.db = sqlite3.connect(database)
            self.db.execute("PRAGMA journal_mode = WAL")
        key, mark = ("BIGSERIAL", "%s") if "=" in database else ("INTEGER", "?")
        self._create = f"CREATE TABLE IF NOT EXISTS consumed (number {key} PRIMARY KEY, flight TEXT NOT NULL)"
        self._insert = f"INSERT INTO consumed (flight) VALUES ({mark})"  # noqa: S608 - a mark, and no value

    def create(self) -> None:
        """Makes the table."""
        self.db.execute(self._create)
        self.db.commit()

    def add(self, flights: Sequence[str]) -> None:
        """Keeps some more of them, as soon as that is committed."""
        self.db.cursor().executemany(self._insert, [(flight,) for flight in flights])

    def flights(self) -> list[str]:
        """All that are committed, in their order."""
        rows = self.db.execute("SELECT flight FROM consumed ORDER BY number").fetchall()
        self.db.commit()
        return [flight for (flight,) in rows]

    def close(self) -> None:
        """Ends the connection; what is not committed is gone."""
        self.db.close()


def _commit(db: Any, work: Callable[[], None]) -> None:
    """A transaction, which is repeated whole when the database cannot make it serializable."""
    while True:
        try:
            work()
            db.commit()
        except psycopg.errors.SerializationFailure:
            db.rollback()
        else:
            return


class Application:
    """One process. It lives again by itself when its database does not answer; it ends when it is not the owner."""

    def __init__(self, options: argparse.Namespace, stop: Stop) -> None:
        self._options = options
        self._stop = stop
        self._reporter = Reporter()
        self._tokens = gapless.TokenStore(options.name)
        self._token: gapless.CheckpointToken | None = None
        self._stops = Stops(self._reporter, options.pause_at, 3 if options.pause_at in IN_A_BATCH else 1)
        self._count = 0

    async def run(self) -> None:
        """Consumes until it is told to stop, or its token belongs to another process."""
        connecting = gapless.connect(self._options.url, client_id="tokens", wait=True)
        async with connecting as connection, connection.session() as session:
            ended = ""
            while not ended and not self._stop:
                try:
                    await self._live(session)
                except gapless.StaleTokenError:
                    ended = "StaleTokenError"
                except LOST:
                    await asyncio.sleep(0.1)
        self._reporter.report(ended=ended)

    async def _live(self, session: gapless.Session) -> None:
        with closing(Effects(self._options.database, serializable=self._options.serializable)) as effects:
            self._stops.reach(POINTS[0])
            self._reporter.report(claims=True)
            _commit(effects.db, lambda: self._claim(effects))
            self._stops.reach(POINTS[2])
            self._count = len(effects.flights())
            # Who was killed between its commit and its report has nothing left to do, perhaps, that it could report.
            self._reporter.report(consumed=self._count, position=dict(self._token.ticks) if self._token else {})
            while not self._stop:
                try:
                    await self._consume(session, effects)
                except (gapless.SubscriptionTakenOverError, gapless.SubscriptionInUseError):
                    # Perhaps by somebody who claimed the token before this one did, and was paused. Who owns it?
                    token = self._token
                    if token is None:
                        return
                    _commit(effects.db, lambda token=token: self._tokens.save(effects.db, token))  # type: ignore[misc]

    def _claim(self, effects: Effects) -> None:
        self._token = self._tokens.claim(effects.db, create_table=True)
        self._stops.reach(POINTS[1])

    async def _consume(self, session: gapless.Session, effects: Effects) -> None:
        start = self._token or "earliest"
        async with session.subscribe("flights.#", name=self._options.name, start=start, in_use="takeover") as events:
            self._stop.then(events.drain)
            self._stops.reach(POINTS[3])
            async for batch in events.batches(max_events=EVENTS):
                self._stops.reach(POINTS[4])
                _commit(effects.db, lambda batch=batch: self._keep(effects, batch))  # type: ignore[misc]
                self._token = batch.token
                self._stops.reach(POINTS[7])
                await events.acknowledge(batch.token)
                self._stops.reach(POINTS[8])
                self._count += len(batch)
                self._reporter.report(consumed=self._count, position=dict(batch.token.ticks), committed=True)

    def _keep(self, effects: Effects, batch: gapless.Batch) -> None:
        effects.add([event.body.decode() for event in batch])
        self._stops.reach(POINTS[5])
        self._tokens.save(effects.db, batch.token)
        self._stops.reach(POINTS[6])


async def _main(options: argparse.Namespace) -> None:
    await Application(options, Stop()).run()


def main() -> None:
    """Reads the arguments and consumes."""
    parser = argparse.ArgumentParser(description="Keeps flights and its token in a database.")
    for name in ("--database", "--url", "--name"):
        parser.add_argument(name, required=True)
    parser.add_argument("--serializable", action="store_true")
    parser.add_argument("--pause-at", choices=("", *POINTS), default="")
    run_loop(_main(parser.parse_args()))


# ----------------------------------------------------------------------------- all that are killed


class TokensRun(Run):
    """Applications with a database each."""

    def __init__(self, kills: int, pauses: int, seed: int, directory: Path) -> None:
        super().__init__(kills, pauses, POINTS, seed)
        self._directory = directory
        self._flights = made_up_flights(kills * FLIGHTS_PER_KILL + (1 + pauses) * FLIGHTS_PER_PAUSE, seed)

    async def run(self, postgres: Postgres) -> None:
        """All of it. Raises WorkerFailedError when a process fails by itself."""
        databases = {POSTGRES: postgres.address, SQLITE: str(self._directory / "effects.sqlite")}
        async with Supervisor(self._directory, self._flights, (), RATE) as supervisor:
            for name, database in databases.items():
                with closing(Effects(database)) as effects:
                    effects.create()
                self.rivals.append(_rivals(name, database, supervisor))
            self.stalled = not await supervisor.watch(self._script(supervisor, postgres))
            if not self.stalled:
                await supervisor.stop_all()
            self.published = supervisor.progress.published
        for name, database in databases.items():
            with closing(Effects(database)) as effects:
                consumed = effects.flights()
            self.proofs.append(prove(name, "", self._flights[: self.published], consumed))

    async def _script(self, supervisor: Supervisor, postgres: Postgres) -> bool:
        """All kills and pauses. Returns False when nothing moves any more."""
        progress = supervisor.progress
        turn = self.draw([BROKER, POSTGRES, SERVER, SQLITE])

        async def pause(point: str) -> bool:
            async def meanwhile() -> None:
                if self.random.random() < 0.5:
                    await supervisor.kill(BROKER)
                    self.killed[MEANWHILE] += 1

            return all(await asyncio.gather(*(rivals.pause(point, meanwhile) for rivals in self.rivals)))

        if not await self.strike(progress, lambda: self._kill(next(turn), supervisor, postgres), pause):
            return False
        done = progress.done
        await progress.until(lambda: progress.done > done or progress.ends is not None)
        await supervisor.stop(PUBLISHER)
        return await progress.until(lambda: progress.is_complete)

    async def _kill(self, victim: str, supervisor: Supervisor, postgres: Postgres) -> None:
        owners = {rivals.name: rivals.owner for rivals in self.rivals}
        if victim == SERVER:
            await asyncio.to_thread(postgres.stop, signal.SIGKILL)
            await asyncio.to_thread(postgres.start)
        elif not await supervisor.kill(owners.get(victim, victim)):
            return
        self.killed[victim] += 1


def _rivals(name: str, database: str, supervisor: Supervisor) -> Rivals:
    """Who consumes for a database."""

    def command(number: int, pause_at: str) -> list[str]:
        options = {"database": database, "url": supervisor.url, "name": name, "pause-at": pause_at}
        serializable = ["--serializable"] if number % 2 else []
        return [
            sys.executable,
            "-m",
            "bench.tokens",
            *(f"--{key}={value}" for key, value in options.items()),
            *serializable,
        ]

    return Rivals(name, supervisor, supervisor.progress, command, LOCKING if name == SQLITE else ())


# --------------------------------------------------------------------------------- what saving it costs


class Loop:
    """A consumer that commits the effects of batches, with the token or without it."""

    def __init__(self, session: gapless.Session, effects: Effects, name: str) -> None:
        self._effects = effects
        self._tokens: gapless.TokenStore | None = None
        if name == WITH:
            self._tokens = gapless.TokenStore(name)
            self._tokens.claim(effects.db, create_table=True)
            effects.db.commit()
        self._subscribing = session.subscribe("flights.#", name=name, start="earliest")

    async def run(self, rounds: int, turns: asyncio.Queue[None], took: list[float]) -> None:
        """Consumes a round at each turn. `took` gets the seconds of each batch."""
        db, tokens = self._effects.db, self._tokens
        async with self._subscribing as subscription:
            batches = subscription.batches(max_events=EVENTS, max_wait=10.0)
            for _ in range(rounds):
                await turns.get()
                for _ in range(ROUND):
                    began = perf_counter()
                    batch = await anext(batches)
                    assert len(batch) == EVENTS, f"{len(batch)} events after {perf_counter() - began:.1f} s"
                    self._effects.add([event.body.decode() for event in batch])
                    if tokens is not None:
                        tokens.save(db, batch.token)
                    db.commit()
                    await subscription.acknowledge(batch.token)
                    took.append(perf_counter() - began)
                turns.task_done()


async def costs(url: str, database: str, rounds: int) -> dict[str, list[float]]:
    """The seconds that each batch took, with the token and without it."""
    lines = made_up_flights(ROUND * EVENTS * (rounds + 1), seed=1)
    async with gapless.connect(url) as connection, connection.session() as session:
        messages = (gapless.Message(line.encode(), properties_of(line), topic_of(line)) for line in lines)
        async for _ in session.publisher().send_all(messages):
            pass
        with closing(Effects(database)) as effects:
            effects.create()
            turns: dict[str, asyncio.Queue[None]] = {name: asyncio.Queue() for name in (WITH, WITHOUT)}
            took: dict[str, list[float]] = {name: [] for name in turns}
            loops = [
                asyncio.create_task(Loop(session, effects, name).run(rounds + 1, turns[name], took[name]))
                for name in turns
            ]
            for number in range(rounds + 1):  # the first one fills caches
                for name in in_turn(list(turns), number):
                    turns[name].put_nowait(None)
                    await asyncio.wait([*loops, asyncio.ensure_future(turns[name].join())], return_when=FIRST_COMPLETED)
            await asyncio.gather(*loops)
    return {name: seconds[ROUND:] for name, seconds in took.items()}


# --------------------------------------------------------------------------------------- what came of it


def run(*, json: bool, kills: int, pauses: int, seed: int | None, rounds: int) -> dict[str, Any]:
    """Both parts, one after the other. Raises SystemExit if PostgreSQL is not installed."""
    bin_folder = programs()
    if bin_folder is None:
        raise SystemExit("PostgreSQL is not installed: apt-get install postgresql")
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    with running(bin_folder) as postgres, TemporaryDirectory(prefix="gapless-tokens-") as directory:
        killing = TokensRun(kills, pauses, seed, Path(directory, "run"))
        run_loop(killing.run(postgres))
    figures = killing.figures() | {"seed": seed}
    if rounds:
        with running(bin_folder) as postgres, running_broker() as broker:
            took = run_loop(costs(broker.url, postgres.address, rounds))
        ratio = median(took[WITH]) / median(took[WITHOUT])
        figures |= {f"{name.replace(' ', '_')}_ms": median(took[name]) * 1e3 for name in took}
        figures["ratio_cost"] = ratio
        figures["bars"]["ratio_cost"] = {"most": COST_MOST, "holds": ratio <= COST_MOST}
    if not json:
        _show(figures)
    return figures


def _show(figures: Mapping[str, Any]) -> None:
    show(figures, POINTS, "the rows")
    if "ratio_cost" in figures:
        print(
            f"a batch of {EVENTS} with the token {figures['with_token_ms']:.2f} ms, without"
            f" {figures['without_token_ms']:.2f} ms: ratio {figures['ratio_cost']:.3f}, at most {COST_MOST}"
        )


if __name__ == "__main__":
    main()
