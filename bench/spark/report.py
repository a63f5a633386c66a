"""What came of the contest, as tables for people and as one object for programs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Column, Table

from bench.rounds import OURS
from bench.spark.contenders import CONTENDERS
from bench.spark.contest import Results
from bench.spark.work import WORKS, Sizes

WIDTH: Final = 150
"""Of the tables, where no terminal says how wide it is."""


def show(results: Results, sizes: Sizes) -> None:
    """A table for each work."""
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for work in results.works:
        console.print(_table(results, work, sizes))
        for (of, name), why in results.failed.items():
            if of == work:
                console.print(f"{name} failed: {why}", markup=False)
    for name, why in results.missing.items():
        console.print(f"{name} did not run: {why}", markup=False)
    console.print(f"Medians of {sizes.rounds} rounds; how many times faster gapless is, round by round.")


def _table(results: Results, work: str, sizes: Sizes) -> Table:
    title = f"{work}: {WORKS[work].what}, {sizes.batch_of(WORKS[work]):,} events passed by a batch"
    table = Table(Column("system", no_wrap=True), "filters in", "events/s", "ms a batch", "gapless is", title=title)
    for name in results.systems:
        medians, ratio = results.medians(work, name), results.ratio(work, name)
        if medians:
            rate, milliseconds = f"{medians['events_per_second']:,.0f}", f"{medians['batch_ms']:,.0f}"
            faster = f"{ratio:,.2f} × as fast" if ratio else ""
            style = "bold" if name == OURS else ""
            table.add_row(name, CONTENDERS[name].filters_in, rate, milliseconds, faster, style=style)
    return table


def as_json(results: Results, sizes: Sizes, settings: Mapping[str, str]) -> dict[str, Any]:
    """Everything; keys of figures carry their units."""
    return {
        "sizes": asdict(sizes),
        "spark_settings": dict(settings),
        "systems": {
            name: {"title": CONTENDERS[name].title, "filters_in": CONTENDERS[name].filters_in}
            for name in results.systems
        },
        "missing": results.missing,
        "works": {
            work: {
                "what": WORKS[work].what,
                "medians": {name: results.medians(work, name) for name in results.systems},
                "gapless_times_faster": {name: results.ratio(work, name) for name in results.systems if name != OURS},
                "rounds": {name: list(results.rounds.get((work, name), {}).values()) for name in results.systems},
                "failed": {name: why for (of, name), why in results.failed.items() if of == work},
            }
            for work in results.works
        },
    }
