"""Minima of progress: up to where every SHB is done with a pubend (protocol: minima; C4, T20, T48).

A minimum is only as true as the set it was taken over. At the pubend that set is the durable membership, and
nothing is said before every member was heard. On the way there it would be whoever a broker happens to know, so
nobody takes one there: progress travels as a row for each SHB. A row may be merged with an older or a newer one of
the same SHB, for each only ever says more.
"""

from __future__ import annotations

from collections.abc import Iterable

from gapless.core.network.facts import Progress
from gapless.core.network.release import Minima
from gapless.core.stream.ticks import ShbId


class ReleaseTable:
    """The progress of a pubend's members, at the pubend's broker. Soft."""

    __slots__ = ("_members", "_rows", "_said")

    def __init__(self, members: Iterable[ShbId] = ()) -> None:
        self._members: dict[ShbId, None] = {}
        self._rows: dict[ShbId, Minima] = {}
        self._said = Minima(-1, -1)
        self.replace_members(members)

    @property
    def members(self) -> tuple[ShbId, ...]:
        """The members, in the order in which they came."""
        return tuple(self._members)

    def replace_members(self, members: Iterable[ShbId]) -> None:
        """The durable membership was handed over: all of it, and it must be heard (again) from here on."""
        self._members = dict.fromkeys(members)
        self._rows.clear()

    def enrol(self, shb: ShbId) -> None:
        """A membership has become durable: nothing more is said before this SHB was heard."""
        self._members[shb] = None
        self._rows.pop(shb, None)

    def report(self, progress: Progress) -> None:
        """An SHB's durable progress, in any order; of an SHB that is no member (yet) it is ignored."""
        if progress.shb in self._members:
            row = Minima(progress.released, progress.delivered)
            self._rows[progress.shb] = _highest(row, self._rows.get(progress.shb, row))

    def minima(self) -> Minima | None:
        """The minima over all members, or None as long as one was not heard, or there is none."""
        return _lowest(self._rows.values()) if len(self._rows) == len(self._members) else None

    def take_risen(self) -> Minima | None:
        """The minima, if they rose since this last returned some; what was said never falls (C4)."""
        minima = self.minima()
        if minima is None or minima == self._said or _highest(minima, self._said) != minima:
            return None
        self._said = minima
        return minima


def _highest(one: Minima, other: Minima) -> Minima:
    return Minima(max(one.released, other.released), max(one.delivered, other.delivered))


def _lowest(rows: Iterable[Minima]) -> Minima | None:
    columns = tuple(zip(*rows, strict=True))
    return Minima(min(columns[0]), min(columns[1])) if columns else None
