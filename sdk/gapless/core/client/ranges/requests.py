"""Requests about durable subscriptions whose position the application keeps itself (protocol: ranges).

Requests are repeated after a reconnect. That is harmless: each one only looks, or changes what it changed already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.client.consuming.subscription import SubscribeOptions
from gapless.core.client.link.outbox import ClientOutbox
from gapless.core.client.link.requests import HeldLease, Query, Requests
from gapless.core.client.ranges.reading import Part, RangeReading
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    AcknowledgeDurably,
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    EndLease,
    EndRead,
    InUse,
    Position,
    PublishKeyed,
    ReadRange,
    TakeLease,
    Target,
)


class RangeRequests:
    """A client's requests about ranges, leases and keyed batches."""

    def __init__(self, outbox: ClientOutbox, requests: Requests) -> None:
        self._outbox = outbox
        self._requests = requests

    # Questions: each is answered under the number returned.

    def attach(self, wanted: SubscribeOptions, now: int) -> int:
        """Creates a durable subscription, or finds it. The answer is AttachedTo."""
        assert wanted.name is not None
        positions = None if wanted.positions is None else _list(wanted.positions)
        return self._ask(
            now,
            lambda number: Attach(
                number,
                wanted.name or "",
                wanted.topics,
                wanted.selector,
                wanted.start,
                wanted.start_wall,
                positions,
                wanted.token_sid,
                wanted.token_generation,
                wanted.token_seal,
                wanted.token_home,
                wanted.no_local,
            ),
        )

    def heads(self, target: Target | None, after: Mapping[PubendId, Tick] | None, wait_ms: int, now: int) -> int:
        """Asks how far there is something to read. The answer is Ticks, as for the next two requests."""
        behind = None if after is None else _list(after)
        return self._ask(now, lambda number: AskHeads(number, target, behind, wait_ms))

    def bound(
        self, target: Target, start: Mapping[PubendId, Tick], max_events: int | None, max_bytes: int | None, now: int
    ) -> int:
        """Asks how far a budget goes."""
        return self._ask(now, lambda number: AskBound(number, target, _list(start), max_events, max_bytes))

    def earliest(self, target: Target | None, now: int) -> int:
        """Asks from where on there is something to read."""
        return self._ask(now, lambda number: AskEarliest(number, target))

    def settle(self, target: Target, seal: bytes, positions: Mapping[PubendId, Tick], now: int) -> int:
        """Acknowledges. The answer is None, when that is durable."""
        return self._ask(now, lambda number: AcknowledgeDurably(number, target, seal, _list(positions)))

    def publish(self, producer: str, epoch: int, index: int, topic: str, events: EventColumns, now: int) -> int:
        """Publishes a keyed batch. The answer is KeyedPublished.

        The batches of a producer must be published one after the other. If one overtook the batch before it, that batch
        would look like a repetition, and be dropped.
        """
        return self._ask(now, lambda number: PublishKeyed(number, epoch, index, producer, topic, events))

    # What goes on.

    def lease(self, target: Target, owner: str, in_use: InUse, now: int) -> int:
        """Asks for a lease. The answer is None when it is granted; Failed may come instead, or later."""
        return self._requests.begin(HeldLease, lambda number: TakeLease(number, target, owner, in_use), now)

    def end_lease(self, number: int, now: int) -> None:
        """Gives a lease back. No effect about it follows."""
        self._outbox.now = now
        lease = self._requests.pop(number)
        if lease is not None:
            lease.end()
            if self._outbox.open:
                self._outbox.send(EndLease(number))

    def read(self, target: Target, pubend: PubendId, lo: Tick, hi: Tick, now: int) -> int:
        """Begins to read a range. `Arrived` reports that there is something to take; it may fail."""
        return self._requests.begin(RangeReading, lambda number: ReadRange(number, target, pubend, lo, hi, 0, 0), now)

    def take(self, number: int, now: int) -> Part | None:
        """Returns the next part of a range, if it has arrived."""
        self._outbox.now = now
        reading = self._reading(number)
        return None if reading is None else reading.take()

    def is_complete(self, number: int) -> bool:
        """Whether all of a range has arrived and was taken."""
        reading = self._reading(number)
        return reading is None or (reading.complete and not reading.parts)

    def end_read(self, number: int, now: int) -> None:
        """Ends a read whose rest is not wanted. No effect about it follows."""
        self._outbox.now = now
        reading = self._reading(number)
        self._requests.pop(number)
        if reading is not None:
            reading.end()
            if self._outbox.open and not reading.complete:
                self._outbox.send(EndRead(number))

    def _reading(self, number: int) -> RangeReading | None:
        reading = self._requests.get(number)
        return reading if isinstance(reading, RangeReading) else None

    def _ask(self, now: int, message: Callable[[int], Any]) -> int:
        return self._requests.begin(Query, message, now)


def _list(positions: Mapping[PubendId, Tick]) -> list[Position]:
    return [Position(pubend, tick) for pubend, tick in positions.items()]
