"""Whose events come marked: what an application died with, under any filter; and who is not taken over (J1, J5, X1)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import gapless
from gapless_testing.fault_proxy import FaultProxy
from integration.broker_process import BrokerProcess, bounded

DIES = """
import asyncio, os, sys
import gapless

async def main(url, mode):
    connection = await gapless.connect(url, client_id=mode)
    session = connection.session(gapless.AckMode[mode])
    subscription = await session.subscribe("t", name="n", selector="odd = TRUE")
    await anext(subscription)
    if mode == "CLIENT":
        await session.acknowledge()
    await anext(subscription)
    os._exit(0)

asyncio.run(main(*sys.argv[1:]))
"""
"""It dies with the event 3 in hand; AUTO has committed the event 1 before, and CLIENT has acknowledged it."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerProcess]:
    async with BrokerProcess(tmp_path / "volume") as broker:
        yield broker


async def publish(url: str, *numbers: int) -> None:
    async with gapless.connect(url) as connection, connection.session() as session:
        messages = [gapless.Message(b"%d" % n, {"odd": n % 2 == 1}) for n in numbers]
        await session.publisher("t").send_batch(messages)


@pytest.mark.parametrize(
    ("mode", "most"), [(gapless.AckMode.AUTO, {3}), (gapless.AckMode.CLIENT, {3, 5, 7})], ids=["AUTO", "CLIENT"]
)
@pytest.mark.parametrize("selector", ["", "odd = TRUE AND TRUE", "odd = FALSE"], ids=["wider", "same", "others"])
async def test_what_was_in_hand_comes_marked_under_another_selector(
    broker: BrokerProcess, mode: gapless.AckMode, most: set[int], selector: str
) -> None:
    """CLIENT announces events before it hands them out, so some that follow may be marked, too."""
    async with gapless.connect(broker.url, client_id=mode.name) as connection, connection.session(mode) as session:
        async with session.subscribe("t", name="n", selector="odd = TRUE"):
            pass
    await publish(broker.url, *range(1, 9))
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", DIES, broker.url, mode.name)
    assert await bounded(child.wait(), 60) == 0

    async with gapless.connect(broker.url, client_id=mode.name) as connection, connection.session(mode) as session:
        wanted = session.subscribe("t", name="n", selector=selector, on_change="keep_position", in_use="wait")
        async with await bounded(wanted, 30) as subscription:
            last = 8 if "odd = TRUE" not in selector else 7
            events = [await bounded(anext(subscription), 30)]
            while int(events[-1].body) < last:
                events.append(await bounded(anext(subscription), 30))

    marked = {int(event.body) for event in events if event.redelivered}
    came = {int(event.body) for event in events}
    assert {3} & came <= marked <= most & came


async def test_a_request_that_comes_late_over_an_earlier_connection_takes_nothing(broker: BrokerProcess) -> None:
    """It lay on its way while the program asked over another connection, and got the subscription."""
    async with FaultProxy(broker.url.removeprefix("gapless://")) as proxy:
        early = await gapless.connect(f"gapless://{proxy.address}", client_id="c")
        proxy.stall()
        stale = asyncio.ensure_future(asyncio.wait_for(early.session().subscribe("t", name="n", in_use="takeover"), 60))
        await asyncio.sleep(0)
        async with gapless.connect(broker.url, client_id="c") as late, late.session() as session:
            async with session.subscribe("t", name="n", in_use="takeover") as subscription:
                proxy.go_on()
                with pytest.raises(gapless.SubscriptionTakenOverError):
                    await stale

                await publish(broker.url, 1)
                assert (await bounded(anext(subscription), 30)).body == b"1"
        await early.close()
