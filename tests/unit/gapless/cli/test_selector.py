"""`gapless selector`: a selector is checked, and tried on an event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.gapless.cli.conftest import Gapless


def test_how_a_selector_is_read_is_shown(gapless: Gapless) -> None:
    expression = "a = 1 OR NOT b AND JMSType = 'x'"
    lines = gapless("selector", expression).stdout.splitlines()

    assert lines[0] == "is read as: (a = 1) OR ((NOT b) AND (JMSType = 'x'))"
    asked = {name: kind for name, _, kind in (line.strip().partition("  ") for line in lines[1:])}
    assert [asked[name].strip() for name in ("a", "b", "JMSType")] == [
        "a number",
        "a boolean",
        "a string (a header field)",
    ]
    assert lines[-1].endswith("selected if the whole is true.")
    printed = json.loads(gapless("selector", expression, "--json").stdout)
    assert printed["names"][2] == {"name": "JMSType", "header": True, "kinds": ["string"]}


def test_a_name_that_cannot_be_right_everywhere_is_shown(gapless: Gapless) -> None:
    assert "no value is all of that" in gapless("selector", "a = 1 OR a = '1'").stdout


def test_a_selector_without_names_is_shown(gapless: Gapless) -> None:
    assert gapless("selector", " ").stdout == "is read as: TRUE\n"


def test_each_predicate_of_an_event_is_shown(gapless: Gapless, tmp_path: Path) -> None:
    path = tmp_path / "event.json"
    path.write_text('{"origin": "JFK"}', "utf-8")
    command = ["selector", "origin = 'JFK' AND NOT dep_delay > 60", path]
    lines = gapless(*command, status=1).stdout.splitlines()

    assert lines[0] == "does not match"
    assert ["dep_delay", ">", "60", "unknown", "dep_delay", "is", "NULL"] in [line.split() for line in lines]
    [_, second] = json.loads(gapless(*command, "--json", status=1).stdout)["predicates"]
    assert second == {"predicate": "dep_delay > 60", "truth": None, "values": {"dep_delay": None}}


def test_what_is_wrong_is_pointed_at(gapless: Gapless) -> None:
    result = gapless("selector", "origin = = 1", status=2)

    assert result.stderr.splitlines()[1:] == ["  origin = = 1", "           ^"]
    assert "at position 9" in result.stderr


@pytest.mark.parametrize(
    ("event", "matches"),
    [
        ({"origin": "JFK", "dep_delay": 75}, True),
        ({"origin": "JFK"}, False),
        ({"origin": "JFK", "dep_delay": None}, False),
        ({"properties": {"origin": "JFK", "dep_delay": 61.5}}, True),
        ({"body": "x", "properties": {"origin": "LGA", "dep_delay": 75}, "tick": 7}, False),
    ],
)
def test_an_event_is_tried(gapless: Gapless, tmp_path: Path, event: object, matches: bool) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event), "utf-8")
    command = ["selector", "origin = 'JFK' AND dep_delay > 60", path]

    said = "matches" if matches else "does not match"
    assert gapless(*command, status=not matches).stdout.splitlines()[0] == said
    assert json.loads(gapless(*command, "--json", status=not matches).stdout)["matches"] is matches


@pytest.mark.parametrize(
    "event",
    [
        {"properties": {}, "headers": {"JMSPriority": 7}},
        {"body": "x", "properties": {}, "priority": 7},
        {"body": "x", "properties": {}, "priority": 1, "headers": {"JMSPriority": 7}},
    ],
)
def test_headers_can_be_selected_by(gapless: Gapless, tmp_path: Path, event: object) -> None:
    path = tmp_path / "event.json"
    path.write_text(json.dumps(event), "utf-8")

    gapless("selector", "JMSPriority = 7", path)
    gapless("selector", "JMSPriority = 6", path, status=1)


def test_what_is_tried_is_what_a_broker_would_see(gapless: Gapless, tmp_path: Path) -> None:
    """Of a line that `subscribe --json` printed; and of one whose sender set nothing, and that no broker has yet."""
    path = tmp_path / "event.json"
    printed = {"properties": {}, "type": "q", "pubend": "p@1", "tick": 912777230421998592}
    path.write_text(json.dumps(printed), "utf-8")
    gapless("selector", "JMSMessageID = 'ID:p@1:912777230421998592' AND JMSTimestamp = 1795459850313", path)
    gapless("selector", "JMSType = 'q' AND JMSPriority = 4 AND JMSDeliveryMode = 'PERSISTENT'", path)

    path.write_text(json.dumps({"a": 1}), "utf-8")
    gapless("selector", "JMSPriority = 4 AND JMSType IS NULL AND JMSTimestamp IS NULL", path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", "not a list"),
        ('{"a": [1]}', "the value of a must be"),
        ('{"properties": {}, "priority": "high"}', "priority must be a number"),
        ('{"properties": {}, "priority": 12}', "from 0 to 9"),
        ('{"properties": {}, "headers": {"Priority": 1}}', "there is no header Priority"),
    ],
)
def test_what_is_no_event_is_said(gapless: Gapless, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "event.json"
    path.write_text(content, "utf-8")

    result = gapless("selector", "a = 1", path, status=2)

    assert "event.json: " in result.stderr
    assert reason in result.stderr


def test_a_file_that_is_not_there_is_said(gapless: Gapless, tmp_path: Path) -> None:
    assert "cannot be read" in gapless("selector", "a = 1", tmp_path / "nothing.json", status=2).stderr
