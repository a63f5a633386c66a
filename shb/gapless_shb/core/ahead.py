"""Positions beyond everything this SHB knows: most are right, and some can never be (T11, U03).

An application may have come further than an SHB that crashed: then the head reaches its position soon.
But a position that the pubend does not reach although it goes on comes from data that was lost. Waiting
for it would be silent starvation; the consumer is told instead.
"""

from __future__ import annotations

from gapless.core.ticks import PubendId, Tick, tick_at
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.subscriptions import SKEW


class Ahead:
    """The live consumers that stand beyond a head."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._watched: dict[tuple[int, PubendId], tuple[Tick, Tick]] = {}
        """(subscription, pubend) → (its position, the head when it was first seen)."""

    def watch(self) -> bool:
        """Takes note of who stands beyond a head; returns whether anybody does."""
        for stream in self._hosting.streams.values():
            for sid, floor in stream.floors.items():
                self._watched.setdefault((sid, stream.pubend), (floor, stream.head))
        return bool(self._watched)

    def judge(self, wall: int) -> list[tuple[int, str]]:
        """Whose position was not reached although its pubend went on, and what to tell them."""
        present = tick_at(wall)
        watched, self._watched = self._watched, {}
        due = {key: seen for key, seen in watched.items() if self._is_due(*key, seen[0], present)}
        self._watched = {key: seen for key, seen in watched.items() if key not in due}
        return [
            (sid, f"the position is beyond everything that {pubend} has: the broker has lost data since")
            for (sid, pubend), (tick, head_then) in due.items()
            if self._is_lost(sid, pubend, tick, head_then)
        ]

    def _is_due(self, sid: int, pubend: PubendId, tick: Tick, present: Tick) -> bool:
        """Whether a position can be judged, although clocks differ: not as long as its time may be to come.

        What a subscription was created with may be any time to come, or the token of one that asked for it.
        """
        stream = self._hosting.streams.get(pubend)
        position = stream.positions.get(sid) if stream is not None else None
        if position is not None and tick <= position.start:
            return tick <= present - SKEW
        return tick <= present or tick > present + SKEW

    def _is_lost(self, sid: int, pubend: PubendId, tick: Tick, head_then: Tick) -> bool:
        stream, consumer = self._hosting.streams.get(pubend), self._hosting.around.consumers.get(sid)
        if stream is None or consumer is None:
            return False
        if consumer.subscription.origin is None and tick <= stream.positions[sid].start:
            return False  # it asked to begin at a time that has not come, by the pubend's clock
        # While the SHB itself is catching up, its head says nothing about the pubend's.
        return stream.caught_up and head_then < stream.head < tick
