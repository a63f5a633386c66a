"""A pubend whose ticks this broker assigns itself: a clock, reserved ticks, and publishers (protocol: log).

It takes batches, has them logged, sends what is durable (with the silence between) to the network, and sends the
publishers their receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from gapless.core.gauges import Gauge
from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.outbox import Then
from gapless.core.stream.ticks import MILLISECOND, SECOND, Tick, tick_at
from gapless.core.traces import Sampler, logged
from gapless_phb.core import gauges, source
from gapless_phb.core.own_log.clock import TickClock
from gapless_phb.core.own_log.log import Log
from gapless_phb.core.own_log.recovery import Recovered
from gapless_phb.core.publishers.checkpoints import Checkpoints
from gapless_phb.core.publishers.consumed import ClaimedPositions
from gapless_phb.core.publishers.handler import PublishHandler
from gapless_phb.core.publishers.keyed import Keyed, logged_name
from gapless_phb.core.publishers.published import Published
from gapless_phb.core.publishers.validation import BatchCheck
from gapless_phb.core.source import PubendContext, Timer, Timers

ASKING = 2 * source.SECOND
"""So long publishers wait when it has turned out that another process has logged events here, in nanoseconds."""


class OwnLogSource:
    """Wires the parts of such a pubend: the publish handler takes batches, the log keeps them.

    It is a `gapless_phb.core.source.Source`.
    """

    def __init__(
        self,
        context: PubendContext,
        recovered: Recovered,
        timers: Timers,
        silence_seconds: float,
        *,
        read_only: bool,
        now: int,
        wall: int,
    ) -> None:
        """Begins with what recovery found or created.

        `silence_seconds`: how soon silence is sent while nothing is published. `read_only`: not configured, so closed
        to new publishers.
        """
        saved, settings, outbox = recovered.saved, context.settings, context.outbox
        self._outbox = outbox
        self._published = Published(context.publish_seconds)
        self._traced = Sampler(context.traces, MILLISECOND)
        self._timers = timers
        self._last = recovered.last
        self._is_new = recovered.is_new
        self._asking_until = now
        """Until then nothing is logged: SHBs say up to where another process of this node has told them something."""
        doubt = round(settings.clock_doubt_seconds * source.SECOND)
        self.clock = TickClock(saved.number, recovered.last, recovered.age(wall), context.boot, doubt, now, wall)
        reservation_span = round(settings.reservation_seconds * SECOND)
        self.log = Log(
            context.network,
            saved.row.pubend,
            context.tables,
            saved.number,
            self.clock,
            outbox,
            reservation_span,
            durable=recovered.durable,
        )
        self.log.recover(recovered.newest, saved.lost, saved.reserved, recovered.index, recovered.damage)
        self.on_grown: Callable[[int], None] = _nobody
        self._publishers = recovered.table
        self._publishers.begin(now)
        self._checkpoints = Checkpoints(saved.number, self.log, self._publishers, outbox, settings)
        self._checkpoints.recover(saved.checkpoint)
        self._claims = ClaimedPositions(saved.number, context.tables.consumed, saved.consumed, outbox)
        check = BatchCheck(saved.row.topics, settings.topics_of_logs, settings.max_event_bytes, context.authorizer)
        self._publishing = PublishHandler(
            saved.number,
            self.log,
            self._publishers,
            self._checkpoints,
            check,
            self._claims,
            outbox,
            settings,
            self._on_appended,
            read_only=read_only,
            audited=context.audited,
        )
        self._publishing.ran_twice = bool(saved.row.forks)
        self._keyed = Keyed(
            saved.number,
            saved.keyed,
            self.log,
            self._publishers,
            self._publishing,
            check,
            outbox,
        )
        self._silence_every = round(silence_seconds * source.SECOND)
        timers.on(Timer.SILENCE, self._on_silence)
        timers.on(Timer.FORGETTING, lambda now, _wall: self._forget_gone(now))

    # ------------------------------------------------------------------------------------------- beginning

    def void(self, now: int, wall: int) -> tuple[Tick, Tick] | None:
        """Returns the interval between the last tick that could have been used and the present; None if it is new."""
        time = self.clock.read(now, wall)
        return (self._last, time - 1) if not self._is_new and time - 1 > self._last else None

    def fork(self, upto: Tick, now: int, wall: int) -> Sequence[tuple[Tick, Tick]]:
        """Another process of this node may have logged events: gives up where. A new pubend is this process's alone.

        Publishers wait for a moment, in which SHBs that were told more by the other process ask for what follows that.
        """
        if self._is_new:
            return ()
        self._asking_until = now + ASKING
        self._publishing.ran_twice = True
        return self.log.fork(upto, now, wall)

    def begin(self, ready: Then, now: int, wall: int) -> None:
        """Makes a fresh reservation durable, and with it what recovery found; then calls `ready`."""
        self.log.begin(self._last, self.clock.read(now, wall), ready)

    def start(self, now: int, wall: int) -> None:
        """The network knows the pubend now. Sends silence up to the present, and from now on at intervals."""
        self.log.promise(now, wall)
        self._timers.wake(Timer.SILENCE, now + self._silence_every)
        self._forget_gone(now)

    # ------------------------------------------------------------------------------------------ publishing

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""
        return len(self._publishers)

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published to this pubend."""
        return self._publishers.get(logged_name(publisher) if keyed else publisher) is not None

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """Opens a publisher. Refuses it while the log is damaged, because then nothing can be published."""
        if self.log.damage.refusal:
            outcome = Outcome(Verdict.REJECTED, self.log.damage.refusal)
            self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))
        elif request.claims:
            self._claim(request, reply_to)
        elif request.keyed:
            self._keyed.open(request, reply_to)
        else:
            self._publishing.open(request, reply_to, now, wall)

    def _claim(self, request: OpenRequest, reply_to: Hashable) -> None:
        """A home claims a subscription, or forgets it; it is answered when that is durable."""
        outcome = Outcome(Verdict.OK)

        def durable(_now: int, _wall: int) -> None:
            self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))

        if request.ending is None:
            outcome = self._claims.claim(request, durable)
        else:
            self._claims.forget(request.publisher, durable)

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """Takes a batch of a publisher. `refusal`: why nothing new can be taken now, or ""."""
        outcome: Outcome | None
        if self.log.damage.refusal:  # the batch may have been logged in the part that cannot be read
            outcome = Outcome(Verdict.UNCERTAIN, self.log.damage.refusal)
        else:
            if now < self._asking_until:
                refusal = refusal or "the broker is finding out what another process of it has told the network"
            taker = self._keyed if pub.keyed else self._publishing
            outcome = taker.take(pub, reply_to, refusal, now, wall)
        if outcome is not None:
            self._published.on_answer(outcome.verdict)
            self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """Closes a publisher, or notes that its session has ended."""
        if self.log.damage.refusal:  # no publisher's row is written now; it is forgotten when it expires
            self._outbox.emit(Submitted(reply_to, self.log.pubend, Outcome(Verdict.OK)))
            return
        self._publishing.end(request, reply_to, now)
        self._forget_gone(now)

    def _forget_gone(self, now: int) -> None:
        if self.log.damage.refusal:
            return
        due = self._publishing.forget_gone(now)
        if due is not None:
            self._timers.wake(Timer.FORGETTING, due)

    # ---------------------------------------------------------------------- durable, then sent, then receipted

    def _on_appended(self, indices: Sequence[Tick], now: int, _wall: int) -> None:
        """The log reports that these records are durable. Only from now on may their events be sent to anybody.

        They are announced at the end of the turn, as one piece with all others that become durable in the same turn.
        """
        if not self.log.untold:
            self._outbox.before_take(self.announce_durable)
            self.on_grown(now)
        for batch in self.log.appended(indices, now):
            self._publishers.on_durable(batch)
            self._published.on_logged(batch, now)
            if self._traced.chooses(batch.tick, batch.last_tick):
                self._outbox.emit(logged(self.log.pubend, batch.tick, batch.columns, batch.came, is_in_volume=True))
            # It was closed while this batch was on its way to the disk, and could not be forgotten then.
            if batch.publisher.closed:
                self._publishing.forget(batch.publisher)

    def announce_durable(self) -> None:
        """Sends what is newly durable to the network, then sends the publishers their receipts.

        No other function sends an event for the first time, and no other sends the first receipt for one. Before the
        log has answered, `untold` is empty and there is nothing to announce.
        """
        for batch in self.log.announce():
            self._publishing.acknowledge(batch)
        if self._checkpoints.is_due:
            self._checkpoints.begin(_nothing)

    # --------------------------------------------------------------------------------------------- silence

    def promise(self, now: int, wall: int) -> None:
        """Decides and sends silence up to the present, unless a batch is on its way to the disk."""
        self.announce_durable()
        self.log.promise(now, wall)

    def _on_silence(self, now: int, wall: int) -> None:
        """Sends silence if nothing was decided for one interval. A pending batch brings silence with it."""
        if now >= self.log.said_at + self._silence_every:
            self.promise(now, wall)
        due = self.log.said_at + self._silence_every
        self._timers.wake(Timer.SILENCE, due if due > now else now + self._silence_every)

    # ------------------------------------------------------------------------------------------- giving up

    def present(self, now: int, wall: int) -> Tick:
        """Returns the present by which events grow old."""
        self.clock.read(now, wall)
        return self.clock.aged

    def locate(self, wall: int, then: Callable[[Tick], None]) -> None:
        """Finds the tick behind which everything of a wall time and later lies: ticks are times here."""
        then(max(0, tick_at(wall) - 1))

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """Chops the log up to a tick, if that removes something. A checkpoint of the publishers goes first (T21).

        If the checkpoint has to be written before, `again` is called when it is durable, and nothing is chopped now.
        """
        if self.log.damage.refusal:  # no new checkpoint may be written: chop only what the last one covers
            upto = min(upto, self._checkpoints.tick)
        if not self.log.has_something(upto):
            return
        # The rows of publishers must cover all that goes: a recovery could not learn their sequences from the log any
        # more.
        if self._checkpoints.tick < min(upto, self.log.newest):
            self._checkpoints.begin(lambda now, _wall: again(now))
        else:
            self.log.chop(upto)

    # ---------------------------------------------------------------------------------------------- looking

    def gauges(self) -> Iterator[Gauge]:
        """Yields its positions and sizes, the number of its publishers, and the state of its clock."""
        log, clock, name = self.log, self.clock, self.log.pubend
        yield gauges.LOG_BYTES.gauge(log.index.size, name)
        yield gauges.LOST.gauge(log.lost, name)
        yield gauges.NEWEST.gauge(log.newest, name)
        yield gauges.STABLE.gauge(log.stable, name)
        yield gauges.RESERVED.gauge(log.reserved, name)
        yield gauges.PENDING_BATCHES.gauge(len(log.pending), name)
        yield gauges.PENDING_BYTES.gauge(log.pending_bytes, name)
        yield gauges.PUBLISHERS.gauge(len(self._publishers), name)
        yield gauges.UNNAMED_PUBLISHERS.gauge(self._publishers.unnamed, name)
        yield from self._published.gauges(name)
        yield gauges.DAMAGED_RANGES.gauge(len(log.damage.listing(log.lost)), name)
        yield gauges.REFUSING.gauge(bool(log.damage.refusal), name)
        yield gauges.CLOCK_SUSPECT.gauge(clock.suspect, name)
        yield gauges.CLOCK_DOUBTFUL.gauge(clock.doubtful, name)
        yield gauges.CLOCK_AHEAD.gauge(max(0.0, clock.ahead / SECOND), name)


def _nothing(_now: int, _wall: int) -> None:
    """Nothing is to be done when the checkpoint is durable."""


def _nobody(_now: int) -> None:
    """Nothing is to be done until a listener is set."""
