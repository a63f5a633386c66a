"""Events: encoded once, shared ever after."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone
from typing import Any

import msgspec

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Event, Extras, encode_event
from gapless.core.stream.ticks import tick_at_time


def test_an_event_shows_what_its_sender_set_and_what_the_pubend_added() -> None:
    """Times are aware datetimes; what was not set is None."""
    now = datetime(2026, 5, 17, 12, 0, 0, 123000, tzinfo=timezone.utc)
    extras = Extras(
        priority=7, expiration=int(now.timestamp() * 1000), correlation_id="c", reply_to="answers", type="q"
    )
    event = Event("t", {"a": 1}, extras, b"body", tick_at_time(now), "p@1")

    assert event.message_id == f"ID:p@1:{event.tick}"
    assert (event.timestamp, event.expiration) == (now, now)
    assert (event.priority, event.correlation_id, event.reply_to, event.type) == (7, "c", "answers", "q")
    plain = Event("t", {}, None, b"")
    assert (plain.priority, plain.expiration, plain.correlation_id, plain.reply_to, plain.type) == (
        4,
        None,
        None,
        None,
        None,
    )
    assert not plain.redelivered


def test_an_event_pickles_and_matches_by_position() -> None:
    """In the order the documentation names its fields."""
    event: Any = Event("t", {"a": 1}, None, b"body", 5, "p@1")

    assert pickle.loads(pickle.dumps(event)) == event
    match event:
        case Event(topic, body, properties, pubend, tick):
            by_position: tuple[object, ...] = (topic, body, properties, pubend, tick)
            assert by_position == ("t", b"body", {"a": 1}, "p@1", 5)


def test_an_event_is_one_small_msgpack_array() -> None:
    """Headers that are not set cost one byte together."""
    assert encode_event("t", {}, None, b"") == b"\x94\xa1t\x80\xc0\xc4\x00"


def test_an_event_can_be_made_for_a_test_of_ones_own() -> None:
    """Each header under its own name; what is not set is as if the sender had not."""
    later = datetime(2026, 5, 17, tzinfo=timezone.utc)
    event = Event.make("t", b"x", {"a": 1}, priority=9, expiration=later, type="q", tick=7, pubend="p@1")

    assert (event.topic, event.body, event.properties) == ("t", b"x", {"a": 1})
    assert (event.priority, event.expiration, event.type, event.correlation_id) == (9, later, "q", None)
    assert Event.make("t") == Event("t", {}, None, b"")


def test_an_event_is_printed_on_a_line_of_bounded_length() -> None:
    event = Event.make("t", bytes(1 << 20), {"text": "x" * 10_000}, correlation_id="c" * 10_000)

    printed = str(event)

    assert len(printed) < 600
    assert "(1,048,576 bytes)" in printed
    assert str(Event.make("t", b"short", {"a": 1}, tick=7)) == (
        "Event(topic='t', body=b'short', properties={'a': 1}, pubend='', tick=7)"
    )


def test_a_log_that_numbers_its_records_says_when_they_were_logged() -> None:
    """A tick is no time there. What a sender encodes has no place for it."""
    plain = encode_event("t", {}, Extras(type="x"), b"")
    timed = encode_event("t", {}, Extras(type="x", timestamp=1_700_000_000_123), b"")

    assert len(msgspec.msgpack.decode(plain)[2]) == 5
    event = msgspec.msgpack.decode(timed, type=Event)
    assert event.timestamp == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=timezone.utc)
    assert Event.make("t", tick=5).timestamp.year == 2020
    EventColumns.of([timed], [0]).check()
