"""Knowledge of each pubend: pushed toward those who want it, cached, asked for, and answered.

A relay knows no shape of a network. It knows directions by name: below are those in which SHBs may be, and the router
says which these are for each pubend (`RelayedPubend.outward`). What else it needs is the protocol `Directions`.

Silence alone waits a while for an event to travel with. How long it may still wait travels with it, as *slack*: each
broker takes off it what it has waited, so a tick of silence waits `SILENCE_AFTER` in all, and not at every hop (T63).

What is said of its own accord is said by one function, `_said`, from what is known at that moment: all events of an
interval that match what is wanted at that moment, under the stamp that holds for all of it. A push is a best effort
on one way. Everybody who misses something asks; a want is remembered by who asked, and its answer goes to that very
broker.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol

from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import BrokerId, Know, PubendMeta, Want
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.curiosity import CuriosityTimes, RecentWants
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Kind, Knowledge, KnowledgeConflict, KnowledgeStream
from gapless.core.stream.stamps import RAW, Stamp, covers, join, meet, restrict
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless_routing.common.askers import Askers
from gapless_routing.common.interest import Decision
from gapless_routing.common.link_table import LinkTable
from gapless_routing.common.notices import KnownPubend
from gapless_routing.common.router_state import CORE, RouterState

SILENCE_AFTER: Final = 1 * SECOND
"""How long silence waits for an event to travel with, at all brokers together (SIL)."""
SILENCE_BYTES: Final = 4 << 20
"""So much memory of events may lie in silence that waits: what the cache has forgotten by then would be asked for."""
UPKEEP_EVERY: Final = 1 * SECOND
REPLIES_MAX: Final = 64
"""So many answers to one broker go at once, however small they are …"""
REPLY_BYTES_MAX: Final = 1 << 20
"""… and so much in one turn of the node; what is left follows when there is room."""
MORE_AFTER: Final = 50 * MILLISECOND
"""How soon what was too much for one answer goes on, if there is room."""
EVENT_BYTES: Final = 200
"""What an event takes in memory beside its bytes, about: small ones take more than they hold."""
BATCH_BYTES: Final = 400
"""What a batch of events takes beside them, about: where events come one by one, each is a batch."""
KEPT_BYTES: Final = 256 << 10
"""So much of what comes for a broker is kept while there is no room on the link to it."""
RUNS_MAX: Final = 4096
"""So many runs of silence are kept of a pubend."""
TIMES: Final = CuriosityTimes(forget=400 * MILLISECOND)
ALL_FULL: Final = ""
"""What `Directions.push` returns if nothing can be pushed there because every link is full."""


class Directions(Protocol):
    """What a relay needs of its router."""

    @property
    def shb(self) -> ShbId:
        """The SHB of this broker, once it has spoken; before, ""."""

    def of(self, broker: BrokerId) -> str:
        """Returns in which direction a broker is."""

    def live(self, direction: str) -> Collection[BrokerId]:
        """Returns the brokers next in a direction, to which there is a link."""

    def shbs(self, direction: str) -> Collection[ShbId]:
        """Returns the SHBs in a direction, as far as they were heard of."""

    def versions(self, directions: Iterable[str]) -> Mapping[ShbId, int]:
        """Returns the version of each SHB's interest in these directions."""

    def decide(self, direction: str, stamp: Stamp, pubend: RelayedPubend) -> Decision:
        """Returns what to do with knowledge of a pubend under a stamp in a direction."""

    def matches(self, direction: str, pubend: PubendId, events: EventBatch) -> int:
        """Returns which of these events anyone in a direction wants: bit i for event i."""

    def wants_nothing(self, direction: str) -> bool:
        """Whether it is known that there is no SHB in a direction."""

    def widened(self, direction: str) -> int:
        """Returns another number whenever more may be wanted in a direction than before."""

    def push(self, direction: str, knowledge: Knowledge, slack: int) -> BrokerId | None:
        """Sends first-time knowledge to one broker in a direction; its silence may wait for `slack` ns more.

        Returns to whom; `ALL_FULL`; or None if there is no way at present: then it is dropped, and whoever needs it
        asks.
        """

    def toward_home(self, pubend: RelayedPubend, want: Want, asker: BrokerId) -> None:
        """Asks the pubend's broker, or the next one on the way there, for what is not known here."""

    def say_behind(self, pubend: RelayedPubend, broker: BrokerId, stable: Tick) -> None:
        """Tells a broker that nothing up to `stable` is pushed to it: so it asks, at its own pace."""

    def make_room(self, pubend: RelayedPubend, upto: Tick) -> None:
        """There is no room for what is cached up to a tick."""


