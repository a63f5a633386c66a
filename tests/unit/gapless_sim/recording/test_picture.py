"""Which lines of a run are shown."""

from __future__ import annotations

from gapless_sim.recording.picture import FOLDED, fold, names_in, picture
from gapless_sim.recording.trace import Line
from gapless_sim.search.result import Failure

LINES = (
    Line(1, "shb1", "boot", "start 1"),
    Line(1, "phb1", "boot", "start 1"),
    Line(2, "anna", "publishes", "#1 k=1"),
    Line(3, "phb1", "publish", "publish #1", "anna"),
    Line(4, "bert", "attached", "late is attached behind p 1.000"),
    Line(5, "bert", "takes", "late takes #1 of p"),
    Line(6, "cora", "takes", "other takes #2 of q"),
    Line(7, "shb1", "alive", "alive", "bert"),
    Line(8, "world", "cut", "phb1 can not reach shb1"),
)


def failure(what: str) -> Failure:
    return Failure("I3", what, 9)


def test_publishers_stand_on_the_left_and_subscribers_on_the_right() -> None:
    assert picture(LINES).lanes == ("anna", "phb1", "shb1", "bert", "cora")


def test_only_what_the_failure_names_is_shown_and_what_went_wrong() -> None:
    shown = picture(LINES, failure("bert: #1 of p@a81f came twice"))

    assert [line.at for line in shown.lines] == [1, 1, 2, 3, 4, 5, 8]
    assert "cora" not in shown.lanes
    assert shown.left_out == 2


def test_more_can_be_named() -> None:
    assert [line.at for line in picture(LINES, about=["cora"]).lines] == [1, 1, 6, 8]


def test_a_failure_that_names_nothing_shows_everything() -> None:
    assert len(picture(LINES, failure("it did not come right")).lines) == len(LINES) - 1


def test_the_last_lines_are_shown() -> None:
    assert [line.at for line in picture(LINES, limit=2).lines] == [6, 8]
    assert [line.at for line in picture(LINES, limit=2, hide=()).lines] == [7, 8]


def test_names_are_found_in_a_text() -> None:
    what = "client bert:late-2 got #17 of flights@1f9 (1, 2] again, at 931821048079641862 of all"

    assert names_in(what, LINES) == ["bert", "late-2", "#17", "flights"]
    assert names_in("anna was not handed publication 24", LINES) == ["#24", "anna"]


def rounds(count: int) -> list[Line]:
    lines = []
    for at in range(count):
        lines += [Line(at, "anna", "publishes", f"#{at}"), Line(at, "phb1", "publish", f"publish #{at}", "anna")]
    return lines


def test_what_goes_round_and_round_is_folded() -> None:
    around = Line(0, "phb1", "boot", "start 1"), Line(9, "phb1", "crash", "")

    folded = fold([around[0], *rounds(8), around[1]])

    assert [(line.at, line.kind) for line in folded] == [
        (0, "boot"),
        (0, "publishes"),
        (0, "publish"),
        (7, FOLDED),
        (7, "publishes"),
        (7, "publish"),
        (9, "crash"),
    ]
    assert folded[3].text == "6 more rounds of: publishes, publish"


def test_what_comes_a_few_times_is_not_folded() -> None:
    assert fold(rounds(4)) == rounds(4)


def test_what_the_failure_is_about_is_not_folded() -> None:
    assert Line(3, "anna", "publishes", "#3") in fold(rounds(12), marked=["#3"])
    assert Line(3, "anna", "publishes", "#3") not in fold(rounds(12))
