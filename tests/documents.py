"""The project's documents, and the code in them, as tests need it."""

from __future__ import annotations

import atexit
import importlib
import re
import shutil
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

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


def save_programs(document: Path, directory: Path) -> None:
    """Saves a document's Python blocks under the names that it gives them."""
    for block in code_blocks(document, "python"):
        assert block.file_name is not None, f"{document}:{block.line}: under which name?"
        (directory / block.file_name).write_text(block.code, "utf-8")


def install_programs(document: Path, directory: Path, name: str) -> None:
    """The same, as a distribution of this name, with the entry points of the document's first TOML block.

    Whoever has the directory on its path finds the plugin.
    """
    save_programs(document, directory)
    info = directory / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", "utf-8")
    points = code_blocks(document, "toml")[0].code.replace("project.entry-points.", "").replace('"', "")
    (info / "entry_points.txt").write_text(points, "utf-8")


def saved_module(document: Path, name: str) -> ModuleType:
    """A block as the module that its reader would save it as: in a file, for other processes import it too."""
    directory = Path(tempfile.mkdtemp(prefix="gapless-page-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    save_programs(document, directory)
    sys.path.append(str(directory))
    return importlib.import_module(name)
