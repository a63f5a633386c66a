"""Topics with policies of their own, and expiry: what goes, what stays, and who is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import gapless
from integration.nodes_in_process import running_node

KEEP_LITTLE: dict[str, Any] = {
    "phb": {
        "release_seconds": 0.1,
        "pubends": [
            {"name": "telemetry", "topics": ["telemetry.#"], "max_retain_bytes": 20_000},
            {"name": "default"},
        ],
    },
    "shb": {"catchup_bytes": 0},  # else it has in memory what its PHB has given up, and nothing is missing
}
ABSENCES: dict[str, Any] = {
    "phb": {"release_seconds": 0.1, "pubends": [{"name": "p", "min_retain_seconds": 0.0, "min_retain_bytes": 0}]},
    "shb": {"subscription_expiry_seconds": 1.0, "catchup_bytes": 0},
}


async def until_lost(connection: gapless.Connection, name: str, tick: int) -> None:
    """Waits until a pubend has forgotten a tick."""
    for _ in range(150):
        if any(pubend.pubend.startswith(f"{name}@") and pubend.lost >= tick for pubend in await connection.pubends()):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{tick} is still there: {await connection.pubends()}")


async def until_gone(connection: gapless.Connection, name: str) -> None:
    """Waits until a subscription is not listed any more."""
    for _ in range(150):
        if all(info.name != name for info in await connection.subscriptions()):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} is still there")


@pytest.mark.timeout(60)
async def test_topics_of_another_pubend_have_another_policy(tmp_path: Path) -> None:
    """Somebody is away from both. Of the telemetry only the last 20,000 bytes stay for him, of the rest everything."""
    async with running_node(tmp_path / "v", **KEEP_LITTLE) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("telemetry.#", "orders", name="away"):
                pass
            telemetry, orders = session.publisher("telemetry.engine", name="t"), session.publisher("orders", name="o")
            kept = [await orders.send(bytes(1000), properties={"n": n}) for n in range(50)]
            gone = [await telemetry.send(bytes(1000), properties={"n": n}) for n in range(50)]
            await until_lost(connection, "telemetry", gone[25].tick)

            gaps, numbers = [], []
            async with session.subscribe("telemetry.#", "orders", name="away", on_gap="deliver") as away:
                async for message in away:
                    if isinstance(message, gapless.Gap):
                        gaps.append(message)
                    elif isinstance(message, gapless.Event):
                        numbers.append((message.topic, message.properties["n"]))
                    if ("orders", 49) in numbers and ("telemetry.engine", 49) in numbers:
                        break
            rows = {pubend.pubend.partition("@")[0]: pubend for pubend in await connection.pubends()}

    assert {gap.pubend for gap in gaps} == {gone[0].pubend} != {kept[0].pubend}
    assert [n for topic, n in numbers if topic == "orders"] == list(range(50))
    late = [n for topic, n in numbers if topic == "telemetry.engine"]
    assert late == list(range(50 - len(late), 50))
    assert 15 <= len(late) <= 25, "20,000 bytes"
    assert (rows["telemetry"].policy, rows["default"].policy) == ("below 20,000 bytes of later events", "")


@pytest.mark.timeout(60)
async def test_what_was_lost_is_one_gap(tmp_path: Path) -> None:
    """Whoever was away, or reads by ranges, is told once, however many batches were released, matching or not."""
    async with running_node(tmp_path / "v", **KEEP_LITTLE) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("telemetry.#", name="away", selector="n > 20 AND odd = FALSE") as away:
                token = away.token
            publisher = session.publisher("telemetry.engine", name="t")
            events = [await publisher.send(bytes(1000), properties={"n": n, "odd": bool(n % 2)}) for n in range(400)]
            await until_lost(connection, "telemetry", events[370].tick)
            await publisher.send(b"", properties={"n": 400, "odd": False})

            told: list[gapless.Event | gapless.Gap] = []
            async with session.subscribe(
                "telemetry.#", name="away", selector="n > 20 AND odd = FALSE", start=token, on_gap="deliver"
            ) as away:
                async for message in away:
                    told.append(message)
                    if isinstance(message, gapless.Event) and message.properties["n"] == 400:
                        break
            heads = await connection.heads("away", after=token)
            pubend = events[0].pubend
            span = token.ticks[pubend], heads.ticks[pubend]
            async with connection.read_range("away", pubend, *span, on_gap="deliver") as reader:
                read = [message async for message in reader]

    wanted = list(range(22, 401, 2))
    for messages in (told, read):  # more may have been lost before the second one
        first = next(message for message in messages if isinstance(message, gapless.Event))
        gaps = [message for message in messages if isinstance(message, gapless.Gap)]
        assert messages[0] == gaps[0], "it begins with what is lost"
        assert len(gaps) == 1
        assert gaps[0].start <= token.ticks[pubend]
        assert events[370].tick <= gaps[0].end < first.tick
        numbers = [message.properties["n"] for message in messages if isinstance(message, gapless.Event)]
        assert numbers == wanted[-len(numbers) :]


@pytest.mark.timeout(60)
async def test_a_publisher_stays_on_its_pubend(tmp_path: Path) -> None:
    """What it sends to other topics goes there as well, or nowhere: never to a pubend with another policy."""
    async with running_node(tmp_path / "v", **KEEP_LITTLE) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            there = await session.publisher("orders", name="loader").send(b"")
            again = await session.publisher("telemetry.a", name="loader").send(b"")
            assert again.pubend == there.pubend

            with pytest.raises(gapless.PublishRejectedError, match=r"topic 'orders' is not one of this pubend"):
                await session.publisher(name="t2", topic="telemetry.a").send_batch(
                    [gapless.Message(b"", topic="orders")]
                )


@pytest.mark.timeout(60)
async def test_who_comes_back_after_his_subscription_expired_is_told_what_is_gone(tmp_path: Path) -> None:
    """He keeps no token, and subscribes as for the first time: from the latest event on, one would think."""
    async with running_node(tmp_path / "v", **ABSENCES) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            publisher = session.publisher("t")
            async with session.subscribe("t", name="away") as away:
                first = await publisher.send(b"", properties={"n": 0})
                async for _ in away:
                    break
                await away.acknowledge(away.token)
            missed = [await publisher.send(b"", properties={"n": n}) for n in (1, 2)]
            async with session.subscribe("t", name="here") as here:
                await until_gone(connection, "away")
                await here.acknowledge(here.token)
                missed.append(await publisher.send(b"", properties={"n": 3}))
                async for _ in here:
                    await here.acknowledge(here.token)
                    break
                await until_lost(connection, "p", missed[1].tick)

                with pytest.raises(gapless.SubscriptionNotFoundError):
                    await connection.unsubscribe("never-there")
                async with session.subscribe("t", name="away", on_gap="deliver") as away:
                    await publisher.send(b"", properties={"n": 4})
                    told = []
                    async for message in away:
                        told.append(message)
                        if isinstance(message, gapless.Event) and message.properties["n"] == 4:
                            break

    assert isinstance(told[0], gapless.Gap)
    assert first.tick <= told[0].start < missed[0].tick
    assert told[0].end >= missed[1].tick
    assert all(isinstance(message, gapless.Gap) or message.properties["n"] in {3, 4} for message in told)
