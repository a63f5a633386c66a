"""Acknowledging what was read by ranges: who read it says how far he is done, and hears when that is durable."""

from __future__ import annotations

from gapless.core.ports import ClientSession, Operation
from gapless.core.stream.ticks import Tick
from gapless.core.wire.messages import AcknowledgeDurably, Code, Done
from gapless_shb.core.admission import RefusedError, called
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.positions import SubscriptionPosition
from gapless_shb.core.positions_ahead import PositionsAhead
from gapless_shb.core.ranges.targets import Targets
from gapless_shb.core.rows import position_row


class Settling:
    """Answers AcknowledgeDurably."""

    def __init__(self, hosting: Hosting, targets: Targets, ahead: PositionsAhead) -> None:
        self._hosting = hosting
        self._targets = targets
        self._ahead = ahead

    def on_settle(
        self, session: ClientSession, request: AcknowledgeDurably, holder: int | None, obsolete: list[Operation]
    ) -> None:
        """Monotone: what is said again, or late, changes nothing. Raises RefusedError, BeyondError.

        `holder`: the session that has the subscription's lease. `obsolete`: what was noted of nobody's being there.
        """
        subscription = self._targets.find(session, request.target)
        self._targets.check_seal(subscription, request.target, request.token_seal)
        self._targets.check(request.positions, subscription)
        streams = self._hosting.streams
        news = [
            said
            for said in request.positions
            if said.pubend in streams and said.tick > streams[said.pubend].positions[subscription.sid].acked
        ]
        self._ahead.check(news, called(subscription.name))
        consumer = self._hosting.consumers.get(subscription.sid)
        others = {holder} if consumer is None else {holder, consumer.channel.session}
        if others - {None, session.number}:
            reason = f"another consumer has subscription {subscription.name!r}: it alone may say what is done with"
            raise RefusedError(Code.IN_USE, reason)
        rows = list(obsolete)
        for said in request.positions:
            stream = self._hosting.streams.get(said.pubend)
            if stream is not None:
                position = stream.positions[subscription.sid]
                stream.acknowledge(subscription.sid, said.tick, last_event(position, stream.head, said.tick))
                rows.append(position_row(subscription.sid, said.pubend, position))
        self._hosting.write_then_tell(rows, session.number, Done(request.request))


def last_event(position: SubscriptionPosition, head: Tick, tick: Tick) -> Tick:
    """The last event of a subscription at or below a tick; or more, where that is not known, but never less.

    Between it and the tick nothing may stand that the subscription matches: whoever goes back there is told of silence,
    whatever became of the log. The PFS knows of what is behind `since` and up to the head, and of the last event only;
    after a crash of this broker an application may be further than the head.
    """
    if tick > head:
        return tick
    return min(tick, max(position.last_tick, position.since))
