"""One shared subscription: to the rest of the SHB it is one consumer, and its own consumers share what that gets.

    constream, readers ──offer, put, gap──▶ windows ──Dispatch──▶ members ──Take, Settle──▶ windows
                                                     └── one write a turn ──durable──▶ Taken, Settled, the floor moves

The one consumer (`state.consumers.Consumer`) has no session and all credit; what it gets goes into the windows, as far
as there is room (`room`). The position of the subscription is the durable floor. Members have sessions, channels and
credit of their own.

What handlers change is written once, at the end of the turn. Nothing that the write has to precede is said before it is
durable: Taken, Settled, the first delivery to whoever is new in the roster, a delivery above the ceiling, and what may
be released (TS4, TS17).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from gapless.core.deadlines import Deadlines
from gapless.core.outbox import Outbox
from gapless.core.ports import Operation
from gapless.core.principals import NOBODY
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    Code,
    Detached,
    GapReason,
    HoldLost,
    Holds,
    Kind,
    ServerMessage,
    Settle,
    Settled,
    Sharing,
    Take,
    Taken,
    Verdict,
)
from gapless.core.wire.messages.sharing import RUN_MAX
from gapless_shb.core.catch_up.readers import BATCH, ReaderContext
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.shared.dispatch import Dispatch, Member
from gapless_shb.core.shared.reader import SharedReader
from gapless_shb.core.shared.room import Room
from gapless_shb.core.shared.settling import (
    QUARANTINE,
    Ceiling,
    KeptRun,
    Roster,
    SharedRow,
    delete_shared,
    holds_of,
    shared_row,
)
from gapless_shb.core.shared.window import Chunk, Run, Window
from gapless_shb.core.state.consumers import Channel, Consumer
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.segments import GapSegment

_MILLISECOND = 1_000_000
BEYOND: Final = 2
"""Nobody holds so many times as many events as the window has: with many pubends it has a few more than it may."""
HOLDS_AFTER: Final = 50_000_000
"""Holds are looked at again after so many nanoseconds at the earliest."""
GATHERED: Final = 10 * _MILLISECOND
"""What is retried within so many nanoseconds comes again together: by itself, each event would cost a delivery."""


class Host(Protocol):
    """What a shared subscription needs of its SHB (`gapless_shb.core.hosting.Hosting`)."""

    streams: dict[PubendId, Constream]
    consumers: dict[int, Consumer]
    outbox: Outbox
    unsaved: bool

    def tell(self, session: int, message: ServerMessage) -> None:
        """Sends a message to a session, after everything that was sent to it before."""


@dataclass(slots=True)
class Answers:
    """What is said when a write is durable."""

    told: list[tuple[int, ServerMessage]] = field(default_factory=list)
    """To which session, and what."""
    entered: list[str] = field(default_factory=list)
    floors: dict[PubendId, Tick] = field(default_factory=dict)


class Timer(Enum):
    """What happens by itself."""

    QUARANTINE = "what is in doubt goes to others"
    HOLDS = "the time of a hold is over"


class Away(NamedTuple):
    """Somebody whose link is lost, and who may come back."""

    instance: str


class Delayed(NamedTuple):
    """Events that go to nobody for a while."""

    window: Window
    chunk: Chunk
    mask: int


class SharedSubscription:
    """See the module."""

    def __init__(
        self,
        host: Host,
        record: SubscriptionRecord,
        touched: dict[int, SharedSubscription],
        row: SharedRow | None = None,
        windows: Mapping[PubendId, Window] | None = None,
        roster: Roster | None = None,
    ) -> None:
        """`touched`: has those with something to be done. The others: as they are durable."""
        row = row or SharedRow()
        assert record.shared is not None, "only what is shared has consumers that share it"
        self._host = host
        self.record = record
        self._touched = touched
        self.windows: dict[PubendId, Window] = dict(windows or {})
        self.members: dict[str, Member] = {}
        self.roster = roster or Roster()
        self.ceiling = Ceiling.restored(row)
        self.room = Room(record.shared.window, self.windows)
        self._dispatch = Dispatch(self.members, self.windows, self.ceiling, self._changed)
        self._answers = Answers()
        self._recalled: dict[PubendId, None] = {}
        """The pubends of which something has to be read, whether there is room or not."""
        self._writes = False
        """Whether the turn has to end with a write."""
        self._deadlines: Deadlines[Away | Delayed | Timer] = Deadlines()
        self._awaited: set[str] = set()
        self._former = row
        """As the last life of the broker left it."""
        self.hidden_until = 0
        """Until when what is in doubt is kept back; 0: it is not."""

    # ------------------------------------------------------------------------- what the SHB gives it

    def __contains__(self, pubend: object) -> bool:
        return True

    def touch(self) -> None:
        """Something has changed: what follows happens at the end of the turn."""
        self._touched[self.record.sid] = self

    def add(self, pubend: PubendId, start: Tick) -> Tick:
        """A pubend was found late. Returns from where it is read."""
        return self.window(pubend, start).frontier

    def window(self, pubend: PubendId, start: Tick) -> Window:
        """Returns the window of a pubend, which begins at `start` if it is new."""
        window = self.windows.get(pubend)
        if window is None:
            window = self.windows[pubend] = Window(pubend, start)
        return window

    def begins_at(self, pubend: PubendId, start: Tick) -> Tick:
        """Returns from where a pubend is read: where something is missing, or else from the frontier on."""
        window = self.window(pubend, start)
        window.pass_to(start)  # silence moves the position, and writes no row: another filter must not look there again
        return min(window.floor, window.frontier) if window.absent else window.frontier

    def done_upto(self, pubend: PubendId) -> Tick:
        """Returns up to where everything of a pubend is settled, as far as it was given to the window."""
        window, sid = self.windows[pubend], self.record.sid
        return window.floor if window.count else max(window.floor, self._host.streams[pubend].served_upto(sid))

    def reader(self, context: ReaderContext, number: int, position: SubscriptionPosition, at: Tick) -> SharedReader:
        """Returns a reader for one pubend, from `at` on."""
        consumer = self._host.consumers[self.record.sid]
        window = self.windows[context.stream.pubend]
        return SharedReader(context, number, consumer, position, at, self, window)

    def is_full(self, pubend: PubendId) -> bool:
        """Whether a pubend has to wait until events are settled. What was not settled before never has to."""
        window = self.windows[pubend]
        served_upto = self._host.streams[pubend].served_upto(self.record.sid)
        if window.absent and served_upto < window.recalled_upto:
            return False
        if max(served_upto, window.frontier) < window.awaited_upto:
            return False
        return not self.room.events(pubend)

    def put(self, pubend: PubendId, events: EventBatch) -> EventBatch | None:
        """Takes as many events as there is room for, one at least. Returns the rest, or None."""
        window = self.windows[pubend]
        count = min(len(events), BATCH)
        if events.ticks[count - 1] > window.frontier:
            count = min(count, max(1, self.room.events(pubend)))
        self._put(window, events.slice(0, count))
        return None if count == len(events) else events.slice(count, len(events))

    def offer(self, pubend: PubendId, events: EventBatch) -> bool:
        """Takes live events, if there is room for all of them. Returns whether there is."""
        window = self.windows[pubend]
        fits = self.room.events(pubend) >= len(events) or events.ticks[-1] <= window.frontier
        if fits:
            self._put(window, events)
        self.touch()
        return fits

    def _put(self, window: Window, events: EventBatch) -> None:
        window.put(events)
        self._sent_upto(window)
        self.touch()

    def gap(self, pubend: PubendId, start: Tick, end: Tick, reason: GapReason) -> None:
        """Takes a gap, which one consumer is told of, and settles."""
        window = self.windows[pubend]
        window.put_gap(GapSegment(start, end, reason))
        self._sent_upto(window)
        self.touch()

    def _sent_upto(self, window: Window) -> None:
        """What is in the window counts as sent: the position does not pass it before it is settled."""
        position = self._host.streams[window.pubend].positions[self.record.sid]
        position.sent = max(position.sent, window.newest)

    # ------------------------------------------------------------------------------- who comes and goes

    def start(self, now: int, channel: Channel) -> None:
        """A life of the broker begins: what the last one left is kept for those who may come back.

        `channel`: leads to nobody.
        """
        former, self._former = self._former, SharedRow()
        for pubend, sent in (former.sent if former.is_open else former.doubted).items():
            if pubend in self._host.streams:
                window = self.window(pubend, self._host.streams[pubend].positions[self.record.sid].acked)
                if former.is_open:
                    window.begin_in_doubt(sent)
                else:
                    window.doubted_upto = sent
        if former.is_open or any(window.is_in_doubt for window in self.windows.values()):
            self._awaited = self.roster.awaited
            self.hidden_until = now + QUARANTINE
            self._deadlines.set(Timer.QUARANTINE, self.hidden_until)
            if not self._awaited:
                self._end_quarantine()
        if self.record.shared is not None and not self.record.shared.durable:
            self._deadlines.set(Timer.QUARANTINE, now + QUARANTINE)  # if nobody comes back it is removed
        for instance, (resume_ms, runs) in former.kept.items():
            sharing = Sharing(1, durable=True, resume_ms=resume_ms)
            member = Member(channel, 0, 0, 0, self.record.sid, instance, 0, NOBODY, 0, sharing)
            self.members[instance] = member
            self._restore(member, runs)
            self.lose_link(member, now)

    def begin(self) -> None:
        """It is consumed from now on: what is in the windows counts as sent."""
        for window in self.windows.values():
            self._sent_upto(window)

    def end(self) -> list[Operation]:
        """Nobody takes part any more. Returns what is to be written; everything that was read has a row."""
        for pubend, window in self.windows.items():
            window.pass_to(self._host.streams[pubend].served_upto(self.record.sid))
            window.let_go()
        return [
            operation for window in self.windows.values() for operation in window.rows(self.record.sid, everything=True)
        ]

    def enter(self, member: Member, now: int, wall: int, *, again: bool) -> list[Holds]:
        """A consumer takes part, for the first time, or again. Returns what it does not hold any more of what it names.

        `again`: it took part before.
        """
        former = self.members.get(member.instance)
        self._deadlines.clear(Away(member.instance))
        is_known = member.instance in self.roster or member.sharing.embedded
        if again and not is_known and former is None:
            member.uncertain_upto = self.ceiling.number
        if member.sharing.embedded:
            member.is_entered = True
        else:
            self.roster.enter(member.instance, wall)
            self.roster.prune(wall, (*self.members, member.instance))
            member.is_entered = self.roster.is_durable(member.instance)
            self._writes = True
        if former is not None:
            self._take_over(former, member)
        self.members[member.instance] = member
        lost = self._resume(member, member.sharing.holds, now)
        self._arrived(member.instance)
        self.touch()
        return lost

    def _is_to_come(self, pubend: PubendId, tick: Tick, number: int) -> bool:
        """Whether an event that somebody names was delivered in an earlier life, and is not read again yet."""
        window = self.windows.get(pubend)
        if window is None or number > self.ceiling.before or tick > window.doubted_upto:
            return False
        return tick > max(window.frontier, self._host.streams[pubend].served_upto(self.record.sid))

    @staticmethod
    def _take_over(former: Member, member: Member) -> None:
        for run in list(former.runs):
            run.holder = member
            member.add(run)
        member.alone, member.uncertain_upto = former.alone, max(former.uncertain_upto, member.uncertain_upto)

    def _restore(self, member: Member, runs: Iterable[KeptRun]) -> None:
        """What somebody held when the broker ended in order, it holds still."""
        for kept in runs:
            window = self.windows.get(kept.pubend)
            if window is None:
                continue
            taken = set(kept.taken)
            for offset, tick in enumerate(kept.ticks):
                if (found := window.find(tick)) is not None:
                    run = self._hold(member, window, *found, kept.first + offset, 0)
                    run.taken, run.risky = (run.mask if tick in taken else 0), 0

    def _resume(self, member: Member, holds: Iterable[Holds], now: int) -> list[Holds]:
        """A consumer goes on with these. What it held beside them never reached it, and is as it was before."""
        named: set[int] = set()
        lost: list[tuple[PubendId, Tick, int]] = []
        for each in holds:
            window = self.windows.get(each.pubend)
            for tick, number in zip(each.ticks, each.numbers, strict=True):
                named.add(number)
                if self._is_to_come(each.pubend, tick, number):
                    member.resumes.append((each.pubend, tick, number))
                    self._await(each)
                    continue
                found = None if window is None else window.find(tick)
                if window is None or found is None or self._holds(member, window, *found, number) is not None:
                    continue  # settled, or it holds it
                if self._claim(member, window, *found, number, now) is None:
                    lost.append((each.pubend, tick, number))
        for run in list(member.runs):
            rest = run.mask
            for number in run.numbers(run.mask):
                if number in named:
                    rest &= ~(1 << run.places[number - run.first])
            if rest:
                self._free(run, rest, doubt=False)
        return list(holds_of(lost))

    @staticmethod
    def _holds(member: Member, window: Window, chunk: Chunk, place: int, number: int) -> Run | None:
        run = member.find(number)
        if run is None or run.chunk is not chunk or run.window is not window:
            return None
        return run if run.places[number - run.first] == place and run.mask >> place & 1 else None

    def _claim(self, member: Member, window: Window, chunk: Chunk, place: int, number: int, now: int) -> Run | None:
        """A consumer says that it holds an event under a number of before. Of two that do the higher number has it."""
        bit = 1 << place
        if not chunk.idle & bit:
            other = self._holder_of(window, chunk, place)
            if other is None or other.first + other.places.index(place) >= number or number > self.ceiling.before:
                return None
            self._lose(other, bit)
        elif chunk.unknown & bit:
            if number > self.ceiling.before:
                return None
        elif chunk.ended.get(place) != number:
            return None
        return self._hold(member, window, chunk, place, number, now)

    def _hold(self, member: Member, window: Window, chunk: Chunk, place: int, number: int, now: int) -> Run:
        run = Run(member, window, chunk, number, (place,), (chunk.ticks[place],), 1 << place, since=now)
        run.risky = run.mask & chunk.attempted
        if member.sharing.hold_ms and now:
            run.until = now + member.sharing.hold_ms * _MILLISECOND
            self._deadlines.set_earlier(Timer.HOLDS, run.until)
        window.hold(chunk, run.mask)
        member.add(run)
        return run

    def _holder_of(self, window: Window, chunk: Chunk, place: int) -> Run | None:
        for member in self.members.values():
            for run in member.runs:
                if run.chunk is chunk and run.window is window and run.mask >> place & 1:
                    return run
        return None

    def _lose(self, run: Run, mask: int) -> None:
        """Somebody does not hold this any more, and is told so."""
        member, found = (
            run.holder,
            [(run.window.pubend, run.ticks[number - run.first], number) for number in run.numbers(mask)],
        )
        self._free(run, mask, doubt=True, verdict=False)
        if member.is_here:
            self._host.tell(member.channel.session, HoldLost(self.record.sid, holds_of(found)))

    def lose_link(self, member: Member, now: int) -> None:
        """The link of a consumer is lost. What it holds is kept for it for a while: that is no death (TS27)."""
        member.is_here = member.drains = False
        self._deadlines.set(Away(member.instance), now + member.sharing.resume_ms * _MILLISECOND)
        self._writes |= not any(each.is_here for each in self.members.values())
        self.touch()

    def leave(self, member: Member) -> None:
        """A consumer says goodbye: what it holds was handed out, and is free."""
        for run in list(member.runs):
            run.window.attempt(run.chunk, run.mask & ~run.taken & ~run.risky)
            self._free(run, run.mask, doubt=False)
        self._forget(member)
        self.roster.leave(member.instance)
        self._arrived(member.instance)
        self._writes = True

    def _die(self, member: Member) -> None:
        """A consumer has not come back: it has died with what it held."""
        for run in list(member.runs):
            self._free(run, run.mask, doubt=True, death=True, verdict=False)
        self._forget(member)
        self.roster.mark_gone(member.instance)
        self._arrived(member.instance)
        self._writes = True

    def _forget(self, member: Member) -> None:
        if self.members.get(member.instance) is member:
            del self.members[member.instance]
        member.is_here = False
        self.touch()

    def _arrived(self, instance: str) -> None:
        if self._awaited:
            self._awaited.discard(instance)
            if not self._awaited:
                self._end_quarantine()

    def _end_quarantine(self) -> None:
        """What is in doubt goes to others from now on. Whoever has not come back has died with what was in hand."""
        self.hidden_until = 0
        for instance in sorted(self._awaited):
            self.roster.mark_gone(instance)
            self._writes = True
        self._awaited = set()
        for window in self.windows.values():
            for chunk in list(window):
                if died := chunk.unknown & chunk.attempted & chunk.idle:
                    window.suspect(chunk, died)
                    self._writes = True
        self.touch()

    # ------------------------------------------------------------------------------ what members say

    def take(self, member: Member, request: Take) -> None:
        """Events are about to be handed out: one more attempt for each, and then they are (TS4, TS5)."""
        holds = request.holds
        if self._is_too_much(member, [holds]):
            return
        if member.waiting or self._are_to_come(holds):
            self._await(holds)
            member.waiting.append(request)
            return
        lost: list[int] = []
        window = self.windows.get(holds.pubend)
        for tick, number in zip(holds.ticks, holds.numbers, strict=True):
            found = None if window is None else window.find(tick)
            run = None if window is None or found is None else self._holds(member, window, *found, number)
            if run is None or window is None or found is None:
                lost.append(number)
                continue
            bit = 1 << found[1]
            if not run.taken & bit:
                run.taken |= bit
                window.attempt(found[0], bit)
        first = holds.numbers[0] if holds.numbers else 0
        self._say(member, Taken(self.record.sid, first, tuple(lost)))

    def settle(self, member: Member, request: Settle, now: int) -> None:
        """Takes the verdicts of a consumer, or says again what became of them."""
        sid, number = self.record.sid, request.number
        if self._is_too_much(member, [verdict.holds for verdict in request.verdicts]):
            return
        if member.waiting or any(self._are_to_come(verdict.holds) for verdict in request.verdicts):
            for verdict in request.verdicts:
                self._await(verdict.holds)
            member.waiting.append(request)
            return
        repeated = self.roster.repeated(member.instance, number)
        if repeated is not None:
            for verdict in request.verdicts:
                self._forget_resumed(member, verdict.holds)
            self._say(member, Settled(sid, number, repeated.lost, repeated.uncertain))
            return
        lost: list[tuple[PubendId, Tick, int]] = []
        for verdict in request.verdicts:
            lost += self._judge(member, verdict, now)
        named = holds_of(lost)
        self.roster.note(member.instance, number, named)
        if lost and max(each for _, _, each in lost) <= member.uncertain_upto:
            self._say(member, Settled(sid, number, uncertain=True))
        else:
            self._say(member, Settled(sid, number, named))

    def _await(self, holds: Holds) -> None:
        """What somebody names, and is not read again yet, is read whether there is room or not: it was there before.

        Else it would wait for ever, where what took its room waits behind it.
        """
        window = self.windows.get(holds.pubend)
        if window is not None and self._are_to_come(holds) and holds.ticks[-1] > window.awaited_upto:
            window.awaited_upto = holds.ticks[-1]
            self._recalled[holds.pubend] = None
            self.touch()

    def _is_too_much(self, member: Member, named: Iterable[Holds]) -> bool:
        """Whether somebody names more events than anybody can hold, or goes on although nothing is answered.

        No client does that, and nobody listens: what is lost is kept in the roster.
        """
        assert self.record.shared is not None
        most = BEYOND * self.record.shared.window + RUN_MAX
        return sum(len(each.ticks) for each in named) > most or len(member.waiting) > most

    def _are_to_come(self, holds: Holds) -> bool:
        return bool(holds.ticks) and self._is_to_come(holds.pubend, holds.ticks[-1], min(holds.numbers))

    def _go_on(self, member: Member, now: int) -> None:
        """What somebody named and was not read again yet may be here now."""
        resumes, member.resumes = member.resumes, []
        lost: list[tuple[PubendId, Tick, int]] = []
        for each in resumes:
            pubend, tick, number = each
            if self._is_to_come(*each):
                member.resumes.append(each)
                continue
            found = self.windows[pubend].find(tick)
            if found is not None and self._claim(member, self.windows[pubend], *found, number, now) is None:
                lost.append(each)
        if lost:
            self._host.tell(member.channel.session, HoldLost(self.record.sid, holds_of(lost)))
        waiting, member.waiting = member.waiting, []
        for request in waiting:
            if isinstance(request, Take):
                self.take(member, request)
            else:
                self.settle(member, request, now)

    def _judge(self, member: Member, verdict: Verdict, now: int) -> list[tuple[PubendId, Tick, int]]:
        """Settles what a consumer holds, run by run. Returns what it does not hold."""
        holds = verdict.holds
        window = self.windows.get(holds.pubend)
        ticks, numbers = holds.ticks, holds.numbers
        lost: list[tuple[PubendId, Tick, int]] = []
        at, end = 0, len(numbers)
        while at < end:
            number, tick = numbers[at], ticks[at]
            run = member.find(number)
            if run is None and window is not None and (found := window.find(tick)) is not None:
                run = self._claim(
                    member, window, *found, number, now
                )  # it was not settled before: it never took effect
            if run is None or run.window is not window:
                lost.append((holds.pubend, tick, number))
                at += 1
                continue
            count, mask = run.named(ticks, numbers, at)
            if not count:
                lost.append((holds.pubend, tick, number))
                at += 1
                continue
            held = mask & run.mask
            if held != mask:
                gone = run.numbers(mask & ~held)
                lost += [(holds.pubend, run.ticks[each - run.first], each) for each in gone]
            if held:
                self._apply(run, held, verdict, now)
            at += count
        return lost

    def _apply(self, run: Run, mask: int, verdict: Verdict, now: int) -> None:
        window, chunk = run.window, run.chunk
        if verdict.kind is Kind.ACKNOWLEDGE:
            run.holder.release(run, mask)
            window.settle(chunk, mask)
        elif verdict.kind is Kind.RETRY:
            window.attempt(chunk, mask & ~run.taken & ~run.risky)
            run.holder.release(run, mask)
            window.delay(chunk, mask)
            due = now + verdict.delay_ms * _MILLISECOND
            self._deadlines.set(Delayed(window, chunk, mask), due + -due % GATHERED)
        else:
            run.holder.pauses = True
            self._free(run, mask, doubt=False)

    def _forget_resumed(self, member: Member, holds: Holds) -> None:
        """A verdict took effect before: what its consumer has resumed since, as if it had not, it does not hold."""
        for number in holds.numbers:
            run = member.find(number)
            if run is not None and run.window.pubend == holds.pubend:
                bit = 1 << run.places[number - run.first]
                if run.mask & bit:
                    self._free(run, bit, doubt=False)

    def extend(self, member: Member, holds: Holds, now: int) -> None:
        """A consumer still works on these: the time of their holds begins anew."""
        if not member.sharing.hold_ms:
            return
        for number in holds.numbers:
            run = member.find(number)
            if run is not None and run.window.pubend == holds.pubend:
                run.until = now + member.sharing.hold_ms * _MILLISECOND
                self._deadlines.set_earlier(Timer.HOLDS, run.until)

    def _free(self, run: Run, mask: int, *, doubt: bool, death: bool = False, verdict: bool = True) -> None:
        run.holder.release(run, mask)
        run.window.free(run, mask, doubt=doubt, death=death, verdict=verdict)
        self.touch()

    def _say(self, member: Member, message: ServerMessage) -> None:
        """Says this when everything up to now is durable."""
        self._answers.told.append((member.channel.session, message))
        self._writes = True
        self.touch()

    def _changed(self, _window: Window) -> None:
        """Events are settled because they have expired: nobody waits for that to be durable."""
        self._writes = True

    # ------------------------------------------------------------------------------------------ time

    @property
    def deadline(self) -> int | None:
        """When something has to happen by itself."""
        return self._deadlines.next()

    def on_time(self, now: int) -> None:
        """Does what is due."""
        for due in self._deadlines.take_expired(now):
            if isinstance(due, Away):
                member = self.members.get(due.instance)
                if member is not None and not member.is_here:
                    self._die(member)
            elif isinstance(due, Delayed):
                due.window.end_delay(due.chunk, due.mask)
            elif due is Timer.HOLDS:
                self._end_holds(now)
            elif self.hidden_until:
                self._end_quarantine()
            self.touch()

    def _end_holds(self, now: int) -> None:
        """Ends the holds whose time is over: the events are free, and no death."""
        for run in [run for member in self.members.values() for run in member.runs if run.until]:
            if run.until <= now:
                self._lose(run, run.mask)
            else:
                self._deadlines.set_earlier(Timer.HOLDS, max(run.until, now + HOLDS_AFTER))

    # -------------------------------------------------------------------------------- the end of a turn

    def finish_turn(self, now: int, wall: int) -> None:
        """Gives out what is free, lets readers go on for which there is room again, and writes what has changed."""
        sid = self.record.sid
        for pubend, window in self.windows.items():
            stream = self._host.streams[pubend]
            if window.absent and sid in self._host.consumers:
                window.give_up(min(stream.served_upto(sid), window.frontier))
        for member in list(self.members.values()):
            if member.is_here and (member.resumes or member.waiting):
                self._go_on(member, now)
        for run in self._dispatch.hand_out(now, wall, hidden=self.hidden_until > 0):
            run.holder.channel.counts.live += run.count
            if run.until:
                self._deadlines.set_earlier(Timer.HOLDS, run.until)
        recalled, self._recalled = self._recalled, {}
        for pubend in {**recalled, **dict.fromkeys(self.room.take_freed())}:
            self._host.streams[pubend].scheduler.step(sid, now, wall)
        if self._writes or self.ceiling.is_wanted:
            self._write(wall)
        if sid in self._host.consumers:
            self.pass_silence()

    def pass_silence(self) -> None:
        """Moves the position over what is settled durably, and over silence."""
        sid = self.record.sid
        for pubend in self.windows:
            stream = self._host.streams[pubend]
            position = stream.positions[sid]
            position.pass_over(self.done_upto(pubend))
            stream.touch(sid, position)

    def _write(self, wall: int) -> None:
        sid, host = self.record.sid, self._host
        answers, self._answers = self._answers, Answers()
        operations: list[Operation] = []
        is_open = any(member.is_here for member in self.members.values())
        for pubend, window in self.windows.items():
            operations += window.rows(sid, everything=not is_open)
            answers.floors[pubend] = window.floor if window.written >= window.floor else 0
        rows, answers.entered = self.roster.rows(sid)
        operations += rows
        frontiers = [
            (pubend, window.frontier, host.streams[pubend].meta.grain) for pubend, window in self.windows.items()
        ]
        raised = is_open and self.ceiling.raise_ahead(frontiers)
        if self.ceiling.ask_open(is_open) or raised or not is_open:
            kept = {} if is_open else self._kept_now()
            unread = [window for window in self.windows.values() if window.frontier < window.doubted_upto]
            doubted = {window.pubend: window.doubted_upto for window in unread}
            row = SharedRow(self.ceiling.asked, dict(self.ceiling.asked_sent), is_open, kept, doubted)
            operations.append(shared_row(sid, row))
        asked, sent, changes = self.ceiling.asked, dict(self.ceiling.asked_sent), self.ceiling.changes
        self._writes = self.ceiling.is_wanted = False
        if not operations and not answers.told and not any(answers.floors.values()):
            return

        def durable(_now: int, _wall: int) -> None:
            self.ceiling.written(asked, sent, changes)
            self._durable(answers)

        host.outbox.write(operations, durable)

    def _kept_now(self) -> dict[str, tuple[int, tuple[KeptRun, ...]]]:
        """Returns what is kept for instances whose link is lost."""
        kept: dict[str, tuple[int, tuple[KeptRun, ...]]] = {}
        for member in self.members.values():
            runs: list[KeptRun] = []
            for run in member.runs:
                numbers = run.numbers(run.mask)
                for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
                    part = [number for _, number in group]
                    ticks = tuple(run.ticks[number - run.first] for number in part)
                    taken = tuple(
                        run.ticks[number - run.first]
                        for number in part
                        if run.taken >> run.places[number - run.first] & 1
                    )
                    runs.append(KeptRun(run.window.pubend, part[0], ticks, taken))
            kept[member.instance] = member.sharing.resume_ms, tuple(runs)
        return kept

    def _durable(self, answers: Answers) -> None:
        """A write is durable: says what waited for it, and lets the position follow the floor."""
        sid = self.record.sid
        self.roster.written(answers.entered)
        for member in self.members.values():
            if not member.is_entered:
                member.is_entered = self.roster.is_durable(member.instance)
        for session, message in answers.told:
            self._host.tell(session, message)
        for pubend, floor in answers.floors.items():
            stream = self._host.streams[pubend]
            if sid in stream.positions and floor > stream.positions[sid].acked:
                stream.acknowledge(sid, floor, floor)
                self._host.unsaved = True
        self.touch()

    # ----------------------------------------------------------------------------------- how it stands

    def remove(self) -> list[Operation]:
        """Returns the removal of everything that is durable of it. Whoever takes part is told."""
        sid = self.record.sid
        for member in self.members.values():
            if member.is_here:
                gone = Detached(sid, Code.UNSUBSCRIBED, "the subscription was removed")
                self._host.tell(member.channel.session, gone)
        self._touched.pop(sid, None)
        return removal(sid, self.windows.values(), self.roster)

    @property
    def unsettled(self) -> int:
        """How many events of the windows are not settled."""
        return sum(window.count for window in self.windows.values())

    @property
    def held(self) -> int:
        """How many events somebody holds."""
        return sum(window.held for window in self.windows.values())


def removal(sid: int, windows: Iterable[Window], roster: Roster) -> list[Operation]:
    """Returns the removal of all rows of a subscription."""
    operations: list[Operation] = [delete_shared(sid), *roster.delete(sid)]
    for window in windows:
        operations += window.delete(sid)
    return operations
