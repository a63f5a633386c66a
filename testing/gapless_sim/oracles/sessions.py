"""A client's session, as both of its ends see it: nothing twice, no gap in pieces, not too much, no breach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.gauges import values_by
from gapless.core.wire.messages import (
    Deliver,
    DeliverGap,
    DeliverHeld,
    DeliverSilence,
    Detached,
    PubendNumber,
    RangeEvents,
    RangeGap,
    RangeRead,
    ReadRange,
    Subscribed,
)
from gapless_shb.core.state import gauges
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import History
    from gapless_sim.recording.model import Model
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.broker import SimBroker


class I2Served(Judge):
    """What an SHB sends of a pubend rises strictly within a session, from above where the subscription was given.

    To be seen where it is sent: a client drops what it has.
    """

    name = "I2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._numbers: dict[tuple[str, int, int], PubendId] = {}
        """What a session's number of a pubend stands for."""
        self._last: dict[tuple[str, int], dict[int, dict[PubendId, Tick]]] = {}
        """By broker and session, of each subscription: the last tick of each pubend that was sent to it."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """Follows a session."""
        given = self._last.setdefault((broker, session), {})
        kind = type(message)
        if kind is Deliver:
            self._deliver(broker, session, message)
        elif kind is DeliverSilence:
            sids = given if message.sids is None else message.sids
            self._raise((broker, session), message.number, sids, message.upto)
        elif kind is DeliverGap:
            self._raise((broker, session), message.number, (message.sid,), message.end)
        elif kind is PubendNumber:
            self._numbers[broker, session, message.number] = message.pubend
        elif kind is Subscribed:
            given[message.sid] = {position.pubend: position.tick for position in message.positions}
        elif kind is Detached:
            given.pop(message.sid, None)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._last = {key: given for key, given in self._last.items() if key[0] != broker.name}
        self._numbers = {key: pubend for key, pubend in self._numbers.items() if key[0] != broker.name}

    def _deliver(self, broker: str, session: int, message: Deliver) -> None:
        pubend = self._numbers[broker, session, message.number]
        last = self._last[broker, session].get(message.sid)
        if last is None:
            self.fail(f"{broker} sends events of subscription {message.sid}, which session {session} does not have")
        before = last.get(pubend, 0)
        for tick in message.columns.ticks():
            if tick <= before:
                self.fail(f"{broker} sends {pubend} {tick} to subscription {message.sid}, which stands at {before}")
            before = tick
        last[pubend] = before

    def _raise(self, key: tuple[str, int], number: int, sids: Iterable[int], upto: Tick) -> None:
        broker, session = key
        pubend = self._numbers[broker, session, number]
        for sid in sids:
            last = self._last[key].get(sid)
            if last is not None:
                last[pubend] = max(upto, last.get(pubend, 0))


class I5InOnePiece(Judge):
    """What was lost is one gap: no gap follows another one of the same reason with nothing said between them.

    But for what the pubend lost only since. To be seen where it is sent: behind a connection that broke, the rest of
    a gap begins where the part ended that had arrived.
    """

    name = "I5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._numbers: dict[tuple[str, int, int], PubendId] = {}
        self._ranges: dict[tuple[str, int, int], PubendId] = {}
        """The pubend of each range that a session reads, by the client's number."""
        self._gaps: dict[tuple[str, int], dict[tuple[int, PubendId | None], tuple[DeliverGap | RangeGap, Tick]]] = {}
        """By broker and session, of each subscription and pubend, and of each range: a gap that was said last of it,
        and what was lost then."""
        self.listeners: list[Callable[[str, str, PubendId, DeliverGap | RangeGap], None]] = []
        """Called with each gap that is sent: by which broker, to whom, and of which pubend."""

    def received(self, broker: str, session: int, message: Any) -> None:
        """A range is about to be read: its parts do not name its pubend."""
        if type(message) is ReadRange:
            self._ranges[broker, session, message.request] = message.pubend

    def sent(self, broker: str, session: int, message: Any) -> None:
        """Follows a session."""
        gaps = self._gaps.setdefault((broker, session), {})
        kind = type(message)
        if kind is PubendNumber:
            self._numbers[broker, session, message.number] = message.pubend
        elif kind is DeliverGap:
            pubend = self._numbers[broker, session, message.number]
            self._judge(gaps, (message.sid, pubend), f"{broker} to subscription {message.sid}", pubend, message)
        elif kind is RangeGap:
            pubend = self._ranges[broker, session, message.request]
            self._judge(gaps, (message.request, None), f"{broker} of range {message.request}", pubend, message)
        elif kind is Deliver:
            gaps.pop((message.sid, self._numbers[broker, session, message.number]), None)
        elif kind in {RangeEvents, RangeRead}:
            gaps.pop((message.request, None), None)
        elif kind in {Subscribed, Detached}:
            for key in [key for key in gaps if key[0] == message.sid and key[1] is not None]:
                del gaps[key]

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._gaps.pop((broker, session), None)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._gaps = {key: gaps for key, gaps in self._gaps.items() if key[0] != broker.name}

    def _judge(
        self,
        gaps: dict[tuple[int, PubendId | None], tuple[DeliverGap | RangeGap, Tick]],
        key: tuple[int, PubendId | None],
        whom: str,
        pubend: PubendId,
        gap: DeliverGap | RangeGap,
    ) -> None:
        for listener in self.listeners:
            listener(whom.split(maxsplit=1)[0], whom, pubend, gap)
        history = self.model.histories.get(pubend)
        before, lost = gaps.get(key, (None, 0))
        if before is not None and before.reason == gap.reason and gap.end <= lost and history and history.sound:
            self.fail(
                f"{whom}: a gap ({before.start}, {before.end}] of {pubend}, and then nothing but a gap ({gap.start}, "
                f"{gap.end}], although all of it was lost by then, up to {lost}: that is one gap ({gap.reason})"
            )
        gaps[key] = gap, 0 if history is None else self._lost_upto(whom.split(maxsplit=1)[0], history, gap)

    def _lost_upto(self, broker: str, history: History, gap: DeliverGap | RangeGap) -> Tick:
        """Up to where the range is lost that a gap is of: all of that is one gap.

        Where the head of an SHB stands within what was lost, whoever catches up stops there for a moment.
        """
        upto = history.lost
        if gap.reason == "damaged":
            upto = next((hi for lo, hi in history.given_up.ranges if lo < gap.end <= hi), 0)
        heads = values_by(self.world.brokers[broker].gauges(), gauges.HEAD, "pubend")
        return min(upto, int(heads.get(history.pubend, upto)))


