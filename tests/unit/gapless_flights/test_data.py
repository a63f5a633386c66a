"""The flights: their order, and the events made of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless import ConfigurationError
from gapless_flights import data
from gapless_flights.data import (
    COLUMNS,
    fields_of,
    in_time_order,
    made_up_flights,
    properties_of,
    read_lines,
    topic_of,
    write_lines,
)

HEADER = ",".join(COLUMNS)
FIRST = "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
SECOND = "2013,1,1,554,558,-4,740,728,12,UA,1696,N39463,EWR,ORD,150,719,5,58,2013-01-01T10:00:00Z"
NEVER_LEFT = "2013,9,30,NA,840,NA,NA,1020,NA,MQ,3531,N839MQ,LGA,RDU,NA,431,8,40,2013-09-30T12:00:00Z"


def file(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_flights_are_put_in_the_order_of_their_schedule() -> None:
    assert in_time_order(file(HEADER, NEVER_LEFT, SECOND, FIRST)) == [FIRST, SECOND, NEVER_LEFT]


def test_flights_of_one_minute_stay_in_the_order_of_the_file() -> None:
    again = FIRST.replace("1545", "1546")

    assert in_time_order(file(HEADER, again, FIRST)) == [again, FIRST]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "its columns are none"),
        (["year,month"], "its columns are year,month"),
        ([HEADER, "2013,1"], "too few"),
        ([HEADER, f"{FIRST},1"], "too many"),
        ([HEADER, FIRST.replace("UA", '"U,A"')], "a quoted field"),
        ([HEADER, FIRST, FIRST], "a flight twice"),
    ],
)
def test_a_file_that_proves_nothing_is_refused(lines: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        in_time_order(file(*lines))


def test_a_flight_becomes_an_event() -> None:
    assert topic_of(FIRST) == "flights.EWR"
    assert properties_of(FIRST) == {
        "year": 2013,
        "month": 1,
        "day": 1,
        "dep_time": 517,
        "dep_delay": 2,
        "arr_delay": 11,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "air_time": 227,
        "distance": 1400,
        "hour": 5,
        "minute": 15,
    }


def test_what_is_not_known_is_absent() -> None:
    assert {"dep_time", "dep_delay", "arr_delay", "air_time"}.isdisjoint(properties_of(NEVER_LEFT))
    assert fields_of(NEVER_LEFT)["dep_delay"] == "NA"


def test_lines_are_read_from_any_of_them_on(tmp_path: Path) -> None:
    path = tmp_path / "flights.csv"
    write_lines(path, [FIRST, SECOND, NEVER_LEFT])

    assert list(read_lines(path, 0)) == [FIRST, SECOND, NEVER_LEFT]
    assert list(read_lines(path, 2)) == [NEVER_LEFT]
    assert list(read_lines(path, 3)) == []


def test_flights_can_be_made_up() -> None:
    """They look like real ones, no two are equal, and a seed gives them again."""
    flights = made_up_flights(1000, seed=7)

    assert in_time_order(file(HEADER, *flights)) == sorted(flights, key=lambda line: int(fields_of(line)["minute"]))
    assert flights == made_up_flights(1000, seed=7)
    assert flights != made_up_flights(1000, seed=8)
    assert {type(properties_of(line)["distance"]) for line in flights} == {int}


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PACKAGE", "no_such_package")

    with pytest.raises(ConfigurationError, match=r"install gapless\[demo\]"):
        data.flights()


def test_a_package_without_the_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "PACKAGE", "json")

    with pytest.raises(ConfigurationError, match=r"flights\.csv\.zip does not hold the flights"):
        data.flights()
