"""The command `gapless demo`, which the entry point `demo` of the group `gapless.cli` adds."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
SUBSCRIBERS = 6
KAFKA_SUBSCRIBERS = KAFKA_SUBSCRIBERS_MAX = 1000
KAFKA_ROWS = 60_000
SECONDS_PER_KILL = 0.7
"""A run lasts at least so long for each kill: a short one would be over before they happen."""
KAFKA_SECONDS_PER_KILL = 4.0
"""The same where a broker of Kafka's has to come back in between."""


app = typer.Typer(add_completion=False)


@app.command()
def demo(
    *,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=ROWS,
            help=f"How many flights, from the first of the year on; {ROWS:,}, with --kafka {KAFKA_ROWS:,}.",
        ),
    ] = None,
    subscribers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=KAFKA_SUBSCRIBERS_MAX,
            help=f"{SUBSCRIBERS}, at most {SUBSCRIBERS_MAX}; with --kafka {KAFKA_SUBSCRIBERS:,}, which is the most.",
        ),
    ] = None,
    kills: Annotated[
        int, typer.Option(min=0, max=1000, help="How often the broker, a subscriber or the publisher is killed.")
    ] = 9,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Over a Kafka topic that an ordinary producer writes; kills Kafka, too.")
    ] = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="With --kafka: your own Kafka; only a topic of its own is made there."),
    ] = None,
    access: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --bootstrap: TOML with the tables [tls] and [sasl] of [[phb.kafka]]."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides whom to kill when; drawn if it is not given.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all data there to be looked at.")] = False,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the data go, and stay; new or empty.")] = None,
    as_json: AsJson = False,
) -> None:
    """Publish real flights, kill subscribers and the broker in mid-run, and prove that nothing is wrong.

    Each subscriber is a process that keeps its token and what it consumed in one SQLite transaction. At the
    end what they have is compared with the data; the exit status is 1 if a single row is missing, doubled or
    out of order. With --kafka the flights are written to a Kafka topic by a producer that knows nothing of
    gapless, and there are many more subscribers.
    """
    from rich.console import Console

    from gapless.cli.output import print_json
    from gapless_flights.report import print_outcome, report_for

    if bootstrap is not None and not kafka:
        raise ConfigurationError("--bootstrap says where your Kafka is: it needs --kafka")
    if access is not None and bootstrap is None:
        raise ConfigurationError("--access says how to get into your Kafka: it needs --bootstrap")
    if not kafka and subscribers is not None and subscribers > SUBSCRIBERS_MAX:
        raise ConfigurationError(f"--subscribers: without --kafka there are at most {SUBSCRIBERS_MAX}")
    console = Console(stderr=as_json)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    wanted = Wanted(rows, subscribers, kills, seed)
    with directory(data, keep=keep) as place:
        run = kafka_run(wanted, bootstrap, access, place) if kafka else own_run(wanted, place)
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a run was asked to do, as far as that was said."""

    rows: int | None
    subscribers: int | None
    kills: int
    seed: int


def own_run(wanted: Wanted, place: Path) -> DemoRun:
    """A run over gapless's own log."""
    from gapless_flights.data import flights
    from gapless_flights.plan import kill_plan
    from gapless_flights.run import DemoRun
    from gapless_flights.selections import SELECTIONS

    lines, kills = flights(wanted.rows or ROWS), wanted.kills
    selections = SELECTIONS[: wanted.subscribers or SUBSCRIBERS]
    plan = kill_plan(wanted.seed, kills, [selection.name for selection in selections])
    rate = len(lines) / (kills * SECONDS_PER_KILL) if kills else 0
    return DemoRun(lines, selections, plan, wanted.seed, rate, place)


def kafka_run(wanted: Wanted, bootstrap: str | None, access: Path | None, place: Path) -> DemoRun:
    """A run over a Kafka: a new one, or somebody's own."""
    from gapless_flights.data import TOPIC, flights
    from gapless_flights.kafka_access import KafkaAccess
    from gapless_flights.kafka_run import BROKERS, KafkaRun, check_aiokafka, consumer_names
    from gapless_flights.plan import kafka_kill_plan
    from gapless_flights.selections import many_selections

    check_aiokafka()
    own = None if bootstrap is None else KafkaAccess.of(bootstrap, access)
    lines, kills = flights(wanted.rows or KAFKA_ROWS), wanted.kills
    selections = many_selections(TOPIC, wanted.subscribers or KAFKA_SUBSCRIBERS)
    plan = kafka_kill_plan(wanted.seed, kills, consumer_names(len(selections)), 0 if own else BROKERS)
    rate = len(lines) / (kills * KAFKA_SECONDS_PER_KILL) if kills else 0
    return KafkaRun(lines, selections, plan, wanted.seed, rate, place, own)


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
