"""One pubend: an ordered stream of events, and all that this broker promises about it (algorithms.md 1.4)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from gapless.core import messages
from gapless.core.deadlines import Deadlines
from gapless.core.effects import Delete, Operation, Set
from gapless.core.keyed import is_keyed
from gapless.core.routing import (
    BrokerId,
    Enrolled,
    Held,
    HeldRow,
    HoldRow,
    Opened,
    OpenRequest,
    Outcome,
    Probe,
    Pub,
    PubendMeta,
    Ranges,
    Submitted,
    Verdict,
)
from gapless.core.ticks import FOREVER, SECOND, STEP, PubendId, ShbId, Tick
from gapless_phb.core import rows
from gapless_phb.core.answering import Answers
from gapless_phb.core.checkpoints import Checkpoints
from gapless_phb.core.clock import TickClock
from gapless_phb.core.intake import Intake
from gapless_phb.core.keyed import Keyed
from gapless_phb.core.log import Log
from gapless_phb.core.outbox import Outbox
from gapless_phb.core.publishers import Batch
from gapless_phb.core.recovery import Recovered
from gapless_phb.core.release import AckExpected, Release
from gapless_phb.core.settings import PubendSettings, Settings
from gapless_phb.core.validation import BatchCheck

_SECOND = 1_000_000_000
"""In nanoseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where pubends live: the same for all of a broker."""

    network: str
    broker: BrokerId
    settings: Settings
    outbox: Outbox


class Timer(Enum):
    """What a pubend does when time has passed."""

    SILENCE = "SIL: say that nothing happened"
    ACKNOWLEDGEMENT = "AET: ask for progress"
    RELEASE = "chop what may go"
    LEASE = "forget publishers without a name that do not come back"


class Pubend:
    """Wires its parts: the intake takes batches, the log keeps them, answers read it, the release ends it."""

    def __init__(
        self,
        place: Place,
        recovered: Recovered,
        options: PubendSettings,
        *,
        sealed: bool,
        now: int,
        wall: int,
    ) -> None:
        """A pubend as recovery found or made it. `sealed`: not configured, so closed to new publishers."""
        saved, settings, outbox = recovered.saved, place.settings, place.outbox
        self.pubend: PubendId = saved.row.pubend
        self.number = saved.number
        self.row = saved.row
        self.sealed = sealed
        self._is_new = recovered.is_new
        self._broker = place.broker
        self._settings = settings
        self._outbox = outbox
        self._last = recovered.last
        doubt = round(settings.clock_doubt_seconds * _SECOND)
        clock = TickClock(self.number, recovered.last, recovered.certain(wall), doubt, now, wall)
        lease_span = round(settings.lease_seconds * SECOND)
        self.log = Log(place.network, self.pubend, self.number, clock, outbox, lease_span)
        self.log.recover(recovered.newest, saved.lost, saved.lease, recovered.index, recovered.damage)
        self.log.on_landed = self._on_landed
        self.publishers = recovered.table
        self.publishers.begin(now)
        self.checkpoints = Checkpoints(self.number, self.log, self.publishers, outbox, settings)
        self.checkpoints.recover(saved.checkpoint)
        self.release = Release(options, self.log, saved.members, saved.holds)
        check = BatchCheck(saved.row.topics, settings.max_event_bytes)
        self.intake = Intake(
            self.number, self.log, self.publishers, self.checkpoints, check, outbox, settings, sealed=sealed
        )
        self.keyed = Keyed(
            self.number,
            saved.keyed,
            self.log,
            self.publishers,
            self.intake,
            check,
            outbox,
            sealed=sealed,
        )
        self._answers = Answers(self.log, outbox)
        self._ack_expected = AckExpected(
            round(settings.ack_expected_seconds * _SECOND), round(settings.ack_expected_seconds_max * _SECOND)
        )
        self._silence_every = round(settings.silence_seconds * _SECOND)
        self._release_every = round(settings.release_seconds * _SECOND)
        self._deadlines: Deadlines[Timer] = Deadlines()
        self._release_not_before = 0
        self._holds_durable = {shb: holds.version for shb, holds in saved.holds.items()}

    @property
    def meta(self) -> PubendMeta:
        """What the network is told of it."""
        row = self.row
        return PubendMeta(
            self.pubend,
            self._broker,
            row.topics,
            None,
            row.created,
            self.sealed,
            row.voids,
            self.log.stable,
            # A start by time stands at the last remainder, and is never to be taken for an event's place.
            self.number if self.number < STEP - 1 else None,
        )

    # ------------------------------------------------------------------------------------------- beginning

    def begin(self, now: int, wall: int) -> None:
        """Makes durable what is new, then opens the pubend to the network.

        The time between the last tick that could have been used and the present is void: no event can ever
        stand there. A token that stands at one all the same comes from data that this log has lost (U03).
        """
        time = self.log.clock.read(now, wall)
        if not self._is_new and time - 1 > self._last:
            voids = (*self.row.voids, (self._last, time - 1))[-self._settings.void_limit :]
            self.row = replace(self.row, voids=voids)
        operations: list[Operation] = [Set(rows.PUBENDS, rows.key(self.number), rows.encode(self.row))]
        if self._is_new:
            members = self.release.members.items()
            operations += [Set(rows.MEMBERS, rows.key(self.number, shb), rows.encode(at)) for shb, at in members]
        self._outbox.write(operations)
        self.log.begin(self._last, time, self._ready)

    def _ready(self, now: int, wall: int) -> None:
        self._open()
        self.log.promise(now, wall)
        self._wake(Timer.SILENCE, now + self._silence_every)
        self._wake(Timer.RELEASE, now + self._release_every)
        self._forget_gone(now)
        if self.log.newest:
            self._wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())

    def _open(self) -> None:
        self._outbox.emit(Opened(self.meta, dict(self.release.members)))

    # ------------------------------------------------------------------------------------------ publishing

    def open_publisher(self, request: OpenRequest, reply_to: Hashable, now: int, wall: int) -> None:
        """A publisher is opened here, unless nobody can publish because the log is damaged."""
        if self.log.damage.refusal:
            outcome = Outcome(Verdict.REJECTED, self.log.damage.refusal)
            self._outbox.emit(Submitted(reply_to, self.pubend, outcome))
        elif is_keyed(request.publisher):
            self.keyed.open(request, reply_to)
        else:
            self.intake.open(request, reply_to, now, wall)

    def submit(self, pub: Pub, reply_to: Hashable, refusal: str, now: int, wall: int) -> None:
        """A publisher sent a batch; `refusal`: why nothing new can be taken now, or ""."""
        if self.log.damage.refusal:  # it may have been logged where nothing can be read
            outcome = Outcome(Verdict.UNCERTAIN, self.log.damage.refusal)
            self._outbox.emit(Submitted(reply_to, self.pubend, outcome))
            return
        taker = self.keyed if is_keyed(pub.publisher) else self.intake
        taker.submit(pub, reply_to, refusal, now, wall)

    def end(self, request: OpenRequest, reply_to: Hashable, now: int) -> None:
        """A publisher is closed, or its session has ended."""
        if self.log.damage.refusal:  # nothing is written of publishers now: it will be forgotten when its time has come
            self._outbox.emit(Submitted(reply_to, self.pubend, Outcome(Verdict.OK)))
            return
        self.intake.end(request, reply_to, now)
        self._forget_gone(now)

    def _forget_gone(self, now: int) -> None:
        if self.log.damage.refusal:
            return
        due = self.intake.forget_gone(now)
        if due is not None:
            self._wake(Timer.LEASE, due)

    def _on_landed(self, batch: Batch, now: int) -> None:
        """A batch is durable: it is told, and acknowledged, with all others of the same turn."""
        self.publishers.land(batch)
        if batch.publisher.closed:
            self.intake.forget(batch.publisher)
        if len(self.log.unsettled) == 1:
            self._outbox.before_take(self._settle)
            self._wake(Timer.RELEASE, now + self._release_every)
            if Timer.ACKNOWLEDGEMENT not in self._deadlines:
                self._wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())

    def _settle(self) -> None:
        self.intake.acknowledge(self.log.settle())
        if self.checkpoints.is_due:
            self.checkpoints.begin(_nothing)

    def promise(self, now: int, wall: int) -> None:
        """Decides and tells silence up to the present, if nothing is on its way."""
        self._settle()
        self.log.promise(now, wall)

    # ----------------------------------------------------------------------------------------- what SHBs say

    def ask(self, ranges: Ranges, reply_to: Hashable, now: int, wall: int) -> None:
        """An SHB needs these ranges."""
        if not self.log.ready or not ranges:
            return
        if ranges[-1][1] > self.log.stable:
            self.promise(now, wall)
        self._answers.ask(ranges, reply_to)

    def enrol(self, shb: ShbId) -> None:
        """An SHB wants to be counted: answered when that is durable (1.4 Enrol)."""
        if not self.log.ready:
            return
        if shb in self.release.members:
            self._outbox.emit(Enrolled(self.pubend, shb, self.release.members[shb]))
        elif not self.release.is_member(shb):
            at = self.release.join(shb)

            def durable(now: int, _wall: int) -> None:
                if self.release.is_member(shb):  # it may have been retired again
                    self.release.enrolled(shb, now)
                    self._outbox.emit(Enrolled(self.pubend, shb, at))

            self._outbox.write([Set(rows.MEMBERS, rows.key(self.number, shb), rows.encode(at))], durable)

    def hold(self, row: HoldRow) -> None:
        """An SHB needs more kept than it reported: answered when its whole row is durable (1.4 Hold)."""
        known = self.release.holds.get(row.shb)
        if not self.log.ready or (known is not None and row.version < known.version):
            return
        if known is not None and row.version == known.version:
            if self._holds_durable.get(row.shb) == row.version:
                self._answer_hold(row.shb, known)
            return
        held = self.release.hold(row.shb, row.version, row.at)

        def durable(_now: int, _wall: int) -> None:
            self._holds_durable[row.shb] = held.version
            self._answer_hold(row.shb, held)

        key = rows.key(self.number, row.shb)
        self._outbox.write([Set(rows.HOLDS, key, rows.encode(held))], durable)

    def _answer_hold(self, shb: ShbId, held: rows.Holds) -> None:
        self._outbox.emit(HeldRow(shb, Held(self.pubend, held.version, held.at, self.log.stable)))

    def released(self, released: Tick, delivered: Tick, now: int) -> None:
        """The minima over all members (1.4 Released)."""
        before = self.release.delivered
        self.release.on_released(released, delivered, now)
        if self.release.delivered > before:
            self._deadlines.clear(Timer.ACKNOWLEDGEMENT)
            if self.log.newest > self.release.delivered:
                self._wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())
        self._wake(Timer.RELEASE, max(now, self._release_not_before))

    def on_space(self, now: int, *, low: bool) -> None:
        """The disk is nearly full, or no longer."""
        self.release.space_low = low
        if low:
            self._wake(Timer.RELEASE, max(now, self._release_not_before))

    def retire(self, shb: ShbId) -> None:
        """Gives an SHB up for good: the log no longer waits for it (T10)."""
        self.release.retire(shb)
        self._holds_durable.pop(shb, None)
        key = rows.key(self.number, shb)
        self._outbox.write([Delete(rows.MEMBERS, key), Delete(rows.HOLDS, key)], lambda _now, _wall: self._open())

    # ----------------------------------------------------------------------------------------------- timers

    @property
    def deadline(self) -> int:
        """When `on_deadline` wants to be called: monotonic nanoseconds, or FOREVER."""
        due = self._deadlines.next()
        return FOREVER if due is None else due

    def on_deadline(self, now: int, wall: int) -> None:
        """Does what is due."""
        for timer in self._deadlines.take_expired(now):
            if timer is Timer.SILENCE:
                self._on_silence(now, wall)
            elif timer is Timer.ACKNOWLEDGEMENT:
                self._on_ack_expected(now)
            elif timer is Timer.LEASE:
                self._forget_gone(now)
            else:
                self._on_release(now, wall)

    def _wake(self, timer: Timer, at: int) -> None:
        self._deadlines.set_earlier(timer, at)
        self._outbox.wake_at(at)

    def _on_silence(self, now: int, wall: int) -> None:
        """Says silence if nothing was said for that long; what is pending will speak for itself."""
        if now >= self.log.said_at + self._silence_every:
            self.promise(now, wall)
        due = self.log.said_at + self._silence_every
        self._wake(Timer.SILENCE, due if due > now else now + self._silence_every)

    def _on_ack_expected(self, now: int) -> None:
        """Asks the SHBs where they are, when one of them lacks an event for long (AET).

        What counts is what is delivered, not what is released: one subscriber that is away holds the latter
        back for days, and that is no reason to probe (T8).
        """
        if self.release.members and self.log.newest > self.release.delivered:
            self._outbox.emit(Probe(self.pubend, self.log.newest))
            self._wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.next())

    def _on_release(self, now: int, wall: int) -> None:
        """Chops what may go, at most once in `release_seconds`, after the publishers' checkpoint (T21)."""
        self._release_not_before = now + self._release_every
        self.log.clock.read(now, wall)
        upto = self.release.target(self.log.clock.aged)
        if self.log.damage.refusal:  # what is known of publishers is not to be written: up to there it was
            upto = min(upto, self.checkpoints.tick)
        if upto > self.log.lost_asked and self.release.has_something(upto):
            if self.checkpoints.tick < min(upto, self.log.newest):
                self.checkpoints.begin(lambda then, _wall: self._wake(Timer.RELEASE, then))
            else:
                self.log.chop(upto)
        if self.log.index.next(self.log.lost_asked) is not None:
            self._wake(Timer.RELEASE, self._release_not_before)

    # ---------------------------------------------------------------------------------------------- looking

    def listing(self) -> messages.PubendRow:
        """What ListPubends says of it."""
        return messages.PubendRow(
            self.pubend,
            self.row.topics,
            self.row.created,
            self.log.lost,
            self.log.newest,
            self.log.stable,
            self.release.released,
            self.log.index.size,
            len(self.publishers),
            tuple(self.release.members),
            self.release.delivered,
            self.log.index.above(self.release.needless),
            self.log.index.above(self.release.delivered),
            tuple((shb, at, self.log.index.above(at)) for shb, at in self.release.lowest_holds().items()),
            self.release.policy,
            tuple(self.log.damage.listing(self.log.lost)),
            self.log.damage.refusal,
        )

    def status(self) -> dict[str, object]:
        """What `gapless doctor` shows of it: positions are ticks, sizes bytes."""
        log, release = self.log, self.release
        holds = release.lowest_holds()
        return {
            "sealed": self.sealed,
            "log_bytes": log.index.size,
            "lost": log.lost,
            "newest": log.newest,
            "stable": log.stable,
            "lease": log.lease,
            "pending_batches": len(log.pending),
            "pending_bytes": log.pending_bytes,
            "publishers": len(self.publishers),
            "unnamed_publishers": self.publishers.unnamed,
            "members": dict(release.members),
            "released": release.released,
            "delivered": release.delivered,
            "unreleased_bytes": log.index.above(release.released),
            "holds": {shb: {"at": at, "bytes": log.index.above(at)} for shb, at in holds.items()},
            "reads": len(self._answers),
            "read_records": self._answers.read_records,
            "read_bytes": self._answers.read_bytes,
            "clock_suspect": log.clock.suspect,
            "damaged": log.damage.listing(log.lost),
            "publishing_refused": log.damage.refusal,
            "clock_doubtful": log.clock.doubtful,
            "clock_ahead_seconds": max(0.0, log.clock.ahead / SECOND),
        }


def _nothing(_now: int, _wall: int) -> None:
    """Nobody waits for it."""
