"""What a running broker tells of itself: figures that move, and alarms (over real TCP)."""

from __future__ import annotations

import pytest

import gapless
from gapless.core.alarms import AlarmCode
from gapless.core.wire.messages import ListPubends
from integration.nodes_in_process import running_node
from integration.raw_client import RawClient

pytestmark = pytest.mark.timeout(60)


async def test_figures_move_with_what_happens() -> None:
    async with running_node() as node, gapless.connect(node.url) as connection, connection.session() as session:
        before = await connection.status()
        async with session.subscribe("t", name="s"):
            [receipt] = [await session.publisher("t").send(b"x")]
            after = await connection.status()

    assert [status.value("gapless_shb_subscriptions") for status in (before, after)] == [0, 1]
    assert after.value("gapless_node_serving") == 1
    assert after.value("gapless_pubend_newest_ticks", pubend=receipt.pubend) == receipt.tick


async def test_the_figures_of_subscriptions_bear_their_names() -> None:
    async with running_node() as node, gapless.connect(node.url, client_id="shop") as connection:
        session = connection.session()
        async with session.subscribe("t", name="stock"), session.subscribe("t", name="mail"):
            await session.publisher("t").send(b"x")
            gauges = (await connection.status()).gauges

    found = [dict(gauge.labels) for gauge in gauges if gauge.name == "gapless_subscription_behind_ticks"]
    assert sorted((labels["client_id"], labels["subscription"]) for labels in found) == [
        ("shop", "mail"),
        ("shop", "stock"),
    ]
    assert len({labels["number"] for labels in found}) == 2


async def test_a_client_that_breaks_the_protocol_is_an_alarm() -> None:
    async with running_node() as node, gapless.connect(node.url) as connection:
        assert (await connection.status()).alarms == ()
        async with RawClient(node.address) as attacker:
            await attacker.shake_hands()
            await attacker.say(ListPubends(-1))
            await attacker.hear_all()

        status = await connection.status()

    [alarm] = status.alarms
    code = AlarmCode.CLIENT_REFUSED
    assert (alarm.code, alarm.about, alarm.count, alarm.over) == (code.label, "127.0.0.1", 1, False)
    assert (alarm.meaning, alarm.remedy) == (code.meaning, code.remedy)
    assert "client 'attacker'" in alarm.text
    assert status.value("gapless_alarms_total", code=code.label) == 1


async def test_an_embedded_broker_tells_its_status_too() -> None:
    async with gapless.connect("embedded:") as connection:
        assert (await connection.status()).value("gapless_node_sessions") == 1
