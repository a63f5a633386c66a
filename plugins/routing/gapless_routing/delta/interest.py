"""What the SHBs want, by the broker under which they are known, and to whom that is said (protocol: delta-router).

Each broker within reach stands for the SHBs at itself; the last ones within reach also for all that lie beyond them.
So the table of a broker that is served is the union of those to which the way leads over it, and a bypass needs no new
table. An SHB's row is owed to every linked broker that is not on its side. A census is complete for a broker as soon
as all *other* directions are known: so several that come back around a dead one need not wait in a circle (TD4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId, LinkId, Real
from gapless.core.network.frames import Address, InterestPart, Private, portions
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.stamps import RAW, Stamp, covers, restrict
from gapless.core.stream.ticks import PubendId, ShbId
from gapless_routing.common.census import CensusRow
from gapless_routing.common.interest import Decision
from gapless_routing.common.interest_flow import CENSUS, TURN_BYTES, TURN_SUBSCRIPTIONS, InterestFlow
from gapless_routing.common.relay import RelayedPubend
from gapless_routing.common.router_state import CORE, RouterState
from gapless_routing.delta.options import Options
from gapless_routing.delta.ring import Ring
from gapless_routing.delta.tree import Tree

DEAD_WAIT: Final = 3 * SECOND
"""A direction in which nobody is live for so long is not waited for."""


class SideRow(CensusRow, array_like=True, frozen=True, gc=False):
    """An SHB on the sender's side, and at which broker it is: its name does not say that."""

    home: BrokerId


