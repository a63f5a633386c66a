"""docs/protocol names every mutation and every oracle in its place."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from architecture.project import ROOT, package_sources
from documents import prose
from gapless.core.network import seam
from gapless_shb.core.state.subscription import BEFORE, Phase
from sim.switches.catalogue import NOT_APPLICABLE, SWITCHES

PROTOCOL = ROOT / "docs" / "protocol"
PAGES = sorted(PROTOCOL.glob("*.md"))

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_ROW = re.compile(r"^\| (?P<key>[^|]+) \|(?P<cells>.*)\|$", re.MULTILINE)
_RULE = re.compile(r"\*\*(.+)\*\*: ")


def sections() -> list[str]:
    """The sections of all pages, as the code cites them."""
    headings = (heading for page in PAGES for heading in _SECTION.findall(prose(page)))
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def rows(*names: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of the tables of some pages: the first cell, and the others."""
    for name in names:
        for row in _ROW.finditer((PROTOCOL / name).read_text("utf-8")):
            yield row["key"].strip(), [cell.strip() for cell in row["cells"].split("|")]


def mutations() -> dict[str, list[str]]:
    """What the pages name for each rule, in their last columns."""
    found: dict[str, list[str]] = {}
    for key, cells in rows("traps.md", "persist-before.md"):
        rule = _RULE.match(key)
        found[f"before {rule[1]}" if rule else key] = re.findall(r"`(\w+)`", cells[-1])
    return found


def test_no_two_sections_have_one_name() -> None:
    assert [name for name, count in Counter(sections()).items() if count > 1] == []


def test_every_rule_has_a_row_that_names_its_mutations() -> None:
    broken: dict[str, list[str]] = {rule: [] for rule in NOT_APPLICABLE}
    for switch in SWITCHES:
        for rule in switch.breaks:
            broken.setdefault(rule, []).append(switch.name)
    named = mutations()

    assert {rule: named.get(rule) for rule in broken} == broken


def oracles() -> dict[str, str]:
    """The invariant of each oracle, by its class."""
    return {
        node.name: statement.value.value
        for source in package_sources()
        if ".oracles." in source.module
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == "name"
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        and statement.value.value != "sometimes"  # counts what should happen, and judges nothing
    }


def test_every_oracle_stands_in_the_row_of_its_invariant() -> None:
    named = {key: re.findall(r"`(\w+)`", cells[-1]) for key, cells in rows("invariants.md")}
    known = oracles()

    assert known
    assert [oracle for oracle, invariant in known.items() if oracle not in named.get(invariant, [])] == []


def test_the_seam_is_listed_whole() -> None:
    facts = {fact.__name__ for fact in get_args(seam.Told)}
    effects = {effect.__name__ for effect in get_args(seam.Effect)}
    listed = set(re.findall(r"`(\w+)`", (PROTOCOL / "routing-seam.md").read_text("utf-8")))

    assert facts
    assert effects
    assert sorted((facts | effects) - listed) == []


def test_the_phases_of_a_subscription_are_those_of_the_code() -> None:
    everything = {phase.name.lower() for phase in Phase}
    documented: dict[str, set[str]] = {}
    for key, cells in rows("subscriber-host.md"):
        if key in everything:
            before = {"all others": everything, "all but removed": everything - {"removed"}}.get(cells[-1])
            documented[key] = (set(cells[-1].split(", ")) if before is None else before) - {key}

    assert documented == {phase.name.lower(): {one.name.lower() for one in before} for phase, before in BEFORE.items()}
