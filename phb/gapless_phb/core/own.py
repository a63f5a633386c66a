"""A pubend whose ticks this broker gives out itself: a clock, reserved ticks, and publishers (protocol: log).

It takes batches in, has them logged, tells what is durable with the silence between, and answers the publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from gapless.core.gauges import Gauge
from gapless.core.network.facts import OpenRequest, Outcome, Pub, Submitted, Verdict
from gapless.core.outbox import Then
from gapless.core.stream.ticks import SECOND, Tick
from gapless_phb.core import gauges, source
from gapless_phb.core.checkpoints import Checkpoints
from gapless_phb.core.clock import TickClock
from gapless_phb.core.keyed import Keyed, logged_name
from gapless_phb.core.log import Log
from gapless_phb.core.publish_handler import PublishHandler
from gapless_phb.core.recovery import Recovered
from gapless_phb.core.source import PubendContext, Timer, Timers
from gapless_phb.core.validation import BatchCheck


class Own:
    """Wires its parts: the publish handler takes batches, the log keeps them (a `gapless_phb.core.source.Source`)."""

    def __init__(
        self,
        context: PubendContext,
        recovered: Recovered,
        timers: Timers,
        *,
        sealed: bool,
        now: int,
        wall: int,
    ) -> None:
        """As recovery found or made it. `sealed`: not configured, so closed to new publishers."""
        saved, settings, outbox = recovered.saved, context.settings, context.outbox
        self._outbox = outbox
        self._timers = timers
        self._last = recovered.last
        self._is_new = recovered.is_new
        doubt = round(settings.clock_doubt_seconds * source.SECOND)
        self.clock = TickClock(saved.number, recovered.last, recovered.certain(wall), doubt, now, wall)
        reservation_span = round(settings.lease_seconds * SECOND)
        self.log = Log(
            context.network, saved.row.pubend, context.tables, saved.number, self.clock, outbox, reservation_span
        )
        self.log.recover(recovered.newest, saved.lost, saved.reserved, recovered.index, recovered.damage)
        self.on_grown: Callable[[int], None] = _nobody
        self._publishers = recovered.table
        self._publishers.begin(now)
        self._checkpoints = Checkpoints(saved.number, self.log, self._publishers, outbox, settings)
        self._checkpoints.recover(saved.checkpoint)
        check = BatchCheck(saved.row.topics, settings.max_event_bytes, context.authorizer)
        self._publishing = PublishHandler(
            saved.number,
            self.log,
            self._publishers,
            self._checkpoints,
            check,
            outbox,
            settings,
            self._on_appended,
            sealed=sealed,
        )
        self._keyed = Keyed(
            saved.number,
            saved.keyed,
            self.log,
            self._publishers,
            self._publishing,
            check,
            outbox,
        )
        self._silence_every = round(settings.silence_seconds * source.SECOND)
        timers.on(Timer.SILENCE, self._on_silence)
        timers.on(Timer.FORGETTING, lambda now, _wall: self._forget_gone(now))

    # ------------------------------------------------------------------------------------------- beginning

    def void(self, now: int, wall: int) -> tuple[Tick, Tick] | None:
        """The time between the last tick that could have been used and the present, unless it is new."""
        time = self.clock.read(now, wall)
        return (self._last, time - 1) if not self._is_new and time - 1 > self._last else None

    def begin(self, ready: Then, now: int, wall: int) -> None:
        """Adopts what recovery found, under a fresh reservation; `ready` is called when that is durable."""
        self.log.begin(self._last, self.clock.read(now, wall), ready)

    def start(self, now: int, wall: int) -> None:
        """The network knows of the pubend: says silence up to the present, and goes on doing so."""
        self.log.promise(now, wall)
        self._timers.wake(Timer.SILENCE, now + self._silence_every)
        self._forget_gone(now)

    # ------------------------------------------------------------------------------------------ publishing

    @property
    def publisher_count(self) -> int:
        """How many publishers are known."""
        return len(self._publishers)

    def knows(self, publisher: str, *, keyed: bool) -> bool:
        """Whether a publisher, or a producer of keyed batches, has published here."""
        return self._publishers.get(logged_name(publisher) if keyed else publisher) is not None

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """A publisher is opened here, unless nobody can publish because the log is damaged."""
        if self.log.damage.refusal:
            outcome = Outcome(Verdict.REJECTED, self.log.damage.refusal)
            self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))
        elif request.keyed:
            self._keyed.open(request, reply_to)
        else:
            self._publishing.open(request, reply_to, now, wall)

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """A publisher sent a batch; `refusal`: why nothing new can be taken now, or ""."""
        outcome: Outcome | None
        if self.log.damage.refusal:  # it may have been logged where nothing can be read
            outcome = Outcome(Verdict.UNCERTAIN, self.log.damage.refusal)
        else:
            taker = self._keyed if pub.keyed else self._publishing
            outcome = taker.take(pub, reply_to, refusal, now, wall)
        if outcome is not None:
            self._outbox.emit(Submitted(reply_to, self.log.pubend, outcome))

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """A publisher is closed, or its session has ended."""
        if self.log.damage.refusal:  # nothing is written of publishers now: it will be forgotten when its time has come
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

    # ---------------------------------------------------------------------- durable, then told, then receipted

    def _on_appended(self, indices: Sequence[Tick], now: int, _wall: int) -> None:
        """The log has these records, durably: only now may anybody hear of what is in them.

        They are announced at the end of the turn, as one piece with all others that the log has by then.
        """
        if not self.log.untold:
            self._outbox.before_take(self.announce_durable)
            self.on_grown(now)
        for batch in self.log.appended(indices, now):
            self._publishers.on_durable(batch)
            if batch.publisher.closed:
                self._publishing.forget(batch.publisher)

    def announce_durable(self) -> None:
        """Tells the network what is durable and not yet told; then gives the publishers their receipts.

        Nothing else tells an event for the first time, and nothing else gives a receipt for one: before the log has
        answered there is nothing here to tell.
        """
        for batch in self.log.announce():
            self._publishing.acknowledge(batch)
        if self._checkpoints.is_due:
            self._checkpoints.begin(_nothing)

    # --------------------------------------------------------------------------------------------- silence

    def promise(self, now: int, wall: int) -> None:
        """Decides and tells silence up to the present, if nothing is on its way."""
        self.announce_durable()
        self.log.promise(now, wall)

    def _on_silence(self, now: int, wall: int) -> None:
        """Says silence if nothing was said for that long; what is pending will speak for itself."""
        if now >= self.log.said_at + self._silence_every:
            self.promise(now, wall)
        due = self.log.said_at + self._silence_every
        self._timers.wake(Timer.SILENCE, due if due > now else now + self._silence_every)

    # ------------------------------------------------------------------------------------------- giving up

    def present(self, now: int, wall: int) -> Tick:
        """The present by which events grow old."""
        self.clock.read(now, wall)
        return self.clock.aged

    def give_up(self, upto: Tick, again: Callable[[int], None]) -> None:
        """Chops what may go, if that is anything, behind a checkpoint of the publishers (T21)."""
        if self.log.damage.refusal:  # what is known of publishers is not to be written: up to there it was
            upto = min(upto, self._checkpoints.tick)
        if not self.log.has_something(upto):
            return
        if self._checkpoints.tick < min(upto, self.log.newest):
            self._checkpoints.begin(lambda now, _wall: again(now))
        else:
            self.log.chop(upto)

    # ---------------------------------------------------------------------------------------------- looking

    def gauges(self) -> Iterator[Gauge]:
        """Its positions and sizes, its publishers, and its clock."""
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
        yield gauges.DAMAGED_RANGES.gauge(len(log.damage.listing(log.lost)), name)
        yield gauges.REFUSING.gauge(bool(log.damage.refusal), name)
        yield gauges.CLOCK_SUSPECT.gauge(clock.suspect, name)
        yield gauges.CLOCK_DOUBTFUL.gauge(clock.doubtful, name)
        yield gauges.CLOCK_AHEAD.gauge(max(0.0, clock.ahead / SECOND), name)


def _nothing(_now: int, _wall: int) -> None:
    """Nobody waits for it."""


def _nobody(_now: int) -> None:
    """Nobody listens yet."""
