"""What an experiment is, and what comes of one: figures, bars, and curves to be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

AVAILABLE = "000"
DURABLE = "001"
GRAPH = "002"
TITLES = {
    AVAILABLE: "Reliable and Highly Available Distributed Publish/Subscribe Service (SRDS 2009)",
    DURABLE: "Scalably Supporting Durable Subscriptions in a Publish/Subscribe System (DSN 2003)",
    GRAPH: "Exactly-once Delivery in a Content-based Publish-Subscribe System (DSN 2002)",
}
"""The papers by their numbers."""
FIGURE_LOST = "states, figure lost"
"""Of paper 002 the text up to its section 2.4 is left: what it measured is known from its introduction only."""

VIRTUAL = "virtual time, the simulator with the cores of production"
ROUTERS = "virtual time, the routers alone"
REAL = "real processes on loopback, RocksDB"


@dataclass(frozen=True, slots=True)
class Bar:
    """What a figure has to be. It is a ratio of two of the same run, or a count.

    A time it is in `bench.network.relay` alone: of a processor, that nothing waits for, and with room for a slow one.
    """

    least: float = -inf
    most: float = inf

    def holds(self, value: float) -> bool:
        """Whether a figure is as it has to be."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        if self.least == self.most:
            return f"= {self.least:g}"
        low = "" if self.least == -inf else f"≥ {self.least:g}"
        high = "" if self.most == inf else f"≤ {self.most:g}"
        return " and ".join(filter(None, (low, high)))


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure, whatever its value is."""

    what: str
    """Its name for people."""
    paper: str = ""
    """What the paper reports, as it says it; "": it says nothing."""
    bar: Bar | None = None


@dataclass(frozen=True, slots=True)
class Curve:
    """Points to be joined; or, in a panel of bars, the labels of the bars and their heights."""

    label: str
    x: Sequence[float | str]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Panel:
    """A diagram, and beside it the paper's."""

    title: str
    x: str
    y: str
    ours: Sequence[Curve]
    paper: Sequence[Curve] = ()
    """From the numbers in the paper's text: its figures are lost in the copy that is left."""
    states: str = ""
    """What the paper says, where it gives no numbers to draw."""
    kind: str = "line"
    """Or `steps` (of what was measured; the paper's is drawn as lines), or `points`, or `bars`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an experiment."""

    values: Mapping[str, float]
    """Of each figure of the experiment, by its key."""
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything: all of it, or only as much as shows that it runs."""

    quick: bool = False

    def pick(self, full: float, quick: float) -> float:
        """The one or the other."""
        return quick if self.quick else full

    def count(self, full: int, quick: int) -> int:
        """The one or the other."""
        return quick if self.quick else full


Run: TypeAlias = Callable[[Sizes], Outcome]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One of a paper's experiments."""

    name: str
    paper: str
    """`AVAILABLE`, `DURABLE` or `GRAPH`."""
    figure: str
    """Where the paper reports it."""
    title: str
    how: str
    """`VIRTUAL`, `ROUTERS` or `REAL`, or two of these."""
    setup: str
    """What was built up here, and what of the paper's is smaller."""
    figures: Mapping[str, Figure] = field(repr=False)
    """By the name that programs have for them, with its unit; in the order of the table."""
    run: Run = field(repr=False)
