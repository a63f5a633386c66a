"""Selectors and events for property tests: few names and values, so that they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from gapless.selectors.evaluate import truth_of
from gapless.selectors.headers import HEADER_KINDS
from gapless.selectors.parser import parse
from gapless.selectors.values import Truth, Value

"""Machines that build and test are sometimes slow; no test here is about time."""

NAMES = ("a", "b", "c")
NUMBERS = (0, 1, -1, 2, 7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1.0, 0.5, 2.0, float(2**53), 1e300)
TEXTS = ("", "x", "y", "xy", "xyx", "1", "true", "%", "_", "x\ny", "é🥕")
VALUES: tuple[Value, ...] = (None, True, False, *NUMBERS, *TEXTS)

values = st.sampled_from(VALUES)
events = st.dictionaries(st.sampled_from(NAMES), values, max_size=len(NAMES))
headers: st.SearchStrategy[dict[str, Value]] = st.fixed_dictionaries(
    {}, optional={"JMSPriority": st.integers(0, 9), "JMSType": st.sampled_from(TEXTS), "JMSTimestamp": st.none()}
)
topics = st.sampled_from(("a", "a.b", "a.c", "a.b.c", "b", "b.a", "b.c.d"))
patterns = st.sampled_from(("a", "a.b", "a.*", "a.#", "*", "*.b", "#", "b.#", "b.*.d", "*.*.*", "a.b.c.d"))

names = st.sampled_from(NAMES)
numeric_names = st.sampled_from((*NAMES, "JMSPriority", "JMSTimestamp"))
textual_names = st.sampled_from((*NAMES, "JMSType"))


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def _number(number: float) -> str:
    return repr(number)


number_literals = st.sampled_from(NUMBERS).map(_number)
string_literals = st.sampled_from(TEXTS).map(quoted)
like_patterns = st.text(alphabet="xy_%é\n", max_size=5).map(quoted)
negations = st.sampled_from(("", "NOT "))

arithmetic = st.recursive(
    st.one_of(numeric_names, number_literals),
    lambda operands: st.one_of(
        st.builds("({} {} {})".format, operands, st.sampled_from("+-*/"), operands),
        st.builds("{} {}".format, st.sampled_from("+-"), operands),
    ),
    max_leaves=4,
)

conditions = st.one_of(
    st.builds(
        "{} {} {}".format,
        numeric_names,
        st.sampled_from(("=", "<>", "<", "<=", ">", ">=")),
        st.one_of(number_literals, numeric_names),
    ),
    st.builds("{} {} {}".format, number_literals, st.sampled_from(("=", "<>", "<", ">=")), numeric_names),
    st.builds("{} {} {}".format, arithmetic, st.sampled_from(("=", "<>", "<", ">=")), arithmetic),
    st.builds("{} {} {}".format, textual_names, st.sampled_from(("=", "<>")), string_literals),
    st.builds("{} {} {}".format, names, st.sampled_from(("=", "<>")), st.sampled_from(("TRUE", "FALSE"))),
    st.builds("{} {} {}".format, names, st.sampled_from(("=", "<>", "<", ">")), names),
    st.builds("{} {}BETWEEN {} AND {}".format, arithmetic, negations, arithmetic, arithmetic),
    st.builds(
        "{} {}IN ({})".format,
        textual_names,
        negations,
        st.lists(string_literals, min_size=1, max_size=3).map(", ".join),
    ),
    st.builds("{} {}LIKE {}".format, textual_names, negations, like_patterns),
    st.builds("{} {}LIKE {} ESCAPE 'x'".format, textual_names, negations, like_patterns),
    st.builds("{} IS {}NULL".format, st.one_of(textual_names, numeric_names), negations),
    names,
    st.sampled_from(("TRUE", "FALSE")),
)

selectors = st.recursive(
    conditions,
    lambda operands: st.one_of(
        st.lists(operands, min_size=2, max_size=3).map(lambda parts: f"({' AND '.join(parts)})"),
        st.lists(operands, min_size=2, max_size=3).map(lambda parts: f"({' OR '.join(parts)})"),
        operands.map("NOT ({})".format),
    ),
    max_leaves=6,
)


def truth(expression: str, properties: dict[str, Any], headers: dict[str, Any]) -> Truth:
    """What the rules say, read one by one: the slow and obvious way."""
    evaluate = truth_of(parse(expression))
    return evaluate(lambda name: headers.get(name) if name in HEADER_KINDS else properties.get(name))
