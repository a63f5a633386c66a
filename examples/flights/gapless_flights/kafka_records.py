"""A flight as a record of Kafka's: what a producer that has never heard of gapless makes of it.

    key       where it leaves from
    headers   carrier and tail number as text, flight as digits, distance as Kafka's serializer for Java writes it
    value     a JSON object: all that the file says of the flight

`MAPPING` says to gapless how properties are made of that. So selectors look at all of these.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from gapless_flights.data import ABSENT, NUMBERS, fields_of

ORIGINS: Final = ("EWR", "JFK", "LGA")
"""What leaves from one of these is in the partition of its number: the order of one airport is kept."""

MAPPING: Final = """\
key = "origin"
types = { flight = "int", distance = "int32" }

[phb.kafka.topics.fields]
dest = "dest"
month = "scheduled.month"
day = "scheduled.day"
hour = "scheduled.hour"
dep_delay = "departure.delay"
arr_delay = "arrival.delay"
"""
"""What `[[phb.kafka.topics]]` says of the records."""


class FlightRecord(NamedTuple):
    """What is handed to a producer."""

    partition: int
    key: bytes
    value: str
    headers: list[tuple[str, bytes]]


def record_of(line: str) -> FlightRecord:
    """A flight as a record."""
    fields = fields_of(line)
    origin = fields["origin"]
    headers = [
        ("carrier", fields["carrier"].encode()),
        ("tailnum", fields["tailnum"].encode()),
        ("flight", fields["flight"].encode()),
        ("distance", struct.pack(">i", int(fields["distance"]))),
    ]
    known = [(name, data) for name, data in headers if fields[name] != ABSENT]
    return FlightRecord(ORIGINS.index(origin), origin.encode(), _value(fields), known)


def value_of(line: str) -> str:
    """The value of its record: no two flights have the same one."""
    return _value(fields_of(line))


def _value(fields: Mapping[str, str]) -> str:
    known: dict[str, object] = {
        name: None if text == ABSENT else int(text) if name in NUMBERS else text for name, text in fields.items()
    }
    value = {
        "carrier": known["carrier"],
        "flight": known["flight"],
        "tailnum": known["tailnum"],
        "origin": known["origin"],
        "dest": known["dest"],
        "distance": known["distance"],
        "air_time": known["air_time"],
        "scheduled": {
            "year": known["year"],
            "month": known["month"],
            "day": known["day"],
            "hour": known["hour"],
            "minute": known["minute"],
            "time": known["time_hour"],
        },
        "departure": {
            "time": known["dep_time"],
            "scheduled": known["sched_dep_time"],
            "delay": known["dep_delay"],
        },
        "arrival": {
            "time": known["arr_time"],
            "scheduled": known["sched_arr_time"],
            "delay": known["arr_delay"],
        },
    }
    return json.dumps(value, separators=(",", ":"))
