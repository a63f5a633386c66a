"""How links end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gapless.spi import Link
from gapless_testing.comparing import difference
from gapless_testing.running import bounded, settle
from gapless_testing.transport.connections import clogged, connected, dial
from gapless_testing.transport.ends import LARGE, PIECE, End, SuitePart, numbered
from gapless_testing.transport.harness import TransportHarness


class CloseTests(SuitePart):
    """How links end."""

    @bounded
    async def test_closing_sends_what_is_pending(self, harness: TransportHarness) -> None:
        """And the reason stays at the end that gave it."""
        payloads = numbered(0, 500, size=4000)
        async with connected(harness) as connection:
            connection.near.link.send(payloads)
            connection.near.link.close("all said")

            await connection.far.gets(payloads)
            reason = await connection.far.end()
            assert reason == "", f"the other end just closed, and this one was told {reason!r}"
            assert await connection.near.end() == "all said"

    @bounded
    async def test_closing_a_clogged_link_sends_what_is_pending(self, harness: TransportHarness) -> None:
        """If the other end reads in time."""
        async with clogged(harness) as (connection, sent):
            connection.near.link.send([b"goodbye"], urgent=True)
            connection.near.link.close()
            connection.far.link.resume()
            await connection.far.end()

            received = [payload for payload in connection.far.received if payload != b"goodbye"]
            wrong = difference(received, sent)
            assert not wrong, wrong
            assert b"goodbye" in connection.far.received, "what was sent just before the close did not arrive"

    @bounded
    async def test_closing_does_not_wait_for_ever(self, harness: TransportHarness) -> None:
        """The time to send what is pending is bounded."""
        async with clogged(harness) as (connection, _):
            connection.near.link.close("enough")

            assert await connection.near.end() == "enough"
            assert connection.near.link.pending == 0
            connection.far.link.resume()
            await connection.far.end()

    @bounded
    async def test_a_closed_link_does_nothing_more(self, harness: TransportHarness) -> None:
        """Every call is allowed and ignored, before and after `on_closed`."""
        async with connected(harness) as connection:
            near = connection.near
            near.link.close("first")
            for _ in range(2):
                near.link.send([b"late"])
                near.link.send([b"late"], urgent=True)
                near.link.close("second")
                near.link.pause()
                near.link.resume()
                near.link.raise_limit(LARGE)
                assert near.link.pending >= 0
                await near.end()
            await connection.far.end()

            assert near.closed == ["first"]
            assert connection.far.received == []

    @bounded
    async def test_nothing_is_handed_over_after_closing(self, harness: TransportHarness) -> None:
        """Frames that come in are dropped."""

        def close_at_first(end: End) -> None:
            def close(_: Sequence[bytes]) -> None:
                end.link.send([bytes(PIECE)] * 64)
                end.link.close("seen")

            end.on_frames_do = close

        async with connected(harness, close_at_first) as connection:
            # As long as this end does not read, the other one cannot finish its goodbye.
            connection.near.link.pause()
            connection.near.link.send([b"one"])
            await connection.far.frames(1)
            connection.near.link.send([b"two"])
            await settle()
            connection.near.link.raise_limit(LARGE)
            connection.near.link.resume()

            assert await connection.far.end() == "seen"
            await connection.far.gets([b"one"])

    @bounded
    async def test_what_was_sent_just_before_closing_arrives_although_more_comes_in(
        self, harness: TransportHarness
    ) -> None:
        """A connection that is closed with unread bytes may be reset, and the reset overtake our last words."""

        def refuse(end: End) -> None:
            def say_why(_: Sequence[bytes]) -> None:
                end.link.send([b"because"])
                end.link.close("refused")

            end.on_frames_do = say_why

        async with connected(harness, refuse) as connection:
            connection.near.link.send(numbered(0, 200, size=harness.frame_limit))

            await connection.near.gets([b"because"])
            await connection.near.end()

    @bounded
    async def test_a_link_can_be_closed_in_accept(self, harness: TransportHarness) -> None:
        """Both ends hear of it."""
        async with connected(harness, lambda end: end.link.close("no")) as connection:
            assert await connection.far.end() == "no"
            await connection.near.end()
            dialed = End()

            def close(link: Link) -> End:
                dialed.accept(link)
                dialed.link.close("not I")
                return dialed

            await dial(connection.transport, connection.listener.address, close)
            assert await dialed.end() == "not I"

    @bounded
    async def test_both_ends_may_close(self, harness: TransportHarness) -> None:
        """At once; each keeps its reason."""
        async with connected(harness) as connection:
            connection.near.link.close("near")
            connection.far.link.close("far")

            assert await connection.near.end() == "near"
            assert await connection.far.end() == "far"

    @bounded
    async def test_a_paused_link_can_be_closed(self, harness: TransportHarness) -> None:
        """What it has not read is dropped."""
        async with connected(harness, lambda end: end.link.pause()) as connection:
            connection.near.link.send([b"unread"])
            await settle()
            connection.far.link.close("unread")

            assert await connection.far.end() == "unread"
            await connection.near.end()
            assert connection.far.received == []

    @bounded
    async def test_a_peer_that_vanishes(self, harness: TransportHarness) -> None:
        """Both ends end, once."""
        async with connected(harness) as connection:
            connection.near.link.send([b"last words"])
            await connection.far.gets([b"last words"])
            harness.vanish(connection.near.link.bare)

            await connection.far.end()
            await connection.near.end()

    @bounded
    async def test_a_lost_connection_is_no_ordinary_end(self, harness: TransportHarness) -> None:
        """`on_closed` says "" for a goodbye alone."""
        if not harness.tells_loss:
            pytest.skip("nothing to test: the harness says tells_loss = False")
        async with connected(harness) as connection:
            near, far = await connection.another()
            harness.vanish(connection.near.link.bare)
            assert await connection.far.end() != "", "the dialer vanished, and on_closed said that it just closed"
            harness.vanish(far.link.bare)
            assert await near.end() != "", "the listener's end vanished, and on_closed said that it just closed"

    @bounded
    async def test_a_peer_that_vanishes_while_much_is_pending(self, harness: TransportHarness) -> None:
        """Nothing stays pending for ever, and it is no ordinary end, whatever the network: what was sent is lost."""
        async with clogged(harness) as (connection, _):
            harness.vanish(connection.far.link.bare)

            reason = await connection.near.end()
            assert connection.near.link.pending == 0, f"{connection.near.link.pending} bytes are pending for nobody"
            assert reason != "", "the connection was lost with much pending, and on_closed said that it just closed"
