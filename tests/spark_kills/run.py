"""A run: the flights are published once while JVM, workers and broker are killed in turn; then the proof."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, Final

import gapless
from gapless_flights.data import properties_of, topic_of
from integration.broker_process import BrokerProcess
from spark_kills.driver import PARQUET, QUERIES, SINK
from spark_kills.program import Pace, Program, ProgramError, Report
from spark_kills.proof import Place, Result, Verdict, committed, computed, judge_results, judge_rows, parquet_rows

VICTIMS: Final = ("worker", "broker", "jvm")
"""In turn. The broker is the SHB and the PHB in one process."""
PUBLISHERS: Final = 4
"""They belong to two pubends, so that each batch has two tasks."""
PORTION: Final = 250
"""Flights published as one batch."""
BATCHES_PER_KILL: Final = 4
"""A kill's share of the flights is read in so many batches at least."""
PUBLISH_SECONDS: Final = 2.0
"""A kill's share of the flights is published within so long, about."""
PAUSE_MOST: Final = 1.5
"""Seconds between progress and a kill, which so falls into a batch anywhere."""
IDLE_MAX: Final = 600.0
"""Seconds without any progress after which a run is given up."""


@dataclass
class Outcome:
    """What came of a run."""

    seed: int
    flights: int
    kills: Counter[str] = field(default_factory=Counter)
    published: int = 0
    driver_starts: int = 0
    mishaps: list[str] = field(default_factory=list)
    """Why Spark gave up by itself."""
    batches: Counter[str] = field(default_factory=Counter)
    """Committed batches that were seen, by query."""
    parquet: Verdict = field(default_factory=Verdict)
    sink: Verdict = field(default_factory=Verdict)
    parquet_files: int = 0
    parquet_files_abandoned: int = 0
    """Left by tasks and batches that were killed."""
    failure: str = ""
    elapsed_s: float = 0

    @property
    def is_right(self) -> bool:
        """Whether every row came out once, and gapless did not fail."""
        return not self.failure and self.parquet.is_right and self.sink.is_right and self.published == self.flights

    def fields(self) -> dict[str, Any]:
        """For JSON."""
        counts = {"kills": dict(self.kills), "batches": dict(self.batches)}
        return {**asdict(self), **counts, "elapsed_s": round(self.elapsed_s, 1), "right": self.is_right}


