"""A subscription as applications consume it: events, silences and gaps, and the position after them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, NoReturn, cast

from typing_extensions import TypeVar

from gapless import tracing
from gapless.client.awaitable import ClosedWhenLeft
from gapless.client.batches import Batch, decode
from gapless.client.driver import Driver, Recipient
from gapless.client.ranges.healing import Healing
from gapless.core.client import Delivery, Gap, Silence
from gapless.core.stream.events import Event
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import (
    ConnectionClosedError,
    GapError,
    GaplessError,
    InvalidTokenError,
    SubscriptionError,
    TokenMismatchError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.client.ack_modes import ByToken
    from gapless.client.options import OnGap
    from gapless.client.ranges.archives import Selection
    from gapless.client.ranges.healing import Piece
    from gapless.core.client import SubscribeOptions
    from gapless.core.client.consuming.subscription import SubscriptionCore
    from gapless.core.stream.ticks import PubendId, Tick

ItemT = TypeVar("ItemT", default=Event)
"""The items of the iteration: Event, and Silence and Gap if they were asked for."""
GapT = TypeVar("GapT", default=NoReturn)
"""Gap, with `on_gap="deliver"`; otherwise Never."""


class Subscription(ClosedWhenLeft, Recipient, Generic[ItemT, GapT]):
    """Consumes a subscription: `async for event in subscription`, or `subscription.batches()`.

    One task at a time may iterate. A cancelled `anext` loses nothing. The iteration survives GapError: it goes on after
    the gap. If the block is left by an exception, nothing is acknowledged.
    """

    def __init__(
        self,
        driver: Driver,
        wanted: SubscribeOptions,
        *,
        on_gap: OnGap,
        policy: type[ByToken],
        selection: Selection | None = None,
    ) -> None:
        """Use `Session.subscribe`."""
        self._driver = driver
        self._wanted = wanted
        self._raises_gaps = on_gap == "raise"
        self._policy = policy(self)
        self._steps = policy.needs_every_step
        self._take_next = driver.core.take_unit if policy.commits else driver.core.take
        self._events: list[Event] = []
        """The events that were taken and not handed out; the next one is the last."""
        self.last: Event | Silence | Gap | None = None
        """The last item that was handed out from the current delivery or gap."""
        self._selection = selection
        """What an archive has for it."""
        self._healing: Healing | None = None
        """The current gap, while an archive has more items for its place."""
        self._put_back = False
        """Whether the next item was handed out to nobody, so that there is nothing to be done with before it."""
        self._returned: Silence | Gap | None = None
        """A silence or a gap that was handed out to nobody: it is next."""
        self._given_up: list[Event] = []
        """The events that were taken and will not be handed out."""
        self._draining = False
        self.gathers = policy.gathers
        """Whether it is acknowledged and recovered with its session."""
        self.is_closed = False
        """Whether its application has closed it."""
        self.was_there = False
        """Whether it existed before it was attached here."""
        self.untaken: tuple[str, ...] = ()
        """Some of its topics, if it was created here and no pubend takes events on them."""
        self._ended: GaplessError | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._until: float | None = None
        """When `next_within` gives up, in the loop's time. It belongs to the one caller that iterates."""
        self._origin: CheckpointToken | None = None
        self._attached: asyncio.Future[None] = driver.loop.create_future()
        driver.check_open()
        self._number = driver.core.subscribe(wanted, driver.now())
        core = driver.core.subscription(self._number)
        assert core is not None
        self._core: SubscriptionCore = core
        driver.register(self._number, self)
        driver.touch()

    def __repr__(self) -> str:
        return f"<Subscription {self.name!r} to {', '.join(self.topics)}{', over' if self._ended else ''}>"

    # What it is.

    @property
    def name(self) -> str | None:
        """Its name; None if it is not durable."""
        return self._wanted.name

    @property
    def topics(self) -> tuple[str, ...]:
        """The patterns of its topics."""
        return self._wanted.topics

    @property
    def selector(self) -> str:
        """Its selector; blank selects every event."""
        return self._wanted.selector

    @property
    def token(self) -> CheckpointToken:
        """The position after what was handed out. Store it with the effects, then acknowledge it."""
        return self._own_origin().advance(self._positions())

    # Consuming.

    def __aiter__(self) -> Subscription[ItemT, GapT]:
        return self

    async def __anext__(self) -> ItemT:
        # As `_ask_for` and `_next` do it, but a coroutine is made only where something has to be waited for.
        if self._steps and not self._put_back:
            self._check_alone()
            if self._policy.on_asked(1):
                await self._durable()
        if not self._events:
            item = self._next_at_hand(None) or await self._next(None)
            if isinstance(item, Delivery):
                events = decode(item)
                if tracing.is_used():
                    tracing.received(events, self.name)
                self._hold(events)
            elif isinstance(item, list):
                self._hold(item)
            else:
                return cast("ItemT", self._gap(item) if isinstance(item, Gap) else item)
        event = self.last = self._events.pop()
        self._put_back = False
        return cast("ItemT", event)

    def batches(self, max_events: int = 1024, max_wait: float = 0) -> Batches[GapT]:
        """Iterates over batches of at most `max_events` events, each of one pubend.

        A batch has the events that are there. With `max_wait` seconds, a batch that is not full waits so long for more.
        A gap is raised or yielded, according to `on_gap`; silence only moves the position.
        """
        if max_events < 1 or max_wait < 0:
            raise ValueError("max_events is at least 1, and max_wait not negative")
        return Batches(self, max_events, max_wait)

    async def acknowledge(self, token: CheckpointToken | None = None) -> None:
        """Acknowledges everything up to a position: the system may release it. Cumulative, and queued.

        Without a token: everything that was handed out. Raises TokenMismatchError for a token of another subscription
        or network, and the error that ended the subscription if it is over.

        A position ahead of everything that a pubend has is never accepted: it ends the subscription with
        TokenAheadError.
        """
        self._check_alive()
        self.acknowledge_ticks(self._positions() if token is None else self._checked(token).ticks)

    def drain(self) -> None:
        """Ends the iteration after the current event. It is a plain call, for use in signal handlers.

        Events that have arrived and were not handed out come again when the subscription is resumed. `acknowledge`
        still works.
        """
        self._draining = True
        self._give_up()
        if not self._driver.loop.is_closed():
            # A signal handler may interrupt the loop anywhere, so the loop itself has to wake the consumer.
            self._driver.loop.call_soon_threadsafe(self._wake)

    async def close(self) -> None:
        """Ends the consumption, as leaving the block does. A durable subscription lives on. Idempotent.

        With AUTO, what was handed out last is committed before. Raises ConnectionClosedError if the broker stands still
        for 3 s, or is not there, or does not answer for 4 s: then it is not known whether that was committed.
        """
        if self._ended is None:
            try:
                is_done = await self._driver.while_alive(self._policy.on_closed())
            finally:  # cancelled, too: a consumer that nobody has would keep the others out
                self.abandon()
            if not is_done:
                raise ConnectionClosedError(
                    f"the broker gives no sign of life, so it is not known whether what subscription {self.name!r} was"
                    " handed last is committed: if it is not, it comes again, and is redelivered"
                )

    # Used by the session, the acknowledgement policy and the blocking facade.

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
        """Ends the consumption. The current delivery is not acknowledged."""
        self.is_closed = True
        if self._ended is None:
            self._end(SubscriptionError("the subscription was closed"))
            self._driver.core.detach(self._number, self._driver.now())
            self._driver.unregister(self._number)
            self._driver.touch()

    async def acknowledge_durably(self) -> None:
        """Acknowledges everything that was handed out, as the policy does when the application says so."""
        self._check_alive()
        await self._policy.on_acknowledged()

    @property
    def last_topic(self) -> str:
        """The topic of the event that was handed out last; "" if it was none."""
        return self.last.topic if isinstance(self.last, Event) else ""

    def consumed(self) -> tuple[int, Mapping[PubendId, Tick]] | None:
        """Returns its number in the core and its positions, if it was handed what is not committed."""
        committing = self._core.committing
        return (self._number, self._positions()) if committing is not None and committing.in_hand else None

    async def recover(self) -> None:
        """Has everything handed out again that was, and is not acknowledged.

        It may be cancelled and repeated: what is under way then goes on, as nothing was handed out since.
        """
        await self._durable()
        if self._attached.done():
            self._begin_again()
        await asyncio.wait([self._attached])
        self._attached.result()

    def _begin_again(self) -> None:
        """Asks for everything that was handed out and is not acknowledged."""
        driver, former = self._driver, self._number
        handed = self._positions()
        self._events, self._put_back, self._returned, self.last = [], False, None, None
        self._given_up = []
        if self._healing is not None:
            self._healing.stop()
            self._healing = None
        driver.unregister(former)
        self._number = driver.core.recover(former, handed, driver.now())
        core = driver.core.subscription(self._number)
        assert core is not None, "what was alive goes on"
        self._core = core
        self._attached = driver.loop.create_future()
        driver.register(self._number, self)
        driver.touch()
        self._wake()

    def put_back(self, item: Event | Silence | Gap | Batch) -> None:
        """What was handed out last was not, for nobody was there to take it: it is next, and the token before it.

        Idempotent, for one and the same event.
        """
        if self._put_back and self._events and self._events[-1] is item:
            return
        if isinstance(item, (Silence, Gap)):
            self._returned = item
            self.last = Silence(item.pubend, item.start, item.start)
        else:
            events = [item] if isinstance(item, Event) else list(item)
            self._events += reversed(events)
            self.last = Silence(events[0].pubend, events[0].tick - 1, events[0].tick - 1)
        self._put_back = True
        if self._draining or self._ended is not None:
            self._give_up()

    async def wait(self) -> bool:
        """Waits until something is there, and hands out nothing. Returns False if nothing will be.

        Raises the errors of the iteration; a gap is not handed out again.
        """
        item, more = await self.next_within(None)
        if isinstance(item, Event):
            self.put_back(item)
        return more

    async def settle(self) -> None:
        """Waits until what was handed out is done with, as if the next event were asked for; but hands out nothing."""
        await self._ask_for(1)

    def begin_commit(self, max_events: int) -> bool:
        """Begins to make durable that everything that was handed out is done with. So many events are asked for next.

        Returns whether that has to be waited for. What is under way already is not begun again.
        """
        self._check_alive()
        driver = self._driver
        waits = driver.core.commit(self._number, self._positions(), max_events, driver.now())
        driver.touch()
        return waits

    async def commit(self, max_events: int) -> None:
        """The same, and waits until it is durable. If something is under way, it is waited for first."""
        await self._durable()
        if self.begin_commit(max_events):
            await self._durable()

    async def _durable(self) -> None:
        """Waits until everything is durable that was asked to be."""
        self._check_alive()
        committing = self._core.committing
        while committing is not None and committing.under_way is not None:
            if self._waiting is not None:  # another task iterates, while this one closes the subscription
                await asyncio.wait([self._waiting])
            else:
                await self._arrival(None if self._until is None else self._left(self._until))
            self._check_alive()

    def acknowledge_behind(self, last: Event | Silence | Gap | None) -> None:
        """Acknowledges everything up to an item of the current delivery; None: everything before that delivery."""
        if self._ended is None:
            self.acknowledge_ticks(self._behind(last))

    def acknowledge_ticks(self, ticks: Mapping[PubendId, Tick]) -> None:
        """Acknowledges everything up to these ticks, unless it is over."""
        if self._ended is None:
            self._driver.core.acknowledge(self._number, ticks, self._driver.now())
            self._driver.touch()

    def hand_out(self) -> ItemT | None:
        """Returns the next event if it is at hand and the policy need not be called; None otherwise.

        For the blocking facade, in its caller's thread: a signal handler may raise anywhere in here.
        """
        events = self._events  # read once: another thread may replace it by an empty list
        if not events or (self._steps and not self._put_back):
            return None
        event = events[-1]
        try:
            event = self.last = events.pop()
            self._put_back = False
            return event  # type: ignore[return-value]  # ItemT is Event at least; a call of `cast` might be interrupted
        except BaseException:
            if not events or events[-1] is not event:
                self.put_back(event)
            raise

    async def next_within(self, timeout: float | None) -> tuple[ItemT | None, bool]:
        """Returns the next item, or None if none came within so many seconds; and whether more may come."""
        self._check_alone()
        self._until = None if timeout is None else self._driver.loop.time() + timeout
        try:
            return await self.__anext__(), True
        except StopAsyncIteration:
            return None, False
        except _TooLateError:
            return None, True
        finally:
            self._until = None

    async def take_batch(self, max_events: int, max_wait: float) -> Batch | Gap:
        """Waits for the next batch, or gap."""
        await self._ask_for(0 if max_wait else max_events)
        if max_wait and not self._events and self._healing is None and self._returned is None:
            await self._gather(max_events, max_wait)
        while not self._events:
            item = await self._next(max_events)
            if isinstance(item, Delivery):
                return Batch(item.pubend, item, self._own_origin(), self._positions())
            if isinstance(item, Gap):
                return self._gap(item)
            if isinstance(item, list):
                self._hold(item)
        self._put_back = False
        chosen = self._events[: -max_events - 1 : -1]
        del self._events[-max_events:]
        self.last = chosen[-1]
        return Batch(chosen[-1].pubend, chosen, self.token)

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
            self._attached.exception()  # marks it as seen: a recover that was cancelled does not look
        self._driver.tell_change()

    def on_dropped(self, error: GaplessError) -> None:
        """It is over here, and what is at hand is somebody else's."""
        self._ended = error
        self._give_up()

    def on_arrived(self) -> None:
        """There is something to take."""
        self._wake()
        if self.gathers:  # a transaction may wait for what is durable now
            self._driver.tell_change()

    # How it is done.

    async def _ask_for(self, max_events: int) -> None:
        """The application asks for the next events, and is done with those before: waits until the next may come."""
        if self._steps and not self._put_back:
            self._check_alone()
            if self._policy.on_asked(max_events):
                await self._durable()

    def _hold(self, events: list[Event]) -> None:
        """Makes events the current delivery. Raises StopAsyncIteration if they must not be handed out."""
        events.reverse()
        self._events = events
        if self._draining:  # a signal handler was called within the last few lines
            self._give_up()
            raise StopAsyncIteration

    async def _next(self, max_events: int | None) -> Delivery | Piece:
        """Waits for the next item. Raises StopAsyncIteration if there will be none."""
        while (item := self._next_at_hand(max_events)) is None:
            await self._arrival(None if self._until is None else self._left(self._until))
        return item

    def _next_at_hand(self, max_events: int | None) -> Delivery | Piece | None:
        """Returns the next item; None if it is not there yet. Raises StopAsyncIteration if there will be none."""
        self._check_alive()
        if self._draining:
            raise StopAsyncIteration
        self._check_alone()
        if self._returned is not None:
            item = self.last = self._returned
            self._returned, self._put_back = None, False
            return item
        healing = self._healing
        return self._take_item(max_events) if healing is None else self._take_piece(healing, max_events)

    def _take_item(self, max_events: int | None) -> Delivery | Silence | Gap | None:
        """Returns the core's next item; None if there is none, or if it is a gap that may be filled."""
        item = self._take_next(self._number, self._driver.now(), max_events)
        self.last = None
        self._policy.on_taken()
        self._driver.touch()
        if isinstance(item, Gap) and self._selection is not None:
            self._healing = Healing(item, self._selection, self._wake, wants_silence=self._wanted.silence)
            return None
        return item

    def _take_piece(self, healing: Healing, max_events: int | None) -> Delivery | Piece | None:
        """Returns the next item in the place of a gap, or after it; None if there is none yet."""
        piece = healing.take()
        while isinstance(piece, Silence) and not self._wanted.silence:
            self.last = piece
            piece = healing.take()
        if isinstance(piece, (Silence, Gap)):
            self.last = piece
        if healing.is_over:
            self._healing = None
            if piece is None:
                return self._take_item(max_events)
        return piece

    def _left(self, until: float) -> float:
        """Returns how many seconds `next_within` has left. Raises _TooLateError if there are none."""
        left = until - self._driver.loop.time()
        if left <= 0:
            raise _TooLateError
        return left

    async def _arrival(self, timeout: float | None) -> None:
        """Waits until something arrives, or the subscription changes, or `timeout` seconds have passed."""
        loop = self._driver.loop
        waiting = self._waiting = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, self._wake)
        try:
            await waiting
        finally:
            self._waiting = None
            if timer is not None:
                timer.cancel()

    async def _gather(self, max_events: int, max_wait: float) -> None:
        """Waits until a full batch is there, or until `max_wait` seconds after the first event of it."""
        clock = self._driver.loop.time
        until: float | None = None
        while self._ended is None and not self._draining and self._core.buffered_events < max_events:
            if until is None and self._core.has_something:
                until = clock() + max_wait
            left = None if until is None else until - clock()
            if left is not None and left <= 0:
                return
            self._check_alone()
            self._core.expect_more()
            await self._arrival(left)

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _gap(self, gap: Gap) -> Gap:
        if self._raises_gaps:
            raise GapError(gap)
        return gap

    def _positions(self) -> dict[PubendId, Tick]:
        """Returns the positions after everything that was handed out."""
        if not (self._events or self._given_up) and self._healing is None and self._returned is None:
            return self._core.end_positions()
        return self._behind(self.last)

    def _behind(self, last: Event | Silence | Gap | None) -> dict[PubendId, Tick]:
        """Returns the positions after an item of the current delivery or gap; None: before the delivery."""
        positions = self._core.positions()
        if last is not None:
            positions[last.pubend] = last.tick if isinstance(last, Event) else last.end
        return positions

    def _give_up(self) -> None:
        """Drops the rest of the current delivery; the position stays before it."""
        if self._events:
            self._given_up, self._events = self._events, []

    def _end(self, error: GaplessError) -> None:
        self._ended = error
        if self._healing is not None:
            self._healing.stop()
        self._give_up()
        self._wake()

    def _check_alive(self) -> None:
        if self._ended is not None:
            raise self._ended
        self._driver.check_here()

    def _check_alone(self) -> None:
        if self._waiting is not None:
            raise SubscriptionError("another task waits for this subscription: one at a time iterates")

    def _own_origin(self) -> CheckpointToken:
        core, origin = self._core, self._origin
        if origin is None or (origin.home, origin.sid) != (core.home, core.sid):
            network = self._driver.core.network
            origin = self._origin = CheckpointToken(network, {}, core.sid, core.generation, core.seal, core.home)
        return origin

    def _checked(self, token: CheckpointToken) -> CheckpointToken:
        """Returns the token if it belongs to this subscription, or to none; raises otherwise."""
        if not isinstance(token, CheckpointToken):
            raise InvalidTokenError(f"a CheckpointToken is acknowledged, not {type(token).__name__}")
        own = self._own_origin()
        if token.network != own.network:
            raise TokenMismatchError(f"the token is of network {token.network!r}, this is {own.network!r}")
        if (token.home, token.sid) in self._core.former_sids or not token.sid:
            return token
        if not token.has_subscription_of(own):
            raise TokenMismatchError("the token is of another subscription, or of an earlier one of this name")
        return token


class _TooLateError(Exception):
    """Nothing came in time."""


class Batches(Generic[GapT]):
    """The iteration over a subscription's batches. It survives GapError, as the subscription's own iteration does."""

    def __init__(self, subscription: Subscription[Any, GapT], max_events: int, max_wait: float) -> None:
        self._subscription = subscription
        self._max_events = max_events
        self._max_wait = max_wait

    def __aiter__(self) -> Batches[GapT]:
        return self

    async def __anext__(self) -> Batch | GapT:
        batch = await self._subscription.take_batch(self._max_events, self._max_wait)
        return cast("Batch | GapT", batch)
