"""Calls for durable subscriptions whose position the application keeps itself, blocking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from typing_extensions import Self

import gapless.client.connection as awaited
from gapless.core.client import Delivery, Gap
from gapless.core.stream.events import Event
from gapless.sync.blocking import Blocking
from gapless.sync.subscription import give_back

if TYPE_CHECKING:
    import asyncio

    from gapless.client.messages import Message
    from gapless.client.options import OnConflict, OnGap, Start
    from gapless.client.ranges.keyed import KeyedReceipt
    from gapless.client.ranges.leasing import Lease as AwaitedLease
    from gapless.client.ranges.reading import RangeReader as AwaitedReader
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.selectors.selector import Selector
    from gapless.sync.runner import Runner

ItemT = TypeVar("ItemT")
Result = TypeVar("Result")

LOOK_EVERY = 0.5
"""How many seconds lie between two checks whether the broker is there, during a wait."""


class RangeReader(Generic[ItemT]):
    """Iterates over the events of a range; see `gapless.RangeReader`. Made by `Connection.read_range`."""

    def __init__(self, runner: Runner, reader: AwaitedReader[ItemT]) -> None:
        """Use `Connection.read_range`."""
        self._runner = runner
        self._left = runner.left
        self._reader = reader

    def __repr__(self) -> str:
        return repr(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def position(self) -> Tick:
        """Everything up to here was handed out: a reader that begins here hands out the rest."""
        if self._runner.alive and self._left:
            self._runner.settle()
        return self._reader.position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ItemT:
        if self._left:
            self._runner.settle()
        item = self._reader.hand_out()
        if item is not None:
            return item

        item, more = self._runner.call(self._take, back=self._give_back)
        if not more:
            raise StopIteration
        return item  # type: ignore[return-value]  # it is no None; a call of `cast` might be interrupted

    async def _take(self) -> tuple[ItemT | None, bool]:
        try:
            return await self._reader.__anext__(), True
        except StopAsyncIteration:
            return None, False

    def _give_back(self, done: asyncio.Future[tuple[ItemT | None, bool]]) -> None:
        """A caller has gone before it had an item: the next one gets it."""
        give_back(self._reader, done, lambda: done.result()[0])

    def parts(self, away_timeout: float | None = None) -> Iterator[Delivery | Gap]:
        """Yields the same as it arrived: columns of events that are not decoded yet, and gaps.

        Raises TimeoutError if it waits and there is no session with a broker for `away_timeout` seconds. While there is
        a session it waits as long as necessary: wanted events may be rare, or far behind, and that is no failure.
        """
        parts = self._reader.parts()

        async def take() -> Delivery | Gap | None:
            try:
                return await parts.__anext__()
            except StopAsyncIteration:
                return None

        while (part := self._waited_for(take, away_timeout)) is not None:
            yield part

    def _waited_for(self, take: Callable[[], Awaitable[Result]], away_timeout: float | None) -> Result:
        """Waits for a result from the loop's thread. The work is begun once, however long it takes."""
        call = self._runner.prepare(take, lambda done: give_back(self._reader, done, done.result))
        away_since: float | None = None
        try:
            call.start()
            while away_timeout is not None:
                if call.wait(min(LOOK_EVERY, away_timeout)):
                    break
                if self._reader.connected:
                    away_since = None
                    continue
                now = monotonic()
                away_since = now if away_since is None else away_since
                if now - away_since >= away_timeout:
                    raise TimeoutError(f"no broker for {away_timeout:g} s")
            return call.result()
        except BaseException as error:
            if error is not call.error:
                call.leave()
            raise

    def close(self) -> None:
        """Ends the reading. Idempotent."""
        if self._runner.alive:
            self._runner.do(self._reader.abandon)


class Lease:
    """A subscription for one reader alone; see `gapless.Lease`. Made by `Connection.lease`."""

    def __init__(self, runner: Runner, lease: AwaitedLease) -> None:
        """Use `Connection.lease`."""
        self._runner = runner
        self._lease = lease

    def __repr__(self) -> str:
        return repr(self._lease)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def owner(self) -> str:
        """The owner of the lease."""
        return self._lease.owner

    def check(self) -> None:
        """Raises the reason if the lease is over."""
        self._lease.check()

    def release(self) -> None:
        """Gives the lease back. Idempotent."""
        if self._runner.alive:
            self._runner.do(self._lease.release)


