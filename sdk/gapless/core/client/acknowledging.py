"""What of a subscription is acknowledged, and the last event below it (protocol: acknowledging).

An acknowledgement names two ticks per pubend: the position, and the last Event at or below it. The broker
keeps both as maxima: `acked` and `quiet_from`. Every tick of `(quiet_from, released]` is silence to
whoever reads this subscription later. So of the second tick:

* Too low would hide events. If 100 was handed out and 90 is named, an application that comes back to 95
  is told that nothing is there. Never.
* Too high can only show a gap that is none: if 120 is named, and everything up to 200 is released and
  gone, an application that comes back to 110, older than what it acknowledged itself, is told of a gap.
* 0 says "no news", because the broker takes the maximum.

Therefore where the last event is not known exactly, the position itself is named. For a token that was
taken right behind an event, which is the usual one, this is exact all the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Acknowledged

HISTORY_EVENTS = 16_384
"""How many ticks of events that were handed out but not acknowledged are remembered, per pubend."""


class History:
    """The ticks of the events of one pubend that were handed out and are not acknowledged yet."""

    __slots__ = ("_chunks", "_count", "_known_after", "_last_below")

    def __init__(self, start: Tick, last_below: Tick) -> None:
        """From `start` on; `last_below` is what to name while nothing above `start` was handed out."""
        self._chunks: deque[Sequence[Tick]] = deque()
        self._count = 0
        self._known_after = start
        """Every event that was handed out and has a higher tick than this is in the chunks."""
        self._last_below = last_below

    def add(self, ticks: Sequence[Tick]) -> None:
        """Events are handed out; their ticks are above all earlier ones."""
        assert ticks[0] > (self._chunks[-1][-1] if self._chunks else self._known_after)
        self._chunks.append(ticks)
        self._count += _events_in(ticks)
        while self._count > HISTORY_EVENTS and len(self._chunks) > 1:
            self._forget_first()

    def add_gap(self, start: Tick, end: Tick) -> None:
        """A gap is handed out. Any tick of it may be an event: one that an archive has was perhaps handed out, too."""
        self.add(range(start + 1, end + 1))

    def silent_after(self, tick: Tick) -> bool:
        """Whether no event was handed out above a position, and none is hidden between it and the start."""
        return not self._chunks and tick >= self._known_after

    def last_event(self, tick: Tick) -> Tick:
        """What to name beside a position that is not above everything handed out."""
        if tick < self._known_after:
            return tick
        for ticks in reversed(self._chunks):
            if ticks[0] <= tick:
                return ticks[bisect_right(ticks, tick) - 1]
        return self._last_below

    def forget(self, tick: Tick) -> None:
        """Everything up to a position is acknowledged: nothing below it will be asked for."""
        while self._chunks and self._chunks[0][-1] <= tick:
            self._forget_first()

    def _forget_first(self) -> None:
        forgotten = self._chunks.popleft()
        self._count -= _events_in(forgotten)
        self._known_after = self._last_below = forgotten[-1]


def _events_in(ticks: Sequence[Tick]) -> int:
    """What a chunk counts: a gap takes up no more than an event does."""
    return 1 if isinstance(ticks, range) else len(ticks)


class Acknowledging:
    """The acknowledged position of each pubend of one subscription."""

    def __init__(self) -> None:
        self._floor: dict[PubendId, Tick] = {}
        self._acknowledged: dict[PubendId, Acknowledged] = {}
        self._unsent: dict[PubendId, Acknowledged] = {}

    @property
    def unsent(self) -> bool:
        """Whether there is something that the broker was not told in this session."""
        return bool(self._unsent)

    def is_news(self, pubend: PubendId, tick: Tick) -> bool:
        """Whether a position is above what is acknowledged."""
        known = self.position(pubend)
        return known is None or tick > known

    def start(self, pubend: PubendId, tick: Tick) -> None:
        """The broker says that up to here it is acknowledged already."""
        self._floor[pubend] = tick

    def position(self, pubend: PubendId) -> Tick | None:
        """Up to where it is acknowledged, if that is known."""
        known = self._acknowledged.get(pubend)
        return known.tick if known is not None else self._floor.get(pubend)

    def acknowledge(self, pubend: PubendId, tick: Tick, event: Tick) -> None:
        """Everything up to `tick` is done with; `event` is what to name as the last event below it."""
        assert event <= tick
        assert self.is_news(pubend, tick)
        self._acknowledged[pubend] = self._unsent[pubend] = Acknowledged(pubend, tick, event)

    def take_unsent(self) -> list[Acknowledged]:
        """What is to be told now."""
        unsent = list(self._unsent.values())
        self._unsent.clear()
        return unsent

    def repeat(self) -> list[Acknowledged]:
        """Everything, for a new session; it counts as told."""
        self._unsent.clear()
        return list(self._acknowledged.values())
