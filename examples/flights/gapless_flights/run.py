"""The demo from its beginning to its end: publish, consume, kill, wait, prove."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from gapless_flights.data import fields_of
from gapless_flights.plan import BROKER, KAFKA, PUBLISHER, Kill
from gapless_flights.proof import SubscriptionProof, prove
from gapless_flights.selections import DemoSubscription
from gapless_flights.subscriber import consumed_flights
from gapless_flights.supervisor import DemoProgress, Supervisor

if TYPE_CHECKING:
    from gapless_flights.report import Report

LOOK: Final = 0.2
"""Seconds between two looks at the progress, for who watches."""


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What a run is to do."""

    flights: Sequence[str]
    """What is published, in this order."""
    selections: Sequence[DemoSubscription]
    plan: Sequence[Kill]
    seed: int
    rate: float
    """Flights a second at most; 0: no limit."""
    directory: Path

    @property
    def introduction(self) -> str:
        """What is going to be done, for people."""
        return (
            f"publishing {len(self.flights):,} flights to {len(self.selections)} subscribers,"
            f" with {len(self.plan)} kills (seed {self.seed})"
        )

    def supervisor(self, _say: Callable[[str], None]) -> Supervisor:
        """All processes of the run; starts them as a context. What takes long is said."""
        return Supervisor(self.directory, self.flights, self.selections, self.rate)

    def verdicts(self, expected: Mapping[str, Sequence[str]], supervisor: Supervisor) -> list[SubscriptionProof]:
        """What each subscriber has in its database, held against the flights that it should have."""
        return verdicts_of(self.selections, expected, supervisor)


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """How a run went."""

    seed: int
    published: int
    seconds: float
    stalled: bool
    """Whether it was given up because nothing moved any more."""
    kills: Mapping[str, int]
    verdicts: Sequence[SubscriptionProof]

    @property
    def is_right(self) -> bool:
        """Whether it came to its end, and every subscriber consumed exactly what it should have, in order, once."""
        return not self.stalled and all(verdict.is_right for verdict in self.verdicts)

    @property
    def consumed(self) -> int:
        """By all subscribers together."""
        return sum(verdict.consumed for verdict in self.verdicts)

    def fields(self) -> dict[str, Any]:
        """As JSON says it."""
        subscribers = sum(count for name, count in self.kills.items() if name not in {BROKER, PUBLISHER, KAFKA})
        return {
            "right": self.is_right,
            "seed": self.seed,
            "published": self.published,
            "consumed": self.consumed,
            "seconds": round(self.seconds, 3),
            "stalled": self.stalled,
            "kills": {
                "broker": self.kills[BROKER],
                "publisher": self.kills[PUBLISHER],
                "subscribers": subscribers,
                **({KAFKA: self.kills[KAFKA]} if KAFKA in self.kills else {}),
            },
            "subscriptions": [asdict(verdict) | {"right": verdict.is_right} for verdict in self.verdicts],
        }


def expectations(flights: Sequence[str], selections: Sequence[DemoSubscription]) -> dict[str, list[str]]:
    """What each subscriber has to consume: from the data, without gapless."""
    expected: dict[str, list[str]] = {selection.name: [] for selection in selections}
    anywhere = [selection for selection in selections if selection.among is None]
    by_text: dict[tuple[str, str], list[DemoSubscription]] = {}
    for selection in selections:
        if selection.among is not None:
            by_text.setdefault(selection.among, []).append(selection)
    columns = {column for column, _ in by_text}
    for line in flights:
        fields = fields_of(line)
        near = [selection for column in columns for selection in by_text.get((column, fields[column]), ())]
        for selection in (*anywhere, *near):
            if selection.selects(fields):
                expected[selection.name].append(line)
    return expected


async def carry_out(run: DemoRun, report: Report) -> DemoOutcome:
    """Carries a run out to its proof. Raises WorkerFailedError when a process fails by itself."""
    expected = expectations(run.flights, run.selections)
    began = monotonic()
    async with run.supervisor(report.say) as supervisor:
        report.started(run, {name: len(rows) for name, rows in expected.items()})
        async with shown(supervisor, report):
            total = len(run.flights) + sum(map(len, expected.values()))
            stalled = not await supervisor.watch(_kill_and_wait(run.plan, total, supervisor, report))
            if not stalled:
                await supervisor.stop_all()
    seconds = monotonic() - began
    verdicts = run.verdicts(expected, supervisor)
    return DemoOutcome(run.seed, supervisor.progress.published, seconds, stalled, supervisor.kills, verdicts)


def verdicts_of(
    selections: Sequence[DemoSubscription], expected: Mapping[str, Sequence[str]], supervisor: Supervisor
) -> list[SubscriptionProof]:
    """What each subscriber has in its database, held against what it should have."""
    return [
        prove(
            selection.name,
            selection.selector,
            expected[selection.name],
            consumed_flights(supervisor.database(selection)),
        )
        for selection in selections
    ]


@asynccontextmanager
async def shown(supervisor: Supervisor, report: Report) -> AsyncIterator[None]:
    """Shows the progress now and then while the block runs, and once at its end."""

    async def show() -> None:
        while True:
            report.progress(supervisor.progress, supervisor.kills)
            await asyncio.sleep(LOOK)

    showing = asyncio.create_task(show())
    try:
        yield
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing
        report.progress(supervisor.progress, supervisor.kills)


async def _kill_and_wait(plan: Sequence[Kill], total: int, supervisor: Supervisor, report: Report) -> bool:
    """Kills as planned and waits for the end. Returns False when nothing moves any more."""
    progress: DemoProgress = supervisor.progress
    for kill in plan:
        if not await progress.until(lambda at=kill.at: progress.done >= at * total):  # type: ignore[misc]
            return False
        await asyncio.sleep(kill.pause)
        if await supervisor.kill(kill.victim):
            report.killed(kill.victim, progress)
    return await progress.until(lambda: progress.is_complete)
