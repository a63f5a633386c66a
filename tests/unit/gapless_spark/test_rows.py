"""Arrow record batches of what came over the wire: each column is what the events say."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.client import Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import STEP, tick_at
from gapless.core.wire.delivered import DeliveredColumns
from gapless.errors import ConfigurationError, RemoteProtocolError
from gapless_spark.rows import COLUMNS, SCHEMA, checked, events_batch, gap_batch, narrowed, times_of

BASE = tick_at(1_800_000_000_000)
Row = tuple[str, dict[str, Any], bytes]


def delivery(*rows: Row, first: int = BASE) -> DeliveredColumns:
    """A delivery of events with these topics, properties and bodies."""
    events = [encode_event(topic, properties, Extras(priority=7), body) for topic, properties, body in rows]
    columns = EventColumns.of(events, [len(body) for *_, body in rows])
    return DeliveredColumns.parse(columns_payload(columns, range(first, first + STEP * len(rows), STEP)), 0)


def columns_payload(columns: EventColumns, ticks: range) -> bytes:
    """The same in the form of the wire, at these ticks."""
    return bytes(columns.batch(ticks).payload((1 << len(ticks)) - 1))


ROWS: list[Row] = [
    ("a", {"key": "k1", "n": 1, "late": True}, b"first"),
    ("a.b", {}, b""),
    ("ä", {"key": 7, "f": 2.5, "s": "True", "no": False}, b"\0" * 300),
]


def test_every_column_says_what_the_events_say() -> None:
    batch = events_batch("p@1", [delivery(*ROWS)], SCHEMA)

    assert batch.schema == SCHEMA
    batch.validate(full=True)
    assert batch.to_pydict() == {
        "kind": ["event"] * 3,
        "pubend": ["p@1"] * 3,
        "tick": [BASE, BASE + STEP, BASE + 2 * STEP],
        "tick_from": [BASE, BASE + STEP, BASE + 2 * STEP],
        "topic": ["a", "a.b", "ä"],
        "key": ["k1", None, "7"],
        "properties": [
            [("key", "k1"), ("n", "1"), ("late", "true")],
            [],
            [("key", "7"), ("f", "2.5"), ("s", "True"), ("no", "false")],
        ],
        "payload": [b"first", b"", b"\0" * 300],
        "published_at": [datetime(2027, 1, 15, 8, tzinfo=timezone.utc)] * 3,
    }


def test_the_time_of_a_record_is_the_one_that_it_bears_and_its_tick_is_none() -> None:
    """As `Event.timestamp`: a tick of a Kafka partition would be read as a time in 2020."""
    times = [1_800_000_000_123, 5, 1_700_000_000_000]
    events = [encode_event("t", {"n": n}, Extras(timestamp=time), b"body") for n, time in enumerate(times)]
    columns = EventColumns.of(events, [4] * len(events))
    delivered = DeliveredColumns.parse(columns_payload(columns, range(1, 4)), 0)
    batch = events_batch("orders.0@id", [delivered, delivered], narrowed(["published_at", "tick", "key"]))

    told = [event.timestamp for event in delivered.events("orders.0@id")]
    assert batch.column("published_at").to_pylist() == told * 2
    assert told[0] == datetime(2027, 1, 15, 8, 0, 0, 123_000, timezone.utc)
    assert batch.column("tick").to_pylist() == [1, 2, 3] * 2
    assert times_of("orders.0@id", [delivered]).to_pylist() == told


@pytest.mark.parametrize("count", [0, 3])
def test_the_time_of_other_events_is_that_of_their_ticks(count: int) -> None:
    deliveries = [delivery(*ROWS)] if count else []
    assert times_of("p@1", deliveries).to_pylist() == [datetime(2027, 1, 15, 8, tzinfo=timezone.utc)] * count


def test_several_deliveries_are_one_batch() -> None:
    parts = [delivery(*ROWS), delivery(*ROWS[:1], first=BASE + 100 * STEP)]
    batch = events_batch("p@1", parts, SCHEMA)

    assert batch.num_rows == 4
    assert batch.column("payload").to_pylist() == [b"first", b"", b"\0" * 300, b"first"]
    assert batch.column("tick").to_pylist()[-1] == BASE + 100 * STEP


def test_header_and_payload_are_the_event_to_the_byte() -> None:
    sliced, whole = delivery(*ROWS).slice(1, 3), delivery(*ROWS)
    batch = events_batch("p@1", [whole, sliced], narrowed(["payload", "header"]))
    sent = [encode_event(topic, properties, Extras(priority=7), body) for topic, properties, body in ROWS]

    assert [row["header"] + row["payload"] for row in batch.to_pylist()] == [*sent, *sent[1:]]
    assert [row["payload"] for row in batch.to_pylist()][:3] == [body for *_, body in ROWS]


def test_there_is_a_header_only_for_who_asks_for_it() -> None:
    assert "header" not in SCHEMA.names
    assert events_batch("p@1", [delivery(*ROWS)], COLUMNS).schema == COLUMNS
    assert gap_batch(Gap("p@1", 10, 20), narrowed(["header"])).to_pydict() == {"header": [None]}


@pytest.mark.parametrize("name", COLUMNS.names)
def test_a_column_alone_is_the_same(name: str) -> None:
    whole = events_batch("p@1", [delivery(*ROWS)], COLUMNS)
    alone = events_batch("p@1", [delivery(*ROWS)], narrowed([name]))

    assert alone.schema == narrowed([name])
    assert alone.column(0).equals(whole.column(name))


def test_columns_come_in_the_order_of_the_schema() -> None:
    """Spark 4.0 and 4.1 take them by their places, whatever their names."""
    assert events_batch("p@1", [delivery(*ROWS)], narrowed(["payload", "tick"])).schema.names == ["payload", "tick"]


def test_a_slice_of_a_delivery_has_its_own_bodies() -> None:
    batch = events_batch("p@1", [delivery(*ROWS).slice(1, 3)], narrowed(["tick", "payload", "topic"]))

    assert batch.to_pydict() == {
        "tick": [BASE + STEP, BASE + 2 * STEP],
        "payload": [b"", b"\0" * 300],
        "topic": ["a.b", "ä"],
    }


def test_a_gap_is_a_row_in_which_only_its_place_is_known() -> None:
    row = gap_batch(Gap("p@1", 10, 20, "released early"), SCHEMA)
    known = {name: values[0] for name, values in row.to_pydict().items() if values[0] is not None}

    assert row.schema == SCHEMA
    assert known == {"kind": "gap", "pubend": "p@1", "tick": 20, "tick_from": 11}
    assert gap_batch(Gap("p@1", 10, 20), narrowed(["payload"])).to_pydict() == {"payload": [None]}


def test_what_is_no_event_is_said_to_be_none() -> None:
    garbled = DeliveredColumns(1, memoryview(b"\0" * 8 + b"\2\0\0\0" + b"\0\0\0\0"), memoryview(b"\xc1\xc1"))

    with pytest.raises(RemoteProtocolError):
        events_batch("p@1", [garbled], SCHEMA)


def test_a_schema_that_cannot_be_served_is_refused() -> None:
    for names in ([], ["tick", "tick"], ["tick", "offset"]):
        with pytest.raises(ConfigurationError, match="published_at"):
            narrowed(names)
    with pytest.raises(ConfigurationError, match="column tick is of type int64"):
        checked(pa.schema([("tick", pa.int32())]))
    assert checked(pa.schema([("payload", pa.binary()), ("tick", pa.int64())])).names == ["payload", "tick"]


VALUES = (
    st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
EVENTS = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.dictionaries(st.text(min_size=1), VALUES), st.binary(max_size=400)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=60)
@given(EVENTS)
def test_any_events_are_read_as_one_by_one(rows: list[Row]) -> None:
    """Against the decoder that applications use, event by event."""
    columns = delivery(*rows)
    batch = events_batch("p@1", [columns], COLUMNS)
    batch.validate(full=True)
    events = columns.events("p@1")

    assert batch.column("tick").to_pylist() == [event.tick for event in events]
    assert batch.column("topic").to_pylist() == [event.topic for event in events]
    assert batch.column("payload").to_pylist() == [event.body for event in events]
    assert batch.column("published_at").to_pylist() == [event.timestamp for event in events]
    assert [dict(pairs) for pairs in batch.column("properties").to_pylist()] == [
        {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in event.properties.items()
        }
        for event in events
    ]
    header_and_payload = zip(batch.column("header").to_pylist(), batch.column("payload").to_pylist(), strict=True)
    assert b"".join(header + payload for header, payload in header_and_payload) == bytes(columns.buffers[1])
