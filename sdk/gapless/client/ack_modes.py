"""The ack modes: who acknowledges what a subscription hands out. Each mode has a policy.

A new mode is a member of `AckMode` and a policy in `POLICIES`; a subscription knows only its policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias

from gapless.core.client import Gap, Silence
from gapless.core.stream.events import Event

Last: TypeAlias = Event | Silence | Gap | None
"""The last item that was handed out from the current delivery or gap; None if there was none."""


class Consumption(Protocol):
    """A subscription, as far as its policy has to know it."""

    last: Last

    async def acknowledge(self) -> None:
        """Acknowledges everything that was handed out."""

    def acknowledge_behind(self, last: Last) -> None:
        """Acknowledges everything up to an item of the current delivery; None: everything before that delivery."""

    def call_soon(self, do: Callable[[], None]) -> None:
        """Calls a function in the next turn of the loop."""


class AckMode(Enum):
    """Who acknowledges what a subscription hands out."""

    TOKEN = "token"
    """The application acknowledges, with `Subscription.acknowledge`."""
    AUTO = "auto"
    """The session acknowledges an event when the application asks for the next, or leaves the block without error."""
    DUPS_OK = "dups-ok"
    """The session acknowledges lazily: events that arrived together, when the application asks for more, or leaves the
    block without an error. An event costs nothing; after a failure more events are handed out again than with AUTO."""


class ByToken:
    """The application acknowledges, with a token or without; this policy does nothing."""

    needs_every_step = False
    """Whether `on_asked` must be called for each event, also for events that are at hand already."""

    def __init__(self, subscription: Consumption) -> None:
        self._subscription = subscription

    def on_asked(self) -> None:
        """The application asks for the next event or batch."""

    def on_taken(self) -> None:
        """All of the former delivery was handed out; the next one has been taken."""

    async def on_closed(self) -> None:
        """The block ends without an error: everything that was handed out is done with."""

    def on_abandoned(self) -> None:
        """The consumption ends, with or without an error."""


class Automatic(ByToken):
    """Acknowledges an event when the application asks for the next one; at most once per turn of the loop."""

    needs_every_step = True

    def __init__(self, subscription: Consumption) -> None:
        super().__init__(subscription)
        self._done: Last = None
        """The last item of the current delivery with which the application is done."""
        self._scheduled = False

    def on_asked(self) -> None:
        """The application is done with everything that it was given before."""
        self._done = self._subscription.last
        if not self._scheduled:
            self._scheduled = True
            self._subscription.call_soon(self._acknowledge)

    def on_taken(self) -> None:
        """The application is not done with anything of the new delivery."""
        self._done = None

    async def on_closed(self) -> None:
        """Acknowledges the last event, too."""
        await self._subscription.acknowledge()

    def on_abandoned(self) -> None:
        """Acknowledges what the application was done with; the last item is not among that."""
        if self._scheduled:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._scheduled = False
        self._subscription.acknowledge_behind(self._done)


class Lazy(ByToken):
    """Acknowledges events that arrived together, all at once, when the application asks for more."""

    def on_taken(self) -> None:
        """Acknowledges the former delivery."""
        self._subscription.acknowledge_behind(None)

    async def on_closed(self) -> None:
        """Acknowledges what was handed out of the current delivery, too."""
        await self._subscription.acknowledge()


POLICIES: Mapping[AckMode, type[ByToken]] = {
    AckMode.TOKEN: ByToken,
    AckMode.AUTO: Automatic,
    AckMode.DUPS_OK: Lazy,
}
