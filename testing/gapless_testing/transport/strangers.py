"""Who is at the other end may be somebody else: another program's port, or a client that never says anything."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gapless.spi import Link
from gapless_testing.running import bounded, settle, within
from gapless_testing.transport.connections import dial, hang_up, listening
from gapless_testing.transport.ends import End, SuitePart
from gapless_testing.transport.harness import TransportHarness

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class StrangerTests(SuitePart):
    """Whoever is at the other end, dial and listener get over it; skipped where there are no hosts and ports."""

    @bounded
    async def test_dialing_who_speaks_something_else(self, harness: TransportHarness) -> None:
        """OSError; or a link, where it begins without a handshake, that breaks."""

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n" * 4)
            await listen_to_the_end(reader, writer)

        async with stranger(harness, talk) as (address, _):
            end = End()
            if await dial_stranger(harness, address, end) is not None:
                assert await end.end() != "", "what came was no frame, and on_closed said that the peer just closed"
            assert end.received == [], "what somebody else says was handed over as a frame"

    @bounded
    async def test_dialing_who_hangs_up(self, harness: TransportHarness) -> None:
        """OSError; or a link, where it begins without a handshake, that ends."""

        async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        async with stranger(harness, talk) as (address, _):
            end = End()
            if await dial_stranger(harness, address, end) is not None:
                await end.end()

    @bounded
    async def test_dialing_who_says_nothing_can_be_cancelled(self, harness: TransportHarness) -> None:
        """Then the connection is closed; or there is a link at once, where it begins without a handshake."""
        came = asyncio.Event()
        gone = asyncio.Event()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            came.set()
            await listen_to_the_end(reader, writer)
            gone.set()

        async with stranger(harness, talk) as (address, _):
            end = End()
            dialing = asyncio.ensure_future(harness.transport().dial(address, end.accept))
            await within(came.wait(), f"dial({address!r}) did not connect")
            await settle()
            if dialing.done() and not dialing.exception():
                end.link.close()
                await end.end()
            dialing.cancel()
            await asyncio.wait({dialing}, timeout=1)
            assert dialing.done(), "a dial that was cancelled goes on"
            await within(gone.wait(), "a dial was cancelled, and its connection was not closed")

    @bounded
    async def test_who_connects_and_says_nothing_is_let_go(self, harness: TransportHarness) -> None:
        """Connections that never become links do not gather, where a link begins with a handshake."""
        async with listening(harness) as (_, listener, ends):
            if harness.at("127.0.0.1") is None:
                pytest.skip(f"nothing to test: {harness.address!r} is no host and port")
            host, _, port = listener.address.rpartition("/")[2].rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                await settle()
                if ends.all:
                    pytest.skip("nothing to test: a link of this transport begins without a handshake")
                with contextlib.suppress(OSError):
                    what = "who connects and says nothing is to be let go by a timeout of the handshake: it was not"
                    while await within(reader.read(4096), what):
                        pass
                assert ends.all == [], "who said nothing was accepted as a link"
            finally:
                await hang_up(writer)


async def listen_to_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads until the other end closes, and closes as well."""
    with contextlib.suppress(OSError):
        while await reader.read(4096):
            pass
    writer.close()


async def dial_stranger(harness: TransportHarness, address: str, end: End) -> Link | None:
    """The link, or None when dial raises OSError; any other error fails."""
    try:
        return await dial(harness.transport(), address, end.accept)
    except OSError:
        return None
    except Exception as error:
        raise AssertionError(f"dial to somebody else raised {type(error).__name__}, no OSError: {error}") from error


@contextlib.asynccontextmanager
async def stranger(harness: TransportHarness, talk: Talk) -> AsyncIterator[tuple[str, asyncio.AbstractServer]]:
    """The address of a program on this machine that is no peer, and does what `talk` says to who connects."""
    if harness.at("127.0.0.1") is None:
        pytest.skip(f"nothing to test: {harness.address!r} is no host and port")
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await talk(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        address = harness.at("127.0.0.1", server.sockets[0].getsockname()[1])
        assert address is not None
        yield address, server
    finally:
        server.close()
        for writer in writers:
            await hang_up(writer)
        await server.wait_closed()
