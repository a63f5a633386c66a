"""What a subscription hands out besides single events: silences, gaps, and deliveries not decoded yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick, reads_as_time, shown_place, time_at
from gapless.core.wire.delivered import DeliveredColumns


class Silence(msgspec.Struct, frozen=True, gc=False):
    """No event that the subscription matches has a tick in `(start, end]` on this pubend."""

    pubend: PubendId
    start: Tick
    end: Tick


class Gap(msgspec.Struct, frozen=True, gc=False):
    """Events with a tick in `(start, end]` on this pubend may have been lost, for `reason`."""

    pubend: PubendId
    start: Tick
    end: Tick
    reason: str = ""

    @property
    def since(self) -> datetime | None:
        """The time of `start`, UTC; None before the pubend's first event, or if its ticks are no times."""
        return time_at(self.start) if reads_as_time(self.start) else None

    @property
    def until(self) -> datetime | None:
        """The time of `end`, UTC; None if there is none, or if its ticks are no times."""
        return time_at(self.end) if reads_as_time(self.end) else None

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        if self.until is None and self.since is None:
            places = f"{shown_place(self.start, after=True)} to {shown_place(self.end, after=False)}"
            return f"events of {self.pubend} from {places} may have been lost{reason}"
        since = f"{self.since:%Y-%m-%d %H:%M:%S}" if self.since else "the beginning"
        until = f"{self.until:%Y-%m-%d %H:%M:%S}" if self.until else "now"
        return f"events of {self.pubend} from {since} to {until} UTC may have been lost{reason}"


class Delivery:
    """Events of one pubend in tick order, as they arrived: columns, which are decoded when needed."""

    __slots__ = ("columns", "count", "decoded", "pubend", "size", "ticks")

    def __init__(
        self,
        pubend: PubendId,
        columns: Sequence[DeliveredColumns],
        ticks: Sequence[Tick],
        decoded: Event | None = None,
        size: int = 0,
    ) -> None:
        """`decoded`: a single event, which was decoded together with others, and has that size; it needs no columns."""
        self.pubend = pubend
        self.columns = columns
        self.ticks = ticks
        self.count = len(ticks)
        self.decoded = decoded
        self.size = size or sum([each.size for each in columns])
        """The bytes of rows and events."""

    def __repr__(self) -> str:
        return f"Delivery({self.pubend}, {self.count} events, {self.ticks[0]}..{self.ticks[-1]})"

    def bodies(self) -> list[bytes]:
        """Returns the bodies of the events; nothing is decoded. Raises ValueError if one is longer than its event."""
        if self.decoded is not None:
            return [self.decoded.body]
        return [body for columns in self.columns for body in columns.bodies()]

    def events(self) -> list[Event]:
        """Returns the events. Raises ValueError if one is malformed."""
        if self.decoded is not None:
            return [self.decoded]
        if len(self.columns) == 1:
            return self.columns[0].events(self.pubend)
        return [event for columns in self.columns for event in columns.events(self.pubend)]


Item: TypeAlias = Delivery | Silence | Gap
"""What `take` returns."""
