"""The position at the broker: nothing is handed out before the commit of what was handed out last is durable.

    take a unit ──▶ in hand ──asks for more──▶ commit under way ──Committed──▶ take a unit

A unit is an event, or a batch. After a crash one unit is in doubt: the one that was in hand. Its home knows which one
that is (protocol: committing). Two kinds of units are known there before they are handed out, so they wait for an
answer: a batch, up to its last event; and an event that may have been handed out before, which comes alone. An
announcement travels with the commit before it, so it costs nothing while events are waiting.

A unit may also gather: everything that was handed out since the application committed last, of any pubend. Then its
end is not known before, so it is announced ahead, by some events at a time, and those are marked after a crash
although a few of them may not have been handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gapless.core.client.consuming.doubt import Doubt
from gapless.core.client.consuming.earlier import EarlierMarks
from gapless.core.client.consuming.items import Delivery
from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Acknowledged, Commit, Subscribed, Unit

AHEAD_EVENTS = 64
"""How many events are announced at once where a unit gathers."""


class Redelivery(Delivery):
    """A delivery in which some events may have been handed out before."""

    __slots__ = ("first_count", "marked", "recovered", "scattered")

    def __init__(self, delivery: Delivery, recovered: Sequence[Tick] = ()) -> None:
        super().__init__(delivery.pubend, delivery.columns, delivery.ticks, delivery.decoded, delivery.size)
        self.recovered = recovered
        """Up to where this process was handed events, and recovered them."""
        self.marked: Tick = 0
        """Up to where another one may have been handed events."""
        self.scattered: frozenset[Tick] = frozenset()
        """Other events that another one may have been handed."""
        self.first_count = 1
        """At least how often the first event was handed out, this time included."""

    def events(self) -> list[Event]:
        """Returns the events, and marks those that may have been handed out before."""
        events = super().events()
        upto = max(self.marked, *self.recovered, 0)
        for event in events:
            if event.tick > upto and not self.scattered:
                break
            by_others = event.tick <= self.marked or event.tick in self.scattered
            event.delivery_count = 1 + by_others + sum(event.tick <= tick for tick in self.recovered)
        events[0].delivery_count = max(self.first_count, events[0].delivery_count)
        return events


@dataclass(slots=True)
class Committing:
    """What one subscription of a client commits, and what it may hand out."""

    gathers: bool = False
    """Whether a unit gathers; else nothing is handed out while something is in hand."""
    sid: int = 0
    """The id of the subscription in the present session."""
    epoch: int = 0
    key: str = ""
    """How pubends know the subscription, and `claim`, the epoch under which its home has claimed it there."""
    claim: int = 0
    enlisted: frozenset[PubendId] = frozenset()
    """The pubends at which transactions may store its position."""
    under_way: Commit | None = None
    """What has no answer yet. Nothing is handed out before."""
    in_hand: dict[PubendId, Unit] = field(default_factory=dict)
    """What was handed out, and is not durably committed: one unit, or where it gathers one of each pubend."""
    is_certain: bool = False
    """Whether any event may be handed out alone, and its home need not know before which one it is."""
    _number: int = 0
    _repeated: int = 0
    """The last commit whose positions the newest request to attach has."""
    _doubt: Doubt = field(default_factory=Doubt)
    _attempts: dict[PubendId, tuple[Tick, int]] = field(default_factory=dict)
    _marked: dict[PubendId, Tick] = field(default_factory=dict)
    """Up to where former consumers may have been handed batches that they did not commit."""
    _earlier: EarlierMarks = field(default_factory=EarlierMarks)
    """What former consumers may have been handed while the subscription had another filter."""
    _announced: dict[PubendId, Tick] = field(default_factory=dict)
    """Up to where batches may be handed out: its home knows of them."""
    _taken: tuple[PubendId, Tick] | None = None
    """The event that may be handed out although it may have been before: its home has counted the attempt."""
    _former: tuple[int, dict[PubendId, Tick]] = (0, {})
    """The epoch of a consumer for which this one goes on, and what was marked for it."""
    _own_doubt: Doubt = field(default_factory=Doubt)
    """What is in doubt if nobody else was there since that consumer: what it had found, and what it had in hand."""
    _doubt_upto: dict[PubendId, Tick] = field(default_factory=dict)
    """The last event that it had in hand of each pubend, if nobody else was there since: none behind it is in doubt."""
    _met: set[PubendId] = field(default_factory=set)
    """The pubends of which this consumer was handed something: what follows there is not in doubt."""

    @property
    def is_idle(self) -> bool:
        """Whether everything that was handed out is durably committed."""
        return not self.in_hand and self.under_way is None

    @property
    def former_epoch(self) -> int:
        """The epoch of the consumer of this process for which it goes on; 0: it goes on for none."""
        return self._former[0]

    @property
    def found_doubt(self) -> bool:
        """Whether somebody had it before who did not say what it was handed."""
        return bool(self._doubt) or self.knows_earlier

    @property
    def knows_earlier(self) -> bool:
        """Whether something may have been handed out while the subscription had another filter."""
        return bool(self._earlier)

    def unit(self, pubend: PubendId, ticks: Sequence[Tick], events: Callable[[], Sequence[Event]]) -> Unit:
        """Returns the unit of the events that are next: all of them, or the first ones, or the first alone.

        `events` decodes them: it is called only where the events tell more than the ticks.
        """
        first, last = ticks[0], ticks[-1]
        doubt = self._doubt.concerns(pubend) and first <= self._doubt_upto.get(pubend, first)
        counted = pubend not in self._met and (doubt or self._attempts.get(pubend, (0, 0))[0] == first)
        if self._earlier.concerns(pubend, first):
            alone = self._earlier.first_alone(pubend, events())
            if alone is not None and alone.tick == first:
                return Unit(pubend, first, first, counted=True, resolves=self._earlier.resolved_by(pubend, alone))
            if alone is not None:
                last = ticks[ticks.index(alone.tick) - 1]
        return Unit(pubend, first, first if counted else last, counted)

    def allowed(self, unit: Unit) -> Tick | None:
        """Returns up to which event of a unit everything may be handed out now; None if it has to be announced."""
        if unit.counted:
            return unit.first if self._taken == (unit.pubend, unit.first) else None
        announced = self._announced.get(unit.pubend, 0)
        if announced > unit.first or (announced == unit.first and self.gathers):
            return min(unit.last, announced)
        if self.gathers and unit.pubend in self.in_hand:
            return None
        # After a crash the first event behind the position is in doubt anyway.
        return unit.first if unit.first == unit.last else None

    def ask(self, positions: list[Acknowledged], unit: Unit | None) -> Commit:
        """Something has to be durable before anything else is handed out. Returns the message."""
        self._number += 1
        if unit is not None and self.allowed(unit) == unit.last:
            unit = None  # its home knows it already, or need not
        elif unit is not None and self.gathers and unit.pubend in self.in_hand and not unit.counted:
            unit = Unit(unit.pubend, self.in_hand[unit.pubend].first, unit.last)
        self.under_way = Commit(self.sid, self.epoch, self._number, positions, unit)
        return self.under_way

    def enlist(self, pubend: PubendId) -> None:
        """A transaction is going to store the position at a pubend: nothing is sent there before its home knows."""
        self._number += 1
        self.under_way = Commit(self.sid, self.epoch, self._number, [], None, pubend)

    def stored(self, positions: Mapping[PubendId, Tick]) -> None:
        """A transaction has stored these positions durably: what it was handed up to there is committed."""
        self.in_hand = {p: unit for p, unit in self.in_hand.items() if positions.get(p, 0) < unit.last}

    def hand_out(self, unit: Unit, delivery: Delivery) -> Delivery:
        """A unit is handed out. Returns it, marked where it may have been handed out before."""
        pubend, first = unit.pubend, unit.first
        begun = self.in_hand.get(pubend)
        self.in_hand[pubend] = Unit(pubend, begun.first if begun is not None else first, delivery.ticks[-1])
        self._met.add(pubend)
        marked = self._marked.get(pubend, 0)
        scattered: frozenset[Tick] = frozenset()
        count = 0
        if self._earlier.concerns(pubend, first):
            count = self._earlier.count(pubend, first)
            scattered = self._earlier.hand_out(pubend, _decoded(delivery))
        if not unit.counted and first > marked and not scattered:
            return delivery
        again = delivery if isinstance(delivery, Redelivery) else Redelivery(delivery)
        again.marked, again.scattered = marked, scattered
        if unit.counted:
            tick, counted = self._attempts.get(pubend, (0, 0))
            again.first_count = max(2, count + 1, counted + 1 if tick == first else 0)
        return again

    def left(self) -> list[PubendId] | None:
        """Returns the pubends on which there is no doubt any more, for the next consumer; None: there was none."""
        if not self._doubt:
            return None
        # Where it knows better than its home what is in doubt, its home takes more for doubtful than is.
        cleared = self._doubt.exceptions if self._doubt.everywhere else frozenset()
        return sorted(cleared | self._met)

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

    def recovers(self, former: Committing) -> None:
        """It goes on for a consumer of this process that has left with something in hand, which comes again."""
        self._former = former.epoch, former._marked
        self._own_doubt = former._doubt.without(former._met).and_at(former.in_hand)
        unmet = {pubend: tick for pubend, tick in former._doubt_upto.items() if pubend not in former._met}
        self._doubt_upto = unmet | {pubend: unit.last for pubend, unit in former.in_hand.items()}

    def on_attached(self, answer: Subscribed, *, again: bool) -> bool:
        """It is attached. `again`: it was before. Returns whether what was waited for is durable by that."""
        self.sid, self.epoch, self.key, self.claim = answer.sid, answer.epoch, answer.key, answer.claim
        self.enlisted = frozenset(answer.enlisted)
        if not again:
            epoch, marked = self._former
            # What this process itself was handed it knows better, if nobody else was there in between.
            is_next = 0 < epoch == answer.epoch - 1
            found = self._own_doubt if is_next else Doubt(everywhere=True)
            self._doubt = found.without(answer.cleared) if answer.doubt else Doubt()
            if not is_next:
                self._doubt_upto = {}
            self._attempts = {each.pubend: (each.tick, each.count) for each in answer.attempts}
            self._earlier = EarlierMarks(answer.earlier)
            self.is_certain = not (self.gathers or self._doubt or self._attempts or self._earlier)
            self._announced = {each.pubend: each.tick for each in answer.units}
            self._marked = marked if is_next else self._announced.copy()
        asked = self.under_way
        if asked is None or asked.unit is not None or asked.enlists or asked.number > self._repeated:
            return False
        self._settle(asked)
        return True

    def is_of_this_attachment(self, commit: Commit) -> bool:
        """Whether a commit was asked since it was attached, in the present session."""
        return commit.epoch == self.epoch and commit.sid == self.sid

    def again(self, positions: list[Acknowledged]) -> Commit | None:
        """Returns what has to be asked in the present attachment."""
        asked = self.under_way
        if asked is not None:
            self.under_way = asked = Commit(self.sid, self.epoch, asked.number, positions, asked.unit, asked.enlists)
        return asked

    def _settle(self, asked: Commit) -> None:
        self.under_way = None
        if asked.enlists:
            self.enlisted |= {asked.enlists}
        in_hand = self.in_hand
        for each in asked.positions:
            if each.pubend in in_hand and in_hand[each.pubend].last <= each.tick:
                del in_hand[each.pubend]
        unit = asked.unit
        if unit is not None:
            self._announced[unit.pubend] = max(unit.last, self._announced.get(unit.pubend, 0))
            if unit.counted:
                self._taken = unit.pubend, unit.first


def _decoded(delivery: Delivery) -> Sequence[Event]:
    """Returns the events of a delivery; none if one is malformed, which whoever is handed it finds, too."""
    try:
        return delivery.events()
    except ValueError:
        return ()
