"""The figures of the race as a picture: how fast, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bench.peers.race import Results
from bench.peers.systems import SYSTEMS
from bench.rounds import OURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RATES = {
    "publish": ("pipelined_events_per_second", "published with acknowledgement, events/s"),
    "live": ("deliveries_per_second", "live, 25 % each, deliveries/s"),
    "catchup": ("deliveries_per_second", "catching up, 25 % each, deliveries/s"),
    "selective": ("deliveries_per_second", "live, 1 % each, deliveries/s"),
    "latency": ("latency_p99_ms", "latency at a moderate rate, p99, ms (less is better)"),
}
"""The first figure of each kind of work, and its title."""

LIMIT = "limit"

COLOURS = {"ours": "#1b6ca8", "theirs": "#9db4c0", "limit": "#d9d9d9", "server": "#d1495b", "client": "#edae49"}


def draw(results: Results, file: Path) -> None:
    """One row for each kind of work; the ending of the file's name decides its format."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 0.8 + 2.8 * len(results.works)), layout="constrained")
    panels = figure.subplots(len(results.works), 2, squeeze=False)
    for work, (left, right) in zip(results.works, panels, strict=True):
        names = [name for name in reversed(results.systems) if results.rounds.get((work, name))]
        _draw_rate(left, results, work, names)
        _draw_cpu(right, results, work, names)
    figure.supxlabel("* acknowledges what is in the page cache: a power cut may take it", fontsize="medium")
    with rc_context({"svg.fonttype": "none"}):  # letters stay letters: a tenth of the size, and they can be searched
        figure.savefig(file)


def _draw_rate(axes: Axes, results: Results, work: str, names: list[str]) -> None:
    key, title = RATES[work]
    values = [results.medians(work, name)[key] for name in names]
    colours = [COLOURS["ours" if name == OURS else "limit" if name == LIMIT else "theirs"] for name in names]
    bars = axes.barh(_labels(names), values, color=colours)
    axes.bar_label(bars, [f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in values], padding=3)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_title(title)
    axes.margins(x=0.2)


def _labels(names: list[str]) -> list[str]:
    """Names, with a mark at those that acknowledge what a power cut may take."""
    return [name if SYSTEMS[name].acknowledged == "on the disk" else f"{name} *" for name in names]


def _draw_cpu(axes: Axes, results: Results, work: str, names: list[str]) -> None:
    unit = "event" if work == "publish" else "delivery"
    medians = [results.medians(work, name) for name in names]
    server = [figures[f"server_cpu_us_per_{unit}"] for figures in medians]
    client = [figures[f"client_cpu_us_per_{unit}"] for figures in medians]
    axes.barh(_labels(names), server, color=COLOURS["server"], label="server")
    bars = axes.barh(_labels(names), client, left=server, color=COLOURS["client"], label="client")
    axes.bar_label(bars, [f"{both:.2f}" for both in map(sum, zip(server, client, strict=True))], padding=3)
    axes.set_title(f"processor time per {unit}, µs (less is better)")
    axes.margins(x=0.15)
    axes.legend(loc="upper right")
