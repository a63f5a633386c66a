"""A range as applications read it: events, gaps once, the position, and the end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest

import gapless
from gapless.client.ranges.reading import RangeReader
from gapless.core.client import Delivery, Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless.core.wire.messages import Target


def delivery(*ticks: int) -> Delivery:
    """Events at these ticks."""
    columns = EventColumns.of([encode_event("t", {}, None, b"x") for _ in ticks], [1] * len(ticks))
    payload = columns.batch(ticks).payload((1 << len(ticks)) - 1)
    return Delivery("p@1", [DeliveredColumns.parse(payload, 0)], ticks)


class StandIn:
    """In the place of a driver and its core: what arrives is put there by the test."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = self
        self.ranges = self
        self.parts: deque[Any] = deque()
        self.complete = False
        self.ended = False
        self.reader: RangeReader[Any] | None = None

    def now(self) -> int:
        return 0

    def check_open(self) -> None:
        """It is."""

    def check_here(self) -> None:
        """It is this loop."""

    def touch(self) -> None:
        """Nothing is done."""

    def register(self, number: int, owner: Any) -> None:
        self.reader = owner

    def unregister(self, number: int) -> None:
        self.reader = None

    def read(self, *_: Any) -> int:
        return 1

    def take(self, number: int, now: int) -> Any:
        return self.parts.popleft() if self.parts else None

    def is_complete(self, number: int) -> bool:
        return self.complete and not self.parts

    def end_read(self, number: int, now: int) -> None:
        self.ended = True

    def arrive(self, *parts: Any, complete: bool = False) -> None:
        """Something arrives."""
        self.parts.extend(parts)
        self.complete = complete
        assert self.reader is not None
        self.reader.on_arrived()


def reading(*, on_gap: str = "raise") -> tuple[StandIn, RangeReader[Any]]:
    """A reader of (10, 100]."""
    driver: Any = StandIn()
    return driver, RangeReader(driver, Target("s"), "p@1", 10, 100, raises_gaps=on_gap == "raise")


async def test_it_ends_behind_the_last_event() -> None:
    driver, reader = reading()
    driver.arrive(delivery(20, 30), delivery(40), complete=True)
    ticks = [(event.tick, reader.position) async for event in reader]

    assert ticks == [(20, 20), (30, 30), (40, 40)]
    assert reader.position == 100


async def test_it_waits_for_what_has_not_arrived() -> None:
    driver, reader = reading()
    waiting = asyncio.ensure_future(reader.__anext__())
    await asyncio.sleep(0)
    with pytest.raises(gapless.SubscriptionError, match="one at a time"):
        await reader.__anext__()
    driver.arrive(delivery(20))

    assert (await waiting).tick == 20


async def test_a_cancelled_wait_loses_nothing() -> None:
    driver, reader = reading()
    waiting = asyncio.ensure_future(reader.__anext__())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    driver.arrive(delivery(20))

    assert (await reader.__anext__()).tick == 20


async def test_a_gap_is_raised_once_and_it_goes_on_behind_it() -> None:
    driver, reader = reading()
    driver.arrive(delivery(20), Gap("p@1", 20, 50, "released early"), delivery(60), complete=True)
    assert (await reader.__anext__()).tick == 20
    with pytest.raises(gapless.GapError) as raised:
        await reader.__anext__()
    assert (raised.value.gap.start, raised.value.gap.end, reader.position) == (20, 50, 50)

    assert [event.tick async for event in reader] == [60]


async def test_a_gap_is_handed_out_where_that_is_wanted() -> None:
    driver, reader = reading(on_gap="deliver")
    driver.arrive(Gap("p@1", 10, 50, ""), delivery(60), complete=True)

    assert [type(item).__name__ async for item in reader] == ["Gap", "Event"]


async def test_parts_come_as_they_came() -> None:
    driver, reader = reading(on_gap="deliver")
    driver.arrive(delivery(20, 30), Gap("p@1", 30, 50, ""), complete=True)
    parts = [part async for part in reader.parts()]

    assert [type(part).__name__ for part in parts] == ["Delivery", "Gap"]
    assert reader.position == 100


async def test_leaving_the_block_ends_it() -> None:
    driver, reader = reading()
    async with reader:
        pass
    await reader.close()

    assert driver.ended
    with pytest.raises(gapless.SubscriptionError, match="closed"):
        await reader.__anext__()


async def test_what_the_broker_refuses_is_raised() -> None:
    _, reader = reading()
    waiting = asyncio.ensure_future(reader.__anext__())
    await asyncio.sleep(0)
    reader.on_failed(gapless.SubscriptionNotFoundError("gone"))

    with pytest.raises(gapless.SubscriptionNotFoundError):
        await waiting
