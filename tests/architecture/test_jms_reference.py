"""The reference of the JMS-style profile: each row's claim has a test that checks it, and what it names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gapless
from documents import ROOT
from gapless import jms
from gapless.core.server import SessionLimits
from gapless.jms import bodies, consumers, producers
from gapless.jms.messages import BODY, TYPES
from gapless_phb.core.publishers.consumed import SUBSCRIPTIONS_MAX

REFERENCE = ROOT / "docs" / "reference" / "jms.md"
TEXT = REFERENCE.read_text("utf-8")
FOLDERS = (ROOT / "tests" / "unit" / "gapless" / "jms", ROOT / "tests" / "unit" / "gapless" / "client")

_ROW = re.compile(r"^\| (?P<rule>[^|]+) \| (?P<here>[^|]+) \|(?: ?(?P<tests>[^|]*)\|)?$", re.MULTILINE)
_ROWS = [row for row in _ROW.finditer(TEXT) if row["rule"] not in {"rule", "---"}]
RULES = [row for row in _ROWS if row["tests"] is not None]
FACTS = [row for row in _ROWS if row["tests"] is None]
"""The rows of the first two tables: what there is, and what goes on the way."""

KINDS = sorted(str(kind) for kind in bodies._KINDS)

OF_OTHERS = {
    *(
        "getJMSXPropertyNames",
        "JMSXUserID",
        "JMSDeliveryMode",
        "JMSExpiration",
        "JMSReplyTo",
        "ObjectMessage",
        "MapMessage",
    ),
    *("NON_PERSISTENT", "GapError", "subscribe", "on_change", "identify", "with", "event"),
    *("JMS_gapless_body", "JMS_gapless_types", "JMSRedelivered", "JMSXDeliveryCount", "JMSMessageID", "JMSTimestamp"),
    *("JMSPriority", "JMSCorrelationID", "JMSType", "JMSXAppID", "JMSXGroupID", "JMSXGroupSeq", "no_local"),
}
"""Names in the rows that are Java's, of the wire or of gapless itself."""


def functions_in(folder: Path) -> dict[str, ast.AST]:
    """The tests in a folder, by name."""
    found: dict[str, ast.AST] = {}
    for path in sorted(folder.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
                found[node.name] = node
    return found


TESTS = {name: node for folder in reversed(FOLDERS) for name, node in functions_in(folder).items()}
PUBLIC = {
    *dir(jms),
    *(name for kind in vars(jms).values() if isinstance(kind, type) for name in dir(kind)),
    *vars(gapless),
}


def test_there_are_rules() -> None:
    assert len(RULES) > 55
    assert len(FACTS) >= 9
    assert TEXT.count("\n| ") == len(_ROWS) + 2 + 3, "each row of each table was read, but for the heads of tables"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["rule"])[:60])
def test_the_claim_of_a_row_is_checked_by_the_tests_that_it_names(rule: re.Match[str]) -> None:
    named = re.findall(r"`(test_\w+)`", rule["tests"])

    assert named
    for name in named:
        assert name in TESTS
        checks = [node for node in ast.walk(TESTS[name]) if isinstance(node, ast.Assert) or _raises(node)]
        assert checks, f"{name} checks nothing"


def _raises(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "raises"


def test_no_rule_has_two_rows() -> None:
    """Two rows about one thing would part, as those about SESSION_TRANSACTED did."""
    rules = [rule["rule"] for rule in RULES]
    said = [rule["rule"] for rule in RULES if re.search(r"\b(it is|they are) refused\b", rule["here"])]

    assert len(set(rules)) == len(rules)
    for rule in said:
        for mode in jms.SessionMode:
            assert mode.name not in rule, f"{mode.name} is not refused: a context can be made with it"


@pytest.mark.parametrize("row", [*RULES, *FACTS], ids=lambda row: str(row["rule"])[:60])
def test_what_a_row_names_is_there(row: re.Match[str]) -> None:
    codes = re.findall(r"`([^`]+)`", f"{row['rule']} {row['here']}")
    words = {found[1] for code in codes if (found := re.fullmatch(r"([A-Za-z_]\w+)(\(.*\))?", code))}

    missing = {
        word for word in words - OF_OTHERS - set(KINDS) if not any(word in name or name == word for name in PUBLIC)
    }

    assert missing == set()


VALUES = {
    "gets its message again at once": ("six times", consumers.REDELIVERIES, 6),
    "called in the order of sending": ("1,024", producers.OUTSTANDING_MAX, 1024),
    "until `commit` takes effect together": ("at most 8 subscriptions", SUBSCRIPTIONS_MAX, 8),
    "in use elsewhere": (
        "15 s without a word",
        SessionLimits().heartbeat * SessionLimits().heartbeats_missed // 1_000_000_000,
        15,
    ),
    "JMS_gapless_body": ("`JMS_gapless_body`", BODY, "JMS_gapless_body"),
    "JMS_gapless_types": ("`JMS_gapless_types`", TYPES, "JMS_gapless_types"),
}


@pytest.mark.parametrize("about", VALUES)
def test_a_figure_is_that_of_the_code(about: str) -> None:
    says, value, expected = VALUES[about]
    row = next(row[0] for row in [*RULES, *FACTS] if about in row[0])

    assert says in row
    assert value == expected


def test_the_kinds_of_bodies_are_those_of_the_code() -> None:
    row = next(row for row in FACTS if row["rule"] == "`JMS_gapless_body`")

    assert sorted(re.findall(r"`([a-z]+)`", row["here"])) == KINDS
