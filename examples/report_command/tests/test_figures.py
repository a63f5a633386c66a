"""Figures follow from ticks: rates, lag, gaps and silence."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from gapless_report.figures import POINTS_MAX, Figures, figures, series_of, width_of

from gapless.core.stream.ticks import SECOND, time_at

START = 1000 * SECOND
NAMES: dict[str, Any] = {"source": "archive", "client_id": "c", "subscription": "s", "pubend": "p@1"}


def made(counts: dict[int, int], start: int, end: int, *gaps: tuple[int, int]) -> Figures:
    seconds = [(low * SECOND, high * SECOND) for low, high in gaps]
    return figures(Counter(counts), start * SECOND, end * SECOND, seconds, **NAMES)


def test_rates_and_silence_are_of_the_seconds_that_are_accounted_for() -> None:
    found = made({1000: 30, 1005: 10}, 1000, 1020)

    assert (found.events, found.events_per_second, found.peak_per_second) == (40, 2.0, 30)
    assert found.silence_share == pytest.approx(0.9)
    assert (found.since, found.until) == (time_at(START), time_at(1020 * SECOND))


def test_what_was_lost_is_accounted_for_apart() -> None:
    found = made({1000: 30, 1005: 10}, 1000, 1020, (1010, 1015))

    assert (found.gaps, found.gap_seconds) == (1, 5.0)
    assert found.events_per_second == pytest.approx(40 / 15)
    assert found.silence_share == pytest.approx(1 - 2 / 15)
    assert found.lost == ((time_at(1010 * SECOND), time_at(1015 * SECOND)),)


def test_of_kafka_the_range_is_that_of_its_events() -> None:
    """Ticks that are no times account for no seconds, and nobody knows of which time a gap is."""
    found = figures({1000: 30, 1009: 10}, 41, 1600, timed=False, **NAMES)
    assert (found.events, found.events_per_second) == (40, 4.0)
    assert found.silence_share == pytest.approx(0.8)
    assert (found.since, found.until) == (time_at(START), time_at(1010 * SECOND))

    lossy = figures({1000: 30}, 41, 1600, [(41, 50)], timed=False, **NAMES)
    assert (lossy.gaps, lossy.gap_seconds, lossy.silence_share, lossy.lost) == (1, None, None, ())
    empty = figures({}, 41, 1600, timed=False, **NAMES)
    assert (empty.since, empty.until, empty.series) == (None, None, ())


def test_what_begins_at_the_beginning_begins_with_what_is_there() -> None:
    assert made({1000: 5}, 0, 1010).events_per_second == 0.5
    assert made({1000: 5}, 0, 1010, (0, 1002)).since == time_at(START)
    assert made({}, 0, 1010).since is None


@pytest.mark.parametrize(
    ("counts", "end", "share"), [({}, 1000, 1.0), ({}, 1100, 1.0), ({1000: 9}, 1000, 0.0), ({1000: 9}, 1001, 0.0)]
)
def test_short_and_empty_ranges(counts: dict[int, int], end: int, share: float) -> None:
    found = made(counts, 1000, end)

    assert found.silence_share == share
    assert found.events_per_second == sum(counts.values())


def test_a_series_has_few_points_and_all_events() -> None:
    counts = Counter({second: second % 7 for second in range(5000, 9000, 3)})
    width = width_of(counts)
    series = series_of(counts, width)

    assert width == 30
    assert len(series) <= POINTS_MAX
    assert sum(rate for _, rate in series) * width == pytest.approx(sum(counts.values()))
    assert series[0][0] == time_at(4980 * SECOND)
    assert (width_of(Counter()), series_of(Counter(), 1)) == (1, ())


def test_a_hole_is_a_point_of_no_events() -> None:
    assert [rate for _, rate in series_of(Counter({5: 2, 8: 3}), 1)] == [2, 0, 0, 3]


def test_json_has_all_of_it() -> None:
    fields = json.loads(json.dumps(made({1000: 30}, 1000, 1020, (1010, 1015)).fields()))

    assert fields["subscription"] == "s"
    assert fields["since"].startswith("2020-01-01T00:16:40")
    assert fields["series"] == [[fields["since"], 30.0]]
    assert len(fields["lost"][0]) == 2
