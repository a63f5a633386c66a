"""What each principal may have at a real broker: counts are refused, rates make wait, and others do not notice."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import ConnectionClosedError, Password, PublishRejectedError
from gapless.core.gauges import value_of
from gapless.core.server.users import UserRow
from gapless.errors import ConfigurationError
from gapless.node.config import make_config
from gapless.security.users import new_verifier, write_users
from gapless_shb import service
from gapless_shb.core.broker import Timing
from gapless_shb.core.state.gauges import PINNED
from integration.broker_process import bounded, until
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node

pytestmark = pytest.mark.timeout(60)

BODY = bytes(1000)


@pytest.fixture
def auth(tmp_path: Path) -> Any:
    """`slow` and `shop`, who are in a group, and whoever says nothing."""
    users = tmp_path / "users"
    write_users(users, {name: UserRow(new_verifier("pw"), ("tenants",), 0) for name in ("slow", "shop")})
    return [{"plugin": "scram", "users": str(users), "delays": False}, {"plugin": "anonymous"}]


def connect(url: str, name: str, **more: Any) -> Any:
    return gapless.connect(url, credentials=Password(name, "pw"), client_id=more.pop("client_id", name), **more)


async def test_counts_are_refused_with_section_and_key(auth: Any) -> None:
    limit: Any = [
        {"who": ["slow"], "connections": 1},
        {"who": ["group:tenants"], "publishers": 1, "subscriptions": 1},
    ]
    async with running_node(auth=auth, limit=limit) as node:
        async with connect(node.url, "slow"):
            with pytest.raises(ConnectionClosedError, match=r'connections in \[\[limit\]\] who = \["slow"\]'):
                await connect(node.url, "slow", client_id="second")
        await bounded(connect(node.url, "slow", client_id="third"))

        async with connect(node.url, "shop") as connection, connection.session() as session:
            await session.publisher("t", name="one").send(b"x")
            with pytest.raises(PublishRejectedError, match=r'publishers in \[\[limit\]\] who = \["group:tenants"\]'):
                await session.publisher("t", name="two").send(b"x")
            async with session.subscribe("t", name="one"):
                pass
            with pytest.raises(ConfigurationError, match="principal 'shop' may have 1 subscriptions"):
                await session.subscribe("t", name="two")
            await connection.unsubscribe("one")
            async with session.subscribe("t", name="two"):
                pass
        async with gapless.connect(node.url) as connection, connection.session() as session:
            for name in "abc":
                await session.publisher("t", name=name).send(b"x")


async def publish(session: gapless.Session, name: str, until_at: float) -> int:
    """Publishes until then; returns how many events have receipts."""
    publisher = session.publisher("t", name=name)
    sent = 0
    while time.monotonic() < until_at:
        await publisher.send_batch([gapless.Message(BODY)] * 20)
        sent += 20
    return sent


async def test_whoever_publishes_too_much_waits_and_is_not_disconnected(auth: Any) -> None:
    limit: Any = [{"who": ["slow"], "bytes_per_second_in": 100_000}]
    async with running_node(auth=auth, limit=limit, limits={"heartbeat": 0.2}) as node:
        slow = await connect(node.url, "slow")
        free = await connect(node.url, "shop")
        lost: list[bool] = []
        end = time.monotonic() + 3
        watching = asyncio.create_task(watch(slow, lost))
        few, many = await asyncio.gather(publish(slow.session(), "slow", end), publish(free.session(), "free", end))
        watching.cancel()
        await slow.close()
        await free.close()

    # A second's worth at once, three more, and the batch that is taken last; an event has some bytes beside its body.
    assert 250 <= few <= 440
    assert many > 3 * few
    assert not any(lost)


async def watch(connection: gapless.Connection, lost: list[bool]) -> None:
    while True:
        lost.append(not connection.connected)
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("key", ["bytes_per_second_out", "events_per_second_out"])
async def test_whoever_is_sent_too_much_waits_and_gets_everything(auth: Any, key: str) -> None:
    rate = 100_000 if key.startswith("bytes") else 100
    limit: Any = [{"who": ["slow"], key: rate}]
    async with running_node(auth=auth, limit=limit, limits={"heartbeat": 0.2}) as node:
        slow = await connect(node.url, "slow")
        free = await connect(node.url, "shop")
        late = await slow.session().subscribe("t", name="late")
        quick = await free.session().subscribe("t", name="quick")
        publisher = free.session().publisher("t")
        for _ in range(20):
            await publisher.send_batch([gapless.Message(BODY)] * 20)
        began = time.monotonic()
        for _ in range(400):
            await bounded(anext(quick))
        assert time.monotonic() - began < 2
        got = 0
        while got < 400:
            await bounded(anext(late))
            got += 1
        took = time.monotonic() - began
        assert slow.connected
        await slow.close()
        await free.close()

    assert 2.0 < took < 8.0, "a second's worth and a little at once, and then as the rate allows"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHBs look every 100 ms how much is held back."""
    monkeypatch.setattr(service, "Timing", partial(Timing, repeat_ms=100))


def told(node: Any) -> list[str]:
    """What the operator was told of bytes that are held back, and is so."""
    return [alarm.text for alarm in node.alarms() if alarm.code == "pinned_bytes" and not alarm.over]


