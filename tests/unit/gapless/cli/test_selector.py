"""`gapless selector`: a selector is checked, and tried on an event."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from unit.gapless.cli.conftest import Gapless


def test_a_selector_is_checked(gapless: Gapless) -> None:
    assert gapless("selector", "a = 1").stdout == "the selector is well-formed\n"


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

    assert gapless(*command, status=not matches).stdout == ("matches\n" if matches else "does not match\n")
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
