"""The figures of a subscription on one pubend: how many events when, how far behind, and what is missing.

Events are counted per second. The share of silence is the share of seconds without an event among all seconds that are
accounted for. Where ticks are times, these are the seconds of the range. Of a Kafka partition they are those from the
oldest event to the newest one; of which time a gap is, is not known there, and so with gaps no share of silence is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gapless.core.stream.ticks import SECOND, PubendId, Tick, time_at

POINTS_MAX: Final = 200
"""How many points a series has at most."""
_WIDTHS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400, 604_800)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a subscription on one pubend."""

    source: str
    """`broker`: of what is not acknowledged; `archive`: of what is archived."""
    client_id: str
    subscription: str
    pubend: PubendId
    events: int
    since: datetime | None
    until: datetime | None
    events_per_second: float
    """The average over the time that is accounted for."""
    peak_per_second: int
    """The number of events in the busiest second."""
    lag_events: int | None
    """How many events it has not got yet; None if that is not known."""
    lag_seconds: float | None
    """The age of the oldest of these; None if that is not known."""
    gaps: int
    gap_seconds: float | None
    """None if the gaps have no times."""
    silence_share: float | None
    """The share of the accounted seconds that have no event; None if that is not known, because gaps have no times."""
    complete: bool
    """Whether all events were counted; if not, only the first ones were, up to a limit."""
    width_seconds: int
    """How many seconds a point of the series covers."""
    series: tuple[tuple[datetime, float], ...]
    """When each point begins, and its events per second."""
    lost: tuple[tuple[datetime, datetime], ...]
    """The gaps; none if they have no times."""
    error: str
    """Why there are no figures; "" if there are."""

    def fields(self) -> dict[str, Any]:
        """Returns the figures in the form for JSON."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {
            "since": _text(self.since),
            "until": _text(self.until),
            "series": [[_text(time), rate] for time, rate in self.series],
            "lost": [[_text(start), _text(end)] for start, end in self.lost],
        }


def figures(
    counts: Mapping[int, int],
    start: Tick,
    end: Tick,
    gaps: Sequence[tuple[Tick, Tick]] = (),
    *,
    timed: bool = True,
    source: str,
    client_id: str,
    subscription: str,
    pubend: PubendId,
    lag_events: int | None = None,
    lag_seconds: float | None = None,
    complete: bool = True,
    error: str = "",
) -> Figures:
    """Returns the figures of (start, end]. `counts`: how many events each second has, counted from 2020 on.

    A range from tick 0 begins at the first thing that is there, because nothing was before it. `timed`: whether these
    ticks are times; if not, the range is that of the events.
    """
    dated = gaps if timed else ()
    if not timed:
        start, end = min(counts, default=0) * SECOND, (max(counts, default=-1) + 1) * SECOND
    elif not start:
        known = [second * SECOND for second in counts] + [low for low, _ in gaps if low]
        start = min(known, default=end)
    lost = sum(high - max(low, start) for low, high in dated) / SECOND
    seconds = max(0.0, (end - start) / SECOND - lost)
    total, busy = sum(counts.values()), len(counts)
    width = width_of(counts)
    undated = bool(gaps) and not timed
    return Figures(
        source=source,
        client_id=client_id,
        subscription=subscription,
        pubend=pubend,
        events=total,
        since=time_at(start) if end > start or total else None,
        until=time_at(end) if end > start or total else None,
        events_per_second=total / max(seconds, 1.0),
        peak_per_second=max(counts.values(), default=0),
        lag_events=lag_events,
        lag_seconds=lag_seconds,
        gaps=len(gaps),
        gap_seconds=None if undated else lost,
        silence_share=None if undated else max(0.0, 1 - busy / seconds) if seconds >= 1 else float(not total),
        complete=complete,
        width_seconds=width,
        series=series_of(counts, width),
        lost=tuple((time_at(max(low, start)), time_at(high)) for low, high in dated),
        error=error,
    )


def width_of(counts: Mapping[int, int]) -> int:
    """Returns how many seconds a point of a series covers."""
    span = max(counts) - min(counts) + 1 if counts else 1
    return next((width for width in _WIDTHS if span <= width * POINTS_MAX), _WIDTHS[-1])


def series_of(counts: Mapping[int, int], width: int) -> tuple[tuple[datetime, float], ...]:
    """Returns events per second over time; points without events are 0."""
    if not counts:
        return ()
    points: dict[int, int] = {}
    for second, count in counts.items():
        points[second // width] = points.get(second // width, 0) + count
    return tuple(
        (time_at(point * width * SECOND), points.get(point, 0) / width) for point in range(min(points), max(points) + 1)
    )


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
