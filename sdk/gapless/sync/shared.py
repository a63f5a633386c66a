"""A shared subscription, blocking."""

from __future__ import annotations

import threading
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Generic, NoReturn, cast

from typing_extensions import TypeVar

import gapless.client.shared as awaited
from gapless.core.client.consuming.held import HeldEvent
from gapless.sync.blocking import Blocking
from gapless.sync.subscription import give_back

if TYPE_CHECKING:
    import asyncio

    from gapless.client.holds import HeldBatch, SettleT
    from gapless.sync.runner import Runner

HeldT = TypeVar("HeldT", default=HeldEvent)
GapT = TypeVar("GapT", default=NoReturn)


class SharedSubscription(Blocking[awaited.SharedSubscription[HeldT, GapT]], Generic[HeldT, GapT]):
    """Consumes a shared subscription, together with others; see `gapless.SharedSubscription`.

    Several threads may iterate at once, each with an iterator of its own: `for event in subscription`, or `receive`.
    Each event costs a call into the loop's thread; `batches` share it.
    """

    def __init__(self, runner: Runner, subscription: awaited.SharedSubscription[HeldT, GapT]) -> None:
        """Use `Session.subscribe`."""
        super().__init__(runner, subscription)
        self._of_thread = threading.local()

    @property
    def name(self) -> str:
        """Its name."""
        return self._awaited.name

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns of its topics."""
        return self._awaited.topics

    @property
    def selector(self) -> str:
        """Its selector; blank selects every event."""
        return self._awaited.selector

    def receive(self, timeout: float | None = None) -> HeldT | None:
        """Returns the next event (or gap); None if none came within `timeout` seconds, or after `drain`.

        Each thread that calls it has an iterator of its own: with AUTO, its call settles what the one before has
        returned in this thread. Raises the errors of the iteration.
        """
        iterator: SharedIterator[HeldT] | None = getattr(self._of_thread, "iterator", None)
        if iterator is None:
            iterator = self._of_thread.iterator = iter(self)
        return iterator.receive(timeout)

    def __iter__(self) -> SharedIterator[HeldT]:
        """Returns an iterator of its own: each thread has one."""
        return SharedIterator(self._runner, self._awaited)

    def batches(self, max_events: int = awaited.BATCH_EVENTS, max_wait: float = 0) -> SharedBatches[GapT]:
        """Iterates over batches; see `gapless.SharedSubscription.batches`."""
        self._awaited.batches(max_events, max_wait)  # raises if the arguments are wrong
        return SharedBatches(self._runner, self._awaited, max_events, max_wait)

    def acknowledge(self, items: SettleT, timeout: float | None = None) -> None:
        """This consumer is done with something, durably; see `gapless.SharedSubscription.acknowledge`.

        After `timeout` seconds it raises TimeoutError, and takes effect all the same.
        """
        self._runner.call(lambda: self._awaited.acknowledge(items), timeout)

    def retry(self, items: SettleT, delay: float = 0, timeout: float | None = None) -> None:
        """Gives something back, to come again; see `gapless.SharedSubscription.retry`. `timeout` as there."""
        self._runner.call(lambda: self._awaited.retry(items, delay), timeout)

    def extend(self, items: SettleT, timeout: float | None = None) -> None:
        """This consumer still works on something; see `gapless.SharedSubscription.extend`."""
        self._runner.call(lambda: self._awaited.extend(items), timeout)

    def drain(self) -> None:
        """Ends all iterations after what is in hand. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._awaited.drain()

    def abandon(self) -> None:
        """Ends the consumption now: what is held comes again, and what has no answer is uncertain. Idempotent."""
        if self._runner.alive:
            self._runner.do(self._awaited.abandon)


class SharedIterator(Generic[HeldT]):
    """One thread's iteration over the events of a shared subscription. It survives GapError."""

    def __init__(self, runner: Runner, subscription: awaited.SharedSubscription[HeldT, Any]) -> None:
        """Use `iter(subscription)`."""
        self._runner = runner
        self._left = runner.left
        self._awaited = awaited.SharedIterator(subscription)

    def __iter__(self) -> SharedIterator[HeldT]:
        return self

    def __next__(self) -> HeldT:
        item, more = self._next_within(None)
        if not more:
            raise StopIteration
        return item  # type: ignore[return-value]  # it is no None

    def receive(self, timeout: float | None) -> HeldT | None:
        """Returns the next item; None if none came within `timeout` seconds, or after `drain`."""
        return self._next_within(timeout)[0]

    def _next_within(self, timeout: float | None) -> tuple[HeldT | None, bool]:
        if self._left:
            self._runner.settle()

        def work() -> Awaitable[tuple[HeldT | None, bool]]:
            return self._awaited.next_within(timeout)

        return self._runner.call(work, back=self._give_back)

    def _give_back(self, done: asyncio.Future[tuple[HeldT | None, bool]]) -> None:
        """A caller has gone before it had an item: somebody else gets it, or the next call."""
        give_back(self._awaited, done, lambda: done.result()[0])


class SharedBatches(Generic[GapT]):
    """One thread's iteration over the batches of a shared subscription. It survives GapError."""

    def __init__(
        self, runner: Runner, subscription: awaited.SharedSubscription[Any, GapT], max_events: int, max_wait: float
    ) -> None:
        """Use `SharedSubscription.batches`."""
        self._runner = runner
        self._left = runner.left
        self._awaited = awaited.SharedBatches(subscription, max_events, max_wait)

    def __iter__(self) -> SharedBatches[GapT]:
        return self

    def __next__(self) -> HeldBatch | GapT:
        if self._left:
            self._runner.settle()
        batch = self._runner.call(self._take, back=self._give_back)
        if batch is None:
            raise StopIteration
        return batch

    async def _take(self) -> HeldBatch | GapT | None:
        try:
            return cast("HeldBatch | GapT", await anext(self._awaited))
        except StopAsyncIteration:
            return None

    def _give_back(self, done: asyncio.Future[HeldBatch | GapT | None]) -> None:
        give_back(self._awaited, done, done.result)
