"""What the demo's subscribers select, said twice: to gapless, and in plain Python, for the proof.

The second saying shares nothing with gapless: it looks at the text of the file's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from gapless_flights.data import ABSENT, TOPIC, fields_of

Fields: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DemoSubscription:
    """One durable subscription of the demo."""

    name: str
    topic: str
    selector: str
    selects: Callable[[Fields], bool]
    """Whether it selects a flight: judged from the text of its columns, without gapless."""

    def expected(self, flights: Sequence[str]) -> list[str]:
        """The flights that must be consumed, in order."""
        return [line for line in flights if self.selects(fields_of(line))]


def _is_a_flight(_flight: Fields) -> bool:
    return True


def _is_late_from_jfk(flight: Fields) -> bool:
    return flight["origin"] == "JFK" and flight["dep_delay"] != ABSENT and int(flight["dep_delay"]) > 60


def _is_very_late(flight: Fields) -> bool:
    # NOT (unknown OR false) is unknown, so a flight that never arrived is not selected, whoever flies it.
    return flight["arr_delay"] != ABSENT and int(flight["arr_delay"]) > 120 and flight["carrier"] != "UA"


EVERY_ORIGIN: Final = f"{TOPIC}.*"
SELECTIONS: Final = (
    DemoSubscription("everything", f"{TOPIC}.#", "", _is_a_flight),
    DemoSubscription("late-from-jfk", EVERY_ORIGIN, "origin = 'JFK' AND dep_delay > 60", _is_late_from_jfk),
    DemoSubscription(
        "three-carriers",
        EVERY_ORIGIN,
        "carrier IN ('AA', 'B6', 'WN')",
        lambda flight: flight["carrier"] in {"AA", "B6", "WN"},
    ),
    DemoSubscription(
        "middle-distance",
        EVERY_ORIGIN,
        "distance BETWEEN 500 AND 1000",
        lambda flight: 500 <= int(flight["distance"]) <= 1000,
    ),
    DemoSubscription("to-s", EVERY_ORIGIN, "dest LIKE 'S%'", lambda flight: flight["dest"].startswith("S")),
    DemoSubscription("never-left", EVERY_ORIGIN, "dep_delay IS NULL", lambda flight: flight["dep_delay"] == ABSENT),
    DemoSubscription("very-late", EVERY_ORIGIN, "NOT (arr_delay <= 120 OR carrier = 'UA')", _is_very_late),
    DemoSubscription("from-laguardia", f"{TOPIC}.LGA", "", lambda flight: flight["origin"] == "LGA"),
)
"""In the order in which a run takes them."""