class P2Bounded(Judge):
    """What waits on the link of a session is bounded, however many subscriptions share it.

    Between two times at which an SHB learns that the link has room, it gives it no more than `link_bytes` of events and
    one delivery. What it says within one turn is seen at its end, maybe behind the second of them: so that is allowed
    twice.
    """

    name = "P2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._given: dict[tuple[str, int], tuple[int, int]] = {}
        """By broker and session: the bytes of all deliveries since there was room, and of the largest."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """An SHB gives events to a link."""
        if type(message) not in {Deliver, DeliverHeld, RangeEvents}:
            return
        given, largest = self._given.get((broker, session), (0, 0))
        if given > 2 * (self.world.options.link_bytes + largest):
            self.fail(f"{broker} gives session {session} more events, although {given} bytes may wait there")
        size = message.columns.size
        self._given[broker, session] = given + size, max(largest, size)

    def room(self, broker: str, session: int) -> None:
        """What waited has left."""
        self._given.pop((broker, session), None)

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._given.pop((broker, session), None)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._given = {key: given for key, given in self._given.items() if key[0] != broker.name}


class P1Protocol(Judge):
    """No two parts of ours break the protocol of a session between them: neither end has to end it for that."""

    name = "P1"

    def disconnected(self, client: SimClient, reason: str) -> None:
        """A session is over. Behind a disk that was replaced numbers of sessions are used again."""
        broken = reason.startswith("protocol violation") and not self.model.has_lost_disks
        missed = reason.startswith("frames were lost") and not client.world.hits["net.frame lost"]
        if broken or missed:
            self.fail(f"the session of {client.name} ended: {reason}")
