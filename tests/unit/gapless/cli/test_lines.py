"""Events as lines of JSON, in and out."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest

from gapless import Event, Gap, InvalidMessageError
from gapless.cli.lines import (
    aware_time,
    fields_of_event,
    fields_of_gap,
    json_body,
    message_of,
    message_of_text,
    object_of,
    readable_event,
)
from gapless.core.stream.events import Extras
from gapless.core.stream.ticks import LAST, OFFSET_BITS, tick_at_time

NOON = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)


def event(body: bytes = b"B6 1016", extras: Extras | None = None, **properties: bool | float | str) -> Event:
    return Event("flights", properties, extras, body, tick_at_time(NOON), "default@1")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("75", 75),
        ("-1.5", -1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("false", False),
        ('"75"', "75"),
        ("JFK", "JFK"),
        ("", ""),
        ("a=b", "a=b"),
        ("null", "null"),
        ("True", "True"),
        ("NaN", "NaN"),
        ("007", "007"),
        ("2026-01-31", "2026-01-31"),
        ("[1]", "[1]"),
        ('{"a": 1}', '{"a": 1}'),
        ("[" * 100_000, "[" * 100_000),
        ("9" * 5000, "9" * 5000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_property_means_what_json_says_or_is_text(text: str, value: object) -> None:
    found = message_of_text("body", [f"x={text}"]).properties

    assert found == {"x": value}
    assert type(found["x"]) is type(value)


def test_a_body_of_text_is_utf8() -> None:
    message = message_of('{"body": "Zürich", "properties": {"late": true, "delay": 7, "ratio": 0.5, "to": "ZRH"}}')

    assert message.body == "Zürich".encode()
    assert message.properties == {"late": True, "delay": 7, "ratio": 0.5, "to": "ZRH"}


def test_a_body_that_is_no_text_is_base64() -> None:
    assert message_of(b'{"body": {"base64": "AAH/"}}').body == b"\x00\x01\xff"


def test_headers_stand_beside_the_body() -> None:
    line = (
        '{"body": "", "priority": 7, "type": "reading", "correlation_id": "a", "reply_to": "b",'
        ' "expiration": "2026-01-31T12:00:00Z"}'
    )

    message = message_of(line)

    assert (message.priority, message.type, message.correlation_id, message.reply_to) == (7, "reading", "a", "b")
    assert message.expiration == NOON


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "it is not JSON"),
        ("{", "it is not JSON"),
        ('{"body": "a"} {"body": "b"}', "Extra data, at character 15"),
        ('["a"]', "it must be an object, not a list"),
        ("null", "it must be an object, not null"),
        ("{}", 'it has no body; an empty one is ""'),
        ('{"body": "", "bdy": ""}', "there is no key 'bdy'"),
        ('{"body": "", "tick": 7}', "there is no key 'tick'"),
        ('{"body": 7}', "body must be a string"),
        ('{"body": null}', "not null"),
        ('{"body": {"base64": "?"}}', "body is not base64"),
        ('{"body": {"base64": "AA==", "more": 1}}', "not an object"),
        ('{"body": "\\ud800"}', "half a surrogate pair"),
        ('{"body": "", "properties": []}', "properties must be an object, not a list"),
        ('{"body": "", "properties": {"x": NaN}}', "NaN is no number"),
        ('{"body": "", "priority": "high"}', "priority must be a number, not a string"),
        ('{"body": "", "priority": true}', "priority must be a number, not true or false"),
        ('{"body": "", "type": 7}', "type must be a string, not a number"),
        ('{"body": "", "expiration": "2026-01-31"}', "expiration must be a time with its zone"),
        ("[" * 100_000, "it is nested too deep"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: str, reason: str) -> None:
    with pytest.raises(InvalidMessageError) as raised:
        message_of(line)

    assert reason in str(raised.value)


def test_bytes_that_are_not_utf8_are_no_line() -> None:
    with pytest.raises(InvalidMessageError, match="UTF-8"):
        object_of(b'{"body": "\xff"}')


def test_a_printed_event_says_what_the_broker_set() -> None:
    fields = fields_of_event(event(origin="JFK"))

    assert fields == {
        "topic": "flights",
        "body": "B6 1016",
        "properties": {"origin": "JFK"},
        "pubend": "default@1",
        "tick": tick_at_time(NOON),
        "timestamp": "2026-01-31T12:00:00+00:00",
    }


def test_a_printed_event_has_the_headers_that_were_set() -> None:
    extras = Extras(priority=7, expiration=1_769_860_800_000, correlation_id="a", reply_to="b", type="c")

    fields = fields_of_event(event(extras=extras))

    assert {name: fields[name] for name in ("priority", "correlation_id", "reply_to", "type")} == {
        "priority": 7,
        "correlation_id": "a",
        "reply_to": "b",
        "type": "c",
    }
    assert fields["expiration"] == "2026-01-31T12:00:00+00:00"


@pytest.mark.parametrize("body", [b"", b"text", "Zürich\n".encode(), b"\xff\x00", bytes(range(256))])
def test_what_is_printed_can_be_published_again(body: bytes) -> None:
    printed = fields_of_event(event(body, Extras(priority=9, type="x"), late=True, delay=-7, ratio=1.5, to="ZRH"))
    line = json.dumps({key: printed[key] for key in ("body", "properties", "priority", "type")})

    message = message_of(line)

    assert message.body == body
    assert message.properties == printed["properties"]
    assert (message.priority, message.type) == (9, "x")


def test_a_gap_is_printed_with_its_range_and_reason() -> None:
    gap = Gap("default@1", 0, tick_at_time(NOON), "released early")

    assert fields_of_gap(gap)["gap"] == {
        "pubend": "default@1",
        "start": 0,
        "end": tick_at_time(NOON),
        "reason": "released early",
        "since": None,
        "until": "2026-01-31T12:00:00+00:00",
    }


@pytest.mark.parametrize(
    ("start", "end", "places"),
    [
        (0, 5, "offset 0 to offset 4"),
        (5, (2 << OFFSET_BITS) + 10, "offset 5 to epoch 2, offset 9"),
        (5, LAST, "offset 5 to its end"),
    ],
)
def test_a_gap_of_a_log_that_numbers_its_records_has_offsets_and_no_times(start: int, end: int, places: str) -> None:
    gap = Gap("orders.0@id", start, end, "lost by the log")

    assert str(gap) == f"events of orders.0@id from {places} may have been lost: lost by the log"
    said = fields_of_gap(gap)["gap"]
    assert (said["since"], said["until"]) == (None, None)


def test_an_event_is_readable() -> None:
    assert readable_event(event(origin="JFK", dep_delay=75)) == (
        "2026-01-31 12:00:00  flights  origin=JFK dep_delay=75  B6 1016"
    )
    assert readable_event(event(b"\xff\xfe")) == "2026-01-31 12:00:00  flights  (2 bytes)"


def test_an_event_cannot_break_out_of_its_line() -> None:
    """What strangers publish must not move the cursor of whoever reads it."""
    line = readable_event(event(b"\x1b[2Jgone\nnext", name="a\rb"))

    assert line.isprintable()
    assert "gone" in line


def test_nor_can_its_topic_or_the_name_of_a_property() -> None:
    """Of an event from before they were refused, or of a broker that takes them."""
    line = readable_event(Event("t.\x1b[2J", {"\x1b[31mk": "v"}, None, b"B6 1016", tick_at_time(NOON), "default@1"))

    assert line == r"2026-01-31 12:00:00  t.\u001b[2J  \u001b[31mk=v  B6 1016"


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00", "2026-01-31T13:00:00+01:00"])
def test_a_time_has_a_zone(text: str) -> None:
    assert aware_time(text) == NOON


@pytest.mark.parametrize("text", ["", "Z", "noon", "2026-01-31", "2026-01-31T12:00:00"])
def test_a_time_without_a_zone_is_none(text: str) -> None:
    assert aware_time(text) is None


def test_a_body_is_text_where_it_can_be() -> None:
    assert json_body(b"abc") == "abc"
    assert json_body(b"\xff") == {"base64": "/w=="}
