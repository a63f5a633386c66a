"""The ack modes: who acknowledges what a subscription hands out. Each mode has a policy.

A new mode is a member of `AckMode` and a policy in `policy_of`; a subscription knows only its policy.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeAlias

from gapless.core.client import AHEAD_EVENTS, Gap, Silence
from gapless.core.stream.events import Event

Last: TypeAlias = Event | Silence | Gap | None
"""The last item that was handed out from the current delivery or gap; None if there was none."""


class Consumption(Protocol):
    """A subscription, as far as its policy has to know it."""

    async def acknowledge(self) -> None:
        """Acknowledges everything that was handed out."""

    def acknowledge_behind(self, last: Last) -> None:
        """Acknowledges everything up to an item of the current delivery; None: everything before that delivery."""

    def begin_commit(self, max_events: int) -> bool:
        """Begins to make durable that everything that was handed out is done with. So many events are asked for next.

        Returns whether that has to be waited for.
        """

    async def commit(self, max_events: int) -> None:
        """The same, and waits until it is durable."""


class AckMode(Enum):
    """Who acknowledges what a subscription hands out."""

    TOKEN = "token"
    """The application acknowledges, with `Subscription.acknowledge`; of a shared subscription, event by event, with
    `SharedSubscription.acknowledge`."""
    AUTO = "auto"
    """The session acknowledges an event (with `batches()`: a batch) when the application asks for the next, or leaves
    the block without an error, and hands out the next one only when that is durable at the broker. So after any crash
    only what was in hand comes again, and it is `redelivered`. Without a durable name it is as DUPS_OK, and costs
    nothing. Of a shared subscription each iteration settles what it was handed when it is asked for the next, and does
    not wait."""
    CLIENT = "client"
    """The application acknowledges, with `Session.acknowledge`: durably, and everything that all subscriptions of the
    session have handed out. After any crash everything since then comes again, and it is `redelivered`;
    `Session.recover` has it handed out again. Leaving the block acknowledges nothing."""
    DUPS_OK = "dups-ok"
    """The session acknowledges lazily: events that arrived together, when the application asks for more, or leaves the
    block without an error. An event costs nothing; after a failure more events are handed out again than with AUTO,
    and they are not marked."""


class ByToken:
    """The application acknowledges, with a token or without; this policy does nothing."""

    needs_every_step = False
    """Whether `on_asked` must be called for each event, also for events that are at hand already."""
    commits = False
    """Whether the position is kept by the broker: nothing is handed out before the commit is durable."""
    gathers = False
    """Whether the application says when; else it is before the next event or batch."""

    def __init__(self, subscription: Consumption) -> None:
        self._subscription = subscription

    def on_asked(self, max_events: int) -> bool:
        """The application asks for the next event or batch; only called if `needs_every_step`.

        `max_events`: how many it may be; 0: it is not known yet. Returns whether something has to be durable before.
        """
        return False

    def on_taken(self) -> None:
        """All of the former delivery was handed out; the next one has been taken."""

    async def on_closed(self) -> None:
        """The block ends without an error: everything that was handed out is done with."""

    async def on_acknowledged(self) -> None:
        """The application is done with everything that its session has handed out; only called if it `gathers`."""


class ByCommit(ByToken):
    """Commits an event or a batch when the application asks for the next one, and waits until that is durable."""

    needs_every_step = True
    commits = True

    def on_asked(self, max_events: int) -> bool:
        """The application is done with everything that it was given before."""
        return self._subscription.begin_commit(max_events)

    async def on_closed(self) -> None:
        """Commits what was handed out last, too."""
        await self._subscription.commit(0)


class ByHand(ByToken):
    """Commits when the application acknowledges, and waits until that is durable."""

    commits = True
    gathers = True

    async def on_acknowledged(self) -> None:
        """Commits everything that was handed out."""
        await self._subscription.commit(AHEAD_EVENTS)


class ByHandUnnamed(ByHand):
    """The same for what ends with its connection: nobody comes back for it, so nothing has to be durable."""

    commits = False

    async def on_acknowledged(self) -> None:
        """Acknowledges everything that was handed out."""
        await self._subscription.acknowledge()


class Lazy(ByToken):
    """Acknowledges events that arrived together, all at once, when the application asks for more."""

    def on_taken(self) -> None:
        """Acknowledges the former delivery."""
        self._subscription.acknowledge_behind(None)

    async def on_closed(self) -> None:
        """Acknowledges what was handed out of the current delivery, too."""
        await self._subscription.acknowledge()


def policy_of(mode: AckMode, *, durable: bool) -> type[ByToken]:
    """Returns the policy of a mode. Of a subscription that is not durable nothing comes again: it commits nothing."""
    if mode is AckMode.TOKEN:
        return ByToken
    if mode is AckMode.CLIENT:
        return ByHand if durable else ByHandUnnamed
    return ByCommit if mode is AckMode.AUTO and durable else Lazy
