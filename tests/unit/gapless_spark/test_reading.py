"""Record batches of a range: their sizes, and what becomes of a gap."""

from __future__ import annotations

from typing import Any

import pytest

import gapless
from gapless.core.client import Delivery, Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless_spark.gaps import RangeGapError
from gapless_spark.reading import record_batches
from gapless_spark.rows import SCHEMA, narrowed

TICKS = narrowed(["kind", "tick"])


def delivery(*ticks: int, size: int = 1) -> Delivery:
    """Events at these ticks."""
    columns = EventColumns.of([encode_event("t", {}, None, b"x" * size) for _ in ticks], [size] * len(ticks))
    payload = columns.batch(ticks).payload((1 << len(ticks)) - 1)
    return Delivery("p@1", [DeliveredColumns.parse(payload, 0)], ticks)


def ticks(*parts: Delivery | Gap, **options: Any) -> list[list[int]]:
    """The ticks of each batch."""
    return [batch.column("tick").to_pylist() for batch in record_batches("p@1", parts, TICKS, **options)]


def test_small_deliveries_are_joined_and_large_ones_cut() -> None:
    assert ticks(delivery(1), delivery(2, 3), delivery(4)) == [[1, 2, 3, 4]]
    assert ticks(delivery(1), delivery(2, 3), delivery(4), rows_max=3) == [[1, 2, 3], [4]]
    assert ticks(delivery(*range(1, 8)), rows_max=3) == [[1, 2, 3], [4, 5, 6], [7]]
    assert ticks() == []


def test_a_batch_is_no_larger_than_it_need_be() -> None:
    large = 3 << 20

    assert ticks(delivery(1, size=large), delivery(2, size=large), delivery(3)) == [[1], [2, 3]]


def test_a_gap_fails_the_task_with_a_text_that_can_be_searched_for() -> None:
    found = record_batches("p@1", [delivery(1), Gap("p@1", 1, 9, "released early"), delivery(10)], TICKS)

    assert next(found).num_rows == 1
    with pytest.raises(RangeGapError, match=r"^GAPLESS_GAP pubend=p@1 ticks=\(1,9\]: .*failOnGap=false"):
        next(found)


def test_a_gap_is_a_row_where_it_is_to_be_one() -> None:
    parts: list[Delivery | Gap] = [delivery(1), Gap("p@1", 1, 9), delivery(10)]
    batches = list(record_batches("p@1", parts, TICKS, fail_on_gap=False))

    assert [batch.to_pydict() for batch in batches] == [
        {"kind": ["event"], "tick": [1]},
        {"kind": ["gap"], "tick": [9]},
        {"kind": ["event"], "tick": [10]},
    ]
    assert {batch.schema for batch in batches} == {TICKS}, "Spark takes no second schema"


def test_what_a_broker_sends_is_what_spark_would_get() -> None:
    """The whole way: published, read by ranges through the blocking facade, and turned into Arrow."""
    with gapless.sync.connect("embedded:", client_id="spark") as connection:
        start = connection.attach("s", "t", timeout=10)
        rows = [gapless.Message(b"%d" % n, {"n": n, "key": f"k{n}"}) for n in range(2500)]
        receipt = connection.publish("p", 0, 0, rows, topic="t", timeout=10)
        end = connection.heads("s", after=start, wait=10, timeout=20).ticks[receipt.pubend]
        with connection.read_range("s", receipt.pubend, 0, end, on_gap="deliver") as reader:
            batches = list(record_batches(receipt.pubend, reader.parts(), SCHEMA, rows_max=1000))

    assert [batch.num_rows for batch in batches] == [1000, 1000, 500]
    assert [row for batch in batches for row in batch.column("payload").to_pylist()] == [b"%d" % n for n in range(2500)]
    assert batches[0].column("key").to_pylist()[:2] == ["k0", "k1"]
    assert [tick for batch in batches for tick in batch.column("tick").to_pylist()] == list(receipt.ticks)
