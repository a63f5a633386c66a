"""What came of the experiments, as tables for people and as one object for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from bench.papers.experiment import TITLES, Experiment, Outcome

WIDTH = 130
"""Of the tables, where no terminal says how wide it is."""


def tell(line: str) -> None:
    """How it goes; never in the way of the results."""
    print(line, file=sys.stderr, flush=True)


def show(experiment: Experiment, outcome: Outcome) -> None:
    """One table: what the paper reported beside what was measured."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    title = f"{experiment.name}: {experiment.title} ({experiment.paper}, {experiment.figure}; {experiment.how})"
    table = Table("figure", "the paper", Column("gapless", justify="right"), "bar", "holds", title=title)
    for key, figure in experiment.figures.items():
        value, bar = outcome.values[key], figure.bar
        verdict = "" if bar is None else "yes" if bar.holds(value) else "[bold red]NO[/]"
        table.add_row(escape(figure.what), escape(figure.paper) or "–", number(value), str(bar or ""), verdict)
    console.print(table)
    console.print(experiment.setup, markup=False)


def number(value: float) -> str:
    """A figure for people."""
    if value == int(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def as_json(outcomes: Mapping[str, tuple[Experiment, Outcome]]) -> dict[str, Any]:
    """Everything; keys of figures carry their units."""
    return {
        "papers": TITLES,
        "experiments": {
            name: {
                "paper": experiment.paper,
                "figure": experiment.figure,
                "title": experiment.title,
                "how": experiment.how,
                "setup": experiment.setup,
                "figures": {key: outcome.values[key] for key in experiment.figures},
                "the_paper_reports": {key: figure.paper for key, figure in experiment.figures.items() if figure.paper},
                "bars": {
                    key: {"bar": str(figure.bar), "holds": figure.bar.holds(outcome.values[key])}
                    for key, figure in experiment.figures.items()
                    if figure.bar is not None
                },
            }
            for name, (experiment, outcome) in outcomes.items()
        },
    }
