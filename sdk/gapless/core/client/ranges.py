"""What a client asks about durable subscriptions of which it keeps the position itself (protocol: ranges).

Questions are asked again after a reconnect, which does no harm: each is a look, or changes what it said already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gapless.core.client.asking import Asking
from gapless.core.client.backoff import Backoff
from gapless.core.client.leasing import Leasings
from gapless.core.client.outbox import Outbox
from gapless.core.client.reading import Part, Readings
from gapless.core.client.subscribing import Wanted
from gapless.core.client.timers import Key
from gapless.core.deadlines import Deadlines
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    InUse,
    Lease,
    Position,
    PublishKeyed,
    ReadRange,
    RequestFailed,
    Settle,
    Target,
)
from gapless.errors import GaplessError


class Ranges:
    """The part of a client's core that knows of ranges, leases and keyed batches."""

    def __init__(
        self,
        outbox: Outbox,
        deadlines: Deadlines[Key],
        backoff: Callable[[], Backoff],
        asking: Asking,
        number: Callable[[], int],
    ) -> None:
        """`number` draws the next one of the connection."""
        self._outbox = outbox
        self._asking = asking
        self._number = number
        self._readings = Readings(outbox, deadlines, backoff)
        self._leasings = Leasings(outbox, deadlines, backoff)

    # What happened.

    def handlers(self) -> Mapping[type, Callable[[Any], None]]:
        """Which of the broker's messages are for this."""
        return {**self._readings.handlers(), **self._leasings.handlers()}

    def on_failed(self, otherwise: Callable[[RequestFailed], None]) -> Callable[[RequestFailed], None]:
        """Takes failures of what was asked here; `otherwise` takes the others."""

        def on_failed(failed: RequestFailed) -> None:
            part = next((part for part in (self._readings, self._leasings) if failed.request in part), None)
            (otherwise if part is None else part.on_failed)(failed)

        return on_failed

    def on_session(self) -> None:
        """A session is open."""
        self._leasings.on_session()
        self._readings.on_session()

    def on_session_over(self) -> None:
        """The session is over: the next one is asked anew."""
        self._readings.on_session_over()
        self._leasings.on_session_over()

    def on_deadline(self, number: int) -> None:
        """What was put off is due."""
        self._readings.on_deadline(number)
        self._leasings.on_deadline(number)

    def fail_all(self, error: GaplessError) -> None:
        """There will be no answers."""
        self._readings.fail_all(error)
        self._leasings.fail_all(error)

    # Questions. Each is answered under the number returned.

    def attach(self, wanted: Wanted, now: int) -> int:
        """Creates a durable subscription, or finds it. Answered by AttachedTo."""
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
            ),
        )

    def heads(self, target: Target | None, after: Mapping[PubendId, Tick] | None, wait_ms: int, now: int) -> int:
        """Asks how far there is something to read. Answered by Ticks, as the two that follow."""
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
        """Acknowledges. Answered by None, when that is durable."""
        return self._ask(now, lambda number: Settle(number, target, seal, _list(positions)))

    def publish(self, producer: str, epoch: int, index: int, topic: str, events: EventColumns, now: int) -> int:
        """Publishes a keyed batch. Answered by KeyedPublished.

        One producer's batches are published one after the other: a batch that overtook the one before it would
        make that one look like a repetition.
        """
        return self._ask(now, lambda number: PublishKeyed(number, epoch, index, producer, topic, events))

    # What goes on.

    def lease(self, target: Target, owner: str, in_use: InUse, now: int) -> int:
        """Asks for a lease. Answered by None when it is granted; from then on, or before that, it may fail."""
        self._outbox.now = now
        return self._leasings.lease(Lease(self._number(), target, owner, in_use))

    def end_lease(self, number: int, now: int) -> None:
        """Gives a lease back."""
        self._outbox.now = now
        self._leasings.end(number)

    def read(self, target: Target, pubend: PubendId, lo: Tick, hi: Tick, now: int) -> int:
        """Begins to read a range. `Arrived` says that there is something to take; it may fail."""
        self._outbox.now = now
        return self._readings.read(ReadRange(self._number(), target, pubend, lo, hi, 0, 0))

    def take(self, number: int, now: int) -> Part | None:
        """The next part of a range, if it has arrived."""
        self._outbox.now = now
        return self._readings.take(number)

    def is_complete(self, number: int) -> bool:
        """Whether all of a range has arrived, and was taken."""
        return self._readings.is_complete(number)

    def end_read(self, number: int, now: int) -> None:
        """Nobody wants the rest of a range. Nothing more is heard of it."""
        self._outbox.now = now
        self._readings.end(number)

    def _ask(self, now: int, message: Callable[[int], Any]) -> int:
        self._outbox.now = now
        number = self._number()
        return self._asking.ask(number, message(number))


def _list(positions: Mapping[PubendId, Tick]) -> list[Position]:
    return [Position(pubend, tick) for pubend, tick in positions.items()]
