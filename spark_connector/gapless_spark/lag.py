"""The lag of queries, from Spark's reports of their progress: in seconds, where ticks are times.

The ticks of a Kafka partition are none. There, how far a query is behind is shown as records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gapless.core.stream.ticks import PubendId, Tick, reads_as_time, shown_place, wall_at
from gapless.errors import InvalidTokenError
from gapless_spark.offsets import token_of

LAG = "gapless_spark_lag_seconds"
POSITION = "gapless_spark_position_seconds"


@dataclass(frozen=True)
class Lag:
    """The position of a query on one pubend."""

    query: str
    """The query's name, or its id if it has none."""
    batch: int
    pubend: PubendId
    position: Tick
    """The query is done with everything up to here."""
    latest: Tick | None
    """Up to here there is something for it; None if Spark does not report it (before 4.2)."""

    @property
    def seconds(self) -> float | None:
        """The time from its position to the latest event for it; 0 if there is nothing new; None if it is unknown."""
        if self.latest is None:
            return None
        if self.latest <= self.position:
            return 0.0
        if not self.is_dated:
            return None
        return (wall_at(self.latest) - wall_at(self.position)) / 1000

    @property
    def is_dated(self) -> bool:
        """Whether the position is a time."""
        return reads_as_time(self.position)

    def __str__(self) -> str:
        behind = "lag unknown" if self.seconds is None else f"{self.seconds:.1f} s behind"
        if self.seconds is None and self.latest is not None and not reads_as_time(self.latest):
            done, latest = shown_place(self.position, after=True), shown_place(self.latest, after=True)
            behind = f"at {done}, the log is at {latest}"
        return f"{self.query} batch {self.batch} {self.pubend}: {behind}"


def lags(progress: Any) -> list[Lag]:
    """Returns the lags in a `StreamingQueryProgress`, for each pubend of each source of gapless."""
    query = progress.name or str(progress.id)
    found: list[Lag] = []
    for source in progress.sources:
        end = _ticks(source.endOffset)
        if end is None:
            continue
        latest = _ticks(source.latestOffset)
        for pubend, tick in end.items():
            there = None if latest is None else latest.get(pubend, tick)
            found.append(Lag(query, progress.batchId, pubend, tick, there))
    return found


def prometheus(found: Iterable[Lag]) -> str:
    """Returns lags and positions in Prometheus' text format."""
    known = list(found)
    lines = [
        f"# HELP {LAG} How far a query is behind the events that there are for it.",
        f"# TYPE {LAG} gauge",
        *(f"{LAG}{_labels(lag)} {lag.seconds:.3f}" for lag in known if lag.seconds is not None),
        f"# HELP {POSITION} The time of what a query has read, in seconds since 1970.",
        f"# TYPE {POSITION} gauge",
        *(f"{POSITION}{_labels(lag)} {wall_at(lag.position) / 1000:.3f}" for lag in known if lag.is_dated),
    ]
    return "\n".join(lines) + "\n"


def _ticks(offset: object) -> Mapping[PubendId, Tick] | None:
    """Returns the ticks of an offset; None if it is of another source, or there is none."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
        return token_of(found).ticks if isinstance(found, dict) else None
    except (ValueError, InvalidTokenError):
        return None


def _labels(lag: Lag) -> str:
    return f'{{query="{_escaped(lag.query)}",pubend="{_escaped(lag.pubend)}"}}'


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
