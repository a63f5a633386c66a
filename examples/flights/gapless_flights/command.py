"""The command `gapless demo`, which the entry point `demo` of the group `gapless.cli` adds."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.options import AsJson
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from gapless_flights.report import Report
    from gapless_flights.run import DemoOutcome, DemoRun

ROWS = 336_776
SUBSCRIBERS_MAX = 8
SECONDS_PER_KILL = 0.7
"""A run lasts at least so long for each kill: a short one would be over before they happen."""


app = typer.Typer(add_completion=False)


@app.command()
def demo(
    *,
    rows: Annotated[int, typer.Option(min=1, max=ROWS, help="How many flights, from the first of the year on.")] = ROWS,
    subscribers: Annotated[int, typer.Option(min=1, max=SUBSCRIBERS_MAX)] = 6,
    kills: Annotated[
        int, typer.Option(min=0, max=1000, help="How often the broker, a subscriber or the publisher is killed.")
    ] = 9,
    seed: Annotated[int | None, typer.Option(help="Decides whom to kill when; drawn if it is not given.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all data there to be looked at.")] = False,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the data go, and stay; new or empty.")] = None,
    as_json: AsJson = False,
) -> None:
    """Publish real flights, kill subscribers and the broker in mid-run, and prove that nothing is wrong.

    Each subscriber is a process that keeps its token and what it consumed in one SQLite transaction. At the
    end what they have is compared with the data; the exit status is 1 if a single row is missing, doubled or
    out of order.
    """
    from rich.console import Console

    from gapless.cli.output import print_json
    from gapless_flights.data import flights
    from gapless_flights.plan import kill_plan
    from gapless_flights.report import print_outcome, report_for
    from gapless_flights.run import DemoRun
    from gapless_flights.selections import SELECTIONS

    console = Console(stderr=as_json)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    selections = SELECTIONS[:subscribers]
    plan = kill_plan(seed, kills, [selection.name for selection in selections])
    rate = rows / (kills * SECONDS_PER_KILL) if kills else 0
    with directory(data, keep=keep) as place:
        run = DemoRun(flights(rows), selections, plan, seed, rate, place)
        outcome = run_to_its_end(run, report_for(console))
        kept = str(place) if keep or data is not None else None
    if as_json:
        print_json({**outcome.fields(), "data": kept})
    else:
        print_outcome(console, outcome)
        if kept is not None:
            console.print(f"The data are in {kept}", soft_wrap=True, highlight=False)
    if not outcome.is_right:
        raise typer.Exit(1)


@contextmanager
def directory(data: Path | None, *, keep: bool) -> Iterator[Path]:
    """Where a run's data go. Raises ConfigurationError when there is something already."""
    if data is not None:
        if data.exists() and not (data.is_dir() and not any(data.iterdir())):
            raise ConfigurationError(f"--data: {data} is there already, and not an empty directory")
        yield data.absolute()
        return
    place = Path(tempfile.mkdtemp(prefix="gapless-demo-"))
    try:
        yield place
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def run_to_its_end(run: DemoRun, report: Report) -> DemoOutcome:
    """Carries a run out; Ctrl-C and SIGTERM end its processes too."""
    from gapless_flights.run import carry_out

    async def main() -> DemoOutcome:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await carry_out(run, report)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        report.close()
