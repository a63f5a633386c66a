"""Deliveries as they come over the wire: what was published, as it was published."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.batch_bytes import ROW
from gapless.core.stream.ticks import STEP
from gapless.core.wire.delivered import DeliveredColumns
from unit.gapless.core.stream.test_columns import columns, plain_events


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
    assert delivered.bodies() == [body for *_, body in chosen]


@given(plain_events, st.integers(0, 30), st.integers(0, 30))
def test_a_slice_of_a_delivery_is_the_delivery_of_a_slice(
    events: list[tuple[str, dict[str, object], bytes]], first: int, second: int
) -> None:
    """Clients hand out parts of what arrived without decoding the rest."""
    start, stop = sorted((min(first, len(events)), min(second, len(events))))
    whole = DeliveredColumns.parse(columns(events).batch(range(1, len(events) + 1)).payload((1 << len(events)) - 1), 0)

    assert whole.slice(start, stop).events("p@1") == whole.events("p@1")[start:stop]
    assert whole.slice(start, stop).bodies() == whole.bodies()[start:stop]


def test_a_body_that_is_longer_than_its_event_is_refused() -> None:
    payload = columns([("t", {}, b"x"), ("t", {}, b"yy")]).batch([1, 2]).payload(0b11)
    row = ROW.unpack_from(payload, 4)
    garbled = payload[:4] + ROW.pack(*row[:2], row[1] + 1) + payload[4 + ROW.size :]

    with pytest.raises(ValueError, match="longer than the event"):
        DeliveredColumns.parse(garbled, 0).bodies()


def test_a_delivery_that_does_not_add_up_is_refused() -> None:
    """A client believes no broker either."""
    payload = columns([("t", {}, b"x")]).batch([1]).payload(1)

    for garbled in (payload[:-1], payload + b"x", b"\xff" + payload[1:], payload[:10]):
        with pytest.raises(ValueError, match=r"delivery"):
            DeliveredColumns.parse(garbled, 0)
