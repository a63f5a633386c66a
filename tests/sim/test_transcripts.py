"""The transcripts of docs/transcripts say what really happens, line by line.

After a change that is meant, set REWRITE_TRANSCRIPTS=1 to write them anew; read the difference before you keep it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from documents import ROOT
from gapless_sim.search.script import replay

PAGES = sorted((ROOT / "docs" / "transcripts").glob("*.md"))
REWRITE = os.environ.get("REWRITE_TRANSCRIPTS") == "1"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_says_what_happens(page: Path) -> None:
    text = page.read_text("utf-8")
    played = replay(text)
    if REWRITE:
        page.write_text(played, "utf-8")
        return

    assert played == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_it_is_readable_in_a_terminal(page: Path) -> None:
    """And something happens in it: a fence that is not recognised would hold nothing to any test."""
    text = page.read_text("utf-8")

    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert len(re.findall(r"^ +\d+\.\d{3} .*[▶◀]", text, re.MULTILINE)) >= 2
    assert "✗" not in text


def test_a_page_begins_with_what_one_sees() -> None:
    for page in PAGES:
        title, paragraph, *_ = page.read_text("utf-8").split("\n\n")

        assert title.startswith("# ")
        assert len(paragraph) > 150, page.name
