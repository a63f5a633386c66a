"""The tutorial of the Spark connector: its cells run from top to bottom, and print what it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from documents import ROOT, code_blocks
from integration.broker_process import clean_environment
from integration.spark_kit import require_spark

TUTORIAL = ROOT / "docs" / "tutorial" / "spark.md"
MARK = "---- cell"


def cells() -> list[tuple[str, str | None]]:
    """Each cell, and what it should print, if the document says it."""
    blocks = sorted([*code_blocks(TUTORIAL, "python"), *code_blocks(TUTORIAL, "text")], key=lambda block: block.line)
    is_output = {block.line for block in code_blocks(TUTORIAL, "text")}
    followed_by = zip(blocks, [*blocks[1:], None], strict=True)
    return [
        (block.code, after.code if after is not None and after.line in is_output else None)
        for block, after in followed_by
        if block.line not in is_output
    ]


@pytest.mark.timeout(600)
def test_the_tutorial_of_spark_runs(tmp_path: Path) -> None:
    require_spark("spark-whole")
    marked = "\n".join(f'{code}\nprint("{MARK}", flush=True)\n' for code, _ in cells())
    program = tmp_path / "notebook.py"
    program.write_text(marked.replace("127.0.0.1:7400", "127.0.0.1:0"), "utf-8")
    environment = {**clean_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(
        [sys.executable, program.name],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    printed = [part.strip() for part in done.stdout.split(MARK)][:-1]
    expected = [output.strip() if output is not None else "" for _, output in cells()]
    assert printed == expected
    assert len(printed) >= 8
