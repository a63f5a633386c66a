"""Says what nobody should say to a network of brokers, and looks who bears it: `python3 dev.py fuzz`.

Clients, and dialers that are no nodes, send mutated frames to each node of a small network. One node that has proven
who it is says false things: mutated frames, older ones, twice, not at all. Meanwhile clients are at work. The exit
status is 1 if a process ends or starts over, if a client that the liar does not stand before is not served, if memory
grows, or if nobody names the liar.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if str(TESTS) not in sys.path:
    sys.path.insert(0, str(TESTS))

from fuzz.run import Outcome, Run  # noqa: E402


def main(arguments: list[str] | None = None) -> int:
    """Runs it, says what came of it, and returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="dev.py fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600, help="how long it goes on")
    parser.add_argument("--seed", type=int, help="of what is said; the moments are real")
    options = parser.parse_args(arguments)
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    directory = Path(tempfile.mkdtemp(prefix="gapless-fuzz-"))
    logging.getLogger("gapless").setLevel(logging.CRITICAL)  # the liar meets its own lies
    print(f"seed {seed}, in {directory}", flush=True)
    outcome = asyncio.run(Run(directory, options.seconds, seed, lambda text: print(text, flush=True)).run())
    show(outcome)
    return 0 if not outcome.faults and outcome.blamed else 1


def show(outcome: Outcome) -> None:
    """The outcome for people."""
    print("said:", ", ".join(f"{count:,} {what}" for what, count in sorted(outcome.done.items())))
    print("served:", dict(outcome.served), f"the slowest after {outcome.slowest:.2f} s")
    for node, sizes in outcome.memory.items():
        shown = ", ".join(str(size >> 20) for size in sizes[:: max(1, len(sizes) // 10)])
        print(f"memory of {node}, MiB: {shown}")
    print("the liar was named:", dict(outcome.blamed) or "by nobody")
    for fault in outcome.faults:
        print("FAULT:", fault)


if __name__ == "__main__":
    sys.exit(main())
