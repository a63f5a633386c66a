"""Whole frames arrive, in order, up to a limit."""

from __future__ import annotations

import asyncio

import pytest

from gapless.errors import LocalProtocolError
from gapless_testing.transport.ends import LARGE, End, SuitePart, bounded, connected, numbered, settle
from gapless_testing.transport.harness import TransportHarness


class FrameTests(SuitePart):
    """Whole frames arrive, in order."""

    @bounded
    async def test_frames_of_every_size_arrive_whole(self, harness: TransportHarness) -> None:
        """From one byte to the first limit."""
        sizes = [1, 2, 7, 8, 9, 255, 256, 1023, harness.frame_limit - 1, harness.frame_limit]
        payloads = [bytes([size % 251]) * size for size in sizes]
        async with connected(harness) as connection:
            connection.near.link.send(payloads)

            assert await connection.far.frames(len(payloads)) == payloads

    @bounded
    async def test_large_frames_arrive_whole(self, harness: TransportHarness) -> None:
        """Frames that no single read or write carries."""
        payloads = [bytes(range(256)) * (size // 256) for size in (64 << 10, LARGE - 256, 256 << 10, LARGE)]
        async with connected(harness, lambda end: end.link.raise_limit(LARGE)) as connection:
            connection.near.link.send(payloads)

            assert await connection.far.frames(len(payloads)) == payloads

    @bounded
    async def test_payloads_are_bytes(self, harness: TransportHarness) -> None:
        """Not views of a buffer that somebody reuses."""
        async with connected(harness) as connection:
            connection.near.link.send([b"one", (b"t", b"wo")])

            assert [type(payload) for payload in await connection.far.frames(2)] == [bytes, bytes]

    @bounded
    async def test_a_pair_is_one_payload(self, harness: TransportHarness) -> None:
        """A pair is its parts joined, whichever of them is empty or large."""
        shared = bytes(range(256)) * 800
        async with connected(harness, lambda end: end.link.raise_limit(LARGE)) as connection:
            connection.near.link.send([(b"head", shared), (b"", b"rest"), (b"head", b""), b"plain"])

            assert await connection.far.frames(4) == [b"head" + shared, b"rest", b"head", b"plain"]

    @bounded
    async def test_calls_keep_their_order(self, harness: TransportHarness) -> None:
        """Many calls of `send`, some in one turn of the loop."""
        payloads = numbered(0, 2000, size=40)
        async with connected(harness) as connection:
            for start in range(0, 2000, 7):
                connection.near.link.send(payloads[start : start + 7])
                if start % 3 == 0:
                    await asyncio.sleep(0)

            assert await connection.far.frames(2000) == payloads

    @bounded
    async def test_both_directions_at_once(self, harness: TransportHarness) -> None:
        """Neither direction disturbs the other."""
        payloads = numbered(0, 500, size=1000)
        async with connected(harness) as connection:
            for payload in payloads:
                connection.near.link.send([payload])
                connection.far.link.send([payload[::-1]])
                await asyncio.sleep(0)

            assert await connection.far.frames(500) == payloads
            assert await connection.near.frames(500) == [payload[::-1] for payload in payloads]

    @bounded
    async def test_a_handler_may_send_from_accept(self, harness: TransportHarness) -> None:
        """A link can be used as soon as `accept` is given it."""
        async with connected(harness, lambda end: end.link.send([b"welcome"])) as connection:
            assert await connection.near.frames(1) == [b"welcome"]

    @bounded
    async def test_an_empty_payload_is_refused_and_nothing_sent(self, harness: TransportHarness) -> None:
        """Nor is any other payload of the same call."""
        async with connected(harness) as connection:
            for empty in (b"", (b"", b"")):
                with pytest.raises(LocalProtocolError):
                    connection.near.link.send([b"never", empty])
            connection.near.link.send([])
            connection.near.link.send([b"then"])

            assert await connection.far.frames(1) == [b"then"]

    @bounded
    async def test_nothing_stays_pending_on_an_idle_link(self, harness: TransportHarness) -> None:
        """And nobody is told of a drain who was not above the mark."""
        async with connected(harness) as connection:
            connection.near.link.send(numbered(0, 10, size=1000))
            await connection.far.frames(10)
            await settle()

            assert connection.near.link.pending == 0
            assert connection.near.drained == 0


class LimitTests(SuitePart):
    """Frames above the limit of the receiving end close the link."""

    @bounded
    async def test_a_frame_above_the_limit_closes_the_link(self, harness: TransportHarness) -> None:
        """The reason names the limit."""
        async with connected(harness) as connection:
            connection.near.link.send([bytes(harness.frame_limit + 1), b"behind"])

            assert str(harness.frame_limit) in await connection.far.end()
            assert connection.far.received == []
            await connection.near.end()

    @bounded
    async def test_frames_before_it_are_handed_over(self, harness: TransportHarness) -> None:
        """What was in order is not lost with what was not."""
        async with connected(harness) as connection:
            connection.near.link.send([b"first", b"second", bytes(harness.frame_limit + 1)])
            await connection.far.end()

            assert connection.far.received == [b"first", b"second"]

    @bounded
    async def test_a_raised_limit_holds_for_the_frame_right_behind(self, harness: TransportHarness) -> None:
        """Even if both came in one read."""

        def raise_limit(end: End) -> None:
            end.on_frames_do = lambda _: end.link.raise_limit(LARGE)

        async with connected(harness, raise_limit) as connection:
            connection.near.link.send([b"hello", bytes(harness.frame_limit + 1), bytes(LARGE)])

            assert [len(payload) for payload in await connection.far.frames(3)] == [
                5,
                harness.frame_limit + 1,
                LARGE,
            ]

    @bounded
    async def test_a_raised_limit_is_a_limit(self, harness: TransportHarness) -> None:
        """One byte more closes the link."""
        async with connected(harness, lambda end: end.link.raise_limit(8192)) as connection:
            connection.near.link.send([bytes(8192), bytes(8193)])
            await connection.far.end()

            assert [len(payload) for payload in connection.far.received] == [8192]
