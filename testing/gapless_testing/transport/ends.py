"""What the tests of the suite are made of: links whose handlers remember everything, and notice what is forbidden."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from gapless.spi import Certificate, Link
from gapless_testing import running
from gapless_testing.comparing import difference
from gapless_testing.running import BREACHES, within
from gapless_testing.transport.harness import TransportHarness

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


class WatchedLink:
    """A link as a test uses it: its end knows which call is going on, and whether it is paused."""

    def __init__(self, link: Link, end: End) -> None:
        """`end` is the handler of `link`."""
        self.bare = link
        """The link itself: for the harness, and to compare it."""
        self._end = end

    @property
    def peer(self) -> str:
        """The other end's address."""
        return self.bare.peer

    @property
    def certificate(self) -> Certificate:
        """What the other end's certificate says."""
        return self.bare.certificate

    @property
    def shown(self) -> bytes:
        """The listener's certificate."""
        return self.bare.shown

    @property
    def secure(self) -> bool:
        """Whether the link is encrypted."""
        return self.bare.secure

    @property
    def pending(self) -> int:
        """What has not left this process."""
        return self.bare.pending

    def send(self, payloads: Sequence[bytes | tuple[bytes, bytes]], *, urgent: bool = False) -> None:
        """Sends each payload."""
        self._call("send", lambda: self.bare.send(payloads, urgent=urgent))

    def raise_limit(self, limit: int) -> None:
        """Accepts longer frames."""
        self._call("raise_limit", lambda: self.bare.raise_limit(limit))

    def pause(self) -> None:
        """Stops reading."""
        self._call("pause", self.bare.pause)
        self._end.paused = True

    def resume(self) -> None:
        """Reads again."""
        self._end.paused = False
        self._call("resume", self.bare.resume)

    def close(self, reason: str = "") -> None:
        """Closes."""
        self._call("close", lambda: self.bare.close(reason))

    def _call(self, name: str, call: Callable[[], None]) -> None:
        outer, self._end.inside = self._end.inside, name
        try:
            call()
        finally:
            self._end.inside = outer


class End:
    """A link handler that remembers everything, and the link it belongs to."""

    def __init__(self, breaches: list[str] | None = None) -> None:
        """`breaches`: where to say what must not be; those of the running test if it is not given."""
        self.link: WatchedLink
        self.received: list[bytes] = []
        """All payloads, in order."""
        self.drained = 0
        """How often `on_drained` came."""
        self.broken: list[str] = []
        """The reason of every `on_broken`."""
        self.closed: list[str] = []
        """The reason of every `on_closed`: one, if all is well."""
        self.inside = ""
        """The call of the link that has not returned yet."""
        self.paused = False
        self.on_frames_do: Callable[[Sequence[bytes]], None] = lambda _: None
        self.on_broken_do: Callable[[str], None] = self._close
        self.on_drained_do: Callable[[], None] = lambda: None
        self.on_closed_do: Callable[[], None] = lambda: None
        self._breaches = BREACHES.get([]) if breaches is None else breaches
        self._thread = threading.get_ident()
        self._changed = asyncio.Event()

    def accept(self, link: Link) -> End:
        """To be given to `dial`."""
        self.link = WatchedLink(link, self)
        return self

    def on_frames(self, payloads: Sequence[bytes]) -> None:
        """Frames arrived."""
        self._note("on_frames")
        if self.paused:
            self._breaches.append(f"on_frames came with {len(payloads)} frames although the link is paused")
        self.received += payloads
        self.on_frames_do(payloads)

    def on_broken(self, reason: str) -> None:
        """What came is no frame."""
        self._note("on_broken")
        self.broken.append(reason)
        self.on_broken_do(reason)

    def on_drained(self) -> None:
        """What was pending is sent."""
        self._note("on_drained")
        self.drained += 1
        self.on_drained_do()

    def on_closed(self, reason: str) -> None:
        """The link is over."""
        self._note("on_closed")
        self.closed.append(reason)
        self.on_closed_do()

    async def until(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Waits for calls from the link until `condition()` holds; fails with `what()` when it does not in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + running.WAIT_SECONDS_MAX
        timer = loop.call_at(deadline, self._changed.set)
        try:
            while not condition():
                assert loop.time() < deadline, f"{what()} within {running.WAIT_SECONDS_MAX:g} s"
                self._changed.clear()
                await self._changed.wait()
        finally:
            timer.cancel()

    async def frames(self, count: int) -> list[bytes]:
        """All payloads so far, as soon as there are `count`; fails if the link is over before."""

        def came() -> str:
            return f"expected {count} frames, and {len(self.received)} came"

        await self.until(lambda: len(self.received) >= count or bool(self.closed), came)
        assert len(self.received) >= count, f"{came()} before the link was closed ({self.closed[0]!r})"
        return self.received

    async def gets(self, expected: Sequence[bytes]) -> None:
        """Fails unless exactly these payloads come, saying which are missing, and which came otherwise."""
        await self.until(
            lambda: len(self.received) >= len(expected) or bool(self.closed),
            lambda: difference(self.received, expected),
        )
        wrong = difference(self.received, expected)
        assert not wrong, f"{wrong}; the link was closed ({self.closed[0]!r})" if self.closed else wrong

    async def end(self) -> str:
        """The reason for which the link ended, as soon as it has."""
        await self.until(lambda: bool(self.closed), lambda: "expected the end of the link, and on_closed did not come")
        return self.closed[0]

    def check_end(self) -> None:
        """Fails unless the link has ended once."""
        assert len(self.closed) == 1, f"on_closed came {len(self.closed)} times: {self.closed}"

    def _close(self, reason: str) -> None:
        self.link.close(reason)

    def _note(self, call: str) -> None:
        if self.inside:
            self._breaches.append(f"{call} came from within a call of {self.inside}(), which must return before")
        if threading.get_ident() != self._thread:
            self._breaches.append(f"{call} came on another thread than the loop's")
        elif self.closed:
            self._breaches.append(f"{call} came after on_closed")
        self._changed.set()


class Ends:
    """What `accept` makes for a listener: an `End` for each link, in the order in which they came."""

    def __init__(self, prepare: Callable[[End], None] = lambda _: None) -> None:
        """`prepare` is called with each new end before its `accept` returns."""
        self.all: list[End] = []
        self._prepare = prepare
        self._breaches = BREACHES.get([])
        self._came = asyncio.Event()

    def accept(self, link: Link) -> End:
        """To be given to `listen`."""
        end = End(self._breaches).accept(link)
        self.all.append(end)
        self._came.set()
        self._prepare(end)
        return end

    async def get(self, index: int) -> End:
        """The end of the link that came as number `index`, as soon as it has come."""
        while len(self.all) <= index:
            self._came.clear()
            await within(self._came.wait(), f"link {index + 1} was dialed, and the listener's accept was not called")
        return self.all[index]
