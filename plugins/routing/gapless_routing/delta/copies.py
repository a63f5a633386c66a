"""Copies of events: who has which, what is safe, and what is let go of (protocol: delta-router).

What a broker has of a pubend is a run of ticks, of all of which it knows what they are. Every broker reports its run
toward the pubend, as far up as its reach: so each knows who below has a copy of what. An event goes when it is older
than the window, and safe for every broker under which somebody wants it; what wants it is decided by the tables of
now. Where it stood, there is silence then that names nobody who may want it: whoever does asks, and is answered from
elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec import Struct

from gapless.core.foreign import reader_of
from gapless.core.network.facts import BrokerId, Real
from gapless.core.network.frames import Private, portions
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import RAW, Stamp, restrict
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless_routing.common.relay import RUNS_MAX, Relay, RelayedPubend
from gapless_routing.common.router_state import RouterState
from gapless_routing.delta.interest import SideInterests
from gapless_routing.delta.options import Options
from gapless_routing.delta.ring import Ring
from gapless_routing.delta.tree import Tree

REPORT: Final = 14
"""The kind of a `Private` that holds Reports."""
REPORT_BYTES: Final = 1 << 20
"""After so many bytes of a pubend a report does not wait for the next beat."""
REMEMBERED_MAX: Final = 16
"""So many stretches of a pubend are remembered where nothing is cached."""


class Report(Struct, array_like=True, frozen=True, gc=False):
    """What one broker has of a pubend: all ticks of (lo, hi] are known, and no event is kept of those up to `done`."""

    pubend: PubendId
    broker: BrokerId
    life: Real
    number: Real
    lo: Real
    hi: Real
    done: Real


class Reports(Struct, array_like=True, frozen=True, gc=False):
    """What several brokers have."""

    reports: tuple[Report, ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(Reports, "reports")


@dataclass(slots=True, kw_only=True)
class CopiedPubend(RelayedPubend):
    """One pubend, with what is known of copies of its events."""

    path: tuple[BrokerId, ...]
    """The brokers on the way to it."""
    has_below: bool
    """Whether there are SHBs farther away from it, by the map: then its events are cached here."""
    is_wanted: bool
    """Whether there are any there or here."""
    copying: dict[BrokerId, Ranges] = field(default_factory=dict)
    """What is still to be copied to those whom this broker serves."""
    reports: dict[BrokerId, Report] = field(default_factory=dict)
    """What the brokers within reach that are farther away have."""
    changed: dict[BrokerId, None] = field(default_factory=dict)
    """Whose report has changed since it was passed on."""
    has: IntervalSet = field(default_factory=IntervalSet)
    """What has come, where nothing is cached."""
    unreported: int = 0
    """Bytes that have come since the last report."""
    safe_gone: IntervalSet = field(default_factory=IntervalSet)
    """Where events were let go of that were safe, and nothing can be said of silence: it counts as had."""
    evicted: Tick = 0
    """The highest tick of an event that was let go of for lack of room: no copy reaches below it."""
    ages: deque[tuple[int, Tick]] = field(default_factory=deque)
    """How far it was known at each beat, as long as that is within the window."""
    looked_upto: Tick = 0
    """Up to here every event that is still held was wanted by somebody for whom it was not safe …"""
    looked_with: Mapping[BrokerId, Ranges] = field(default_factory=dict)
    """… when this was safe."""
    came_again: bool = False
    """Since then some of them have come once more, in an answer."""

    @property
    def let_go_upto(self) -> Tick:
        """What was evicted, or is older than the window and was told to all, is not pushed a second time."""
        return max(self.evicted, self.looked_upto)

    @property
    def is_cached(self) -> bool:
        """Whether others may ask here for it: all who are farther away, whoever serves them."""
        return self.has_below

    def came(self, events: EventBatch) -> None:
        """Events were cached that were not there."""
        RelayedPubend.came(self, events)  # `super()` does not work in a class with slots
        self.came_again |= events.ticks[0] <= self.looked_upto


class Copies:
    """What is known of copies, of all pubends."""

    def __init__(
        self,
        state: RouterState,
        tree: Tree,
        ring: Ring,
        interests: SideInterests,
        relay: Relay,
        pubends: Mapping[PubendId, CopiedPubend],
        options: Options,
    ) -> None:
        self._state = state
        self._tree = tree
        self._ring = ring
        self._interests = interests
        self._relay = relay
        self._pubends = pubends
        self._window = options.window
        self._numbers = 0

    # -------------------------------------------------------------------------------------- reports

    def run(self, pubend: CopiedPubend) -> tuple[Tick, Tick]:
        """Returns the newest stretch of which all is known here: what an eviction has taken is below it."""
        if not pubend.has_below:
            return pubend.has.ranges[-1] if pubend.has else (0, 0)
        *_, gone_upto = pubend.safe_gone.ranges[-1] if pubend.safe_gone else (0, 0)
        lo = hi = max(pubend.cache.known_upto, gone_upto)
        floor = max(pubend.cache.base, pubend.evicted)
        while lo > floor:
            gone = pubend.safe_gone.within(floor, lo)
            top = gone[-1] if gone and gone[-1][1] == lo else None
            below = top[0] if top is not None else self._relay.stretch(pubend, lo, floor, {})
            if below == lo:
                break
            lo = below
        return lo, hi

    def received(self, pubend: CopiedPubend, knowledge: Knowledge) -> None:
        """Something has come. Much of it is reported at once."""
        if not pubend.has_below:
            _remember(pubend.has, knowledge.lo, knowledge.hi)
        pubend.unreported += knowledge.data.size
        if pubend.unreported >= REPORT_BYTES:
            self._ring.say_status(self._report({pubend.meta.pubend: pubend}))

    def on_report(self, broker: BrokerId, data: bytes) -> None:
        """What brokers have that are farther away. Raises RemoteProtocolError when it makes no sense."""
        for report in _decode(data).reports:
            pubend = self._pubends.get(report.pubend)
            if pubend is None or not self._is_below(pubend, report.broker):
                continue
            before = pubend.reports.get(report.broker)
            if before is None or before.life != report.life or before.number < report.number:
                pubend.reports[report.broker] = report
                pubend.changed[report.broker] = None

    def forget_lives_but(self, broker: BrokerId, life: int | None) -> None:
        """A broker has this life: what it had in another one is gone (TD2)."""
        for pubend in self._pubends.values():
            report = pubend.reports.get(broker)
            if report is not None and report.life != life:
                del pubend.reports[broker]

    def _is_below(self, pubend: CopiedPubend, broker: BrokerId) -> bool:
        is_near = broker in self._tree.near
        return is_near and (pubend.is_here or self._tree.first(broker) != pubend.path[0])

    def _report(self, pubends: Mapping[PubendId, CopiedPubend]) -> dict[BrokerId, bytes]:
        """Returns for those on the way to each pubend what is had here, and what has changed below.

        What is too much for one message is sent before.
        """
        said: dict[BrokerId, list[Report]] = {}
        for name, pubend in pubends.items():
            changed, pubend.changed, pubend.unreported = pubend.changed, {}, 0
            if pubend.is_here or not pubend.is_wanted:
                continue
            own = self._own(name, pubend)
            for broker in self._ring.on_way(pubend.meta.broker):
                hops = self._tree.distance(broker)
                passed_on = [
                    pubend.reports[below]
                    for below in changed
                    if below in pubend.reports and hops + self._tree.distance(below) <= self._tree.reach
                ]
                said.setdefault(broker, []).extend([own, *passed_on])
        last: dict[BrokerId, bytes] = {}
        for broker, reports in said.items():
            *more, last[broker] = (_encode(Reports(tuple(portion))) for portion in portions(reports))
            for each in more:
                self._ring.links.send(broker, Private(REPORT, each))
        return last

    def _own(self, name: PubendId, pubend: CopiedPubend) -> Report:
        self._numbers += 1
        lo, hi = self.run(pubend)
        first = pubend.cache.first_event(lo, hi) if pubend.has_below else None
        done = hi if first is None else first - 1
        return Report(name, self._state.broker, self._ring.life, self._numbers, lo, hi, done)

    # ---------------------------------------------------------------------------------- letting go

    def beat(self) -> Mapping[BrokerId, bytes]:
        """Once a second: what is safe is let go of. Returns what is to be reported to whom."""
        for pubend in self._pubends.values():
            ages = pubend.ages
            ages.append((self._state.now, pubend.cache.known_upto))
            upto = 0
            while ages and self._state.now - ages[0][0] >= self._window:
                upto = ages.popleft()[1]
            if upto:
                ages.appendleft((self._state.now - self._window, upto))
                self._purge(pubend, upto)
        return self._report(self._pubends)

    def _purge(self, pubend: CopiedPubend, upto: Tick) -> None:
        """Lets go of the events up to a tick that are safe for all who want them."""
        upto = min([upto, *(self._told(pubend, broker) for broker in pubend.outward)])
        safe = {group: self._safe(pubend, group) for group in self._groups(pubend)}
        begin = pubend.looked_upto
        is_changed = pubend.came_again or _below(safe, begin) != pubend.looked_with
        if is_changed and pubend.cache.first_event(pubend.cache.base, begin) is not None:
            begin = pubend.cache.base
        if begin >= upto:
            return
        self._let_go(pubend, begin, upto, safe)
        pubend.looked_upto, pubend.looked_with, pubend.came_again = upto, _below(safe, upto), False

    def evict(self, pubend: CopiedPubend, upto: Tick) -> None:
        """Lets go of all events up to a tick, because there is no room for them."""
        self._let_go(pubend, pubend.cache.base, upto, None)
        pubend.evicted = max(pubend.evicted, upto)
        if pubend.cache.run_count > RUNS_MAX:
            pubend.cache.forget(pubend.cache.base, upto)

    def _told(self, pubend: CopiedPubend, broker: BrokerId) -> Tick:
        """How far a broker that is served was told everything."""
        copying = pubend.copying.get(broker)
        return copying[0][0] if copying else pubend.outward[broker].sent

    def _groups(self, pubend: CopiedPubend) -> list[BrokerId]:
        """Under which brokers SHBs are known that are farther away from a pubend."""
        below = [neighbour for neighbour in self._tree.neighbours if neighbour not in pubend.path[:1]]
        return [group for neighbour in below for group in self._interests.groups(neighbour)]

    def _safe(self, pubend: CopiedPubend, group: BrokerId) -> IntervalSet:
        """Which ticks are safe for those who are known under a broker.

        All brokers on the way have a copy; or one of them has had one, and let it go because it was safe; or the broker
        is their own, and has handed it over.
        """
        all_have: IntervalSet | None = None
        safe = IntervalSet()
        report: Report | None = None
        for broker in self._tree.path(group):
            report = pubend.reports.get(broker)
            run = IntervalSet([(report.lo, report.hi)] if report is not None else ())
            all_have = run if all_have is None else all_have & run
            if report is not None:
                safe |= IntervalSet([(report.lo, min(report.done, report.hi))])
        if all_have is not None:
            safe |= all_have
        if report is not None and self._interests.are_at_home(group):
            safe |= IntervalSet([(report.lo, report.hi)])
        return safe

    def _let_go(
        self, pubend: CopiedPubend, begin: Tick, upto: Tick, safe: Mapping[BrokerId, IntervalSet] | None
    ) -> None:
        """Lets go of events in (begin, upto]: of those that are safe, or of all (`safe` is None)."""
        groups = self._groups(pubend)
        pubend.cache.forget_lost_events(upto)
        for lo, hi, stamp in pubend.cache.stretches(upto):
            data = pubend.cache.take(max(lo, begin), hi)
            if not data and safe is not None:
                continue
            wanted = {group: self._wanted(pubend, group, stamp, data) for group in groups}
            kept = 0
            if safe is not None:
                for group, mask in wanted.items():
                    kept |= mask & ~_mask(data, safe[group])
            gone = ((1 << len(data)) - 1) & ~kept
            if not gone and safe is not None:
                continue
            losers = [group for group, mask in wanted.items() if mask & gone]
            left = self._without(pubend, stamp, groups, losers)
            kept_data = data.select(kept) if kept else data.slice(0, 0)
            if left is RAW:
                self._forget(pubend, max(lo, begin), hi, kept_data)
                if safe is not None:
                    _remember(pubend.safe_gone, max(lo, begin), hi)
            else:
                pubend.cache.let_go(max(lo, begin), hi, kept_data, left, lo)

    def _wanted(self, pubend: CopiedPubend, group: BrokerId, stamp: Stamp, data: EventBatch) -> int:
        """Which events those want who are known under a broker; all, where its table is not good enough for that."""
        if not data:
            return 0
        if self._interests.decide_for([group], self._tree.first(group), stamp, pubend).flood:
            return (1 << len(data)) - 1
        return self._interests.table.matches(group, pubend.meta.pubend, data)

    def _without(
        self, pubend: CopiedPubend, stamp: Stamp, groups: list[BrokerId], losers: list[BrokerId]
    ) -> Mapping[ShbId, int] | None:
        """The stamp of silence where events were that some want; RAW: nothing can be said of it."""
        kept = [group for group in groups if group not in losers]
        if stamp is RAW:
            if not pubend.is_here:
                return RAW
            stamp = {shb: v for shb, v in self._interests.table.versions(kept).items() if shb in pubend.enrolled}
        return restrict(stamp, {shb for group in kept for shb in self._interests.table.shbs(group)})

    def _forget(self, pubend: CopiedPubend, lo: Tick, hi: Tick, kept: EventBatch) -> None:
        """Nothing is known any more of the ticks in (lo, hi], but of those of the events that are kept."""
        for tick in kept.ticks:
            pubend.cache.forget(lo, tick - 1)
            lo = tick
        pubend.cache.forget(lo, hi)


def _remember(stretches: IntervalSet, lo: Tick, hi: Tick) -> None:
    """Adds a stretch; of too many the lowest is forgotten."""
    stretches.add(lo, hi)
    if len(stretches) > REMEMBERED_MAX:
        stretches.remove(0, stretches.ranges[0][1])


def _mask(data: EventBatch, ranges: IntervalSet) -> int:
    """Which events lie in some ranges: bit i for event i."""
    mask = 0
    for lo, hi in ranges.ranges:
        mask |= (1 << bisect_right(data.ticks, hi)) - (1 << bisect_right(data.ticks, lo))
    return mask


def _below(safe: Mapping[BrokerId, IntervalSet], tick: Tick) -> dict[BrokerId, Ranges]:
    """What of each is not above a tick."""
    return {group: ranges.within(0, tick) for group, ranges in safe.items()}
