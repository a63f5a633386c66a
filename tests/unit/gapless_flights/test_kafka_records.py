"""Flights as records: what gapless makes of them is what the subscribers select by, in both sayings."""

from __future__ import annotations

import json
import sys

import pytest

from gapless import Selector
from gapless.core.stream.events import Property
from gapless_flights.data import fields_of, made_up_flights
from gapless_flights.kafka_records import MAPPING, ORIGINS, record_of, value_of
from gapless_flights.selections import many_selections
from gapless_log.kafka.mapping import RecordMapping
from gapless_log.kafka.options import section_from
from gapless_log.kafka.records import NewRecord

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FLIGHT = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
NEVER_LEFT = "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,NA,LGA,RDU,NA,416,16,30,2013-01-01T21:00:00Z"


def mapping() -> RecordMapping:
    """The rules, as the demo's broker reads them."""
    topic = tomllib.loads(f'[[phb.kafka.topics]]\nname = "t"\n{MAPPING}')["phb"]["kafka"]["topics"][0]
    return RecordMapping(section_from({"servers": ["here:1"], "topics": [topic]}).topics[0].rules)


def properties(line: str) -> dict[str, Property]:
    record = record_of(line)
    (found,) = mapping().properties_of([NewRecord(0, record.key, record.value.encode(), record.headers)])
    return found


def test_properties_come_from_key_headers_and_value() -> None:
    assert properties(FLIGHT) == {
        "origin": "EWR",
        "carrier": "UA",
        "tailnum": "N14228",
        "flight": 1545,
        "distance": 1400,
        "dest": "IAH",
        "month": 1,
        "day": 1,
        "hour": 5,
        "dep_delay": 2,
        "arr_delay": 11,
    }


def test_what_is_not_known_is_no_property() -> None:
    known = properties(NEVER_LEFT)

    assert not {"tailnum", "dep_delay", "arr_delay"} & known.keys()
    assert (known["flight"], known["origin"]) == (4308, "LGA")


def test_a_value_says_all_of_a_flight() -> None:
    """So no two flights have the same value, and the proof can tell them apart."""
    said = json.loads(value_of(FLIGHT))
    texts = [
        str(value) for level in said.values() for value in (level.values() if isinstance(level, dict) else [level])
    ]

    assert sorted(texts) == sorted(fields_of(FLIGHT).values())
    assert record_of(FLIGHT).value == value_of(FLIGHT)


def test_an_airport_has_a_partition() -> None:
    assert [record_of(FLIGHT.replace("EWR", origin)).partition for origin in ORIGINS] == [0, 1, 2]


def test_many_subscribers_select_by_all_of_them_and_both_sayings_agree() -> None:
    flights = made_up_flights(300, seed=1)
    flights += [line.replace(",NA,JFK", f",N{number % 9 + 1}AA,JFK") for number, line in enumerate(flights)]
    lines = [FLIGHT, NEVER_LEFT, *flights]
    known = [properties(line) for line in lines]
    selections = many_selections("flights", 200)
    selected = 0
    for selection in selections:
        selector = Selector(selection.selector)
        matched = [line for line, found in zip(lines, known, strict=True) if selector.matches(found)]
        selected += len(matched)
        assert matched == selection.expected(lines), selection.name

    assert selected > len(lines)
    assert {name for selection in selections for name in known[0] if name in selection.selector} >= {
        "origin", "carrier", "tailnum", "flight", "distance", "dest", "hour", "dep_delay", "arr_delay",
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 8, 1000])
def test_there_are_as_many_as_are_asked_for_each_with_a_name_of_its_own(count: int) -> None:
    selections = many_selections("t", count)

    assert len({selection.name for selection in selections}) == count
    assert {selection.topic for selection in selections} == {"t"}
    assert [one.selector for one in selections] == [one.selector for one in many_selections("t", count)]
