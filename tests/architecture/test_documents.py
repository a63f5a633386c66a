"""The documents hang together: links lead somewhere, pages are found from the index, code compiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from documents import ROOT, CodeBlock, code_blocks, documents, prose

_LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def links(document: Path) -> list[tuple[Path, str | None]]:
    """The files of the project that a document links to, and the headings in them."""
    return [
        ((document.parent / match["path"]).resolve() if match["path"] else document, match["anchor"])
        for match in _LINK.finditer(prose(document))
    ]


def anchors(document: Path) -> set[str]:
    """What the headings of a document can be linked as."""
    headings = _HEADING.findall(prose(document))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def named(document: Path) -> str:
    """A document as a test names it."""
    return str(document.relative_to(ROOT))


@pytest.mark.parametrize("document", documents(), ids=named)
def test_its_links_lead_somewhere(document: Path) -> None:
    broken = [
        f"{path}#{anchor or ''}"
        for path, anchor in links(document)
        if not path.exists() or (anchor and anchor not in anchors(path))
    ]

    assert broken == []


def test_every_page_is_found_from_the_index() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "docs" / "index.md"]
    while ahead:
        document = ahead.pop()
        if document not in reached and document.suffix == ".md":
            reached.add(document)
            ahead += [path for path, _ in links(document)]

    assert sorted(map(named, {*(ROOT / "docs").rglob("*.md")} - reached)) == []


@pytest.mark.parametrize("document", documents(), ids=named)
def test_it_has_one_title(document: Path) -> None:
    assert len(re.findall(r"^# ", prose(document), re.MULTILINE)) == 1


def python_blocks() -> list[CodeBlock]:
    """Every block of Python in every document."""
    return [block for document in documents() for block in code_blocks(document, "python")]


def test_there_is_code_in_the_documents() -> None:
    with_code = {named(block.document) for block in python_blocks()}

    assert with_code >= {"README.md", "docs/tutorial/first-subscription.md"}


@pytest.mark.parametrize("block", python_blocks(), ids=lambda block: f"{named(block.document)}:{block.line}")
def test_its_code_compiles(block: CodeBlock) -> None:
    """Compiles, with line numbers that lead to the document."""
    compile("\n" * block.line + block.code, str(block.document), "exec")


def overturned(page: Path) -> bool:
    """Whether a decision says, wherever in it, that it is overturned."""
    return re.search(r"\*\*(In part o|O)verturned", page.read_text("utf-8")) is not None


DECISIONS = sorted((ROOT / "docs" / "decisions").glob("20*.md"))


@pytest.mark.parametrize("page", [page for page in DECISIONS if overturned(page)], ids=lambda page: page.stem)
def test_a_decision_that_is_overturned_says_so_first_with_a_link(page: Path) -> None:
    first = page.read_text("utf-8").split("\n\n")[1]

    assert re.match(r"\*\*(In part o|O)verturned\*\*: ", first)
    assert [path for path, _ in links(page) if path.name in first and path != page]


def test_some_decisions_are_overturned_and_most_are_not() -> None:
    assert 1 < sum(map(overturned, DECISIONS)) < len(DECISIONS) / 2


def test_the_readme_names_the_test_command_that_ci_runs() -> None:
    command = "python3 dev.py test"

    assert f'exec {command} "$@"' in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert re.search(rf"^\$ {command}( +#.*)?$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
