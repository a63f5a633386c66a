"""What the demo's subscribers select, said twice: to gapless, and in plain Python, for the proof.

The second saying shares nothing with gapless: it looks at the text of the file's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
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
    among: tuple[str, str] | None = None
    """A column, and the text that it has to have besides; it is set apart, so that not all subscriptions of many need
    be asked about each flight."""

    def expected(self, flights: Sequence[str]) -> list[str]:
        """The flights that must be consumed, in order."""
        return [line for line in flights if self._selects(fields_of(line))]

    def _selects(self, fields: Fields) -> bool:
        return (self.among is None or fields[self.among[0]] == self.among[1]) and self.selects(fields)


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


CARRIERS: Final = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")
DESTINATIONS: Final = (
    "ORD", "ATL", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA", "DTW", "DFW", "RDU", "TPA", "DEN", "IAH",
    "MSP", "PBI", "BNA", "LAS", "SJU", "IAD", "BUF", "PHX", "CLE", "STL", "MDW", "CVG", "SEA", "MSY", "RSW", "CMH",
)  # fmt: skip
"""The most frequent ones, of whom the many subscribers want something."""


def many_selections(topic: str, count: int) -> list[DemoSubscription]:
    """So many subscriptions of one topic: those above first, then ever the same ones that are drawn.

    They look at keys, headers and fields of JSON values, if the events are made of records as `kafka_records` says.
    """
    random = Random(2013)  # noqa: S311 - not for secrets
    first = [replace(one, topic=topic) for one in SELECTIONS[:-1]]
    laguardia = replace(SELECTIONS[-1], topic=topic, selector="origin = 'LGA'")
    drawn = [KINDS[number % len(KINDS)](random) for number in range(max(0, count - len(SELECTIONS)))]
    more = [
        DemoSubscription(f"{kind}-{number + 1}", topic, selector, selects, among)
        for number, (kind, selector, selects, among) in enumerate(drawn)
    ]
    return [*first, laguardia, *more][:count]


Drawn: TypeAlias = tuple[str, str, Callable[[Fields], bool], tuple[str, str]]


def _route(random: Random) -> Drawn:
    carrier, dest = random.choice(CARRIERS), random.choice(DESTINATIONS)
    selector = f"carrier = '{carrier}' AND dest = '{dest}'"
    return "route", selector, lambda flight: flight["carrier"] == carrier, ("dest", dest)


def _late(random: Random) -> Drawn:
    dest, minutes = random.choice(DESTINATIONS), random.randrange(5, 60)
    selector = f"dest = '{dest}' AND dep_delay > {minutes}"
    return "late", selector, lambda flight: _is_above(flight["dep_delay"], minutes), ("dest", dest)


def _numbers(random: Random) -> Drawn:
    carrier, lowest = random.choice(CARRIERS), random.randrange(2000)
    selector = f"carrier = '{carrier}' AND flight BETWEEN {lowest} AND {lowest + 60}"
    return "numbers", selector, lambda flight: lowest <= int(flight["flight"]) <= lowest + 60, ("carrier", carrier)


def _tails(random: Random) -> Drawn:
    dest, digit = random.choice(DESTINATIONS), str(random.randrange(1, 10))
    selector = f"tailnum LIKE 'N{digit}%' AND dest = '{dest}'"
    return "tails", selector, lambda flight: flight["tailnum"].startswith(f"N{digit}"), ("dest", dest)


def _far(random: Random) -> Drawn:
    carrier, miles = random.choice(CARRIERS), random.randrange(1500, 2600)
    selector = f"distance > {miles} AND carrier = '{carrier}' AND arr_delay <= 0"

    def selects(flight: Fields) -> bool:
        return int(flight["distance"]) > miles and flight["arr_delay"] != ABSENT and int(flight["arr_delay"]) <= 0

    return "far", selector, selects, ("carrier", carrier)


def _evening(random: Random) -> Drawn:
    origin, dest, hour = random.choice(("EWR", "JFK", "LGA")), random.choice(DESTINATIONS), random.randrange(15, 20)
    selector = f"origin = '{origin}' AND dest = '{dest}' AND hour >= {hour}"
    return (
        "evening",
        selector,
        lambda flight: flight["origin"] == origin and int(flight["hour"]) >= hour,
        ("dest", dest),
    )


def _is_above(text: str, number: int) -> bool:
    return text != ABSENT and int(text) > number


KINDS: Final = (_route, _late, _numbers, _tails, _far, _evening)
