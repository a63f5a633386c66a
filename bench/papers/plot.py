"""What came of the experiments as a picture: to the left what the paper reports, to the right what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from bench.papers.experiment import FIGURE_LOST, Curve, Experiment, Outcome, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#1b6ca8", "#d1495b", "#edae49", "#66a182", "#8d6a9f", "#5c5c5c")


def draw(outcomes: Sequence[tuple[Experiment, Outcome]], file: Path) -> None:
    """A row for each panel of each experiment; the ending of the file's name decides its format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [(experiment, panel) for experiment, outcome in outcomes for panel in outcome.panels]
    figure = Figure(figsize=(12, 3.4 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 2, squeeze=False)
    for (experiment, panel), (left, right) in zip(rows, axes, strict=True):
        _draw_paper(left, experiment, panel)
        right.set_title(f"gapless: {panel.title}", fontsize="medium")
        _draw(right, panel, panel.ours)
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size, and they can be searched
        figure.savefig(file)


def _draw_paper(axes: Axes, experiment: Experiment, panel: Panel) -> None:
    axes.set_title(f"paper {experiment.paper}, {experiment.figure}", fontsize="medium")
    if panel.paper:
        _draw(axes, replace(panel, kind="line") if panel.kind == "steps" else panel, panel.paper)
        return
    axes.set_axis_off()
    states = fill(f"“{panel.states}”", 48) if panel.states else ""
    axes.text(0.5, 0.5, f"{states}\n\n({FIGURE_LOST})", ha="center", va="center", transform=axes.transAxes)


def _draw(axes: Axes, panel: Panel, curves: Sequence[Curve]) -> None:
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        if panel.kind == "bars":
            width = 0.8 / len(curves)
            places = [place + (number - (len(curves) - 1) / 2) * width for place in range(len(curve.y))]
            bars = axes.bar(places, curve.y, width, color=colour, label=curve.label)
            axes.bar_label(bars, [f"{value:,.3g}" for value in curve.y], fontsize="small")
            axes.set_xticks(range(len(curve.x)), [str(label) for label in curve.x])
        elif panel.kind == "points" and len(curve.x) > 2:
            axes.plot(curve.x, curve.y, ".", markersize=4, color=colour, label=curve.label)
        else:
            style = "steps-post" if panel.kind == "steps" else "default"
            axes.plot(curve.x, curve.y, color=colour, label=curve.label, linewidth=1.2, drawstyle=style)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    axes.set_ylim(0, 1.1 * max(max(curve.y) for curve in curves))
    if len(curves) > 1 or curves[0].label:
        axes.legend(fontsize="small")
