"""A shared subscription as applications consume it: many consumers, each event held by one, and settled by itself."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, cast

from msgspec.structs import replace
from typing_extensions import TypeVar

from gapless import loggers, tracing
from gapless.client.awaitable import ClosedWhenLeft
from gapless.client.driver import Driver, Recipient
from gapless.client.holds import UNCERTAIN, HeldBatch, Hold, HoldWatch, Verdicts, decode_held, held_in
from gapless.core.client.consuming.held import HeldDelivery, HeldEvent, HeldGap
from gapless.core.wire.messages import Kind
from gapless.core.wire.messages.sharing import MILLISECONDS_MAX
from gapless.errors import ConnectionClosedError, GapError, GaplessError, SubscriptionError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from weakref import ref

    from gapless.client.holds import SettleT
    from gapless.client.options import OnGap
    from gapless.core.client import SubscribeOptions
    from gapless.core.client.consuming.sharing import SharedCore
    from gapless.core.client.link.effects import SettlementAnswered

HeldT = TypeVar("HeldT", default=HeldEvent)
"""The items of the iteration: HeldEvent, and Gap if it was asked for."""
GapT = TypeVar("GapT", default=NoReturn)
"""Gap, with `on_gap="deliver"`; otherwise Never."""

BATCH_EVENTS: Final = 64
"""By default a batch has so many events at most: as many as may be lost to one crash, and come again."""

log = loggers.logger("gapless.client")


class SharedSubscription(ClosedWhenLeft, Recipient, Generic[HeldT, GapT]):
    """Consumes a shared subscription, together with others: `async for event in subscription`, or `batches()`.

    Several tasks may iterate at once, each with an `async for` of its own. What is handed out is held by this consumer
    until it is settled: acknowledged, or retried. An event to which nobody refers any more is retried, with a warning.
    """

    def __init__(self, driver: Driver, wanted: SubscribeOptions, *, on_gap: OnGap, automatic: bool) -> None:
        """Use `Session.subscribe`."""
        self._driver = driver
        self._wanted = wanted
        self.raises_gaps = on_gap == "raise"
        """Whether a gap is raised, and not handed out."""
        self.automatic = automatic
        """Whether an iterator settles what it was handed when it asks for more."""
        self._returned: deque[HeldEvent | HeldGap | HeldBatch] = deque()
        """What was handed out to nobody: it is next."""
        self._waiting: dict[asyncio.Future[None], int] = {}
        """Those that wait for something, the longest first, and how many events each wants."""
        self._watches: set[HoldWatch] = set()
        self._gone: deque[HoldWatch] = deque()
        """The holds that are gone, with something that is not settled."""
        self._verdicts: dict[int, list[Verdicts]] = {}
        """The calls that wait for an answer, by the number of the settlement."""
        self._idle: asyncio.Future[None] | None = None
        """Whoever closes it waits until every call is answered."""
        self._draining = False
        self.is_closed = False
        """Whether its application has closed it."""
        self.was_there = False
        """Whether it existed before it was attached here."""
        self.untaken: tuple[str, ...] = ()
        """Some of its topics, if it was created here and no pubend takes events on them."""
        self._ended: GaplessError | None = None
        self._attached: asyncio.Future[None] = driver.loop.create_future()
        driver.check_open()
        self._number = driver.core.subscribe(wanted, driver.now())
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        over = ", over" if self._ended else ""
        return f"<SharedSubscription {self.name!r} to {', '.join(self.topics)}{over}>"

    # What it is.

    @property
    def name(self) -> str:
        """Its name."""
        return self._wanted.name or ""

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns of its topics."""
        return self._wanted.topics

    @property
    def selector(self) -> str:
        """Its selector; blank selects every event."""
        return self._wanted.selector

    # Consuming.

    def __aiter__(self) -> SharedIterator[HeldT]:
        """Returns an iterator of its own: each task has one."""
        return SharedIterator(self)

    def batches(self, max_events: int = BATCH_EVENTS, max_wait: float = 0) -> SharedBatches[GapT]:
        """Iterates over batches of at most `max_events` events, each of one pubend.

        A batch has the events that are there. With `max_wait` seconds, a batch that is not full waits so long for more.
        A gap is raised or yielded, according to `on_gap`. Several tasks may do so, each with an iterator of its own.
        """
        if max_events < 1 or max_wait < 0:
            raise ValueError("max_events is at least 1, and max_wait not negative")
        return SharedBatches(self, max_events, max_wait)

    async def acknowledge(self, items: SettleT) -> None:
        """This consumer is done with an event, a gap, a batch, or several of them: none of it comes again.

        It returns when that is durable. Who is cancelled meanwhile does not hear of it, and it takes effect all the
        same. To acknowledge something once more does nothing.

        Raises HoldLostError for what is not held any more, which has `.events`: the rest counts. Raises
        SettlementUncertainError if nobody knows whether it took effect; SubscriptionError for what this subscription
        has not handed out; and the error that ended it if it is over.
        """
        await self.say(Kind.ACKNOWLEDGE, items).answer

    async def retry(self, items: SettleT, delay: float = 0) -> None:
        """Gives something back: it comes again, to this consumer or to another one, after `delay` seconds.

        The broker rounds the time at which it comes again up to hundredths of a second. It counts as one more attempt,
        and is marked. It returns when that is durable; the delay itself is not, so a crash of the broker shortens it.
        Raises the errors of `acknowledge`.
        """
        delay_ms = math.ceil(delay * 1000) if 0 <= delay < math.inf else -1
        if not 0 <= delay_ms <= MILLISECONDS_MAX:
            raise ValueError(f"delay is a number of seconds from 0 to {MILLISECONDS_MAX // 1000:,}, not {delay!r}")
        await self.say(Kind.RETRY, items, delay_ms).answer

    async def extend(self, items: SettleT) -> None:
        """This consumer still works on something: the time for which it holds it (`hold_seconds`) begins anew.

        It is queued, and nothing answers it. Raises HoldLostError for what is known not to be held any more; the rest
        counts.
        """
        self._check_alive()
        call = Verdicts(self._driver.loop.create_future())
        numbers: list[int] = []
        for held in held_in(items, self):
            numbers += call.add(held)
        for number in self._driver.core.extend(self._number, numbers, self._driver.now()):
            call.lost[number] = None
        self._driver.touch()
        if error := call.outcome():
            raise error

    def drain(self) -> None:
        """Ends all iterations after what is in hand. It is a plain call, for use in signal handlers.

        What has arrived and was not handed out goes back, so that other consumers have it at once. What is held can
        still be settled.
        """
        self._draining = True
        if not self._driver.loop.is_closed():
            # A signal handler may interrupt the loop anywhere, so the loop itself has to do it.
            self._driver.loop.call_soon_threadsafe(self._drain)

    async def close(self) -> None:
        """Ends the consumption, as leaving the block does. A durable subscription lives on. Idempotent.

        What was not handed out goes back, and it waits until what was settled is durable. What is held and not settled
        comes again, marked: to others at once. Raises ConnectionClosedError if the broker stands still for 3 s, or is
        not there, or does not answer for 4 s: whoever waits in `acknowledge` or `retry` gets SettlementUncertainError
        then.
        """
        if self._ended is None:
            self._draining = True
            self._drain()
            try:
                is_done = await self._driver.while_alive(self._answered()) or not self._awaits_verdicts
            finally:  # cancelled, too: others wait for what a consumer holds that nobody has
                self.abandon()
            if not is_done:
                raise ConnectionClosedError(
                    "the broker gives no sign of life, so it is not known whether what was settled last of"
                    f" subscription {self.name!r} is durable: if it is not, it comes again"
                )

    # Used by the session, the iterators and the blocking facade.

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or ended by the broker."""
        return self._ended is not None

    async def attached(self) -> None:
        """Waits until the broker has attached it. Raises the reason if it does not."""
        try:
            await self._attached
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Ends the consumption now. What is held comes again, and what has no answer is uncertain."""
        self.is_closed = True
        if self._ended is None:
            driver = self._driver
            self._give_back_returned()
            self._end(SubscriptionError("the subscription was closed"))
            driver.core.detach(self._number, driver.now())
            driver.unregister(self._number)
            driver.touch()

    def say(self, kind: Kind, items: SettleT, delay_ms: int = 0) -> Verdicts:
        """Settles something. Returns the call, which will have an answer."""
        self._check_alive()
        driver = self._driver
        call = Verdicts(driver.loop.create_future())
        fresh: list[tuple[Hold, Sequence[int]]] = []
        for held in held_in(items, self):
            said, numbers = held.hold.said, call.add(held)
            if not said:
                fresh.append((held.hold, numbers))
                continue
            fresh.append((held.hold, [number for number in numbers if number not in said]))
            for number in numbers:
                before = said.get(number)
                if before == UNCERTAIN:
                    call.uncertain = True
                elif before and kind is Kind.ACKNOWLEDGE:  # acknowledged already: durably, or it is on its way
                    call.wait_for(settlement for settlement in before if settlement in self._verdicts)
                elif before is not None:
                    call.lost[number] = None
        flat = fresh[0][1] if len(fresh) == 1 else [number for _, numbers in fresh for number in numbers]
        settlements, lost = driver.core.settle(self._number, kind, flat, driver.now(), delay_ms)
        by = tuple(settlements) if kind is Kind.ACKNOWLEDGE else ()
        for hold, numbers in fresh:
            hold.said.update(dict.fromkeys(numbers, by))
        call.wait_for(settlements)
        for number in lost:
            call.lose(number)
        for settlement in call.unanswered:
            self._verdicts.setdefault(settlement, []).append(call)
        driver.touch()
        if not call.unanswered:
            self._answer(call, call.outcome())
        return call

    def settle_by_itself(self, item: HeldEvent | HeldGap | HeldBatch) -> None:
        """With AUTO: acknowledges what an iterator was handed last. Nobody waits for it."""
        call = self.say(Kind.ACKNOWLEDGE, item)
        call.answer.add_done_callback(_tell_unheard)

    def put_back(self, item: HeldEvent | HeldGap | HeldBatch) -> None:
        """What was handed out was not, for nobody was there to take it: it is the next item."""
        self._returned.append(item)
        if self._draining or self._ended is not None:
            self._give_back_returned()
        else:
            self._wake_one()

    async def next_event(self, until: float | None) -> HeldEvent | HeldGap:
        """Waits for the next event, or gap. The rest as of `next_batch`."""
        item = await self._next_item(1, until)
        if isinstance(item, HeldBatch):  # it was handed out to nobody
            self._returned.extendleft(reversed(item))
            item = self._returned.popleft()
        if isinstance(item, HeldDelivery):
            hold = self._hold(item.numbers)
            events = decode_held(item, hold)
            if tracing.is_used():
                tracing.received(events, self.name)
            return events[0]
        assert not isinstance(item, HeldBatch)
        return self._held_gap(item) if isinstance(item, HeldGap) else item

    async def next_batch(self, max_events: int, until: float | None) -> HeldBatch | HeldGap:
        """Waits for the next batch of up to so many events, or gap. Raises StopAsyncIteration if there will be none.

        `until`: when it raises TooLateError, in the loop's time.
        """
        item = await self._next_item(max_events, until)
        if isinstance(item, HeldDelivery):
            return HeldBatch(item.pubend, item, item.numbers, self._hold(item.numbers))
        if isinstance(item, HeldEvent):  # it was handed out to nobody
            return HeldBatch(item.pubend, [item], (item.delivery_number,), item.hold)
        return self._held_gap(item) if isinstance(item, HeldGap) else item

    async def _next_item(self, max_events: int, until: float | None) -> HeldDelivery | HeldEvent | HeldGap | HeldBatch:
        """Waits for the next item: up to so many events. Raises StopAsyncIteration if there will be none.

        `until`: when it raises TooLateError, in the loop's time.
        """
        while (item := self._next_at_hand(max_events)) is None:
            timeout = None
            if until is not None:
                timeout = until - self._driver.loop.time()
                if timeout <= 0:
                    raise TooLateError
            await self._arrival(max_events, timeout)
        return item

    async def gather(self, max_events: int, max_wait: float) -> None:
        """Waits until a full batch is there, or until `max_wait` seconds after the first event of it."""
        clock = self._driver.loop.time
        until: float | None = None
        while self._ended is None and not self._draining and not self._returned:
            core = self._core
            if core is None or core.ready_events >= max_events:
                return
            if until is None and core.has_something:
                until = clock() + max_wait
            left = None if until is None else until - clock()
            if left is not None and left <= 0:
                return
            core.take_ahead(max_events)
            core.expect_more()
            self._driver.touch()
            await self._arrival(max_events, left)

    # Effects of the core.

    def on_answered(self, result: Any) -> None:
        """The broker has attached it, for the first time."""
        self.was_there = not result.created
        self.untaken = result.untaken
        if not self._attached.done():
            self._attached.set_result(None)

    def on_failed(self, error: GaplessError) -> None:
        """It is over."""
        self._end(error)
        if not self._attached.done():
            self._attached.set_exception(error)
            self._attached.exception()  # marks it as seen

    def on_dropped(self, error: GaplessError) -> None:
        """It is over here, and what is at hand is somebody else's."""
        self._ended = error
        self._watches.clear()

    def on_arrived(self) -> None:
        """There is something to take."""
        self._wake_one()

    def on_settled(self, answered: SettlementAnswered) -> None:
        """A settlement is durable."""
        for call in self._verdicts.pop(answered.number, ()):
            if call.on_answer(answered.number, answered.lost, uncertain=answered.uncertain):
                self._answer(call, call.outcome())
        self._look_whether_idle()

    # How it is done.

    @property
    def _core(self) -> SharedCore | None:
        return self._driver.core.shared_subscription(self._number)

    def _next_at_hand(self, max_events: int) -> HeldDelivery | HeldEvent | HeldGap | HeldBatch | None:
        """Returns the next item; None if it is not there yet. Raises StopAsyncIteration if there will be none."""
        self._check_alive()
        if self._draining:
            raise StopAsyncIteration
        if self._returned:
            return self._returned.popleft()
        driver = self._driver
        wanted = max_events + sum(self._waiting.values())
        item = driver.core.take_held(self._number, driver.now(), max_events, wanted)
        driver.touch()
        if item is not None and self._waiting:
            core = self._core
            if core is not None and core.has_something:
                self._wake_one()
            elif core is not None:
                core.expect_more()  # somebody waits who has not seen that there is nothing
        return item

    async def _arrival(self, max_events: int, timeout: float | None) -> None:
        """Waits until something arrives for this caller, or the subscription changes, or `timeout` seconds pass."""
        loop = self._driver.loop
        waiting = loop.create_future()
        self._waiting[waiting] = max_events
        timer = None if timeout is None else loop.call_later(timeout, _wake, waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._wake_one()  # somebody else, who waits for the same
            raise
        finally:
            del self._waiting[waiting]
            if timer is not None:
                timer.cancel()

    def _wake_one(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
                return

    def _drain(self) -> None:
        """In the loop: all iterations end, and what was not handed out goes back."""
        if self._ended is None:
            self._give_back_returned()
            self._driver.core.drain(self._number, self._driver.now())
            self._driver.touch()  # what still comes goes back, too: the broker sends no more when it has heard that
        for waiting in self._waiting:
            _wake(waiting)

    def _hold(self, numbers: Sequence[int], *, is_raised: bool = False) -> Hold:
        """Returns what goes when nobody refers any more to what is handed out now.

        A gap that is raised is settled then: who has caught the error has been told. If the block is left by it, it is
        not settled, and another consumer is told.
        """
        hold = Hold(self)
        watch = HoldWatch(hold, self._on_gone)
        watch.numbers = numbers
        watch.kind = Kind.ACKNOWLEDGE if is_raised else Kind.RETRY
        self._watches.add(watch)
        return hold

    def _held_gap(self, gap: HeldGap) -> HeldGap:
        if gap.hold is not None:  # it was handed out to nobody
            return gap
        return replace(gap, hold=self._hold((gap.delivery_number,), is_raised=self.raises_gaps))

    def _on_gone(self, watch: ref[Hold]) -> None:
        """Nobody refers any more to what was handed out together. It may be called in any thread, anywhere."""
        assert isinstance(watch, HoldWatch)
        self._watches.discard(watch)
        if self._ended is not None:
            return
        core = self._core
        if core is None or not core.holds_any(watch.numbers):
            return
        self._gone.append(watch)
        try:
            self._driver.loop.call_soon_threadsafe(self._settle_gone)
        except RuntimeError:  # the loop has ended, and the connection with it
            self._gone.clear()

    def _settle_gone(self) -> None:
        """Says of what nobody refers to what is to be said of it."""
        while self._gone:
            watch = self._gone.popleft()
            core = self._core
            if core is None or self._ended is not None:
                continue
            places = {number: place for number in watch.numbers if (place := core.place(number))}
            if places and watch.kind is Kind.RETRY:
                ids = ", ".join(f"ID:{pubend}:{tick}" for pubend, tick in list(places.values())[:3])
                more = f" and {len(places) - 3} more" if len(places) > 3 else ""
                log.warning(
                    "nobody refers any more to %s%s of subscription %r, which was not settled: it is retried",
                    ids,
                    more,
                    self.name,
                )
            self._driver.core.settle(self._number, watch.kind, places, self._driver.now())
            self._driver.touch()

    def _give_back_returned(self) -> None:
        """What was handed out to nobody is as it was before it was delivered."""
        numbers = [number for held in held_in(self._returned, self) for number in held.numbers]
        self._returned.clear()
        if numbers and self._core is not None:
            self._driver.core.settle(self._number, Kind.RELEASE, numbers, self._driver.now())
            self._driver.touch()

    @property
    def _awaits_verdicts(self) -> bool:
        core = self._core
        return core is not None and core.awaits_verdicts

    async def _answered(self) -> None:
        """Waits until what was settled is durable, and what was given back; without a broker for the former alone."""
        core = self._core
        if core is None or not (core.awaits_verdicts or self._driver.core.connected):
            return
        if not core.is_settled:
            if self._idle is None or self._idle.done():
                self._idle = self._driver.loop.create_future()
            await asyncio.wait([self._idle])

    def _look_whether_idle(self) -> None:
        core = self._core
        if self._idle is not None and not self._idle.done() and (core is None or core.is_settled):
            self._idle.set_result(None)

    def _answer(self, call: Verdicts, error: GaplessError | None) -> None:
        if call.answer.done():  # its caller was cancelled
            _tell(error)
        elif error is None:
            call.answer.set_result(None)
        else:
            call.answer.set_exception(error)

    def _end(self, error: GaplessError) -> None:
        self._ended = error
        self._watches.clear()
        self._returned.clear()
        calls = {id(call): call for waiting in self._verdicts.values() for call in waiting}
        self._verdicts.clear()
        for call in calls.values():
            is_closed = isinstance(error, ConnectionClosedError) or self.is_closed
            self._answer(call, call.doubt(f"{error} before the broker answered") if is_closed else error)
        self._look_whether_idle()
        for waiting in self._waiting:
            _wake(waiting)

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise self._ended
        self._driver.check_here()


class TooLateError(Exception):
    """Nothing came in time."""


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _tell_unheard(answer: asyncio.Future[None]) -> None:
    """Nobody waits for the answer: what is wrong with it is told in the log."""
    if not answer.cancelled():
        _tell(cast("GaplessError | None", answer.exception()))


def _tell(error: GaplessError | None) -> None:
    if error is not None:
        log.warning("what was settled, and nobody waits for: %s", error)


class SharedIterator(Generic[HeldT]):
    """One task's iteration over the events of a shared subscription. It survives GapError."""

    def __init__(self, subscription: SharedSubscription[HeldT, Any]) -> None:
        """Use `aiter(subscription)`."""
        self._subscription = subscription
        self._in_hand: HeldEvent | HeldGap | None = None
        """With AUTO: what it was handed last, and is not settled."""

    def __aiter__(self) -> SharedIterator[HeldT]:
        return self

    async def __anext__(self) -> HeldT:
        return await self._next(None)

    async def next_within(self, timeout: float | None) -> tuple[HeldT | None, bool]:
        """Returns the next item, or None if none came within so many seconds; and whether more may come."""
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            return await self._next(until), True
        except StopAsyncIteration:
            return None, False
        except TooLateError:
            return None, True

    def put_back(self, item: HeldEvent | HeldGap) -> None:
        """What was handed out last was not: somebody else, or this iterator, is handed it next."""
        self._in_hand = None
        self._subscription.put_back(item)

    async def _next(self, until: float | None) -> HeldT:
        subscription = self._subscription
        if self._in_hand is not None:
            in_hand, self._in_hand = self._in_hand, None
            subscription.settle_by_itself(in_hand)
        item = await subscription.next_event(until)
        if subscription.automatic:
            self._in_hand = item
        if isinstance(item, HeldGap) and subscription.raises_gaps:
            raise GapError(item)
        return cast("HeldT", item)


class SharedBatches(Generic[GapT]):
    """One task's iteration over the batches of a shared subscription. It survives GapError."""

    def __init__(self, subscription: SharedSubscription[Any, GapT], max_events: int, max_wait: float) -> None:
        """Use `SharedSubscription.batches`."""
        self._subscription = subscription
        self._max_events = max_events
        self._max_wait = max_wait
        self._in_hand: HeldBatch | HeldGap | None = None

    def __aiter__(self) -> SharedBatches[GapT]:
        return self

    async def __anext__(self) -> HeldBatch | GapT:
        subscription = self._subscription
        if self._in_hand is not None:
            in_hand, self._in_hand = self._in_hand, None
            subscription.settle_by_itself(in_hand)
        if self._max_wait:
            await subscription.gather(self._max_events, self._max_wait)
        item = await subscription.next_batch(self._max_events, None)
        if subscription.automatic:
            self._in_hand = item
        if isinstance(item, HeldGap) and subscription.raises_gaps:
            raise GapError(item)
        return cast("HeldBatch | GapT", item)

    def put_back(self, item: HeldBatch | HeldGap) -> None:
        """What was handed out last was not: somebody else, or this iterator, is handed it next."""
        self._in_hand = None
        self._subscription.put_back(item)
