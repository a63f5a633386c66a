"""`python -m bench peers`: its options, and what it does."""

from __future__ import annotations

import signal
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.peers import report
from bench.peers.plot import draw
from bench.peers.race import Results, race
from bench.peers.sizes import FULL, QUICK
from bench.peers.systems import RACERS, SYSTEMS
from bench.peers.works import WORKS

LETTERS = dict(zip("abcde", WORKS, strict=True))
"""The short names of the work."""


def add_options(parser: ArgumentParser) -> None:
    """What the race can be told."""
    systems = {name: name for name in SYSTEMS}
    works = {name: name for name in WORKS} | LETTERS
    lettered = ", ".join(f"{letter} {name}" for letter, name in LETTERS.items())
    parser.add_argument(
        "--systems", type=some_of(systems), default=RACERS, metavar="A,B", help=f"of {', '.join(SYSTEMS)}"
    )
    parser.add_argument("--work", type=some_of(works), default=list(WORKS), metavar="A,B", help=f"of {lettered}")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draws the figures (.svg or .png)")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"default {FULL.rounds}")
    parser.add_argument("--quick", action="store_true", help="tiny counts, one round: shows only that all runs")


def some_of(known: Mapping[str, str]) -> Callable[[str], list[str]]:
    """Reads names with commas between them."""

    def parse(text: str) -> list[str]:
        asked = text.split(",")
        if unknown := [name for name in asked if name not in known]:
            raise ArgumentTypeError(f"there is no {', '.join(unknown)}; there are {', '.join(known)}")
        return list(dict.fromkeys(known[name] for name in asked))

    return parse


def run(
    *, json: bool, systems: list[str], work: list[str], plot: Path | None, rounds: int | None, quick: bool
) -> dict[str, Any]:
    """The whole race; how it goes is told on standard error."""
    if plot and find_spec("matplotlib") is None:
        sys.exit("--plot needs matplotlib, of the dependency group `bench`")
    sizes = QUICK if quick else FULL
    sizes = replace(sizes, rounds=rounds or sizes.rounds)
    results = Results(work)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        race(systems, results, sizes, report.tell)
    except KeyboardInterrupt:
        report.tell("interrupted: what follows is of the rounds that were finished")
    if not json:
        report.show(results, sizes)
    if plot:
        draw(results, plot)
    return report.as_json(results, sizes)
