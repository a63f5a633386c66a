"""The calls of a connection that concern ranges: what they take, what they refuse, and the tokens they give."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import gapless
from gapless import CheckpointToken


@pytest.fixture
async def connection() -> AsyncIterator[gapless.Connection]:
    """A client of a broker in memory."""
    async with gapless.connect("embedded:", client_id="c") as connection:
        yield connection


async def test_tokens_name_the_subscription(connection: gapless.Connection) -> None:
    position = await connection.attach("s", "t")
    await connection.publish("p", 0, 0, [gapless.Message(b"a")], topic="t")
    head = await connection.heads("s", after=position, wait=10)
    bound = await connection.bound("s", position, max_bytes=1)

    assert {token.sid for token in (position, head, bound)} == {position.sid}
    assert CheckpointToken.parse(str(head)) == head
    assert position < bound <= head
    assert (await connection.heads()).sid == 0


async def test_a_token_stands_for_its_subscription(connection: gapless.Connection) -> None:
    position = await connection.attach("s", "t")
    receipt = await connection.publish("p", 0, 0, [gapless.Message(b"a")], topic="t")
    head = await connection.heads(position, after=position, wait=10)
    found = [event.body async for event in connection.read_range(head, receipt.pubend, 0, head.ticks[receipt.pubend])]
    await connection.ack(head, head)
    async with connection.lease(head, "me"):
        pass

    assert found == [b"a"]
    assert (await connection.attach("s", "t")).ticks == head.ticks
    await connection.unsubscribe("s")
    await connection.attach("s", "t")
    with pytest.raises(gapless.SubscriptionNotFoundError):
        await connection.ack(head, head)


async def test_waiting_ends_with_the_time(connection: gapless.Connection) -> None:
    position = await connection.attach("s", "t")

    assert await connection.heads("s", after=position, wait=0.05) == position


async def test_an_ack_of_another_subscriptions_token_is_refused(connection: gapless.Connection) -> None:
    await connection.attach("s", "t")
    other = await connection.attach("other", "t")
    with pytest.raises(gapless.TokenMismatchError):
        await connection.ack(await connection.attach("s", "t"), other)
    forged = CheckpointToken(connection.network, dict(other.ticks), other.sid, other.generation, b"\0" * 8)
    with pytest.raises(gapless.InvalidTokenError):
        await connection.ack("other", forged)


async def test_what_is_not_there_is_said_not_to_be(connection: gapless.Connection) -> None:
    position = await connection.attach("s", "t")
    with pytest.raises(gapless.SubscriptionNotFoundError, match="attach it first"):
        await connection.heads("other")
    with pytest.raises(gapless.TokenMismatchError):
        await connection.read_range("s", "nothing@1", 0, 1).__anext__()
    async with gapless.connect("embedded:", client_id="d") as elsewhere:
        with pytest.raises(gapless.TokenMismatchError):
            await elsewhere.heads("s", after=position)


async def test_what_is_malformed_is_refused_at_once(connection: gapless.Connection) -> None:
    position: Any = await connection.attach("s", "t")
    nobody = CheckpointToken(connection.network, {})
    with pytest.raises(gapless.ConfigurationError):
        await connection.heads("s", wait=-1)
    with pytest.raises(gapless.ConfigurationError):
        await connection.bound("s", position, max_events=0)
    with pytest.raises(gapless.InvalidTokenError):
        connection.read_range("s", "p", 5, 4)
    with pytest.raises(gapless.ConfigurationError):
        connection.read_range("s", "p", 4, 5, on_gap="ignore")  # type: ignore[call-overload]
    with pytest.raises(gapless.TokenMismatchError, match="say which"):
        await connection.heads(nobody)
    with pytest.raises(gapless.InvalidTokenError):
        await connection.ack("s", str(position))  # type: ignore[arg-type]
    with pytest.raises(gapless.ConfigurationError):
        await connection.attach("", "t")
    with pytest.raises(gapless.InvalidTopicError):
        await connection.attach("s")
    with pytest.raises(gapless.ConfigurationError):
        await connection.lease("s", "")
    with pytest.raises(gapless.ConfigurationError):
        await connection.lease("s", "me", in_use="perhaps")  # type: ignore[arg-type]
