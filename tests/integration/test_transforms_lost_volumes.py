"""A transform whose input is on one PHB and whose output on another, and one of the two loses its volume."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
import gapless.sync
from gapless.core.wire.messages import GapReason
from integration.broker_process import bounded, until
from integration.networks_in_process import TestNetwork, network_of

LOST = GapReason.VOLUME_LOST.value
TOPICS = {"phb": "in.#", "phb2": "out.#"}


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[TestNetwork]:
    """Two PHBs whose volumes are in memory (a restart makes one anew), one for inputs, one for outputs; and an SHB."""
    async with network_of(tmp_path, "phb", "ib", "shb", "phb2") as network:
        network.network["router"] = "knowledge"
        for name in network.proxies:
            await start(network, name)
        await network.until_linked("phb", "ib")
        await network.until_linked("ib", "shb")
        await network.until_linked("shb", "phb2")
        await network.until_pubends("shb", len(TOPICS))
        yield network


async def start(network: TestNetwork, name: str) -> None:
    sections: dict[str, Any] = {}
    if name in TOPICS:
        sections = {"phb": {"pubends": [{"name": "default", "topics": [TOPICS[name]]}]}}
    await network.start(name, **sections)


async def lose_volume(network: TestNetwork, name: str) -> None:
    await network.stop(name)
    await start(network, name)
    await until(lambda: "pubend_made_anew" in network.alarms("shb"), "the SHB knows it")


async def publish(network: TestNetwork, *bodies: bytes) -> None:
    async with gapless.connect(network.nodes["shb"].url) as connection, connection.session() as session:
        publisher = session.publisher("in.x")
        for body in bodies:
            await bounded(publisher.send(body))


async def work_on(work: Any, *, until: bytes | None = None, gaps: int = 0) -> list[str]:
    """Makes an output of each input, until it has had one and so many gaps. Returns the reasons of the gaps."""
    reasons: list[str] = []
    done = until is None
    while not done or len(reasons) < gaps:
        try:
            batch = await bounded(anext(work))
        except gapless.GapError as error:
            reasons.append(error.gap.reason)
            continue
        if isinstance(batch, gapless.Gap):
            reasons.append(batch.reason)
            continue
        done = done or until in [event.body for event in batch]
        await bounded(batch.publish([gapless.Message(b"of " + event.body) for event in batch]))
    return reasons


async def outputs(network: TestNetwork, last: bytes) -> list[bytes]:
    """What is in the log of the outputs that there is now."""
    async with gapless.connect(network.nodes["shb"].url) as connection, connection.session() as session:
        async with session.subscribe("out.x", start="earliest", on_gap="deliver") as subscription:
            bodies: list[bytes] = []
            while not bodies or bodies[-1] != last:
                item = await bounded(anext(subscription))
                if isinstance(item, gapless.Event):
                    bodies.append(item.body)
            return bodies


@pytest.mark.parametrize("on_gap", ["deliver", "raise"])
async def test_a_transform_is_told_that_its_input_was_lost_and_goes_on(network: TestNetwork, on_gap: Any) -> None:
    """Each output once: of what it had, and of what the new log has. It is told once, also where it begins again."""
    async with gapless.connect(network.nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        async with session.transform("in.x", to="out.x", name="work", start="earliest", on_gap=on_gap) as work:
            await publish(network, b"1", b"2")
            await work_on(work, until=b"2")
            await lose_volume(network, "phb")
            await publish(network, b"3")
            assert await work_on(work, until=b"3", gaps=1) == [LOST]
        await publish(network, b"4")
        async with session.transform("in.x", to="out.x", name="work", on_gap=on_gap) as work:
            assert await work_on(work, until=b"4") == []
    assert await outputs(network, b"of 4") == [b"of 1", b"of 2", b"of 3", b"of 4"]


async def test_a_transform_that_was_away_is_told_when_it_begins_again(network: TestNetwork) -> None:
    async with gapless.connect(network.nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        async with session.transform("in.x", to="out.x", name="work", start="earliest") as work:
            await publish(network, b"1")
            await work_on(work, until=b"1")
        await publish(network, b"lost")
        await lose_volume(network, "phb")
        await publish(network, b"2")
        async with session.transform("in.x", to="out.x", name="work", on_gap="deliver") as work:
            assert await work_on(work, until=b"2", gaps=1) == [LOST]
    found = await outputs(network, b"of 2")
    assert [body for body in found if body != b"of lost"] == [b"of 1", b"of 2"]  # a broker may still have it in memory


async def test_a_transform_hears_that_its_outputs_were_lost(network: TestNetwork) -> None:
    """Begun again, it goes on where its input was acknowledged: its stored position was lost with the outputs.

    What of them had a receipt is told lost to whoever reads them, and is not made again; what had none is.
    """
    async with gapless.connect(network.nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        reader = await session.subscribe("out.x", name="reader", start="earliest", on_gap="deliver")
        work = await session.transform("in.x", to="out.x", name="work", start="earliest")
        await publish(network, b"1", b"2")
        await work_on(work, until=b"2")
        first = [await bounded(anext(reader)) for _ in "12"]
        assert [item.body for item in first if isinstance(item, gapless.Event)] == [b"of 1", b"of 2"]
        await lose_volume(network, "phb2")
        with pytest.raises(gapless.PublishError, match="is gone"):
            while True:
                await publish(network, b"3")
                await work_on(work, until=b"3")
        with pytest.raises(gapless.PublishError, match="is gone"):
            await bounded(work.close())
        await publish(network, b"4")
        async with session.transform("in.x", to="out.x", name="work") as work:
            await work_on(work, until=b"4")
        read = [await bounded(anext(reader))]
        while not (isinstance(read[-1], gapless.Event) and read[-1].body == b"of 4"):
            read.append(await bounded(anext(reader)))
    made = await outputs(network, b"of 4")
    assert made == sorted(made)
    assert {b"of 3", b"of 4"} <= {*made}
    assert made.count(b"of 4") == 1
    assert [item.reason for item in read if isinstance(item, gapless.Gap)] == [LOST]
    assert [item.body for item in read if isinstance(item, gapless.Event)] == made


async def test_a_transform_that_was_away_goes_on_where_its_input_was_acknowledged(
    network: TestNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    async with gapless.connect(network.nodes["shb"].url, client_id="c") as connection, connection.session() as session:
        async with session.transform("in.x", to="out.x", name="work", start="earliest") as work:
            await publish(network, b"1", b"2")
            await work_on(work, until=b"2")
        assert "stored position" not in caplog.text
        await lose_volume(network, "phb2")
        await publish(network, b"3")
        async with session.transform("in.x", to="out.x", name="work", start="earliest") as work:
            await work_on(work, until=b"3")
    assert await outputs(network, b"of 3") == [b"of 3"]
    assert "transform 'work' has no stored position" in caplog.text


@pytest.mark.parametrize("lost", ["phb", "phb2"])
async def test_a_blocking_transform_is_told_as_well(network: TestNetwork, lost: str) -> None:
    begun = begin_blocking(network.nodes["shb"].url)
    work = await asyncio.to_thread(next, begun)
    await publish(network, b"1")
    await bounded(asyncio.to_thread(work_on_blocking, work, b"1"))
    await lose_volume(network, lost)
    await publish(network, b"2")
    told: list[str] = []
    while not told or (lost == "phb2" and "is gone" not in told[-1]):
        try:  # every subscription stands on every pubend: so the loss of the outputs is a gap of the input, too
            await bounded(asyncio.to_thread(work_on_blocking, work, b"2"))
            await publish(network, b"2")
        except (gapless.GapError, gapless.PublishError) as error:
            told.append(str(error))
    assert LOST in told[0] or lost == "phb2"
    await asyncio.to_thread(next, begun, None)


def begin_blocking(url: str) -> Iterator[Any]:
    """Yields a transform; asked once more, it leaves, and what the transform was told is told again or not."""
    with contextlib.suppress(gapless.GaplessError), gapless.sync.connect(url, client_id="c") as connection:
        yield connection.session().transform("in.x", to="out.x", name="work", start="earliest", timeout=30)


def work_on_blocking(work: Any, last: bytes) -> None:
    for batch in work:
        batch.publish([gapless.Message(b"of " + event.body) for event in batch])
        if last in [event.body for event in batch]:
            return
