"""Figures as the texts that scrapers read: Prometheus' format 0.0.4, and OpenMetrics 1.0.

Gauges come in any order, and leave by families: each once, with its type and its help, in the order of the names.
What a `Histogram` yields becomes one family of the type histogram. Whatever a label says, it cannot break a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite, isnan
from typing import Final

from gapless.core.gauges import Gauge

PROMETHEUS: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The media types of both texts."""

_BUCKET: Final = "_bucket"
_OF_HISTOGRAMS: Final = (_BUCKET, "_sum", "_count")
_TOTAL: Final = "_total"
_IN_LABELS: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_IN_HELP: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
"""In OpenMetrics quotes are escaped in the help, too."""


def prefers_openmetrics(accept: str) -> bool:
    """Whether a client with this `Accept` is answered in OpenMetrics: if it says so, and wants nothing else more."""
    openmetrics = other = 0.0
    for choice in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in choice.split(";"))
        said = dict(_pair(parameter) for parameter in parameters)
        quality = _quality(said.get("q", "1"))
        if kind == "application/openmetrics-text" and said.get("version", "1.0.0") == "1.0.0":
            openmetrics = max(openmetrics, quality)
        elif kind in {"text/plain", "text/*", "*/*"}:
            other = max(other, quality)
    return openmetrics > 0 and openmetrics >= other


def render(gauges: Iterable[Gauge], *, openmetrics: bool = False) -> bytes:
    """The text with these gauges."""
    series: dict[str, list[Gauge]] = {}
    for gauge in gauges:
        series.setdefault(gauge.name, []).append(gauge)
    histograms = {name.removesuffix(_BUCKET) for name in series if name.endswith(_BUCKET)}
    lines: list[str] = []
    rendered: dict[tuple[tuple[str, str], ...], str] = {}
    for name in sorted({_family(name, histograms) for name in series}):
        if name in histograms:
            kind, shown = "histogram", name
            rows = [row for end in _OF_HISTOGRAMS for row in series.get(name + end, ())]
            rows = [row for group in _by_labels(rows) for row in group]
        else:
            rows = series[name]
            is_counter = rows[0].counter and name.endswith(_TOTAL)
            kind = "counter" if is_counter else "gauge"
            shown = name.removesuffix(_TOTAL) if is_counter and openmetrics else name
        text = rows[0].help.translate(_IN_HELP)
        lines.append(f"# HELP {shown} {text.replace(chr(34), chr(92) + chr(34)) if openmetrics else text}")
        lines.append(f"# TYPE {shown} {kind}")
        for row in rows:
            labels = rendered.get(row.labels)
            if labels is None:
                labels = rendered[row.labels] = _labels(row.labels)
            value = row.value
            lines.append(f"{row.name}{labels} {value if type(value) is int else _number(value)}")
    lines.append("# EOF\n" if openmetrics else "")
    return "\n".join(lines).encode("utf-8", "replace")


def _family(name: str, histograms: set[str]) -> str:
    """The name of the family that a series belongs to."""
    for end in _OF_HISTOGRAMS:
        if name.endswith(end) and (base := name.removesuffix(end)) in histograms:
            return base
    return name


def _by_labels(rows: Iterable[Gauge]) -> Iterator[list[Gauge]]:
    """The series of histograms, those with the same labels together."""
    groups: dict[tuple[tuple[str, str], ...], list[Gauge]] = {}
    for row in rows:
        labels = row.labels[:-1] if row.name.endswith(_BUCKET) else row.labels
        groups.setdefault(labels, []).append(row)
    yield from groups.values()


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{value.translate(_IN_LABELS)}"' for name, value in labels]) + "}"


def _number(value: float) -> str:
    if isfinite(value):
        return repr(value)
    return "NaN" if isnan(value) else "+Inf" if value > 0 else "-Inf"


def _pair(parameter: str) -> tuple[str, str]:
    name, _, value = parameter.partition("=")
    return name.strip(), value.strip().strip('"')


def _quality(text: str) -> float:
    """How much something is wanted; what nobody understands is not wanted at all."""
    try:
        return float(text)
    except ValueError:
        return 0.0
