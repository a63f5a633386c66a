"""What a subscription can be asked for: wrong things are refused before the broker is asked."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

import gapless
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from unit.gapless.client.conftest import ADDRESS
from unit.gapless.client.fake_broker import BASE, PUBEND
from unit.gapless.client.fake_network import FakeNetwork


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ("newest", gapless.InvalidTokenError),
        ("gl1.garbage", gapless.InvalidTokenError),
        (datetime(2030, 1, 1), gapless.ConfigurationError),  # noqa: DTZ001
        (5, gapless.ConfigurationError),
        (gapless.CheckpointToken("other", {}), gapless.TokenMismatchError),
    ],
    ids=["word", "text", "naive", "int", "network"],
)
async def test_a_wrong_start_is_refused_at_once(network: FakeNetwork, start: Any, error: type[Exception]) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(error):
            _ = session.subscribe("t", name="s", start=start)

    assert network.broker.messages(m.Subscribe) == []


async def test_starts_as_they_go_to_the_broker(network: FakeNetwork) -> None:
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        for start in (None, "latest", "earliest", at, gapless.CheckpointToken("net", {PUBEND: BASE + STEP})):
            await session.subscribe("t", start=start)

    asked = network.broker.messages(m.Subscribe)
    assert [message.start.value for message in asked] == ["latest", "latest", "earliest", "time", "token"]
    assert asked[3].start_wall == at.timestamp() * 1000
    assert asked[4].positions == [m.Position(PUBEND, BASE + STEP)]


async def test_a_start_that_is_yet_to_come_is_warned_of(network: FakeNetwork) -> None:
    """It is what was asked for, and most often a mistake in the time zone."""
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.warns(UserWarning, match="is yet to come: nothing is delivered before"):
            await session.subscribe("t", start=datetime(2090, 1, 1, tzinfo=timezone.utc))

    assert network.broker.messages(m.Subscribe)[0].start.value == "time"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": ""}, gapless.ConfigurationError),
        ({"name": "x" * 300}, gapless.ConfigurationError),
        ({"on_gap": "ignore"}, gapless.ConfigurationError),
        ({"in_use": "maybe"}, gapless.ConfigurationError),
        ({"selector": "a = = 1"}, gapless.InvalidSelectorError),
    ],
    ids=str,
)
async def test_wrong_arguments_are_refused_at_once(
    network: FakeNetwork, arguments: Any, error: type[Exception]
) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(error):
            _ = session.subscribe("t", **arguments)
        for topics in ((), ("a..b",), ("#.a",), (5,)):
            with pytest.raises(gapless.InvalidTopicError):
                _ = session.subscribe(*topics)

    assert network.broker.messages(m.Subscribe) == []


async def test_the_place_of_a_wrong_selector_is_shown(network: FakeNetwork) -> None:
    async with gapless.connect(ADDRESS) as connection, connection.session() as session:
        with pytest.raises(gapless.InvalidSelectorError) as caught:
            _ = session.subscribe("t", selector="a = = 1")

    assert caught.value.position == 4
