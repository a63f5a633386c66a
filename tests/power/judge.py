"""Whether what was found keeps what was promised."""

from __future__ import annotations

from collections.abc import Iterator

from power.examine import Found
from power.promises import Owed
from power.workload import Logged, Truth


class Judge:
    """Knows all that was ever published."""

    def __init__(self, truth: Truth) -> None:
        self._parities = truth.parities
        self._by_tick = {event.tick: event for event in truth.events}
        self._by_body = {event.body: event for event in truth.events}

    def faults(self, found: Found, owed: Owed) -> list[str]:
        """What is wrong; nothing if all is right."""
        if found.refusal or found.trouble:
            return [found.refusal or found.trouble]
        return [
            *self._publishers(found, owed),
            *self._subscriptions(found, owed),
            *(fault for name in found.events for fault in self._events(name, found, owed)),
        ]

    def _publishers(self, found: Found, owed: Owed) -> Iterator[str]:
        for name, sequence in owed.sequences.items():
            if found.sequences.get(name, 0) < sequence:
                yield f"publisher {name} was told {sequence}, and recovers {found.sequences.get(name, 0)}"
        if found.marker <= owed.horizon:
            yield f"a new event got tick {found.marker}, and all up to {owed.horizon} was decided"

    def _subscriptions(self, found: Found, owed: Owed) -> Iterator[str]:
        for name, start in owed.subscriptions.items():
            if name not in found.acknowledged:
                yield f"the durable subscription {name} is lost"
            elif found.acknowledged[name] < start:
                yield f"{name} began at {start}, and stands at {found.acknowledged[name]}"
        for name, tick in found.acknowledged.items():
            if name not in owed.possible:
                yield f"the subscription {name} is there, and must not be"
            if found.lost > tick:
                yield f"{name} stands at {tick}, and the log begins behind {found.lost}"
            if found.marker <= tick:
                yield f"{name} stands at {tick}, and a new event got tick {found.marker}"

    def _events(self, name: str, found: Found, owed: Owed) -> Iterator[str]:
        """Every event that somebody was told of is there, and what else there is was published."""
        events = found.events[name]
        ticks = [tick for tick, _, _ in events]
        if ticks != sorted(set(ticks)):
            yield f"{name}: ticks out of order or twice"
        for event in self._wanted(name, max(found.acknowledged[name], 0), owed):
            if event.tick not in set(ticks):
                yield f"{name}: event {event.sequence} of {event.publisher}, tick {event.tick}, is lost"
        for tick, body, _ in events:
            known = self._by_tick.get(tick)
            if known is not None and known.body != body:
                yield f"{name}: tick {tick} has two contents"
            elif body not in self._by_body:
                yield f"{name}: tick {tick} holds what nobody has published"
        bodies = [body for _, body, _ in events]
        if len(set(bodies)) < len(bodies):
            yield f"{name}: an event is there twice"

    def _wanted(self, name: str, position: int, owed: Owed) -> list[Logged]:
        parity = self._parities[name]
        acknowledged = owed.acknowledged.get(name, 0)
        start = owed.subscriptions.get(name)
        begin = position if start is None else min(position, max(start, acknowledged))
        return [event for event in owed.events if event.tick > begin and parity in ("", event.parity)]
