"""How far a pubend can have come: a tick beyond that, whoever says it, is false (protocol: possible-ticks).

One false tick would do harm for ever. Silence up to the year 2037 makes every event until then one that was already
accounted for; an SHB that is said to be done with it has the log given up; a want behind it moves a pubend's clock
there. So every tick that a frame of another node brings is compared with its pubend's reach before anybody acts on it:

- Ticks that are times stand at most a day ahead of this node's wall clock, or of the pubend's own as its host tells it
  (`PubendMeta.reach`). A clock that leapt leaves a pubend ahead of everybody's clock, and rightly so.
- Ticks that number the records of a log stand at most two elections behind how far the log has come, as its host has
  it from the servers that keep it. `LAST` is where such a log ends when it is gone.

A lie that keeps within the reach is not found here: see docs/topics/trust.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import BrokerId, Held, Hold, Probe, PubendMeta, Seen, Want
from gapless.core.network.frames import Answer, ProgressRows
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import (
    FIRST_TIME,
    FOREVER,
    LAST,
    OFFSET_BITS,
    SECOND,
    PubendId,
    Tick,
    shown_place,
    tick_at,
    time_at,
)
from gapless.errors import RemoteProtocolError

AHEAD_MAX: Final = 24 * 3600 * SECOND
"""How far ticks that are times may be ahead of the clocks: one of them may be wrong, or the word of it old."""
ELECTIONS_MAX: Final = 2
"""So many elections of a log's leader may have happened since its host said how far the log has come."""

SaidTick: TypeAlias = "tuple[PubendId, Tick]"
MetaOf: TypeAlias = "Callable[[PubendId], PubendMeta | None]"
"""What is known of a pubend; None of one that is not known."""


class ImpossibleTickError(RemoteProtocolError):
    """Another node named a tick to which its pubend cannot have come."""

    def __init__(self, meta: PubendMeta, tick: Tick, reach: Tick) -> None:
        shown, most = (
            (f" ({time_at(tick):%Y-%m-%d %H:%M} UTC)", f" ({time_at(reach):%Y-%m-%d %H:%M} UTC)")
            if meta.timed and tick < LAST
            else (f" ({shown_place(tick, after=False)})", f" ({shown_place(reach, after=False)})")
        )
        super().__init__(f"tick {tick}{shown} of pubend {meta.pubend}, which is at {reach}{most} at the most")
        self.pubend = meta.pubend
        self.tick = tick


def blame(peer: BrokerId, error: RemoteProtocolError) -> Alarm:
    """Returns what the operator is told of a neighbour whose frame was not believed, and whose link is ended for it."""
    if isinstance(error, ImpossibleTickError):
        text = (
            f"node {peer!r} spoke of {error}: its link was ended, and nothing of that frame was believed. If the clock"
            " of this node is behind by more than a day, that is why"
        )
        return Alarm(AlarmCode.IMPOSSIBLE_TICK, text, peer)
    return Alarm(AlarmCode.NODE_REFUSED, f"node {peer!r} said what no node says, and its link was ended: {error}", peer)


def reach_of(meta: PubendMeta, wall: int) -> Tick:
    """Returns the highest tick to which a pubend can have come by a wall time, in milliseconds since 1970."""
    if meta.timed:
        return min(max(tick_at(wall), meta.reach) + AHEAD_MAX, LAST - 1)
    if not meta.reach:  # its host is older than this field, or knows no record yet
        return FIRST_TIME - 1
    return min(meta.reach + (ELECTIONS_MAX << OFFSET_BITS), LAST)


def check_tick(meta: PubendMeta, tick: Tick, wall: int) -> None:
    """Raises ImpossibleTickError for a tick beyond the reach. `LAST` ends a log that numbers its records."""
    reach = reach_of(meta, wall)
    if tick > reach and (meta.timed or tick != LAST):
        raise ImpossibleTickError(meta, tick, reach)


def check_message(message: object, meta_of: MetaOf, wall: int) -> None:
    """Raises ImpossibleTickError if a message names a tick beyond its pubend's reach.

    Of a pubend that is not known nothing is believed, and so nothing is checked; what introduces it is checked by what
    it says itself.
    """
    said = _TICKS.get(type(message))
    if said is None:
        return
    for pubend, tick in said(message):
        meta = message.meta if isinstance(message, Seen) else meta_of(pubend)
        if meta is not None:
            check_tick(meta, tick, wall)


def check_meta(meta: PubendMeta, wall: int) -> None:
    """Raises ImpossibleTickError if what is said of a pubend names a tick beyond what the same says of its reach."""
    for tick in _of_meta(meta):
        check_tick(meta, tick, wall)


def highest_wanted(ranges: tuple[tuple[Tick, Tick], ...]) -> Tick:
    """Returns the highest tick that ranges name; an open end names none."""
    return max((hi if hi < FOREVER else lo for lo, hi in ranges), default=0)


def _of_meta(meta: PubendMeta) -> Iterator[Tick]:
    yield meta.stable
    yield meta.created
    for ranges in (meta.voids, meta.forks):
        yield from (hi for _, hi in ranges)


def _of_knowledge(said: Knowledge) -> Iterator[SaidTick]:
    yield said.pubend, max(said.hi, said.lost)


def _of_want(want: Want) -> Iterator[SaidTick]:
    yield want.pubend, highest_wanted(want.ranges)


def _of_rows(said: ProgressRows) -> Iterator[SaidTick]:
    for row in said.rows:
        yield row.pubend, max(row.released, row.delivered)


def _of_hold(row: Hold) -> Iterator[SaidTick]:
    yield row.pubend, max(row.at.values(), default=0)


def _of_held(row: Held) -> Iterator[SaidTick]:
    yield row.pubend, max(row.stable, max(row.at.values(), default=0))


def _of_probe(probe: Probe) -> Iterator[SaidTick]:
    yield probe.pubend, probe.upto


def _of_seen(seen: Seen) -> Iterator[SaidTick]:
    yield seen.meta.pubend, max(seen.enrolled_at or 0, *_of_meta(seen.meta))


def _of_answer(answer: Answer) -> Iterator[SaidTick]:
    """The receipts of a publish, and where an opening found its publisher."""
    runs = (run.first + run.step * (run.count - 1) for run in answer.outcome.ticks)
    yield answer.pubend, max(answer.outcome.tick, *runs) if answer.outcome.ticks else answer.outcome.tick


_TICKS: Final[dict[type, Callable[[Any], Iterator[SaidTick]]]] = {
    Knowledge: _of_knowledge,
    Want: _of_want,
    ProgressRows: _of_rows,
    Hold: _of_hold,
    Held: _of_held,
    Probe: _of_probe,
    Seen: _of_seen,
    Answer: _of_answer,
}
"""The highest ticks that a message names, by its kind: whatever brings ticks from another node stands here."""