class SideCensus(Struct, array_like=True, frozen=True, gc=False):
    """All SHBs that the sender knows on its side, as its receiver sees it. May be one of several frames."""

    rows: tuple[SideRow, ...]
    total: Real | None
    """How many SHBs there are; None: the sender does not know yet."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(SideCensus, "a census")


class SideInterests(InterestFlow):
    """The interest of the SHB here, and of all others by the broker under which they are known."""

    def __init__(
        self,
        state: RouterState,
        tree: Tree,
        ring: Ring,
        options: Options,
        on_heard: Callable[[ShbId, str], None],
        read: Callable[[LinkId, BrokerId, bytes], None],
    ) -> None:
        """`on_heard`, `read`: as of `InterestFlow`."""
        super().__init__(
            state,
            ring.links,
            tree.near,
            on_heard,
            read,
            TURN_BYTES,
            TURN_SUBSCRIPTIONS,
            options.forget,
            options.interest_bytes,
        )
        self._tree = tree
        self._ring = ring
        self._forget = options.forget
        self._homes: dict[ShbId, BrokerId] = {}
        """At which broker each SHB is, as it was said last."""
        self._used: dict[BrokerId, list[BrokerId]] = {}
        """Under which brokers SHBs were ever known to which the way leads over a certain one."""
        self._retired: dict[ShbId, int] = {}
        """When an SHB was dropped: what was said of it before counts no more."""
        self._named: dict[BrokerId, dict[ShbId, None]] = {}
        """The SHBs on the side of each linked broker, as it said: also those that are not believed to be there."""
        self._totals: dict[BrokerId, int] = {}
        """How many SHBs there are on the side of a broker, as it said when it knew."""
        self._known = {
            neighbour: not tree.has_elsewhere(neighbour, "phb") or not tree.has_beyond(neighbour, "shb")
            for neighbour in tree.neighbours
        }
        """Whether it is known of the direction of a neighbour what everybody there wants. Once it is, it stays so.

        Without a PHB elsewhere nothing is filtered on its way there: nobody says it then, and nobody has to know it.
        """
        self._alone_since = dict.fromkeys(tree.neighbours, state.now)
        """Since when nobody in a direction is live; of no other direction."""
        self._told: set[BrokerId] = set()
        """Who was told how many SHBs there are on this side."""

    # ------------------------------------------------------------------------------------ what is known

    @property
    def is_ready(self) -> bool:
        """Whether it is known of all directions what everybody wants, and the SHB here has spoken."""
        return self._has_spoken and all(map(self.is_complete, self._tree.neighbours))

    def is_complete(self, direction: BrokerId) -> bool:
        """Whether it is known what everybody in the direction of a neighbour wants, or nobody there can say it."""
        since = self._alone_since.get(direction)
        return self._known[direction] or (since is not None and self._state.now - since >= DEAD_WAIT)

    def look_around(self) -> None:
        """Links, or what came over them, have changed: more directions may be known now, and others hear of it."""
        for direction, is_known in self._known.items():
            nearest = self._ring.nearest(direction)
            if nearest:
                self._alone_since.pop(direction, None)
            else:
                self._alone_since.setdefault(direction, self._state.now)
            if not is_known and nearest and all(map(self._has_all_of, nearest)):
                self._known[direction] = True
        for broker in self.listeners(CORE):
            if broker not in self._told and self._is_whole_for(broker):
                self.say_census_to(broker)

    def _has_all_of(self, broker: BrokerId) -> bool:
        """Whether all rows are here that a broker has named, and it has named all."""
        total = self._totals.get(broker)
        is_named = total is not None and len(self._named.get(broker, ())) >= total
        return is_named and not any(map(self.table.lacks_any, self._tree.beyond(broker)))

    def _is_whole_for(self, broker: BrokerId) -> bool:
        """Whether it is known what everybody in all directions wants, but for that of a broker."""
        own = self._tree.first(broker)
        return self._has_spoken and all(self.is_complete(other) for other in self._tree.neighbours if other != own)

    @property
    def _has_spoken(self) -> bool:
        """Whether the SHB here has, if there is one by the map."""
        return bool(self.shb) or not self._tree.has_role(self._state.broker, "shb")

    # ---------------------------------------------------------------------- of a broker that is served

    def groups(self, broker: BrokerId) -> list[BrokerId]:
        """Returns under which brokers the SHBs are known to which the way leads over a certain one."""
        return [group for group in self._used.get(broker, ()) if self.table.shbs(group)]

    def are_at_home(self, group: BrokerId) -> bool:
        """Whether all SHBs that are known under a broker are at that very broker."""
        return all(self._homes[shb] == group for shb in self.table.shbs(group))

    def shbs(self, broker: BrokerId) -> dict[ShbId, int]:
        """Returns the SHBs to which the way leads over a broker, and when the own broker of each last spoke of it."""
        if broker == CORE:
            return self.table.shbs(CORE)
        groups = self.groups(broker)
        if len(groups) == 1:
            return self.table.shbs(groups[0])
        return {shb: at for group in groups for shb, at in self.table.shbs(group).items()}

    def versions(self, brokers: Iterable[str]) -> Mapping[ShbId, int]:
        """Returns the version of each SHB's interest behind some brokers."""
        return self.table.versions(
            group for broker in brokers for group in ([CORE] if broker == CORE else self.groups(broker))
        )

    def decide(self, broker: BrokerId, stamp: Stamp, pubend: RelayedPubend) -> Decision:
        """Returns what to do with knowledge under a stamp on its way to a broker.

        Silence that nobody filtered becomes silence under versions at the pubend's own broker alone, and only under
        those of SHBs that are known to be enrolled (C5).
        """
        return self.decide_for(self.groups(broker), self._tree.first(broker), stamp, pubend)

    def decide_for(self, groups: list[BrokerId], direction: BrokerId, stamp: Stamp, pubend: RelayedPubend) -> Decision:
        """Returns the same for the SHBs that are known under some brokers, all in the direction of a neighbour."""
        behind = {shb: 0 for group in groups for shb in self.table.shbs(group)}
        passed_on = restrict(stamp, behind)
        if not self.is_complete(direction):
            return Decision(flood=True, stamp=passed_on)
        versions = self.table.versions(groups)
        if passed_on is RAW:
            if not pubend.is_here or not self._ring.ready or any(shb not in pubend.enrolled for shb in versions):
                return Decision(flood=True, stamp=RAW)
            return Decision(flood=False, stamp=versions)
        return Decision(flood=not covers(versions, passed_on), stamp=passed_on)

    def matches(self, broker: BrokerId, pubend: PubendId, events: EventBatch) -> int:
        """Returns which of these events anyone wants to whom the way leads over a broker: bit i for event i."""
        wanted = 0
        for group in self.groups(broker):
            wanted |= self.table.matches(group, pubend, events)
        return wanted

    def widened(self, broker: BrokerId) -> int:
        """Returns another number whenever more may be wanted behind a broker than before."""
        return sum(map(self.table.widened, self._used.get(broker, ())))

    def wants_nothing(self, broker: BrokerId) -> bool:
        """Whether it is known that there is no SHB behind a broker."""
        return self.is_complete(self._tree.first(broker)) and not self.groups(broker)

    # ------------------------------------------------------------------------------------ the shape

    def side_of(self, broker: BrokerId) -> str:
        """Returns the neighbour on the way to a broker."""
        return self._tree.first(broker)

    def direction_of(self, broker: BrokerId, named: str) -> str:
        """Returns under which broker an SHB is known; `named`: its home, which a message says."""
        return self._tree.group_of(named)

    def place_of(self, direction: str, shb: ShbId) -> str:
        """Returns at which broker an SHB is."""
        return self._state.broker if direction == CORE else self._homes[shb]

    def may_hear(self, broker: BrokerId, direction: str) -> bool:
        """Whether a broker may be told of SHBs that are known under another one: it is not on their side."""
        return direction == CORE or self._tree.first(direction) != self._tree.first(broker)

    def listeners(self, origin: str) -> Iterable[BrokerId]:
        """Returns the live brokers that are told of SHBs that are known under another one: those who may filter."""
        return [
            broker
            for broker in self._ring.links
            if self._tree.has_beyond(broker, "phb") and self.may_hear(broker, origin)
        ]

    # --------------------------------------------------------------------------------- what happened

    def on_part(self, broker: BrokerId, part: InterestPart, address: Address) -> None:
        """A part of an interest, or of a change of it."""
        at = self._state.now - int(address[0]) * MILLISECOND
        if self._place(broker, part.shb, str(address[2]), at):
            super().on_part(broker, part, address)

    def on_census(self, broker: BrokerId, data: bytes) -> None:
        """Who is on the side of a broker. Raises RemoteProtocolError when it makes no sense."""
        census = _decode(data)
        named = self._named.setdefault(broker, {})
        for row in census.rows:
            named[row.shb] = None
            at = self._state.now - row.age * MILLISECOND
            if self._place(broker, row.shb, row.home, at):
                self.table.take_row(self._tree.group_of(row.home), row, at, lambda shb: self._ask(broker, shb))
        if census.total is not None:
            self._totals[broker] = census.total

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: if it may filter, it is told who is on this side."""
        if broker in self.listeners(CORE):
            self.say_census_to(broker)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone."""
        self.sayings.link_down(broker)
        self._told.discard(broker)
        if broker not in self._links:
            self.forget_census(broker)

    def forget_census(self, broker: BrokerId) -> None:
        """What a broker said of its side does not count any more: it may begin anew, and know less."""
        self._named.pop(broker, None)
        self._totals.pop(broker, None)

    def retire(self, shb: ShbId) -> None:
        """An SHB was retired: what others still say of it, from before, counts no more (K9)."""
        self._retired[shb] = self._state.now
        home = self._homes.pop(shb, None)
        if home is not None:
            self.table.forget(self._tree.group_of(home), shb)

    def _place(self, broker: BrokerId, shb: ShbId, home: BrokerId, at: int) -> bool:
        """Notes where an SHB is, of which its own broker spoke at a time. Returns whether it is believed."""
        if home not in self._tree or home == self._state.broker or self._tree.first(home) != self._tree.first(broker):
            return False  # the sender has another map, or the SHB was here itself once
        if shb == self.shb or at <= self._retired.get(shb, at - 1) or self._state.now - at > self._forget:
            return False
        before = self._homes.get(shb)
        if before is not None and before != home:
            group = self._tree.group_of(before)
            if at <= self.table.shbs(group).get(shb, at - 1):
                return False  # it was there, and has moved
            if group != self._tree.group_of(home):
                self.table.forget(group, shb)
        self._homes[shb] = home
        group = self._tree.group_of(home)
        if group not in self._used.get(group, ()):
            for on_way in self._tree.path(group):
                self._used.setdefault(on_way, []).append(group)
        return True

    def say_census(self) -> list[ShbId]:
        """Every five seconds: who is on this side, to all who filter. Returns the SHBs that were forgotten."""
        forgotten = super().say_census()
        for shb in forgotten:
            self._homes.pop(shb, None)
        self._retired = {shb: at for shb, at in self._retired.items() if self._state.now - at <= self._forget}
        return forgotten

    def say_census_to(self, broker: BrokerId) -> None:
        """Says to a broker who is not on its own side; how many there are, when that is known of all directions."""
        rows = list(self._rows_for(broker))
        is_whole = self._is_whole_for(broker)
        if is_whole:
            self._told.add(broker)
        for cut in list(portions(rows)) or [[]]:
            census = SideCensus(tuple(cut), len(rows) if is_whole else None)
            self._links.send(broker, Private(CENSUS, _encode(census)))

    def _rows_for(self, broker: BrokerId) -> Iterator[SideRow]:
        for direction in self.table:
            if self.may_hear(broker, direction):
                for row in self.table.rows(direction):
                    yield SideRow(row.shb, row.version, row.digest, row.age, self.place_of(direction, row.shb))
