"""Positions: each that was ever handed out is good for ever where it comes from, and any other is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from gapless.core.stream.ticks import STEP
from gapless.core.wire.messages import (
    AttachedTo,
    Code,
    Deliver,
    DeliverGap,
    DeliverSilence,
    Detached,
    PubendNumber,
    RequestFailed,
    Subscribed,
    SubscriptionList,
    Ticks,
)
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.network import facts as routing
    from gapless.core.stream.intervals import Ranges
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

TOLD_MAX = 4096
"""So many positions of each pubend are remembered, of all that were handed out."""


class U03Positions(Judge):
    """No position that a broker handed out is refused later, as long as no disk was lost; and none ahead is taken.

    Only `Asker` presents a position that no broker has handed out.
    """

    name = "U03"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self.positions: dict[PubendId, list[Tick]] = {}
        """Positions that were handed out, some of each age."""
        self.invented: set[int] = set()
        """The clients' numbers of requests that present a position that was never handed out."""
        self._named: dict[str, set[PubendId]] = {}
        """Which pubends each broker has named in its life."""
        self._counts: dict[PubendId, int] = {}
        self._decided: dict[PubendId, Tick] = {}
        self._voids: dict[PubendId, Ranges] = {}
        self._numbers: dict[tuple[str, int, int], PubendId] = {}

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """How far the pubend is: nothing above can have been handed out."""
        self._decided[knowledge.pubend] = max(self._decided.get(knowledge.pubend, 0), knowledge.hi)

    def opened(self, broker: str, meta: routing.PubendMeta, members: Any) -> None:
        """Likewise; and when there was no PHB, which is where positions have been refused before."""
        self._voids[meta.pubend] = meta.voids
        self._decided[meta.pubend] = max(self._decided.get(meta.pubend, 0), meta.stable)

    def sent(self, broker: str, session: int, message: Any) -> None:
        """Remembers what is handed out, and judges what is refused."""
        if isinstance(message, PubendNumber):
            self._numbers[broker, session, message.number] = message.pubend
        elif isinstance(message, RequestFailed | Detached):
            if message.code is Code.TOKEN_AHEAD and not self.model.has_lost_disks:
                self._judge(broker, message)
        else:
            for pubend, tick in self._positions(broker, session, message):
                self._named.setdefault(broker, set()).add(pubend)
                self._remember(pubend, tick)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over, and what it found last may be forgotten."""
        self._named.pop(broker.name, None)
        self._numbers = {key: pubend for key, pubend in self._numbers.items() if key[0] != broker.name}

    def refused_again(self, who: str, pubend: PubendId, tick: Tick, reason: str) -> None:
        """A position that was handed out was asked about, and refused."""
        if not self.model.has_lost_disks:
            self.fail(f"{who} asked from {tick} of {pubend} on, which a broker had told, and was refused: {reason}")

    def taken(self, who: str, broker: str, pubend: PubendId, tick: Tick) -> None:
        """A position that was never handed out was granted: by then the pubend must have come there."""
        if self.knows(broker, pubend) and tick > self._decided.get(pubend, 0) + STEP:
            self.fail(f"{who} was granted {tick} of {pubend}, which is decided up to {self._decided.get(pubend, 0)}")

    def knows(self, broker: str, pubend: PubendId) -> bool:
        """Whether a broker has named a pubend in this life; of one that it does not know it keeps any position."""
        return pubend in self._named.get(broker, ())

    def decided(self, pubend: PubendId) -> Tick:
        """How far a pubend was ever said to be."""
        return self._decided.get(pubend, 0)

    def _judge(self, broker: str, message: RequestFailed | Detached) -> None:
        if isinstance(message, Detached) or message.request not in self.invented:
            self.fail(f"{broker} refuses a position, although whoever has it was told it: {message.reason}")

    def in_voids(self, pubend: PubendId) -> list[Tick]:
        """The positions that were handed out for times without a PHB."""
        voids = self._voids.get(pubend, ())
        return [tick for tick in self.positions[pubend] if any(lo < tick <= hi for lo, hi in voids)]

    def _positions(self, broker: str, session: int, message: Any) -> Iterator[tuple[PubendId, Tick]]:
        if isinstance(message, Subscribed | AttachedTo | Ticks):
            yield from ((position.pubend, position.tick) for position in message.positions)
        elif isinstance(message, SubscriptionList):
            yield from ((position.pubend, position.tick) for row in message.rows for position in row.acknowledged)
        elif isinstance(message, DeliverSilence):
            yield self._numbers[broker, session, message.number], message.upto
        elif isinstance(message, DeliverGap):
            yield self._numbers[broker, session, message.number], message.end
        elif isinstance(message, Deliver):
            yield self._numbers[broker, session, message.number], message.columns.ticks()[-1]

    def _remember(self, pubend: PubendId, tick: Tick) -> None:
        """Of any age as many are kept: the more there were, the seldomer one takes another's place."""
        told = self.positions.setdefault(pubend, [])
        count = self._counts[pubend] = self._counts.get(pubend, 0) + 1
        place = crc32(count.to_bytes(8, "big")) % count
        if len(told) < TOLD_MAX:
            told.append(tick)
        elif place < TOLD_MAX:
            told[place] = tick
