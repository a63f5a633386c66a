"""dev.py stands alone: it is run before anything is installed, maybe by a Python that is too old."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from architecture.project import ROOT, imported_modules

DEV = ROOT / "dev.py"


def test_an_old_python_can_still_read_it() -> None:
    """Else it would answer with a SyntaxError instead of saying which Python it needs."""
    tree = ast.parse(DEV.read_text("utf-8"), feature_version=(3, 7))
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]

    assert formatted == []


def test_it_needs_nothing_but_python() -> None:
    tree = ast.parse(DEV.read_text("utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    imported = {module.partition(".")[0] for node in statements for module in imported_modules(node)}

    assert imported - sys.stdlib_module_names == set()


@pytest.mark.parametrize(("arguments", "status"), [([], 2), (["tset"], 2), (["--help"], 0)])
def test_it_says_what_it_can_do(arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, str(DEV), *arguments], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == status
    assert "dev.py demo" in done.stdout
    assert "dev.py test" in done.stdout


@pytest.mark.parametrize(
    ("surroundings", "left_out"),
    [({}, ".*-spark.*|kafka|fast"), ({"CI": "true"}, "None"), ({"JAVA_HOME": "/java"}, "kafka|fast")],
    ids=str,
)
def test_what_cannot_run_is_left_out_and_that_is_said(surroundings: dict[str, str], left_out: str) -> None:
    program = "import dev, os; dev.leave_out_what_cannot_run(); print(os.environ.get('TOX_SKIP_ENV'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "/nowhere", **surroundings},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert done.stdout.splitlines()[-1] == left_out
    assert ("there is no Java" in done.stdout) is ("spark" in left_out)
    assert ("a real Kafka" in done.stdout) is ("kafka" in left_out)
    assert ("there is no cargo" in done.stdout) is ("fast" in left_out)


def test_it_says_where_gapless_fast_is_not_built() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import dev; dev.build_fast()"],
        cwd=ROOT,
        env={"PATH": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert "there is no cargo" in done.stdout
