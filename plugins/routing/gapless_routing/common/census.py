"""What the SHBs in each direction want, and who is there at all.

A *direction* is where a router sends something next: the SHB of this broker (`CORE`), or whatever the router names so:
a neighbouring cell, a neighbour, a unit. Interests come in parts, and may be lost. A census comes now and then instead
of all of them: a row for each SHB with its version, its digest, and its age, which is how long ago the SHB's own broker
spoke of it. Whoever lacks what a row names asks for the whole. Whoever was not heard of for long is forgotten, and no
two brokers can keep an SHB that is gone alive for each other, because the age is passed on (T58).

To whom interests and censuses are said is for the router to decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import Interest, Real
from gapless.core.network.frames import InterestPart
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.stamps import RAW, Stamp, covers, restrict
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId
from gapless_routing.common.interest import Decision, InterestParts, InterestTable
from gapless_routing.common.pacing import NEXT_TURN
from gapless_routing.common.router_state import CORE, RouterState

FORGOTTEN_AFTER: Final = 30 * SECOND


class CensusRow(Struct, array_like=True, frozen=True, gc=False):
    """An SHB, as the sender knows it."""

    shb: ShbId
    version: Real
    digest: int
    age: Real
    """Milliseconds since the SHB's own broker spoke of it."""


class Census(Struct, array_like=True, frozen=True, gc=False):
    """SHBs on the sender's side, or what it knows of one direction. May be one of several frames."""

    rows: tuple[CensusRow, ...]
    total: Real | None
    """How many SHBs there are in all; None: the sender does not know."""
    direction: str = ""
    """Of which direction it speaks, where that is not the one that it comes from."""


encode_census = msgspec.msgpack.Encoder().encode
decode_census = reader_of(Census, "a census")


class Direction:
    """What the SHBs in one direction want."""

    __slots__ = ("heard", "missing", "parts", "synced", "table")

    def __init__(self, interest_bytes: int) -> None:
        self.table = InterestTable(interest_bytes)
        self.parts = InterestParts()
        self.heard: dict[ShbId, int] = {}
        """When the own broker of each SHB last spoke of it."""
        self.missing: dict[ShbId, int] = {}
        """The versions that a census named and the table has not reached."""
        self.synced = False
        """Whether a census was heard, and the table has all that it named."""


