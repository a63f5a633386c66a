"""Whatever nobody can do according to docs/topics/trust.md is tried by a test; what anybody can is called that."""

from __future__ import annotations

import re

from architecture.project import ROOT

PAGE = (ROOT / "docs" / "topics" / "trust.md").read_text("utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| it …", "| they …"))
]


def test_every_line_says_cannot_with_a_test_or_can() -> None:
    assert len(ROWS) > 20
    for what, *answers, test in ROWS:
        given = [answer for answer in answers if answer]
        cannot = any(answer.startswith("cannot") for answer in given)
        assert given, what
        assert all(answer.startswith("can") for answer in given), what
        assert bool(test) == cannot, what


def test_every_test_that_it_names_is_there() -> None:
    named = set(re.findall("`(test_[a-z0-9_]+)`", PAGE))
    texts = [file.read_text("utf-8") for folder in ("tests", "testing") for file in (ROOT / folder).rglob("*.py")]
    there = {name for text in texts for name in re.findall(r"def (test_[a-z0-9_]+)\(", text)}

    assert named
    assert named - there == set()
