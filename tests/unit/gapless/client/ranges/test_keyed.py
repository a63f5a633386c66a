"""Keyed publishing: parts, order, and what becomes of a call that is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

import gapless
from gapless.client.ranges import keyed
from gapless.client.ranges.keyed import KEY_MAX, KeyedPublishing
from gapless.core.wire import messages as m
from gapless.errors import ConnectionClosedError


@pytest.fixture
async def connection() -> AsyncIterator[gapless.Connection]:
    """A client of a broker in memory."""
    async with gapless.connect("embedded:") as connection:
        yield connection


def rows(count: int, size: int = 1) -> list[gapless.Message]:
    """Messages of a size."""
    return [gapless.Message(b"x" * size, {"n": n}, "t") for n in range(count)]


class StandIn:
    """In the place of a driver and its core: answers when it is told to, and notes what was asked."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = self
        self.ranges = self
        self.stamp = ""
        self.welcome = m.Welcome(1, 1, "net", "node", True, 5000, 1 << 20, 4 << 20, 64, 8 << 20)
        self.asked: list[tuple[str, int, int, int]] = []
        self.open: list[asyncio.Future[Any]] = []

    def check_open(self) -> None:
        """It is."""

    def publish(self, producer: str, epoch: int, index: int, topic: str, events: Any, now: int) -> int:
        self.asked.append((producer, epoch, index, events.count))
        return now

    def ask(self, ask: Any) -> asyncio.Future[Any]:
        ask(0)
        self.open.append(self.loop.create_future())
        return self.open[-1]

    async def answer(self, *ticks: m.TickRun) -> None:
        """The broker answers what was asked last."""
        self.open[-1].set_result(m.KeyedPublished(1, "p@1", list(ticks)))
        for _ in range(5):
            await asyncio.sleep(0)


async def test_parts_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that overtook the one before it would make that look like a repetition."""
    monkeypatch.setattr(keyed, "PART_EVENTS", 3)
    driver: Any = StandIn()
    call = asyncio.ensure_future(KeyedPublishing(driver).publish("q", 2, 10, rows(7), None))
    for _ in range(5):
        await asyncio.sleep(0)
    assert driver.asked == [("q", 2, 10, 3)]
    await driver.answer(m.TickRun(1024, 1024, 3))
    await driver.answer(m.TickRun(8192, 1024, 1))
    await driver.answer()

    assert driver.asked == [("q", 2, 10, 3), ("q", 2, 13, 3), ("q", 2, 16, 1)]
    receipt = await call
    assert (receipt.pubend, receipt.published, receipt.duplicates) == ("p@1", 4, 3)
    assert receipt.ticks == [1024, 2048, 3072, 8192]


@pytest.mark.parametrize(("said", "durable"), [((True, True), True), ((True, False), False), ((None, True), False)])
async def test_it_is_durable_if_every_part_is(
    monkeypatch: pytest.MonkeyPatch, *, said: tuple[bool | None, ...], durable: bool
) -> None:
    """An older broker says it of itself; this one is in memory."""
    monkeypatch.setattr(keyed, "PART_EVENTS", 1)
    driver: Any = StandIn()
    driver.welcome = replace(driver.welcome, durable=False)
    call = asyncio.ensure_future(KeyedPublishing(driver).publish("q", 0, 0, rows(2), None))
    for each in said:
        await asyncio.sleep(0.001)
        driver.open[-1].set_result(m.KeyedPublished(1, "p@1", [], each))

    assert (await call).durable is durable


async def test_a_cancelled_call_goes_on_and_the_next_one_waits_for_it() -> None:
    driver: Any = StandIn()
    publishing = KeyedPublishing(driver)
    first = asyncio.ensure_future(publishing.publish("q", 0, 0, rows(2), None))
    await asyncio.sleep(0.001)
    first.cancel()
    second = asyncio.ensure_future(publishing.publish("q", 0, 2, rows(2), None))
    other = asyncio.ensure_future(publishing.publish("r", 0, 0, rows(1), None))
    await asyncio.sleep(0.001)
    assert driver.asked == [("q", 0, 0, 2), ("r", 0, 0, 1)]
    await driver.answer(m.TickRun(1024, 1024, 1))
    await other
    driver.open[0].set_result(m.KeyedPublished(1, "p@1", [m.TickRun(1024, 1024, 2)]))
    await asyncio.sleep(0.001)
    assert driver.asked[-1] == ("q", 0, 2, 2)
    await driver.answer(m.TickRun(4096, 1024, 2))

    assert (await second).published == 2


async def test_a_connection_that_ends_before_the_answer_leaves_it_uncertain() -> None:
    driver: Any = StandIn()
    call = asyncio.ensure_future(KeyedPublishing(driver).publish("q", 0, 0, rows(2), None))
    await asyncio.sleep(0.001)
    driver.open[-1].set_exception(ConnectionClosedError("closed"))

    with pytest.raises(gapless.PublishUncertainError, match="same keys"):
        await call


async def test_parts_fit_a_frame(connection: gapless.Connection) -> None:
    receipt = await connection.publish("q", 0, 0, rows(40, 200_000))

    assert receipt.published == 40
    assert list(receipt.ticks) == sorted(receipt.ticks)


async def test_nothing_is_published_of_what_is_wrong(connection: gapless.Connection) -> None:
    with pytest.raises(gapless.InvalidMessageError):
        await connection.publish("q", 0, 0, [*rows(3), gapless.Message("text", topic="t")])
    with pytest.raises(gapless.InvalidTopicError):
        await connection.publish("q", 0, 0, [gapless.Message(b"x")])
    for epoch, index in ((-1, 0), (0, -1), (0, KEY_MAX + 1), (0, 0.5)):
        with pytest.raises(gapless.ConfigurationError):
            await connection.publish("q", epoch, index, rows(1))  # type: ignore[arg-type]
    with pytest.raises(gapless.ConfigurationError):
        await connection.publish("q\n", 0, 0, rows(1))
    with pytest.raises(gapless.PublishRejectedError):
        await connection.publish("q", 0, KEY_MAX, rows(2))

    assert (await connection.publish("q", 0, 0, rows(3))).published == 3
    assert (await connection.publish("q", 0, 0, [])).published == 0
