"""The position at the broker: nothing is handed out before the commit of what was handed out last is durable.

    take a unit ──▶ in hand ──asks for more──▶ commit under way ──Committed──▶ take a unit

A unit is an event, or a batch. After a crash one unit is in doubt: the one that was in hand. Its home knows which one
that is (protocol: committing). Two kinds of units are known there before they are handed out, so they wait for an
answer: a batch, up to its last event; and an event that may have been handed out before, which comes alone. An
announcement travels with the commit before it, so it costs nothing while events are waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gapless.core.client.items import Delivery
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Acknowledged, Commit, Subscribed, Unit


class Redelivery(Delivery):
    """A delivery in which events up to a tick may have been handed out before."""

    __slots__ = ("delivery_count", "upto")

    def __init__(self, delivery: Delivery, upto: Tick, delivery_count: int) -> None:
        super().__init__(delivery.pubend, delivery.columns, delivery.ticks)
        self.upto = upto
        self.delivery_count = delivery_count

    def events(self) -> list[Event]:
        """Returns the events, and marks those that may have been handed out before."""
        events = super().events()
        for event in events:
            if event.tick > self.upto:
                break
            event.delivery_count = self.delivery_count
        return events


@dataclass(slots=True)
class Committing:
    """What one subscription of a client commits, and what it may hand out."""

    epoch: int = 0
    key: str = ""
    """How pubends know the subscription, and `claim`, the epoch under which its home has claimed it there."""
    claim: int = 0
    enlisted: frozenset[PubendId] = frozenset()
    """The pubends at which transactions may store its position."""
    under_way: Commit | None = None
    """What has no answer yet. Nothing is handed out before."""
    in_hand: Unit | None = None
    """What was handed out, and is not durably committed."""
    _number: int = 0
    _repeated: int = 0
    """The last commit whose positions the newest request to attach has."""
    _doubt: bool = False
    _settled: frozenset[PubendId] = frozenset()
    """The pubends that are not in doubt all the same."""
    _attempts: dict[PubendId, tuple[Tick, int]] = field(default_factory=dict)
    _marked: dict[PubendId, Tick] = field(default_factory=dict)
    """Up to where former consumers may have been handed batches that they did not commit."""
    _announced: dict[PubendId, Tick] = field(default_factory=dict)
    """Up to where batches may be handed out: its home knows of them."""
    _taken: tuple[PubendId, Tick] | None = None
    """The event that may be handed out although it may have been before: its home has counted the attempt."""
    _met: set[PubendId] = field(default_factory=set)
    """The pubends of which this consumer was handed something: what follows there is not in doubt."""

    @property
    def is_idle(self) -> bool:
        """Whether everything that was handed out is durably committed."""
        return self.in_hand is None and self.under_way is None

    def unit(self, pubend: PubendId, ticks: Sequence[Tick]) -> Unit:
        """Returns the unit of the events that are next: all of them, or the first alone."""
        first = ticks[0]
        doubt = self._doubt and pubend not in self._settled
        careful = pubend not in self._met and (doubt or self._attempts.get(pubend, (0, 0))[0] == first)
        return Unit(pubend, first, first if careful else ticks[-1], careful)

    def allowed(self, unit: Unit) -> Tick | None:
        """Returns up to which event of a unit everything may be handed out now; None if it has to be announced."""
        if unit.careful:
            return unit.first if self._taken == (unit.pubend, unit.first) else None
        announced = self._announced.get(unit.pubend, 0)
        return min(unit.last, announced) if announced > unit.first else unit.first if unit.first == unit.last else None

    def ask(self, positions: list[Acknowledged], unit: Unit | None) -> Commit:
        """Something has to be durable before anything else is handed out. Returns the message, without its sid."""
        self._number += 1
        if unit is not None and self.allowed(unit) == unit.last:
            unit = None  # its home knows it already, or need not
        self.under_way = Commit(0, self.epoch, self._number, positions, unit)
        return self.under_way

    def enlist(self, pubend: PubendId) -> None:
        """A transaction is going to store the position at a pubend: nothing is sent there before its home knows."""
        self._number += 1
        self.under_way = Commit(0, self.epoch, self._number, [], None, pubend)

    def hand_out(self, unit: Unit, delivery: Delivery) -> Delivery:
        """A unit is handed out. Returns it, marked where it may have been handed out before."""
        pubend, first = unit.pubend, unit.first
        self.in_hand = Unit(pubend, first, delivery.ticks[-1])
        self._met.add(pubend)
        if unit.careful:
            tick, count = self._attempts.get(pubend, (0, 0))
            return Redelivery(delivery, first, max(2, count + 1) if tick == first else 2)
        marked = self._marked.get(pubend, 0)
        return Redelivery(delivery, marked, 2) if first <= marked else delivery

    def left(self) -> list[PubendId] | None:
        """Returns the pubends on which there is no doubt any more, for the next consumer; None: there was none."""
        return sorted(self._settled | self._met) if self._doubt else None

    def on_committed(self, number: int) -> bool:
        """The home has answered. Returns whether that is what is waited for."""
        asked = self.under_way
        if asked is None or asked.number != number:
            return False
        self._settle(asked)
        return True

    def on_asking(self) -> None:
        """A request to attach is sent, which repeats the positions."""
        self._repeated = self._number

    def on_attached(self, answer: Subscribed, *, again: bool) -> bool:
        """It is attached. `again`: it was before. Returns whether what was waited for is durable by that."""
        self.epoch, self.key, self.claim = answer.epoch, answer.key, answer.claim
        self.enlisted = frozenset(answer.enlisted)
        if not again:
            self._doubt = answer.doubt
            self._settled = frozenset(answer.settled)
            self._attempts = {each.pubend: (each.tick, each.count) for each in answer.attempts}
            self._marked = {each.pubend: each.tick for each in answer.units}
            self._announced = dict(self._marked)
        asked = self.under_way
        if asked is None or asked.unit is not None or asked.enlists or asked.number > self._repeated:
            return False
        self._settle(asked)
        return True

    def again(self, positions: list[Acknowledged]) -> Commit | None:
        """Returns what has to be asked in the present attachment."""
        asked = self.under_way
        if asked is not None:
            self.under_way = asked = Commit(0, self.epoch, asked.number, positions, asked.unit, asked.enlists)
        return asked

    def _settle(self, asked: Commit) -> None:
        self.under_way = None
        if asked.enlists:
            self.enlisted |= {asked.enlists}
        done = {each.pubend: each.tick for each in asked.positions}
        if self.in_hand is not None and done.get(self.in_hand.pubend, 0) >= self.in_hand.last:
            self.in_hand = None
        unit = asked.unit
        if unit is not None:
            self._announced[unit.pubend] = max(unit.last, self._announced.get(unit.pubend, 0))
            if unit.careful:
                self._taken = unit.pubend, unit.first
