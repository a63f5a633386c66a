"""The selector, as applications and brokers use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gapless.selectors.compile import event_test
from gapless.selectors.normal import ALWAYS, Normal, normal_form
from gapless.selectors.parser import parse
from gapless.selectors.predicates import EventTest
from gapless.selectors.values import Value, plain_properties
from gapless.texts import exact

_NO_HEADERS: Final[Mapping[str, Value]] = {}


@dataclass(frozen=True, slots=True)
class Selector:
    """A JMS-style selector: a condition on the properties and headers of an event, never on its body.

    A blank expression selects every event. It is parsed and checked once, here: raises InvalidSelectorError, with the
    position, if the expression cannot be parsed, if its types can never fit, or if it is too long or too deep. Two
    selectors are equal if they have the same normal form; `expression` is the text of each.

        >>> Selector("origin = 'JFK' AND dep_delay > 60").matches({"origin": "JFK", "dep_delay": 75})
        True
    """

    expression: str = field(compare=False)
    normal: Normal = field(init=False, repr=False)
    """The condition that is matched: AND and OR of predicates."""
    _holds: EventTest | None = field(init=False, repr=False, compare=False)
    """The test of an event, made when it is first needed: a broker that indexes many selectors never needs it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", normal_form(parse(self.expression)))
        object.__setattr__(self, "expression", exact(self.expression))
        object.__setattr__(self, "_holds", None)

    def __reduce__(self) -> tuple[Callable[[str], Selector], tuple[str]]:
        return Selector, (self.expression,)

    def matches(self, properties: Mapping[str, Value], headers: Mapping[str, Value] | None = None) -> bool:
        """Whether the selector is true for an event, neither false nor unknown.

        A property that is missing or None is NULL. `headers` has header fields under their JMS names, such as
        `JMSPriority`; JMSDeliveryMode is 'PERSISTENT' or 'NON_PERSISTENT'. (Jakarta Messaging 3.1 section 3.8.1.)
        Raises InvalidMessageError for a property that no event can have, as `send` does.
        """
        return self.selects(plain_properties(properties), _NO_HEADERS if headers is None else headers)

    def selects(self, properties: Mapping[str, Value], headers: Mapping[str, Value]) -> bool:
        """Whether it is true for an event that was published, whose properties are plain."""
        holds = self._holds
        if holds is None:
            holds = event_test(self.normal)
            object.__setattr__(self, "_holds", holds)
        return holds(properties, headers)

    @property
    def selects_everything(self) -> bool:
        """Whether it is known to be true for every event, as a blank one is."""
        return self.normal == ALWAYS
