"""Listening, dialing and addresses."""

from __future__ import annotations

import asyncio

import pytest

from gapless.errors import ConfigurationError
from gapless_testing.running import bounded, settle, within
from gapless_testing.transport.connections import connected, dial, listening
from gapless_testing.transport.ends import End, SuitePart, numbered
from gapless_testing.transport.harness import TransportHarness

BEYOND = (
    *("0.0.0.0", "[::]", "[::ffff:0.0.0.0]", "10.0.0.1", "169.254.1.1", "192.168.1.1", "[fe80::1]", "[2001:db8::1]"),  # noqa: S104
    *("broker", "broker.example", "127.example", "127.0.0.1.example", "localhost.example", "0"),
)
"""Hosts that other machines can reach, or that mean something else tomorrow."""


class ListenTests(SuitePart):
    """Listening, dialing, and addresses."""

    @bounded
    async def test_the_address_is_the_one_to_dial(self, harness: TransportHarness) -> None:
        """Of two listeners, each has its own."""
        async with connected(harness) as connection, connected(harness) as other:
            assert connection.listener.address != other.listener.address
            other.near.link.send([b"to the other"])

            await other.far.gets([b"to the other"])
            await connection.far.gets([])

    @bounded
    async def test_many_links(self, harness: TransportHarness) -> None:
        """Each gets what is meant for it."""

        def echo(end: End) -> None:
            end.on_frames_do = end.link.send

        async with connected(harness, echo) as connection:
            pairs = [await connection.another() for _ in range(8)]
            for index, (near, _) in enumerate(pairs):
                near.link.send(numbered(index, 3, size=100))

            for index, (near, _) in enumerate(pairs):
                await near.gets(numbered(index, 3, size=100))
            for near, _ in pairs:
                near.link.close()
                await near.end()

    @bounded
    async def test_closing_a_listener_keeps_its_links(self, harness: TransportHarness) -> None:
        """But makes no new ones."""
        async with connected(harness) as connection:
            await within(connection.listener.close(), "the listener's close did not return")
            await settle()
            connection.near.link.send([b"still here"])

            await connection.far.gets([b"still here"])
            with pytest.raises(OSError):  # noqa: PT011 — which one depends on the transport
                await dial(connection.transport, connection.listener.address, End().accept)

    @bounded
    async def test_a_closed_listener_can_be_closed_and_its_address_taken(self, harness: TransportHarness) -> None:
        """Its address is free at once, although links live."""
        async with connected(harness) as connection:
            await within(connection.listener.close(), "the listener's close did not return")
            await within(connection.listener.close(), "the listener's close did not return")
            again = await connection.transport.listen(connection.listener.address, connection.ends.accept)

            assert again.address == connection.listener.address
            near, far = await connection.another()
            near.link.send([b"hello again"])
            await far.gets([b"hello again"])
            near.link.close()
            await again.close()

    @bounded
    async def test_dialing_nobody(self, harness: TransportHarness) -> None:
        """OSError, and the handler hears nothing."""
        async with listening(harness) as (transport, listener, _):
            await listener.close()
            end = End()

            with pytest.raises(OSError):  # noqa: PT011 — which one depends on the transport
                await dial(transport, listener.address, end.accept)
            assert end.closed == [], "dial raised, and the handler heard of a link nevertheless"

    @bounded
    async def test_an_address_that_is_taken(self, harness: TransportHarness) -> None:
        """ConfigurationError, because a person must change something."""
        async with listening(harness) as (transport, listener, ends):
            with pytest.raises(ConfigurationError):
                await transport.listen(listener.address, ends.accept)

    @bounded
    async def test_malformed_addresses(self, harness: TransportHarness) -> None:
        """Refused by every method that takes one."""
        if not harness.malformed:
            pytest.skip("nothing to test: the harness names no malformed address")
        transport = harness.transport()
        for address in harness.malformed:
            with pytest.raises(ConfigurationError):
                await transport.listen(address, End().accept)
            with pytest.raises(ConfigurationError):
                await dial(transport, address, End().accept)
            with pytest.raises(ConfigurationError):
                transport.is_loopback(address)

    @bounded
    async def test_a_cancelled_dial_leaves_no_link(self, harness: TransportHarness) -> None:
        """At whatever point it is cancelled, the other end is not left waiting."""
        async with listening(harness) as (transport, listener, ends):
            for turns in range(12):
                dialing = asyncio.ensure_future(transport.dial(listener.address, End().accept))
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
            transport, address = connection.transport, connection.listener.address
            dialed, accepted = connection.near.link, connection.far.link
            assert dialed.peer == address, f"{address!r} was dialed, and the link's peer is {dialed.peer!r}"
            assert accepted.peer != "", "an accepted link does not say who its peer is"
            assert accepted.secure is transport.encrypts, f"encrypts is {transport.encrypts}, secure {accepted.secure}"
            assert dialed.secure is transport.encrypts, f"encrypts is {transport.encrypts}, secure {dialed.secure}"
            assert transport.scheme.isidentifier(), f"gapless+{transport.scheme}:// is no address that can be dialed"

    @bounded
    async def test_only_loopback_is_loopback(self, harness: TransportHarness) -> None:
        """Whoever listens elsewhere without TLS is refused: so `is_loopback` must not be true of too much."""
        transport = harness.transport()
        if harness.at("127.0.0.1") is None:
            pytest.skip(f"nothing to test: {harness.address!r} is no host and port")

        assert transport.is_loopback(harness.address), f"{harness.address} is loopback, and is_loopback says no"
        for host in BEYOND:
            address = harness.at(host, 7400)
            assert address is not None
            try:
                loopback = transport.is_loopback(address)
            except ConfigurationError:
                continue  # such a host is none to this transport
            assert not loopback, f"is_loopback({address!r}) is true, and other machines can reach it"
