"""Topics and their patterns: levels with dots between, `*` for one level, a trailing `#` for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from gapless.errors import InvalidTopicError
from gapless.texts import control_problem, exact, text_problem

TOPIC_BYTES_MAX: Final = 255
"""The limit for the length of a topic or a pattern, in UTF-8."""
TOPICS_MAX: Final = 1024
"""How many patterns a subscription may have."""

_WILDCARDS: Final = ("*", "#")


def check_topic(name: str) -> str:
    """Returns the topic. Raises InvalidTopicError if no event may be published to it.

    A topic has one or more levels, separated by dots. No level is empty, none contains `*` or `#`, and the whole topic
    has at most 255 bytes in UTF-8. It has no control characters (`gapless.texts.control_problem`).
    """
    for level in _levels(name):
        if any(wildcard in level for wildcard in _WILDCARDS):
            raise InvalidTopicError(f"{name!r} has a wildcard: it can be subscribed to, not published to")
    _check_controls(name)
    return exact(name)


def check_pattern(pattern: str) -> str:
    """Returns the pattern. Raises InvalidTopicError if it cannot be subscribed to.

    A pattern is a topic in which a whole level may be `*` (any one level), and the last level may be `#` (any number of
    levels, or none).
    """
    levels = _levels(pattern)
    for level in levels[:-1]:
        if level != "*" and any(wildcard in level for wildcard in _WILDCARDS):
            raise InvalidTopicError(f"{pattern!r}: `*` must be a whole level, and `#` the whole last one")
    if levels[-1] not in _WILDCARDS and any(wildcard in levels[-1] for wildcard in _WILDCARDS):
        raise InvalidTopicError(f"{pattern!r}: a wildcard must be a whole level")
    return exact(pattern)


def check_new_patterns(patterns: Sequence[str]) -> None:
    """Raises InvalidTopicError if no new subscription can have patterns that pass `check_patterns`.

    Those that were made before their characters were looked at go on, also through other brokers.
    """
    for pattern in patterns:
        _check_controls(pattern)


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """Returns the patterns. Raises InvalidTopicError if a subscription cannot have them."""
    if len(patterns) > TOPICS_MAX:
        raise InvalidTopicError(f"a subscription has at most {TOPICS_MAX} topic patterns, this one has {len(patterns)}")
    return tuple(map(check_pattern, patterns))


def looks_foreign(pattern: str) -> str:
    """Returns what a checked pattern may be meant as that is written as other systems write theirs; else "".

    MQTT has `/` between levels and `+` for one of them, NATS `>` for the rest. Here these are ordinary characters.
    """
    levels = pattern.split(".")
    if "/" not in pattern and "+" not in levels and levels[-1] != ">":
        return ""
    meant = [{"+": "*", ">": "#"}.get(level, level) for level in pattern.replace("/", ".").split(".") if level]
    return ".".join(meant)


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a checked topic matches a checked pattern."""
    levels, wanted = topic.split("."), pattern.split(".")
    if wanted[-1] == "#":
        del wanted[-1]
        if len(levels) < len(wanted):
            return False
    elif len(levels) != len(wanted):
        return False
    return all(want in ("*", level) for want, level in zip(wanted, levels))  # noqa: B905  # `#` stands for the rest


def pattern_covers(wide: str, narrow: str) -> bool:
    """Whether every topic that matches the checked pattern `narrow` also matches `wide`."""
    # A topic has at least one level, so `#` alone matches the same topics as `*.#`.
    levels, wanted = ["*", "#"] if narrow == "#" else narrow.split("."), wide.split(".")
    if wanted[-1] == "#":
        del wanted[-1]
        if len(levels) - (levels[-1] == "#") < len(wanted):
            return False
    elif levels[-1] == "#" or len(levels) != len(wanted):
        return False
    return all(want in ("*", level) for want, level in zip(wanted, levels))  # noqa: B905  # `#` stands for the rest


