"""A session: publishers and subscriptions that begin and end together."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Iterable
from dataclasses import replace
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, overload

from typing_extensions import Unpack

from gapless import loggers
from gapless.client.ack_modes import AckMode, ByToken, policy_of
from gapless.client.awaitable import AwaitableContext, ClosedWhenLeft
from gapless.client.driver import Driver
from gapless.client.options import (
    OnGap,
    SharedKeywords,
    Start,
    SubscribeKeywords,
    TransformKeywords,
    check_choice,
    check_keywords,
    check_name,
    check_unshared,
    wanted,
    wanted_shared,
)
from gapless.client.publisher import Publisher
from gapless.client.ranges.archives import Archive, selection_of
from gapless.client.shared import SharedSubscription
from gapless.client.subscription import Subscription
from gapless.client.transaction import Transactions
from gapless.client.transform import Transform
from gapless.core.client import Gap, Silence
from gapless.core.client.consuming.held import HeldEvent
from gapless.core.network.facts import UNNAMED
from gapless.core.stream.events import Event
from gapless.errors import ConfigurationError, GaplessError, SubscriptionError
from gapless.selectors.filters import leaving_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.client import SubscribeOptions

log = loggers.logger("gapless.client")

Events: TypeAlias = "AwaitableContext[Subscription[Event, NoReturn]]"
EventsSilences: TypeAlias = "AwaitableContext[Subscription[Event | Silence, NoReturn]]"
EventsGaps: TypeAlias = "AwaitableContext[Subscription[Event | Gap, Gap]]"
EventsSilencesGaps: TypeAlias = "AwaitableContext[Subscription[Event | Silence | Gap, Gap]]"
SharedEvents: TypeAlias = "AwaitableContext[SharedSubscription[HeldEvent, NoReturn]]"
SharedEventsGaps: TypeAlias = "AwaitableContext[SharedSubscription[HeldEvent | Gap, Gap]]"
Transforms: TypeAlias = "AwaitableContext[Transform[NoReturn]]"
TransformsGaps: TypeAlias = "AwaitableContext[Transform[Gap]]"


class Session(ClosedWhenLeft):
    """Makes publishers and subscriptions. Made by `Connection.session`, to be used as a block or not."""

    def __init__(
        self, driver: Driver, ack_mode: AckMode, on_closed: Callable[[Session], None], archive: Archive | None = None
    ) -> None:
        """Use `Connection.session`."""
        if not isinstance(ack_mode, AckMode):
            raise ConfigurationError(f"ack_mode is a gapless.AckMode, not {ack_mode!r}")
        self.ack_mode = ack_mode
        self._driver = driver
        self._on_closed = on_closed
        self._archive = archive
        self._publishers: list[Publisher] = []
        self._subscriptions: list[Subscription[Any, Any] | SharedSubscription[Any, Any]] = []
        self._draining = False
        self._closed = False

    def publisher(self, topic: str | None = None, *, name: str | None = None) -> Publisher:
        """Makes a publisher, to be kept and used for many events.

        `topic`: for messages without a topic of their own.

        `name`: the publisher continues where this name stopped, in this process or another; for a loader that asks
        `recover` where it was. A name has one publisher at a time: the one that opened it last owns it, and the older
        one gets PublisherFencedError. So several workers need a name each, or none. Without a name it is forgotten when
        it is closed.

        Raises InvalidTopicError and ConfigurationError. Objections of the broker are raised by the first `send`.
        """
        self._check_open()
        name = UNNAMED + token_hex(16) if name is None else _checked_publisher_name(name)
        publisher = Publisher(self._driver, name, token_hex(16), topic)
        self._publishers = [publisher, *(other for other in self._publishers if not other.is_over)]
        return publisher

    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[False] = False,
        on_gap: Literal["raise"] = "raise",
        shared: Literal[False] = False,
        **options: Unpack[SubscribeKeywords],
    ) -> Events: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[True],
        on_gap: Literal["raise"] = "raise",
        shared: Literal[False] = False,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsSilences: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[False] = False,
        on_gap: Literal["deliver"],
        shared: Literal[False] = False,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsGaps: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: bool = False,
        on_gap: OnGap = "raise",
        shared: Literal[False] = False,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsSilencesGaps: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        shared: Literal[True],
        name: str,
        on_gap: Literal["raise"] = "raise",
        **options: Unpack[SharedKeywords],
    ) -> SharedEvents: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        shared: Literal[True],
        name: str,
        on_gap: OnGap,
        **options: Unpack[SharedKeywords],
    ) -> SharedEventsGaps: ...
    def subscribe(  # noqa: D417 - all options are described, each by its name
        self,
        *topics: str,
        silence: bool = False,
        on_gap: OnGap = "raise",
        shared: bool = False,
        **options: Any,
    ) -> AwaitableContext[Any]:
        """Returns a subscription to topic patterns, to be awaited or entered. It is created unless it exists.

        Args:
            topics: Patterns: levels separated by `.`, `*` for one level, a trailing `#` for any number of them.
            name: Makes it durable, under this name and the connection's client id. None, as by default: not durable.
            selector: A condition on properties and header fields, as `JMSPriority > 4`; blank, as by default, selects
                every event.
            start: Where it begins when it is created: "latest" (the default, as None), "earliest", or an aware
                datetime. If it exists, it continues at its acknowledged position. A CheckpointToken always sets the
                position.
            silence: Whether the iteration yields `Silence`, too.
            on_gap: "raise": a gap is raised, once, as GapError. "deliver": the iteration yields `Gap`. If the
                connection has an archive, the archive's events are handed out in place of the gap.
            in_use: What to do if it has another consumer: "error" (the default: SubscriptionInUseError), "wait" until
                that is gone, or "takeover" (then the other one gets SubscriptionTakenOverError).
            order: "pubend", the default: each pubend in its own order. "total": all pubends in one order, the same for
                every subscriber; it needs a group of pubends that the topics are published to.
            on_change: What to do if it exists with other topics, another selector or another `no_local`: "error"
                (the default: SubscriptionMismatchError). "keep_position": it gets the new ones and goes on where it
                stands; what is behind that was chosen by the old ones, and stays so. "jms": it is removed and made anew
                at the latest tick, so its backlog is lost; also for another `order`. It never does that to a
                subscription that somebody consumes (SubscriptionInUseError, unless in_use="wait"), and takes no token
                as `start`.
            no_local: Whether events are left out that were published by this connection's client id; without a client
                id, by this connection. Only publishers of connections with `identify=True` are recognised. By default
                none are left out.
            prefetch: How many events may be on their way or buffered here: fewer are redelivered elsewhere after a
                crash and take less memory, more are faster. None, the default: 16,384; 256 if it is shared. There are
                never more than 4 MiB of them, or one.
            shared: Whether many may consume it at once, each event being handed to one of them, and settled by itself:
                a `SharedSubscription`. It needs a name, has no position, and takes no `silence`, `in_use`, `order`,
                `no_local`, and no token as its start. In the session's mode AUTO an iterator settles an event when it
                is asked for the next; in TOKEN, the default, the application does so by hand. Other modes are refused.
            durable: Of a shared one: whether it lives on without consumers. The default is True.
            window: Of a shared one that is created: how many of its events may be unsettled, 4,096 by default.
            hold_seconds: Of a shared one: after so long others get what this consumer holds; None, the default: never.
            resume_seconds: Of a shared one: for so long what this consumer holds is kept for it when its link is lost.
                5 by default.

        Raises InvalidTopicError, InvalidSelectorError, InvalidTokenError, TokenMismatchError and ConfigurationError
        here. When awaited or entered, it also raises TokenAheadError, SubscriptionInUseError, SubscriptionMismatchError
        (it exists with other topics, another selector, no_local or order), ConfigurationError (order="total" for topics
        that are not all of one group) and ConnectionClosedError.

        """
        known = SubscribeKeywords.__optional_keys__ | SharedKeywords.__optional_keys__
        check_keywords(options, known, "Session.subscribe")
        self._check_open()
        check_choice(on_gap, ("raise", "deliver"), "on_gap")
        if shared:
            return self._subscribe_shared(topics, on_gap, {**options, "silence": silence})
        check_unshared(options)
        asked = wanted(topics, self._driver.core.network, silence=silence, **options)
        policy = policy_of(self.ack_mode, durable=asked.name is not None)
        if policy.commits:
            asked = replace(asked, commits=True, gathers=policy.gathers)

        return AwaitableContext(lambda: self._attach(asked, on_gap, policy))

    @overload
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: Literal["raise"] = "raise",
        max_events: int = 1024,
        max_wait: float = 0,
        **options: Unpack[TransformKeywords],
    ) -> Transforms: ...
    @overload
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: OnGap,
        max_events: int = 1024,
        max_wait: float = 0,
        **options: Unpack[TransformKeywords],
    ) -> TransformsGaps: ...
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: OnGap = "raise",
        max_events: int = 1024,
        max_wait: float = 0,
        **options: Unpack[TransformKeywords],
    ) -> AwaitableContext[Any]:
        """Returns a transform, to be awaited or entered: what it publishes from its input is there exactly once.

        `async for batch in work: await batch.publish(enrich(event) for event in batch)`. Its position is stored by the
        broker in the write that logs the outputs. After any crash the next one of this name continues from there; while
        another one runs, that one is fenced (PublisherFencedError), however long it was paused. The session's
        `ack_mode` does not matter.

        Args:
            topics: The topics of the input, and so on: as for `subscribe`.
            to: The topic of the outputs; None if each message has its own. All outputs go to one pubend.
            name: The name of the publisher, and of the durable subscription: one for each transform of a network.
            selector: As for `subscribe`.
            start: Where it begins when nothing was ever stored under this name: as for `subscribe`.
            on_gap: As for `subscribe`.
            in_use: As for `subscribe`; but it takes over by default, and once more from whoever takes its input over.
            order: As for `subscribe`.
            on_change: As for `subscribe`, but never "jms": its position is stored with its outputs.
            no_local: As for `subscribe`. It keeps a transform from its own outputs if they match its topics, too.
            prefetch: As for `subscribe`.
            max_events: The outputs of so many events at most are one append. It must fit into one frame.
            max_wait: How many seconds a batch that is not full waits for more.

        Raises the errors of `publisher` and `subscribe`, at the same places.

        """
        check_keywords(options, TransformKeywords.__optional_keys__, "Session.transform")
        self._check_open()
        check_choice(on_gap, ("raise", "deliver"), "on_gap")
        if max_events < 1 or max_wait < 0:
            raise ValueError("max_events is at least 1, and max_wait not negative")
        check_choice(options.get("on_change", "error"), ("error", "keep_position"), "on_change of a transform")
        name = _checked_publisher_name(name)
        start = options.pop("start", None)
        options.setdefault("in_use", "takeover")
        asked = partial(wanted, topics, self._driver.core.network, name=name, **options)
        asked(start=start)  # what is wrong is refused here

        async def attach(position: Start) -> Subscription[Any, Any]:
            return await self._attach(asked(start=position), on_gap, policy_of(AckMode.TOKEN, durable=True))

        async def begin() -> Transform[Any]:
            # Opened before the token is read: whoever was the owner until now stores nothing behind it (TS9).
            publisher = self.publisher(to, name=name)
            try:
                tokens = (await publisher.recover()).tokens
                subscription = await attach(tokens[-1] if tokens else start)
            except BaseException:
                publisher.abandon()
                raise
            if not tokens and subscription.was_there:
                log.warning(
                    "transform %r has no stored position, and its input is there already: it goes on where that was"
                    " acknowledged. That is right before its first output. Otherwise the log of its outputs was lost",
                    name,
                )
            return Transform(publisher, subscription, attach, max_events, max_wait)

        return AwaitableContext(begin)

    def _subscribe_shared(
        self, topics: tuple[str, ...], on_gap: OnGap, options: dict[str, Any]
    ) -> AwaitableContext[SharedSubscription[Any, Any]]:
        if self.ack_mode not in (AckMode.TOKEN, AckMode.AUTO):
            raise ConfigurationError(
                "a shared subscription is settled event by event: by hand (AckMode.TOKEN), or by the iteration"
                f" (AckMode.AUTO), and not by {self.ack_mode}"
            )
        network, is_embedded = self._driver.core.network, self._driver.is_embedded
        asked = wanted_shared(topics, network, embedded=is_embedded, **options)

        async def attach() -> SharedSubscription[Any, Any]:
            self._check_open()
            automatic = self.ack_mode is AckMode.AUTO
            shared: SharedSubscription[Any, Any] = SharedSubscription(
                self._driver, asked, on_gap=on_gap, automatic=automatic
            )
            await shared.attached()
            self._begin(shared)
            return shared

        return AwaitableContext(attach)

    def _begin(self, subscription: Subscription[Any, Any] | SharedSubscription[Any, Any]) -> None:
        """It is attached, and ends with the session."""
        if subscription.untaken:
            warnings.warn(
                f"this broker knows no pubend that takes events on {', '.join(map(repr, subscription.untaken))}: until"
                " there is one, nothing comes. `gapless pubends` shows which topics each takes",
                stacklevel=3,
            )
        self._subscriptions = [subscription, *(other for other in self._subscriptions if not other.is_over)]
        if self._draining:
            subscription.drain()

    async def _attach(self, asked: SubscribeOptions, on_gap: OnGap, policy: type[ByToken]) -> Subscription[Any, Any]:
        self._check_open()
        selector = leaving_out(asked.selector, self._driver.core.app_id if asked.no_local else "")
        selection = selection_of(self._archive, asked.topics, selector, f"subscription {asked.name!r}")
        subscription: Subscription[Any, Any] = Subscription(
            self._driver, asked, on_gap=on_gap, policy=policy, selection=selection
        )
        await subscription.attached()
        self._begin(subscription)
        return subscription

    async def acknowledge(self) -> None:
        """With `AckMode.CLIENT`: acknowledges everything that its subscriptions have handed out.

        It returns when that is durable: nothing of it comes again, whatever crashes. Raises SubscriptionError with
        another ack mode, and the error of a subscription that is over.
        """
        await _all(each.acknowledge_durably() for each in self._by_hand("acknowledge"))

    async def recover(self) -> None:
        """With `AckMode.CLIENT`: has everything handed out again that was, and is not acknowledged.

        It comes from the log, in order, `redelivered` and counted. Raises SubscriptionError with another ack mode, and
        the error of a subscription that is over.
        """
        await _all(each.recover() for each in self._by_hand("recover"))

    def transactions(self) -> Transactions:
        """Returns its transactions, for `gapless.jms`. The session's mode is CLIENT."""
        return Transactions(self._driver, self.publisher, lambda: self._by_hand("transactions"))

    def drain(self) -> None:
        """Ends all iterations after the current event. It is a plain call, for use in signal handlers."""
        self._draining = True
        for subscription in self._subscriptions:
            subscription.drain()

    async def close(self) -> None:
        """Closes it: publishers wait for their receipts, subscriptions detach. Idempotent.

        Raises the first PublishUncertainError, or rejection, for which no caller waits any more.
        """
        if self._closed or self._driver.is_dropped:
            return
        self._driver.check_here()
        errors = await self.close_subscriptions()
        for publisher in self._publishers:
            try:
                await publisher.close()
            except GaplessError as error:
                errors.append(error)
        self._end()
        if errors:
            raise errors[0]

    async def close_subscriptions(self) -> list[GaplessError]:
        """For the connection: closes them, while nobody waits yet for a publisher's broker that may stand still."""
        errors: list[GaplessError] = []
        for subscription in [] if self._driver.is_dropped else self._subscriptions:
            try:
                await subscription.close()
            except GaplessError as error:
                errors.append(error)
        return errors

    def abandon(self) -> None:
        """Ends it now: nothing is acknowledged, and unanswered events are uncertain."""
        if self._driver.is_dropped:
            return
        for subscription in self._subscriptions:
            subscription.abandon()
        for publisher in self._publishers:
            publisher.abandon()
        self._end()

    @property
    def has_unanswered(self) -> bool:
        """Whether something that was sent has no receipt, or failed without a caller that heard of it."""
        return any(publisher.has_unanswered for publisher in self._publishers)

    def _end(self) -> None:
        self._closed = True
        self._publishers.clear()
        self._subscriptions.clear()
        self._on_closed(self)

    def _by_hand(self, what: str) -> list[Subscription[Any, Any]]:
        """Returns the subscriptions that are acknowledged together."""
        self._check_open()
        if not policy_of(self.ack_mode, durable=True).gathers:
            raise SubscriptionError(f"Session.{what} is for AckMode.CLIENT, and this session's mode is {self.ack_mode}")
        plain = [each for each in self._subscriptions if isinstance(each, Subscription)]
        return [each for each in plain if each.gathers and not each.is_closed]

    def _check_open(self) -> None:
        self._driver.check_open()
        if self._closed:
            raise SubscriptionError("the session is closed")


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Makes all calls at once; raises the first error when all have ended."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def _checked_publisher_name(name: str) -> str:
    name = check_name(name, "the name of a publisher")
    if name.startswith(UNNAMED):
        raise ConfigurationError(f"{name!r} begins with {UNNAMED!r}, as only publishers without a name do")
    return name
