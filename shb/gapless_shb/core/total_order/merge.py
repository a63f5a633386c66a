"""Merges the pubends of a group into one order: by tick, and where ticks are equal by pubend (protocol: merging; T14).

Each member gives what it has for a subscription, in its own order, and how far it is known. Whatever stands before the
next thing that any member may still have can leave; the rest waits. So a member that is slow or dead holds the others.

A gap leaves as one item, at the place where it begins: whoever has got what stands behind that place has got the gap,
and never meets an event from within it later. Events of a member that come too late leave as one gap, once all of them
are known. The merge decides only the order: whether a consumer has credit, and
how much of a member may wait here, is decided by `gapless_shb.core.total_order.delivery`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from gapless.core.stream.batch_bytes import ROW
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import GapReason
from gapless_shb.core.state.segments import GapSegment, Segment

Place: TypeAlias = "tuple[Tick, PubendId]"
"""A place in the order."""


@dataclass(slots=True)
class MergedMember:
    """What a member has given and what has not left yet."""

    pubend: PubendId
    known: Tick
    """Everything up to here was given, or is silence."""
    too_late: Tick
    """The order has come past this place of the member, which is in place of a lost one: its events up to here are a
    gap."""
    waiting: deque[Segment] = field(default_factory=deque)
    taken: int = 0
    """How many events of the first segment have left."""

    @property
    def next_place(self) -> Place:
        """Nothing of this member stands before this place, but for what has left."""
        if not self.waiting:
            return self.known + 1, self.pubend
        first = self.waiting[0]
        return first.start + 1 if isinstance(first, GapSegment) else first.ticks[self.taken], self.pubend

    @property
    def is_open(self) -> bool:
        """Whether a gap of what comes too late may still become longer. Nothing else can leave before that is known."""
        first = self.waiting[0] if self.waiting else None
        return isinstance(first, GapSegment) and first.reason is GapReason.TOO_LATE and self.known < self.too_late

    @property
    def is_ahead(self) -> bool:
        """Whether something waits here that has an end: the member need not give more."""
        return bool(self.waiting) and not self.is_open

    @property
    def done_upto(self) -> Tick:
        """Everything of this member up to here has left, or is silence."""
        if not self.waiting:
            return self.known
        first = self.waiting[0]
        return first.start if isinstance(first, GapSegment) else first.ticks[self.taken] - 1


class OrderedMerge:
    """The merge for one consumer."""

    def __init__(self, starts: Mapping[PubendId, Tick], too_late: Mapping[PubendId, Tick]) -> None:
        """The members of the group, from where on each is merged, and up to where the events of some come too late."""
        self._members = {
            pubend: MergedMember(pubend, start, too_late.get(pubend, 0)) for pubend, start in starts.items()
        }
        self._last: Place = max((start, pubend) for pubend, start in starts.items())
        """The last place from which something has left."""
        self.events = 0
        """How many events wait here."""
        self.bytes = 0
        """How many bytes they have."""

    def __contains__(self, pubend: object) -> bool:
        return pubend in self._members

    def add(self, pubend: PubendId, start: Tick) -> Tick:
        """Adds a member. Returns from where it is merged: from `start`, or behind what has left already."""
        start = max(start, late_start(pubend, self._last))
        self._members[pubend] = MergedMember(pubend, start, too_late=0)
        return start

    def member(self, pubend: PubendId) -> MergedMember:
        """Returns what a member has given."""
        return self._members[pubend]

    def members(self) -> list[MergedMember]:
        """Returns all members."""
        return list(self._members.values())

    # What members give.

    def know(self, pubend: PubendId, upto: Tick) -> None:
        """Everything of a member up to here was given, or is silence."""
        member = self._members[pubend]
        member.known = max(member.known, upto)

    def put(self, pubend: PubendId, segment: Segment) -> None:
        """Takes events or a gap of a member; they come behind all that it has given before."""
        member = self._members[pubend]
        if isinstance(segment, GapSegment):
            member.waiting.append(segment)
            member.known = max(member.known, segment.end)
            return
        if not len(segment):
            return
        # Cut into single events, of which any number may leave at once: columns would be copied for each piece.
        events = EventBatch(
            segment.ticks, segment.events, segment.body_lengths, segment.headers if segment.decoded else None
        )
        assert member.known < events.ticks[0], "a member gives its events in order, each once"
        if late := bisect_right(events.ticks, member.too_late):
            gap = GapSegment(events.ticks[0] - 1, events.ticks[late - 1], GapReason.TOO_LATE)
            last = member.waiting[-1] if member.waiting else None
            if isinstance(last, GapSegment) and last.reason is GapReason.TOO_LATE:
                gap = gap.after(last)
                member.waiting.pop()
            self.put(pubend, gap)
            self.put(pubend, events.slice(late, len(events)))
            return
        member.waiting.append(events)
        member.known = max(member.known, events.ticks[-1])
        self.events += len(events)
        self.bytes += size_of(events)

    # What may leave.

    @property
    def bound(self) -> Place:
        """All that stands before this place has left, or may leave now."""
        return min(member.next_place for member in self._members.values())

    def take(self, room: Callable[[EventBatch], int]) -> tuple[PubendId, Segment] | None:
        """Takes out what comes next: a gap, or as many events of one member as may leave and as there is room for.

        Returns None if nothing may leave. `room`: returns how many of these events may leave now.
        """
        places = sorted(((each.next_place, each) for each in self._members.values()), key=itemgetter(0))
        member = places[0][1]
        if not member.waiting:
            return None
        first = member.waiting[0]
        if member.is_open:
            return None
        if isinstance(first, GapSegment):
            member.waiting.popleft()
            self._last = max(self._last, places[0][0])
            return member.pubend, first
        ticks, end = first.ticks, len(first)
        if len(places) > 1:
            tick, pubend = places[1][0]
            # Of two events with one tick, that of the pubend with the lower name comes first.
            end = bisect_right(ticks, tick if member.pubend < pubend else tick - 1, member.taken)
        events = first.slice(member.taken, end)
        count = room(events)
        if not count:
            return None
        events = events.slice(0, count)
        member.taken += count
        self._last = max(self._last, (events.ticks[-1], member.pubend))
        if member.taken == len(first):
            member.waiting.popleft()
            member.taken = 0
        self.events -= count
        self.bytes -= size_of(events)
        return member.pubend, events

    def silent_upto(self, pubend: PubendId) -> Tick:
        """Returns up to where a consumer that has got all that has left may be told silence of a member.

        After an item (m, p), nothing is left at or below m of pubends up to p, nor below m of those behind p.
        """
        tick, at = self.bound
        return min(self._members[pubend].done_upto, tick if pubend < at else tick - 1)


def late_start(pubend: PubendId, last: Place) -> Tick:
    """Returns from where a member is merged that is found when an order has come to `last` (protocol: late-members)."""
    tick, at = last
    return tick if pubend < at else tick - 1


def size_of(events: EventBatch) -> int:
    """Returns what these events cost of a consumer's credit in bytes, about."""
    return events.size + ROW.size * len(events)
