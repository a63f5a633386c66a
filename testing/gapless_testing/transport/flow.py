"""Nobody is sent more than they read, and control frames do not wait behind data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gapless_testing.comparing import difference
from gapless_testing.running import bounded, settle
from gapless_testing.transport.connections import clog, clogged, connected, unread
from gapless_testing.transport.ends import LARGE, PIECE, End, SuitePart, numbered
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

        assert b"urgent 3" in received, "an urgent frame is missing"
        overtaken = (len(received) - received.index(b"urgent 3") - 1) * PIECE
        assert overtaken >= pending // 2, f"of {pending} pending bytes, urgent frames overtook {overtaken}"
        urgent = [payload for payload in received if payload.startswith(b"urgent")]
        others = [payload for payload in received if not payload.startswith(b"urgent")]
        wrong = difference(urgent, [b"urgent 1", b"urgent 2", b"urgent 3"])
        assert not wrong, f"of the urgent frames: {wrong}"
        wrong = difference(others, [*sent, b"last"])
        assert not wrong, f"of the frames that were overtaken: {wrong}"

    @bounded
    async def test_urgent_frames_arrive_on_an_idle_link(self, harness: TransportHarness) -> None:
        """Where there is nothing to overtake."""
        async with connected(harness) as connection:
            connection.near.link.send([b"beat"], urgent=True)

            await connection.far.gets([b"beat"])


class FlowTests(SuitePart):
    """Nobody is sent more than they read, and nobody buffers without end."""

    @bounded
    async def test_a_paused_end_is_not_given_frames(self, harness: TransportHarness) -> None:
        """It gets them, all and in order, once it reads again."""
        async with clogged(harness) as (connection, sent):
            assert connection.far.received == [], f"{len(connection.far.received)} frames came to a paused end"
            connection.far.link.resume()

            await connection.far.gets(sent)

    @bounded
    async def test_a_pause_holds_for_a_link_that_waits_for_its_next_frame(self, harness: TransportHarness) -> None:
        """Not from the frame after it on."""
        async with connected(harness) as connection:
            connection.near.link.send([b"before"])
            await connection.far.gets([b"before"])
            await settle()
            connection.far.link.pause()
            connection.near.link.send([b"one", b"two"])
            await settle()
            connection.far.link.resume()

            await connection.far.gets([b"before", b"one", b"two"])

    @bounded
    async def test_pausing_while_frames_are_handed_over(self, harness: TransportHarness) -> None:
        """No `on_frames` between `pause` and `resume`, although more has been read already."""

        def pause_at_each(end: End) -> None:
            def pause(_: Sequence[bytes]) -> None:
                end.link.pause()

            end.on_frames_do = pause

        sizes = [5, harness.frame_limit, 5, 300_000, 5, 300_000]
        async with connected(harness, pause_at_each) as connection:
            connection.far.link.raise_limit(LARGE)
            connection.near.link.send([bytes(size) for size in sizes])
            far = connection.far
            while len(far.received) < len(sizes):
                await far.until(lambda: far.paused, lambda: f"{len(far.received)} of {len(sizes)} frames came")
                await settle()
                far.link.resume()

            await far.gets([bytes(size) for size in sizes])

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

            await connection.far.gets([bytes([index]) for index in range(20)])

    @bounded
    async def test_one_resume_ends_every_pause(self, harness: TransportHarness) -> None:
        """Pauses are not counted."""
        async with connected(harness) as connection:
            connection.far.link.pause()
            connection.far.link.pause()
            connection.far.link.resume()
            connection.near.link.send([b"read"])

            await connection.far.gets([b"read"])

    @bounded
    async def test_drained_is_said_once_for_each_clog(self, harness: TransportHarness) -> None:
        """At the low-water mark, not before; and again after the next clog."""
        async with connected(harness, unread) as connection:
            near, far = connection.near, connection.far
            levels: list[int] = []
            near.on_drained_do = lambda: levels.append(near.link.pending)
            sent: list[bytes] = []
            for clogs in (1, 2):
                sent += await clog(near, len(sent), harness.high_water)
                # What the network still took meanwhile may have been a clog of its own.
                told = near.drained
                far.link.resume()
                await far.gets(sent)
                # At once: an on_drained that is due now must not come from within this call.
                sent.append(b"a drop")
                near.link.send([b"a drop"])
                await far.gets(sent)
                what = f"clog {clogs} is gone, {near.link.pending} bytes are pending, and on_drained did not come"
                await near.until(partial(drained_more_than, near, told), lambda what=what: what)  # type: ignore[misc]
                await settle()
                assert near.drained == told + 1, f"on_drained came {near.drained - told} times for one clog"
                far.link.pause()

            above = [level for level in levels if level > harness.low_water]
            assert not above, f"on_drained came with {above[0]} bytes pending, above low water: {harness.low_water}"
            assert near.link.pending == 0
            far.link.resume()

    @bounded
    async def test_who_was_never_above_high_water_is_not_drained(self, harness: TransportHarness) -> None:
        """The marks are two: what gathers between them is not told."""
        async with connected(harness, unread) as connection:
            sent = await clog(connection.near, 0, 0)
            sent += await clog(connection.near, len(sent), harness.high_water - 2 * PIECE, step=1)
            reached = connection.near.link.pending
            connection.far.link.resume()
            await connection.far.gets(sent)
            await settle()

            drained = connection.near.drained
            assert drained == 0, f"on_drained came, and {reached} of {harness.high_water} bytes were pending"

    @bounded
    async def test_who_sends_when_drained_can_send_without_end(self, harness: TransportHarness) -> None:
        """The way to send much in bounded memory."""
        async with clogged(harness) as (connection, sent):
            more = numbered(len(sent), 100)
            left = list(more)

            def send_on() -> None:
                while left and connection.near.link.pending <= harness.high_water:
                    connection.near.link.send([left.pop(0)])

            connection.near.on_drained_do = send_on
            connection.far.link.resume()
            await connection.near.until(
                lambda: not left, lambda: f"{len(left)} of 100 frames wait for an on_drained that did not come"
            )

            await connection.far.gets([*sent, *more])

    @bounded
    async def test_what_is_pending_has_a_hard_limit(self, harness: TransportHarness) -> None:
        """Who does not look at `pending` loses the link, not the process its memory."""
        async with clogged(harness) as (connection, _):
            await overfill(harness, connection.near, urgent=False)
            connection.far.link.resume()
            await connection.far.end()

    @bounded
    async def test_urgent_frames_have_the_same_hard_limit(self, harness: TransportHarness) -> None:
        """They do not wait behind data, and they wait nevertheless."""
        async with clogged(harness) as (connection, _):
            await overfill(harness, connection.near, urgent=True)
            connection.far.link.resume()
            await connection.far.end()


def drained_more_than(end: End, times: int) -> bool:
    """Whether `on_drained` has come once more."""
    return end.drained > times


async def overfill(harness: TransportHarness, near: End, *, urgent: bool) -> None:
    """Sends more than may be pending; fails unless that costs the link, which says why."""
    for _ in range(2 * harness.pending_max // LARGE + 2):
        near.link.send([bytes(LARGE)], urgent=urgent)
        pending = near.link.pending
        assert pending <= harness.pending_max + LARGE, f"{pending} bytes are pending, more than {harness.pending_max}"

    assert await near.end() != "", "the link was closed because too much was pending, and gave no reason"
    assert near.link.pending == 0, f"{near.link.pending} bytes are pending on a link that is over"
