"""dev.py stands alone: it is run before anything is installed, maybe by a Python that is too old."""

from __future__ import annotations

import ast
import configparser
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("here", "chosen"),
    [
        ([], {}),
        ([10, 12], {"unit": "py310", "kit": "py312"}),
        ([13], {"kit": "py313"}),
        ([9, 14], {}),
    ],
    ids=str,
)
def test_unit_tests_run_on_a_python_that_is_here(here: list[int], chosen: dict[str, str], tmp_path: Path) -> None:
    """The oldest and the newest of those that run; tox's own where there is no other, and a name alone is no Python."""
    for minor in (10, 11, 12, 13):
        script = tmp_path / f"python3.{minor}"
        script.write_text(f"#!/bin/sh\nexit {0 if minor in here else 127}\n", "utf-8")
        script.chmod(0o755)
    own = "dev.venv_python = lambda: 'own'; dev.subprocess.check_output = lambda command: b'11'"
    program = f"import dev, os; {own}; dev.choose_pythons(); print(os.environ.get('TOX_OVERRIDE', ''))"

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    found = dict(
        part.removeprefix("testenv:").split(".base_python=") for part in done.stdout.strip().split(";") if part
    )
    assert found == chosen


PIP_SETTINGS = r"""
global.cert='/ca.pem'
global.extra-index-url='\ntwo\nthree'
global.index-url='one'
"""


@pytest.mark.parametrize(
    ("listed", "surroundings", "told"),
    [
        ("", {}, ["1", None, None, None]),
        (PIP_SETTINGS, {}, ["1", "/ca.pem", "one", "two three"]),
        (f":env:.index-url='other'{PIP_SETTINGS}", {}, ["1", "/ca.pem", "other", "two three"]),
        (PIP_SETTINGS, {"SSL_CERT_FILE": "/own.pem", "UV_SYSTEM_CERTS": "0"}, ["0", "/own.pem", "one", "two three"]),
    ],
    ids=["nothing", "files", "a variable goes before a file", "what uv was told goes first"],
)
def test_uv_takes_packages_from_where_pip_does(
    listed: str, surroundings: dict[str, str], told: list[str | None]
) -> None:
    """Whatever `pip config list` says."""
    listing = f"dev.venv_python = lambda: 'own'; dev.subprocess.check_output = lambda command: {listed.encode()!r}"
    names = "UV_SYSTEM_CERTS", "SSL_CERT_FILE", "UV_DEFAULT_INDEX", "UV_INDEX"
    said = f"print(json.dumps([os.environ.get(name) for name in {names}]))"
    done = subprocess.run(
        [sys.executable, "-c", f"import dev, json, os; {listing}; dev.tell_uv_what_pip_knows(); {said}"],
        cwd=ROOT,
        env={"PATH": "/nowhere", **surroundings},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert json.loads(done.stdout) == told


TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini", encoding="utf-8")


def test_no_environment_names_pythons_of_which_only_the_first_is_looked_for() -> None:
    assert [name for name in TOX.sections() if TOX.has_option(name, "base_python")] == []


RAN = {"result": {"skipped": False}, "test": []}
SKIPPED = {"result": {"skipped": True}, "python": {"version_info": [3, 10, 0, "", 0]}}
ALL_RAN = dict.fromkeys(TOX["tox"]["env_list"].split(", "), RAN)


def run_all_tests(environments: Mapping[str, Any] | None, tmp_path: Path, *, status: int = 0) -> tuple[int, list[str]]:
    """A run of all tests with a tox that ends with this status and this report: its exit status, what it says last."""
    fake = tmp_path / "tox.py"
    report = None if environments is None else json.dumps({"testenvs": environments})
    fake.write_text(
        "import sys\nfrom pathlib import Path\nprint('congratulations :)', flush=True)\n"
        f"report = {report!r}\nif report: Path(sys.argv[-1]).write_text(report, 'utf-8')\nsys.exit({status})\n",
        "utf-8",
    )
    program = (
        f"import dev, pathlib, sys; dev.VENV = pathlib.Path({str(tmp_path)!r});"
        f" sys.exit(dev.run_all_tests([sys.executable, {str(fake)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PATH": "/nowhere", "CI": "true"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    lines = done.stdout.splitlines()
    return done.returncode, lines[lines.index("congratulations :)") + 1 :]


@pytest.mark.parametrize("status", [0, 1, 3])
def test_a_whole_run_ends_as_tox_does(status: int, tmp_path: Path) -> None:
    assert run_all_tests(ALL_RAN, tmp_path, status=status) == (status, [])


@pytest.mark.parametrize("missing", ["unit", "kit"])
def test_a_run_without_unit_tests_fails_and_says_why(missing: str, tmp_path: Path) -> None:
    status, said = run_all_tests({**ALL_RAN, missing: SKIPPED}, tmp_path)

    assert status == 1
    assert said == [
        f"==> not run: {missing}: it needs Python 3.10, which is not here",
        f"==> this run fails, because unit tests did not run: {missing}",
    ]


def test_an_environment_that_could_not_be_installed_is_named(tmp_path: Path) -> None:
    status, said = run_all_tests({**ALL_RAN, "unit": {"result": {"skipped": False}}}, tmp_path, status=1)

    assert status == 1
    assert said == [
        "==> not run: unit: what it needs could not be installed; its own lines above say why",
        "==> this run fails, because unit tests did not run: unit",
    ]


def test_a_run_without_a_report_fails(tmp_path: Path) -> None:
    status, said = run_all_tests(None, tmp_path)

    assert status == 1
    assert said[-1] == "==> this run fails, because unit tests did not run: unit, kit"


def test_environments_and_tests_that_were_skipped_are_named_last(tmp_path: Path) -> None:
    output = (
        "3 passed\n\x1b[33mSKIPPED\x1b[0m [2] tests/unit/test_a.py:7: needs a C compiler\n"
        "SKIPPED [1] tests/unit/test_b.py:9: needs a C compiler\n"
        "SKIPPED [1] tests/unit/c.py: could not import 'z': no\n"
    )
    left_out, missing = [name for name in ALL_RAN if name not in {"unit", "kit"}][:2]
    environments = {**ALL_RAN, "unit": {**RAN, "test": [{"output": output}]}, left_out: {}, missing: SKIPPED}

    status, said = run_all_tests(environments, tmp_path)

    assert status == 0
    assert said == [
        f"==> not run: {left_out}: TOX_SKIP_ENV leaves it out, or the run ended before",
        f"==> not run: {missing}: it needs Python 3.10, which is not here",
        "==> not run: 3 tests of unit: needs a C compiler",
        "==> not run: 1 test of unit: could not import 'z': no",
    ]
