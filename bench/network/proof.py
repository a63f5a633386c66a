"""What a work in virtual time shows: figures, each with what it has to be, as a table or as one object.

Nodes, links and disks are the simulator's, the cores those of production, and all its oracles look on: a run in which
a promise breaks raises.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bench.papers.experiment import Figure, Sizes
from bench.papers.report import WIDTH, number


@dataclass(frozen=True, slots=True)
class Proof:
    """One work."""

    title: str
    setup: str
    """What was built up, and what happens to it."""
    figures: Mapping[str, Figure]
    """By the name that programs have for them, with its unit; in the order of the table."""
    play: Callable[[Sizes], Mapping[str, float]]
    """Does it; returns the value of each figure."""

    def run(self, *, json: bool, quick: bool) -> dict[str, Any]:
        """Does it, and prints the table unless an object was asked for."""
        values = self.play(Sizes(quick))
        if not json:
            self._show(values)
        return {
            "setup": self.setup,
            "figures": {key: values[key] for key in self.figures},
            "bars": {
                key: {"bar": str(figure.bar), "holds": figure.bar.holds(values[key])}
                for key, figure in self.figures.items()
                if figure.bar is not None
            },
        }

    def _show(self, values: Mapping[str, float]) -> None:
        console = Console(width=None if sys.stdout.isatty() else WIDTH)
        table = Table("figure", Column("gapless", justify="right"), "bar", "holds", title=self.title)
        for key, figure in self.figures.items():
            bar = figure.bar
            verdict = "" if bar is None else "yes" if bar.holds(values[key]) else "[bold red]NO[/]"
            table.add_row(escape(figure.what), number(values[key]), str(bar or ""), verdict)
        console.print(table)
        console.print(self.setup, markup=False)


def add_options(parser: ArgumentParser) -> None:
    """How much of it."""
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows only that all runs")
