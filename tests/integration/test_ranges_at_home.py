"""In a network a subscription is read by ranges at its home, and nothing is created beside it (protocol: ranges)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import gapless
from integration.broker_process import bounded
from integration.test_reconnect_anywhere import LONG, Processes, home_and_other

CLIENT = "desk-9"


async def published(network: Processes, first: int, count: int) -> None:
    async with gapless.connect(network.url("phb"), client_id="loader") as writer, writer.session() as session:
        publisher = session.publisher("t", name="loader")
        messages = [gapless.Message(b"%d" % number) for number in range(first, first + count)]
        await bounded(publisher.send_batch(messages), LONG)


async def everything_behind(
    reader: gapless.Connection, token: gapless.CheckpointToken, count: int
) -> tuple[list[bytes], gapless.CheckpointToken]:
    """What a job reads that runs now and then: at least so many events."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        head = await bounded(reader.heads(token, after=token, wait=1), LONG)
        for pubend, tick in head.ticks.items():
            if tick > token.ticks.get(pubend, 0):
                with_range = reader.read_range(token, pubend, token.ticks.get(pubend, 0), tick)
                bodies += [event.body async for event in with_range]
        token = token.advance(head.ticks)
    await bounded(reader.ack(token, token), LONG)
    return bodies, token


@pytest.mark.timeout(400)
async def test_attaching_away_from_home_creates_nothing_and_a_client_with_the_homes_address_goes_there(
    tmp_path: Path,
) -> None:
    home, other = home_and_other(CLIENT)
    async with Processes(tmp_path) as network:
        async with (
            gapless.connect(network.url(home), client_id=CLIENT) as reader,
            reader.session() as session,
            session.subscribe("t", name="job") as subscription,
        ):
            owed_from = subscription.token
        await published(network, 0, 10)

        async with gapless.connect(network.url(other), client_id=CLIENT) as away:
            for name in ("job", "another"):
                with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
                    await bounded(away.attach(name, "t"), LONG)
                with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
                    await bounded(away.heads(name), LONG)
            pubend = (await bounded(away.pubends(), LONG))[0].pubend
            with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
                await bounded(anext(away.read_range(owed_from, pubend, 0, 1)), LONG)
            with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
                await bounded(away.lease("job", "me").__aenter__(), LONG)
            rows = [(row.name, row.node) for row in await bounded(away.subscriptions(), LONG)]
        assert rows == [("job", home)]

        async with gapless.connect(network.url(other, home), client_id=CLIENT) as reader:
            token = await bounded(reader.attach("job", "t"), LONG)
            bodies, token = await everything_behind(reader, token, 10)
            assert bodies == [b"%d" % number for number in range(10)]
            await network.nodes[home].kill()
            await published(network, 10, 5)
            with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
                await everything_behind(reader, token, 5)
            await network.nodes[home].start()
            bodies, _ = await everything_behind(reader, token, 5)
            assert bodies == [b"%d" % number for number in range(10, 15)]

        def blocking() -> gapless.CheckpointToken:
            with gapless.sync.connect(network.url(other, home), client_id=CLIENT) as reader:
                return reader.attach("job", "t", timeout=LONG)

        def blocking_away() -> None:
            with gapless.sync.connect(network.url(other), client_id=CLIENT) as reader:
                reader.attach("job", "t", timeout=LONG)

        assert (await asyncio.to_thread(blocking)).sid == token.sid
        with pytest.raises(gapless.ConfigurationError, match=f"home of the subscription is {home}:"):
            await asyncio.to_thread(blocking_away)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("where", ["home", pytest.param("other", marks=pytest.mark.long)])
async def test_after_a_disk_was_replaced_a_stored_token_is_let_in_as_often_as_the_application_crashes(
    tmp_path: Path, where: str
) -> None:
    home, other = home_and_other(CLIENT)
    node = home if where == "home" else other
    async with Processes(tmp_path) as network:
        async with (
            gapless.connect(network.url(home), client_id=CLIENT) as reader,
            reader.session() as session,
            session.subscribe("t", name="job") as subscription,
        ):
            await published(network, 0, 1)
            await bounded(anext(subscription), LONG)
            stored = subscription.token
            await subscription.acknowledge(stored)
        await network.nodes[home].kill()
        network.nodes[home].lose_volume()
        await network.nodes[home].start()
        expected = []
        for attempt in range(2):
            async with gapless.connect(network.url(node), client_id=CLIENT) as reader, reader.session() as session:
                subscription = await bounded(session.subscribe("t", name="job", start=stored), LONG)
                await asyncio.sleep(7)  # its SHB passes silence, and its home hears of that
                await published(network, attempt, 1)
                expected.append(b"%d" % attempt)
                assert [(await bounded(anext(subscription), LONG)).body for _ in expected] == expected
                session.abandon()
