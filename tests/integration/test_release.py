"""What is forgotten, when, and who is told (protocol: release; I5, I8)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import gapless
from integration.nodes_in_process import running_node

EARLY: dict[str, Any] = {
    "phb": {"pubends": [{"name": "default", "max_retain_seconds": 2.0}]},
    "shb": {"catchup_bytes": 0},  # else it has in memory what its PHB has given up, and nothing is missing
}
AT_ONCE = {"phb": {"pubends": [{"name": "default", "min_retain_seconds": 0.0, "min_retain_bytes": 0}]}}


async def publish(session: gapless.Session, count: int, first: int = 0) -> list[gapless.Receipt]:
    """Publishes numbered events."""
    publisher = session.publisher("t")
    return [await publisher.send(b"", properties={"n": n}) for n in range(first, first + count)]


async def lost(connection: gapless.Connection) -> int:
    """Up to where the pubend has forgotten."""
    [pubend] = await connection.pubends()
    return pubend.lost


async def until_lost(connection: gapless.Connection, tick: int, patience: float = 15.0) -> None:
    """Waits until the pubend has forgotten a tick."""
    for _ in range(int(patience * 10)):
        if await lost(connection) >= tick:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{tick} is still there: {await connection.pubends()}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("on_gap", ["raise", "deliver"])
async def test_early_release_is_one_gap_for_who_was_away_and_nothing_for_others(tmp_path: Path, on_gap: Any) -> None:
    """With `max_retain` 2 s: the gap covers what was lost, and the events after it are all there."""
    async with running_node(tmp_path / "v", **EARLY) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session, session.subscribe("t", name="here") as here:
            async with session.subscribe("t", name="away") as away:
                token = away.token
            receipts = await publish(session, 5)
            seen = []
            async for event in here:
                seen.append(event.properties["n"])
                if len(seen) == 5:
                    break
            await here.acknowledge(here.token)
            await until_lost(connection, receipts[-1].tick)
            fresh = await publish(session, 3, first=5)

            async with session.subscribe("t", name="away", start=token, on_gap=on_gap) as away:
                gap, events = await gap_then_events(away, 3)
            async for event in here:
                seen.append(event.properties["n"])
                if len(seen) == 8:
                    break

    assert seen == list(range(8)), "who was there lost nothing"
    assert gap.start == token.ticks[gap.pubend]
    assert receipts[-1].tick <= gap.end < fresh[0].tick
    assert gap.reason
    assert [event.properties["n"] for event in events] == [5, 6, 7]


async def gap_then_events(subscription: Any, count: int) -> tuple[gapless.Gap, list[gapless.Event]]:
    """The one gap, however it is told, and the events behind it."""
    gaps: list[gapless.Gap] = []
    events: list[gapless.Event] = []
    while len(events) < count:
        try:
            async for message in subscription:
                if isinstance(message, gapless.Gap):
                    gaps.append(message)
                else:
                    events.append(message)
                if len(events) == count:
                    break
        except gapless.GapError as error:
            gaps.append(error.gap)
            assert subscription.token.ticks[error.gap.pubend] >= error.gap.end
    [gap] = gaps
    return gap, events


@pytest.mark.timeout(60)
async def test_without_a_policy_nobody_ever_meets_a_gap(tmp_path: Path) -> None:
    """What one absent subscriber still needs stays, however long, although everybody else released it."""
    async with running_node(tmp_path / "v", **AT_ONCE) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("t", name="away"):
                pass
            async with session.subscribe("t", name="here") as here:
                receipts = await publish(session, 20)
                got = 0
                async for _ in here:
                    got += 1
                    if got == 20:
                        break
                await here.acknowledge(here.token)
                await asyncio.sleep(3)
                assert await lost(connection) < receipts[0].tick
            async with session.subscribe("t", name="away") as away:
                numbers = []
                async for event in away:
                    numbers.append(event.properties["n"])
                    if len(numbers) == 20:
                        break
                assert numbers == list(range(20))
                await away.acknowledge(away.token)
                await until_lost(connection, receipts[-1].tick)


@pytest.mark.timeout(60)
async def test_who_matches_nothing_pins_nothing_and_meets_no_gap(tmp_path: Path) -> None:
    """T47: an idle subscription lets the log go, and the token it stored long ago is as good as ever."""
    async with running_node(tmp_path / "v", **AT_ONCE) as node, gapless.connect(node.url) as connection:
        async with connection.session() as session:
            async with session.subscribe("t", name="idle", selector="n = 1000") as idle:
                await publish(session, 1)
                await asyncio.sleep(0.5)
                token = idle.token
            receipts = await publish(session, 20, first=1)
            await until_lost(connection, receipts[-1].tick)
            async with session.subscribe("t", name="idle", selector="n = 1000", start=token) as idle:
                await publish(session, 1, first=1000)
                async for event in idle:
                    assert event.properties["n"] == 1000
                    break
