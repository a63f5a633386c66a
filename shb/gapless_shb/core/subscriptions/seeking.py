"""Subscriptions that asked for a time, on a numbered pubend that is found later: that has to find where the time is."""

from __future__ import annotations

from gapless.core.ports import Operation
from gapless.core.stream.ticks import Tick
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.rows import position_row


class Seeking:
    """Where subscriptions begin that a pubend has to look for."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting

    def seek(self, stream: Constream, subscription: SubscriptionRecord, now: int) -> list[Operation]:
        """Puts a subscription on a pubend that was found later, and that has to find the time it asked to begin at.

        Returns what has to be written. Until the pubend has answered, nothing is served there: it is as if the pubend
        were not found yet.
        """
        position = stream.seek(subscription, now)
        stream.add(subscription.sid, position, subscription.version)
        return [position_row(subscription.sid, stream.pubend, position)] if subscription.durable else []

    def found(self, stream: Constream, subscription: SubscriptionRecord, start: Tick) -> None:
        """It is known now where a subscription starts on a pubend that sought it, and durable at its home soon."""
        sid = subscription.sid
        position = stream.positions[sid]
        position.start = start
        position.acknowledge(start, 0)
        position.changed = True
        stream.touch(sid, position)
        subscription.start = {**subscription.start, stream.pubend: start}
        operations = [] if subscription.home else [*self._hosting.registry.save(subscription)]
        if subscription.durable:
            operations.append(position_row(sid, stream.pubend, position))

        def durable(now: int, wall: int) -> None:
            if self._hosting.registry.get(sid) is subscription:
                position.sought = False
                self._hosting.attach_to_found(stream, sid, now, wall)

        self._hosting.outbox.write(operations, durable)

    def found_by_pubend(self, stream: Constream, subscription: SubscriptionRecord, held_from: Tick) -> None:
        """A pubend has found the time that a subscription asked to begin at, and keeps what comes after that.

        Whatever time its records bear, all are owed that came since this broker was counted there.
        """
        self.found(stream, subscription, stream.client_position(min(held_from, stream.enrolled_at)))
