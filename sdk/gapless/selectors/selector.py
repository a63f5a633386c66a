"""The selector as applications and brokers hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gapless.selectors.compile import event_test
from gapless.selectors.normal import ALWAYS, Normal, normal_form
from gapless.selectors.parser import parse
from gapless.selectors.predicates import EventTest
from gapless.selectors.values import Value

_NO_HEADERS: Final[Mapping[str, Value]] = {}


@dataclass(frozen=True, slots=True)
class Selector:
    """A JMS-style selector: a condition on the properties and headers of an event, never on its body.

    A blank expression selects every event. Parsed and checked once, here: raises InvalidSelectorError, with
    the position, if the expression does not parse, if its types can never fit, or if it is too long or too
    deep. Two selectors are equal if they have the same normal form; `expression` is how each was written.

        >>> Selector("origin = 'JFK' AND dep_delay > 60").matches({"origin": "JFK", "dep_delay": 75})
        True
    """

    expression: str = field(compare=False)
    normal: Normal = field(init=False, repr=False)
    """What is matched: AND and OR of predicates."""
    _holds: EventTest | None = field(init=False, repr=False, compare=False)
    """What tests an event, made when it is first asked: a broker that indexes many selectors never does."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "normal", normal_form(parse(self.expression)))
        object.__setattr__(self, "_holds", None)

    def __reduce__(self) -> tuple[Callable[[str], Selector], tuple[str]]:
        return Selector, (self.expression,)

    def matches(self, properties: Mapping[str, Value], headers: Mapping[str, Value] | None = None) -> bool:
        """Whether the selector is true for an event, neither false nor unknown.

        A property that is missing or None is NULL. `headers` holds header fields under their JMS names, such
        as `JMSPriority`; JMSDeliveryMode is 'PERSISTENT' or 'NON_PERSISTENT'. (Jakarta Messaging 3.1
        section 3.8.1.)
        """
        holds = self._holds
        if holds is None:
            holds = event_test(self.normal)
            object.__setattr__(self, "_holds", holds)
        return holds(properties, _NO_HEADERS if headers is None else headers)

    @property
    def selects_everything(self) -> bool:
        """Whether it is known to be true for every event, as a blank one is."""
        return self.normal == ALWAYS
