"""What applications of the workload `churn` subscribe to: topics and a selector, and what both mean in Python.

The meaning is written down by hand, apart from the parser and the matchers of the product: it is what an
oracle judges by. A selector is about properties and header fields that may be absent; then it is neither true
nor false, and only what is true matches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless_sim.workloads.headers import HEADER_SELECTORS

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.world.choices import Stream

Properties = Mapping[str, Any]


class Terms(NamedTuple):
    """What a subscription is for."""

    topics: tuple[str, ...]
    selector: str
    matches: Callable[[Logged], bool]


EVERYTHING = Terms(("#",), "", lambda _: True)
"""Much is subscribed to with it: what matches little moves little."""

PATTERNS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("#", lambda _: True),
    ("a.#", lambda topic: topic == "a" or topic.startswith("a.")),
    ("a", lambda topic: topic == "a"),
    ("a.*", lambda topic: topic.startswith("a.") and topic.count(".") == 1),
    ("*.x", lambda topic: topic.endswith(".x") and topic.count(".") == 1),
    ("*", lambda topic: "." not in topic),
    ("*.b.#", lambda topic: topic.split(".")[1:2] == ["b"]),
    ("b.b.c", lambda topic: topic == "b.b.c"),
    ("nothing.at.all", lambda _: False),
)

_OF_PROPERTIES: tuple[tuple[str, Callable[[Properties], bool]], ...] = (
    ("", lambda _: True),
    ("k = 1", lambda p: p.get("k") == 1),
    ("k <> 1", lambda p: "k" in p and p["k"] != 1),
    ("NOT (k = 1)", lambda p: "k" in p and p["k"] != 1),
    ("k > 0 AND k <= 3", lambda p: "k" in p and 0 < p["k"] <= 3),
    ("k BETWEEN 2 AND 6", lambda p: "k" in p and 2 <= p["k"] <= 6),
    ("k NOT BETWEEN 0 AND 2", lambda p: "k" in p and not 0 <= p["k"] <= 2),
    ("k IS NULL", lambda p: "k" not in p),
    ("k IS NOT NULL AND flag IS NOT NULL", lambda p: "k" in p and "flag" in p),
    ("flag", lambda p: p.get("flag") is True),
    ("flag = FALSE", lambda p: p.get("flag") is False),
    ("NOT flag", lambda p: p.get("flag") is False),
    ("price > 2", lambda p: "price" in p and p["price"] > 2),
    ("price < k", lambda p: "price" in p and "k" in p and p["price"] < p["k"]),
    ("k * 2 + 1 = 5", lambda p: p.get("k") == 2),
    ("-price >= 0.75", lambda p: "price" in p and p["price"] <= -0.75),
    ("tree = 'ash'", lambda p: p.get("tree") == "ash"),
    ("tree <> 'ash'", lambda p: "tree" in p and p["tree"] != "ash"),
    ("tree IN ('ash', 'birch')", lambda p: p.get("tree") in ("ash", "birch")),
    ("tree NOT IN ('ash', 'birch')", lambda p: "tree" in p and p["tree"] not in ("ash", "birch")),
    ("tree LIKE 'a_h'", lambda p: p.get("tree") in ("ash", "a%h")),
    ("tree LIKE 'a!%h' ESCAPE '!'", lambda p: p.get("tree") == "a%h"),
    ("tree NOT LIKE '%sh'", lambda p: "tree" in p and not p["tree"].endswith("sh")),
    ("k = 1 OR flag", lambda p: p.get("k") == 1 or p.get("flag") is True),
    ("k = 1 OR tree IS NULL", lambda p: p.get("k") == 1 or "tree" not in p),
    ("NOT (k = 1 OR flag)", lambda p: "k" in p and p["k"] != 1 and p.get("flag") is False),
    ("NOT (k = 1 AND flag)", lambda p: ("k" in p and p["k"] != 1) or p.get("flag") is False),
    ("k = 1 AND k = 2", lambda _: False),
)


def _by_properties(true_of: Callable[[Properties], bool]) -> Callable[[Logged], bool]:
    return lambda event: true_of(event.publication.properties)


SELECTORS = (*((selector, _by_properties(true_of)) for selector, true_of in _OF_PROPERTIES), *HEADER_SELECTORS)
"""Those on properties, and those that ask for header fields."""

NONSENSE_SELECTORS = ("k = ", "k = 'ash' AND", "tree LIKE 5", "(k = 1", "k BETWEEN 1")
NONSENSE_TOPICS = ("", "a..b", "a.#.b", "a.b*")


def draw_terms(choices: Stream) -> Terms:
    """Something to subscribe to: mostly one pattern and a selector."""
    patterns = [choices.pick(PATTERNS)]
    if choices.chance(0.15):
        patterns.append(choices.pick(PATTERNS))
    selector, true_of = choices.pick(SELECTORS)
    return combine(patterns, selector, true_of)


def combine(
    patterns: list[tuple[str, Callable[[str], bool]]], selector: str, true_of: Callable[[Logged], bool]
) -> Terms:
    """The terms of any of these patterns, and a selector."""
    wanted = [is_one for _, is_one in patterns]

    def matches(event: Logged) -> bool:
        topic = event.publication.topic
        for is_one in wanted:
            if is_one(topic):
                return true_of(event)
        return False

    return Terms(tuple(pattern for pattern, _ in patterns), selector, matches)


def other_terms(choices: Stream, than: tuple[tuple[str, ...], str]) -> Terms:
    """Terms that are written differently from these topics and this selector."""
    terms = draw_terms(choices)
    if (terms.topics, terms.selector) != than:
        return terms
    selector, true_of = SELECTORS[1] if than[1] != SELECTORS[1][0] else SELECTORS[2]
    return combine([PATTERNS[0]], selector, true_of)