async def hold_back(session: Any, events: int) -> None:
    """A subscription that nobody consumes holds back so many events."""
    async with session.subscribe("t", name="job"):
        pass
    publisher = session.publisher("t")
    for _ in range(events):
        await publisher.send(BODY)


@pytest.mark.usefixtures("often")
async def test_whoever_holds_back_too_much_creates_nothing_more_until_it_has_caught_up(auth: Any) -> None:
    limit: Any = [{"who": ["group:tenants"], "pinned_bytes": 20_000, "on_pin": "refuse new"}]
    async with (
        running_node(auth=auth, limit=limit) as node,
        connect(node.url, "slow") as connection,
        connect(node.url, "shop") as other,
        connection.session() as session,
    ):
        await hold_back(session, 30)
        await until(lambda: bool(told(node)), "the operator to be told")
        (text,) = told(node)
        assert "the offline subscriptions of principal 'slow' hold back " in text
        assert "'job' of client 'slow' is furthest behind" in text
        await until(lambda: value_of(list(node.gauges()), PINNED, principal="slow") > 30_000, "all of it to be seen")
        (job,) = await other.subscriptions()
        assert job.pinned_bytes is not None
        assert job.pinned_bytes > 30_000
        with pytest.raises(ConfigurationError, match=r'pinned_bytes in \[\[limit\]\] who = \["group:tenants"\]'):
            await session.subscribe("t", name="new")
        async with other.session() as free, free.subscribe("t", name="new"):
            pass

        async with session.subscribe("t", name="job") as subscription:
            for _ in range(30):
                await bounded(anext(subscription))
            await subscription.acknowledge()
        await until(lambda: not told(node), "that to be over")
        async with session.subscribe("t", name="new"):
            pass


@pytest.mark.usefixtures("often")
async def test_the_host_of_the_log_says_how_much_it_is(auth: Any, tmp_path: Path) -> None:
    """A subscription counts at its home, wherever its client was. While the host is away, its last word holds.

    It holds nothing back while somebody consumes it. When he has left without an acknowledgement, it is as before.
    """
    limit: Any = [{"who": ["slow"], "pinned_bytes": 20_000, "on_pin": "refuse new"}]
    async with network_of(tmp_path, "phb", "shb", "shb2") as network:
        await network.start("phb")
        for name in ("shb", "shb2"):
            await network.start(name, auth=auth, limit=limit)
        for one, other in (("phb", "shb"), ("phb", "shb2"), ("shb", "shb2")):
            await network.until_linked(one, other)
        nodes = {name: network.nodes[name] for name in ("shb", "shb2")}
        for name in nodes:
            await network.until_pubends(name, 1)
        async with connect(nodes["shb"].url, "slow") as connection, connection.session() as session:
            await hold_back(session, 30)
            await until(lambda: any(told(node) for node in nodes.values()), "an operator to be told")
        for node in nodes.values():
            async with connect(node.url, "slow") as connection, connection.session() as session:
                with pytest.raises(ConfigurationError, match="pinned_bytes in "):
                    await session.subscribe("t", name="new")
        for node in nodes.values():
            async with connect(node.url, "slow") as connection, connection.session() as session:
                async with session.subscribe("t", name="job"):
                    pass
        await network.stop("phb")
        await asyncio.sleep(0.5)
        await until(lambda: any(told(node) for node in nodes.values()), "what the host has said last to count")


async def test_both_errors_name_the_other_place() -> None:
    async with running_node(limits={"connections": 1, "publishers": 1}) as node:
        async with gapless.connect(node.url) as connection, connection.session() as session:
            await session.publisher("t", name="one").send(b"x")
            with pytest.raises(PublishRejectedError, match=r"publishers in \[limits\]; \[\[limit\]\] has those of a"):
                await session.publisher("t", name="two").send(b"x")
            with pytest.raises(ConnectionClosedError, match=r"connections in \[limits\]; \[\[limit\]\]"):
                await gapless.connect(node.url)
        await until(lambda: node.serving, "the node")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"connections": 1}, "limit.0.who"),
        ({"who": [], "connections": 1}, "limit.0.who"),
        ({"who": ["group:"], "connections": 1}, "names nobody"),
        ({"who": [""], "connections": 1}, "names nobody"),
        ({"who": ["a"]}, "it limits nothing"),
        ({"who": ["a"], "connections": -1}, "limit.0.connections"),
        ({"who": ["a"], "bytes_per_second_in": 0}, "limit.0.bytes_per_second_in"),
        ({"who": ["a"], "conections": 1}, "limit.0.conections"),
        ({"who": ["a"], "pinned_bytes": -1}, "limit.0.pinned_bytes"),
        ({"who": ["a"], "pinned_bytes": 1, "on_pin": "refuse"}, "limit.0.on_pin"),
        ({"who": ["a"], "on_pin": "alarm"}, "it limits nothing"),
        ({"who": ["a"], "connections": 1, "on_pin": "alarm"}, "pinned_bytes, and there is none"),
    ],
)
def test_a_wrong_section_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make_config({"limit": [section]})
