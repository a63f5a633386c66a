"""tests/unit mirrors the packages: what `gapless.core.stream` promises is tested in `tests/unit/gapless/core/stream`.

How a package is cut into modules is its own business: a test file there is named after what it tests, a module or a
subject. Only a large module has test files of its own, found by its name: `columns.py` has `test_columns.py`, or
several, `test_columns_batches.py`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from architecture.project import ROOT, Source, body_without_docstring, functions, package_sources, parse

UNIT = ROOT / "tests" / "unit"
PACKAGE_LINES_MAX = 40
"""A package with as many lines of behaviour or fewer may be tested through the one that uses it."""
MODULE_LINES_MAX = 150
"""A module with as many lines of behaviour or fewer needs no test file of its own."""

_SCENARIOS = "unit/gapless_sim/workloads/test_scenarios.py: each scenario ends, and all its turns come"
_KAFKA = "sim/test_seeds.py: nothing breaks, and KAFKA_SOMETIMES happens; sim/switches/kafka.py"
_ROUTERS = "conformance/test_routing.py: right routers pass; unit/gapless_testing/routing: broken ones are noticed"
_BREACHES = "unit/gapless_testing/storage/test_breaches.py, test_journal_breaches.py: each of its tests can fail"
_NETWORK = "sim/test_seeds.py: what is sent arrives, and each fault happens; sim/switches/network.py, links.py"
UNTESTED: dict[str, str] = {
    "gapless_sim.hostile.publisher_side": "conformance/test_routing.py; unit/gapless_sim/hostile/test_router.py",
    "gapless_sim.workloads.churn_subscribe_operations": "unit/gapless_sim/workloads/test_churn.py: all of them come",
    "gapless_sim.workloads.churn_subscriptions": "unit/gapless_sim/workloads/test_judging_applications.py",
    "gapless_sim.workloads.kafka": _KAFKA,
    "gapless_sim.workloads.kafka_faults": _KAFKA,
    "gapless_sim.workloads.roaming": "unit/gapless_sim/workloads/test_workloads.py; sim/switches/roaming.py",
    "gapless_sim.workloads.scenario_publishers": _SCENARIOS,
    "gapless_sim.workloads.scenario_readers": _SCENARIOS,
    "gapless_sim.workloads.scenario_starts": _SCENARIOS,
    "gapless_sim.workloads.scenario_troubles": _SCENARIOS,
    "gapless_sim.world.application": "unit/gapless_sim/workloads/test_churn.py: processes end and come back",
    "gapless_sim.world.links": _NETWORK,
    "gapless_sim.world.network": _NETWORK,
    "gapless_testing.routing.publishing": _ROUTERS,
    "gapless_testing.routing.subscribing": _ROUTERS,
    "gapless_testing.storage.failures": _BREACHES,
    "gapless_testing.storage.powercuts": _BREACHES,
    "gapless_testing.storage.streams": _BREACHES,
    "gapless_testing.storage.volumes": _BREACHES,
}
"""The ratchet: a large module without a test file of its own, and what tests it instead."""


def code_lines(source: Source) -> int:
    """How many lines of functions do something: signatures, docstrings and comments do not count."""
    lines: set[int] = set()
    for function in functions(source.tree):
        for statement in body_without_docstring(function):
            lines.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    text = ["", *(line.strip() for line in source.text.splitlines())]
    return sum(1 for number in lines if text[number] and not text[number].startswith("#"))


def package_of(source: Source) -> str:
    """The package that a module lies in; a package lies in itself."""
    return source.module if source.path.name == "__init__.py" else source.module.rpartition(".")[0]


def folder_of(package: str) -> Path:
    """Where under tests/unit a package is tested."""
    return UNIT.joinpath(*package.split("."))


def files_testing(source: Source) -> list[Path]:
    """The files under tests/unit that bear a module's name."""
    name = source.module.rpartition(".")[2]
    folder = folder_of(package_of(source))
    return [*folder.glob(f"test_{name}.py"), *folder.glob(f"test_{name}_*.py")]


def test_every_package_has_tests() -> None:
    lines: Counter[str] = Counter()
    for source in package_sources():
        lines[package_of(source)] += code_lines(source)
    large = {package for package, count in lines.items() if count > PACKAGE_LINES_MAX}

    assert sorted(package for package in large if not [*folder_of(package).glob("test_*.py")]) == []


def test_every_large_module_has_a_test_file() -> None:
    large = [source for source in package_sources() if code_lines(source) > MODULE_LINES_MAX]
    untested = {source.module for source in large if not files_testing(source)}

    assert sorted(untested - set(UNTESTED)) == []
    assert sorted(set(UNTESTED) - untested) == [], "take out of the ratchet what is tested now"


def test_every_test_file_lies_where_its_package_is_tested() -> None:
    """The tests of a package that was moved would go on by themselves, where nobody looks for them."""
    folders = {folder_of(package_of(source)) for source in package_sources()}

    assert sorted(str(path.relative_to(ROOT)) for path in UNIT.rglob("test_*.py") if path.parent not in folders) == []


def test_behaviour_is_what_counts() -> None:
    source = parse('"""One."""\n\nTWO = 2\n\n\ndef f(\n    a,\n):\n    """Three."""\n    # four\n\n    return a\n')

    assert code_lines(source) == 1