@dataclass(slots=True)
class Outward:
    """What was said of one pubend in one direction."""

    sent: Tick = 0
    """The highest tick that was said of its own accord: how far back the next push need not reach."""
    unwanted_bytes: int = 0
    """Memory of events above that, which nobody there wanted when they came."""
    silence_due: int | None = None
    """When silence that waits has to be said; None: none waits. While all links are full it is late, and noted all the
    same: it waits no longer because they were full."""
    told: Tick = 0
    """The highest `stable` that was said."""
    behind: bool = False
    """All links are full: nothing is pushed, and those behind ask at their own pace."""
    left_out: Tick = 0
    """Up to here it was said that nothing is pushed."""
    unwanted: list[EventBatch] = field(default_factory=list)
    """Batches above `sent` of which nobody there wanted anything: they need not be matched again …"""
    unwanted_since: int = 0
    """… unless more has come to be wanted there since: see `Directions.widened`."""

    def note_waiting(self, due: int) -> None:
        """Silence that came just now has to be said by then, as soon as there is room for it."""
        if self.silence_due is None or due < self.silence_due:
            self.silence_due = due

    def pass_over(self, data: EventBatch, widened: int) -> None:
        """Nobody in this direction wants anything of a batch, as far as it is known."""
        if self.unwanted_since != widened:
            self.unwanted.clear()
            self.unwanted_since = widened
        if data:
            self.unwanted.append(data)

    def passed_over(self, widened: int) -> Mapping[Tick, EventBatch]:
        """Returns the batches of which that is true still, by their first ticks."""
        return {batch.ticks[0]: batch for batch in self.unwanted} if self.unwanted_since == widened else {}


@dataclass(slots=True, kw_only=True)
class RelayedPubend(KnownPubend):
    """One pubend, with what is known of its ticks."""

    cache: KnowledgeStream
    fresh: list[EventBatch] = field(default_factory=list)
    """The events that were cached since somebody looked how many there are."""
    fresh_bytes: int = 0
    """Memory of these."""
    outward: dict[str, Outward] = field(default_factory=dict)
    """The directions in which it is said."""
    askers: Askers = field(default_factory=Askers)
    asked: RecentWants = field(default_factory=lambda: RecentWants(TIMES))
    taken_back: int = 0
    """How often something that was told of it may have become untrue."""

    @property
    def is_cached(self) -> bool:
        """Whether others may ask here for it. If not, every answer is for the SHB here."""
        return bool(self.outward)

    @property
    def let_go_upto(self) -> Tick:
        """Up to here events may have been let go of: one of them that comes again is not pushed again."""
        return 0

    def came(self, events: EventBatch) -> None:
        """Events were cached that were not there."""
        self.fresh.append(events)

    def stable_for(self, direction: str, *, is_full: bool) -> Tick:
        """Returns how far a notice may say that the pubend is decided.

        No farther than it was said in that direction, or everybody there would ask for the rest at once. What waits on
        a full link comes yet.
        """
        outward = self.outward.get(direction)
        if outward is None:
            return self.meta.stable
        if not outward.behind and not is_full:
            outward.told = max(outward.told, min(self.meta.stable, outward.sent))
        return outward.told

    def forget_changed(self, meta: PubendMeta) -> None:
        """Forgets what the pubend takes back, when `meta` is what is known of it from now on.

        What a log that numbers its records had before it was cut is no answer any more. If another process of the
        pubend's broker may have logged something, what was told as silence is asked for again; what was told of events
        stays, because they were published, and nobody else has them.
        """
        self.taken_back += 1
        if not meta.timed and meta.voids != self.meta.voids:
            for lo, hi in meta.voids:
                self.cache.forget(lo, hi)
        for fork in meta.forks:
            if fork not in self.meta.forks:
                self.cache.forget_silence(fork[0], self.cache.known_upto)


