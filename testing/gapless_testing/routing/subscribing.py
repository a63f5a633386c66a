"""A stand-in for an SHB: it says what it wants, follows every pubend, and asks again until it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from gapless.core.network import facts as routing
from gapless.core.network.facts import Hold, Interest, Progress, PubendMeta, Want
from gapless.core.network.seam import Effect
from gapless.core.stream.curiosity import CuriosityStream, CuriosityTimes
from gapless.core.stream.knowledge import Knowledge, KnowledgeStream
from gapless.core.stream.stamps import RAW, Stamp
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless.core.stream.ticks import SECOND as TICKS_OF_SECOND
from gapless.selectors.filters import Filter
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.interests import matches
from gapless_testing.routing.network import BrokerHost, unchanging

POLL_EVERY = 100 * MS
STALLED_AFTER = 3 * SECOND
REPORT_EVERY = 300 * MS
REPEAT_EVERY = 5 * SECOND
LAGS = (0, 0, TICKS_OF_SECOND // 20, TICKS_OF_SECOND)
"""By how many ticks the applications are behind what was delivered."""
TIMES = CuriosityTimes(repeat_max=5 * SECOND)


class Reread:
    """An interval that is asked for once more: unfiltered, as for a subscription that comes from elsewhere, or not."""

    def __init__(self, pubend: PubendId, lo: Tick, hi: Tick, now: int, need: Stamp = RAW) -> None:
        self.hi = hi
        self.need = need
        self.stream = KnowledgeStream(pubend, lo)
        self.curiosity = CuriosityStream(TIMES)
        self.curiosity.add(((lo, hi),), need, now, urgent=True)

    @property
    def done(self) -> bool:
        """Whether all of it is known."""
        return self.stream.horizon(self.stream.base, self.need) >= self.hi

    def take(self, knowledge: Knowledge) -> None:
        """Knowledge of the pubend arrived."""
        self.stream.accumulate(knowledge)
        self.curiosity.clear(((knowledge.lo, knowledge.hi),), knowledge.stamp)


@dataclass
class Following:
    """One pubend as the SHB follows it."""

    meta: PubendMeta
    start: Tick
    head: Tick
    """Everything up to here is known."""
    stream: KnowledgeStream
    target: Tick = 0
    """Decided at the pubend up to here, as far as is known."""
    curiosity: CuriosityStream = field(default_factory=lambda: CuriosityStream(TIMES))
    required: list[tuple[Tick, int]] = field(default_factory=list)
    """From which tick on which version of the interest is served."""
    received: list[Tick] = field(default_factory=list)
    """The events that matched, up to `head`."""
    readings: list[Reread] = field(default_factory=list)
    delivered: Tick = 0
    """Durable."""
    released: Tick = 0
    """Durable."""
    moved_at: int = 0
    reported_at: int = 0
    row: Hold | None = None
    held: int = 0
    """The highest version of the row that was answered."""
    probed: Tick = 0
    read_only: bool = False
    """Whether it was told so, ever."""


class SubscribingStandIn:
    """An SHB with a few subscriptions. What it has at `delivered` is durable; the rest goes in a crash."""

    def __init__(self, host: BrokerHost, shb: ShbId) -> None:
        self.host = host
        self.shb = shb
        self.version = 0
        self.filters: dict[int, Filter] = {}
        self.versions: dict[int, tuple[Filter, ...]] = {}
        """What was wanted at each version."""
        self.streams: dict[PubendId, Following] = {}
        self.seen: dict[PubendId, int] = {}
        """When each pubend was last said to count it."""
        self.asks = True
        """Whether it asks for what is missing."""
        self.frozen = False
        """Whether its applications are done with nothing more."""
        self._writing = False
        self._announced_in = 0
        """The process that said its whole interest; the first announcement of each is that."""

    @property
    def _random(self) -> Random:
        return self.host.network.random

    @property
    def _now(self) -> int:
        return self.host.now

    # ------------------------------------------------------------------------------ coming and going

    def start(self) -> None:
        """Begins under a version of its own, from what was durable."""
        self._begin()
        self.change(lambda _filters: None)
        self._keep_time()

    def resume(self) -> None:
        """Begins under the version that was durable."""
        self._begin()
        self._announced_in = self.host.process
        self.introduce()
        self._keep_time()

    def _begin(self) -> None:
        self._writing = False
        for following in self.streams.values():
            self._roll_back(following)

    def _keep_time(self) -> None:
        for every, action in (
            (POLL_EVERY, self._poll),
            (REPORT_EVERY, self._report_all),
            (REPEAT_EVERY, self._repeat),
        ):
            self.host.later(every, partial(self._again, every, action))

    def _again(self, every: int, action: Callable[[], None]) -> None:
        action()
        self.host.later(every, partial(self._again, every, action))

    def crash(self) -> None:
        """What was not durable is gone; `start` sees to it."""

    def _roll_back(self, following: Following) -> None:
        following.head = head = following.delivered
        following.stream = KnowledgeStream(following.meta.pubend, head)
        following.curiosity = CuriosityStream(TIMES)
        following.readings.clear()
        following.required = [(tick, version) for tick, version in following.required if tick < head]
        following.received = [tick for tick in following.received if tick <= head]
        following.moved_at = self._now

    def introduce(self) -> None:
        """Says the whole interest."""
        if self.version:
            self.host.tell(Interest(self.shb, 0, self.version, unchanging(self.filters), full=True))

    def change(self, edit: Callable[[dict[int, Filter]], None]) -> None:
        """Changes the interest: a new version, announced when it is durable."""
        if self._writing:
            return
        self._writing = True
        filters = dict(self.filters)
        edit(filters)

        def durable() -> None:
            self._writing = False
            self._announce(filters)

        self.host.later(self._random.randrange(1, 10) * MS, durable)

    def _announce(self, filters: dict[int, Filter]) -> None:
        before, self.filters = self.filters, filters
        self.version += 1
        self.versions[self.version] = tuple(filters.values())
        for following in self.streams.values():
            following.required.append((following.head, self.version))
        if self._announced_in == self.host.process:
            add = unchanging({sid: wanted for sid, wanted in filters.items() if before.get(sid) != wanted})
            drop = frozenset(sid for sid in before if sid not in filters)
            self.host.tell(Interest(self.shb, self.version - 1, self.version, add, drop))
        else:
            self._announced_in = self.host.process
            self.introduce()
        for following in self.streams.values():
            self._advance(following)

    # ------------------------------------------------------------------------------ what the router says

    def attend(self, effect: Effect) -> None:
        """What routers say to an SHB."""
        if isinstance(effect, routing.Know):
            self._deliver(effect.knowledge)
        elif isinstance(effect, routing.Seen):
            self._see(effect)
        elif isinstance(effect, routing.AskInterest):
            self.host.later(0, self.introduce)
        elif isinstance(effect, routing.Held) and effect.pubend in self.streams:
            following = self.streams[effect.pubend]
            following.held = max(following.held, effect.version)
        elif isinstance(effect, routing.Probe) and effect.pubend in self.streams:
            following = self.streams[effect.pubend]
            following.probed = max(following.probed, effect.upto)
            self._aim(following, effect.upto)

    def _see(self, seen: routing.Seen) -> None:
        following = self.streams.get(seen.meta.pubend)
        if seen.enrolled_at is not None:
            self.seen[seen.meta.pubend] = self._now
        if following is None:
            if seen.enrolled_at is None:
                return
            at = seen.enrolled_at
            stream = KnowledgeStream(seen.meta.pubend, at)
            following = Following(seen.meta, at, at, stream, delivered=at, released=at, moved_at=self._now)
            following.required.append((at, self.version))
            self.streams[seen.meta.pubend] = following
        following.read_only |= seen.meta.read_only
        self._aim(following, seen.meta.stable)

    def _deliver(self, knowledge: Knowledge) -> None:
        following = self.streams.get(knowledge.pubend)
        if following is None:
            return
        following.stream.accumulate(knowledge)
        following.curiosity.clear(((knowledge.lo, knowledge.hi),), knowledge.stamp)
        for reading in following.readings:
            reading.take(knowledge)
        following.readings = [reading for reading in following.readings if not reading.done]
        self._advance(following)

    def _need(self) -> Stamp:
        return {self.shb: self.version}

    def _aim(self, following: Following, upto: Tick) -> None:
        """The pubend is decided up to here: what is missing is asked for."""
        following.target = max(following.target, upto)
        self._advance(following)

    def _advance(self, following: Following) -> None:
        stream, head = following.stream, following.head
        horizon = stream.horizon(head, self._need())
        if horizon > head:
            self._pass(following, horizon)
        ahead = max(stream.known_upto, following.target)
        if following.head < ahead:
            missing = stream.unknown(following.head, ahead, self._need())
            following.curiosity.add(missing, self._need(), self._now)

    def _pass(self, following: Following, horizon: Tick) -> None:
        stream, pubend = following.stream, following.meta.pubend
        lost = stream.lost_in(following.head, horizon, self._need())
        if lost:
            what = f"{pubend} gave up {lost} before {self.shb} was done with it"
            raise ContractError(Clause.MINIMA, what, self.host.name, self._now)
        batch = stream.take(following.head, horizon)
        for place, tick in enumerate(batch.ticks):
            event = batch.event(pubend, place)
            if any(matches(wanted, event) for wanted in self.filters.values()):
                following.received.append(tick)
        following.head = horizon
        following.moved_at = self._now
        stream.trim(horizon)
        following.curiosity.trim(horizon)

    # ------------------------------------------------------------------------------ what it says

    def _poll(self) -> None:
        """Asks for what is due."""
        for pubend, following in self.streams.items():
            if self._now - following.moved_at >= STALLED_AFTER:
                following.moved_at = self._now
                following.curiosity.add(((following.head, FOREVER),), self._need(), self._now, urgent=True)
            curiosities = [following.curiosity, *(reading.curiosity for reading in following.readings)]
            for ranges, need, again in [due for curiosity in curiosities for due in curiosity.due(self._now)]:
                if self.asks:
                    self.host.tell(Want(pubend, ranges, need, self.shb, again))

    def _repeat(self) -> None:
        """Says the version again, and holds that were not answered."""
        if self.version:
            self.host.tell(Interest(self.shb, self.version, self.version, {}))
        for following in self.streams.values():
            if following.row is not None and following.held < following.row.version:
                self.host.tell(following.row)

    def _report_all(self) -> None:
        for following in self.streams.values():
            moved = following.head > following.delivered
            if moved or self._now - following.reported_at > 3 * SECOND:
                following.reported_at = self._now
                self._report(following, following.head)

    def _report(self, following: Following, head: Tick) -> None:
        """Makes durable how far it is, and then says so."""
        released = max(following.released, head - self._random.choice(LAGS))
        if self.frozen:
            released = following.released

        def durable() -> None:
            following.delivered = max(following.delivered, head)
            following.released = max(following.released, released)
            pubend = following.meta.pubend
            self.host.tell(Progress(self.shb, pubend, following.released, following.delivered))

        self.host.later(self._random.randrange(1, 10) * MS, durable)

    def hold(self, following: Following) -> None:
        """Needs everything kept that it has not released."""
        version = following.row.version + 1 if following.row else 1
        at = {} if version % 3 == 0 else {1: following.released}
        following.row = Hold(self.shb, following.meta.pubend, version, unchanging(at))
        self.host.tell(following.row)

    def read(self, following: Following, behind: Tick, need: Stamp = RAW) -> None:
        """Asks for an interval again; `need`: what its silence has to honour."""
        lo, hi = max(following.start, following.head - behind), following.head
        if lo < hi:
            following.readings.append(Reread(following.meta.pubend, lo, hi, self._now, need))

    # ------------------------------------------------------------------------------ what it should have

    def version_at(self, following: Following, tick: Tick) -> int:
        """Which version of the interest served a tick."""
        return max((version for start, version in following.required if start < tick), default=0)
