"""Header fields: what senders of both workloads set, and selectors that ask for them, with what they mean.

Written by hand, apart from the product's table of header fields, its parser and its matchers: an oracle judges by it.
What no sender has set is NULL, and so is an empty text; but the priority is 4, and every event is persistent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless_sim.recording.accounts import Logged
    from gapless_sim.world.choices import Stream

PRIORITIES = (None, 4, 0, 9, 5, 7)
TYPES = (None, "ash", "reading", "Ash", "")
CORRELATIONS = (None, "ash", "r-17", "r%17", "")


def draw_headers(draws: Stream) -> dict[str, Any]:
    """What a sender sets; benign is nothing."""
    headers = {
        "priority": draws.pick(PRIORITIES),
        "type": draws.pick(TYPES),
        "correlation_id": draws.pick(CORRELATIONS),
    }
    return {name: value for name, value in headers.items() if value is not None}


def _priority(event: Logged) -> int:
    return int(event.publication.headers.get("priority", 4))


def _type(event: Logged) -> str:
    return str(event.publication.headers.get("type", ""))


def _correlation(event: Logged) -> str:
    return str(event.publication.headers.get("correlation_id", ""))


HEADER_SELECTORS: tuple[tuple[str, Callable[[Logged], bool]], ...] = (
    ("JMSPriority > 4", lambda e: _priority(e) > 4),
    ("JMSPriority = 4", lambda e: _priority(e) == 4),
    ("JMSPriority NOT BETWEEN 4 AND 8", lambda e: _priority(e) in {0, 9}),
    ("JMSPriority - 4 > 0 OR JMSType IS NOT NULL", lambda e: _priority(e) > 4 or _type(e) != ""),
    ("JMSType = 'ash'", lambda e: _type(e) == "ash"),
    ("JMSType <> 'ash'", lambda e: _type(e) not in {"ash", ""}),
    ("NOT (JMSType = 'ash' OR JMSPriority = 9)", lambda e: _type(e) not in {"ash", ""} and _priority(e) != 9),
    ("JMSType IS NULL", lambda e: _type(e) == ""),
    ("JMSType IN ('ash', 'reading')", lambda e: _type(e) in {"ash", "reading"}),
    ("JMSCorrelationID LIKE 'r!%%' ESCAPE '!'", lambda e: _correlation(e).startswith("r%")),
    ("JMSCorrelationID = JMSType", lambda e: _type(e) == _correlation(e) != ""),
    ("JMSCorrelationID IS NOT NULL AND JMSPriority < 9", lambda e: _correlation(e) != "" and _priority(e) < 9),
    # Ticks begin in 2020, at an even number of milliseconds since 1970, and have 22 bits below the millisecond.
    ("JMSTimestamp / 2 * 2 = JMSTimestamp", lambda e: (e.tick >> 22) % 2 == 0),
    ("JMSMessageID LIKE '%2' OR JMSMessageID LIKE '%6'", lambda e: e.tick % 10 in {2, 6}),
    ("JMSMessageID LIKE 'ID:%' AND JMSDeliveryMode = 'PERSISTENT' AND JMSPriority <> 4", lambda e: _priority(e) != 4),
    ("JMSDeliveryMode <> 'PERSISTENT'", lambda _: False),
)
"""The last one selects nothing; each of the others selects some, and leaves some out."""
