"""Who gets which events of a shared subscription (protocol: shared-subscriptions; TS15, TS23, TS29).

Consumers with credit get runs of events in turn. What may have been handed out before goes apart from what was not: its
consumer takes it before it hands it out. What a consumer died with goes alone: one consumer is chosen for it, gets
nothing more until it holds nothing, then this, and nothing else until this is settled. The others go on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gapless.core.principals import Principal
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import Settle, Sharing, Take
from gapless.core.wire.messages.sharing import RUN_MAX
from gapless.selectors.masks import mask_at, select
from gapless_shb.core.catch_up.readers import expired_mask, lowest
from gapless_shb.core.shared.settling import Ceiling
from gapless_shb.core.shared.window import Chunk, Run, Window
from gapless_shb.core.state.consumers import Channel, Credited
from gapless_shb.core.state.segments import too_large

_MILLISECOND = 1_000_000


@dataclass(slots=True, eq=False)
class Member(Credited):
    """One consumer of a shared subscription: what it holds, and what it may be given."""

    channel: Channel
    credit_events: int
    credit_bytes: int
    payload_max: int
    sid: int
    instance: str
    """Names it through all its sessions."""
    request: int
    """The number that its client gave to its request to attach."""
    principal: Principal
    since: int
    """The wall time of its attachment, in milliseconds since 1970."""
    sharing: Sharing
    is_here: bool = True
    """Whether it has a link."""
    is_entered: bool = False
    """Whether it stands in the roster, durably, or needs no row."""
    uncertain_upto: int = 0
    """It came back, and its row had gone: what became of settlements with delivery numbers up to here is not known."""
    alone: Run | None = None
    """The one event that it has alone."""
    pauses: bool = False
    """Whether it has given something back that it never handed out: it gets nothing more until it grants credit."""
    drains: bool = False
    """Whether it gets nothing until it holds nothing."""
    resumes: list[tuple[PubendId, Tick, int]] = field(default_factory=list)
    """What it says that it holds, and that is not read again yet since the broker has crashed."""
    waiting: list[Take | Settle] = field(default_factory=list)
    """What it has said of events that are not read again yet, and after that."""
    _firsts: list[int] = field(default_factory=list)
    _runs: list[Run] = field(default_factory=list)

    @property
    def runs(self) -> Sequence[Run]:
        """What it holds, in the order of the delivery numbers."""
        return self._runs

    @property
    def held(self) -> int:
        """How many events it holds."""
        return sum(run.mask.bit_count() for run in self._runs)

    @property
    def is_ready(self) -> bool:
        """Whether it may be given anything now."""
        return self.is_here and self.is_entered and not self.pauses and not self.starved

    def add(self, run: Run) -> None:
        """It holds these events from now on."""
        at = bisect_left(self._firsts, run.first)
        self._firsts.insert(at, run.first)
        self._runs.insert(at, run)

    def find(self, number: int) -> Run | None:
        """Returns the run with a delivery number."""
        at = bisect_right(self._firsts, number) - 1
        run = self._runs[at] if at >= 0 else None
        return run if run is not None and number < run.first + run.count else None

    def release(self, run: Run, mask: int) -> None:
        """It does not hold these events any more."""
        run.mask &= ~mask
        if not run.mask:
            at = bisect_left(self._firsts, run.first)
            del self._firsts[at], self._runs[at]
            if self.alone is run:
                self.alone = None


class Dispatch:
    """Gives what is free to the consumers of one subscription."""

    def __init__(
        self,
        members: Mapping[str, Member],
        windows: Mapping[PubendId, Window],
        ceiling: Ceiling,
        changed: Callable[[Window], None],
    ) -> None:
        """`changed`: a window has other events than before, not because of a verdict."""
        self._members = members
        self._windows = windows
        self._ceiling = ceiling
        self._changed = changed
        self._member_turn = 0
        self._window_turn = 0

    def hand_out(self, now: int, wall: int, *, hidden: bool) -> Iterator[Run]:
        """Gives what is free to whoever may have it, and yields what was given. `hidden`: but not what is in doubt."""
        self._ceiling.is_wanted = False
        yield from self._suspects(now, wall, hidden=hidden)
        gave = True
        while gave:
            gave = False
            for at, member in self._in_turn():
                if member.drains or member.alone is not None or not member.is_ready:
                    continue
                run = self._give(member, now, wall, hidden=hidden)
                if run is not None:
                    gave = True
                    self._member_turn = at + 1
                    yield run

    def _in_turn(self) -> list[tuple[int, Member]]:
        """Returns the consumers with their places: first who comes behind the one that was given something last."""
        members = list(enumerate(self._members.values()))
        first = self._member_turn % max(1, len(members))
        return members[first:] + members[:first]

    def _windows_in_turn(self) -> list[Window]:
        windows = list(self._windows.values())
        first = self._window_turn % max(1, len(windows))
        return windows[first:] + windows[:first]

    def _give(self, member: Member, now: int, wall: int, *, hidden: bool) -> Run | None:
        self._window_turn += 1
        for window in self._windows_in_turn():
            while (found := window.next_ready(hidden=hidden)) is not None:
                chunk, mask = found
                run = self._deliver(member, window, chunk, self._alike(chunk, mask), now, wall)
                if run is not None:
                    return run
                if chunk.ready & mask == mask:
                    break  # nothing of it has expired: the consumer has no room for it, or it waits for the ceiling
        return None

    @staticmethod
    def _alike(chunk: Chunk, mask: int) -> int:
        """Returns the first of these events and those that may go with it."""
        low = mask & -mask
        if chunk.gaps:
            gaps = mask_at(list(chunk.gaps))
            if low & gaps:
                return low
            mask &= ~gaps
        careful = chunk.doubt | chunk.attempted
        mask &= careful if low & careful else ~careful
        in_a_row = mask & (low << RUN_MAX) - low
        return in_a_row if in_a_row.bit_count() == RUN_MAX or in_a_row == mask else lowest(mask, RUN_MAX)

    def _suspects(self, now: int, wall: int, *, hidden: bool) -> Iterator[Run]:
        """Gives what travels alone to a consumer that holds nothing, or lets one have nothing until it does."""
        for window in self._windows.values():
            while (found := window.next_suspect(hidden=hidden)) is not None:
                chunk, mask = found
                chosen = self._chosen()
                if chosen is None or chosen.runs or not chosen.is_ready:
                    return
                run = self._deliver(chosen, window, chunk, mask, now, wall)
                if run is not None:
                    chosen.alone, chosen.drains = run, False
                    yield run
                elif chunk.ready & mask:
                    return
        for member in self._members.values():
            member.drains = False  # nothing is left that travels alone

    def _chosen(self) -> Member | None:
        """Returns the consumer that is being drained, or else one that holds least."""
        here = [
            one
            for one in self._members.values()
            if one.is_here and one.is_entered and not one.pauses and one.alone is None
        ]
        if not here:
            return None
        least = min(here, key=lambda one: one.held)
        chosen = next((one for one in here if one.drains), None)
        if chosen is not None and (not chosen.runs or least.runs):
            return chosen
        if chosen is not None:
            chosen.drains = False  # it has a long job, and another one holds nothing
        least.drains = True
        return least

    def _deliver(self, member: Member, window: Window, chunk: Chunk, mask: int, now: int, wall: int) -> Run | None:
        """Gives some of these events, which are alike, to a consumer. None: it has no room, or they have expired."""
        low = mask & -mask
        place = low.bit_length() - 1
        if place not in chunk.gaps:
            events = self._unexpired(window, chunk, mask, wall)
            if not len(events):
                return None
            mask &= chunk.ready
            count = member.affordable(events, RUN_MAX)
            room = min(count, self._ceiling.room(window.pubend, events.ticks[max(0, count - 1)])) if count else 0
            if room <= 0:
                return None
            if room < len(events):
                events, mask = events.slice(0, room), lowest(mask, room)
            payload = events.payload((1 << room) - 1)
            if not member.is_too_large(payload):
                run = self._hold(member, window, chunk, mask, now)
                member.spend(room, len(payload))
                member.channel.deliver_held(
                    member.sid,
                    window.pubend,
                    payload,
                    run.first,
                    careful=run.is_careful,
                    attempts=_attempts(chunk, mask),
                )
                return run
            place = (mask & -mask).bit_length() - 1
            chunk.gaps[place] = too_large(chunk.ticks[place])
        if self._ceiling.room(window.pubend, chunk.ticks[place]) <= 0:
            return None
        run = self._hold(member, window, chunk, 1 << place, now)
        gap = chunk.gaps[place]
        member.channel.gap_held(
            member.sid,
            window.pubend,
            run.first,
            (gap.start, gap.end, gap.reason),
            careful=run.is_careful,
            attempts=chunk.attempts.get(place, 0),
        )
        return run

    def _unexpired(self, window: Window, chunk: Chunk, mask: int, wall: int) -> EventBatch:
        """Returns those of the events that have not expired. The others are settled."""
        events = chunk.batch(mask)
        expired = expired_mask(events, wall)
        if not expired:
            return events
        places = select(range(len(chunk.ticks)), mask)
        fresh = events.select((1 << len(events)) - 1 & ~expired) if expired.bit_count() < len(events) else EMPTY_BATCH
        window.finish(chunk, mask_at(select(places, expired)))
        self._changed(window)
        return fresh

    def _hold(self, member: Member, window: Window, chunk: Chunk, mask: int, now: int) -> Run:
        low, count = mask & -mask, mask.bit_count()
        first = low.bit_length() - 1
        places: Sequence[int] = range(first, first + count)
        if mask != (low << count) - low:
            places = select(range(len(chunk.ticks)), mask)
        ticks = chunk.ticks[first : first + count] if isinstance(places, range) else select(chunk.ticks, mask)
        run = Run(member, window, chunk, self._ceiling.take(count), places, tuple(ticks), mask, since=now)
        run.is_careful = bool(low & (chunk.doubt | chunk.attempted))
        if member.sharing.hold_ms:
            run.until = now + member.sharing.hold_ms * _MILLISECOND
        window.hold(chunk, mask)
        member.add(run)
        return run


EMPTY_BATCH = EventBatch((), (), ())


def _attempts(chunk: Chunk, mask: int) -> bytes:
    """Returns how often each of these events was attempted; nothing if none was."""
    if not mask & chunk.attempted:
        return b""
    return bytes(chunk.attempts.get(place, 0) for place in select(range(len(chunk.ticks)), mask))
