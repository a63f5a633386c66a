"""The figures of the contest as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.plot import COLOURS
from bench.rounds import OURS
from bench.spark.contest import Results
from bench.spark.work import WORKS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(results: Results, file: Path) -> None:
    """A panel for each work; the ending of the file's name decides its format."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.5 + 1.9 * len(results.works)), layout="constrained")
    panels = figure.subplots(len(results.works), 1, squeeze=False)
    for work, (panel,) in zip(results.works, panels, strict=True):
        _draw(panel, results, work)
    figure.savefig(file)


def _draw(axes: Axes, results: Results, work: str) -> None:
    small = WORKS[work].small
    key, unit = ("batch_ms", "ms a batch, less is better") if small else ("events_per_second", "events/s")
    names = [name for name in reversed(results.systems) if results.rounds.get((work, name))]
    values = [results.medians(work, name)[key] for name in names]
    bars = axes.barh(names, values, color=[COLOURS[_kind(name)] for name in names])
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], padding=3)
    axes.set_title(f"{WORKS[work].what}: {unit}")
    axes.margins(x=0.15)


def _kind(name: str) -> str:
    return "ours" if name == OURS else "theirs" if name.startswith("kafka") else "limit"
