"""Figures that a part of a broker gives of itself when it is asked: typed, with names as Prometheus has them.

A part declares a `Family` for each figure, once, and yields its gauges. What it counts, it counts once for each batch,
never for each event. Names end in their unit (`_bytes`, `_ticks`, `_seconds`); counters, which begin at zero with the
broker and only grow, in `_total`. A `Histogram` yields the series that Prometheus has for one: `…_bucket`, with the
upper bound in the label `le`, `…_sum` and `…_count`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, Protocol, runtime_checkable

from msgspec import Struct

SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds for how long something takes: from a write to memory to a disk that hangs."""


class Gauge(Struct, frozen=True, array_like=True, tag=1, gc=False):
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
    bounds: tuple[float, ...] = ()
    """Of a histogram: what its values are counted up to, ascending."""

    def gauge(self, value: float, *labels: object) -> Gauge:
        """The gauge with these values of the family's labels."""
        names = self.labels
        if len(names) == len(labels) == 1:
            pairs = _pair(names[0], labels[0])
        else:
            pairs = tuple([(name, str(label)) for name, label in zip(names, labels, strict=True)])
        return Gauge(self.name, pairs, int(value) if type(value) is bool else value, self.help, self.counter)


@lru_cache(maxsize=4096, typed=True)
def _pair(name: str, label: object) -> tuple[tuple[str, str], ...]:
    """The pairs of a gauge with one label: a broker with hundreds of pubends has dozens of each of them."""
    return ((name, str(label)),)


class Histogram:
    """How values are spread: how many were at most each of some bounds, how many there were, and their sum."""

    __slots__ = ("_bounds", "_counts", "_family", "_grows", "_sum")

    def __init__(self, family: Family, *, grows: bool = True) -> None:
        """Values above the last bound of the family are counted, too.

        `grows`: it counts what happens; else it says how things stand, and its series are no counters.
        """
        bounds = self._bounds = family.bounds
        assert list(bounds) == sorted(set(bounds)) != [], f"the bounds of {family.name} do not ascend"
        self._family = family
        self._grows = grows
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Counts a value, `count` times: of a batch whose events share it, once for all."""
        self._counts[bisect_left(self._bounds, value)] += count
        self._sum += value * count

    def observe_all(self, values: Iterable[float]) -> None:
        """Counts many values at once."""
        ascending = sorted(values)
        below = [bisect_right(ascending, bound) for bound in self._bounds]
        for at, (lower, upper) in enumerate(pairwise((0, *below, len(ascending)))):
            self._counts[at] += upper - lower
        self._sum += sum(ascending)

    def gauges(self, *labels: object) -> Iterator[Gauge]:
        """Yields its series, with these values of the family's labels."""
        name, text = self._family.name, self._family.help
        pairs = self._family.gauge(0, *labels).labels
        below = list(accumulate(self._counts))
        for bound, count in zip((*map(str, self._bounds), "+Inf"), below, strict=True):
            yield Gauge(f"{name}_bucket", (*pairs, ("le", bound)), count, text, self._grows)
        yield Gauge(f"{name}_sum", pairs, self._sum, text, self._grows)
        yield Gauge(f"{name}_count", pairs, below[-1], text, self._grows)


@runtime_checkable
class TellsInParts(Protocol):
    """What a role may have beside whose figures are so many that telling them holds a turn: it tells them in parts."""

    def parts(self) -> Iterator[Iterable[Gauge]]:
        """Yields all of `Role.gauges()`, part by part. Each is read at once, between two of them there are turns."""


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
