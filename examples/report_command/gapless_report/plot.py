"""Draws the figures of a report: events per second over time, and the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from gapless.cli.output import shown_duration
from gapless.errors import ConfigurationError
from gapless_report.figures import Figures

FORMATS: Final = (".svg", ".png", ".pdf")
PANELS_MAX: Final = 24
COLOURS: Final = {"broker": "#1b6ca8", "archive": "#7a8b99", "gap": "#d1495b"}


def check_plot(file: Path) -> None:
    """Raises ConfigurationError if no picture has such a name."""
    if file.suffix.lower() not in FORMATS:
        raise ConfigurationError(f"{file}: a plot is a file that ends with {', '.join(FORMATS)}")


def draw(found: Sequence[Figures], file: Path) -> None:
    """Writes the picture of a report."""
    check_plot(file)
    picture(found).savefig(file)


def picture(found: Sequence[Figures]) -> Figure:
    """Returns a panel for each subscription and pubend; if there are many, only those with the most events."""
    shown = list(found)
    if len(shown) > PANELS_MAX:
        most = sorted(shown, key=lambda each: each.events, reverse=True)[:PANELS_MAX]
        shown = [each for each in shown if each in most]
    figure = Figure(figsize=(11, 0.6 + 2.2 * max(1, len(shown))), layout="constrained")
    if not shown:
        figure.text(0.5, 0.5, "there is nothing to report on", ha="center", va="center")
        return figure
    panels = figure.subplots(len(shown), 1, squeeze=False)
    for [axes], each in zip(panels, shown, strict=True):
        _draw(axes, each)
    return figure


def _draw(axes: Axes, each: Figures) -> None:
    times, rates = [time for time, _ in each.series], [rate for _, rate in each.series]
    if times:  # begin and end at 0: the last point is as wide as the others, and a single point is visible
        times = [times[0], *times, times[-1] + timedelta(seconds=each.width_seconds)]
        rates = [0, *rates, 0]
    axes.step(times, rates, where="post", color=COLOURS[each.source])
    axes.fill_between(times, rates, step="post", alpha=0.25, color=COLOURS[each.source])
    for start, end in each.lost:
        axes.axvspan(start, end, color=COLOURS["gap"], alpha=0.4)
    axes.set_ylabel("events/s")
    axes.set_ylim(0, None if times else 1)
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:,.10g}")
    axes.set_title(title_of(each), fontsize="medium", loc="left")
    axes.tick_params(axis="x", labelsize="small")
    _show_times(axes, [time for time in (each.since, each.until, *times) if time is not None])


def _show_times(axes: Axes, times: Sequence[datetime]) -> None:
    """Shows all of the time that is accounted for, so that silence is visible."""
    if len(set(times)) < 2:
        axes.set_xticks([])
        return
    edge = (max(times) - min(times)) / 200
    axes.set_xlim(min(times) - edge, max(times) + edge)
    locator = AutoDateLocator(tz=timezone.utc)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=timezone.utc))
    axes.set_xlabel("UTC", fontsize="small", loc="left")


def title_of(each: Figures) -> str:
    """Returns the title of a panel."""
    owner = f"{each.client_id}/{each.subscription}" if each.client_id else each.subscription
    parts = [f"{each.source}: {owner} on {each.pubend}", f"{each.events:,} events"]
    if each.lag_seconds:
        parts.append(f"{shown_duration(each.lag_seconds)} behind")
    if each.gaps:
        parts.append(f"{each.gaps} gap{'s' * (each.gaps > 1)}")
        parts += [] if each.gap_seconds is None else [shown_duration(each.gap_seconds)]
    return ", ".join(parts if each.silence_share is None else [*parts, f"silence {each.silence_share:.0%}"])
