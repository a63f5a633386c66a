"""Cases that the specification and its test kit decide, as data, and our decisions where both are silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapless.errors import InvalidSelectorError
from gapless.selectors import Selector

CASES: dict[str, list[tuple[dict[str, Any], dict[str, Any], Any]]] = json.loads(
    Path(__file__).with_name("selector_cases.json").read_text("utf-8")
)

DECIDED: dict[str, list[tuple[dict[str, Any], dict[str, Any], Any]]] = {
    # exact numbers divide as in Java, by zero they are unknown; approximate ones reach infinity
    "q / 4 = 2": [({"q": 10}, {}, True), ({"q": 10.0}, {}, False)],
    "q / 4 = 2.5": [({"q": 10}, {}, False), ({"q": 10.0}, {}, True)],
    "1 / q = 1 / q": [({"q": 0}, {}, False), ({"q": 0.0}, {}, True)],
    # an escape may be a wildcard, and may stand last, for itself
    "s LIKE '%_%%' ESCAPE '%'": [({"s": "_%"}, {}, True), ({"s": "_x"}, {}, False)],
    "s LIKE 'x!' ESCAPE '!'": [({"s": "x!"}, {}, True), ({"s": "x"}, {}, False)],
    # extensions of other brokers are refused
    "s != 'x'": [({}, {}, "error")],
    "q % 2 = 1": [({}, {}, "error")],
    "s > 'x'": [({}, {}, "error")],
    "s + 'x' = 'yx'": [({}, {}, "error")],
    "a.b = 1": [({}, {}, "error")],
    "q IN (1, 2)": [({}, {}, "error")],
    "'x' IN ('x')": [({}, {}, "error")],
    "'x' LIKE 'x'": [({}, {}, "error")],
    "1 + 1 IS NULL": [({}, {}, "error")],
    "q = 1_000": [({}, {}, "error")],
    # unlike values at run time: false, both ways
    "s NOT LIKE 'x'": [({"s": 5}, {}, False), ({"s": "y"}, {}, True)],
    "s < t": [({"s": "a", "t": "b"}, {}, False), ({"s": 1, "t": 2.5}, {}, True)],
}


@pytest.mark.parametrize("expression", [*CASES, *DECIDED])
def test_case(expression: str) -> None:
    for properties, headers, expected in [*CASES.get(expression, []), *DECIDED.get(expression, [])]:
        if expected == "error":
            with pytest.raises(InvalidSelectorError):
                Selector(expression)
        else:
            assert Selector(expression).matches(properties, headers) is expected, (properties, headers)


def test_there_are_cases() -> None:
    assert len(CASES) > 100
