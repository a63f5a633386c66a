"""What may have been handed out while a subscription had another filter (protocol: committing).

Such an event is recognised by that filter: the home knows up to where it was sent, and the client sees what it selects.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapless.core.stream.events import Event
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Earlier
from gapless.errors import InvalidSelectorError, InvalidTopicError
from gapless.selectors.filters import Filter


class EarlierMarks:
    """What a home has told of all earlier filters of one subscription."""

    def __init__(self, told: Sequence[Earlier] = ()) -> None:
        """Nothing, or what an answer names."""
        self._all = [_OfOneFilter(each) for each in told]
        self._upto: dict[PubendId, Tick] = {}
        for each in self._all:
            for bounds in (each.firsts, each.units, dict(each.attempts.keys())):
                for pubend, tick in bounds.items():
                    self._upto[pubend] = max(tick, self._upto.get(pubend, 0))

    def __bool__(self) -> bool:
        return bool(self._all)

    def concerns(self, pubend: PubendId, tick: Tick) -> bool:
        """Whether an event from this tick on may have been handed out."""
        return tick <= self._upto.get(pubend, 0)

    def first_alone(self, pubend: PubendId, events: Sequence[Event]) -> Event | None:
        """Returns the first of these events that counts as an attempt, so it is handed out alone."""
        return next(
            (event for event in events if any(each.may_be_alone(pubend, event) for each in self._all)),
            None,
        )

    def resolved_by(self, pubend: PubendId, event: Event) -> tuple[int, ...]:
        """Returns the numbers of what has this event as its first one."""
        return tuple(each.number for each in self._all if each.has_first(pubend, event))

    def count(self, pubend: PubendId, tick: Tick) -> int:
        """How many attempts at an event were counted."""
        return max((each.attempts.get((pubend, tick), 0) for each in self._all), default=0)

    def hand_out(self, pubend: PubendId, events: Sequence[Event]) -> frozenset[Tick]:
        """Events are handed out. Returns the ticks of those that may have been before."""
        again = set()
        for event in events:
            for each in self._all:
                if each.may_be_alone(pubend, event) or each.is_in_unit(pubend, event):
                    again.add(event.tick)
                if each.has_first(pubend, event):
                    del each.firsts[pubend]
        return frozenset(again)


class _OfOneFilter:
    """What a home has told of one filter."""

    def __init__(self, told: Earlier) -> None:
        self.number = told.number
        self.firsts = {each.pubend: each.tick for each in told.firsts}
        self.units = {each.pubend: each.tick for each in told.units}
        self.attempts = {(each.pubend, each.tick): each.count for each in told.attempts}
        try:
            self._filter = Filter(told.topics, told.selector)
        except (InvalidSelectorError, InvalidTopicError):  # of a newer broker: rather too many are marked than too few
            self._filter = Filter(("#",))

    def may_be_alone(self, pubend: PubendId, event: Event) -> bool:
        return (pubend, event.tick) in self.attempts or self.has_first(pubend, event)

    def has_first(self, pubend: PubendId, event: Event) -> bool:
        return event.tick <= self.firsts.get(pubend, 0) and self._selects(event)

    def is_in_unit(self, pubend: PubendId, event: Event) -> bool:
        return event.tick <= self.units.get(pubend, 0) and self._selects(event)

    def _selects(self, event: Event) -> bool:
        return self._filter.matches(event.topic, event.properties, event.headers)
