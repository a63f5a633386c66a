"""`gapless.connect`, as an application calls it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import gapless
from gapless.client import driver
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS, is_connected
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


async def test_a_connection_is_awaited_or_entered(network: FakeNetwork) -> None:
    connection = await gapless.connect(ADDRESS, client_id="desk-7")
    assert is_connected(connection)
    assert (connection.client_id, connection.network) == ("desk-7", "net")
    assert repr(connection) == "<Connection of 'desk-7' to network 'net', connected>"
    await connection.close()
    assert not is_connected(connection)
    assert "closed" in repr(connection)

    async with gapless.connect(ADDRESS) as connection:
        assert is_connected(connection)
    assert not is_connected(connection)
    assert len(network.broker.messages(m.Goodbye)) == 2


async def test_every_connection_is_an_instance_of_its_own(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS), gapless.connect(ADDRESS):
        pass

    assert len({hello.instance for hello in network.broker.messages(m.Hello)}) == 2


async def test_nobody_answers(network: FakeNetwork) -> None:
    network.unreachable = True
    with pytest.raises(gapless.ConnectionClosedError, match="no broker answers: one: nobody there; two:"):
        await gapless.connect("gapless+fake://one,two")

    assert network.dialled == ["one", "two"]


async def test_one_that_waits_goes_on_until_somebody_answers(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    network.unreachable = True
    connecting = asyncio.ensure_future(_connected(ADDRESS, wait=True))
    await asyncio.sleep(0.2)
    network.unreachable = False
    connection = await connecting
    await connection.close()

    assert any("no broker answers, trying again" in record.getMessage() for record in caplog.records)


async def test_that_no_broker_answers_is_told_once_and_then_now_and_then(
    network: FakeNetwork, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is dialled twice a second, and an outage may last a night; each outage is told at once."""
    network.unreachable = True
    connecting = asyncio.ensure_future(_connected(ADDRESS, wait=True))
    await _until(lambda: len(network.dialled) >= 3)
    times_at_first = _times_told(caplog)
    monkeypatch.setattr(driver, "TELL_AGAIN_SECONDS", 0)
    await _until(lambda: _times_told(caplog) == 2)
    monkeypatch.undo()
    network.unreachable = False
    connection = await connecting
    network.unreachable = True
    network.cut()
    await _until(lambda: _times_told(caplog) == 3)
    await connection.close()

    assert times_at_first == 1


def _times_told(caplog: pytest.LogCaptureFixture) -> int:
    return sum("no broker answers, trying again" in record.getMessage() for record in caplog.records)


