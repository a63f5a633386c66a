"""Messages of a neighbour that names ticks which no pubend can have reached; the simulator says them as well."""

from __future__ import annotations

from msgspec.structs import replace

from gapless.core.network import facts as routing
from gapless.core.network.frames import Answer, Message, ProgressRows
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import Tick

IMPOSSIBLE: Tick = 1 << 61
"""In the year 2037: no pubend of these worlds can have come so far."""


def with_tick(message: Message, tick: Tick) -> Message | None:
    """Returns a message that says the same of another tick; None if it names none."""
    if isinstance(message, Knowledge):
        return replace(message, hi=max(message.hi, tick))
    if isinstance(message, routing.Want):
        return replace(message, ranges=((tick, tick + 1),))
    if isinstance(message, ProgressRows):
        return ProgressRows(tuple(replace(row, released=tick, delivered=tick) for row in message.rows))
    if isinstance(message, routing.Hold):
        return replace(message, at={**message.at, 1: tick})
    if isinstance(message, routing.Held):
        return replace(message, stable=tick)
    if isinstance(message, routing.Seen):
        return replace(message, meta=replace(message.meta, stable=tick))
    if isinstance(message, routing.Probe):
        return replace(message, upto=tick)
    if isinstance(message, Answer):
        return replace(message, outcome=replace(message.outcome, tick=tick))
    return None
