"""Durable subscriptions of which the application keeps the position itself: what a connection can do with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from gapless.client.awaitable import AwaitableContext
from gapless.client.keyed import KeyedPublishing, KeyedReceipt
from gapless.client.leasing import Lease
from gapless.client.options import OnConflict, OnGap, Start, check_choice, check_name, wanted
from gapless.client.reading import RangeReader
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
"""Seconds that `heads` waits at most."""


class RangeCalls:
    """The calls of a connection that concern ranges. `subscription` is a name, or a token that was issued for it."""

    _driver: Driver
    _keyed: KeyedPublishing

    async def attach(
        self, subscription: str, *topics: str, selector: str | Selector = "", start: Start = None
    ) -> CheckpointToken:
        """Creates a durable subscription if it does not exist, consumes nothing, and returns where it stands.

        As `Session.subscribe` does: `start` is for its creation; for one that exists the position that it has
        acknowledged is returned, or the token that was given. May be repeated. From then on the system keeps what
        it selects, until `ack` says that it is done with.

        Raises SubscriptionMismatchError when it exists with other topics or another selector, and what `subscribe`
        raises for what is malformed.
        """
        check_name(subscription, "the name of a subscription")
        network = self._driver.core.network
        asked = wanted(
            topics, name=subscription, selector=selector, start=start, in_use="error", silence=False, network=network
        )
        answer = await self._driver.ask(lambda now: self._driver.core.ranges.attach(asked, now))
        ticks = {position.pubend: position.tick for position in answer.positions}
        return CheckpointToken(network, ticks, answer.sid, answer.generation, answer.seal)

    async def heads(
        self,
        subscription: str | CheckpointToken | None = None,
        *,
        after: CheckpointToken | None = None,
        wait: float = 0,
    ) -> CheckpointToken:
        """Up to where everything is decided: what is at or below it can be read, and never changes.

        With `after`, no pubend is answered below it. With a subscription as well, a pubend on which there is nothing
        for it behind `after` is answered as it stands there: silence alone moves nothing. With `wait`, it is answered
        when there is something behind `after`, or after so many seconds, whichever comes first.
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
        """Up to where the subscription has no more behind `start` than so many events, and bytes: or its heads.

        Several pubends share the budget in proportion to what each is behind. At least one event is within it, if
        there is any. A PFS that is imprecise counts too many.
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
        """Up to where nothing is left: from here on pubends still have everything, for now.

        With a subscription: from where on it meets no gap. What it is done with is silence to it whatever became of
        the log, so that is lower. What nobody needs any more may go at any time.
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
        """Reads what the subscription selects in (start, end] of a pubend: `async for event in …`.

        Changes nothing, so any number may read, in any process, and a range may be read again: it holds the same, but
        for what was acknowledged and is gone, which is a gap. An `end` that is not decided yet is waited for. It goes
        on by itself after a reconnect.

        Iterating raises GapError, SubscriptionNotFoundError, TokenMismatchError (another epoch of the pubend, or one
        that this broker does not know), TokenAheadError (an event that the broker never logged).
        """
        check_choice(on_gap, ("raise", "deliver"), "on_gap")
        if not 0 <= start <= end <= FOREVER:
            raise InvalidTokenError(f"({start}, {end}] is no range of ticks")
        return RangeReader(self._driver, self._target(subscription), pubend, start, end, raises_gaps=on_gap == "raise")

    async def ack(self, subscription: str | CheckpointToken, token: CheckpointToken) -> None:
        """The subscription is done with everything up to a position: durable when it returns.

        Monotone and idempotent: in any order, and as often as one likes. Raises SubscriptionInUseError while another
        connection has a lease on the subscription, or consumes it; TokenMismatchError for another one's token;
        TokenAheadError, and nothing is acknowledged, for a position ahead of everything that the pubend has.
        """
        ticks, target, seal = self._ticks(token), self._target(subscription), b""
        if token.sid:
            if target.sid and (target.sid, target.generation) != (token.sid, token.generation):
                raise TokenMismatchError("the token is of another subscription, or of an earlier one of this name")
            target, seal = self._target(token), token.seal
        await self._driver.ask(lambda now: self._driver.core.ranges.settle(target, seal, ticks, now))

    def lease(
        self, subscription: str | CheckpointToken, owner: str, *, in_use: OnConflict = "error"
    ) -> AwaitableContext[Lease]:
        """Takes a subscription for this connection alone, to be awaited or entered: `async with …`.

        `owner` says who, to people; the same owner takes it over from himself at once. `in_use`: what to do about
        another one, or about a consumer, as in `Session.subscribe`. Raises SubscriptionInUseError.
        """
        target = self._target(subscription)
        check_name(owner, "the owner of a lease")
        conflict = InUse(check_choice(in_use, tuple(member.value for member in InUse), "in_use"))

        async def begin() -> Lease:
            lease = Lease(self._driver, target, owner, conflict)
            await lease.granted()
            return lease

        return AwaitableContext(begin)

    async def publish(
        self, producer: str, epoch: int, index: int, messages: Iterable[Message], *, topic: str | None = None
    ) -> KeyedReceipt:
        """Publishes messages under keys of one's own: (epoch, index), (epoch, index + 1) and so on.

        The pubend keeps the highest key of each producer, and drops what is at or below it: so whoever publishes a
        batch again, after a crash or because it was not answered, publishes it once. Keys may leave holes; a producer's
        keys must rise, and the same key stands for the same message. All are durable when it returns.

        Raises InvalidMessageError and InvalidTopicError (nothing was sent), PublishRejectedError (of the batch of up to
        so many messages that the broker refused nothing was logged) and PublishUncertainError (publish again).
        """
        return await self._keyed.publish(producer, epoch, index, messages, topic)

    # Tokens and names, checked.

    def _target(self, subscription: str | CheckpointToken) -> Target:
        if isinstance(subscription, CheckpointToken):
            self._ticks(subscription)
            if not subscription.sid:
                raise TokenMismatchError("the token was issued for no subscription: say which by its name")
            return Target("", subscription.sid, subscription.generation)
        return Target(check_name(subscription, "the name of a subscription"))

    def _ticks(self, token: CheckpointToken) -> Mapping[PubendId, Tick]:
        if not isinstance(token, CheckpointToken):
            raise InvalidTokenError(f"a position is a CheckpointToken, not {type(token).__name__}")
        network = self._driver.core.network
        if token.network != network:
            raise TokenMismatchError(f"the token is of network {token.network!r}, this is {network!r}")
        return token.ticks

    def _token(self, answer: Ticks, base: CheckpointToken | str | None) -> CheckpointToken:
        """A token of the same subscription. No pubend is dropped that it names."""
        ticks = {position.pubend: position.tick for position in answer.positions}
        if isinstance(base, CheckpointToken):
            return base.advance(ticks)
        return CheckpointToken(self._driver.core.network, ticks)
