"""A subscription, blocking."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, cast

from typing_extensions import TypeVar

import gapless.client.subscription as awaited
from gapless.core.stream.events import Event
from gapless.sync.blocking import Blocking

if TYPE_CHECKING:
    import asyncio

    from gapless.client.batches import Batch
    from gapless.core.wire.tokens import CheckpointToken
    from gapless.sync.runner import Runner

ItemT = TypeVar("ItemT", default=Event)
GapT = TypeVar("GapT", default=NoReturn)


class Subscription(Blocking[awaited.Subscription[ItemT, GapT]], Generic[ItemT, GapT]):
    """Consumes a subscription; see `gapless.Subscription`. Made by `Session.subscribe`."""

    def __init__(self, runner: Runner, subscription: awaited.Subscription[ItemT, GapT]) -> None:
        """Use `Session.subscribe`."""
        super().__init__(runner, subscription)
        self._left = runner.left

    @property
    def name(self) -> str | None:
        """Its name; None if it is not durable."""
        return self._awaited.name

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns of its topics."""
        return self._awaited.topics

    @property
    def selector(self) -> str:
        """Its selector; blank selects every event."""
        return self._awaited.selector

    @property
    def token(self) -> CheckpointToken:
        """The position after what was handed out. Store it with the effects, then acknowledge it."""
        if not self._runner.alive:
            return self._awaited.token
        return self._runner.do(lambda: self._awaited.token)

    def receive(self, timeout: float | None = None) -> ItemT | None:
        """Returns the next event (or silence, or gap); None if none came within `timeout` seconds, or after `drain`.

        Raises the errors of the iteration.
        """
        if self._left:
            self._runner.settle()
        event = self._awaited.hand_out()
        if event is not None:
            return event
        return self._runner.call(lambda: self._next_within(timeout), back=self._give_back)[0]

    def __iter__(self) -> Subscription[ItemT, GapT]:
        return self

    def __next__(self) -> ItemT:
        if self._left:
            self._runner.settle()
        event = self._awaited.hand_out()
        if event is not None:
            return event
        item, more = self._runner.call(lambda: self._next_within(None), back=self._give_back)
        if not more:
            raise StopIteration
        return item  # type: ignore[return-value]  # it is no None; a call of `cast` might be interrupted

    def _next_within(self, timeout: float | None) -> Awaitable[tuple[ItemT | None, bool]]:
        return self._awaited.next_within(timeout)

    def _give_back(self, done: asyncio.Future[tuple[ItemT | None, bool]]) -> None:
        """A caller has gone before it had an item: the next one gets it, and nothing of it is acknowledged."""
        give_back(self._awaited, done, lambda: done.result()[0])

    def batches(self, max_events: int = 1024, max_wait: float = 0) -> Batches[GapT]:
        """Iterates over batches; see `gapless.Subscription.batches`."""
        self._awaited.batches(max_events, max_wait)  # raises if the arguments are wrong
        return Batches(self._runner, self._awaited, max_events, max_wait)

    def acknowledge(self, token: CheckpointToken | None = None, timeout: float | None = None) -> None:
        """Acknowledges everything up to a position; see `gapless.Subscription.acknowledge`."""
        self._runner.call(lambda: self._awaited.acknowledge(token), timeout)

    def drain(self) -> None:
        """Ends the iteration after the current event. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._awaited.drain()

    def wait(self) -> bool:
        """Waits until something is there, and hands out nothing. Returns False if nothing will be."""
        return self._runner.call(self._awaited.wait, back=lambda done: give_back(self._awaited, done))

    def put_back(self, event: Event) -> None:
        """The event that was handed out last was not: it is the next one."""
        self._runner.do(lambda: self._awaited.put_back(event))

    def settle(self) -> None:
        """Waits until what was handed out is done with, as if more were asked for, where the ack mode waits at all."""
        self._runner.call(self._awaited.settle)

    def abandon(self) -> None:
        """Ends the consumption, and acknowledges nothing. Idempotent."""
        if self._runner.alive:
            self._runner.do(self._awaited.abandon)


class Batches(Generic[GapT]):
    """The iteration over a subscription's batches."""

    def __init__(
        self, runner: Runner, subscription: awaited.Subscription[Any, GapT], max_events: int, max_wait: float
    ) -> None:
        self._runner = runner
        self._subscription = subscription
        self._max_events = max_events
        self._max_wait = max_wait

    def __iter__(self) -> Batches[GapT]:
        return self

    def __next__(self) -> Batch | GapT:
        batch = self._runner.call(self._take, back=self._give_back)
        if batch is None:
            raise StopIteration
        return batch

    async def _take(self) -> Batch | GapT | None:
        try:
            return cast("Batch | GapT", await self._subscription.take_batch(self._max_events, self._max_wait))
        except StopAsyncIteration:
            return None

    def _give_back(self, done: asyncio.Future[Batch | GapT | None]) -> None:
        give_back(self._subscription, done, done.result)


class Source(Protocol):
    """What items are taken from."""

    def put_back(self, item: Any) -> None:
        """What was handed out last was not: it is next."""


def give_back(source: Source, done: asyncio.Future[Any], item_of: Callable[[], Any] = lambda: None) -> None:
    """Puts back the item of a call whose caller has gone; a gap, too, that was raised."""
    error = done.exception()
    item = item_of() if error is None else getattr(error, "gap", None)
    if item is not None:
        source.put_back(item)
