"""Whole frames arrive, in order, up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from gapless.errors import LocalProtocolError
from gapless.spi import Link
from gapless_testing.running import bounded, settle
from gapless_testing.transport.connections import connected, dial
from gapless_testing.transport.ends import LARGE, End, SuitePart, numbered
from gapless_testing.transport.harness import TransportHarness

LARGEST = 8 << 20
"""A broker takes frames of 4 MiB if nobody says otherwise."""


class FrameTests(SuitePart):
    """Whole frames arrive, in order."""

    @bounded
    async def test_frames_of_every_size_arrive_whole(self, harness: TransportHarness) -> None:
        """From one byte to the first limit."""
        sizes = [1, 2, 7, 8, 9, 255, 256, 1023, harness.frame_limit - 1, harness.frame_limit]
        payloads = [bytes([size % 251]) * size for size in sizes]
        async with connected(harness) as connection:
            connection.near.link.send(payloads)

            await connection.far.gets(payloads)

    @bounded
    async def test_large_frames_arrive_whole(self, harness: TransportHarness) -> None:
        """Frames that no single read or write carries."""
        payloads = [bytes(range(256)) * (size // 256) for size in (64 << 10, LARGE - 256, 256 << 10, LARGE)]
        async with connected(harness, lambda end: end.link.raise_limit(LARGE)) as connection:
            connection.near.link.send(payloads)

            await connection.far.gets(payloads)

    @bounded
    async def test_a_very_large_frame_arrives_whole(self, harness: TransportHarness) -> None:
        """Twice as large as a broker takes them by default: no library below has a limit of its own."""
        assert harness.pending_max > LARGEST + LARGE, (
            f"the harness says pending_max = {harness.pending_max}: give the transport at least {LARGEST + LARGE},"
            f" so that a frame of {LARGEST} bytes can wait to be sent"
        )
        block = bytes(range(256)) * 255 + bytes(256)
        payload = block * (LARGEST // len(block)) + b"end"
        async with connected(harness, lambda end: end.link.raise_limit(LARGEST + LARGE)) as connection:
            connection.near.link.send([(payload[:100], payload[100:])])

            await connection.far.gets([payload])

    @bounded
    async def test_payloads_are_bytes(self, harness: TransportHarness) -> None:
        """Not views of a buffer that somebody reuses."""
        async with connected(harness) as connection:
            connection.near.link.send([b"one", (b"t", b"wo")])

            types = [type(payload).__name__ for payload in await connection.far.frames(2)]
            assert types == ["bytes", "bytes"], f"payloads came as {types}"

    @bounded
    async def test_a_pair_is_one_payload(self, harness: TransportHarness) -> None:
        """A pair is its parts joined, whichever of them is empty or large."""
        shared = bytes(range(256)) * 800
        async with connected(harness, lambda end: end.link.raise_limit(LARGE)) as connection:
            connection.near.link.send([(b"head", shared), (b"", b"rest"), (b"head", b""), b"plain"])

            await connection.far.gets([b"head" + shared, b"rest", b"head", b"plain"])

    @bounded
    async def test_calls_keep_their_order(self, harness: TransportHarness) -> None:
        """Many calls of `send`, some in one turn of the loop."""
        payloads = numbered(0, 1000, size=40)
        async with connected(harness) as connection:
            for start in range(0, 1000, 7):
                connection.near.link.send(payloads[start : start + 7])
                if start % 3 == 0:
                    await asyncio.sleep(0)

            await connection.far.gets(payloads)

    @bounded
    async def test_both_directions_at_once(self, harness: TransportHarness) -> None:
        """Neither direction disturbs the other."""
        payloads = numbered(0, 250, size=1000)
        async with connected(harness) as connection:
            for payload in payloads:
                connection.near.link.send([payload])
                connection.far.link.send([payload[::-1]])
                await asyncio.sleep(0)

            await connection.far.gets(payloads)
            await connection.near.gets([payload[::-1] for payload in payloads])

    @bounded
    async def test_a_handler_may_send_from_accept(self, harness: TransportHarness) -> None:
        """A link can be used as soon as `accept` is given it."""
        async with connected(harness, lambda end: end.link.send([b"welcome"])) as connection:
            await connection.near.gets([b"welcome"])
            dialed = End()

            def accept(link: Link) -> End:
                dialed.accept(link)
                dialed.link.send([b"hello"])
                return dialed

            await dial(connection.transport, connection.listener.address, accept)
            await (await connection.ends.get(1)).gets([b"hello"])
            dialed.link.close()
            await dialed.end()

    @bounded
    async def test_an_empty_payload_is_refused_and_nothing_sent(self, harness: TransportHarness) -> None:
        """Nor is any other payload of the same call."""
        async with connected(harness) as connection:
            for empty in (b"", (b"", b"")):
                with pytest.raises(LocalProtocolError):
                    connection.near.link.send([b"never", empty])
            connection.near.link.send([])
            connection.near.link.send([b"then"])

            await connection.far.gets([b"then"])

    @bounded
    async def test_nothing_stays_pending_on_an_idle_link(self, harness: TransportHarness) -> None:
        """And nobody is told of a drain who was not above the mark."""
        async with connected(harness) as connection:
            connection.near.link.send(numbered(0, 10, size=1000))
            await connection.far.frames(10)
            await settle()

            pending = connection.near.link.pending
            assert pending == 0, f"{pending} bytes are pending although all has arrived"
            assert connection.near.drained == 0, "on_drained came although pending was never above high water"


class LimitTests(SuitePart):
    """Frames above the limit of the receiving end close the link."""

    @bounded
    async def test_a_frame_above_the_limit_closes_the_link(self, harness: TransportHarness) -> None:
        """The reason names the limit."""
        async with connected(harness) as connection:
            connection.near.link.send([bytes(harness.frame_limit + 1), b"behind"])

            reason = await connection.far.end()
            assert str(harness.frame_limit) in reason, f"the reason does not name {harness.frame_limit}: {reason!r}"
            assert connection.far.received == [], "a frame above the limit was handed over, or one behind it"
            times = len(connection.far.broken)
            assert times == 1, f"what came breaks the framing: on_broken is to come once, and came {times} times"
            await connection.near.end()

    @bounded
    async def test_frames_before_it_are_handed_over(self, harness: TransportHarness) -> None:
        """What was in order is not lost with what was not."""
        async with connected(harness) as connection:
            connection.near.link.send([b"first", b"second", bytes(harness.frame_limit + 1)])
            await connection.far.end()

            await connection.far.gets([b"first", b"second"])

    @bounded
    async def test_the_handler_of_a_broken_link_can_say_why(self, harness: TransportHarness) -> None:
        """What it sends in `on_broken`, before it closes, reaches the other end."""

        def say_why(end: End) -> None:
            def say(_: str) -> None:
                end.link.send([b"too long"])
                end.link.close("too long")

            end.on_broken_do = say

        async with connected(harness, say_why) as connection:
            connection.near.link.send([bytes(harness.frame_limit + 1), b"behind"])

            await connection.near.gets([b"too long"])
            assert await connection.far.end() == "too long"

    @bounded
    async def test_a_broken_link_that_nobody_closes_is_closed(self, harness: TransportHarness) -> None:
        """Within the time that a close may take; and what comes meanwhile is dropped."""

        def keep_open(end: End) -> None:
            end.on_broken_do = lambda _: None

        async with connected(harness, keep_open) as connection:
            connection.near.link.send([bytes(harness.frame_limit + 1)])
            await connection.far.until(lambda: bool(connection.far.broken), lambda: "on_broken did not come")
            connection.near.link.send([b"behind"])

            assert await connection.far.end() != "", "the link ended without a reason"
            assert connection.far.received == [], "a frame behind a broken one was handed over"
            assert len(connection.far.broken) == 1, f"on_broken came {len(connection.far.broken)} times"

    @bounded
    async def test_a_raised_limit_holds_for_the_frame_right_behind(self, harness: TransportHarness) -> None:
        """Even if both came in one read."""

        def raise_limit(end: End) -> None:
            end.on_frames_do = lambda _: end.link.raise_limit(LARGE)

        async with connected(harness, raise_limit) as connection:
            connection.near.link.send([b"hello", bytes(harness.frame_limit + 1), bytes(LARGE)])

            await connection.far.gets([b"hello", bytes(harness.frame_limit + 1), bytes(LARGE)])

    @bounded
    async def test_a_raised_limit_is_a_limit(self, harness: TransportHarness) -> None:
        """One byte more closes the link."""
        async with connected(harness, lambda end: end.link.raise_limit(8192)) as connection:
            connection.near.link.send([bytes(8192), bytes(8193)])
            await connection.far.end()

            await connection.far.gets([bytes(8192)])
