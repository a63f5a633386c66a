"""Knowledge of each pubend: pushed toward those who want it, cached, asked for, and answered.

What is said of its own accord is said by one function, `_said`, from what is known at that moment: all events of an
interval that match what is wanted at that moment, under the stamp that holds for all of it. A push is a best effort
on one way. Everybody who misses something asks; a want is remembered by who asked, and its answer goes to that very
broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.foreign import reader_of
from gapless.core.network.facts import (
    AskPubend,
    BrokerId,
    Enrol,
    Know,
    Probe,
    PubendMeta,
    Real,
    Seen,
    Want,
)
from gapless.core.network.frames import Private
from gapless.core.network.reach import check_meta, check_tick
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.curiosity import CuriosityTimes, RecentWants
from gapless.core.stream.intervals import IntervalSet, Ranges
from gapless.core.stream.knowledge import Kind, Knowledge, KnowledgeConflict, KnowledgeStream
from gapless.core.stream.stamps import RAW, Stamp, covers, join, meet, restrict
from gapless.core.stream.ticks import FOREVER, OFFSET_BITS, PubendId, ShbId, Tick
from gapless_routing.common.askers import Askers
from gapless_routing.knowledge.cells import Cell, Cells
from gapless_routing.knowledge.interest import Interests
from gapless_routing.knowledge.peers import Peers
from gapless_routing.knowledge.progress import ProgressTable
from gapless_routing.knowledge.state import CORE, State

PUBEND: Final = 3
"""The kind of a `Private` that holds a PubendNotice."""
SILENCE_AFTER: Final = 1 * SECOND
"""How long silence waits for an event to travel with (SIL)."""
SILENCE_BYTES: Final = 4 << 20
"""So much memory of events may lie in silence that waits: what the cache has forgotten by then would be asked for."""
NOTICE_EVERY: Final = 5 * SECOND
UPKEEP_EVERY: Final = 1 * SECOND
REPLY_BYTES_MAX: Final = 1 << 20
"""So much is answered to one broker in one turn of the node; what is left follows when there is room."""
MORE_AFTER: Final = 50 * MILLISECOND
"""How soon what was too much for one answer goes on, if there is room."""
EVENT_BYTES: Final = 200
"""What an event takes in memory beside its bytes, about: small ones take more than they hold."""
BATCH_BYTES: Final = 400
"""What a batch of events takes beside them, about: where events come one by one, each is a batch."""
UNDER_WAY: Final = 5 * SECOND
"""What somebody said may have been on its way for so long, which no age counts."""
CHANGES_MAX: Final = 1 << 32
"""So often what is said of a pubend does not change in one life of a router: a notice that says so is false."""
RUNS_MAX: Final = 4096
"""So many runs of silence are kept of a pubend."""
TIMES: Final = CuriosityTimes(forget=400 * MILLISECOND)


class PubendNotice(Struct, array_like=True, frozen=True, gc=False):
    """A pubend, and who is enrolled there, on its way from its broker."""

    meta: PubendMeta
    enrolled: dict[ShbId, Real]
    life: Real
    """The life of the router at the pubend's broker: what is placed there names it."""
    behind: bool
    """Nothing is pushed up to the pubend's `stable`: who needs it asks, however far away it is."""
    number: Annotated[int, Meta(ge=0, le=CHANGES_MAX)]
    """Rises in one life with each change of what is said: mates exchange notices, and an older one may come later."""


_encode = msgspec.msgpack.Encoder().encode
_decode = reader_of(PubendNotice, "the notice of a pubend")


@dataclass(slots=True)
class Bundle:
    """What was said of one pubend in one direction."""

    sent: Tick = 0
    """The highest tick that was said of its own accord: how far back the next push need not reach."""
    unwanted_bytes: int = 0
    """Memory of events above that, which nobody there wanted when they came."""
    told: Tick = 0
    """The highest `stable` that was said."""
    behind: bool = False
    """All links are full: nothing is pushed, and those behind ask at their own pace."""
    left_out: Tick = 0
    """Up to here it was said that nothing is pushed."""


