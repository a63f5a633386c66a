"""Pictures of reports."""

from __future__ import annotations

from pathlib import Path

import pytest
from gapless_report.figures import Figures, figures
from gapless_report.plot import PANELS_MAX, check_plot, draw, picture, title_of
from matplotlib import dates

from gapless.core.stream.ticks import EPOCH_MS, SECOND
from gapless.errors import ConfigurationError


def made(number: int, counts: dict[int, int]) -> Figures:
    return figures(
        counts,
        1000 * SECOND,
        1100 * SECOND,
        [(1010 * SECOND, 1020 * SECOND)],
        source="broker" if number % 2 else "archive",
        client_id="desk",
        subscription=f"s{number}",
        pubend="p@1",
        lag_seconds=float(number),
    )


def test_a_title_says_what_matters() -> None:
    assert title_of(made(3, {1000: 5})) == ("broker: desk/s3 on p@1, 5 events, 3 s behind, 1 gap, 10 s, silence 99%")


@pytest.mark.parametrize("suffix", [".svg", ".png"])
@pytest.mark.filterwarnings("default")
def test_a_picture_is_drawn(tmp_path: Path, suffix: str) -> None:
    for count in (0, 1, PANELS_MAX + 3):
        file = tmp_path / f"{count}{suffix}"
        draw([made(number, {1000: number, 1003: 2}) for number in range(count)], file)
        assert file.stat().st_size > 1000


@pytest.mark.filterwarnings("default")
def test_a_panel_shows_all_of_the_time_and_the_last_point() -> None:
    """One second of events among a hundred is a step of a second, and the silence around it is seen."""
    each = made(1, {1050: 7})
    [axes] = picture([each]).axes
    [line] = axes.get_lines()
    assert list(line.get_ydata()) == [0.0, 7.0, 0.0]
    assert [(time - each.series[0][0]).total_seconds() for time in line.get_xdata()] == [0, 0, 1]
    since, until = (dates.num2date(end).timestamp() - 1000 - EPOCH_MS / 1000 for end in axes.get_xlim())
    assert (round(since), round(until)) == (0, 100), "all of it, and hardly more"
    assert since < 0
    assert until > 100
    assert axes.get_ylim()[0] == 0


@pytest.mark.filterwarnings("default")
def test_what_has_nothing_shows_no_times() -> None:
    each = figures({}, 5 * SECOND, 5 * SECOND, source="broker", client_id="", subscription="s", pubend="p@1")
    [axes] = picture([each]).axes
    assert (list(axes.get_xticks()), axes.get_ylim()) == ([], (0, 1))
    empty = picture([])
    assert not empty.axes
    assert [text.get_text() for text in empty.texts] == ["there is nothing to report on"]


def test_what_cannot_be_drawn_is_said_before_anything_is_asked() -> None:
    with pytest.raises(ConfigurationError, match=r"ends with \.svg, \.png, \.pdf"):
        check_plot(Path("report.txt"))
