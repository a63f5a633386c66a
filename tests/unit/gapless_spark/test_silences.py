"""Silences as rows: with events and gaps they account for every tick that a pubend could have used."""

from __future__ import annotations

from typing import Any

from gapless.core.client import Delivery, Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import STEP, tick_at
from gapless.core.wire.delivered import DeliveredColumns
from gapless_spark.reading import Silences, record_batches, silence_batch
from gapless_spark.rows import SCHEMA, narrowed

PLACES = narrowed(["kind", "tick_from", "tick"])


def delivery(*ticks: int) -> Delivery:
    """Events at these ticks."""
    columns = EventColumns.of([encode_event("t", {"key": "k"}, None, b"x") for _ in ticks], [1] * len(ticks))
    payload = columns.batch(ticks).payload((1 << len(ticks)) - 1)
    return Delivery("p@1", [DeliveredColumns.parse(payload, 0)], ticks)


def rows(start: int, end: int, *parts: Delivery | Gap, **options: Any) -> list[tuple[str, int, int]]:
    """Kind, first and last tick of each row; all in units of the distance between two ticks of a pubend."""
    batches = record_batches("p@1", parts, PLACES, silences=Silences(start, end, STEP), **options)
    columns = [batch.to_pydict().values() for batch in batches]
    return [row for kinds, first, last in columns for row in zip(kinds, first, last, strict=True)]


def test_every_tick_is_in_one_row() -> None:
    found = rows(
        0,
        100 * STEP,
        delivery(2 * STEP, 3 * STEP, 7 * STEP),
        Gap("p@1", 10 * STEP, 20 * STEP),
        delivery(21 * STEP, 50 * STEP),
        fail_on_gap=False,
    )

    assert [(kind, last // STEP) for kind, _, last in found] == [
        ("silence", 1),
        ("event", 2),
        ("event", 3),
        ("silence", 6),
        ("event", 7),
        ("silence", 10),
        ("gap", 20),
        ("event", 21),
        ("silence", 49),
        ("event", 50),
        ("silence", 100),
    ]
    said = [tick for _, first, last in found for tick in range(-(-first // STEP), last // STEP + 1)]
    assert said == list(range(1, 101)), "each tick that the pubend could have used, once and in order"


def test_where_a_log_numbers_its_records_each_tick_is_the_place_of_one() -> None:
    silences = Silences.within(0, 10, 1600)
    batches = record_batches("orders.0@id", [delivery(2, 3, 6)], PLACES, silences=silences)
    found = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]

    assert found == [
        ("silence", 1, 1),
        ("event", 2, 2),
        ("event", 3, 3),
        ("silence", 4, 5),
        ("event", 6, 6),
        ("silence", 7, 10),
    ]
    assert Silences.within(0, 10, tick_at(1_800_000_000_000)).spacing == STEP, "a part of a range of times"


def test_a_range_with_nothing_in_it_is_one_silence() -> None:
    assert rows(5 * STEP, 9 * STEP) == [("silence", 5 * STEP + 1, 9 * STEP)]
    assert rows(5 * STEP, 5 * STEP) == []


def test_batches_are_cut_as_without_it() -> None:
    ticks = [2 * STEP * n for n in range(1, 8)]
    found = rows(0, ticks[-1], delivery(*ticks), rows_max=3)

    assert [kind for kind, _, _ in found] == ["silence", "event"] * 7


def test_nothing_but_its_place_is_known_of_a_silence() -> None:
    (row,) = silence_batch("p@1", [(3, 9)], SCHEMA).to_pylist()

    assert {name: value for name, value in row.items() if value is not None} == {
        "kind": "silence",
        "pubend": "p@1",
        "tick": 9,
        "tick_from": 4,
    }


def test_all_columns_stay_with_their_rows() -> None:
    """The map of properties too, which Arrow has to move."""
    (batch,) = record_batches("p@1", [delivery(5 * STEP, 9 * STEP)], SCHEMA, silences=Silences(0, 9 * STEP, STEP))

    assert batch.schema == SCHEMA
    assert batch.column("properties").to_pylist() == [None, [("key", "k")], None, [("key", "k")]]
    assert batch.column("payload").to_pylist() == [None, b"x", None, b"x"]
