"""A stand-in for a PHB: one pubend with its log, as honest as the real one and a hundred times simpler."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from random import Random

from gapless.core.network import facts as routing
from gapless.core.network.facts import Held, Hold, OpenRequest, Outcome, Pub, PubendMeta, Verdict, Want
from gapless.core.network.release import Minima
from gapless.core.network.seam import Effect
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, STEP, PubendId, ShbId, Tick
from gapless.core.wire.messages import TickRun
from gapless_testing.routing.faults import MS, SECOND
from gapless_testing.routing.network import BrokerHost, unchanging

SILENCE_EVERY = SECOND
TOPICS = ("fish", "fowl.*", "meat", "nobody.#")
"""What it may carry."""
CHUNK = 50
"""The most events in one answer."""


def tick_at(now: int) -> Tick:
    """The present as a tick. All brokers have the same clock, which is also their wall clock."""
    return now * MILLISECOND // MS


@dataclass
class LoggedPublisher:
    """What the log knows of a publisher, durably."""

    epoch: int = 0
    last: int = 0
    ticks: dict[int, tuple[TickRun, ...]] = field(default_factory=dict)
    """Per first sequence of a batch, its ticks."""


@dataclass
class Pending:
    """Assigned, and not yet durable."""

    batch: EventBatch
    then: Callable[[], None]


class PublishingStandIn:
    """One pubend at one broker."""

    def __init__(self, host: BrokerHost, pubend: PubendId, number: int = 0) -> None:
        """`number`: the residue of its ticks."""
        self.host = host
        self.pubend = pubend
        self.number = number
        self.stable: Tick = tick_at(host.now)
        self.created = self.stable
        self.lost: Tick = 0
        self.members: dict[ShbId, Tick] = {}
        self.minima = Minima(0, 0)
        self.read_only = False
        self.damaged: tuple[Tick, Tick] = (0, 0)
        """What of its log cannot be read any more, and was given up."""
        self.gives_up = True
        """Whether it chops what is released."""
        self.ticks: list[Tick] = []
        """Of every event it ever logged."""
        self._events: dict[Tick, tuple[bytes, int]] = {}
        self._first_kept = 0
        self._last = self.stable
        self._pending: list[Pending] = []
        self._joining: dict[ShbId, tuple[Tick, int]] = {}
        """From where, and when the router was told (0: not yet)."""
        self._holds: dict[ShbId, Hold] = {}
        self._publishers: dict[str, LoggedPublisher] = {}
        self._waiting: dict[tuple[str, int], list[Hashable]] = {}
        """Who waits for a batch that is not durable yet."""

    @property
    def _random(self) -> Random:
        return self.host.network.random

    @property
    def meta(self) -> PubendMeta:
        """What it is."""
        return PubendMeta(
            self.pubend,
            self.host.name,
            TOPICS,
            created=self.created,
            read_only=self.read_only,
            voids=((1, 2),),
            stable=self.stable,
            residue=self.number,
            reach=self.stable,
        )

    # ------------------------------------------------------------------------------ coming and going

    def start(self) -> None:
        """Opens the pubend."""
        self._last = max(self._last, self.stable)
        self.introduce()
        self.host.later(SILENCE_EVERY, self._on_silence)

    def crash(self) -> None:
        """What was pending was never logged; who was joining asks again."""
        self._pending.clear()
        self._waiting.clear()
        self._joining.clear()

    def introduce(self) -> None:
        """Hands the membership over."""
        self.host.tell(routing.Opened(self.meta, unchanging(self.members)))

    def attend(self, effect: Effect) -> None:
        """What the router asks of a PHB."""
        if isinstance(effect, routing.AskPubend) and effect.want.pubend == self.pubend:
            self._soon(lambda: self._answer(effect.want, effect.reply_to))
        elif isinstance(effect, routing.Enrol) and effect.pubend == self.pubend:
            self._enrol(effect.shb)
        elif isinstance(effect, routing.Hold) and effect.pubend == self.pubend:
            self._hold(effect)
        elif isinstance(effect, routing.Released) and effect.pubend == self.pubend:
            self._release(effect)
        elif isinstance(effect, routing.Submit) and self._takes(effect.pub.pubend):
            self._submit(effect.pub, effect.reply_to)
        elif isinstance(effect, routing.SubmitOpen) and self._takes(effect.request.pubend):
            self._soon(lambda: self._open(effect.request, effect.reply_to))

    def _takes(self, pubend: PubendId) -> bool:
        """Whether it answers a publisher: of a pubend that is not here, and of none, the first of its broker does."""
        here = [stand_in.pubend for stand_in in self.host.stand_ins if isinstance(stand_in, PublishingStandIn)]
        return pubend == self.pubend or (pubend not in here and self.pubend == here[0])

    def _soon(self, action: Callable[[], None]) -> None:
        """After a write, or a read, of a few milliseconds."""
        self.host.later(self._random.randrange(1, 15) * MS, action)

    # ------------------------------------------------------------------------------ the log

    def publish(self, events: EventColumns, then: Callable[[], None] | None = None) -> Sequence[Tick]:
        """Logs a batch and tells it; `then` is called when it is durable."""
        first = max(tick_at(self.host.now), self._last + 1)
        first += (self.number - first) % STEP
        ticks = range(first, first + STEP * events.count, STEP)
        self._last = ticks[-1]
        self._pending.append(Pending(events.batch(ticks), then or (lambda: None)))
        if len(self._pending) == 1:
            self._soon(self._commit)
        return ticks

    def _commit(self) -> None:
        landed, self._pending = self._pending, []
        if not landed:
            return
        data = EventBatch.concatenate([pending.batch for pending in landed])
        for tick, event, body in zip(data.ticks, data.events, data.body_lengths, strict=True):
            self.ticks.append(tick)
            self._events[tick] = event, body
        self._say(data.ticks[-1], data)
        for pending in landed:
            pending.then()

    def promise(self) -> None:
        """Tells silence up to now, if nothing is pending."""
        upto = tick_at(self.host.now)
        if not self._pending and not self.read_only and upto > self.stable:
            self._last = max(self._last, upto)
            self._say(upto, EMPTY)

    def _say(self, upto: Tick, data: EventBatch) -> None:
        lo, self.stable = self.stable, upto
        self.host.tell(routing.Know(Knowledge(self.pubend, lo, upto, data, self.lost), None))

    def _on_silence(self) -> None:
        self.promise()
        self._chop()
        self.host.later(SILENCE_EVERY, self._on_silence)

    def _answer(self, want: Want, reply_to: Hashable) -> None:
        if want.ranges and want.ranges[-1][1] > self.stable:
            self.promise()
        for lo, hi in want.ranges:
            end, (damaged, mended) = min(hi, self.stable), self.damaged
            self._reply_all(lo, min(end, damaged), reply_to)
            self._reply_damage(max(lo, damaged), min(end, mended), reply_to)
            self._reply_all(max(lo, mended), end, reply_to)

    def _reply_all(self, lo: Tick, hi: Tick, reply_to: Hashable) -> None:
        while lo < hi:
            lo = self._reply(lo, hi, reply_to)

    def _reply_damage(self, lo: Tick, hi: Tick, reply_to: Hashable) -> None:
        if lo < hi:
            self.host.tell(routing.Know(Knowledge.of_damage(self.pubend, lo, hi, self.lost), reply_to))

    def _reply(self, lo: Tick, hi: Tick, reply_to: Hashable) -> Tick:
        """One chunk of an answer; returns where it ends."""
        first = max(bisect_right(self.ticks, lo), self._first_kept)
        ticks = self.ticks[first : min(first + CHUNK, bisect_right(self.ticks, hi))]
        end = ticks[-1] if len(ticks) == CHUNK else hi
        events = [self._events[tick] for tick in ticks]
        data = EventBatch(ticks, [event for event, _ in events], [body for _, body in events]) if ticks else EMPTY
        self.host.tell(routing.Know(Knowledge(self.pubend, lo, end, data, self.lost, reply=True), reply_to))
        return end

    def probe(self) -> None:
        """Asks who has not acknowledged the newest event."""
        if self.ticks:
            self.host.tell(routing.Probe(self.pubend, self.ticks[-1]))

    # ------------------------------------------------------------------------------ who counts

    def _enrol(self, shb: ShbId) -> None:
        if shb in self.members:
            self.host.later(0, lambda: self._say_enrolled(shb))
        elif shb not in self._joining:
            at = max(self.stable, self.lost)
            self._joining[shb] = at, 0
            self._soon(lambda: self._enrolled(shb, at))

    def _enrolled(self, shb: ShbId, at: Tick) -> None:
        if shb in self._joining:
            self.members[shb] = at
            self._joining[shb] = at, self.host.now
            self._say_enrolled(shb)

    def _say_enrolled(self, shb: ShbId) -> None:
        at = self.members.get(shb)
        if at is not None:
            self.host.tell(routing.Enrolled(self.pubend, shb, at))

    def _hold(self, row: Hold) -> None:
        known = self._holds.get(row.shb)
        if known is None or known.version < row.version:
            raised = {sid: max(tick, self.lost) for sid, tick in row.at.items()}
            known = self._holds[row.shb] = Hold(row.shb, row.pubend, row.version, unchanging(raised))
        if known.version == row.version:
            held = Held(row.shb, self.pubend, known.version, known.at, self.stable)
            self._soon(lambda: self.host.tell(held))

    def _release(self, said: routing.Released) -> None:
        """The minima count who joined when they are said later than that (never in the same moment)."""
        now = self.host.now
        self._joining = {shb: (at, told) for shb, (at, told) in self._joining.items() if not 0 < told < now}
        bound = min((at for at, _ in self._joining.values()), default=self.stable)
        delivered = max(self.minima.delivered, min(said.delivered, bound))
        self.minima = Minima(max(self.minima.released, min(said.released, delivered)), delivered)

    def _chop(self) -> None:
        if not self.gives_up or not self.members:
            return
        held = min((tick for row in self._holds.values() for tick in row.at.values()), default=self.stable)
        upto = min(self.minima.released, held)
        if upto > self.lost:
            self.lost = upto
            self._first_kept = bisect_right(self.ticks, upto)
            for tick in self.ticks[: self._first_kept]:
                self._events.pop(tick, None)

    # ------------------------------------------------------------------------------ publishers

    def _open(self, request: OpenRequest, reply_to: Hashable) -> None:
        if request.pubend not in ("", self.pubend):
            self._submitted(reply_to, request.pubend, Outcome(Verdict.REJECTED, "there is no such pubend here"))
            return
        row = self._publishers.setdefault(request.publisher, LoggedPublisher())
        if request.ending is None and not request.keyed:
            row.epoch += 1
        self._submitted(reply_to, self.pubend, Outcome(Verdict.OK, sequence=row.last, epoch=row.epoch))

    def _submit(self, pub: Pub, reply_to: Hashable) -> None:
        row = self._publishers.get(pub.publisher, LoggedPublisher())
        waiting = self._waiting.get((pub.publisher, pub.first))
        if waiting is not None:
            waiting.append(reply_to)
            return
        if pub.pubend != self.pubend:
            outcome = Outcome(Verdict.REJECTED, "there is no such pubend here", pub.first)
        elif pub.epoch != row.epoch:
            outcome = Outcome(Verdict.FENCED, sequence=row.last + 1, epoch=row.epoch)
        elif pub.first != row.last + 1 and pub.first not in row.ticks:
            outcome = Outcome(Verdict.RESUME, sequence=row.last + 1)
        elif pub.first <= row.last:
            outcome = Outcome(Verdict.OK, sequence=row.last, ticks=row.ticks[pub.first])
        else:
            self._log(pub, row, reply_to)
            return
        self._soon(lambda: self._submitted(reply_to, pub.pubend, outcome))

    def _log(self, pub: Pub, row: LoggedPublisher, reply_to: Hashable) -> None:
        waiting = self._waiting[pub.publisher, pub.first] = [reply_to]

        def durable() -> None:
            del self._waiting[pub.publisher, pub.first]
            row.last = pub.first + pub.events.count - 1
            row.ticks[pub.first] = runs
            for address in waiting:
                self._submitted(address, self.pubend, Outcome(Verdict.OK, sequence=row.last, ticks=runs))

        ticks = self.publish(pub.events, durable)
        runs = (TickRun(ticks[0], STEP, len(ticks)),)

    def _submitted(self, reply_to: Hashable, pubend: PubendId, outcome: Outcome) -> None:
        self.host.tell(routing.Submitted(reply_to, pubend, outcome))