class InterestByDirection:
    """The interest of all directions."""

    def __init__(
        self,
        state: RouterState,
        directions: Iterable[str],
        on_heard: Callable[[ShbId, str], None],
        forgotten_after: int = FORGOTTEN_AFTER,
        interest_bytes: int = FOREVER,
    ) -> None:
        """`on_heard` is called when an SHB is heard of in a direction: it may have to be enrolled.

        `forgotten_after`: an SHB of which its own broker has not spoken for so long, in nanoseconds, is forgotten.
        `interest_bytes`: as of `InterestTable`.
        """
        self._state = state
        self._forgotten_after = forgotten_after
        self._on_heard = on_heard
        self._directions = {name: Direction(interest_bytes) for name in (CORE, *directions)}
        self._directions[CORE].synced = True

    def __contains__(self, name: object) -> bool:
        """Whether there is such a direction."""
        return name in self._directions

    def __iter__(self) -> Iterator[str]:
        """The names of all directions, `CORE` first."""
        return iter(self._directions)

    # -------------------------------------------------------------------------------- what is known

    @property
    def all_synced(self) -> bool:
        """Whether it is known of every direction what everybody there wants."""
        return all(direction.synced for direction in self._directions.values())

    def is_synced(self, name: str) -> bool:
        """Whether it is known what everybody in a direction wants."""
        return self._directions[name].synced

    def lacks_any(self, name: str) -> bool:
        """Whether a census has named something in a direction that is not here yet."""
        return bool(self._directions[name].missing)

    def shbs(self, name: str) -> dict[ShbId, int]:
        """Returns the SHBs in a direction, and when the own broker of each last spoke of it."""
        return self._directions[name].heard

    def direction_of(self, shb: ShbId) -> str | None:
        """Returns in which direction an SHB is; of several the one in which it was heard of last."""
        heard = [(said.heard[shb], name) for name, said in self._directions.items() if shb in said.heard]
        return max(heard)[1] if heard else None

    def versions(self, names: Iterable[str]) -> dict[ShbId, int]:
        """Returns the version of each SHB in these directions."""
        return {shb: version for name in names for shb, version in self._directions[name].table.versions.items()}

    def version_of(self, name: str, shb: ShbId) -> int | None:
        """Returns the version of an SHB's interest, as it is known in a direction; None: the whole is not known."""
        return self._directions[name].table.versions.get(shb)

    def decide(self, name: str, stamp: Stamp, enrolled: Mapping[ShbId, int]) -> Decision:
        """Returns what to do with knowledge under a stamp in a direction.

        Silence that nobody filtered becomes silence under versions only of SHBs that are known to be enrolled (C5).
        """
        direction = self._directions[name]
        passed_on = restrict(stamp, direction.heard)
        if not direction.synced:
            return Decision(flood=True, stamp=passed_on)
        versions = direction.table.versions
        if passed_on is RAW:
            if any(shb not in enrolled for shb in versions):
                return Decision(flood=True, stamp=RAW)
            return Decision(flood=False, stamp=versions)
        return Decision(flood=not covers(versions, passed_on), stamp=passed_on)

    def matches(self, name: str, pubend: PubendId, events: EventBatch) -> int:
        """Returns which of these events anyone in a direction wants: bit i for event i."""
        return self._directions[name].table.matches(pubend, events)

    def widened(self, name: str) -> int:
        """Returns another number whenever more may be wanted in a direction than before."""
        return self._directions[name].table.widened

    def wants_nothing(self, name: str) -> bool:
        """Whether it is known that there is no SHB in a direction."""
        direction = self._directions[name]
        return direction.synced and not direction.heard and not len(direction.table)

    def whole(self, name: str, shb: ShbId) -> Interest | None:
        """Returns all that an SHB in a direction wants; None: that is not known."""
        table = self._directions[name].table
        if shb not in table.versions:
            return None
        version, _ = table.summary(shb)
        return Interest(shb, 0, version, table.filters(shb), full=True)

    def age_of(self, name: str, shb: ShbId) -> int:
        """Returns how many milliseconds ago an SHB's own broker spoke of it; 0 of the SHB here."""
        at = self._directions[name].heard.get(shb, self._state.now)
        return 0 if name == CORE else max(0, self._state.now - at) // MILLISECOND

    def rows(self, name: str) -> Iterator[CensusRow]:
        """Yields what a census says of a direction."""
        direction = self._directions[name]
        for shb in direction.heard:
            yield CensusRow(shb, *direction.table.summary(shb), self.age_of(name, shb))

    # --------------------------------------------------------------------------------- what happened

    def knows_all_of(self, name: str) -> None:
        """It is known otherwise what everybody in a direction wants: by the map, nobody is there."""
        self._directions[name].synced = True

    def hear(self, name: str, shb: ShbId, at: int) -> None:
        """The own broker of an SHB in a direction has spoken of it at that time."""
        heard = self._directions[name].heard
        heard[shb] = max(at, heard.get(shb, at))
        self._on_heard(shb, name)

    def prepare_own(self, part: InterestPart) -> None:
        """A part of the interest of this broker's own SHB: with all of them `apply` has little left to do."""
        self._directions[CORE].table.prepare(part)

    def take_part(self, name: str, part: InterestPart) -> Interest | None:
        """A part of an interest has come. Returns the interest when it is all there."""
        direction = self._directions[name]
        direction.table.prepare(part)
        return direction.parts.take(part)

    def apply(self, name: str, interest: Interest) -> bool:
        """Takes an interest in. Returns whether it raised the version of the table, or what it holds of it."""
        direction = self._directions[name]
        before = direction.table.summary(interest.shb)
        known = interest.shb in direction.table.versions
        direction.table.apply(interest)
        after = direction.table.summary(interest.shb)
        if direction.missing.get(interest.shb, 0) <= after[0]:
            direction.missing.pop(interest.shb, None)
        self.tidy()
        return after != before or (not known and interest.shb in direction.table.versions)

    def as_said(self, name: str, interest: Interest) -> Interest:
        """Returns what is passed on of an interest: of an SHB of which everything is wanted, its version alone."""
        if not self._directions[name].table.wants_all(interest.shb):
            return interest
        if interest.full:
            return Interest(
                interest.shb, 0, interest.version, self._directions[name].table.filters(interest.shb), full=True
            )
        return Interest(interest.shb, interest.base, interest.version, {})

    def has(self, name: str, interest: Interest) -> bool:
        """Whether the table is as far as an interest, or farther."""
        table = self._directions[name].table
        return interest.shb in table.versions and table.summary(interest.shb)[0] >= interest.version

    def take_census(self, name: str, census: Census, ask: Callable[[ShbId], None]) -> bool:
        """A broker says who is in a direction. Returns whether it may have become synced.

        `ask` is called for each SHB of which it has something that is missing here.
        """
        direction = self._directions[name]
        for row in census.rows:
            at = self._state.now - row.age * MILLISECOND
            if self._state.now - at <= self._forgotten_after:
                self.take_row(name, row, at, ask)
        if census.total is None or direction.synced:
            return False
        direction.synced = not direction.missing and len(direction.heard) >= census.total
        return True

    def take_row(self, name: str, row: CensusRow, at: int, ask: Callable[[ShbId], None]) -> None:
        """A census names an SHB in a direction, of which its own broker spoke at that time."""
        direction = self._directions[name]
        self.hear(name, row.shb, at)
        if direction.table.wants_all(row.shb):
            direction.table.reach(row.shb, row.version)
            return
        version, digest = direction.table.summary(row.shb)
        if version < row.version or (version == row.version and digest != row.digest):
            direction.missing[row.shb] = max(row.version, direction.missing.get(row.shb, 0))
            ask(row.shb)

    def forget(self, name: str, shb: ShbId) -> None:
        """There is no such SHB in a direction any more."""
        direction = self._directions[name]
        direction.heard.pop(shb, None)
        direction.missing.pop(shb, None)
        direction.table.forget(shb)
        direction.parts.forget(shb)

    def forget_silent(self) -> list[ShbId]:
        """Forgets SHBs of which nobody has spoken for long. Returns them."""
        forgotten: list[ShbId] = []
        for name, direction in self._directions.items():
            old = [shb for shb, at in direction.heard.items() if self._state.now - at > self._forgotten_after]
            for shb in old if name != CORE else ():
                self.forget(name, shb)
                forgotten.append(shb)
        return forgotten

    def tidy(self) -> None:
        """Takes a little of what nobody wants any more out of the tables."""
        if sum(direction.table.tidy() for direction in self._directions.values()):
            self._state.timers.set(("tidy",), self._state.now + NEXT_TURN)
