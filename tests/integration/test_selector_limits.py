"""How large a selector a broker takes is its operator's choice, and nobody else notices (INV18)."""

from __future__ import annotations

from pathlib import Path

import pytest

import gapless
from integration.broker_process import bounded
from integration.bystander import bystanding
from integration.networks_in_process import network_of
from integration.nodes_in_process import running_node

LARGE = "device IN (" + ", ".join(f"'{number:05}'" for number in range(6000)) + ")"
"""Three times as long as a broker takes by default, and six times as many words and signs."""
SMALL = {"selector_characters": 20, "selector_tokens": 5}
MORE = {"selector_characters": 65_536, "selector_tokens": 20_000}

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("device = '123456789012345'", r"this broker takes 20 characters \(selector_characters in \[limits\]"),
        ("a + b + c = 1", r"this broker takes 5 words, literals and signs \(selector_tokens in \[limits\]"),
    ],
)
async def test_what_is_too_large_for_the_broker_is_refused_and_nobody_else_notices(
    tmp_path: Path, selector: str, message: str
) -> None:
    async with bystanding(tmp_path / "volume", limits=SMALL) as bystander:
        subscriptions, _ = await bystander.listing()
        async with (
            gapless.connect(f"gapless://{bystander.address}", client_id="wordy") as connection,
            connection.session() as session,
        ):
            with pytest.raises(gapless.InvalidSelectorError, match=message):
                await session.subscribe("#", name="wordy", selector=selector)
            with pytest.raises(gapless.InvalidSelectorError, match=message):
                await connection.attach("wordy", "#", selector=selector)
            assert connection.connected
            async with session.subscribe("#", selector="a + b = 1"):
                pass

        await bystander.works()
        assert bystander.is_undisturbed()
        assert (await bystander.listing())[0] == subscriptions


async def test_what_an_shb_takes_its_network_takes_and_so_does_the_next_start(tmp_path: Path) -> None:
    """The client refuses nothing that a broker may take, nor does the PHB, which knows only the default."""
    async with network_of(tmp_path, "phb", "shb") as network:
        await network.start("phb")
        shb = await network.start("shb", limits=MORE)
        await network.until_linked("phb", "shb")
        async with gapless.connect(shb.url) as connection, connection.session() as session:
            subscription = await session.subscribe("devices", name="many", selector=LARGE)
            publisher = session.publisher("devices")
            await publisher.send(b"0", properties={"device": "x"})
            await publisher.send(b"1", properties={"device": "05999"})

            assert (await bounded(anext(subscription))).body == b"1"
    for limits in (MORE, SMALL):
        async with (
            running_node(tmp_path / "volume", limits=limits) as node,
            gapless.connect(node.url) as connection,
            connection.session() as session,
            session.subscribe("devices", name="many", selector=LARGE) as subscription,
        ):
            await session.publisher("devices").send(b"1", properties={"device": "05999"})
            assert (await bounded(anext(subscription))).body == b"1"
