"""Of two consumers of one process that one holds which was asked for later, whoever reconnects when (X1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless_testing.fault_proxy import FaultProxy
from integration.broker_process import BrokerProcess, bounded, until

PATIENCE = 30


class Asynchronous:
    """What an asyncio program does."""

    async def connect(self, url: str) -> Any:
        return await gapless.connect(url, client_id="c")

    async def subscribe(self, session: Any) -> Any:
        return await session.subscribe("t", name="n", in_use="takeover")

    async def receive(self, subscription: Any) -> bytes:
        return bytes((await anext(subscription)).body)

    async def end(self, ended: Any) -> None:
        await ended.close()


class Blocking:
    """What a program with threads does."""

    async def connect(self, url: str) -> Any:
        return await asyncio.to_thread(gapless.sync.connect, url, client_id="c")

    async def subscribe(self, session: Any) -> Any:
        return await asyncio.to_thread(session.subscribe, "t", name="n", in_use="takeover", timeout=PATIENCE)

    async def receive(self, subscription: Any) -> bytes:
        event = await asyncio.to_thread(subscription.receive, timeout=PATIENCE)
        return bytes(event.body)

    async def end(self, ended: Any) -> None:
        await asyncio.to_thread(ended.close)


class Place:
    """A broker, a program, and a proxy for each of its connections."""

    def __init__(self, broker: BrokerProcess, program: Asynchronous | Blocking, blocks: AsyncExitStack) -> None:
        self.broker = broker
        self.program = program
        self._blocks = blocks

    async def connection(self) -> tuple[FaultProxy, Any]:
        """One more connection of the process, and the proxy that it goes over."""
        proxy = await self._blocks.enter_async_context(FaultProxy(self.broker.url.removeprefix("gapless://")))
        connection = await self.program.connect(f"gapless://{proxy.address}")
        self._blocks.push_async_callback(self.program.end, connection)
        return proxy, connection

    async def publish(self, body: bytes) -> None:
        async with gapless.connect(self.broker.url) as connection, connection.session() as session:
            await session.publisher("t").send(body)

    def consume(self, connection: Any) -> asyncio.Task[Any]:
        """A session of a connection asks for the subscription, and takes it from whoever has it."""
        return asyncio.create_task(self.program.subscribe(connection.session()))

    def receive(self, subscription: Any) -> asyncio.Task[bytes]:
        return asyncio.create_task(self.program.receive(subscription))


@asynccontextmanager
async def a_place(directory: Path, program: Asynchronous | Blocking) -> AsyncIterator[Place]:
    async with BrokerProcess(directory / "broker") as broker, AsyncExitStack() as blocks:
        yield Place(broker, program, blocks)


@pytest.fixture(params=[Asynchronous, Blocking])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    program: Callable[[], Asynchronous | Blocking] = request.param
    async with a_place(tmp_path, program()) as place:
        yield place


async def is_taken_over(waiting: asyncio.Task[Any]) -> None:
    with pytest.raises(gapless.SubscriptionTakenOverError):
        await bounded(waiting, PATIENCE)


def go_away(proxy: FaultProxy) -> None:
    """The link is lost, and there is none for a while."""
    proxy.refuses = True
    proxy.cut()


async def test_who_was_away_while_it_was_taken_over_does_not_take_it_back(place: Place) -> None:
    """It comes back while the later one is away: both are connections of this process."""
    early, first = await place.connection()
    late, second = await place.connection()
    earlier = await bounded(place.consume(first), PATIENCE)
    lost = place.receive(earlier)
    go_away(early)
    later = await bounded(place.consume(second), PATIENCE)
    await place.publish(b"1")
    assert await bounded(place.receive(later), PATIENCE) == b"1"
    go_away(late)

    early.heal()
    await is_taken_over(lost)
    late.heal()

    await place.publish(b"2")
    assert await bounded(place.receive(later), PATIENCE) == b"2"


async def test_what_it_got_from_a_broker_that_has_restarted_the_later_one_takes_back(place: Place) -> None:
    early, first = await place.connection()
    late, second = await place.connection()
    earlier = await bounded(place.consume(first), PATIENCE)
    go_away(early)
    later = await bounded(place.consume(second), PATIENCE)
    go_away(late)
    await place.broker.restart()
    early.heal()
    await place.publish(b"1")
    assert await bounded(place.receive(earlier), PATIENCE) == b"1"
    lost = place.receive(earlier)

    late.heal()
    await is_taken_over(lost)

    while await bounded(place.receive(later), PATIENCE) != b"1":
        pass
    await place.publish(b"2")
    assert await bounded(place.receive(later), PATIENCE) == b"2"


async def test_who_could_not_ask_before_does_not_take_it_from_who_was_asked_for_later(place: Place) -> None:
    early, first = await place.connection()
    _, second = await place.connection()
    go_away(early)
    await until(lambda: not early.is_used, "the link to be gone")
    earlier = place.consume(first)
    await asyncio.sleep(0.1)
    later = await bounded(place.consume(second), PATIENCE)

    early.heal()
    await is_taken_over(earlier)

    await place.publish(b"1")
    assert await bounded(place.receive(later), PATIENCE) == b"1"


async def test_who_could_not_ask_before_gets_it_when_the_later_one_has_left(place: Place) -> None:
    early, first = await place.connection()
    _, second = await place.connection()
    go_away(early)
    await until(lambda: not early.is_used, "the link to be gone")
    earlier = place.consume(first)
    await asyncio.sleep(0.1)
    await place.program.end(await bounded(place.consume(second), PATIENCE))

    early.heal()
    subscription = await bounded(earlier, PATIENCE)

    await place.publish(b"1")
    assert await bounded(place.receive(subscription), PATIENCE) == b"1"


async def test_of_two_sessions_of_a_connection_the_one_holds_that_was_asked_for_later(place: Place) -> None:
    """The link breaks before the earlier one hears that it was taken over."""
    proxy, connection = await place.connection()
    lost = place.receive(await bounded(place.consume(connection), PATIENCE))
    passed = proxy.inward.passed
    proxy.outward.is_open.clear()
    asked = place.consume(connection)
    await until(lambda: proxy.inward.passed > passed, "the request to pass")
    await asyncio.sleep(0.2)
    proxy.cut()
    proxy.heal()

    later = await bounded(asked, PATIENCE)
    await is_taken_over(lost)
    await place.publish(b"1")
    assert await bounded(place.receive(later), PATIENCE) == b"1"
