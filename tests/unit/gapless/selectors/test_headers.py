"""The table of header fields: what messages, the wire and events have is what it says."""

from __future__ import annotations

from datetime import datetime, timezone
from operator import attrgetter
from typing import Any

import pytest

from gapless.client.messages import Message, extras_of
from gapless.core.stream.events import CheckedExtras, Event, Extras
from gapless.core.stream.ticks import tick_at_time
from gapless.errors import InvalidMessageError, InvalidTopicError
from gapless.selectors import Selector
from gapless.selectors.headers import (
    HEADER_FIELDS,
    HEADER_KINDS,
    SENT_DEFAULTS,
    SENT_FIELDS,
    HeaderValues,
    SentHeaders,
    milliseconds,
    sent_headers,
)
from gapless.selectors.values import ValueKind

NOW = datetime(2026, 5, 17, 12, 0, 0, 123000, tzinfo=timezone.utc)
NAMES = tuple(field.name for field in SENT_FIELDS)


def event(extras: Extras | None) -> Event:
    return Event("t", {}, extras, b"", tick_at_time(NOW) + 5, "p@1")


def test_messages_and_the_wire_have_the_fields_of_the_table_in_its_order() -> None:
    assert tuple(Message.__struct_fields__)[-len(NAMES) :] == NAMES
    assert tuple(Extras.__struct_fields__) == tuple(CheckedExtras.__struct_fields__) == (*NAMES, "timestamp")
    assert tuple(SentHeaders.__annotations__) == NAMES


def test_what_is_not_set_is_the_default_everywhere() -> None:
    assert sent_headers(Message(b"")) == sent_headers(event(None)) == sent_headers(event(Extras())) == SENT_DEFAULTS
    assert extras_of(SENT_DEFAULTS) == Extras()


def test_what_is_set_comes_to_the_application_as_it_was_set() -> None:
    message = Message(b"", {}, None, 7, NOW, "c", "answers", "q")

    assert sent_headers(event(extras_of(sent_headers(message)))) == (7, NOW, "c", "answers", "q")


@pytest.mark.parametrize("extras", [None, Extras(), Extras(priority=9, correlation_id="c", type="q"), Extras(type="q")])
def test_a_selector_sees_what_the_application_sees(extras: Extras | None) -> None:
    one = event(extras)
    expected = {
        "JMSPriority": one.priority,
        "JMSCorrelationID": one.correlation_id,
        "JMSType": one.type,
        "JMSMessageID": one.message_id,
        "JMSTimestamp": int(one.timestamp.timestamp() * 1000 + 0.5),
        "JMSDeliveryMode": "PERSISTENT",
    }

    assert set(expected) == set(HEADER_KINDS)
    assert dict(one.headers) == {name: value for name, value in expected.items() if value is not None}
    for name, value in expected.items():
        assert Selector(f"{name} IS NULL").matches({}, one.headers) is (value is None)


def test_values_are_read_only_where_they_are_asked_for() -> None:
    class Half:
        """An event that has a priority and nothing else: whoever reads another field fails."""

        priority = 6

    half: Any = Half()
    values = HeaderValues(half)

    assert (values["JMSPriority"], values.get("JMSPriority"), values.get("nothing", 1)) == (6, 6, 1)
    with pytest.raises(AttributeError):
        values.get("JMSType")


def test_what_is_null_is_not_in_the_mapping() -> None:
    values = event(None).headers

    assert "JMSType" not in values
    assert len(values) == len(list(values)) == 4
    with pytest.raises(KeyError):
        values["JMSType"]
    assert repr(values).startswith("{'JMSPriority': 4,")


def test_kinds_are_those_of_the_values() -> None:
    values = event(Extras(correlation_id="c", type="q")).headers

    assert {
        name: ValueKind.STRING if isinstance(values[name], str) else ValueKind.NUMBER for name in values
    } == HEADER_KINDS


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("priority", 10, "from 0 to 9"),
        ("priority", None, "from 0 to 9"),
        ("priority", "4", "from 0 to 9"),
        ("expiration", 5, "an expiration is a datetime"),
        ("expiration", NOW.replace(tzinfo=None), "time zone"),
        ("type", 5, "type is a str, not int"),
        ("correlation_id", b"c", "correlation_id is a str, not bytes"),
        ("reply_to", "a.*", "wildcard"),
    ],
)
def test_what_no_sender_may_set_is_refused(name: str, value: Any, wrong: str) -> None:
    headers = tuple(value if field.name == name else field.default for field in SENT_FIELDS)

    with pytest.raises((InvalidMessageError, InvalidTopicError), match=wrong):
        extras_of(headers)


def test_fields_without_a_check_are_set_by_the_broker() -> None:
    assert [field.name for field in HEADER_FIELDS if field.check is None] == [
        "message_id",
        "timestamp",
        "delivery_mode",
    ]
    assert milliseconds(None) is None
    assert all(field.reader()(event(None)) == attrgetter(field.name)(event(None)) for field in SENT_FIELDS[2:])
