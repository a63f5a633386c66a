"""What may have been handed out under another filter, as a commit record keeps it (protocol: committing).

Which event is the first behind the position, and which events a batch had, follows from the filter. So a commit record
that has doubt, attempts or units when the filter changes keeps them apart, together with that filter. There are few of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Attempts, Earlier, Position, Unit

FILTERS_MAX = 4
"""How many earlier filters a commit record keeps apart. Of more, everything up to the same ticks counts."""


def added(earlier: Sequence[Earlier], more: Earlier) -> tuple[Earlier, ...]:
    """Returns all of them; the oldest ones are made one if there are too many."""
    if not (more.firsts or more.units or more.attempts):
        return tuple(earlier)
    several = (*earlier, more)
    if len(several) <= FILTERS_MAX:
        return several
    upto = furthest(several[:2])
    units = tuple(Position(pubend, tick) for pubend, tick in upto.items())
    return (Earlier(several[0].number, ("#",), "", units=units), *several[2:])


def furthest(earlier: Sequence[Earlier]) -> dict[PubendId, Tick]:
    """Returns up to where something may have been handed out."""
    upto: dict[PubendId, Tick] = {}
    for each in earlier:
        bounds: list[Position | Attempts] = [*each.firsts, *each.units, *each.attempts]
        for at in bounds:
            upto[at.pubend] = max(at.tick, upto.get(at.pubend, 0))
    return upto


def uncommitted(earlier: Sequence[Earlier], acked: Mapping[PubendId, Tick]) -> tuple[Earlier, ...]:
    """Returns what is above these positions."""
    left = [
        replace(
            each,
            firsts=tuple(at for at in each.firsts if at.tick > acked.get(at.pubend, 0)),
            units=tuple(at for at in each.units if at.tick > acked.get(at.pubend, 0)),
            attempts=tuple(at for at in each.attempts if at.tick > acked.get(at.pubend, 0)),
        )
        for each in earlier
    ]
    return tuple(each for each in left if each.firsts or each.units or each.attempts)


def resolved(earlier: Sequence[Earlier], unit: Unit) -> tuple[Earlier, ...]:
    """The event of a unit is the first one of some filters: with its commit, none is in doubt for them."""
    return tuple(
        replace(each, firsts=tuple(_cut(at, unit) for at in each.firsts)) if each.number in unit.resolves else each
        for each in earlier
    )


def attempts_at(earlier: Sequence[Earlier], unit: Unit) -> int:
    """Returns how many attempts at the event of a unit were counted."""
    told: list[Attempts] = [at for each in earlier for at in each.attempts]
    return max((at.count for at in told if (at.pubend, at.tick) == (unit.pubend, unit.first)), default=0)


def _cut(at: Position, unit: Unit) -> Position:
    return Position(at.pubend, min(at.tick, unit.first)) if at.pubend == unit.pubend else at
