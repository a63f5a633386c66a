"""Links for tests: listening, connected, clogged. Each ends as it should, or the test fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from gapless.spi import Link, LinkHandler, Listener, Transport
from gapless_testing.running import settle, within
from gapless_testing.transport.ends import LARGE, PIECE, End, Ends, numbered
from gapless_testing.transport.harness import TransportHarness

UNREAD_MAX = 32 << 20
"""More than this nobody takes who does not read: systems keep some MiB for a socket."""


class Connection:
    """A transport, a listener, and one link through it: `near` dialed, `far` was accepted."""

    def __init__(self, transport: Transport, listener: Listener, ends: Ends, near: End, far: End) -> None:
        self.transport = transport
        self.listener = listener
        self.ends = ends
        self.near = near
        self.far = far

    async def another(self) -> tuple[End, End]:
        """A further link through the same listener: its near and its far end."""
        near = End()
        count = len(self.ends.all)
        await dial(self.transport, self.listener.address, near.accept)
        return near, await self.ends.get(count)


async def dial(transport: Transport, address: str, accept: Callable[[Link], LinkHandler]) -> Link:
    """`transport.dial`, which has to be done in time."""
    return await within(transport.dial(address, accept), f"dial({address!r}) neither returned nor raised")


@contextlib.asynccontextmanager
async def listening(
    harness: TransportHarness, prepare: Callable[[End], None] = lambda _: None
) -> AsyncIterator[tuple[Transport, Listener, Ends]]:
    """A listener; afterwards every link that it accepted must have ended, once, with nothing after that."""
    transport = harness.transport()
    ends = Ends(prepare)
    listener = await within(transport.listen(harness.address, ends.accept), "listen neither returned nor raised")
    try:
        yield transport, listener, ends
    finally:
        await within(listener.close(), "the listener's close did not return")
        for end in ends.all:
            end.link.close()
    for end in ends.all:
        await end.end()
    await settle()
    for end in ends.all:
        end.check_end()


@contextlib.asynccontextmanager
async def connected(
    harness: TransportHarness, prepare: Callable[[End], None] = lambda _: None
) -> AsyncIterator[Connection]:
    """A link and its listener; afterwards both ends must have ended, once, with nothing after that."""
    async with listening(harness, prepare) as (transport, listener, ends):
        near = End()
        link = await dial(transport, listener.address, near.accept)
        assert link is near.link.bare, "dial returned another link than it gave to accept"
        yield Connection(transport, listener, ends, near, await ends.get(0))
        near.link.close()
        await near.end()
    near.check_end()


@contextlib.asynccontextmanager
async def clogged(harness: TransportHarness) -> AsyncIterator[tuple[Connection, list[bytes]]]:
    """A link whose far end does not read, full beyond its high-water mark; and the payloads under way."""
    async with connected(harness, unread) as connection:
        yield connection, await clog(connection.near, 0, harness.high_water)


def unread(end: End) -> None:
    """Prepares an end that takes large frames, and does not read yet."""
    end.link.raise_limit(LARGE)
    end.link.pause()


async def clog(near: End, start: int, level: int, step: int = 4) -> list[bytes]:
    """Sends, `step` frames at a time, until more than `level` bytes are pending; returns what was sent."""
    sent: list[bytes] = []
    while near.link.pending <= level:
        assert len(sent) * PIECE < UNREAD_MAX, (
            f"an end that does not read was sent {UNREAD_MAX >> 20} MiB, and pending is {near.link.pending}:"
            " it takes frames without end, or pending does not count"
        )
        payloads = numbered(start + len(sent), step)
        near.link.send(payloads)
        sent += payloads
        # What the network still takes, it shall take now.
        for _ in range(4):
            await asyncio.sleep(0)
        if near.link.pending > level:
            await settle()
    return sent


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a raw connection, whatever has become of it."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
