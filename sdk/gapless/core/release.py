"""Minima of progress: up to where every SHB is done with a pubend (algorithms.md 8.2 C4, traps T20 and T48).

A minimum is only as true as the set it was taken over. At the pubend that set is the durable membership,
and nothing is said before every member was heard. On the way there it is whoever a broker happens to know,
so a minimum travels with its cover, and one taken over another set is another statement, not a newer one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from hashlib import blake2b
from typing import Generic, NamedTuple, TypeVar

from gapless.core.routing import Progress
from gapless.core.ticks import ShbId, Tick

Hop = TypeVar("Hop", bound=Hashable)


class Minima(NamedTuple):
    """Every SHB of a set has released, and has delivered, at least this."""

    released: Tick
    delivered: Tick


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


class Cover(NamedTuple):
    """Which SHBs a minimum was taken over: how many, and a digest of their ids in any order."""

    shbs: int
    digest: int


def cover_of(shbs: Iterable[ShbId]) -> Cover:
    """The cover of these SHBs, each named once."""
    count = total = 0
    for shb in shbs:
        count += 1
        total ^= int.from_bytes(blake2b(shb.encode(), digest_size=8).digest(), "big")
    return Cover(count, total)


class HopTable(Generic[Hop]):
    """The minima that neighbours report, each with its cover. Soft."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[Hop, tuple[Cover, Minima]] = {}

    def report(self, hop: Hop, cover: Cover, minima: Minima) -> None:
        """What a neighbour says. Over the same cover the highest holds; over another, the latest (T48).

        An older report that was overtaken may lower a row for a while: that is safe, a row too high is not.
        """
        known, before = self._rows.get(hop, (None, minima))
        self._rows[hop] = cover, _highest(minima, before) if known == cover else minima

    def forget(self, hop: Hop) -> None:
        """A neighbour is gone."""
        self._rows.pop(hop, None)

    def minima(self, expected: Mapping[Hop, Cover]) -> Minima | None:
        """The minima over these neighbours; None unless each reported over exactly the cover expected."""
        rows = [self._rows.get(hop) for hop in expected]
        heard = [row[1] for row, cover in zip(rows, expected.values(), strict=True) if row and row[0] == cover]
        return _lowest(heard) if len(heard) == len(expected) else None


def _highest(one: Minima, other: Minima) -> Minima:
    return Minima(max(one.released, other.released), max(one.delivered, other.delivered))


def _lowest(rows: Iterable[Minima]) -> Minima | None:
    columns = tuple(zip(*rows, strict=True))
    return Minima(min(columns[0]), min(columns[1])) if columns else None
