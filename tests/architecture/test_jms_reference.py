"""The reference of the JMS-style profile names the test of each rule, and the test is there."""

from __future__ import annotations

import re

import pytest

from documents import ROOT

REFERENCE = ROOT / "docs" / "reference" / "jms.md"
TESTS = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))

_RULE = re.compile(r"^\| (?P<rule>[^|]+) \| (?P<here>[^|]+) \| ?(?P<tests>[^|]*)\|$", re.MULTILINE)
_RULES = [match for match in _RULE.finditer(REFERENCE.read_text("utf-8")) if match["rule"] not in {"rule", "---"}]


def test_there_are_rules() -> None:
    assert len(_RULES) > 40


@pytest.mark.parametrize("rule", _RULES, ids=lambda rule: str(rule["rule"])[:60])
def test_a_rule_has_a_test_or_is_kept_otherwise(rule: re.Match[str]) -> None:
    tests = re.findall(r"`(test_\w+)`", rule["tests"])

    assert tests or "**differs**" in rule["here"]
    assert [name for name in tests if f"def {name}(" not in TESTS] == []