def patterns_meet(one: str, other: str) -> bool:
    """Whether any topic matches both checked patterns."""
    levels, wanted = one.split("."), other.split(".")
    open_end, open_wanted = levels[-1] == "#", wanted[-1] == "#"
    named, asked = levels[: len(levels) - open_end], wanted[: len(wanted) - open_wanted]
    if len(named) < len(asked) and not open_end:
        return False
    if len(asked) < len(named) and not open_wanted:
        return False
    return all("*" in pair or pair[0] == pair[1] for pair in zip(named, asked))  # noqa: B905  # `#` stands for the rest


def _check_controls(name: str) -> None:
    if problem := control_problem(name):
        raise InvalidTopicError(f"a topic {problem}")


def _levels(name: str) -> list[str]:
    if problem := text_problem(name):
        raise InvalidTopicError(f"a topic {problem}")
    size = len(name.encode())
    if size > TOPIC_BYTES_MAX:
        raise InvalidTopicError(f"a topic has at most {TOPIC_BYTES_MAX} bytes, this one has {size}")
    levels = name.split(".")
    if "" in levels:
        raise InvalidTopicError(f"{name!r} has an empty level" if name else "a topic cannot be empty")
    return levels


T = TypeVar("T")


class _Level(Generic[T]):
    """A place in the tree of patterns: the value filed here, and the levels that may follow."""

    __slots__ = ("following", "value")

    def __init__(self) -> None:
        self.following: dict[str, _Level[T]] = {}
        self.value: T | None = None


class PatternTree(Generic[T]):
    """Values filed under topic patterns and found by topic. The search follows only patterns that match so far."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Level[T] = _Level()

    def put(self, pattern: str, value: T) -> None:
        """Files a value under a checked pattern, in place of a former one."""
        level = self._root
        for name in pattern.split("."):
            level = level.following.setdefault(name, _Level())
        level.value = value

    def discard(self, pattern: str) -> None:
        """Removes the value that is filed under exactly this pattern, and the levels that are not needed otherwise."""
        path: list[tuple[_Level[T], str]] = []
        level = self._root
        for name in pattern.split("."):
            path.append((level, name))
            level = level.following[name]
        level.value = None
        for above, name in reversed(path):
            below = above.following[name]
            if below.following or below.value is not None:
                break
            del above.following[name]

    def find(self, topic: str) -> list[T]:
        """Returns the values of all patterns that a checked topic matches."""
        found: list[T] = []
        reached = [self._root]
        for name in topic.split("."):
            found += self._filed(level.following.get("#") for level in reached)
            steps = (level.following.get(step) for level in reached for step in (name, "*"))
            reached = [level for level in steps if level is not None]
        found += self._filed(level.following.get("#") for level in reached)
        found += self._filed(reached)
        return found

    def covering(self, pattern: str) -> list[T]:
        """Returns the values of all patterns that match every topic that a checked pattern matches."""
        levels = ["*", "#"] if pattern == "#" else pattern.split(".")
        open_end = levels[-1] == "#"
        found: list[T] = []
        reached = [self._root]
        for name in levels[: len(levels) - open_end]:
            found += self._filed(level.following.get("#") for level in reached)
            steps = (level.following.get(step) for level in reached for step in dict.fromkeys((name, "*")))
            reached = [level for level in steps if level is not None]
        found += self._filed(level.following.get("#") for level in reached)
        return found if open_end else found + self._filed(reached)

    def meeting(self, pattern: str) -> list[T]:
        """Returns the values of all patterns that match any topic that a checked pattern matches."""
        levels = pattern.split(".")
        open_end = levels[-1] == "#"
        found: list[T] = []
        reached = [self._root]
        for name in levels[: len(levels) - open_end]:
            found += self._filed(level.following.get("#") for level in reached)
            reached = [below for level in reached for step, below in level.following.items() if _may_be(step, name)]
        while open_end and reached:
            found += self._filed(reached)
            reached = [below for level in reached for below in level.following.values()]
        return found + self._filed(reached) + self._filed(level.following.get("#") for level in reached)

    @staticmethod
    def _filed(levels: Iterable[_Level[T] | None]) -> list[T]:
        return [level.value for level in levels if level is not None and level.value is not None]


def _may_be(step: str, name: str) -> bool:
    """Whether a level of one pattern, which is not its `#`, and one of another may be the same level of a topic."""
    return step != "#" and (step == name or "*" in (step, name))