class RangeCalls(Blocking[awaited.Connection]):
    """The calls of a connection about ranges, each with a `timeout`; see `gapless.Connection`."""

    def attach(
        self,
        subscription: str,
        *topics: str,
        selector: str | Selector = "",
        start: Start = None,
        no_local: bool = False,
        timeout: float | None = None,
    ) -> CheckpointToken:
        """Creates a durable subscription unless it exists, and returns its position."""
        return self._runner.call(
            lambda: self._awaited.attach(subscription, *topics, selector=selector, start=start, no_local=no_local),
            timeout,
        )

    def heads(
        self,
        subscription: str | CheckpointToken | None = None,
        *,
        after: CheckpointToken | None = None,
        wait: float = 0,
        timeout: float | None = None,
    ) -> CheckpointToken:
        """Returns up to where everything is decided; for a subscription, up to where there is something for it."""
        return self._runner.call(lambda: self._awaited.heads(subscription, after=after, wait=wait), timeout)

    def bound(
        self,
        subscription: str | CheckpointToken,
        start: CheckpointToken,
        *,
        max_events: int | None = None,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> CheckpointToken:
        """Returns how far a budget of events and bytes goes."""
        return self._runner.call(
            lambda: self._awaited.bound(subscription, start, max_events=max_events, max_bytes=max_bytes), timeout
        )

    def earliest(
        self, subscription: str | CheckpointToken | None = None, *, timeout: float | None = None
    ) -> CheckpointToken:
        """Returns up to where events are gone; for a subscription, from where on it meets no gap."""
        return self._runner.call(lambda: self._awaited.earliest(subscription), timeout)

    @overload
    def read_range(
        self,
        subscription: str | CheckpointToken,
        pubend: PubendId,
        start: Tick,
        end: Tick,
        *,
        on_gap: Literal["raise"] = "raise",
    ) -> RangeReader[Event]: ...
    @overload
    def read_range(
        self, subscription: str | CheckpointToken, pubend: PubendId, start: Tick, end: Tick, *, on_gap: OnGap
    ) -> RangeReader[Event | Gap]: ...
    def read_range(
        self,
        subscription: str | CheckpointToken,
        pubend: PubendId,
        start: Tick,
        end: Tick,
        *,
        on_gap: OnGap = "raise",
    ) -> RangeReader[Any]:
        """Reads the events that the subscription selects in (start, end] of a pubend."""

        async def begin() -> AwaitedReader[Any]:
            return self._awaited.read_range(subscription, pubend, start, end, on_gap=on_gap)

        return self._runner.make(begin, RangeReader, lambda reader: reader.abandon())

    def ack(self, subscription: str | CheckpointToken, token: CheckpointToken, *, timeout: float | None = None) -> None:
        """Acknowledges everything up to a position. When it returns, that is durable."""
        self._runner.call(lambda: self._awaited.ack(subscription, token), timeout)

    def lease(
        self,
        subscription: str | CheckpointToken,
        owner: str,
        *,
        in_use: OnConflict = "error",
        timeout: float | None = None,
    ) -> Lease:
        """Takes a subscription for this connection alone. After a timeout the request is withdrawn."""
        return self._runner.make(
            lambda: self._awaited.lease(subscription, owner, in_use=in_use),
            Lease,
            lambda lease: lease.release(),
            timeout,
        )

    def publish(
        self,
        producer: str,
        epoch: int,
        index: int,
        messages: Iterable[Message],
        *,
        topic: str | None = None,
        timeout: float | None = None,
    ) -> KeyedReceipt:
        """Publishes messages under keys of your own; messages that were published under them before are dropped."""
        return self._runner.call(lambda: self._awaited.publish(producer, epoch, index, messages, topic=topic), timeout)
