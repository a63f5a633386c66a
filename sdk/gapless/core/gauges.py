"""Figures that a part of a broker gives of itself when it is asked: typed, with names as Prometheus has them.

A part declares a `Family` for each figure, once, and yields its gauges: nothing is counted or kept for them
but what the part keeps anyway. Names end in their unit (`_bytes`, `_ticks`, `_seconds`); counters, which
begin at zero with the broker and only grow, in `_total`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct


class Gauge(Struct, frozen=True, array_like=True, tag=1):
    """One figure of a broker, as it was when the broker was asked."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """What the figure is of: pairs of a label and its value, in the order of the family."""
    value: int | float
    """Of a condition 1 or 0."""
    help: str
    """What the figure says, for people."""
    counter: bool = False
    """Whether it only grows while the broker runs."""


@dataclass(frozen=True, slots=True)
class Family:
    """All gauges of one name: they differ in the values of their labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    counter: bool = False

    def gauge(self, value: float, *labels: object) -> Gauge:
        """The gauge with these values of the family's labels."""
        pairs = tuple((name, str(label)) for name, label in zip(self.labels, labels, strict=True))
        return Gauge(self.name, pairs, int(value) if isinstance(value, bool) else value, self.help, self.counter)


def value_of(gauges: Iterable[Gauge], family: Family | str, **labels: str) -> int | float:
    """The figure of that name with these labels among others, the first of several. Raises KeyError without one."""
    name = family if isinstance(family, str) else family.name
    wanted = labels.items()
    for gauge in gauges:
        if gauge.name == name and wanted <= dict(gauge.labels).items():
            return gauge.value
    raise KeyError((name, labels))


def values_by(gauges: Iterable[Gauge], family: Family | str, label: str, **labels: str) -> dict[str, int | float]:
    """The figures of that name with these labels, by the value of another label."""
    name = family if isinstance(family, str) else family.name
    wanted = labels.items()
    found = {}
    for gauge in gauges:
        if gauge.name == name and wanted <= (own := dict(gauge.labels)).items():
            found[own[label]] = gauge.value
    return found
