"""Filters: the topics and the selector of a subscription."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from gapless.errors import InvalidTopicError
from gapless.selectors.headers import APP_ID
from gapless.selectors.selector import Selector
from gapless.selectors.topics import check_pattern, check_patterns, check_topic, topic_matches
from gapless.selectors.values import Value

__all__ = ["Filter", "check_pattern", "check_topic"]

# Brokers send each other their filters again and again; the same text need not be parsed each time.
_selector = lru_cache(maxsize=4096)(Selector)


def leaving_out(selector: str, app_id: str) -> str:
    """Returns the selector for the same events, but for those of the publishers with this JMSXAppID; "" is nobody."""
    if not app_id:
        return selector
    text = app_id.replace("'", "''")
    others = f"{APP_ID} IS NULL OR {APP_ID} <> '{text}'"
    return f"({selector}) AND ({others})" if selector.strip() else others


@dataclass(frozen=True)
class Filter:
    """Selects the events that match any of these topic patterns, and for which the selector is true; blank: all.

    It is checked when it is made: raises InvalidTopicError, InvalidSelectorError. Two filters are equal if their texts
    are equal.
    """

    topics: tuple[str, ...]
    selector: str = ""

    def __post_init__(self) -> None:
        topics: object = self.topics
        if not isinstance(topics, tuple) or not topics:
            raise InvalidTopicError(f"a filter has a tuple of one or more topic patterns, not {topics!r}")
        check_patterns(self.topics)
        _ = self.compiled

    @classmethod
    def known(cls, topics: tuple[str, ...], selector: str) -> Filter:
        """Returns a filter that was checked when it was first made. It is parsed only when that is needed."""
        known = object.__new__(cls)
        object.__setattr__(known, "topics", topics)
        object.__setattr__(known, "selector", selector)
        return known

    def __reduce__(self) -> tuple[Callable[[tuple[str, ...], str], Filter], tuple[tuple[str, ...], str]]:
        return Filter, (self.topics, self.selector)

    @cached_property
    def compiled(self) -> Selector:
        """The parsed selector."""
        return _selector(self.selector)

    def matches(self, topic: str, properties: Mapping[str, Value], headers: Mapping[str, Value]) -> bool:
        """Whether the filter selects an event with this topic, these properties and these headers."""
        wanted = any(topic_matches(pattern, topic) for pattern in self.topics)
        return wanted and self.compiled.selects(properties, headers)
