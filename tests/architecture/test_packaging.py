"""Every list that names our packages names the same ones, and what users install holds all of them."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.resources
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from architecture.project import (
    FOLDERS,
    ROOT,
    contracts,
    imported_modules,
    package_paths,
    package_sources,
    pyproject,
)

PACKAGES = {path.name for path in package_paths()}


def test_each_folder_holds_a_package() -> None:
    holders = {str(path.parent.relative_to(ROOT)) for path in package_paths()}

    assert sorted(holders) == sorted(FOLDERS)


def test_every_directory_of_code_is_a_package() -> None:
    """A directory without __init__.py would be left out of the wheel by some tools and kept by others."""
    directories = {source.path.parent for source in package_sources()}

    assert [str(path.relative_to(ROOT)) for path in directories if not (path / "__init__.py").exists()] == []


def test_the_wheel_takes_every_package() -> None:
    """A misspelt entry would be no error to hatchling: the wheel would lack that package."""
    taken = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert sorted(taken) == sorted(str(path.relative_to(ROOT)) for path in package_paths())


def test_the_import_contracts_know_every_package() -> None:
    assert set(contracts()["importlinter"]["root_packages"]) == PACKAGES
    assert set(contracts()["importlinter:contract:star"]["layers"]) - {"|"} == PACKAGES


def test_the_tools_know_every_folder() -> None:
    tools = pyproject()["tool"]
    mypy_path = {path.removeprefix("$MYPY_CONFIG_FILE_DIR/") for path in tools["mypy"]["mypy_path"]}
    checked = set(tools["mypy"]["files"])

    assert set(tools["ruff"]["src"]) == {*FOLDERS, "tests"}
    assert mypy_path == {*FOLDERS, "tests"}
    assert {folder for folder in FOLDERS if not {folder, folder.split("/")[0]} & checked} == set()


def test_no_folder_can_be_imported_by_its_own_name() -> None:
    """`import sdk.gapless` from the root gives a second copy of every class, equal to none of the first."""
    banned = pyproject()["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"]

    assert {folder.split("/")[0] for folder in FOLDERS} - set(banned) == set()


def test_every_package_is_typed() -> None:
    untyped = [name for name in PACKAGES if not importlib.resources.files(name).joinpath("py.typed").is_file()]

    assert untyped == []


def test_every_module_is_installed() -> None:
    """The installed distribution (in tox: the wheel) finds every module that the checkout has."""
    modules = [source.module for source in package_sources()]

    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_the_module_that_spark_looks_for_is_installed() -> None:
    """It lies beside the packages, under a name that Spark finds: the wheel must be told of it."""
    included = pyproject()["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    assert included == {
        "sdk/gapless_main.py": "gapless_main.py",
        "spark_connector/pyspark_gapless.py": "pyspark_gapless.py",
    }
    assert all((ROOT / path).is_file() for path in included)
    assert importlib.util.find_spec("pyspark_gapless") is not None


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="outside tox one tests what one likes")
def test_tox_tests_what_users_get() -> None:
    """The wheel, not the checkout: a module that the wheel lacks must be missed."""
    spec = importlib.util.find_spec("gapless")

    assert spec is not None
    assert ROOT / "sdk" not in Path(spec.origin or ROOT).parents


def test_every_entry_point_is_a_module_of_ours() -> None:
    """An entry point that leads nowhere shows only when someone asks for that plugin."""
    modules = {source.module for source in package_sources()}
    groups = pyproject()["project"]["entry-points"]
    targets = [value for points in groups.values() for value in points.values()]
    installed = [point for group in groups for point in importlib.metadata.entry_points(group=group)]

    assert [value for value in targets if value not in modules] == []
    assert [value for value in targets if value not in {point.value for point in installed}] == []


def test_the_changelog_knows_this_version() -> None:
    assert f"## [{gapless.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_distribution_has_the_version_of_the_package() -> None:
    assert importlib.metadata.version("gapless") == gapless.__version__


def test_the_extras_for_testing_name_all_that_the_kit_imports() -> None:
    """And nothing else: beside them there is what gapless itself needs, and the standard library."""
    project = pyproject()["project"]
    extras = project["optional-dependencies"]
    extra = _distributions([*extras["testing"], *extras["kafka"]])  # what starts a Kafka says that it needs the latter
    imported = _imported_from_elsewhere({"gapless_testing", "gapless_sim"})

    assert imported - _distributions(project["dependencies"]) == extra


def _distributions(requirements: list[str]) -> set[str]:
    return {_normal(re.split(r"[^\w.-]", requirement, maxsplit=1)[0]) for requirement in requirements}


def _imported_from_elsewhere(packages: set[str]) -> set[str]:
    """The distributions of everything imported by some of our packages, at whatever place in a module."""
    sources = [source for source in package_sources() if source.module.partition(".")[0] in packages]
    nodes = [node for source in sources for node in ast.walk(source.tree)]
    statements = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {module.partition(".")[0] for node in statements for module in imported_modules(node)}
    owners = _owners()
    elsewhere = modules - PACKAGES - sys.stdlib_module_names
    return {_normal(owner) for module in elsewhere for owner in owners.get(module, [f"nobody's {module}"])}


def _owners() -> dict[str, set[str]]:
    """Which distributions install a module; by their files, for `packages_distributions` of Python 3.10 misses most."""
    owners: dict[str, set[str]] = {}
    for distribution in importlib.metadata.distributions():
        name = distribution.metadata["Name"]  # which is parsed anew at each look
        for file in distribution.files or ():
            owners.setdefault(file.parts[0].removesuffix(".py"), set()).add(name)
    return owners


def _normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.timeout(180)
def test_the_simulator_runs_where_no_test_tool_is_installed() -> None:
    """`gapless simulate` is a command of the plain installation; the suites alone need pytest."""
    modules = sorted(source.module for source in package_sources() if source.module.startswith("gapless_sim"))
    program = (
        "import importlib, sys\n"
        "sys.modules['pytest'] = sys.modules['hypothesis'] = None\n"
        f"for module in {[*modules, 'gapless_testing.kafka']}: importlib.import_module(module)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert done.stderr == ""
