"""A range of a durable subscription, read once: nothing is consumed, and nothing is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from typing_extensions import Self

from gapless.client.batches import decode
from gapless.client.driver import Driver, Recipient
from gapless.core.client import Delivery, Gap
from gapless.errors import GapError, GaplessError, SubscriptionError

if TYPE_CHECKING:
    from gapless.core.stream.events import Event
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import Target

ItemT = TypeVar("ItemT")
"""The items of the iteration: Event, and Gap if it was asked for."""


class RangeReader(Recipient, Generic[ItemT]):
    """Iterates over the events of (start, end] of one pubend, in order. Made by `Connection.read_range`.

    It ends after the last event. The iteration survives GapError: it goes on after the gap. Leaving the block, or
    `close`, ends it early.
    """

    def __init__(
        self, driver: Driver, target: Target, pubend: PubendId, start: Tick, end: Tick, *, raises_gaps: bool
    ) -> None:
        """Use `Connection.read_range`."""
        self.pubend = pubend
        self.start = start
        self.end = end
        self._driver = driver
        self._raises_gaps = raises_gaps
        self._events: list[Event] = []
        """The events that were taken and not handed out; the next one is the last."""
        self._returned: Delivery | Gap | None = None
        """What was handed out to nobody: it is next."""
        self._reached = start
        self._ended: GaplessError | None = None
        self._waiting: asyncio.Future[None] | None = None
        driver.check_open()
        self._number = driver.core.ranges.read(target, pubend, start, end, driver.now())
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        return f"<RangeReader of {self.pubend} ({self.start}, {self.end}], at {self.position}>"

    @property
    def position(self) -> Tick:
        """Everything up to here was handed out: a reader that begins here hands out the rest."""
        return self._reached

    @property
    def connected(self) -> bool:
        """Whether there is a session with a broker now. If not, the connection tries to open one."""
        return self._driver.core.connected

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ItemT:
        while not self._events:
            part = await self._next()
            if isinstance(part, Gap):
                return cast("ItemT", part)
            self._events = decode(part)
            self._events.reverse()
        event = self._events.pop()
        self._reached = event.tick
        return cast("ItemT", event)

    async def parts(self) -> AsyncIterator[Delivery | Gap]:
        """Yields the same as it arrived: columns of events that are not decoded yet (`Delivery`), and gaps."""
        while True:
            try:
                part = await self._next()
            except StopAsyncIteration:
                return
            yield part
            if isinstance(part, Delivery):
                self._reached = part.ticks[-1]

    async def close(self) -> None:
        """Ends the reading. Idempotent."""
        self.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Ends the reading, in the loop's thread."""
        if self._ended is None:
            self._ended = SubscriptionError("the reading was closed")
            self._driver.core.ranges.end_read(self._number, self._driver.now())
            self._driver.unregister(self._number)
            self._driver.touch()
            self._wake()

    def hand_out(self) -> ItemT | None:
        """Returns the next event if it is at hand; None otherwise.

        For the blocking facade, in its caller's thread: a signal handler may raise anywhere in here.
        """
        events = self._events
        if not events:
            return None
        event = events[-1]
        try:
            event = events.pop()
            self._reached = event.tick
            return event  # type: ignore[return-value]  # ItemT is Event at least; a call of `cast` might be interrupted
        except BaseException:
            if not events or events[-1] is not event:
                self.put_back(event)
            raise

    def put_back(self, item: Event | Delivery | Gap) -> None:
        """What was handed out last was not, for nobody was there to take it: it is next."""
        if isinstance(item, (Delivery, Gap)):
            self._returned = item
        else:
            self._events.append(item)
        first = (
            item.start if isinstance(item, Gap) else (item.ticks[0] if isinstance(item, Delivery) else item.tick) - 1
        )
        self._reached = max(self.start, first)

    # Effects of the core.

    def on_dropped(self, error: GaplessError) -> None:
        """It is over here, and what is at hand is somebody else's."""
        self._ended = error
        self._events, self._returned = [], None

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self._ended = error
        self._wake()

    def on_arrived(self) -> None:
        """There is something to take."""
        self._wake()

    # How it is done.

    async def _next(self) -> Delivery | Gap:
        """Waits for the next part.

        Raises StopAsyncIteration after the last one, and GapError for a gap if asked for.
        """
        while True:
            if self._ended is not None:
                raise self._ended
            if self._waiting is not None:
                raise SubscriptionError("another task waits for this range: one at a time iterates")
            self._driver.check_here()
            ranges = self._driver.core.ranges
            part, self._returned = self._returned, None
            if part is None:
                part = ranges.take(self._number, self._driver.now())
                self._driver.touch()
            if part is None and ranges.is_complete(self._number):
                self._reached = self.end
                raise StopAsyncIteration
            if isinstance(part, Gap):
                self._reached = part.end
                if self._raises_gaps:
                    raise GapError(part)
            if part is not None:
                return part
            self._waiting = self._driver.loop.create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
