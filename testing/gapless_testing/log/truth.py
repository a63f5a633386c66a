"""What was told of logs, by whichever plugin: of one tick always the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from gapless.core.ports import LogPiece, NumberedLog
from gapless.core.stream.events import Event
from gapless.core.stream.intervals import IntervalSet
from gapless.core.stream.ticks import Tick

_decode = msgspec.msgpack.Decoder(Event).decode


class Truth:
    """The events and the silence of all that was told in a test."""

    def __init__(self) -> None:
        self._events: dict[str, dict[Tick, bytes]] = defaultdict(dict)
        self._silent: dict[str, IntervalSet] = defaultdict(IntervalSet)

    def take(self, log: NumberedLog, piece: LogPiece) -> Iterator[str]:
        """Takes a piece; yields what is wrong with it."""
        if piece.first > piece.last:
            yield f"a piece covers ticks {piece.first} to {piece.last}: none"
            return
        pairs = decoded(log, piece)
        ticks = [tick for tick, _ in pairs]
        if ticks != sorted(set(ticks)):
            yield f"the ticks of a piece do not rise: {ticks}"
        if ticks and not piece.first <= ticks[0] <= ticks[-1] <= piece.last:
            yield f"a piece covers ticks {piece.first} to {piece.last}, and has events at {ticks}"
            return
        events, silent = self._events[log.log], self._silent[log.log]
        for tick, event in pairs:
            if tick in silent:
                yield f"at tick {tick} is an event, and silence was told there before"
            if events.setdefault(tick, event) != event:
                yield f"at tick {tick} is another event than before"
        here = IntervalSet([(piece.first - 1, piece.last)])
        for tick in ticks:
            here.remove(tick - 1, tick)
        silent_now = sorted(tick for tick in events if tick in here)
        if silent_now:
            yield f"silence is told at ticks {silent_now}, where events were told before"
        for lo, hi in here:
            silent.add(lo, hi)

    def forget(self, log: str, voids: Sequence[tuple[Tick, Tick]]) -> None:
        """What was at these ticks is lost."""
        for lo, hi in voids:
            self._silent[log].remove(lo, hi)
            for tick in [tick for tick in self._events[log] if lo < tick <= hi]:
                del self._events[log][tick]


def decoded(log: NumberedLog, piece: LogPiece) -> list[tuple[Tick, bytes]]:
    """The events of a piece, as bytes, with their ticks."""
    if piece.raw is None:
        return []
    batch, _ = log.format.decode(piece, log.rules)
    return list(zip(batch.ticks, batch.events, strict=True))


def events_of(log: NumberedLog, piece: LogPiece) -> list[Event]:
    """The same, in the form that applications get."""
    events = []
    for tick, raw in decoded(log, piece):
        event = _decode(raw)
        event.tick = tick
        events.append(event)
    return events
