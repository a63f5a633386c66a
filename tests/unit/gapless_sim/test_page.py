"""The page of a failure."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser

from gapless_sim.options import Options
from gapless_sim.page import page_html
from gapless_sim.result import Failure, Result
from gapless_sim.trace import Line
from gapless_sim.trace_recorder import LOST

LINES = (
    Line(0, "phb1", "boot", "start 1"),
    Line(1_000_000, "anna", "publishes", "anna publishes #1 name=<b>&amp;</b>"),
    Line(1_000_001, "phb1", "publish", "publish #1", "anna"),
    Line(1_000_002, "phb1", "alive", "alive", "anna"),
    Line(2_000_000, "phb1", LOST, "p holds #1", "shb1"),
    Line(3_000_000, "phb1", "crash", "power"),
    Line(9_000_000_000, "world", "cut", "phb1 can not reach shb1"),
)
RESULT = Result(
    Options(7, router="hostile", clients=1),
    "0123abcd",
    1234,
    9_500_000_000,
    Failure("I3", "anna's <#1> came twice", 9_400_000_000),
    {"network": [0, 3, 1]},
    lines=LINES,
)


class Page(HTMLParser):
    """What is in a page: its elements in pairs, its text, its rows."""

    VOID = ("meta", "line", "circle", "polygon", "path")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.rows: list[dict[str, str | None]] = []
        self.seen: Counter[str] = Counter()
        self.urls: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] += 1
        values = dict(attrs)
        self.urls += [value or "" for name, value in attrs if name in {"src", "href"}]
        if "row" in (values.get("class") or "").split():
            self.rows.append(values)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in {"style", "script"}:
            self.text.append(data)


def test_it_is_whole_and_needs_nothing_else() -> None:
    page = Page(page_html(RESULT))

    assert page.open == []
    assert [url for url in page.urls if not re.fullmatch("#row[0-9]+|#failure", url)] == []
    assert not re.search(r"https?:|url\(|@import", page_html(RESULT))


def test_it_says_what_was_wrong_and_how_to_see_it_again() -> None:
    text = " ".join(Page(page_html(RESULT, command="gapless simulate --seed 7", left_out=["clock faults"])).text)

    for said in ("I3", "anna's <#1> came twice", "gapless simulate --seed 7", "seed 7", "clients=1", "0123abcd"):
        assert said in text
    assert "1,234 steps, 2 draws" in text
    assert "What does not matter to it (1)" in text
    assert "clock faults" in text


def test_texts_are_not_taken_for_html() -> None:
    html = page_html(RESULT)

    assert "anna publishes #1 name=&lt;b&gt;&amp;amp;&lt;/b&gt;" in html
    assert Page(html).seen["b"] == 5, "the oracle, and the names of four kinds; none of a text"


def test_every_line_is_a_row_and_what_does_not_matter_is_put_aside() -> None:
    rows = [row for row in Page(page_html(RESULT)).rows if row.get("data-kind")]

    assert [row["data-kind"] for row in rows] == [line.kind for line in LINES]
    assert [row["data-kind"] for row in rows if "aside" in str(row["class"])] == ["alive"]
    assert rows[4]["data-way"] == "phb1 → shb1"
    assert rows[2]["data-way"] == "anna → phb1"
    assert rows[5]["data-at"] == "0.003000000"


def test_long_pauses_and_the_failure_are_rows_too() -> None:
    page = Page(page_html(RESULT))

    assert [row["class"] for row in page.rows if not row.get("data-kind")] == ["row head", "row later", "row verdict"]
    assert "9.0 s later" in " ".join(page.text)


def test_what_is_down_has_a_dotted_line() -> None:
    rows = page_html(RESULT).split('<div class="row ')

    assert ["gone" in row for row in rows if 'data-kind="c' in row] == [False, True]


def test_a_run_in_which_nothing_was_wrong_has_a_page_too() -> None:
    result = Result(RESULT.options, "00", 1, 1, None, {}, lines=LINES)

    assert "Nothing was wrong" in " ".join(Page(page_html(result)).text)
