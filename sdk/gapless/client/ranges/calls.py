"""A connection's calls for durable subscriptions whose position the application keeps itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from gapless.client.awaitable import AwaitableContext
from gapless.client.options import OnConflict, OnGap, Start, check_choice, check_name, check_text, wanted
from gapless.client.ranges.keyed import KeyedPublishing, KeyedReceipt
from gapless.client.ranges.leasing import Lease
from gapless.client.ranges.reading import RangeReader
from gapless.core.client import Gap
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import FOREVER, PubendId, Tick
from gapless.core.wire.messages import InUse, Target, Ticks
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import ConfigurationError, InvalidTokenError, TokenMismatchError

if TYPE_CHECKING:
    from gapless.client.driver import Driver
    from gapless.client.messages import Message
    from gapless.selectors.selector import Selector

WAIT_MOST = 600.0
"""How many seconds `heads` waits at most."""


class RangeCalls:
    """The calls of a connection about ranges. `subscription` is a name, or a token that was issued for it."""

    _driver: Driver
    _keyed: KeyedPublishing

    async def attach(
        self,
        subscription: str,
        *topics: str,
        selector: str | Selector = "",
        start: Start = None,
        no_local: bool = False,
    ) -> CheckpointToken:
        """Creates a durable subscription unless it exists, consumes nothing, and returns its position.

        The options are those of `Session.subscribe`. `start` is used if it is created. For an existing subscription it
        returns the acknowledged position, or the token that was given. It may be repeated. From then on the system
        keeps the events that it selects, until `ack` reports that they are done with.

        Raises SubscriptionMismatchError if it exists with other topics, another selector or no_local, and the errors of
        `subscribe` for malformed options.
        """
        subscription = check_name(subscription, "the name of a subscription")
        network = self._driver.core.network
        asked = wanted(topics, network, name=subscription, selector=selector, start=start, no_local=no_local)
        answer = await self._driver.ask(lambda now: self._driver.core.ranges.attach(asked, now))
        ticks = {position.pubend: position.tick for position in answer.positions}
        return CheckpointToken(network, ticks, answer.sid, answer.generation, answer.seal, answer.home)

    async def heads(
        self,
        subscription: str | CheckpointToken | None = None,
        *,
        after: CheckpointToken | None = None,
        wait: float = 0,
    ) -> CheckpointToken:
        """Returns up to where everything is decided: events at or below it can be read, and never change.

        With `after`, the answer is never below it. With a subscription, too, a pubend that has nothing for it after
        `after` stays at that position: silence alone moves nothing. With `wait`, the answer comes when there is
        something after `after`, or after so many seconds, whichever comes first.
        """
        if not 0 <= wait <= WAIT_MOST:
            raise ConfigurationError(f"wait is 0 to {WAIT_MOST:g} seconds, not {wait!r}")
        target = None if subscription is None else self._target(subscription)
        behind = None if after is None else self._ticks(after)
        base = after if after is not None else subscription
        milliseconds = round(wait * 1000)
        answer = await self._driver.ask(lambda now: self._driver.core.ranges.heads(target, behind, milliseconds, now))
        return self._token(answer, base)

    async def bound(
        self,
        subscription: str | CheckpointToken,
        start: CheckpointToken,
        *,
        max_events: int | None = None,
        max_bytes: int | None = None,
    ) -> CheckpointToken:
        """Returns up to where the subscription has at most so many events, and bytes, after `start`; or its heads.

        If there are several pubends, they share the budget in proportion to how far each is behind. The budget always
        includes at least one event, if there is any. With an imprecise PFS the count may be too high.
        """
        for limit, what in ((max_events, "max_events"), (max_bytes, "max_bytes")):
            if limit is not None and limit < 1:
                raise ConfigurationError(f"{what} is at least 1, or None, not {limit!r}")
        target, behind = self._target(subscription), self._ticks(start)
        answer = await self._driver.ask(
            lambda now: self._driver.core.ranges.bound(target, behind, max_events, max_bytes, now)
        )
        return self._token(answer, start)

    async def earliest(self, subscription: str | CheckpointToken | None = None) -> CheckpointToken:
        """Returns up to where events are gone: from here on the pubends still have everything, for now.

        With a subscription: from where on it meets no gap. That is lower, because everything that it is done with
        counts as silence for it, even if the log has given it up. Events that nobody needs may go at any time.
        """
        target = None if subscription is None else self._target(subscription)
        answer = await self._driver.ask(lambda now: self._driver.core.ranges.earliest(target, now))
        return self._token(answer, subscription)

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
        """Reads the events that the subscription selects in (start, end] of a pubend: `async for event in …`.

        Reading changes nothing. So any number of readers may read, in any process, and a range may be read again. It
        then has the same events, except those that were acknowledged and are gone: these are a gap. If `end` is not
        decided yet, it waits. After a reconnect it goes on by itself.

        Iterating raises GapError, SubscriptionNotFoundError, TokenMismatchError (another epoch of the pubend, or a
        pubend that this broker does not know), and TokenAheadError (an event that the broker never logged).
        """
        check_choice(on_gap, ("raise", "deliver"), "on_gap")
        pubend = check_text(pubend, "the id of a pubend")
        if not 0 <= start <= end <= FOREVER:
            raise InvalidTokenError(f"({start}, {end}] is no range of ticks")
        return RangeReader(self._driver, self._target(subscription), pubend, start, end, raises_gaps=on_gap == "raise")

    async def ack(self, subscription: str | CheckpointToken, token: CheckpointToken) -> None:
        """Acknowledges everything up to a position. When it returns, that is durable.

        It is monotone and idempotent: any order and any repetition is fine. Raises SubscriptionInUseError while another
        connection has a lease on the subscription, or consumes it; TokenMismatchError for the token of another
        subscription; and TokenAheadError for a position ahead of everything that the pubend has (then nothing is
        acknowledged).
        """
        ticks, target, seal = self._ticks(token), self._target(subscription), b""
        if token.sid:
            if isinstance(subscription, CheckpointToken) and not token.has_subscription_of(subscription):
                raise TokenMismatchError("the token is of another subscription, or of an earlier one of this name")
            target, seal = self._target(token), token.seal
        await self._driver.ask(lambda now: self._driver.core.ranges.settle(target, seal, ticks, now))

    def lease(
        self, subscription: str | CheckpointToken, owner: str, *, in_use: OnConflict = "error"
    ) -> AwaitableContext[Lease]:
        """Takes a subscription for this connection alone; to be awaited or entered: `async with …`.

        `owner` is shown to people; the same owner replaces its own lease at once. `in_use`: what to do if there is
        another lease, or a consumer, as in `Session.subscribe`. Raises SubscriptionInUseError.
        """
        target = self._target(subscription)
        owner = check_name(owner, "the owner of a lease")
        conflict = InUse(check_choice(in_use, tuple(member.value for member in InUse), "in_use"))

        async def begin() -> Lease:
            lease = Lease(self._driver, target, owner, conflict)
            await lease.granted()
            return lease

        return AwaitableContext(begin)

    async def publish(
        self, producer: str, epoch: int, index: int, messages: Iterable[Message], *, topic: str | None = None
    ) -> KeyedReceipt:
        """Publishes messages under keys of your own: (epoch, index), (epoch, index + 1) and so on.

        The pubend keeps the highest key of each producer, and drops messages at or below it. So a batch that is
        published again, after a crash or because it was not answered, is logged once. Keys may leave holes. The keys of
        a producer must rise, and a key must always stand for the same message. When it returns, all messages are
        durable.

        Raises InvalidMessageError and InvalidTopicError (nothing was sent), PublishRejectedError (nothing was logged of
        the part of the batch that the broker refused) and PublishUncertainError (publish again).
        """
        return await self._keyed.publish(producer, epoch, index, messages, topic)

    # Tokens and names, checked.

    def _target(self, subscription: str | CheckpointToken) -> Target:
        if isinstance(subscription, CheckpointToken):
            self._ticks(subscription)
            if not subscription.sid:
                raise TokenMismatchError("the token was issued for no subscription: say which by its name")
            return Target("", subscription.sid, subscription.generation, subscription.home)
        return Target(check_name(subscription, "the name of a subscription"))

    def _ticks(self, token: CheckpointToken) -> Mapping[PubendId, Tick]:
        if not isinstance(token, CheckpointToken):
            raise InvalidTokenError(f"a position is a CheckpointToken, not {type(token).__name__}")
        network = self._driver.core.network
        if token.network != network:
            raise TokenMismatchError(f"the token is of network {token.network!r}, this is {network!r}")
        return token.ticks

    def _token(self, answer: Ticks, base: CheckpointToken | str | None) -> CheckpointToken:
        """Returns a token of the same subscription. It keeps every pubend that the base names."""
        ticks = {position.pubend: position.tick for position in answer.positions}
        if isinstance(base, CheckpointToken):
            return base.advance(ticks)
        return CheckpointToken(self._driver.core.network, ticks)
