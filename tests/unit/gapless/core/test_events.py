"""Events and batches of them: encoded once, shared ever after (design.md 5)."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.columns import EMPTY, DeliveredColumns, EventBatch, EventColumns, mask_flags
from gapless.core.events import Event, Extras, encode_event
from gapless.core.ticks import STEP, tick_at_time

values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=20))
plain_events = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.dictionaries(st.text(max_size=8), values, max_size=4), st.binary()),
    min_size=1,
    max_size=20,
)


def columns(events: list[tuple[str, dict[str, object], bytes]]) -> EventColumns:
    """What a publisher makes of these (topic, properties, body)."""
    encoded = [encode_event(topic, properties, None, body) for topic, properties, body in events]
    return EventColumns.of(encoded, [len(body) for _, _, body in events])


@given(plain_events, st.data())
def test_what_is_published_is_what_is_delivered(
    events: list[tuple[str, dict[str, object], bytes]], data: st.DataObject
) -> None:
    """Through the publisher's columns, a batch, any choice of its events, and a delivery's columns."""
    mask = data.draw(st.integers(0, (1 << len(events)) - 1))
    ticks = range(STEP, STEP * (len(events) + 1), STEP)
    batch = columns(events).batch(ticks)

    delivered = DeliveredColumns.parse(batch.payload(mask), 0)

    chosen = [(tick, *event) for at, (tick, event) in enumerate(zip(ticks, events, strict=True)) if mask >> at & 1]
    assert delivered.ticks() == [tick for tick, *_ in chosen]
    assert [(e.tick, e.topic, e.properties, e.body) for e in delivered.events("p@1")] == chosen
    assert all(event.pubend == "p@1" for event in delivered.events("p@1"))


@given(plain_events, st.data())
def test_select_and_slice_agree_with_lists(
    events: list[tuple[str, dict[str, object], bytes]], data: st.DataObject
) -> None:
    """Whether the headers were decoded before or not."""
    batch = columns(events).batch(range(1, len(events) + 1))
    if data.draw(st.booleans()):
        assert len(batch.headers) == len(events)
    mask = data.draw(st.integers(0, (1 << len(events)) - 1))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(events)), st.integers(0, len(events)))))

    selected, sliced = batch.select(mask), batch.slice(start, stop)

    assert list(selected.ticks) == [tick for at, tick in enumerate(batch.ticks) if mask >> at & 1]
    assert [header.topic for header in selected.headers] == [e[0] for at, e in enumerate(events) if mask >> at & 1]
    assert list(sliced.ticks) == list(batch.ticks)[start:stop]
    assert EventBatch.concatenate([batch.slice(0, start), batch.slice(start, len(events))]) == batch


@given(plain_events, st.integers(0, 30), st.integers(0, 30))
def test_a_slice_of_a_delivery_is_the_delivery_of_a_slice(
    events: list[tuple[str, dict[str, object], bytes]], first: int, second: int
) -> None:
    """Clients hand out parts of what arrived without decoding the rest."""
    start, stop = sorted((min(first, len(events)), min(second, len(events))))
    whole = DeliveredColumns.parse(columns(events).batch(range(1, len(events) + 1)).payload((1 << len(events)) - 1), 0)

    assert whole.slice(start, stop).events("p@1") == whole.events("p@1")[start:stop]


@pytest.mark.parametrize(
    "broken",
    [
        EventColumns(1, (5).to_bytes(4, "little") + (1).to_bytes(4, "little"), b"1234"),
        EventColumns(1, (4).to_bytes(4, "little") + (4).to_bytes(4, "little"), b"1234"),
        EventColumns(1, (4).to_bytes(4, "little") + (1).to_bytes(4, "little"), b"\xc1\xc1\xc1\xc1"),
        columns([("t", {"nested": {}}, b"")]),
        columns([("t", {"big": 2**64 - 1}, b"")]),
        columns([("t", {"list": [1]}, b"")]),
    ],
)
def test_a_malformed_batch_is_refused(broken: EventColumns) -> None:
    """A broker believes no client: lengths, msgpack and the types of properties are checked."""
    with pytest.raises(ValueError, match=r"lengths|body|malformed"):
        broken.check()


def test_a_delivery_that_does_not_add_up_is_refused() -> None:
    """A client believes no broker either."""
    payload = columns([("t", {}, b"x")]).batch([1]).payload(1)

    for garbled in (payload[:-1], payload + b"x", b"\xff" + payload[1:], payload[:10]):
        with pytest.raises(ValueError, match=r"delivery"):
            DeliveredColumns.parse(garbled, 0)


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


@given(st.integers(0), st.integers(1, 200))
def test_flags_are_the_bits_lowest_first(bits: int, count: int) -> None:
    """For `itertools.compress`."""
    mask = bits & ((1 << count) - 1)

    assert list(mask_flags(mask, count)) == [mask >> at & 1 for at in range(count)]


def test_batches_compare_by_value() -> None:
    """And the empty one is empty."""
    one = columns([("t", {}, b"x")]).batch([1])

    assert one == columns([("t", {}, b"x")]).batch((1,))
    assert one != columns([("t", {}, b"x")]).batch([2])
    assert hash(one) == hash(columns([("t", {}, b"x")]).batch((1,)))
    assert not len(EMPTY)
