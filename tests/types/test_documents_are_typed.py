"""The programs that documents show pass mypy --strict: a user's do, too. Run by `tox -e types`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, CodeBlock, code_blocks, documents

PROGRAMS = [
    block
    for document in documents()
    for block in code_blocks(document, "python")
    if block.file_name is not None and not block.file_name.startswith("test_")
]
"""Tests of a plugin beside its howto need not be typed."""


def test_there_are_programs() -> None:
    assert PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: f"{block.document.stem}-{block.file_name}")
def test_a_program_is_typed(program: CodeBlock, tmp_path: Path) -> None:
    path = tmp_path / (program.file_name or "")
    path.write_text(program.code, "utf-8")
    settings = tmp_path / "mypy.ini"
    settings.write_text(
        "[mypy]\nstrict = True\n[mypy-pyspark.*,pyarrow.*]\nignore_missing_imports = True\nfollow_imports = skip\n"
    )

    result = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", ROOT / ".mypy_cache/documents", path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == 0, result.stdout
