"""A session, blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, overload

from typing_extensions import Unpack

import gapless.client.session as awaited
from gapless import tracing
from gapless.core.client import Gap, Silence
from gapless.core.client.consuming.held import HeldEvent
from gapless.core.stream.events import Event
from gapless.sync.blocking import Blocking
from gapless.sync.publisher import Publisher
from gapless.sync.shared import SharedSubscription
from gapless.sync.subscription import Subscription
from gapless.sync.transform import Transform

if TYPE_CHECKING:
    import asyncio

    from gapless.client.ack_modes import AckMode
    from gapless.client.awaitable import AwaitableContext
    from gapless.client.messages import Message
    from gapless.client.options import OnGap, SharedKeywords, SubscribeKeywords, TransformKeywords
    from gapless.client.publisher import Publisher as AwaitedPublisher
    from gapless.client.receipts import Receipt
    from gapless.client.transaction import Transactions as ClientTransactions
    from gapless.sync.runner import Runner


Events: TypeAlias = "Subscription[Event, NoReturn]"
EventsSilences: TypeAlias = "Subscription[Event | Silence, NoReturn]"
EventsGaps: TypeAlias = "Subscription[Event | Gap, Gap]"
EventsSilencesGaps: TypeAlias = "Subscription[Event | Silence | Gap, Gap]"
SharedEvents: TypeAlias = "SharedSubscription[HeldEvent, NoReturn]"
SharedEventsGaps: TypeAlias = "SharedSubscription[HeldEvent | Gap, Gap]"


class Session(Blocking[awaited.Session]):
    """Makes publishers and subscriptions; see `gapless.Session`."""

    __repr__ = object.__repr__  # that of asyncio has no text of its own

    @property
    def ack_mode(self) -> AckMode:
        """Who acknowledges what is handed out."""
        return self._awaited.ack_mode

    def publisher(self, topic: str | None = None, *, name: str | None = None) -> Publisher:
        """Makes a publisher, to be kept and used for many events; see `gapless.Session.publisher`."""

        async def begin() -> AwaitedPublisher:
            return self._awaited.publisher(topic, name=name)

        return self._runner.make(begin, Publisher, lambda publisher: publisher.abandon())

    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[False] = False,
        on_gap: Literal["raise"] = "raise",
        shared: Literal[False] = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeKeywords],
    ) -> Events: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[True],
        on_gap: Literal["raise"] = "raise",
        shared: Literal[False] = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsSilences: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: Literal[False] = False,
        on_gap: Literal["deliver"],
        shared: Literal[False] = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsGaps: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        silence: bool = False,
        on_gap: OnGap = "raise",
        shared: Literal[False] = False,
        timeout: float | None = None,
        **options: Unpack[SubscribeKeywords],
    ) -> EventsSilencesGaps: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        shared: Literal[True],
        name: str,
        on_gap: Literal["raise"] = "raise",
        timeout: float | None = None,
        **options: Unpack[SharedKeywords],
    ) -> SharedEvents: ...
    @overload
    def subscribe(
        self,
        *topics: str,
        shared: Literal[True],
        name: str,
        on_gap: OnGap,
        timeout: float | None = None,
        **options: Unpack[SharedKeywords],
    ) -> SharedEventsGaps: ...
    def subscribe(
        self,
        *topics: str,
        silence: bool = False,
        on_gap: OnGap = "raise",
        shared: bool = False,
        timeout: float | None = None,
        **options: Any,
    ) -> Subscription[Any, Any] | SharedSubscription[Any, Any]:
        """Returns a subscription, to be used as a block or not; see `gapless.Session.subscribe`.

        It takes the same keywords: `name`, `selector`, `start`, `silence`, `on_gap`, `in_use`, `order`, `on_change`,
        `no_local`, `prefetch` and `shared`, and with that `durable`, `window`, `hold_seconds` and `resume_seconds`.
        After `timeout` seconds it gives up and raises TimeoutError: nothing is left attached.
        """
        keywords = {**options, "silence": silence, "on_gap": on_gap, "shared": shared}

        def begin() -> AwaitableContext[Any]:
            return self._awaited.subscribe(*topics, **keywords)

        if shared:
            return self._runner.make(begin, SharedSubscription[Any, Any], lambda made: made.abandon(), timeout)
        return self._runner.make(begin, Subscription[Any, Any], lambda made: made.abandon(), timeout)

    @overload
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: Literal["raise"] = "raise",
        max_events: int = 1024,
        max_wait: float = 0,
        timeout: float | None = None,
        **options: Unpack[TransformKeywords],
    ) -> Transform[NoReturn]: ...
    @overload
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: OnGap,
        max_events: int = 1024,
        max_wait: float = 0,
        timeout: float | None = None,
        **options: Unpack[TransformKeywords],
    ) -> Transform[Gap]: ...
    def transform(
        self,
        *topics: str,
        to: str | None,
        name: str,
        on_gap: OnGap = "raise",
        max_events: int = 1024,
        max_wait: float = 0,
        timeout: float | None = None,
        **options: Unpack[TransformKeywords],
    ) -> Transform[Any]:
        """Returns a transform, to be used as a block or not; see `gapless.Session.transform`.

        It takes the same keywords: `to`, `name`, `selector`, `start`, `on_gap`, `in_use`, `order`, `on_change`,
        `no_local`, `prefetch`, `max_events` and `max_wait`. After `timeout` seconds it gives up and raises
        TimeoutError: nothing is left attached.
        """
        return self._runner.make(
            lambda: self._awaited.transform(
                *topics, to=to, name=name, on_gap=on_gap, max_events=max_events, max_wait=max_wait, **options
            ),
            Transform,
            lambda transform: transform.abandon(),
            timeout,
        )

    def acknowledge(self, timeout: float | None = None) -> None:
        """Acknowledges everything that was handed out; see `gapless.Session.acknowledge`."""
        self._runner.call(self._awaited.acknowledge, timeout)

    def recover(self, timeout: float | None = None) -> None:
        """Has everything handed out again that is not acknowledged; see `gapless.Session.recover`.

        After a timeout or an interrupt it may be repeated.
        """
        self._runner.call(self._awaited.recover, timeout)

    def transactions(self) -> Transactions:
        """Returns its transactions, for `gapless.jms`. The session's mode is CLIENT."""
        return Transactions(self._runner, self._awaited.transactions())

    def drain(self) -> None:
        """Ends all iterations after the current event. It may be called in signal handlers, and from other threads."""
        if self._runner.alive:
            self._awaited.drain()

    def abandon(self) -> None:
        """Ends it now: nothing is acknowledged, and unanswered events are uncertain. Idempotent."""
        if self._runner.alive:
            self._runner.do(self._awaited.abandon)


class Transactions:
    """The transactions of one session; see `gapless.client.transaction.Transactions`."""

    def __init__(self, runner: Runner, transactions: ClientTransactions) -> None:
        """For the session."""
        self._runner = runner
        self._transactions = transactions

    def send(self, message: Message) -> None:
        """Keeps a message, which has its topic, until the commit."""
        self._transactions.send(message)

    def commit(self) -> list[Receipt]:
        """Commits what was handed out and sent since the last commit. Returns the receipts of the messages."""
        caller = tracing.current()
        return self._runner.call(lambda: self._transactions.commit(caller), back=self._note)

    def rollback(self) -> None:
        """Forgets the messages, and has everything handed out again that was, and is not committed."""
        self._runner.call(self._transactions.rollback, back=self._note)

    def _note(self, done: asyncio.Future[Any]) -> None:
        """A caller has gone before it had the outcome: the next commit, or rollback, raises the error."""
        self._transactions.note_unheard(done.exception())
