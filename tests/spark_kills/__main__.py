"""Kills a Spark pipeline again and again, and proves that every row came out once: `python3 dev.py spark-kills`.

All flights are published once to a broker in a process of its own. A Spark program reads them into Parquet, and some of
them through a computation into another topic. Meanwhile SIGKILL goes in turn to a Python worker of an executor, to the
broker (PHB and SHB), and to the JVM with the driver; each is started again. At the end every row is held against what
plain Python computes. The exit status is 1 if one is missing, doubled or wrong; then everything is kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import secrets
import shutil
import signal
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from gapless_flights.data import ROWS, flights  # noqa: E402
from spark_kills.run import Outcome, Run  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Runs it, says what came of it, and returns the exit status."""
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    directory = options.directory or Path(tempfile.mkdtemp(prefix="gapless-spark-kills-"))
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing that was started may go on running
    logging.getLogger("gapless").setLevel(logging.ERROR)  # that a broker is gone is no news
    outcome = asyncio.run(Run(directory, flights(options.flights), options.kills, seed, say).run())
    print(json.dumps(outcome.fields(), indent=2) if options.json else "\n".join(_lines(outcome)))
    if not outcome.is_right:
        say(f"it is all in {directory}")
    elif options.directory is None:
        shutil.rmtree(directory)
    return 0 if outcome.is_right else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev.py spark-kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--flights", type=int, default=ROWS, help="so many of them, the first ones")
    parser.add_argument("--seed", type=int, help="of the moments and of the victims among workers")
    parser.add_argument("--directory", type=Path, help="where everything goes, and stays; must be empty")
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    return parser


def _lines(outcome: Outcome) -> list[str]:
    """The outcome for people."""
    kills = ", ".join(f"{count} of the {victim}" for victim, count in outcome.kills.items())
    counts = f"{outcome.published:,} flights, {outcome.driver_starts} starts of the driver"
    lines = [f"seed {outcome.seed}: {outcome.kills.total()} kills ({kills}) in {outcome.elapsed_s:.0f} s, {counts}"]
    for name, verdict in (("Parquet", outcome.parquet), ("gapless", outcome.sink)):
        lines.append(
            f"{name}: {verdict.found:,} rows of {verdict.expected:,}, {verdict.missing} missing,"
            f" {verdict.doubled} doubled, {verdict.wrong} wrong"
        )
        lines += verdict.examples
    lines.append(f"{outcome.parquet_files_abandoned} Parquet files of killed tasks lie beside {outcome.parquet_files}")
    lines += [f"Spark gave up by itself: {mishap}" for mishap in outcome.mishaps]
    if outcome.failure:
        lines.append(f"it failed: {outcome.failure}")
    return lines


def say(line: str) -> None:
    """Tells the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
