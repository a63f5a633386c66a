"""Ticks: the positions of a pubend's stream (protocol: ticks).

A tick is a 63-bit integer: milliseconds since 2020, a 12-bit counter, a 10-bit pubend number. Every integer is a tick
of every pubend, but events stand only at those with the pubend's own number; the others are silent for ever. Intervals
of ticks are half-open, `(lo, hi]`.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TypeAlias

Tick: TypeAlias = int
PubendId: TypeAlias = str
"""`name@epoch`: another incarnation is another pubend."""
ShbId: TypeAlias = str

EPOCH_SUFFIX = 5
"""An epoch ends with so many digits of chance, behind the second in which the pubend was made; both to the base 36."""
PUBEND_BITS = 10
COUNTER_BITS = 12
STEP = 1 << PUBEND_BITS
"""The distance between two neighbouring ticks of one pubend."""
MILLISECOND = 1 << (PUBEND_BITS + COUNTER_BITS)
SECOND = 1000 * MILLISECOND
FOREVER = (1 << 63) - 1
"""It is above every tick of an event."""
LAST = FOREVER - 1
"""The last tick that any log can have: where it ends if it is gone, and nobody knows how far it had come."""

OFFSET_BITS = 44
"""Of a numbered tick: `leader epoch << OFFSET_BITS | offset + 1` (protocol: numbered-ticks)."""

FIRST_TIME = (1_735_689_600_000 - 1_577_836_800_000) * MILLISECOND
"""The first tick of 2025. No log was stamped before that, and a numbered tick comes to it after 37,000 elections."""

EPOCH_MS = 1_577_836_800_000
"""2020-01-01T00:00:00Z in milliseconds since 1970."""
_EPOCH = datetime(2020, 1, 1, tzinfo=timezone.utc)


def name_of(pubend: PubendId) -> str:
    """Returns the name in a pubend's identity: all incarnations of it at one node have the same."""
    return pubend.rpartition("@")[0]


def made_before(pubend: PubendId) -> Tick:
    """Returns a tick before which a pubend was made, by its identity, to the second; 0 if that does not say it."""
    epoch = pubend.rpartition("@")[2]
    try:
        second = int(epoch[:-EPOCH_SUFFIX], 36)
    except ValueError:  # a topic of Kafka's, or a name that people gave
        return 0
    return tick_at((second + 1) * 1000)


def tick_at(wall: int) -> Tick:
    """Returns the first tick of a wall time in milliseconds since 1970; 0 for times before 2020."""
    return max(0, min((wall - EPOCH_MS) * MILLISECOND, FOREVER))


def wall_at(tick: Tick) -> int:
    """Returns the wall time of a tick in milliseconds since 1970."""
    return EPOCH_MS + tick // MILLISECOND


def seconds_between(earlier: Tick, later: Tick) -> float:
    """Returns the time between two ticks that are times; negative if `later` is in fact the earlier one."""
    return (later - earlier) / SECOND


def tick_at_time(time: datetime) -> Tick:
    """Returns the first tick of an aware datetime. Raises ValueError for a naive one."""
    if time.tzinfo is None:
        raise ValueError("a datetime with a time zone is needed")
    return max(0, min((time - _EPOCH) // timedelta(milliseconds=1) * MILLISECOND, FOREVER))


def time_at(tick: Tick) -> datetime:
    """Returns the time of a tick, in UTC, exact to the millisecond."""
    return _EPOCH + timedelta(milliseconds=tick // MILLISECOND)


def record_at(tick: Tick) -> tuple[int, int]:
    """Returns leader epoch and offset of the record that has a numbered tick; for 0, which none has, the offset -1."""
    return tick >> OFFSET_BITS, (tick & ((1 << OFFSET_BITS) - 1)) - 1


def reads_as_time(tick: Tick) -> bool:
    """Whether a tick of a pubend of which nothing else is known is a time. Only for what people are shown."""
    return FIRST_TIME <= tick < LAST


def shown_place(tick: Tick, *, after: bool) -> str:
    """Returns for people which record has a numbered tick; with `after`, which one comes after it."""
    if tick >= LAST:
        return "its end"
    epoch, offset = record_at(tick)
    return (f"epoch {epoch}, " if epoch else "") + f"offset {offset + after}"
