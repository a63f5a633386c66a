"""What is this plugin's own: its options, and messages that no link of it would send."""

from __future__ import annotations

import pytest
from gapless_websocket_transport.link import FRAGMENT_BYTES
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gapless import plugins
from gapless.errors import ConfigurationError
from gapless.spi import Link


class Keeper:
    """A handler that keeps what it is told."""

    def __init__(self, link: Link) -> None:
        """Of one link."""
        self.link = link
        self.received: list[bytes] = []
        self.broken: list[str] = []

    def on_frames(self, payloads: list[bytes]) -> None:
        """Keeps them."""
        self.received += payloads

    def on_broken(self, reason: str) -> None:
        """Closes."""
        self.broken.append(reason)
        self.link.close(reason)

    def on_drained(self) -> None:
        """Nothing waits for that."""

    def on_closed(self, reason: str) -> None:
        """Nothing waits for that."""


@pytest.mark.parametrize(
    ("options", "said"),
    [({"pigeon": 1}, "pigeon"), ({"frame_limit": 0}, "frame_limit"), ({"low_water": 3 << 20}, "low_water")],
    ids=["unknown", "wrong", "marks"],
)
def test_a_wrong_option_is_named(options: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        plugins.load("transport", "ws")(options=options)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"abcdpayload", "checksum"),
        (b"abcd", "empty"),
        (b"ab", "empty"),
        ("a text", "checksum"),
        ([bytes(FRAGMENT_BYTES)] * 3, "more than the 4096 bytes"),
    ],
    ids=["checksum", "empty", "shorter than a checksum", "text", "too long"],
)
async def test_a_message_that_is_no_frame_ends_the_link(message: str | bytes | list[bytes], said: str) -> None:
    keepers: list[Keeper] = []

    def accept(link: Link) -> Keeper:
        keepers.append(Keeper(link))
        return keepers[-1]

    listener = await plugins.load("transport", "ws")(options={}).listen("127.0.0.1:0", accept)
    async with connect(f"ws://{listener.address}/", proxy=None, compression=None) as connection:
        await connection.send(message)
        with pytest.raises(ConnectionClosed):
            await connection.recv()
    await listener.close()

    assert [said in reason for reason in keepers[0].broken] == [True]
    assert keepers[0].received == []


@pytest.mark.asyncio
async def test_no_page_in_a_browser_gets_a_link() -> None:
    transport = plugins.load("transport", "ws")(options={})
    accepted: list[Keeper] = []

    def accept(link: Link) -> Keeper:
        accepted.append(Keeper(link))
        return accepted[-1]

    listener = await transport.listen("127.0.0.1:0", accept)
    for origin in (f"http://{listener.address}", "https://elsewhere.example", "null"):
        with pytest.raises(InvalidStatus, match="403"):
            await connect(f"ws://{listener.address}/", proxy=None, origin=origin)

    assert accepted == []
    async with connect(f"ws://{listener.address}/", proxy=None):
        assert len(accepted) == 1
    await listener.close()


@pytest.mark.asyncio
async def test_nothing_is_compressed() -> None:
    transport = plugins.load("transport", "ws")(options={})
    listener = await transport.listen("127.0.0.1:0", Keeper)

    async with connect(f"ws://{listener.address}/", proxy=None, compression="deflate") as connection:
        assert connection.protocol.extensions == []
    await listener.close()