class Run:
    """Kills, waits for the end, and proves."""

    def __init__(
        self, directory: Path, flights: Sequence[str], kills: int, seed: int, say: Callable[[str], None]
    ) -> None:
        self.outcome = Outcome(seed, len(flights))
        self._directory = directory
        self._flights = flights
        self._kills = kills
        self._random = Random(seed)
        self._say = say
        self._began = monotonic()
        self._published: dict[Place, str] = {}
        self._ends: dict[str, dict[str, int]] = {name: {} for name in QUERIES}
        """How far each query is."""
        self._pace = Pace(IDLE_MAX)
        self._share = -(-len(flights) // (kills + 1))
        self._released = 0
        """So many flights may be published by now."""
        self._room = asyncio.Event()
        pubends = {"pubends": [{"name": "flights", "count": 2}]}
        self._broker = BrokerProcess(directory / "broker", phb=pubends)
        self._program: Program | None = None

    async def run(self) -> Outcome:
        """All of it."""
        async with self._broker:
            events = max(1, self._share // BATCHES_PER_KILL)
            self._program = Program(self._directory, self._broker.url, events, self._on_report)
            await self._reserve()
            publishing = asyncio.create_task(self._publish())
            try:
                await self._program.start()
                await self._kill()
                await self._finish(publishing)
            except ProgramError as error:
                self.outcome.failure = str(error)
            finally:
                publishing.cancel()
                await asyncio.wait([publishing])
                await self._program.abandon()
            await self._prove()
        self.outcome.elapsed_s = monotonic() - self._began
        return self.outcome

    # What happens.

    async def _reserve(self) -> None:
        """What is computed stays until it was looked at."""
        async with gapless.connect(self._broker.url, client_id="proof") as connection:
            await connection.attach("proof", "made_good.#", start="earliest")

    async def _publish(self) -> None:
        """Publishes what is released, each flight once, whatever becomes of the broker meanwhile."""
        async with (
            gapless.connect(self._broker.url, client_id="timetable", wait=True) as connection,
            connection.session() as session,
        ):
            publishers = [session.publisher(name=f"timetable-{number}") for number in range(PUBLISHERS)]
            for number, start in enumerate(range(0, len(self._flights), PORTION)):
                while start >= self._released:
                    self._room.clear()
                    await self._room.wait()
                lines = self._flights[start : start + PORTION]
                messages = [gapless.Message(line.encode(), properties_of(line), topic_of(line)) for line in lines]
                receipts = await publishers[number % PUBLISHERS].send_batch(messages)
                places = ((receipt.pubend, receipt.tick) for receipt in receipts)
                self._published.update(zip(places, lines, strict=True))
                self.outcome.published += len(lines)
                self._pace.moved()
                await asyncio.sleep(PUBLISH_SECONDS * PORTION / self._share)

    async def _kill(self) -> None:
        """Kills as often as was asked for. Most kills wait for a batch; every fourth hits what recovers."""
        turn = cycle(VICTIMS)
        for number in range(1, self._kills + 1):
            self._release(self._released + self._share)
            done = self.outcome.batches.copy()
            if number % 4:
                await self._until(partial(self._both_moved, done))
            await asyncio.sleep(self._random.uniform(0, PAUSE_MOST))
            victim = next(turn)
            await self._kill_one(victim)
            self.outcome.kills[victim] += 1
            self._tell(f"killed: {victim}")
        self._release(len(self._flights))

    def _both_moved(self, done: Counter[str]) -> bool:
        return all(self.outcome.batches[name] > done[name] for name in QUERIES)

    def _release(self, flights: int) -> None:
        self._released = flights
        self._room.set()

    async def _kill_one(self, victim: str) -> None:
        assert self._program is not None
        if victim == "broker":
            await self._broker.restart()
        elif victim == "jvm":
            while not await self._program.kill_jvm():
                await self._until_later()
        else:
            while not self._program.kill_worker(self._random.choice):
                await self._until_later()

    async def _finish(self, publishing: asyncio.Task[None]) -> None:
        """Waits until both queries have everything that is for them, and ends the program in order."""
        await self._until(publishing.done)
        publishing.result()
        wanted = self._wanted()
        await self._until(lambda: all(self._has(name, ends) for name, ends in wanted.items()))
        assert self._program is not None
        await self._program.stop()
        self._tell("all is read")

    def _wanted(self) -> dict[str, dict[str, int]]:
        """For each query the last tick of each pubend that is for it."""
        ends: dict[str, dict[str, int]] = {name: {} for name in QUERIES}
        for place, line in self._published.items():
            for name in QUERIES if computed(place, line) else (PARQUET,):
                ends[name][place[0]] = max(place[1], ends[name].get(place[0], 0))
        return ends

    def _has(self, name: str, ends: dict[str, int]) -> bool:
        return all(self._ends[name].get(pubend, 0) >= tick for pubend, tick in ends.items())

    async def _until(self, holds: Callable[[], bool]) -> None:
        """Waits; raises ProgramError when the program fails or nothing moves any more."""
        assert self._program is not None
        program = self._program
        moves = await self._pace.until(lambda: program.failure is not None or holds())
        if program.failure is not None:
            raise program.failure
        if not moves:
            raise ProgramError(f"nothing has moved for {IDLE_MAX:g} s")

    async def _until_later(self) -> None:
        assert self._program is not None
        if self._program.failure is not None:
            raise self._program.failure
        await asyncio.sleep(0.02)

    def _on_report(self, report: Report) -> None:
        self.outcome.batches[report["query"]] += 1
        self._ends[report["query"]] = report["end"]
        self._pace.moved()

    # What came of it.

    async def _prove(self) -> None:
        outcome, rows = self.outcome, self._directory / "rows"
        assert self._program is not None
        outcome.driver_starts, outcome.mishaps = self._program.starts, self._program.mishaps
        if not rows.exists():
            return
        outcome.parquet_files = len(committed(rows))
        outcome.parquet_files_abandoned = len(list(rows.glob("*.parquet"))) - outcome.parquet_files
        outcome.parquet = await asyncio.to_thread(judge_rows, self._published, parquet_rows(rows))
        self._tell("the Parquet files are judged")
        outcome.sink = judge_results(self._published, await self._results())
        self._tell("the results are judged")

    async def _results(self) -> list[Result]:
        """All that was published to the topics of results."""
        results: list[Result] = []
        async with gapless.connect(self._broker.url, client_id="proof") as connection:
            position = await connection.attach("proof", "made_good.#")
            heads = await connection.heads()
            for pubend, tick in heads.ticks.items():
                async for event in connection.read_range("proof", pubend, position.ticks.get(pubend, 0), tick):
                    properties = tuple(sorted(event.properties.items()))
                    results.append((event.topic, bytes(event.body).decode(), properties))  # type: ignore[arg-type]
        return results

    def _tell(self, what: str) -> None:
        outcome = self.outcome
        batches = ", ".join(f"{outcome.batches[name]} of {name}" for name in (PARQUET, SINK))
        self._say(
            f"{monotonic() - self._began:6.1f} s: {what}; {outcome.kills.total()} of {self._kills} kills,"
            f" {outcome.published:,} flights published, batches: {batches}"
        )
