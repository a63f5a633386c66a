"""What a transaction leaves in a log: an end that stands still, batches that are void, and markers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gapless_log.kafka.messages import LATEST
from gapless_log.kafka.records import Batch, Marker, batches, records, without_aborted
from kafka_kit import KafkaLog


@pytest.fixture
async def producer(log: KafkaLog) -> AsyncIterator[Any]:
    """One that is transactional."""
    async with log.producer(transactional_id=log.topic.name) as producer:
        yield producer


async def send(producer: Any, log: KafkaLog, *values: bytes) -> None:
    """Sends within the transaction; returns when all are acknowledged."""
    for value in values:
        await producer.send_and_wait(log.topic.name, value, partition=0)


async def settled(log: KafkaLog, stable: int) -> None:
    """Waits until the last stable offset is there: that comes some time after the producer was told."""
    while (await log.fetch(stable - 1)).stable < stable:
        pass


async def told(log: KafkaLog, offset: int) -> list[tuple[int, bool]]:
    """The batches of a fetch of committed records by their first offsets, and whether they count."""
    fetched = await log.fetch(offset)
    found = list(batches(fetched.records))
    return [(batch.first, counts) for batch, counts in without_aborted(found, fetched.aborted)]


async def test_an_open_transaction_holds_up_the_stable_offset(log: KafkaLog, producer: Any) -> None:
    await log.publish(b"0", b"1", b"2")
    await producer.begin_transaction()
    await send(producer, log, b"3", b"4")
    await log.publish(b"5")

    committed, all_there_is = await log.fetch(0), await log.fetch(0, is_committed=False)
    ends = await log.offset_of(LATEST, is_committed=True), await log.offset_of(LATEST)
    await producer.abort_transaction()

    assert (committed.stable, committed.high_watermark) == (3, 6)
    assert [batch.first for batch in batches(committed.records)] == [0]
    assert (all_there_is.stable, all_there_is.high_watermark) == (3, 6)
    assert [batch.first for batch in batches(all_there_is.records)] == [0, 3, 4, 5]
    assert [end.offset for end in ends] == [3, 6]


async def test_an_aborted_transaction_is_listed_from_its_first_offset_to_its_marker(
    log: KafkaLog, producer: Any
) -> None:
    await log.publish(b"0")
    await producer.begin_transaction()
    await send(producer, log, b"1", b"2")
    await log.publish(b"3")
    await producer.abort_transaction()
    await settled(log, 5)

    fetched = await log.fetch(0)
    found = list(batches(fetched.records))

    transactional = [batch for batch in found if batch.is_transactional and not batch.is_control]
    assert [batch.first for batch in transactional] == [1, 2]
    assert [(each.first, each.producer_id) for each in fetched.aborted] == [(1, transactional[0].producer_id)]
    assert marks(found) == [(4, Marker.ABORT)]
    assert await told(log, 0) == [(0, True), (1, False), (2, False), (3, True), (4, False)]
    assert (await log.fetch(0, is_committed=False)).aborted == ()


async def test_what_a_producer_writes_after_its_abort_counts(log: KafkaLog, producer: Any) -> None:
    await producer.begin_transaction()
    await send(producer, log, b"void")
    await producer.abort_transaction()
    async with producer.transaction():
        await send(producer, log, b"good")
    await settled(log, 4)

    fetched = await log.fetch(0)
    found = list(batches(fetched.records))

    assert len({batch.producer_id for batch in found}) == 1
    assert [each.first for each in fetched.aborted] == [0]
    assert marks(found) == [(1, Marker.ABORT), (3, Marker.COMMIT)]
    assert await told(log, 0) == [(0, False), (1, False), (2, True), (3, False)]
    assert await told(log, 2) == [(2, True), (3, False)]


async def test_a_fetch_in_the_middle_of_an_aborted_transaction_still_names_it(log: KafkaLog, producer: Any) -> None:
    await producer.begin_transaction()
    await send(producer, log, b"0", b"1", b"2")
    await producer.abort_transaction()
    await settled(log, 4)

    assert await told(log, 2) == [(2, False), (3, False)]


async def test_a_marker_carries_no_event(log: KafkaLog, producer: Any) -> None:
    """It has an offset and one record, which is Kafka's own."""
    async with producer.transaction():
        await send(producer, log, b"0")
    await settled(log, 2)

    data, marker = await log.batches(0)

    assert (marker.first, marker.last, marker.is_control, marker.marker()) == (1, 1, True, Marker.COMMIT)
    assert (data.is_control, data.marker()) == (False, None)
    assert [record.value for record in records(data)] == [b"0"]


def marks(found: list[Batch]) -> list[tuple[int, Marker | None]]:
    """The markers among these batches."""
    return [(batch.first, batch.marker()) for batch in found if batch.is_control]
