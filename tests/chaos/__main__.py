"""Does everything bad at once to a broker and its clients, and proves what gapless promises: `python3 dev.py chaos`.

A broker, publishers and thirty subscriptions run in processes of their own, over the public API alone, behind proxies
that cut, stall, truncate, corrupt and lose what passes. Meanwhile they are killed, ended and stopped for longer than
a session lives. At the end what anybody was told is held against what plain Python says. The exit status is 1
if one event is missing, doubled, out of order or nobody's, if a gap is false or in pieces, if a position that was
handed out is refused, or if something stands still; then everything is kept.
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

from chaos.run import Outcome, Run  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Runs it, says what came of it, and returns the exit status."""
    options = _parser().parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    directory = options.directory or Path(tempfile.mkdtemp(prefix="gapless-chaos-"))
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing that was started may go on running
    logging.getLogger("gapless").setLevel(logging.ERROR)  # that a broker is gone is no news
    say(f"seed {seed}, in {directory}")
    outcome = asyncio.run(Run(directory, options.seconds, seed, say).run())
    print(json.dumps(outcome.fields(), indent=2) if options.json else "\n".join(_lines(outcome)))
    if not outcome.is_right:
        say(f"it is all in {directory}")
    elif options.directory is None:
        shutil.rmtree(directory)
    return 0 if outcome.is_right else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="dev.py chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300, help="how long faults go on")
    parser.add_argument("--seed", type=int, help="of events, subscriptions and faults; their moments are real")
    parser.add_argument("--directory", type=Path, help="where everything goes, and stays; must be empty")
    parser.add_argument("--json", action="store_true", help="one object, for programs")
    return parser


def _lines(outcome: Outcome) -> list[str]:
    """The outcome for people."""
    verdict = outcome.verdict
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.faults.items()))
    receipts = f"{outcome.published:,} have a receipt, {verdict.uncertain:,} uncertain ones are not there"
    processes = f"of processes that were started {outcome.starts} times; {outcome.elapsed_s:.0f} s in all"
    lines = [
        f"seed {outcome.seed}: {outcome.faults.total()} faults in {outcome.seconds:g} s ({faults})",
        f"{verdict.events:,} events are in the logs, {receipts}",
        f"{verdict.handed:,} deliveries and {verdict.gaps} gaps, in {outcome.attaches:,} sessions {processes}",
    ]
    lines += [f"FOUND: {example}" for example in verdict.examples]
    lines += [f"found: {count} x {kind}" for kind, count in verdict.findings.items()]
    if outcome.failure:
        lines.append(f"it failed: {outcome.failure}")
    return lines if not outcome.is_right else [*lines, "all is right"]


def say(line: str) -> None:
    """Tells the person who waits."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
