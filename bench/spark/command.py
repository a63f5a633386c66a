"""`python -m bench spark`: its options, and what it does."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench.peers.command import some_of
from bench.peers.report import tell
from bench.spark.contenders import CONTENDERS
from bench.spark.work import FULL, QUICK, WORKS

UNIX_SOCKET: Final = "spark.python.unix.domain.socket.enabled"


def add_options(parser: ArgumentParser) -> None:
    """What the contest can be told."""
    systems, works = {name: name for name in CONTENDERS}, {name: name for name in WORKS}
    parser.add_argument(
        "--systems", type=some_of(systems), default=list(systems), metavar="A,B", help=f"of {', '.join(systems)}"
    )
    parser.add_argument(
        "--work", type=some_of(works), default=list(works), metavar="A,B", help=f"of {', '.join(works)}"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draws the figures (.svg or .png)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {FULL.rounds}")
    parser.add_argument("--events", type=int, metavar="N", help=f"in four batches; default {FULL.events}")
    parser.add_argument("--unix-socket", action="store_true", help=f"with {UNIX_SOCKET}, which Spark has from 4.1 on")
    parser.add_argument("--quick", action="store_true", help="tiny counts, one round: shows only that all runs")


def run(
    *,
    json: bool,
    systems: list[str],
    work: list[str],
    plot: Path | None,
    rounds: int | None,
    events: int | None,
    unix_socket: bool,
    quick: bool,
) -> dict[str, Any]:
    """The whole contest; how it goes is told on standard error."""
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        sys.exit("PySpark 4 and pyarrow are not installed: the extra `spark`")
    if plot and find_spec("matplotlib") is None:
        sys.exit("--plot needs matplotlib, of the dependency group `bench`")
    from bench.spark import report
    from bench.spark.contest import Results, contest

    sizes = QUICK if quick else FULL
    if events:
        sizes = replace(sizes, events=events // 4 * 4, batch=events // 4)
    sizes = replace(sizes, rounds=rounds or sizes.rounds)
    settings = {UNIX_SOCKET: "true"} if unix_socket else {}
    results = Results(work)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        contest(results, systems, sizes, settings, tell)
    except KeyboardInterrupt:
        tell("interrupted: what follows is of the rounds that were finished")
    if not json:
        report.show(results, sizes)
    if plot:
        from bench.spark.plot import draw

        draw(results, plot)
    return report.as_json(results, sizes, settings)
