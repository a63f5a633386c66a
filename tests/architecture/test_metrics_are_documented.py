"""docs/reference/metrics.md has every figure of the code, as its `Family` says it; it is written from the families.

After a change that is meant, set REWRITE_METRICS=1 to write the tables anew.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module

from architecture.project import ROOT, is_within, package_sources
from gapless.core.gauges import Family

PAGE = ROOT / "docs" / "reference" / "metrics.md"
REWRITE = os.environ.get("REWRITE_METRICS") == "1"
FOR_TESTS = ("gapless_sim", "gapless_testing")
SECTIONS = {
    "gapless_pubend": "Pubends, at their broker (PHB)",
    "gapless_phb": "Their broker",
    "gapless_gateway": "Gateways to Kafka",
    "gapless_subscription": "Subscriptions",
    "gapless_shb": "What serves subscribers (SHB)",
    "gapless_node": "The node and its clients",
    "gapless_facts": "What the parts of a node say to each other",
    "gapless_volume": "The volume",
    "gapless_broker": "Links to other nodes",
    "gapless_network": "The network",
    "gapless_router": "Routers",
    "gapless_rules": "Rules",
    "gapless_principal": "Principals",
    "gapless_audit": "The audit",
    "gapless_alarm": "What lasts of alarms",
    "gapless_alarms": "Alarms",
    "gapless_build": "What runs",
    "gapless_process": "The process",
    "process": "The process, under the names that Prometheus has for it",
    "python": "Python",
}
"""The sections of the page: the families whose names begin like this."""


@cache
def families() -> dict[str, Family]:
    """Every family that a module of the packages declares, by its name."""
    found: dict[str, Family] = {}
    for source in package_sources():
        if is_within(source.module, FOR_TESTS) or "Family(" not in source.text:
            continue
        for value in vars(import_module(source.module)).values():
            if isinstance(value, Family):
                assert found.setdefault(value.name, value) is value, f"{value.name} is declared twice"
    return found


def section_of(family: Family) -> str:
    """How the families of its section begin."""
    words = family.name.split("_")
    return "_".join(words[: 2 if words[0] == "gapless" else 1])


def kind_of(family: Family) -> str:
    """Its type, as Prometheus calls it."""
    return "histogram" if family.bounds else "counter" if family.counter else "gauge"


def tables() -> str:
    """All sections, each with its table."""
    lines: list[str] = []
    for prefix, title in SECTIONS.items():
        lines += [f"## {title}", "", "| name | type | labels | what it says |", "|---|---|---|---|"]
        for family in sorted(families().values(), key=lambda family: family.name):
            if section_of(family) == prefix:
                labels = ", ".join(f"`{label}`" for label in family.labels)
                lines.append(f"| `{family.name}` | {kind_of(family)} | {labels} | {family.help} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def test_the_tables_are_those_of_the_code() -> None:
    begin, _, rest = PAGE.read_text("utf-8").partition("\n## ")
    if REWRITE:
        PAGE.write_text(f"{begin}\n{tables()}", "utf-8")
        return

    assert f"## {rest}" == tables()


def test_every_family_has_a_section() -> None:
    assert {section_of(family) for family in families().values()} == set(SECTIONS)


def test_names_and_texts_are_as_prometheus_has_them() -> None:
    for family in families().values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*[a-z0-9]", family.name), family
        assert family.name.endswith("_total") is (family.counter and not family.bounds), family
        assert not family.bounds or family.name.endswith("_seconds"), family
        assert family.help.endswith("."), family
        assert "|" not in family.help, family
        assert not {"le", "quantile"} & set(family.labels), family
