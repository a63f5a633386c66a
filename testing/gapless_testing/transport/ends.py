"""What the tests of the suite are made of: links whose handlers remember everything, in bounded time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import pytest

from gapless.spi import Link, Listener, Transport
from gapless_testing.transport.harness import TransportHarness

TEST_SECONDS_MAX = 30.0
"""After this a test has failed. Nothing here takes a thousandth of it, except closing what does not read."""

Suite = TypeVar("Suite")


LARGE = 1 << 20
"""A limit for links that carry data."""
PIECE = 16 << 10
"""The size of a frame of those that clog a link."""


def numbered(start: int, count: int, size: int = PIECE) -> list[bytes]:
    """Payloads that can be told apart."""
    return [index.to_bytes(4, "big") + bytes(size - 4) for index in range(start, start + count)]


class SuitePart:
    """What every class of the suite begins with."""

    @pytest.fixture
    def harness(self) -> TransportHarness:
        """The transport under test; every class that inherits a suite must say which."""
        raise NotImplementedError("define a fixture `harness` in your test class")


class End:
    """A link handler that remembers everything, and the link it belongs to."""

    def __init__(self) -> None:
        self.link: Link
        self.received: list[bytes] = []
        """All payloads, in order."""
        self.drained = 0
        """How often `on_drained` came."""
        self.closed: list[str] = []
        """The reason of every `on_closed`: one, if all is well."""
        self.late = 0
        """How many calls came after `on_closed`: none, if all is well."""
        self.on_frames_do: Callable[[Sequence[bytes]], None] = lambda _: None
        self.on_drained_do: Callable[[], None] = lambda: None
        self.on_closed_do: Callable[[], None] = lambda: None
        self._changed = asyncio.Event()

    def accept(self, link: Link) -> End:
        """To be given to `dial`."""
        self.link = link
        return self

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._note()
        self.received += payloads
        self.on_frames_do(payloads)

    def on_broken(self, reason: str) -> None:
        """What came is no frame."""
        self._note()
        self.link.close(reason)

    def on_drained(self) -> None:
        """What was pending is sent."""
        self._note()
        self.drained += 1
        self.on_drained_do()

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._note()
        self.closed.append(reason)
        self.on_closed_do()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits for calls from the link until `condition()` holds."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def frames(self, count: int) -> list[bytes]:
        """All payloads so far, as soon as there are `count`; fails if the link is over before."""
        await self.until(lambda: len(self.received) >= count or bool(self.closed))
        assert len(self.received) >= count, f"closed ({self.closed}) after {len(self.received)} frames"
        return self.received

    async def end(self) -> str:
        """The reason for which the link ended, as soon as it has."""
        await self.until(lambda: bool(self.closed))
        return self.closed[0]

    def check_end(self) -> None:
        """Fails unless the link has ended once, with nothing after that."""
        assert len(self.closed) == 1, f"on_closed came {len(self.closed)} times: {self.closed}"
        assert self.late == 0, "a call came after on_closed"

    def _note(self) -> None:
        self.late += bool(self.closed)
        self._changed.set()


class Ends:
    """What `accept` makes for a listener: an `End` for each link, in the order in which they came."""

    def __init__(self, prepare: Callable[[End], None] = lambda _: None) -> None:
        """`prepare` is called with each new end before its `accept` returns."""
        self.all: list[End] = []
        self._prepare = prepare
        self._came = asyncio.Event()

    def accept(self, link: Link) -> End:
        """To be given to `listen`."""
        end = End().accept(link)
        self.all.append(end)
        self._came.set()
        self._prepare(end)
        return end

    async def get(self, index: int) -> End:
        """The end of the link that came as number `index`, as soon as it has come."""
        while len(self.all) <= index:
            self._came.clear()
            await self._came.wait()
        return self.all[index]


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
        await self.transport.dial(self.listener.address, near.accept)
        return near, await self.ends.get(count)


@contextlib.asynccontextmanager
async def listening(
    harness: TransportHarness, prepare: Callable[[End], None] = lambda _: None
) -> AsyncIterator[tuple[Transport, Listener, Ends]]:
    """A listener; afterwards every link that it accepted must have ended, once, with nothing after that."""
    transport = harness.transport()
    ends = Ends(prepare)
    listener = await transport.listen(harness.address, ends.accept)
    try:
        yield transport, listener, ends
    finally:
        await listener.close()
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
        link = await transport.dial(listener.address, near.accept)
        assert link is near.link, "dial returns the link that it gave to accept"
        yield Connection(transport, listener, ends, near, await ends.get(0))
        near.link.close()
        await near.end()
    near.check_end()


@contextlib.asynccontextmanager
async def clogged(harness: TransportHarness) -> AsyncIterator[tuple[Connection, list[bytes]]]:
    """A link whose far end does not read, full beyond its high-water mark; and the payloads under way."""

    def prepare(end: End) -> None:
        end.link.raise_limit(LARGE)
        end.link.pause()

    async with connected(harness, prepare) as connection:
        sent: list[bytes] = []
        while connection.near.link.pending <= harness.high_water:
            assert len(sent) * PIECE < 64 << 20, "an end that does not read takes frames without end"
            payloads = numbered(len(sent), 4)
            connection.near.link.send(payloads)
            sent += payloads
            # What the network still takes, it shall take now.
            await settle()
        yield connection, sent


async def settle() -> None:
    """Gives what must not happen the time to happen: many turns of the loop."""
    for _ in range(6):
        await asyncio.sleep(0.001)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Closes a raw connection, whatever has become of it."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def bounded(
    test: Callable[[Suite, TransportHarness], Coroutine[Any, Any, None]],
) -> Callable[[Suite, TransportHarness], None]:
    """Makes a plain test of a coroutine: on the harness's loop, in bounded time.

    Whatever the loop reports meanwhile (a callback that raised, a task whose error nobody saw) fails it.
    """

    @functools.wraps(test)
    def run(self: Suite, harness: TransportHarness) -> None:
        reports: list[dict[str, Any]] = []
        loop = harness.new_loop()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        try:
            loop.run_until_complete(_within(test(self, harness)))
        finally:
            loop.run_until_complete(_leave_nothing())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        assert reports == []

    return run


def bounded_on_bytes(
    test: Callable[[Suite, TransportHarness], Coroutine[Any, Any, None]],
) -> Callable[[Suite, TransportHarness], None]:
    """As `bounded`, but skipped where there is no stream of bytes below the frames."""
    run_bounded = bounded(test)

    @functools.wraps(test)
    def run(self: Suite, harness: TransportHarness) -> None:
        if not harness.carries_bytes:
            pytest.skip("no bytes below the frames of this transport")
        run_bounded(self, harness)

    return run


async def _leave_nothing() -> None:
    """Ends what a failed test has left running."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=TEST_SECONDS_MAX)


async def _within(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=TEST_SECONDS_MAX)
    if not done:
        where = "".join(str(frame) for frame in task.get_stack())
        task.cancel()
        await asyncio.wait({task}, timeout=TEST_SECONDS_MAX)
        pytest.fail(f"still waiting after {TEST_SECONDS_MAX} s: {where}")
    task.result()
