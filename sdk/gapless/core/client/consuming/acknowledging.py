"""The acknowledged positions of a subscription, and the last event below each (protocol: acknowledging).

An acknowledgement names two ticks per pubend: the position, and the last event at or below it. The broker keeps both
as maxima: `acked` and `acked_event`. Every tick of `(acked_event, released]` is silence for each later reader of this
subscription. So for the second tick:

* Too low would hide events. If 100 was handed out and 90 is named, an application that comes back to 95 is answered
  that nothing is there. This must never happen.
* Too high can only cause a false gap. If 120 is named, and everything up to 200 is released and gone, an application
  that comes back to 110, older than what it acknowledged itself, gets a gap.
* 0 means "no news", because the broker takes the maximum.

Therefore, if the last event is not known exactly, the position itself is named. For a token that was taken right after
an event, which is the usual case, this is exact all the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Acknowledged

HISTORY_EVENTS = 16_384
"""How many ticks of handed-out events are remembered per pubend until they are acknowledged."""


class History:
    """The ticks of those events of one pubend that were handed out and are not acknowledged yet."""

    __slots__ = ("_chunks", "_count", "_known_after", "_last_below")

    def __init__(self, start: Tick, last_below: Tick) -> None:
        """Begins at `start`. `last_below`: the tick to name while nothing above `start` was handed out."""
        self._chunks: deque[Sequence[Tick]] = deque()
        self._count = 0
        self._known_after = start
        """The chunks have every handed-out event with a higher tick than this."""
        self._last_below = last_below

    def add(self, ticks: Sequence[Tick]) -> None:
        """Events are handed out; their ticks are above all earlier ones."""
        assert ticks[0] > (self._chunks[-1][-1] if self._chunks else self._known_after)
        self._chunks.append(ticks)
        self._count += _events_in(ticks)
        while self._count > HISTORY_EVENTS and len(self._chunks) > 1:
            self._forget_first()

    def add_gap(self, start: Tick, end: Tick) -> None:
        """A gap is handed out.

        Each tick in it counts as an event: an archive may have one that was handed out there.
        """
        self.add(range(start + 1, end + 1))

    def silent_after(self, tick: Tick) -> bool:
        """Whether no event was handed out above a position, and none can be hidden between it and the start."""
        return not self._chunks and tick >= self._known_after

    def last_event(self, tick: Tick) -> Tick:
        """Returns the tick to name beside a position that is not above everything handed out."""
        if tick < self._known_after:
            return tick
        for ticks in reversed(self._chunks):
            if ticks[0] <= tick:
                return ticks[bisect_right(ticks, tick) - 1]
        return self._last_below

    def forget(self, tick: Tick) -> None:
        """Everything up to a position is acknowledged: forgets the events below it."""
        while self._chunks and self._chunks[0][-1] <= tick:
            self._forget_first()

    def _forget_first(self) -> None:
        forgotten = self._chunks.popleft()
        self._count -= _events_in(forgotten)
        assert self._count >= 0, "what is handed out is forgotten in order, once"
        assert forgotten[-1] >= self._known_after, "what is handed out is forgotten in order, once"
        self._known_after = self._last_below = forgotten[-1]


def _events_in(ticks: Sequence[Tick]) -> int:
    """Returns the weight of a chunk: a gap takes no more room than one event."""
    return 1 if isinstance(ticks, range) else len(ticks)


class Acknowledging:
    """The acknowledged position of each pubend of one subscription."""

    def __init__(self) -> None:
        self._floor: dict[PubendId, Tick] = {}
        self._acknowledged: dict[PubendId, Acknowledged] = {}
        self._unsent: dict[PubendId, Acknowledged] = {}

    @property
    def unsent(self) -> bool:
        """Whether there is an acknowledgement that was not sent in this session."""
        return bool(self._unsent)

    def is_news(self, pubend: PubendId, tick: Tick) -> bool:
        """Whether a position is above what is acknowledged."""
        known = self.position(pubend)
        return known is None or tick > known

    def start(self, pubend: PubendId, tick: Tick) -> None:
        """The broker has this position as acknowledged already."""
        self._floor[pubend] = tick

    def position(self, pubend: PubendId) -> Tick | None:
        """Returns up to where it is acknowledged, if that is known."""
        known = self._acknowledged.get(pubend)
        return known.tick if known is not None else self._floor.get(pubend)

    def acknowledge(self, pubend: PubendId, tick: Tick, event: Tick) -> None:
        """Everything up to `tick` is done with; `event` is the tick to name as the last event below it."""
        assert event <= tick
        known = self._acknowledged.get(pubend)
        assert known is None or known.tick < tick
        self._acknowledged[pubend] = self._unsent[pubend] = Acknowledged(pubend, tick, event)

    def unsend(self, pubend: PubendId) -> None:
        """The last acknowledgement on a pubend, if there is one, has to be sent again."""
        if pubend not in self._unsent and (known := self._acknowledged.get(pubend)) is not None:
            self._unsent[pubend] = known

    def take_unsent(self) -> list[Acknowledged]:
        """Returns the acknowledgements to send now."""
        unsent = list(self._unsent.values())
        self._unsent.clear()
        return unsent

    def repeat(self) -> list[Acknowledged]:
        """Returns all acknowledgements, for a new session; they count as sent."""
        self._unsent.clear()
        return list(self._acknowledged.values())
