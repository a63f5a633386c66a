"""The project's documents, and the code in them, as tests need it."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a document."""

    document: Path
    line: int
    code: str

    @property
    def file_name(self) -> str | None:
        """What the reader is told to save it as: a comment on the first line says it."""
        match = re.match(r"# (\S+\.py)\n", self.code)
        return match[1] if match else None


def documents() -> list[Path]:
    """Every Markdown file that the project keeps."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def code_blocks(document: Path, language: str) -> list[CodeBlock]:
    """The fenced blocks of one language in a document."""
    text = document.read_text("utf-8")
    return [
        CodeBlock(document, text.count("\n", 0, match.start()) + 1, textwrap.dedent(match["code"]))
        for match in _FENCE.finditer(text)
        if match["language"] == language
    ]


def prose(document: Path) -> str:
    """A document without its fenced blocks."""
    return _FENCE.sub("", document.read_text("utf-8"))
