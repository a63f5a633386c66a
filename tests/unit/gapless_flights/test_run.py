"""What a run expects, and how its outcome is said; a whole one is in tests/integration/test_demo.py."""

from __future__ import annotations

import json
from dataclasses import replace

from gapless_flights.data import made_up_flights
from gapless_flights.proof import prove
from gapless_flights.run import DemoOutcome, expectations
from gapless_flights.selections import SELECTIONS, many_selections


def test_what_is_expected_comes_from_the_data() -> None:
    flights = made_up_flights(2000, seed=3)

    expected = expectations(flights, SELECTIONS)

    assert expected == {selection.name: selection.expected(flights) for selection in SELECTIONS}
    assert expected["everything"] == flights
    assert all(0 < len(expected[name]) < len(flights) for name in ("late-from-jfk", "to-s", "never-left"))


def outcome() -> DemoOutcome:
    kills = {"broker": 2, "publisher": 1, "everything": 3, "to-s": 4}
    verdicts = [prove("everything", "", ["a", "b"], ["a", "b"]), prove("to-s", "dest LIKE 'S%'", ["b"], ["b"])]
    return DemoOutcome(7, 2, 1.23456, stalled=False, kills=kills, verdicts=verdicts)


def test_an_outcome_is_one_json_object() -> None:
    said = json.loads(json.dumps(outcome().fields()))

    assert said["right"] is True
    assert said["kills"] == {"broker": 2, "publisher": 1, "subscribers": 7}
    assert (said["seed"], said["published"], said["consumed"], said["seconds"]) == (7, 2, 3, 1.235)
    assert said["subscriptions"][1] == {
        "subscription": "to-s",
        "selector": "dest LIKE 'S%'",
        "expected": 1,
        "consumed": 1,
        "missing": 0,
        "doubled": 0,
        "unselected": 0,
        "reordered": 0,
        "first_difference": "",
        "right": True,
    }


def test_kills_of_kafka_are_counted_by_themselves() -> None:
    over_kafka = replace(outcome(), kills={"kafka": 3, "broker": 2, "publisher": 0, "subscribers-1": 4})

    assert over_kafka.fields()["kills"] == {"broker": 2, "publisher": 0, "subscribers": 4, "kafka": 3}


def test_who_is_set_apart_by_a_text_is_asked_about_no_other_flight() -> None:
    flights = made_up_flights(500, seed=3)
    selections = many_selections("flights", 60)

    expected = expectations(flights, selections)

    assert expected == {selection.name: selection.expected(flights) for selection in selections}
    assert sum(map(bool, expected.values())) > 10


def test_one_wrong_row_makes_an_outcome_wrong() -> None:
    wrong = replace(outcome(), verdicts=[*outcome().verdicts, prove("x", "", ["a", "b"], ["b", "a"])])

    assert not wrong.is_right
    assert wrong.fields()["right"] is False


def test_a_run_that_was_given_up_is_not_right_whatever_was_consumed() -> None:
    assert outcome().is_right
    assert not replace(outcome(), stalled=True).is_right