async def _until(is_so: Callable[[], bool]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not come about")


async def _connected(address: str, **arguments: Any) -> gapless.Connection:
    return await gapless.connect(address, **arguments)


async def test_a_cancelled_connect_leaves_nothing_behind(network: FakeNetwork) -> None:
    network.stalled = True
    connecting = asyncio.ensure_future(_connected(ADDRESS))
    await asyncio.sleep(0.01)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting

    assert [link.open for link in network.links.values()] == [False]


async def test_a_broker_that_refuses(network: FakeNetwork) -> None:
    network.broker.refusal = m.HelloRefused(m.Code.UNAUTHORIZED, "who are you?")
    with pytest.raises(gapless.ConnectionRefusedByBrokerError, match="who are you"):
        await gapless.connect(ADDRESS)


async def test_a_broker_that_was_set_up_anew_ends_the_connection(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t", name="s") as subscription:
            network.broker.network = "another"
            network.cut()
            with pytest.raises(gapless.ConnectionRefusedByBrokerError, match="another"):
                await anext(subscription)
        with pytest.raises(gapless.ConnectionRefusedByBrokerError):
            await connection.pubends()
        with pytest.raises(gapless.ConnectionRefusedByBrokerError):
            connection.session()


@pytest.mark.parametrize("address", ["", "localhost:7400", "http://x", "gapless://", "gapless+://x", 5])
def test_a_wrong_address_is_refused_at_once(address: Any) -> None:
    with pytest.raises(gapless.ConfigurationError):
        _ = gapless.connect(address)


@pytest.mark.parametrize("client_id", ["x" * 256, "a\0b", 5])
def test_a_wrong_client_id_is_refused_at_once(client_id: Any) -> None:
    with pytest.raises(gapless.ConfigurationError):
        _ = gapless.connect(ADDRESS, client_id=client_id)


async def test_an_unknown_transport_is_named() -> None:
    with pytest.raises(gapless.PluginError, match="carrier-pigeon"):
        await gapless.connect("gapless+carrier-pigeon://x")


async def test_subscriptions_are_listed(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS, client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", "u", name="s", selector="a = 1"):
            (info,) = await connection.subscriptions()

    assert (info.client_id, info.name, info.topics, info.selector) == ("c", "s", ("t", "u"), "a = 1")
    assert (info.connected, info.lag_events, info.lag_seconds, info.lag_complete) == (True, 3, 1.5, False)
    assert info.acknowledged.ticks == {PUBEND: BASE}
    assert info.acknowledged.network == "net"
    assert info.pinned_bytes is None


async def test_a_listing_says_what_a_subscription_holds_back(network: FakeNetwork) -> None:
    network.broker.pinned_bytes = 700
    async with gapless.connect(ADDRESS, client_id="c") as connection, connection.session() as session:
        async with session.subscribe("t", name="s"):
            (info,) = await connection.subscriptions()

    assert info.pinned_bytes == 700


async def test_pubends_are_listed(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        ticks = network.log(b"a", b"b")
        (info,) = await connection.pubends()

    assert (info.pubend, info.topics, info.newest, info.stable) == (PUBEND, ("#",), ticks[1], ticks[1])
    assert info.timed
    assert info.created is not None
    assert info.created.tzinfo is not None


async def test_a_subscription_of_another_client_is_removed_by_its_name(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS, client_id="c") as connection, connection.session() as session:
        await session.subscribe("t", name="s")
    async with gapless.connect(ADDRESS) as connection:
        with pytest.raises(gapless.SubscriptionNotFoundError):
            await connection.unsubscribe("s")
        await connection.unsubscribe("s", client_id="c")
        assert await connection.subscriptions() == []
        with pytest.raises(gapless.ConfigurationError):
            await connection.unsubscribe("")


async def test_an_shb_is_given_up_for_good(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        looked = await connection.retire("away", only_look=True)
        assert (looked.shb, looked.pubends, looked.before) == ("away@disk", (PUBEND,), False)
        assert await connection.retire("away") == looked
        assert (await connection.retire("away")).before
        with pytest.raises(gapless.ConfigurationError, match="no SHB 'nobody'"):
            await connection.retire("nobody")
        with pytest.raises(gapless.ConfigurationError, match="the name of an SHB"):
            await connection.retire("")


async def test_a_broker_tells_its_status_in_parts(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        status = await connection.status()

    assert status.gauges == (gapless.Gauge("gapless_node_sessions", (), 3, "Clients."),)
    assert status.value("gapless_node_sessions") == 3
    [alarm] = status.alarms
    assert (alarm.code, alarm.count, alarm.over) == ("disk_low", 2, False)
    assert alarm.last - alarm.first == timedelta(minutes=1)
    assert alarm.last.tzinfo is not None


async def test_a_broker_that_is_too_old_for_its_status_is_not_asked(network: FakeNetwork) -> None:
    network.broker.answers = ()
    async with gapless.connect(ADDRESS) as connection:
        with pytest.raises(gapless.ConfigurationError, match="the broker 'fake' is too old to tell its status"):
            await connection.status()

        assert len(await connection.pubends()) == 1


async def test_a_broker_that_is_found_to_be_older_after_a_reconnect_is_not_asked(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        network.stalled = True
        asking = asyncio.ensure_future(connection.status())
        await asyncio.sleep(0.01)
        network.broker.answers = ()
        network.cut()
        network.kept.clear()
        network.stalled = False

        with pytest.raises(gapless.ConfigurationError, match="too old"):
            await asking


async def test_a_question_outlives_a_reconnect(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection:
        network.stalled = True
        asking = asyncio.ensure_future(connection.pubends())
        await asyncio.sleep(0.01)
        network.cut()
        network.kept.clear()
        network.stalled = False

        assert len(await asking) == 1


async def test_what_happens_to_the_connection_is_logged(network: FakeNetwork, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gapless")
    async with gapless.connect(ADDRESS) as connection:
        network.cut()
        await connection.pubends()

    said = [record.getMessage() for record in caplog.records if record.name == "gapless.client"]
    assert said == ["lost the connection to here: cut; trying again", "connected again, to here (node fake)"]


async def test_iterations_in_other_tasks_end_when_the_connection_is_closed(network: FakeNetwork) -> None:
    connection = await gapless.connect(ADDRESS)
    subscription = await connection.session().subscribe("t", name="s")
    waiting = asyncio.ensure_future(anext(subscription))
    asking = asyncio.ensure_future(connection.pubends())
    await asyncio.sleep(0)
    network.stalled = True
    await connection.close()

    with pytest.raises(gapless.SubscriptionError):
        await waiting
    with pytest.raises(gapless.ConnectionClosedError):
        await asking
    with pytest.raises(gapless.ConnectionClosedError):
        await connection.pubends()


async def test_nothing_is_left_running(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        async with session.subscribe("t") as subscription:
            await session.publisher("t").send(b"a")
            await anext(subscription)
        network.cut()
    await asyncio.sleep(0)

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("seed", range(2))
async def test_consumed_by_its_token_everything_is_consumed_once(network: FakeNetwork, seed: int) -> None:
    """The public names under links that break while publishing and consuming."""
    from random import Random

    random = Random(seed)
    count = 100
    stored: dict[str, Any] = {"token": None, "bodies": []}

    async def publish() -> None:
        async with gapless.connect(ADDRESS, wait=True) as connection, connection.session() as session:
            publisher = session.publisher("t", name="p")
            for i in range(count):
                await publisher.send(b"%d" % i)

    async def consume() -> None:
        while len(stored["bodies"]) < count:
            async with gapless.connect(ADDRESS, wait=True) as connection, connection.session() as session:
                async with session.subscribe("t", name="s", start=stored["token"]) as subscription:
                    async for event in subscription:
                        stored["bodies"].append(event.body)
                        stored["token"] = subscription.token
                        if random.random() < 0.02 or len(stored["bodies"]) == count:
                            break

    async def disturb() -> None:
        while True:
            await asyncio.sleep(0.02)
            if random.random() < 0.3:
                network.cut()

    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        await (await session.subscribe("t", name="s")).close()
    disturbing = asyncio.ensure_future(disturb())
    await asyncio.gather(publish(), consume())
    disturbing.cancel()

    assert stored["bodies"] == [b"%d" % i for i in range(count)]
