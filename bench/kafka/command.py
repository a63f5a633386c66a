"""`python -m bench kafka`: its options, its parts, and what their figures have to be."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bench.kafka import intake, reading
from bench.papers.experiment import Bar
from bench.papers.report import WIDTH, number
from bench.peers import report
from bench.peers.command import some_of
from bench.peers.race import Results, race
from bench.peers.sizes import FULL, QUICK, Sizes
from bench.peers.system import RaceError, missing_jars, missing_package
from bench.peers.systems import SYSTEMS
from bench.rounds import OURS, Figures
from gapless_testing.kafka_node import JARS, VERSION

ON, TO = "gapless-on-kafka", "gapless-to-kafka"
GROUPS = ("kafka", "kafka-aio")
"""Consumer groups in both ways."""


class Options(NamedTuple):
    """How much of everything."""

    sizes: Sizes
    records: int
    """In `intake`."""
    alone: int
    """How many single records are wanted in `reading`."""


def measure_intake(options: Options) -> Figures:
    """What a gateway needs for a record of 200 bytes with three headers, layer by layer."""
    return intake.run(options.records, options.sizes.rounds)


def measure_catchup(options: Options) -> Figures:
    """100 subscribers of 25 % that catch up: gapless on Kafka, gapless on its own log, and consumer groups."""
    figures, results = in_race("catchup", [ON, OURS, *GROUPS], options)
    for name in (OURS, *GROUPS):
        known = name.replace("-", "_")
        figures[f"ratio_rate_to_{known}"] = _ratio(results, name, lambda round_: round_["deliveries_per_second"])
        figures[f"ratio_deliveries_per_cpu_second_to_{known}"] = _ratio(results, name, lambda round_: 1 / _cpu(round_))
    return figures


def _cpu(figures: Figures) -> float:
    """Processor time of a delivery, that of clients, Kafka and gapless together: what a busy machine spoils least."""
    return figures["server_cpu_us_per_delivery"] + figures["client_cpu_us_per_delivery"]


def measure_live(options: Options) -> Figures:
    """What Kafka sends to gapless: while records come, to who comes back, and for a single record."""
    found = reading.run(options.sizes, options.alone)
    return {f"{part}_{key}": value for part, figures in found.items() for key, value in figures.items()}


def measure_publish(options: Options) -> Figures:
    """One publisher, in batches of 256: through gapless to Kafka, to gapless alone, and with Kafka's own client."""
    figures, _ = in_race("publish", [TO, OURS, "kafka"], options)
    return figures


def measure_latency(options: Options) -> Figures:
    """From the producer to 100 subscribers of 25 %, at 100 events a second."""
    figures, _ = in_race("latency", [ON, OURS, *GROUPS], options)
    return figures


PARTS: Mapping[str, Callable[[Options], Figures]] = {
    "intake": measure_intake,
    "catchup": measure_catchup,
    "live": measure_live,
    "publish": measure_publish,
    "latency": measure_latency,
}
BARS: Mapping[str, Mapping[str, Bar]] = {
    "intake": {
        "node_cpu_us_per_record": Bar(most=4),
        "node_records_per_second": Bar(least=120_000),
    },
    "catchup": {
        "ratio_rate_to_gapless": Bar(least=0.7),
        "ratio_rate_to_kafka": Bar(least=4),
        "ratio_rate_to_kafka_aio": Bar(least=4),
    },
    "live": {"live_ratio_sent_to_log": Bar(most=1.1)},
    "publish": {"gapless_to_kafka_pipelined_events_per_second": Bar(least=100_000)},
    "latency": {"gapless_on_kafka_latency_p50_ms": Bar(most=10)},
}
"""What the figures of each part have to be."""


def in_race(work: str, systems: Sequence[str], options: Options) -> tuple[Figures, Results]:
    """The medians of a work of the race, of these systems as far as they are there."""
    results = Results([work])
    race(systems, results, options.sizes, report.tell)
    figures = {
        f"{name.replace('-', '_')}_{key}": value
        for name in results.systems
        for key, value in results.medians(work, name).items()
    }
    return figures, results


def _ratio(results: Results, name: str, figure: Callable[[Figures], float]) -> float:
    """How many times that of another system a figure of gapless on Kafka is: the median over the rounds."""
    (work,) = results.works
    ours, theirs = results.rounds.get((work, ON), {}), results.rounds.get((work, name), {})
    both = ours.keys() & theirs.keys()
    return median(figure(ours[round_]) / figure(theirs[round_]) for round_ in both) if both else 0.0


def add_options(parser: ArgumentParser) -> None:
    """What it can be told."""
    names = {name: name for name in PARTS}
    parser.add_argument(
        "--parts", type=some_of(names), default=list(PARTS), metavar="A,B", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {FULL.rounds}")
    parser.add_argument("--events", type=int, metavar="N", help=f"in `catchup`; default {FULL.events:,}")
    parser.add_argument("--records", type=int, metavar="N", help="taken in by `intake` in each round; default 200,000")
    parser.add_argument("--quick", action="store_true", help="tiny counts, one round: shows only that all runs")


def run(
    *, json: bool, parts: list[str], rounds: int | None, events: int | None, records: int | None, quick: bool
) -> dict[str, Any]:
    """The parts that were asked for, one after the other; how it goes is told on standard error."""
    needed = missing_package("aiokafka") or missing_jars(JARS) if parts == ["intake"] else SYSTEMS[ON].missing()
    if needed:
        sys.exit(f"bench kafka cannot run: {needed}")
    sizes = QUICK if quick else FULL
    sizes = replace(sizes, rounds=rounds or sizes.rounds, events=events or sizes.events)
    options = Options(sizes, records or (20_000 if quick else 200_000), 5 if quick else 100)
    found: dict[str, Any] = {}
    bars: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for part in parts:
        report.tell(f"{part}: {_what(part)}")
        try:
            found[part] = PARTS[part](options)
        except RaceError as error:
            failed[part] = str(error)
            report.tell(f"  {error}")
        for key, bar in BARS[part].items():
            value = found.get(part, {}).get(key)
            holds = value is not None and bar.holds(value)
            bars[f"{part}_{key}"] = {"value": value, "bar": str(bar), "holds": holds}
        if not json and part in found:
            show(part, found[part])
    return {"sizes": asdict(sizes), "kafka_version": VERSION, "failed": failed, **found, "bars": bars}


def _what(part: str) -> str:
    return (PARTS[part].__doc__ or "").splitlines()[0]


def show(part: str, figures: Figures) -> None:
    """Prints the table of a part."""
    table = Table("figure", Column("median", justify="right"), "bar", "holds", title=f"{part}: {_what(part)}")
    for key, value in figures.items():
        bar = BARS[part].get(key)
        verdict = "" if bar is None else "yes" if bar.holds(value) else "[bold red]NO[/]"
        table.add_row(escape(key.replace("_", " ")), number(value), str(bar or ""), verdict)
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)