@dataclass(slots=True)
class Kept:
    """What came for a broker while its link was full, and may not be cached any more."""

    answers: list[tuple[PubendId, int, Knowledge]] = field(default_factory=list)
    """Each with what `taken_back` of its pubend was."""
    size: int = 0

    def has_room(self, knowledge: Knowledge) -> bool:
        """One is kept in any case, or a cache smaller than what is asked for would lose it again and again."""
        return not self.answers or self.size + knowledge.data.size <= KEPT_BYTES


class Relay:
    """The knowledge of all pubends."""

    def __init__(
        self,
        state: RouterState,
        links: LinkTable,
        directions: Directions,
        pubends: Mapping[PubendId, RelayedPubend],
        cache_bytes: int,
    ) -> None:
        """`pubends`: the router's own table. `cache_bytes`: so much memory is for the events of all of them."""
        self._state = state
        self._links = links
        self._directions = directions
        self._pubends = pubends
        self._cache_bytes = cache_bytes
        self._unanswered: dict[BrokerId, None] = {}
        """Who asked for something that is known here, and for which there was no room."""
        self._kept: dict[BrokerId, Kept] = {}
        self._looked_at: tuple[str, EventBatch, int] | None = None
        """In a direction, what of a batch is wanted there: of what is at hand that is asked twice."""

    def start(self) -> None:
        """Begins what is to be done again and again."""
        self._state.timers.set(("upkeep",), self._state.now + UPKEEP_EVERY)

    def cached_bytes(self) -> int:
        """Returns the memory that all cached events take."""
        return sum(_memory(pubend.cache) for pubend in self._pubends.values())

    # -------------------------------------------------------------------------------------- knowledge

    def say(self, pubend: RelayedPubend, knowledge: Knowledge) -> None:
        """A pubend of this broker says something. Its silence alone waits nowhere; that of a group never waits."""
        self.take(pubend, knowledge, None, SILENCE_AFTER if knowledge.data and pubend.meta.group is None else 0)

    def take(self, pubend: RelayedPubend, knowledge: Knowledge, origin: str | None, slack: int) -> None:
        """Something is said of a pubend: it is cached, pushed on, and answers those who wait for it.

        `origin`: the direction that it comes from; None: the pubend is here. `slack`: how many nanoseconds silence in
        it may wait here, and further on.
        """
        if knowledge.reply:
            pubend.asked.answered(knowledge.lo, knowledge.hi, knowledge.stamp, self._state.now)
        else:
            pubend.asked.known(knowledge.lo, knowledge.hi, knowledge.stamp)
        new = self._cache(pubend, knowledge)
        pushed: dict[BrokerId, list[Knowledge]] = {}
        if knowledge.reply and not pubend.is_cached:
            self._reply(pubend, CORE, [(knowledge, knowledge.stamp)])  # nobody else can have asked
        if not knowledge.reply:
            pushed[CORE] = self._deliver(pubend, knowledge, {})
            several = len(pubend.outward) > 1 and knowledge.data.columns
            with knowledge.data.matched_by_several() if several else nullcontext():
                for direction, outward in pubend.outward.items():
                    if direction != origin:
                        self._first(pubend, direction, outward, knowledge, slack, new, pushed)
            self._looked_at = None
        if pubend.askers:
            self._serve(pubend, knowledge, pushed)

    def _cache(self, pubend: RelayedPubend, knowledge: Knowledge) -> IntervalSet:
        """Caches it, where somebody below may ask for it. Returns the ticks of which nothing was known.

        Silence that is only known under a higher stamp now is not new: who needs that asks, and the events in it would
        be sent once more for nothing, whenever another broker above begins to send.
        """
        if not pubend.is_cached:
            return IntervalSet()
        pubend.fresh_bytes += _weight(knowledge.data)
        behind_all = knowledge.lo >= pubend.cache.known_upto
        whole = ((knowledge.lo, knowledge.hi),)
        new = IntervalSet(whole if behind_all else pubend.cache.unknown(knowledge.lo, knowledge.hi, {}))
        try:
            delta = pubend.cache.accumulate(knowledge)
        except KnowledgeConflict as conflict:
            self._state.effects.append(Alarm(AlarmCode.BROKERS_CONTRADICT, str(conflict), knowledge.pubend))
            pubend.cache = KnowledgeStream(knowledge.pubend)
            pubend.cache.accumulate(knowledge)
            return IntervalSet(whole)
        if delta.events:
            pubend.came(delta.events)
        if new.ranges != whole:
            for tick in delta.events.ticks:
                new.add(tick - 1, tick)
        new.remove(0, pubend.let_go_upto)  # whoever misses something there asks (TD12)
        return new

    def _deliver(self, pubend: RelayedPubend, knowledge: Knowledge, need: Stamp) -> list[Knowledge]:
        """To the SHB here, unfiltered and at once, but not before it knows where it counts (C5). Returns that.

        `need`: what it answers; the versions in that stay in the stamp.
        """
        if pubend.seen is None or pubend.seen.enrolled_at is None:
            return []
        own = replace(knowledge, stamp=restrict(knowledge.stamp, {self._directions.shb, *(need or ())}))
        self._state.effects.append(Know(own))
        return [own]

    def _first(
        self,
        pubend: RelayedPubend,
        direction: str,
        outward: Outward,
        knowledge: Knowledge,
        slack: int,
        new: IntervalSet,
        pushed: dict[BrokerId, list[Knowledge]],
    ) -> None:
        """Says in one direction what is new, as far as somebody there wants it; silence alone waits a while."""
        if self._directions.wants_nothing(direction):
            outward.sent = max(outward.sent, knowledge.hi)  # else the first SHB there would be sent all that is cached
            return
        if outward.behind:
            outward.note_waiting(self._state.now + slack)
            return
        ranges = new.ranges
        if ranges != ((knowledge.lo, knowledge.hi),):
            # What lies above the mark was new once, when nobody here wanted it, or nobody could be reached.
            ranges = (new | IntervalSet([(max(knowledge.lo, outward.sent), knowledge.hi)])).ranges
        for start, hi in ranges:
            lo = max(start, pubend.cache.lost)
            if outward.silence_due is not None:
                slack = min(slack, outward.silence_due - self._state.now)
            elif outward.sent < lo and self._stretch_below(pubend, direction, outward, knowledge.stamp, lo) < lo:
                slack = 0  # what was known before, and goes with it, has waited elsewhere, nobody knows how long
            may_wait = slack > 0 and hi > outward.sent
            if may_wait and lo < hi and self._is_unwanted(pubend, direction, outward, knowledge.stamp, start, hi):
                self._wait(pubend, direction, outward, slack)
                continue
            if hi > outward.sent:
                lo = min(lo, self._stretch_below(pubend, direction, outward, knowledge.stamp, lo))
            if lo >= hi:
                continue
            said = self._said(pubend, direction, lo, hi)
            # Below the mark silence alone is not said: who misses it has asked.
            if said is not None and (said.data or hi > outward.sent or not knowledge.data):
                self._push(pubend, direction, outward, said, slack, pushed)

    def _is_unwanted(
        self, pubend: RelayedPubend, direction: str, outward: Outward, stamp: Stamp, lo: Tick, hi: Tick
    ) -> bool:
        """Whether nobody in a direction wants an event of what is new in an interval, and there is room to let it wait.

        Only that is looked at here, and all that waits when it is said: else each batch would cost as much as all that
        came before it.
        """
        if self._directions.decide(direction, stamp, pubend).flood:
            return False
        data = pubend.cache.take(lo, hi)
        wanted = self._directions.matches(direction, pubend.meta.pubend, data)
        if wanted:
            self._looked_at = direction, data, wanted
            return False
        outward.pass_over(data, self._directions.widened(direction))
        outward.unwanted_bytes += _weight(data)
        return outward.unwanted_bytes <= SILENCE_BYTES

    def _wait(self, pubend: RelayedPubend, direction: str, outward: Outward, slack: int) -> None:
        """Silence is said in a direction after so long, if nothing is before."""
        due = self._state.now + slack
        if outward.silence_due != due:
            outward.silence_due = due
            self._state.timers.set(("silence", pubend.meta.pubend, direction), due)

    def _stretch_below(self, pubend: RelayedPubend, direction: str, outward: Outward, stamp: Stamp, top: Tick) -> Tick:
        """How far down what was not said in a direction can be said together with what comes under a stamp."""
        return self.stretch(pubend, top, outward.sent, restrict(stamp, self._directions.shbs(direction)))

    def stretch(self, pubend: RelayedPubend, top: Tick, floor: Tick, need: Stamp) -> Tick:
        """How far down everything is known, from `top` to `floor` at most: events, or silence that covers `need`."""
        low = top
        if low <= floor:
            return low
        for run in reversed(list(pubend.cache.runs(floor, top))):
            if run.hi != low or run.kind is not Kind.SILENCE or not covers(run.stamp, need):
                break
            low = run.lo
        return low

    def _said(self, pubend: RelayedPubend, direction: str, lo: Tick, hi: Tick) -> Knowledge | None:
        """What is to be said of an interval in a direction, by what is known and wanted now; None: not all is known."""
        name, stamp = pubend.meta.pubend, RAW
        for run in pubend.cache.runs(lo, hi):
            if run.kind is not Kind.SILENCE:
                return None
            stamp = meet(stamp, run.stamp)
        decision = self._directions.decide(direction, stamp, pubend)
        if decision.flood:
            data = pubend.cache.take(lo, hi)
        else:
            passed_over = pubend.outward[direction].passed_over(self._directions.widened(direction))
            data = pubend.cache.take(lo, hi, passed_over)
            data = data.select(self._wanted(direction, name, data)) if data else data
        lost = pubend.cache.lost if pubend.cache.lost <= lo else 0
        return Knowledge(name, lo, hi, data, lost, decision.stamp)

    def _wanted(self, direction: str, name: PubendId, data: EventBatch) -> int:
        """Which of these events anyone in a direction wants."""
        at = self._looked_at
        if at is not None and at[0] == direction and at[1] is data:
            return at[2]
        return self._directions.matches(direction, name, data)

    def _push(
        self,
        pubend: RelayedPubend,
        direction: str,
        outward: Outward,
        said: Knowledge,
        slack: int,
        pushed: dict[BrokerId, list[Knowledge]],
    ) -> None:
        """Pushes something. Silence alone has waited long enough, and waits nowhere from here on."""
        broker = self._directions.push(direction, said, max(0, slack) if said.data else 0)
        if broker == ALL_FULL:
            outward.behind = True
            outward.note_waiting(self._state.now + slack)
            at = self._state.now + SILENCE_AFTER
            self._state.timers.set(("behind", pubend.meta.pubend, direction), at)
            return
        if said.hi >= outward.sent:
            outward.sent, outward.unwanted_bytes = said.hi, 0
            outward.unwanted.clear()
            if outward.silence_due is not None and said.hi >= pubend.cache.known_upto:  # no silence waits any more
                outward.silence_due = None
                self._state.timers.cancel(("silence", pubend.meta.pubend, direction))
        if broker is not None:
            pushed.setdefault(broker, []).append(said)

    def tell_shb(self, pubend: RelayedPubend) -> None:
        """Tells the SHB here what is cached: as if it had come just now."""
        known, _ = pubend.cache.answer(((pubend.cache.base, pubend.cache.known_upto),), {})
        for knowledge in known:
            self._deliver(pubend, replace(knowledge, reply=False), {})

    def copy(self, pubend: RelayedPubend, direction: str, ranges: Ranges, most: int) -> tuple[Ranges, int]:
        """Says in a direction, which is a broker, what is known of some ranges, as far as there is room now.

        Returns what is left of them, and how often something was said: `most` times. Of holes nothing can be said: they
        are not left.
        """
        left, count = IntervalSet(ranges), 0
        for lo, hi in ranges:
            for start, stop in _known(pubend.cache, lo, hi):
                said = self._said(pubend, direction, start, stop)
                at = start
                while said is not None and at < stop:
                    room = REPLY_BYTES_MAX - self._links.said_now(direction)
                    if room <= 0 or count >= most:
                        return left.ranges, count
                    fitting = _fitting(said, room)
                    if self._directions.push(direction, fitting, 0) != direction:
                        return left.ranges, count
                    count += 1
                    at = fitting.hi
                    left.remove(lo, at)
                    said = replace(said, lo=at, data=_above(said.data, at)) if at < stop else None
            left.remove(lo, hi)
        return left.ranges, count

    def say_silence(self, name: PubendId, direction: str) -> None:
        """Silence has waited long enough: the newest stretch is said, whatever hole is below it (T53)."""
        pubend = self._pubends[name]
        outward = pubend.outward[direction]
        if outward.behind:
            return
        outward.silence_due = None
        hi = pubend.cache.known_upto
        if hi <= outward.sent:
            return
        lo = self.stretch(pubend, hi, outward.sent, {})
        said = self._said(pubend, direction, lo, hi) if lo < hi else None
        if said is not None:
            self._push(pubend, direction, outward, said, 0, {})

    def pull_behind(self, name: PubendId, direction: str) -> None:
        """All links were full: while they are, those in that direction learn how far there is something to ask for."""
        pubend = self._pubends[name]
        outward = pubend.outward[direction]
        live = self._directions.live(direction)
        if not live or any(not self._links.is_full(broker) and broker not in self._unanswered for broker in live):
            outward.behind = False
            outward.sent = max(outward.sent, outward.left_out)
            if outward.silence_due is not None:
                self._state.timers.set(("silence", name, direction), max(self._state.now, outward.silence_due))
            return
        outward.left_out, outward.silence_due = pubend.cache.known_upto, None
        for broker in live:
            self._directions.say_behind(pubend, broker, outward.left_out)
        self._state.timers.set(("behind", name, direction), self._state.now + SILENCE_AFTER)

    # ------------------------------------------------------------------------------- asked, answered

    def want(self, want: Want, asker: BrokerId) -> None:
        """A broker, or the SHB here (`CORE`), needs something."""
        pubend = self._pubends.get(want.pubend)
        if pubend is None:
            return
        top = pubend.cache.known_upto
        ranges = tuple((lo, hi if hi < FOREVER else max(lo, top)) for lo, hi in want.ranges)
        above = max((max(lo, top) for lo, hi in want.ranges if hi >= FOREVER), default=None)
        ranges = tuple(run for run in ranges if run[0] < run[1])
        if not want.again:
            pubend.askers.asked_anew(asker, ranges)
        elif self._links.is_slow(asker):
            coming = pubend.askers.under_way(asker, ranges, want.need, self._state.now)
            ranges = (IntervalSet(ranges) - IntervalSet(coming)).ranges
        answers, rest = pubend.cache.answer(ranges, want.need)
        unsent = self._reply(pubend, asker, [(answer, want.need) for answer in answers])
        rest = (IntervalSet(rest) | IntervalSet(unsent)).ranges if unsent else rest
        if pubend.is_cached or asker != CORE:
            pubend.askers.add(asker, rest, want.need, above, self._state.now)
        self._ask_on(pubend, want, (IntervalSet(rest) - IntervalSet(unsent)).ranges, above, asker)

    def _ask_on(self, pubend: RelayedPubend, want: Want, ranges: Ranges, above: Tick | None, asker: BrokerId) -> None:
        """Asks on for what is not known here, unless that was asked for lately: once for all who need it."""
        need = want.need
        if need is not None:
            # Else the needs of the SHBs would never cover each other (T56).
            need = join(need, self._directions.versions([CORE, *pubend.outward]))
        if above is not None:
            ranges = (*(run for run in ranges if run[0] < above), (above, FOREVER))
        unanswered = IntervalSet(pubend.asked.unanswered(ranges, need))
        wanted = IntervalSet(pubend.asked.pass_on(ranges, need, self._state.now))
        first = wanted - unanswered
        for part, again in ((first, False), (wanted - first, True)):
            if part:
                self._directions.toward_home(pubend, Want(want.pubend, part.ranges, need, want.shb, again), asker)

    def _serve(self, pubend: RelayedPubend, knowledge: Knowledge, pushed: dict[BrokerId, list[Knowledge]]) -> None:
        """Answers those who waited for it. Who was just sent it of its own accord is not sent it twice.

        Who has no room at present waits on: it is answered when the link has room again.
        """
        view = _view(pubend, knowledge)
        for asker in pubend.askers.names:
            if asker != CORE and self._links.is_full(asker):
                self._keep(pubend, asker, knowledge)
            else:
                unsent = self._answer(pubend, asker, knowledge, view, pushed.get(asker, ()))
                pubend.askers.miss(asker, unsent)

    def _keep(self, pubend: RelayedPubend, asker: BrokerId, knowledge: Knowledge) -> None:
        """Something came while there was no room on a broker's link: if the broker waits for it, it may be kept."""
        if not pubend.askers.is_waiting(asker, knowledge, self._state.now):
            return
        kept = self._kept.setdefault(asker, Kept())
        if kept.has_room(knowledge):
            kept.answers.append((pubend.meta.pubend, pubend.taken_back, knowledge))
            kept.size += knowledge.data.size
        else:
            pubend.askers.miss(asker, ((knowledge.lo, knowledge.hi),))

    def _answer(
        self,
        pubend: RelayedPubend,
        asker: BrokerId,
        knowledge: Knowledge,
        view: KnowledgeStream,
        pushed: Sequence[Knowledge],
    ) -> Ranges:
        """Answers somebody who waits for some of what is said. Returns what there was no room for."""
        answers = pubend.askers.take(asker, knowledge, view, self._state.now, pushed)
        unsent = IntervalSet()
        for need, together in groupby(answers, itemgetter(1)):
            left = self._reply(pubend, asker, list(together))
            pubend.askers.add(asker, left, need, None, self._state.now)
            unsent |= IntervalSet(left)
        return unsent.ranges

    def on_room(self, broker: BrokerId) -> None:
        """A link has room again: it is filled with what its broker waits for, as far as that is known here by now.

        What came for it while there was no room, and was neither kept nor cached, is asked for once more.
        """
        self._unanswered.pop(broker, None)
        for name, taken_back, knowledge in self._kept.pop(broker, Kept()).answers:
            pubend = self._pubends.get(name)
            if pubend is None or broker not in pubend.askers.names:
                continue
            missed: Ranges = ((knowledge.lo, knowledge.hi),)
            if pubend.taken_back == taken_back:
                missed = self._answer(pubend, broker, knowledge, _view(pubend, knowledge), ())
            pubend.askers.miss(broker, missed)
        for pubend in self._pubends.values():
            came = pubend.askers.take_missed(broker)
            for need, ranges in pubend.askers.waiting(broker, self._state.now):
                answers, rest = pubend.cache.answer(ranges, need)
                pubend.askers.answered(broker, (IntervalSet(ranges) - IntervalSet(rest)).ranges)
                left = self._reply(pubend, broker, [(answer, need) for answer in answers])
                pubend.askers.add(broker, left, need, None, self._state.now)
                if again := (came & IntervalSet(rest)).ranges:
                    want = Want(pubend.meta.pubend, again, need, "", again=False)
                    self._ask_on(pubend, want, again, None, broker)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link is gone: whoever still waits for something asks again."""
        self._kept.pop(broker, None)

    def answer_more(self, broker: BrokerId) -> None:
        """What was too much for one answer goes on; where a link is full, when it has room again."""
        if not self._links.is_full(broker):
            self.on_room(broker)

    def _reply(self, pubend: RelayedPubend, asker: BrokerId, answers: Sequence[tuple[Knowledge, Stamp]]) -> Ranges:
        """Answers a broker itself, unfiltered, as far as there is room. Returns what was left out.

        `answers`: each with the need that it serves. The need may be that of an SHB in another direction, which asks
        for what a consumer here reads: its version stays in the stamp (T62).

        A node that slept hears in one turn all that was asked meanwhile, repetitions too, and learns what waits on a
        link only after it: so the room is that of the turn, not of the want.
        """
        if asker == CORE:
            for answer, need in answers:
                self._deliver(pubend, replace(answer, reply=True), need)
            return ()
        direction = self._directions.of(asker)
        behind = self._directions.shbs(direction) if direction in pubend.outward else None
        room = 0 if self._links.is_full(asker) else REPLY_BYTES_MAX - self._links.said_now(asker)
        left: list[tuple[Tick, Tick]] = []
        sent = 0
        for answer, need in answers:
            if room <= 0 or sent >= REPLIES_MAX:
                left.append((answer.lo, answer.hi))
                continue
            sent += 1
            fitting = _fitting(answer, room)
            room -= fitting.data.size + 1
            if fitting.hi < answer.hi:
                left.append((fitting.hi, answer.hi))
            stamp = fitting.stamp if behind is None else restrict(fitting.stamp, {*behind, *(need or ())})
            said = replace(fitting, stamp=stamp, reply=True)
            self._links.send(asker, said)
            pubend.askers.sent(asker, said, self._state.now)
        if left:
            self._unanswered[asker] = None
            self._state.timers.set(("more", asker), self._state.now + MORE_AFTER)
        return tuple(left)

    # ------------------------------------------------------------------------------------------ time

    def keep_up(self) -> None:
        """Once a second: what is cached stays within its limits, and what nobody waits for is forgotten."""
        self._state.timers.set(("upkeep",), self._state.now + UPKEEP_EVERY)
        for pubend in self._pubends.values():
            pubend.askers.expire(self._state.now)
            self._evict(pubend)

    def after(self, name: PubendId) -> None:
        """Something was cached: if it was much, it is not left for later to look at it."""
        pubend = self._pubends.get(name)
        if pubend is not None and pubend.fresh_bytes > self._share // 4:
            self._evict(pubend)

    @property
    def _share(self) -> int:
        """How much memory the events of one pubend may take."""
        return self._cache_bytes // max(1, len(self._pubends))

    def _evict(self, pubend: RelayedPubend) -> None:
        for events in pubend.fresh:  # whoever was to get them has matched them
            events.forget_headers()
        pubend.fresh, pubend.fresh_bytes = [], 0
        cache = pubend.cache
        while cache.event_count and _memory(cache) > self._share:
            ticks = cache.take(cache.base, cache.known_upto).ticks
            self._directions.make_room(pubend, ticks[len(ticks) // 4])
            assert cache.event_count < len(ticks), f"{cache.pubend}: no room was made"
        if cache.run_count > RUNS_MAX:
            runs = [run for run in cache.runs(cache.base, cache.known_upto) if run.kind is not Kind.UNKNOWN]
            self._directions.make_room(pubend, runs[len(runs) // 2].hi)


def _known(cache: KnowledgeStream, lo: Tick, hi: Tick) -> Ranges:
    """The stretches of (lo, hi] of which all is known, lost ones left out."""
    return IntervalSet((run.lo, run.hi) for run in cache.runs(lo, hi) if run.kind is Kind.SILENCE).ranges


def _above(data: EventBatch, tick: Tick) -> EventBatch:
    return data.slice(bisect_right(data.ticks, tick), len(data)) if data else data


def in_log(knowledge: Knowledge, meta: PubendMeta) -> Iterable[Knowledge]:
    """Returns knowledge in parts, without events in what the pubend's log has lost; a log with ticks loses none."""
    return (knowledge,) if meta.timed or not meta.voids else knowledge.without_events_in(meta.voids)


def _view(pubend: RelayedPubend, knowledge: Knowledge) -> KnowledgeStream:
    """Those who asked are answered from this: from the statement, or the cache, which holds it too, if it has L.

    For what the pubend has lost the cache may have a better answer, and was asked for it together with the rest.
    """
    if pubend.is_cached and knowledge.gone:
        return pubend.cache
    view = KnowledgeStream(knowledge.pubend)
    view.accumulate(knowledge)
    return view


def _memory(cache: KnowledgeStream) -> int:
    """What the events of a cache take, about."""
    return cache.size + EVENT_BYTES * cache.event_count + BATCH_BYTES * cache.batch_count


def _weight(events: EventBatch) -> int:
    """What a batch takes, about."""
    return events.size + EVENT_BYTES * len(events) + BATCH_BYTES if events else 0


def _fitting(answer: Knowledge, room: int) -> Knowledge:
    """As much of an answer as there is room for, and at least one event of it."""
    data = answer.data
    if data.size <= room:
        return answer
    total = 0
    for index, event in enumerate(data.events):
        total += len(event)
        if total > room and index:
            return replace(answer, hi=data.ticks[index - 1], data=data.slice(0, index))
    return answer
