"""`python -m bench papers`: its options, and what it does."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from bench.papers import report
from bench.papers.catalogue import EXPERIMENTS
from bench.papers.experiment import TITLES, Sizes
from bench.papers.plot import draw

ALL = "all"


def add_options(parser: ArgumentParser) -> None:
    """What can be asked for."""
    lines = "; ".join(f"{name}: {experiment.title}" for name, experiment in EXPERIMENTS.items())
    parser.add_argument(
        "experiments",
        nargs="+",
        choices=[*EXPERIMENTS, *TITLES, ALL],
        metavar="NAME",
        help=f"{lines}; {', '.join(TITLES)}: all of that paper; {ALL}".replace("%", "%%"),
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draws them beside the papers' (.svg or .png)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows only that all runs")


def run(*, json: bool, experiments: list[str], plot: Path | None, quick: bool) -> dict[str, Any]:
    """Each experiment that was named, in the papers' order; how it goes is told on standard error."""
    if plot and find_spec("matplotlib") is None:
        sys.exit("--plot needs matplotlib, of the dependency group `bench`")
    outcomes = {}
    for name, experiment in EXPERIMENTS.items():
        if not {name, experiment.paper, ALL}.isdisjoint(experiments):
            began = monotonic()
            outcomes[name] = experiment, experiment.run(Sizes(quick))
            report.tell(f"{name}: {monotonic() - began:.0f} s")
            if not json:
                report.show(*outcomes[name])
    if plot:
        draw(list(outcomes.values()), plot)
    return report.as_json(outcomes)
