"""The long loop of kill -9: `python bench/kill_loop.py --kills 200 [--seed S] [--json]`.

Flights that never were are published all the time, while the broker and the subscribers (and now and then
the publisher) are killed with SIGKILL at random moments, in turn. Most kills wait until something has moved
since the one before, so that they hit a system at work; every fourth does not, and hits one that recovers.
At the end every subscriber's database is held against the data, as `gapless demo` does it: nothing may be
lost, doubled or out of order. The exit status is 1 if anything is, or if nothing moves any more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from gapless_flights.data import made_up_flights
from gapless_flights.plan import PUBLISHER, victims
from gapless_flights.run import DemoOutcome, expectations, verdicts_of
from gapless_flights.selections import SELECTIONS, DemoSubscription
from gapless_flights.supervisor import Supervisor

RATE: Final = 500
"""Flights published a second."""
FLIGHTS_PER_KILL: Final = 3 * RATE
"""More than are published in the time that one kill takes; at the end the publisher is told to stop."""
PAUSE_MOST: Final = 0.6
"""Seconds. Twice this is about what it takes to be up again."""
REPORT_EVERY: Final = 10
"""Kills."""


class KillLoop:
    """Kills, waits for the end, and proves."""

    def __init__(self, kills: int, seed: int, selections: Sequence[DemoSubscription], *, quiet: bool) -> None:
        self._kills = kills
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - not for secrets
        self._selections = selections
        self._quiet = quiet
        self._began = monotonic()

    async def run(self, directory: Path) -> DemoOutcome:
        """All of it. Raises WorkerFailedError when a process fails by itself."""
        flights = made_up_flights(self._kills * FLIGHTS_PER_KILL, self._seed)
        async with Supervisor(directory, flights, self._selections, RATE) as supervisor:
            stalled = not await supervisor.watch(self._kill(supervisor))
            if not stalled:
                await supervisor.stop_all()
        progress = supervisor.progress
        expected = expectations(flights[: progress.published], self._selections)
        verdicts = verdicts_of(self._selections, expected, supervisor)
        seconds = monotonic() - self._began
        return DemoOutcome(self._seed, progress.published, seconds, stalled, supervisor.kills, verdicts)

    async def _kill(self, supervisor: Supervisor) -> bool:
        """Kills as often as was asked for, and waits for the end. Returns False when nothing moves any more."""
        progress = supervisor.progress
        turn = victims(self._random, [selection.name for selection in self._selections])
        for number in range(1, self._kills + 1):
            done = progress.done
            if number % 4 and not await progress.until(lambda done=done: progress.done > done):  # type: ignore[misc]
                return False
            await asyncio.sleep(self._random.uniform(0, PAUSE_MOST))
            await supervisor.kill(next(turn))
            if number % REPORT_EVERY == 0:
                self._report(number, supervisor)
        done = progress.done
        await progress.until(lambda: progress.done > done or progress.ends is not None)
        await supervisor.stop(PUBLISHER)
        return await progress.until(lambda: progress.is_complete)

    def _report(self, number: int, supervisor: Supervisor) -> None:
        if not self._quiet:
            progress = supervisor.progress
            print(
                f"{monotonic() - self._began:7.1f} s: {number} kills, published {progress.published:,},"
                f" consumed {sum(progress.consumed.values()):,}",
                flush=True,
            )


def main() -> None:
    """Reads the arguments, runs the loop and prints how it went."""
    parser = argparse.ArgumentParser(description="Kills brokers and subscribers, and proves that nothing is lost.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--subscribers", type=int, default=4, choices=range(1, len(SELECTIONS) + 1))
    parser.add_argument("--directory", type=Path, help="where the data go, and stay; must not exist")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if arguments.seed is None else arguments.seed
    loop = KillLoop(arguments.kills, seed, SELECTIONS[: arguments.subscribers], quiet=arguments.json)
    with TemporaryDirectory(prefix="gapless-kills-") as temporary:
        outcome = asyncio.run(loop.run(arguments.directory or Path(temporary, "run")))
    if arguments.json:
        print(json.dumps(outcome.fields()))
    else:
        print_result(outcome)
    sys.exit(0 if outcome.is_right else 1)


def print_result(outcome: DemoOutcome) -> None:
    """Says for people what was counted."""
    from gapless_flights.report import conclusion

    verdicts = outcome.verdicts
    lost, doubled, reordered = (
        sum(getattr(verdict, what) for verdict in verdicts) for what in ("missing", "doubled", "reordered")
    )
    print(f"{sum(outcome.kills.values())} kills: {lost} lost, {doubled} doubled, {reordered} reordered")
    print("\n".join(conclusion(outcome)))


if __name__ == "__main__":
    main()
