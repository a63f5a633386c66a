"""Who acknowledges what a subscription hands out: one policy for each mode, and the table of them.

A new mode is a member of `AckMode` and a policy in `POLICIES`; a subscription knows no mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol, TypeAlias

from gapless.core.client import Gap, Silence
from gapless.core.stream.events import Event

Last: TypeAlias = Event | Silence | Gap | None
"""What was handed out last, of the delivery or the gap in hand; None: nothing of it."""


class Consumption(Protocol):
    """What a policy needs of the subscription that it acknowledges for."""

    last: Last

    async def acknowledge(self) -> None:
        """Everything that was handed out is done with."""

    def acknowledge_behind(self, last: Last) -> None:
        """Everything up to something of what is in hand is done with; None: all before what is in hand."""

    def call_soon(self, do: Callable[[], None]) -> None:
        """Does something in the next turn of the loop."""


class AckMode(Enum):
    """Who acknowledges what a subscription hands out."""

    TOKEN = "token"
    """The application, with `Subscription.acknowledge`."""
    AUTO = "auto"
    """The session: an event when the next one is asked for, or the block ends well."""
    DUPS_OK = "dups-ok"
    """The session, lazily: what arrived together, when more than that is asked for, or the block ends well. An event
    costs nothing; after a failure more events are handed out again than with AUTO."""


class ByToken:
    """The application acknowledges, with a token or without: nothing happens by itself."""

    needs_every_step = False
    """Whether `on_asked` must be called for each event, also for one that is at hand already."""

    def __init__(self, subscription: Consumption) -> None:
        self._subscription = subscription

    def on_asked(self) -> None:
        """The application asks for the next event or batch."""

    def on_taken(self) -> None:
        """All that was in hand is handed out, and something else is in hand now."""

    async def on_closed(self) -> None:
        """The block ends well: everything that was handed out is done with."""

    def on_abandoned(self) -> None:
        """The consumption ends, well or not."""


class Automatic(ByToken):
    """What was handed out before is done with when the application asks for the next: acknowledged once a loop turn."""

    needs_every_step = True

    def __init__(self, subscription: Consumption) -> None:
        super().__init__(subscription)
        self._done: Last = None
        """What the application has asked past, of what is in hand."""
        self._scheduled = False

    def on_asked(self) -> None:
        """What it was given before is done with."""
        self._done = self._subscription.last
        if not self._scheduled:
            self._scheduled = True
            self._subscription.call_soon(self._acknowledge)

    def on_taken(self) -> None:
        """Of what is in hand now nothing is done with."""
        self._done = None

    async def on_closed(self) -> None:
        """The last is done with, too."""
        await self._subscription.acknowledge()

    def on_abandoned(self) -> None:
        """What was asked past is done with all the same; what is in hand is not."""
        if self._scheduled:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._scheduled = False
        self._subscription.acknowledge_behind(self._done)


class Lazy(ByToken):
    """What arrived together is done with, all at once, when the application asks for more than that."""

    def on_taken(self) -> None:
        """All that was in hand before is done with."""
        self._subscription.acknowledge_behind(None)

    async def on_closed(self) -> None:
        """What was handed out is done with, too."""
        await self._subscription.acknowledge()


POLICIES: Mapping[AckMode, type[ByToken]] = {
    AckMode.TOKEN: ByToken,
    AckMode.AUTO: Automatic,
    AckMode.DUPS_OK: Lazy,
}
