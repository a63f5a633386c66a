"""What a pubend has logged, and which of it each consumer is owed: the accounts that the model keeps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.stream.intervals import IntervalSet
from gapless.core.wire.messages import StartAt

if TYPE_CHECKING:
    from gapless.core.client import SubscribeOptions
    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.world.consumer import Consumer, Row
    from gapless_sim.world.producer import Publication


@dataclass(slots=True, eq=False)
class Logged:
    """An event in the log of a pubend."""

    pubend: PubendId
    tick: Tick
    publication: Publication


@dataclass(slots=True, eq=False)
class History:
    """H(p): everything that a pubend ever logged, as its PHB said it."""

    pubend: PubendId
    broker: str
    ticks: list[Tick] = field(default_factory=list)
    """In order."""
    events: dict[Tick, Logged] = field(default_factory=dict)
    lost: Tick = 0
    """The highest `lost` that was said, or that a chop was written for."""
    ends: list[Tick] = field(default_factory=list)
    """The last tick of each record that was ever written to its log, and in `sums` the bytes up to there."""
    sums: list[int] = field(default_factory=list)
    gone_at: int = -1
    """When its disk was replaced: nothing more is to be expected of it. -1: it was not."""
    damaged: bool = False
    """An old copy of its disk was put back: what is true of it now, nobody knows."""
    forked: bool = False
    """Two processes have logged under its name: each knows only its own log."""
    beside: dict[Tick, Logged] = field(default_factory=dict)
    """What the second process has logged at a tick at which the first one has logged something else."""
    unreadable: IntervalSet = field(default_factory=IntervalSet)
    """Where its log cannot be read, and nobody has given that up: nothing may be said of it."""
    unreadable_in_copy: IntervalSet = field(default_factory=IntervalSet)
    """The same of the volume that a second process has: a copy from when that began, which nobody repairs."""
    given_up: IntervalSet = field(default_factory=IntervalSet)
    """Where an operator has given up what could not be read: that is lost."""

    @property
    def has_hole(self) -> bool:
        """Whether something of it cannot be read, and is not released: who comes to it waits for the operator."""
        return any(hi > self.lost for _, hi in self.unreadable.ranges)

    @property
    def gone(self) -> bool:
        """Whether its disk was replaced."""
        return self.gone_at >= 0

    @property
    def sound(self) -> bool:
        """Whether everything that was promised of it still holds."""
        return not self.gone and not self.damaged and not self.forked

    @property
    def answered_for(self) -> bool:
        """Whether whoever is owed an event of it gets that, or is told that it may be lost: with its disk, too."""
        return not self.damaged

    def between(self, low: Tick, high: Tick) -> list[Tick]:
        """The ticks of the events in (low, high]."""
        return self.ticks[bisect_right(self.ticks, low) : bisect_right(self.ticks, high)]

    def has_between(self, low: Tick, high: Tick) -> bool:
        """Whether there is an event in (low, high]."""
        return bisect_right(self.ticks, low) < bisect_right(self.ticks, high)

    def append(self, end: Tick, size: int) -> None:
        """A record is written; a crash may take it back."""
        self.ends.append(end)
        self.sums.append(size + (self.sums[-1] if self.sums else 0))

    def bytes_above(self, tick: Tick) -> int:
        """How many bytes can lie above a tick in its log."""
        place = bisect_right(self.ends, tick)
        return self.sums[-1] - (self.sums[place - 1] if place else 0) if self.sums else 0

    @property
    def newest(self) -> Tick:
        """The tick of its last event, or 0."""
        return self.ticks[-1] if self.ticks else 0


@dataclass(slots=True, eq=False)
class Share:
    """A subscription on a pubend: what of it matches, and where the application stands."""

    history: History
    base: Tick = 0
    """Matching was only looked at above this."""
    ticks: list[Tick] = field(default_factory=list)
    """Of the events above `base` that match, in order."""
    start: Tick | None = None
    """From where it is owed; None where the pubend was found later, until its first knowledge arrives."""
    acked: Tick = 0
    """Up to where the application has ever acknowledged."""
    opening_gap: Tick = -1
    """The end of the gap that it began with, if it did."""
    lost_at_start: Tick = 0
    """Up to where the pubend was lost when the subscription was created."""
    kept_from: Tick = 0
    """With another filter than before: up to here nothing need be kept for it, although its token may go back there."""

    def between(self, lo: Tick, hi: Tick) -> list[Tick]:
        """The matching ticks of (lo, hi]."""
        return self.ticks[bisect_right(self.ticks, lo) : bisect_right(self.ticks, hi)]

    def first_between(self, lo: Tick, hi: Tick) -> Tick | None:
        """The first matching tick of (lo, hi], or None."""
        place = bisect_right(self.ticks, lo)
        return self.ticks[place] if place < len(self.ticks) and self.ticks[place] <= hi else None

    @property
    def newest(self) -> Tick:
        """The last matching tick, or 0."""
        return self.ticks[-1] if self.ticks else 0


@dataclass(slots=True, eq=False)
class Account:
    """What is owed to a row of an application's database."""

    row: Row
    broker: str
    """Its home."""
    shb: ShbId = ""
    sid: int = 0
    """The id by which its home knows it."""
    shares: dict[PubendId, Share] = field(default_factory=dict)
    consumers: list[Consumer] = field(default_factory=list)
    asked_at: int = 0
    attached_at: int = -1
    """When its application first had it; -1: it never had."""
    begun_with_token: bool = False
    """It was created at a token, maybe of a subscription that a lost disk had, and not where its row says."""
    first_token: Mapping[PubendId, Tick] = field(default_factory=dict)
    """Where the token stood that it was first created at."""
    former: Account | None = None
    """What it was before it got another filter, and kept its position."""
    removed: bool = False
    """Somebody has asked for it to be removed, or for another filter: nothing more is owed."""
    unsubscribed: bool = False
    """It is removed."""
    damaged: bool = False
    """The disk of its home was replaced or put back."""
    lapsed: bool = False
    """It has expired: nothing is kept for it until it is attached again."""
    resumed: bool = False
    """It was attached again after that."""
    skipped: Logged | None = None
    """An event that it needed, and behind which it was resumed."""
    remade: bool = False
    """Its home knew nothing of it any more when it was attached last."""
    acknowledged: dict[Consumer, dict[PubendId, Tick]] = field(default_factory=dict)
    """What each of its consumers has acknowledged itself."""
    excused: dict[Consumer, dict[PubendId, IntervalSet]] = field(default_factory=dict)
    """Where its consumers, or those before it, rightly got gaps."""

    @property
    def exists(self) -> bool:
        """Whether a broker has to remember it."""
        return self.attached_at >= 0 and not self.removed and not self.damaged and not self.lapsed

    @property
    def durable(self) -> bool:
        """Whether it outlives a session."""
        return self.row.name is not None

    @property
    def may_begin_lost(self) -> bool:
        """Whether it, or what it was before, may begin with what is lost: at a token, or resumed after a lapse."""
        own = self.row.start_token is not None or self.begun_with_token
        return own or (self.former is not None and (self.former.resumed or self.former.may_begin_lost))

    def begin(self, sid: int, wanted: SubscribeOptions, now: int) -> None:
        """A subscription is created for it, for the first time or again, and its application has it."""
        self.begun_with_token = wanted.start is StartAt.TOKEN
        if not self.sid and self.begun_with_token:
            self.first_token = wanted.positions or {}
        self.sid = sid
        self.attached_at = now
        self.shares.clear()

    def kept_from(self, history: History) -> Tick:
        """Up to where a pubend keeps nothing for the new filter: no further than to what it was not done with before.

        How far it was done with what was silent for the former filter, only its broker knows.
        """
        share = None if self.former is None else self.former.shares.get(history.pubend)
        if share is None or share.start is None:
            return 0
        needed = share.first_between(max(share.acked, share.start, share.kept_from), history.newest)
        return history.newest if needed is None else needed - 1

    def match_from(self, share: Share, base: Tick) -> None:
        """Looks anew at everything above a tick."""
        history, matches = share.history, self.row.matches
        share.base = base
        above = history.ticks[bisect_right(history.ticks, base) :]
        share.ticks = [tick for tick in above if matches(history.events[tick])]

    def note(self, event: Logged) -> None:
        """An event has come to light: it may match."""
        share = self.shares.get(event.pubend)
        if share is None or event.tick <= share.base:
            return
        if self.row.matches(event):
            add_tick(share.ticks, event.tick)

    def excuse(self, consumer: Consumer, pubend: PubendId, spans: Iterable[tuple[Tick, Tick]]) -> None:
        """A consumer knows that events may be lost there."""
        excused = self.excused.setdefault(consumer, {}).setdefault(pubend, IntervalSet())
        for lo, hi in spans:
            excused.add(lo, hi)

    def excused_upto(self, pubend: PubendId, upto: Tick) -> list[tuple[Tick, Tick]]:
        """Where any of its consumers knows, up to a tick, that events may be lost."""
        return [
            span for excused in self.excused.values() if pubend in excused for span in excused[pubend].within(0, upto)
        ]

    def is_excused(self, consumer: Consumer, pubend: PubendId, tick: Tick) -> bool:
        """Whether a consumer knows that an event may be lost at a tick."""
        return tick in self.excused.get(consumer, {}).get(pubend, ())

    def __str__(self) -> str:
        return f"row {self.row.number} ({self.row.client_id}:{self.row.name})"


def add_tick(ticks: list[Tick], tick: Tick) -> None:
    """Puts a tick in its place, once."""
    if not ticks or tick > ticks[-1]:
        ticks.append(tick)
    elif ticks[bisect_left(ticks, tick) : bisect_left(ticks, tick) + 1] != [tick]:
        insort(ticks, tick)
