"""What code, tests and documents cite is in the repository: sections and rows of docs/protocol, and other documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from architecture.project import ROOT, package_paths
from architecture.test_protocol_is_documented import rows, sections
from documents import documents

_SECTIONS = re.compile(r"\(protocol:\s+([\w-]+(?:,\s+[\w-]+)*)")
_ROW = re.compile(r"\b(?:T\d{1,2}|[IJ]\d{1,2}|INV\d{1,2}|V\d|[CPLR]\d|[ACFLNPSU]\d\d)\b")
_DOCUMENT = re.compile(r"\b[\w-]+\.md\b", re.IGNORECASE)
_NUMBERED = re.compile(r"\b(?:[\w-]+\.md|algorithms|reliability|storage|design),?\s+(?:§\s*)?\d+\.\d", re.IGNORECASE)

NO_CITATIONS = {
    "I99": "an invariant that a test made up",
    "A17": "an account in a benchmark",
    "YYYY-MM-DD-what-was-decided.md": "how a decision is named",
}
"""What looks like a citation and is none, and what it is."""


@cache
def known_rows() -> frozenset[str]:
    """The numbers of all rows that may be cited."""
    return frozenset(key for key, _ in rows("invariants.md", "traps.md", "scenarios.md") if _ROW.fullmatch(key))


@cache
def known_sections() -> frozenset[str]:
    """The names of all sections that may be cited."""
    return frozenset(sections())


@cache
def known_documents() -> frozenset[str]:
    """The names of all documents of the project."""
    return frozenset(path.name for path in documents())


def citing() -> list[Path]:
    """Every file that may cite something: all code, and all documents."""
    roots = [*package_paths(), ROOT / "tests", ROOT / "bench", ROOT / "examples"]
    code = (path for root in roots for path in root.rglob("*.py"))
    return [path for path in (*code, *documents()) if path != Path(__file__)]


def breaches(text: str) -> Iterator[tuple[int, str]]:
    """What a text cites that is not there, and where."""
    for match in _SECTIONS.finditer(text):
        for name in re.split(r",\s+", match[1]):
            if name not in known_sections():
                yield match.start(), f"docs/protocol has no section {name}"
    for match in _ROW.finditer(text):
        if match[0] not in known_rows() and match[0] not in NO_CITATIONS:
            yield match.start(), f"docs/protocol has no row {match[0]}"
    for match in _DOCUMENT.finditer(text):
        if match[0] not in known_documents() and match[0] not in NO_CITATIONS:
            yield match.start(), f"there is no document {match[0]}"
    for match in _NUMBERED.finditer(text):
        yield match.start(), f"no document here has numbered sections: {match[0]}"


def test_all_that_is_cited_is_there() -> None:
    found = []
    for path in citing():
        text = path.read_text("utf-8")
        for at, breach in breaches(text):
            found.append(f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}: {breach}")

    assert found == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Reads it (protocol: readers, no-such-section).", ["docs/protocol has no section no-such-section"]),
        ("Reads it (protocol:\n    writers; T12).", ["docs/protocol has no section writers"]),
        ("The oldest are kept (T12, T99).", ["docs/protocol has no row T99"]),
        ("It is refused (S24, INV20).", ["docs/protocol has no row S24", "docs/protocol has no row INV20"]),
        ("As no-such-page.md has it.", ["there is no document no-such-page.md"]),
        ("As durability.md 1.2 has it.", ["no document here has numbered sections: durability.md 1.2"]),
        ("Reads it (protocol: readers, pfs; T12, S09, I3, C4, U03), as docs/topics/durability.md has it.", []),
    ],
)
def test_what_is_not_there_is_found(text: str, expected: list[str]) -> None:
    assert [breach for _, breach in breaches(text)] == expected


def test_everything_that_cites_is_looked_at() -> None:
    """And it does cite: what finds nothing has nothing to say."""
    texts = [path.read_text("utf-8") for path in citing()]

    assert sum(len(_SECTIONS.findall(text)) for text in texts) > 100
    assert sum(len(_ROW.findall(text)) for text in texts) > 500


def test_every_exception_is_needed() -> None:
    texts = [path.read_text("utf-8") for path in citing()]
    used = {match[0] for text in texts for pattern in (_ROW, _DOCUMENT) for match in pattern.finditer(text)}

    assert sorted(NO_CITATIONS.keys() - used) == []
    assert sorted(NO_CITATIONS.keys() & (known_rows() | known_documents())) == []
