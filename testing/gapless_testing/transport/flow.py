"""Nobody is sent more than they read, and control frames do not wait behind data."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gapless_testing.transport.ends import LARGE, PIECE, End, SuitePart, bounded, clogged, connected, numbered, settle
from gapless_testing.transport.harness import TransportHarness


class UrgentTests(SuitePart):
    """Control frames do not wait behind data."""

    @bounded
    async def test_urgent_frames_overtake_what_is_pending(self, harness: TransportHarness) -> None:
        """And keep their order among themselves, as the others do."""
        async with clogged(harness) as (connection, sent):
            pending = connection.near.link.pending
            connection.near.link.send([b"urgent 1", (b"urgent ", b"2")], urgent=True)
            connection.near.link.send([b"urgent 3"], urgent=True)
            connection.near.link.send([b"last"])
            connection.far.link.resume()
            received = await connection.far.frames(len(sent) + 4)

        behind = len(received) - received.index(b"urgent 3") - 1
        assert behind * PIECE >= pending // 2, "most of what was pending should have been overtaken"
        assert [payload for payload in received if payload.startswith(b"urgent")] == [
            b"urgent 1",
            b"urgent 2",
            b"urgent 3",
        ]
        assert [payload for payload in received if not payload.startswith(b"urgent")] == [*sent, b"last"]

    @bounded
    async def test_urgent_frames_arrive_on_an_idle_link(self, harness: TransportHarness) -> None:
        """Where there is nothing to overtake."""
        async with connected(harness) as connection:
            connection.near.link.send([b"beat"], urgent=True)

            assert await connection.far.frames(1) == [b"beat"]


class FlowTests(SuitePart):
    """Nobody is sent more than they read, and nobody buffers without end."""

    @bounded
    async def test_a_paused_end_is_not_given_frames(self, harness: TransportHarness) -> None:
        """It gets them, all and in order, once it reads again."""
        async with clogged(harness) as (connection, sent):
            assert connection.far.received == []
            connection.far.link.resume()

            assert await connection.far.frames(len(sent)) == sent

    @bounded
    async def test_pausing_while_frames_are_handed_over(self, harness: TransportHarness) -> None:
        """No `on_frames` between `pause` and `resume`, although more has been read already."""
        paused: list[bool] = []
        come_while_paused: list[int] = []

        def pause_at_each(end: End) -> None:
            def pause(payloads: Sequence[bytes]) -> None:
                come_while_paused.extend([len(payloads)] if paused else [])
                paused.append(True)
                end.link.pause()

            end.on_frames_do = pause

        sizes = [5, harness.frame_limit, 5, 300_000, 5, 300_000]
        async with connected(harness, pause_at_each) as connection:
            connection.far.link.raise_limit(LARGE)
            connection.near.link.send([bytes(size) for size in sizes])
            while len(connection.far.received) < len(sizes):
                await connection.far.until(lambda: bool(paused))
                await settle()
                paused.clear()
                connection.far.link.resume()

            assert come_while_paused == []
            assert [len(payload) for payload in connection.far.received] == sizes

    @bounded
    async def test_pausing_and_resuming_in_one_turn(self, harness: TransportHarness) -> None:
        """Neither twice in a row does harm."""
        async with connected(harness) as connection:
            for index in range(20):
                connection.far.link.pause()
                connection.near.link.send([bytes([index])])
                connection.far.link.pause()
                connection.far.link.resume()
                connection.far.link.resume()

            assert await connection.far.frames(20) == [bytes([index]) for index in range(20)]

    @bounded
    async def test_drained_is_said_once_when_the_clog_is_gone(self, harness: TransportHarness) -> None:
        """At the low-water mark, not before."""
        async with clogged(harness) as (connection, sent):
            assert connection.near.drained == 0
            levels: list[int] = []
            connection.near.on_drained_do = lambda: levels.append(connection.near.link.pending)
            connection.far.link.resume()
            await connection.far.frames(len(sent))
            await connection.near.until(lambda: connection.near.drained > 0)
            await settle()

            assert connection.near.drained == 1
            connection.near.link.send([b"a drop"])
            await connection.far.frames(len(sent) + 1)
            await settle()
            assert connection.near.drained == 1
            assert levels[0] <= harness.low_water
            assert connection.near.link.pending == 0

    @bounded
    async def test_who_sends_when_drained_can_send_without_end(self, harness: TransportHarness) -> None:
        """The way to send much in bounded memory."""
        async with clogged(harness) as (connection, sent):
            more = numbered(len(sent), 400)
            left = list(more)

            def send_on() -> None:
                while left and connection.near.link.pending <= harness.high_water:
                    connection.near.link.send([left.pop(0)])

            connection.near.on_drained_do = send_on
            connection.far.link.resume()
            while left:
                await asyncio.sleep(0)
                send_on()

            assert await connection.far.frames(len(sent) + 400) == [*sent, *more]

    @bounded
    async def test_what_is_pending_has_a_hard_limit(self, harness: TransportHarness) -> None:
        """Who does not look at `pending` loses the link, not the process its memory."""
        async with clogged(harness) as (connection, _):
            near = connection.near
            for _ in range(2 * harness.pending_max // LARGE + 2):
                near.link.send([bytes(LARGE)])
                assert near.link.pending <= harness.pending_max + LARGE
            assert near.closed == [], "a handler is not called back from send"

            assert await near.end() != ""
            assert near.link.pending == 0
            connection.far.link.resume()
            await connection.far.end()
