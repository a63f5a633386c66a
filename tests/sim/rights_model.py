"""Who may do what, in the plainest way: each topic that there could be is tried, and each table is looked at.

A table is a dict as a file of rules has it, with `denies` beside. Nothing of `gapless.security` is used here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple, TypeAlias

LEVELS = ("a", "b", "c", "z")
"""No rule and no request names `z`: it stands for all other levels."""
TOPICS = [".".join(levels) for length in range(1, 5) for levels in product(LEVELS, repeat=length)]
"""Patterns have three levels at most: the fourth one stands for all that `#` stands for."""
Table: TypeAlias = Mapping[str, Any]


class Who(NamedTuple):
    """A principal."""

    name: str
    groups: tuple[str, ...] = ()


class Owned(NamedTuple):
    """A durable subscription."""

    client_id: str
    name: str


class Named(NamedTuple):
    """A publisher with a name, or a producer."""

    name: str


class Some(NamedTuple):
    """Any of the topics that a pattern matches."""

    pattern: str


What: TypeAlias = str | Owned | Named | Some
"""What somebody may do something with."""


@lru_cache(maxsize=4096)
def topics_of(pattern: str) -> frozenset[str]:
    """The topics that a pattern matches."""
    known = (part if part in {*LEVELS, "*", "#"} else "z" for part in pattern.split(".")[:4])
    text = r"\.".join({"*": r"[^.]+", "#": r".*"}.get(part, part) for part in known)
    text = text if pattern == "#" else text.replace(r"\..*", r"(\..*)?")
    return frozenset(topic for topic in TOPICS if re.fullmatch(text, topic))


@lru_cache(maxsize=4096)
def fits(patterns: tuple[str, ...], text: str) -> bool:
    """Whether one of the patterns, in which `*` stands for any text, is this text."""
    return any(re.fullmatch(".*".join(map(re.escape, one.split("*"))), text, re.DOTALL) for one in patterns)


def concerns(table: Table, who: Who, action: str, what: What) -> bool:
    """Whether a table that is for `who` and `action` covers something, or, where it denies, takes any of it away."""
    denies, topics = table["denies"], [topics_of(one) for one in table.get("topics", ())]
    names, ids = table.get("names"), table.get("client_ids")
    all_durables = "*" in (names or "*") and "*" in (ids or "*")
    everything = all_durables and "#" in (table.get("topics") or "#")
    if isinstance(what, Some):
        meant = topics_of(what.pattern)
        return any(meant <= each if denies else meant & each for each in topics)
    if isinstance(what, Named):
        return fits(tuple(table["publishers"]), what.name) if "publishers" in table else not denies
    if isinstance(what, Owned):
        if names and not fits(tuple(names), what.name):
            return False
        if ids:
            return fits(tuple(ids), what.client_id)
        if denies:
            return bool(names) or not topics
        return action != "consume" or what.client_id == who.name or what.client_id.startswith(f"{who.name}-")
    if action in ("publish", "subscribe"):
        meant = topics_of(what)
        return any(meant & each if denies else meant <= each for each in topics)
    if action == "manage":
        return all_durables
    if what.startswith("topic "):
        meant = topics_of(what.removeprefix("topic "))
        if denies:
            return everything or any(meant <= each for each in topics)
        return not topics or any(meant & each for each in topics)
    if what in ("subscriptions", "pubends"):
        return everything or not denies
    return everything or bool(denies)  # the status


class Model:
    """Tables, and what they say."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables
        self._known: dict[tuple[Who, str, What], bool] = {}

    def allows(self, who: Who, action: str, what: What) -> bool:
        """Whether `who` may do it. Whoever has no name is the process itself."""
        if not who.name:
            return True
        key = (who, action, what)
        if key not in self._known:
            called = {"*", who.name, *(f"group:{group}" for group in who.groups)}
            found = [each for each in self.tables if action in each["actions"] and called & set(each["who"])]
            kinds = {bool(each["denies"]) for each in found if concerns(each, who, action, what)}
            self._known[key] = kinds == {False}
        return self._known[key]
