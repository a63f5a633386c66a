"""A connection that is used where its loop is not: on another loop, on a later one, and in a forked child."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import logged
from unit.gapless.client.fake_network import FakeNetwork


class Made:
    """A connection, and one of everything that stands on it."""

    def __init__(self, connection: gapless.Connection) -> None:
        self.connection = connection
        self.session = connection.session(gapless.AckMode.CLIENT)
        self.publisher = self.session.publisher("t")
        self.closed_publisher = self.session.publisher("t")

    async def subscribe(self) -> None:
        await self.closed_publisher.close()
        self.subscription = await self.session.subscribe("t", name="s")
        self.transform = await self.session.transform("t", to="out", name="enrich", start="latest")
        self.token = self.subscription.token

    def calls(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        """Everything that can be awaited, by name."""
        connection, session, publisher, subscription = self.connection, self.session, self.publisher, self.subscription
        message = gapless.Message(b"elsewhere")
        return {
            "send": lambda: publisher.send(b"elsewhere"),
            "send_batch": lambda: publisher.send_batch([message]),
            "send_all": lambda: anext(publisher.send_all([message])),
            "flush": publisher.flush,
            "recover of a publisher": publisher.recover,
            "close of a publisher": publisher.close,
            "keyed": lambda: connection.publish("p", 0, 0, [message], topic="t"),
            "anext": lambda: anext(subscription),
            "batches": lambda: anext(subscription.batches()),
            "acknowledge": lambda: subscription.acknowledge(self.token),
            "acknowledge of a session": session.acknowledge,
            "recover": session.recover,
            "commit": session.transactions().commit,
            "rollback": session.transactions().rollback,
            "transform": lambda: anext(self.transform),
            "subscribe": lambda: session.subscribe("t", name="other").__aenter__(),
            "subscriptions": connection.subscriptions,
            "pubends": connection.pubends,
            "status": connection.status,
            "unsubscribe": lambda: connection.unsubscribe("s"),
            "heads": connection.heads,
            "attach": lambda: connection.attach("s", "t"),
            "close of a session": session.close,
            "close": connection.close,
        }


async def made() -> Made:
    made = Made(await gapless.connect(ADDRESS))
    await made.subscribe()
    return made


def refusal(call: Callable[[], Awaitable[Any]]) -> str:
    """What a call on another loop raises."""

    async def attempt() -> str:
        try:
            return repr(await asyncio.wait_for(call(), 10))
        except gapless.ConnectionClosedError as error:
            return str(error)

    return asyncio.run(attempt())


async def test_on_another_loop_each_call_is_refused_and_does_nothing(network: FakeNetwork) -> None:
    all_made = await made()
    await asyncio.sleep(0.05)
    network.log(b"a")
    sends = network.sends

    for name, call in all_made.calls().items():
        told = await asyncio.to_thread(refusal, call)
        assert told.startswith("the connection belongs to another event loop: connect anew"), name
    assert network.sends == sends

    assert (await all_made.publisher.send(b"here")).tick
    assert (await anext(all_made.subscription)).body == b"a"
    assert logged(network.broker) == [b"a", b"here"]
    await all_made.connection.close()


def test_on_a_later_loop_each_call_is_refused(network: FakeNetwork) -> None:
    all_made = asyncio.run(made())

    for name, call in all_made.calls().items():
        if name != "close":
            assert refusal(call).startswith("the event loop of this connection has ended"), name
    assert refusal(all_made.connection.close).startswith("the event loop of this connection has ended")
    assert refusal(all_made.connection.close) == "None"


def test_close_on_a_later_loop_says_that_events_are_uncertain(network: FakeNetwork) -> None:
    async def send() -> gapless.Connection:
        connection = await gapless.connect(ADDRESS)
        publisher = connection.session().publisher("t")
        await publisher.recover()
        network.stalled = True
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(publisher.send(b"a"), 0.01)
        return connection

    connection = asyncio.run(send())

    with pytest.raises(gapless.PublishUncertainError, match="has ended"):
        asyncio.run(connection.close())


@pytest.mark.parametrize("closes", [True, False])
def test_an_embedded_broker_lets_go_of_its_volume_when_its_loop_has_ended(tmp_path: Path, closes: bool) -> None:
    address = f"embedded:{tmp_path / 'volume'}"

    async def send() -> gapless.Connection:
        connection = await gapless.connect(address)
        await connection.session().publisher("t").send(b"a")
        return connection

    connection = asyncio.run(send())
    if closes:
        with pytest.raises(gapless.ConnectionClosedError, match="has ended"):
            asyncio.run(connection.close())

    async def look() -> list[bytes]:
        async with gapless.connect(address) as connection, connection.session() as session:
            async with session.subscribe("t", name="s", start="earliest") as subscription:
                return [(await asyncio.wait_for(anext(subscription), 20)).body]

    assert asyncio.run(look()) == [b"a"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_child_that_is_forked_in_a_coroutine_gets_nothing_and_sends_nothing(network: FakeNetwork) -> None:
    all_made = await made()
    network.log(b"a", b"b", b"c")
    assert (await anext(all_made.subscription)).body == b"a"
    sends = network.sends
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for coroutine in (anext(all_made.subscription), all_made.publisher.send(b"x"), all_made.session.recover()):
                try:
                    coroutine.send(None)
                except gapless.ConnectionClosedError as error:
                    refused += "forked" in str(error)
            all_made.connection.drain()
            all_made.session.abandon()
            if network.sends != sends:
                refused = 0
        finally:
            os._exit(refused)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3  # noqa: ASYNC222 - the child has ended
    assert (await anext(all_made.subscription)).body == b"b"
    await all_made.connection.close()