@dataclass(slots=True)
class PubendStream:
    """One pubend."""

    meta: PubendMeta
    cell: Cell
    up: Cell | None
    """The neighbouring cell on the way to the pubend; None: this broker hosts it."""
    enrolled: dict[ShbId, Tick] = field(default_factory=dict)
    life: int = 0
    number: int = 0
    """Of the notice that said so."""
    handed_over_at: int = 0
    dropped_at: dict[ShbId, int] = field(default_factory=dict)
    """When an SHB was a member no more."""
    heard_directly: bool = False
    """Whether somebody who is no mate spoke of it since it was last repeated to the mates."""
    cache: KnowledgeStream = field(default_factory=lambda: KnowledgeStream(""))
    fresh: list[EventBatch] = field(default_factory=list)
    """The events that were cached since somebody looked how many there are."""
    fresh_bytes: int = 0
    """Memory of these."""
    bundles: dict[Cell, Bundle] = field(default_factory=dict)
    askers: Askers = field(default_factory=Askers)
    asked: RecentWants = field(default_factory=lambda: RecentWants(TIMES))
    seen: Seen | None = None
    """What the SHB of this broker was last told."""


class Streams:
    """All pubends that are known here."""

    def __init__(self, state: State, cells: Cells, peers: Peers, interests: Interests, progress: ProgressTable) -> None:
        self._state = state
        self._cells = cells
        self._peers = peers
        self._interests = interests
        self._progress = progress
        self._streams: dict[PubendId, PubendStream] = {}
        self._unanswered: dict[BrokerId, None] = {}
        """Who asked for something that is known here, and for which there was no room."""
        self.lives: dict[BrokerId, int] = {}
        """The life of the router at each broker with pubends."""

    def start(self) -> None:
        """What is to be done again and again."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        self._state.timers.set(("upkeep",), self._state.now + UPKEEP_EVERY)

    @property
    def hosted(self) -> list[PubendId]:
        """The pubends of this broker."""
        return [pubend for pubend, stream in self._streams.items() if stream.up is None]

    def cached_bytes(self) -> int:
        """The memory that all cached events take."""
        return sum(_memory(stream.cache) for stream in self._streams.values())

    def meta_of(self, pubend: PubendId) -> PubendMeta | None:
        """What is known of a pubend; None: nothing."""
        stream = self._streams.get(pubend)
        return None if stream is None else stream.meta

    def topics_of(self, broker: BrokerId) -> list[tuple[str, ...]]:
        """The patterns of the topics that a broker's pubends carry, as far as this one knows them."""
        return [stream.meta.topics for stream in self._streams.values() if stream.meta.broker == broker]

    def renew_life(self) -> None:
        """This router has another life: who places something at a pubend here has to name it."""
        for stream in self._streams.values():
            if stream.up is None:
                stream.life = self._state.life

    # -------------------------------------------------------------------------- the local PHB core

    def opened(self, meta: PubendMeta, members: dict[ShbId, Tick]) -> None:
        """A pubend of this broker, as it is now, with its durable membership."""
        stream = self._stream(meta)
        if stream is None:
            return
        _forget_cut(stream, meta)
        _forget_forks(stream, meta)
        stream.meta = meta
        stream.dropped_at |= {shb: self._state.now for shb in stream.enrolled if shb not in members}
        stream.enrolled = dict(members)
        stream.life = self._state.life
        stream.number += 1
        stream.handed_over_at = self._state.now
        self._progress.hand_over(meta.pubend, stream.enrolled)
        self._announce(stream)

    def enrolled(self, pubend: PubendId, shb: ShbId, at: Tick) -> None:
        """A membership is durable."""
        stream = self._streams.get(pubend)
        if stream is not None and stream.up is None:
            stream.enrolled[shb] = at
            stream.dropped_at.pop(shb, None)
            stream.number += 1
            self._progress.enrol(pubend, shb)
            self._announce(stream)

    def know(self, knowledge: Knowledge) -> None:
        """The pubend says something, or answers."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            self._on_knowledge(stream, knowledge, None)

    # ----------------------------------------------------------------------------- from other brokers

    def on_knowledge(self, broker: BrokerId, knowledge: Knowledge) -> None:
        """Knowledge has come: pushed, or as an answer."""
        stream = self._streams.get(knowledge.pubend)
        if stream is not None:
            self._on_knowledge(stream, knowledge, broker)

    def on_notice(self, broker: BrokerId, data: bytes) -> None:
        """A pubend, and who is enrolled there. Raises RemoteProtocolError when it makes no sense."""
        notice = _decode(data)
        meta = notice.meta
        check_meta(meta, self._state.wall)
        for at in notice.enrolled.values():
            check_tick(meta, at, self._state.wall)
        stream = None if meta.broker == self._state.broker else self._stream(meta)
        if stream is None or stream.up is None:
            return
        if stream.life == notice.life and (notice.number, meta.created) < (stream.number, stream.meta.created):
            return
        changed = (
            stream.enrolled != notice.enrolled
            or replace(stream.meta, stable=0, reach=0) != replace(meta, stable=0, reach=0)
            or _is_elected(stream.meta, meta.reach)
            or stream.life != notice.life
        )
        if stream.life != notice.life or stream.meta.voids != meta.voids or stream.meta.forks != meta.forks:
            stream.asked.begin_anew()  # its PHB was down, and has forgotten what it was asked for
            _forget_cut(stream, meta)
            _forget_forks(stream, meta)
        stream.meta = replace(meta, stable=max(meta.stable, stream.meta.stable))
        stream.enrolled, stream.life, stream.number = dict(notice.enrolled), notice.life, notice.number
        self.lives[meta.broker] = notice.life
        stream.heard_directly |= broker not in self._cells.mates
        self._see(stream)
        if notice.behind and meta.stable > stream.cache.known_upto:
            self._say_behind(stream, meta.stable)
        if changed:
            self._announce(stream, but=broker)

    def _stream(self, meta: PubendMeta) -> PubendStream | None:
        """The stream of a pubend, which may be new here; None if its broker is not on the map."""
        stream = self._streams.get(meta.pubend)
        if stream is not None:
            return stream
        cell = self._cells.of(meta.broker)
        if cell is None:
            return None
        up = self._cells.toward(cell)
        stream = PubendStream(meta, cell, up, cache=KnowledgeStream(meta.pubend))
        down = [cell for cell in self._cells.neighbours if cell != up and self._cells.has_role_behind(cell, "shb")]
        stream.bundles = {cell: Bundle() for cell in down}
        self._streams[meta.pubend] = stream
        self._state.owners[meta.pubend] = meta.broker
        self._progress.open(meta.pubend, cell)
        return stream

    # ---------------------------------------------------------------------------------- who is there

    def on_heard(self, shb: ShbId, cell: Cell) -> None:
        """An SHB was heard of: at the pubends where it does not count yet it is to be enrolled (C5, T60)."""
        at = self._interests.shbs(cell)[shb]
        for pubend, stream in self._streams.items():
            since = max(stream.handed_over_at, stream.dropped_at.get(shb, -UNDER_WAY) + UNDER_WAY)
            if stream.up is None and shb not in stream.enrolled and at >= since:
                self._state.effects.append(Enrol(pubend, shb))

    def on_own_interest(self, *, full: bool) -> None:
        """The SHB here said what it wants; when it said all of it, it is told of every pubend."""
        for stream in self._streams.values():
            if full:
                stream.seen = None
            self._see(stream)

    def on_link_down(self, broker: BrokerId) -> None:
        """A link to a broker is gone, with the answers that were on their way."""
        for stream in self._streams.values():
            stream.askers.link_down(broker)
            self._begin_anew(stream, broker)

    def on_link_up(self, broker: BrokerId) -> None:
        """A broker is there: it is told of the pubends that come its way. No want has found the way there before."""
        for stream in self._streams.values():
            self._begin_anew(stream, broker)
            self._notify(stream, broker)

    def _begin_anew(self, stream: PubendStream, broker: BrokerId) -> None:
        """If wants go by way of a broker, those that were sent may have been lost, or waited for it."""
        if self._cells.of(broker) in (stream.up, self._cells.own):
            stream.asked.begin_anew()

    def probe(self, probe: Probe, sender: BrokerId | None = None) -> None:
        """Progress is overdue: every SHB is asked for it, by whoever knows a way to it."""
        stream = self._streams.get(probe.pubend)
        if stream is None:
            return
        if self._interests.shb:
            self._state.effects.append(probe)
        hops: dict[BrokerId, None] = {}
        for neighbour in stream.bundles:
            for cell in self._cells.with_shbs_behind(neighbour):
                hop = self._peers.next_toward(cell, probe.pubend, sender)
                if hop is not None:
                    hops[hop] = None
        for hop in hops:
            self._peers.send(hop, probe)

    def repeat_notices(self) -> None:
        """Every five seconds: whatever may have been lost."""
        self._state.timers.set(("notices",), self._state.now + NOTICE_EVERY)
        for stream in self._streams.values():
            # A mate that reaches nobody on the way to the pubend has it from this one; what only a mate said is not
            # said to mates again, or the two would keep each other from learning what is new.
            self._announce(stream, mates=stream.up is None or stream.heard_directly)
            stream.heard_directly = False

    def _announce(self, stream: PubendStream, but: BrokerId | None = None, *, mates: bool = True) -> None:
        """Says what the pubend is, and who is enrolled, to everybody below; a mate may lack a way to hear of it.

        Also where no SHB is: publishers everywhere have to know where the pubend is.
        """
        self._see(stream)
        for cell in self._cells.neighbours:
            for broker in self._peers.live(cell):
                self._notify(stream, broker)
        if mates and but not in self._cells.mates:
            for mate in self._peers.live(self._cells.own):
                self._notify(stream, mate)

    def _say_behind(self, stream: PubendStream, stable: Tick) -> None:
        """Nothing comes from above because a link there is full: all below learn that there is something to ask for."""
        for cell in stream.bundles:
            for broker in self._peers.live(cell):
                self._notify(stream, broker, stable=stable)

    def _notify(self, stream: PubendStream, broker: BrokerId, *, stable: Tick | None = None) -> None:
        """Sends a notice; with `stable`, nothing up to there is going to be pushed, but for what was sent before."""
        cell = self._cells.of(broker)
        if cell == stream.up:
            return
        bundle = stream.bundles.get(str(cell))
        if bundle is None:
            said = stream.meta
        else:
            # No more than it was told: else it would ask for the rest at once. What waits on a full link comes yet.
            if not bundle.behind and not self._peers.is_full(broker):
                bundle.told = max(bundle.told, min(stream.meta.stable, bundle.sent))
            said = replace(stream.meta, stable=bundle.told if stable is None else stable)
        notice = PubendNotice(said, dict(stream.enrolled), stream.life, stable is not None, stream.number)
        self._peers.send(broker, Private(PUBEND, _encode(notice)), in_order=stable is not None)

    def _see(self, stream: PubendStream) -> None:
        """The SHB here is told of the pubend, once it has spoken; and from where it counts there."""
        shb = self._interests.shb
        if not shb:
            return
        seen = Seen(stream.meta, stream.enrolled.get(shb))
        if seen != stream.seen:
            stream.seen = seen
            self._state.effects.append(seen)

    # -------------------------------------------------------------------------------------- knowledge

    def _on_knowledge(self, stream: PubendStream, knowledge: Knowledge, sender: BrokerId | None) -> None:
        voids = () if stream.meta.timed else stream.meta.voids
        for part in knowledge.without_events_in(voids) if voids else (knowledge,):
            self._pass(stream, part, sender)

    def _pass(self, stream: PubendStream, knowledge: Knowledge, sender: BrokerId | None) -> None:
        if stream.up is None:
            highest = max(stream.meta.stable, knowledge.hi)
            elected = _is_elected(stream.meta, highest)
            stream.meta = replace(stream.meta, stable=highest, reach=highest)
            if elected:  # before anything is said of it: else nobody would believe that
                self._announce(stream)
        if knowledge.reply:
            stream.asked.answered(knowledge.lo, knowledge.hi, knowledge.stamp, self._state.now)
        else:
            stream.asked.known(knowledge.lo, knowledge.hi, knowledge.stamp)
        new = self._take(stream, knowledge)
        pushed: dict[BrokerId, list[Knowledge]] = {}
        if knowledge.reply and not stream.bundles:
            self._reply(stream, CORE, [knowledge])  # nobody else can have asked
        if not knowledge.reply:
            pushed[CORE] = self._deliver(stream, knowledge)
            for cell, bundle in stream.bundles.items():
                if sender is None or self._cells.of(sender) != cell:
                    self._first(stream, cell, bundle, knowledge, new, pushed)
        if stream.askers:
            self._serve(stream, knowledge, pushed)

    def pass_on(self, cell: Cell, knowledge: Knowledge) -> None:
        """A mate cannot reach a cell, and has this for it."""
        live = [broker for broker in self._peers.live(cell) if not self._peers.is_full(broker)]
        if live:
            self._peers.push(cell, knowledge)

    def _take(self, stream: PubendStream, knowledge: Knowledge) -> IntervalSet:
        """Caches it, where somebody below may ask for it. Returns the ticks of which nothing was known.

        Silence that is only known under a higher stamp now is not new: who needs that asks, and the events in it would
        be sent once more for nothing, whenever another broker above begins to send.
        """
        if not stream.bundles:
            return IntervalSet()
        stream.fresh_bytes += _weight(knowledge.data)
        new = IntervalSet(stream.cache.unknown(knowledge.lo, knowledge.hi, {}))
        try:
            delta = stream.cache.accumulate(knowledge)
        except KnowledgeConflict as conflict:
            self._state.effects.append(Alarm(AlarmCode.BROKERS_CONTRADICT, str(conflict), knowledge.pubend))
            stream.cache = KnowledgeStream(knowledge.pubend)
            stream.cache.accumulate(knowledge)
            return IntervalSet([(knowledge.lo, knowledge.hi)])
        if delta.events:
            stream.fresh.append(delta.events)
        if new.ranges != ((knowledge.lo, knowledge.hi),):
            for tick in delta.events.ticks:
                new.add(tick - 1, tick)
        return new

    def _deliver(self, stream: PubendStream, knowledge: Knowledge) -> list[Knowledge]:
        """To the SHB here, unfiltered and at once, but not before it knows where it counts (C5). Returns that."""
        if stream.seen is None or stream.seen.enrolled_at is None:
            return []
        own = replace(knowledge, stamp=restrict(knowledge.stamp, (self._interests.shb,)))
        self._state.effects.append(Know(own))
        return [own]

    def _first(
        self,
        stream: PubendStream,
        cell: Cell,
        bundle: Bundle,
        knowledge: Knowledge,
        new: IntervalSet,
        pushed: dict[BrokerId, list[Knowledge]],
    ) -> None:
        """Says in one direction what is new, as far as somebody there wants it; silence alone waits a while."""
        if self._interests.wants_nothing(cell):
            bundle.sent = max(bundle.sent, knowledge.hi)  # else the first SHB there would be sent all that is cached
            return
        if bundle.behind:
            return
        # What lies above the mark was new once, when nobody here wanted it, or nobody could be reached.
        for start, hi in (new | IntervalSet([(max(knowledge.lo, bundle.sent), knowledge.hi)])).ranges:
            lo = max(start, stream.cache.lost)
            if hi > bundle.sent:
                lo = min(
                    lo, self._stretch(stream, lo, bundle.sent, restrict(knowledge.stamp, self._interests.shbs(cell)))
                )
            if lo >= hi:
                continue
            if knowledge.data and hi > bundle.sent and self._is_to_wait(stream, cell, bundle, knowledge, start, hi):
                continue
            said = self._said(stream, cell, lo, hi)
            # Below the mark silence alone is not said: who misses it has asked.
            if said is not None and (said.data or hi > bundle.sent or not knowledge.data):
                self._push(stream, cell, bundle, said, pushed)

    def _is_to_wait(
        self, stream: PubendStream, cell: Cell, bundle: Bundle, knowledge: Knowledge, lo: Tick, hi: Tick
    ) -> bool:
        """Whether what is new in an interval travels with what follows: nobody in a direction wants an event of it.

        Only that is looked at here, and all that waits when it is said: else each batch would cost as much as all that
        came before it.
        """
        if stream.meta.group is not None or self._interests.decide(cell, knowledge.stamp, stream.enrolled).flood:
            return False
        data = stream.cache.take(lo, hi)
        if self._interests.matches(cell, stream.meta.pubend, data):
            return False
        bundle.unwanted_bytes += _weight(data)
        if bundle.unwanted_bytes > SILENCE_BYTES:
            return False
        if ("silence", stream.meta.pubend, cell) not in self._state.timers:
            self._state.timers.set(("silence", stream.meta.pubend, cell), self._state.now + SILENCE_AFTER)
        return True

    def _stretch(self, stream: PubendStream, top: Tick, floor: Tick, need: Stamp) -> Tick:
        """How far down everything is known, from `top` to `floor` at most: events, or silence that covers `need`."""
        low = top
        if low <= floor:
            return low
        for run in reversed(list(stream.cache.runs(floor, top))):
            if run.hi != low or run.kind is not Kind.SILENCE or not covers(run.stamp, need):
                break
            low = run.lo
        return low

    def _said(self, stream: PubendStream, cell: Cell, lo: Tick, hi: Tick) -> Knowledge | None:
        """What is to be said of an interval in a direction, by what is known and wanted now; None: not all is known."""
        stamp: Stamp = RAW
        for run in stream.cache.runs(lo, hi):
            if run.kind is not Kind.SILENCE:
                return None
            stamp = meet(stamp, run.stamp)
        decision = self._interests.decide(cell, stamp, stream.enrolled)
        data = stream.cache.take(lo, hi)
        if data and not decision.flood:
            data = data.select(self._interests.matches(cell, stream.meta.pubend, data))
        lost = stream.cache.lost if stream.cache.lost <= lo else 0
        return Knowledge(stream.meta.pubend, lo, hi, data, lost, decision.stamp)

    def _push(
        self, stream: PubendStream, cell: Cell, bundle: Bundle, said: Knowledge, pushed: dict[BrokerId, list[Knowledge]]
    ) -> None:
        broker = self._peers.push(cell, said)
        if broker == "":
            bundle.behind = True
            at = self._state.now + SILENCE_AFTER
            self._state.timers.set(("behind", stream.meta.pubend, cell), at)
            return
        if said.hi >= bundle.sent:
            bundle.sent, bundle.unwanted_bytes = said.hi, 0
        if broker is not None:
            pushed.setdefault(broker, []).append(said)

    def say_silence(self, pubend: PubendId, cell: Cell) -> None:
        """Silence has waited long enough: the newest stretch is said, whatever hole is below it (T53)."""
        stream = self._streams[pubend]
        bundle = stream.bundles[cell]
        hi = stream.cache.known_upto
        if hi <= bundle.sent or bundle.behind:
            return
        lo = self._stretch(stream, hi, bundle.sent, {})
        said = self._said(stream, cell, lo, hi) if lo < hi else None
        if said is not None:
            self._push(stream, cell, bundle, said, {})

    def pull_behind(self, pubend: PubendId, cell: Cell) -> None:
        """All links of a bundle were full: while they are, those behind learn how far there is something to ask for."""
        stream = self._streams[pubend]
        bundle = stream.bundles[cell]
        live = self._peers.live(cell)
        if not live or any(not self._peers.is_full(broker) and broker not in self._unanswered for broker in live):
            bundle.behind = False
            bundle.sent = max(bundle.sent, bundle.left_out)
            return
        bundle.left_out = stream.cache.known_upto
        for broker in live:
            self._notify(stream, broker, stable=bundle.left_out)
        self._state.timers.set(("behind", pubend, cell), self._state.now + SILENCE_AFTER)

    # ------------------------------------------------------------------------------- asked, answered

    def want(self, want: Want, asker: BrokerId) -> None:
        """A broker below, a mate, or the SHB here (`CORE`) needs something."""
        stream = self._streams.get(want.pubend)
        if stream is None:
            return
        top = stream.cache.known_upto
        ranges = tuple((lo, hi if hi < FOREVER else max(lo, top)) for lo, hi in want.ranges)
        above = max((max(lo, top) for lo, hi in want.ranges if hi >= FOREVER), default=None)
        ranges = tuple(run for run in ranges if run[0] < run[1])
        if not want.again:
            stream.askers.asked_anew(asker, ranges)
        elif self._peers.is_slow(asker):
            coming = stream.askers.under_way(asker, ranges, want.need, self._state.now)
            ranges = (IntervalSet(ranges) - IntervalSet(coming)).ranges
        answers, rest = stream.cache.answer(ranges, want.need)
        unsent = self._reply(stream, asker, answers)
        rest = (IntervalSet(rest) | IntervalSet(unsent)).ranges if unsent else rest
        if stream.bundles or asker != CORE:  # else every answer is for the SHB here
            stream.askers.add(asker, rest, want.need, above, self._state.now)
        self._ask_on(stream, want, (IntervalSet(rest) - IntervalSet(unsent)).ranges, above, asker)

    def _ask_on(self, stream: PubendStream, want: Want, ranges: Ranges, above: Tick | None, asker: BrokerId) -> None:
        """Asks on for what is not known here, unless that was asked for lately: once for all who need it."""
        need = want.need
        if need is not None:
            # Else the needs of the SHBs would never cover each other (T56).
            need = join(need, self._interests.versions([CORE, *stream.bundles]))
        if above is not None:
            ranges = (*(run for run in ranges if run[0] < above), (above, FOREVER))
        unanswered = IntervalSet(stream.asked.unanswered(ranges, need))
        wanted = IntervalSet(stream.asked.pass_on(ranges, need, self._state.now))
        first = wanted - unanswered
        for part, again in ((first, False), (wanted - first, True)):
            if not part:
                continue
            asking = Want(want.pubend, part.ranges, need, want.shb, again)
            if stream.up is None:
                self._state.effects.append(AskPubend(asking, self._state.life))
            else:
                self._peers.send_toward(stream.cell, want.pubend, asking, None if asker == CORE else asker)

    def _serve(self, stream: PubendStream, knowledge: Knowledge, pushed: dict[BrokerId, list[Knowledge]]) -> None:
        """Answers those who waited for it. Who was just sent it of its own accord is not sent it twice.

        Who has no room at present waits on: it is answered when the link has room again.
        """
        view = _view(stream, knowledge)
        for asker in stream.askers.names:
            if asker != CORE and self._peers.is_full(asker):
                continue
            answers = stream.askers.take(asker, knowledge, view, self._state.now, pushed.get(asker, ()))
            if answers:
                left = self._reply(stream, asker, answers)
                stream.askers.add(asker, left, RAW, None, self._state.now)

    def on_room(self, broker: BrokerId) -> None:
        """A link has room again: it is filled with what its broker waits for, as far as that is known here by now."""
        self._unanswered.pop(broker, None)
        for stream in self._streams.values():
            for need, ranges in stream.askers.waiting(broker, self._state.now):
                answers, rest = stream.cache.answer(ranges, need)
                stream.askers.answered(broker, (IntervalSet(ranges) - IntervalSet(rest)).ranges)
                left = self._reply(stream, broker, answers)
                stream.askers.add(broker, left, need, None, self._state.now)

    def answer_more(self, broker: BrokerId) -> None:
        """What was too much for one answer goes on; where a link is full, when it has room again."""
        if not self._peers.is_full(broker):
            self.on_room(broker)

    def _reply(self, stream: PubendStream, asker: BrokerId, answers: list[Knowledge]) -> Ranges:
        """Answers a broker itself, unfiltered, as far as there is room. Returns what was left out.

        A node that slept hears in one turn all that was asked meanwhile, repetitions too, and learns what waits on a
        link only after it: so the room is that of the turn, not of the want.
        """
        if asker == CORE:
            for answer in answers:
                self._deliver(stream, replace(answer, reply=True))
            return ()
        cell = str(self._cells.of(asker))
        behind = self._interests.shbs(cell) if cell in stream.bundles else None
        room = 0 if self._peers.is_full(asker) else REPLY_BYTES_MAX - self._peers.said_now(asker)
        left: list[tuple[Tick, Tick]] = []
        for answer in answers:
            if room <= 0:
                left.append((answer.lo, answer.hi))
                continue
            fitting = _fitting(answer, room)
            room -= fitting.data.size + 1
            if fitting.hi < answer.hi:
                left.append((fitting.hi, answer.hi))
            stamp = fitting.stamp if behind is None else restrict(fitting.stamp, behind)
            said = replace(fitting, stamp=stamp, reply=True)
            self._peers.send(asker, said)
            stream.askers.sent(asker, said, self._state.now)
        if left:
            self._unanswered[asker] = None
            self._state.timers.set(("more", asker), self._state.now + MORE_AFTER)
        return tuple(left)

    # ------------------------------------------------------------------------------------------ time

    def keep_up(self) -> None:
        """Once a second: what is cached stays within its limits, and what nobody waits for is forgotten."""
        self._state.timers.set(("upkeep",), self._state.now + UPKEEP_EVERY)
        share = self._state.sizes.cache_bytes // max(1, len(self._streams))
        for stream in self._streams.values():
            stream.askers.expire(self._state.now)
            self._evict(stream, share)

    def after(self, pubend: PubendId) -> None:
        """Something was cached: if it was much, it is not left for later to look at it."""
        stream = self._streams.get(pubend)
        share = self._state.sizes.cache_bytes // max(1, len(self._streams))
        if stream is not None and stream.fresh_bytes > share // 4:
            self._evict(stream, share)

    def _evict(self, stream: PubendStream, share: int) -> None:
        for events in stream.fresh:  # whoever was to get them has matched them
            events.forget_headers()
        stream.fresh, stream.fresh_bytes = [], 0
        cache = stream.cache
        while cache.event_count and _memory(cache) > share:
            ticks = cache.take(cache.base, cache.known_upto).ticks
            cache.forget(cache.base, ticks[len(ticks) // 4])
        if cache.run_count > RUNS_MAX:
            runs = [run for run in cache.runs(cache.base, cache.known_upto) if run.kind is not Kind.UNKNOWN]
            cache.forget(cache.base, runs[len(runs) // 2].hi)


def _view(stream: PubendStream, knowledge: Knowledge) -> KnowledgeStream:
    """Those who asked are answered from this: from the statement, or the cache, which holds it too, if it has L.

    For what the pubend has lost the cache may have a better answer, and was asked for it together with the rest.
    """
    if stream.bundles and knowledge.gone:
        return stream.cache
    view = KnowledgeStream(knowledge.pubend)
    view.accumulate(knowledge)
    return view


def _memory(cache: KnowledgeStream) -> int:
    """What the events of a cache take, about."""
    return cache.size + EVENT_BYTES * cache.event_count + BATCH_BYTES * cache.batch_count


def _weight(events: EventBatch) -> int:
    """What a batch takes, about."""
    return events.size + EVENT_BYTES * len(events) + BATCH_BYTES if events else 0


def _is_elected(meta: PubendMeta, reach: Tick) -> bool:
    """Whether a log that numbers its records has come so far that its leader is another one than was said last."""
    return not meta.timed and reach >> OFFSET_BITS > meta.reach >> OFFSET_BITS


def _forget_cut(stream: PubendStream, meta: PubendMeta) -> None:
    """What a log that numbers its records had before it was cut is no answer any more."""
    if not meta.timed and meta.voids != stream.meta.voids:
        for lo, hi in meta.voids:
            stream.cache.forget(lo, hi)


def _forget_forks(stream: PubendStream, meta: PubendMeta) -> None:
    """Another process of the pubend's broker may have logged something: what was told as silence is asked for again.

    What it has told of events stays: they were published, and nobody else has them.
    """
    for fork in meta.forks:
        if fork not in stream.meta.forks:
            stream.cache.forget_silence(fork[0], stream.cache.known_upto)


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
