"""The index and CONTRIBUTING name what a maintainer must read, in the same order, with the minutes that it takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import ROOT, prose

INDEX, CONTRIBUTING = ROOT / "docs" / "index.md", ROOT / "CONTRIBUTING.md"
PAGES = [
    "topics/architecture.md",
    "protocol/glossary.md",
    "topics/promise.md",
    "protocol/persist-before.md",
    "protocol/invariants.md",
    "topics/simulator.md",
]
WORDS_A_MINUTE = 200

_STEP = re.compile(r"^\d\. \[[^]]+\]\((?P<path>[^)]+)\), (?P<minutes>\d+) minutes", re.MULTILINE)


def steps(document: Path) -> list[tuple[Path, int]]:
    """The pages that a document tells one to read, in order, and the minutes that it says each takes."""
    return [
        ((document.parent / match["path"]).resolve(), int(match["minutes"]))
        for match in _STEP.finditer(prose(document))
    ]


def words_of(page: Path) -> int:
    """How many words there are to read on a page."""
    return sum(any(character.isalnum() for character in word) for word in prose(page).split())


def test_the_index_and_contributing_name_the_same_pages() -> None:
    assert [path for path, _ in steps(INDEX)] == [ROOT / "docs" / page for page in PAGES]
    assert steps(CONTRIBUTING) == steps(INDEX)


@pytest.mark.parametrize(("page", "minutes"), steps(INDEX), ids=lambda value: getattr(value, "name", value))
def test_its_minutes_are_about_right(page: Path, minutes: int) -> None:
    counted = words_of(page) / WORDS_A_MINUTE

    assert counted / 1.5 <= minutes <= counted * 1.5


@pytest.mark.parametrize("document", [INDEX, CONTRIBUTING], ids=["index", "CONTRIBUTING"])
def test_it_says_that_the_rest_is_for_looking_up(document: Path) -> None:
    assert re.search(r"[Ee]verything else [^.]*looking things up", prose(document))
