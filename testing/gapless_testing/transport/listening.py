"""Listening, dialing and addresses."""

from __future__ import annotations

import asyncio

import pytest

from gapless.errors import ConfigurationError
from gapless_testing.transport.ends import End, SuitePart, bounded, connected, listening, numbered, settle
from gapless_testing.transport.harness import TransportHarness


class ListenTests(SuitePart):
    """Listening, dialing, and addresses."""

    @bounded
    async def test_the_address_is_the_one_to_dial(self, harness: TransportHarness) -> None:
        """Of two listeners, each has its own."""
        async with connected(harness) as connection, connected(harness) as other:
            assert connection.listener.address != other.listener.address
            other.near.link.send([b"to the other"])

            assert await other.far.frames(1) == [b"to the other"]
            assert connection.far.received == []

    @bounded
    async def test_many_links(self, harness: TransportHarness) -> None:
        """Each gets what is meant for it."""

        def echo(end: End) -> None:
            end.on_frames_do = end.link.send

        async with connected(harness, echo) as connection:
            pairs = [await connection.another() for _ in range(32)]
            for index, (near, _) in enumerate(pairs):
                near.link.send(numbered(index, 3, size=100))

            for index, (near, _) in enumerate(pairs):
                assert await near.frames(3) == numbered(index, 3, size=100)
            for near, _ in pairs:
                near.link.close()
                await near.end()

    @bounded
    async def test_closing_a_listener_keeps_its_links(self, harness: TransportHarness) -> None:
        """But makes no new ones."""
        async with connected(harness) as connection:
            await connection.listener.close()
            connection.near.link.send([b"still here"])

            assert await connection.far.frames(1) == [b"still here"]
            with pytest.raises(OSError):  # noqa: PT011 — which one depends on the transport
                await connection.transport.dial(connection.listener.address, End().accept)

    @bounded
    async def test_a_closed_listener_can_be_closed_and_its_address_taken(self, harness: TransportHarness) -> None:
        """Its address is free at once, although links live."""
        async with connected(harness) as connection:
            await connection.listener.close()
            await connection.listener.close()
            again = await connection.transport.listen(connection.listener.address, connection.ends.accept)

            assert again.address == connection.listener.address
            near, far = await connection.another()
            near.link.send([b"hello again"])
            assert await far.frames(1) == [b"hello again"]
            near.link.close()
            await again.close()

    @bounded
    async def test_dialing_nobody(self, harness: TransportHarness) -> None:
        """OSError, and the handler hears nothing."""
        async with listening(harness) as (transport, listener, _):
            await listener.close()
            end = End()

            with pytest.raises(OSError):  # noqa: PT011 — which one depends on the transport
                await transport.dial(listener.address, end.accept)
            assert end.closed == []

    @bounded
    async def test_an_address_that_is_taken(self, harness: TransportHarness) -> None:
        """ConfigurationError, because a person must change something."""
        async with listening(harness) as (transport, listener, ends):
            with pytest.raises(ConfigurationError):
                await transport.listen(listener.address, ends.accept)

    @bounded
    async def test_malformed_addresses(self, harness: TransportHarness) -> None:
        """Refused by every method that takes one."""
        transport = harness.transport()
        for address in harness.malformed:
            with pytest.raises(ConfigurationError):
                await transport.listen(address, End().accept)
            with pytest.raises(ConfigurationError):
                await transport.dial(address, End().accept)
            with pytest.raises(ConfigurationError):
                transport.is_loopback(address)

    @bounded
    async def test_a_cancelled_dial_leaves_no_link(self, harness: TransportHarness) -> None:
        """At whatever point it is cancelled, the other end is not left waiting."""
        async with listening(harness) as (transport, listener, ends):
            near = End()
            for turns in range(12):
                dialing = asyncio.ensure_future(transport.dial(listener.address, near.accept))
                for _ in range(turns):
                    await asyncio.sleep(0)
                if dialing.done():
                    dialing.result().close()
                dialing.cancel()
                await asyncio.wait({dialing})
            await settle()

            for end in ends.all:
                await end.end()

    @bounded
    async def test_what_links_say_of_themselves(self, harness: TransportHarness) -> None:
        """Their peer, and whether they are secure."""
        async with connected(harness) as connection:
            assert connection.near.link.peer == connection.listener.address
            assert connection.far.link.peer != ""
            assert connection.far.link.secure is connection.transport.encrypts
            assert connection.near.link.secure is connection.transport.encrypts
            assert connection.transport.is_loopback(connection.listener.address) in {True, False}
            assert connection.transport.scheme != ""
