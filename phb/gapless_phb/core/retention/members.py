"""Who still needs the events of one pubend, and how far they may be given up (protocol: members, answers, release).

This half of a pubend is the same for every source of events; it reads the source's `gapless_phb.core.source.Facts`.
It counts members, keeps holds, answers wants, asks SHBs for progress, and lets the source chop its log.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial

from msgspec.structs import replace

from gapless.core.gauges import Gauge
from gapless.core.network.facts import Enrolled, Held, Hold, Probe
from gapless.core.outbox import Then
from gapless.core.ports import Delete, Operation, Set
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.ticks import ShbId, Tick
from gapless_phb.core import gauges, rows
from gapless_phb.core.retention.log_reader import LogReader
from gapless_phb.core.retention.release import Release
from gapless_phb.core.rows import SavedPubend
from gapless_phb.core.settings import PubendSettings
from gapless_phb.core.source import SECOND, PubendContext, Source, Timer, Timers


class Retention:
    """Enrols SHBs, keeps their holds, answers their wants, asks for progress, and has the source give up events."""

    def __init__(
        self, context: PubendContext, source: Source, saved: SavedPubend, options: PubendSettings, timers: Timers
    ) -> None:
        """Restores members and holds from their rows. Answers nothing before the source is ready."""
        settings = context.settings
        self.pubend = source.log.pubend
        self._number = saved.number
        self._tables = context.tables
        self._source = source
        self._log = source.log
        self._outbox = context.outbox
        self._timers = timers
        self.release = Release(options, source.log, saved.members, saved.holds)
        self._reader = LogReader(source.log, context.outbox)
        self._ack_expected = AckExpected(
            round(settings.ack_expected_seconds * SECOND), round(settings.ack_expected_seconds_max * SECOND)
        )
        self._release_every = round(settings.release_seconds * SECOND)
        self._release_not_before = 0
        self._holds_durable = {shb: holds.version for shb, holds in saved.holds.items()}
        self._locating: dict[ShbId, int] = {}
        """The versions of rows for which ticks are being found."""
        timers.on(Timer.ACKNOWLEDGEMENT, self._on_ack_expected)
        timers.on(Timer.RELEASE, self._on_release)
        source.on_grown = self._on_grown

    @property
    def members(self) -> list[Operation]:
        """The rows of the members that a new pubend counts from its beginning."""
        members = self.release.members.items()
        return [Set(self._tables.members, rows.key(self._number, shb), rows.encode(at)) for shb, at in members]

    def start(self, now: int) -> None:
        """The network knows the pubend now: starts the timers."""
        self._timers.wake(Timer.RELEASE, now + self._release_every)
        if self._log.newest:
            self._timers.wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())

    def _on_grown(self, now: int) -> None:
        self._timers.wake(Timer.RELEASE, now + self._release_every)
        if Timer.ACKNOWLEDGEMENT not in self._timers:
            self._timers.wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())

    # ---------------------------------------------------------------------------------------- messages of SHBs

    def ask(self, ranges: Ranges, reply_to: Hashable, now: int, wall: int) -> None:
        """An SHB needs these ranges: sends replies for all of them that is decided."""
        if not self._log.ready or not ranges:
            return
        # It asks for more than was sent. Perhaps more can be decided now, then the SHB need not wait for the timer.
        if ranges[-1][1] > self._log.stable:
            self._source.promise(now, wall)
        self._reader.ask(ranges, reply_to)

    def enrol(self, shb: ShbId) -> None:
        """An SHB asks to be counted. It is answered when its membership is durable (protocol: members)."""
        if not self._log.ready:
            return
        if shb in self.release.members:
            self._outbox.emit(Enrolled(self.pubend, shb, self.release.members[shb]))
        elif not self.release.is_member(shb):
            joining = self.release.join(shb)

            def durable(now: int, _wall: int) -> None:
                if self.release.enrolled(shb, joining, now):
                    self._outbox.emit(Enrolled(self.pubend, shb, joining.at))

            row = Set(self._tables.members, rows.key(self._number, shb), rows.encode(joining.at))
            self._outbox.write([row], durable)

    def hold(self, row: Hold) -> None:
        """An SHB asks to keep more than it reported. It is answered when its row is durable (protocol: members)."""
        known = self.release.holds.get(row.shb)
        # Messages may arrive twice or out of order; the version shows which row is the newest.
        if not self._log.ready or (known is not None and row.version < known.version):
            return
        if known is not None and row.version == known.version:
            if self._holds_durable.get(row.shb) == row.version:
                self._answer_hold(row.shb, known)
            return
        if row.times and row.version > self._locating.get(row.shb, 0):
            self._locate(row)
        elif not row.times:
            self._hold(row)

    def _locate(self, row: Hold) -> None:
        """Finds the ticks for the times of a row, then keeps the row, unless a newer one has come meanwhile."""
        self._locating[row.shb] = row.version
        at, left = dict(row.at), dict(row.times)

        def located(sid: int, tick: Tick) -> None:
            at[sid] = max(at.get(sid, 0), tick)
            del left[sid]
            known = self.release.holds.get(row.shb)
            if not left and (known is None or known.version < row.version):
                self._hold(replace(row, at=at))

        for sid, wall in row.times.items():
            self._source.locate(wall, partial(located, sid))

    def _hold(self, row: Hold) -> None:
        held = self.release.hold(row.shb, row.version, row.at)

        def durable(_now: int, _wall: int) -> None:
            self._holds_durable[row.shb] = held.version
            self._answer_hold(row.shb, held)

        key = rows.key(self._number, row.shb)
        self._outbox.write([Set(self._tables.holds, key, rows.encode(held))], durable)

    def _answer_hold(self, shb: ShbId, held: rows.Holds) -> None:
        assert self._holds_durable.get(shb, -1) >= held.version, "a row of holds is answered when it is durable"
        self._outbox.emit(Held(shb, self.pubend, held.version, held.at, self._log.stable))

    def released(self, released: Tick, delivered: Tick, now: int) -> None:
        """Takes the minima over all members from the router (protocol: release)."""
        before = self.release.delivered
        self.release.on_released(released, delivered, now)
        if self.release.delivered > before:
            self._timers.clear(Timer.ACKNOWLEDGEMENT)
            if self._log.newest > self.release.delivered:
                self._timers.wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.first())
        self._timers.wake(Timer.RELEASE, max(now, self._release_not_before))

    def on_space(self, now: int, *, low: bool) -> None:
        """The disk is nearly full (`low`), or no longer."""
        self.release.space_low = low
        if low:
            self._timers.wake(Timer.RELEASE, max(now, self._release_not_before))

    def retire(self, shb: ShbId, then: Then) -> None:
        """Gives an SHB up for good: the log no longer waits for it (T10). Calls `then` when that is durable."""
        self.release.retire(shb)
        self._holds_durable.pop(shb, None)
        key = rows.key(self._number, shb)
        self._outbox.write([Delete(self._tables.members, key), Delete(self._tables.holds, key)], then)

    # ----------------------------------------------------------------------------------------------- timers

    def _on_ack_expected(self, now: int, _wall: int) -> None:
        """Asks the SHBs for their progress when one of them has lacked an event for long (AET).

        It goes by `delivered`, not by `released`. One subscriber that is away holds `released` back for days, and that
        is no reason to probe (T8).
        """
        if self.release.members and self._log.newest > self.release.delivered:
            self._outbox.emit(Probe(self.pubend, self._log.newest))
            self._timers.wake(Timer.ACKNOWLEDGEMENT, now + self._ack_expected.next())

    def _on_release(self, now: int, wall: int) -> None:
        """Has the source give up what may go, at most once in `release_seconds`."""
        self._release_not_before = now + self._release_every
        upto = self.release.target(self._source.present(now, wall))
        # Not even a policy gives up what an SHB has not in its PFS: it could not say which gap is whose.
        assert upto <= self.release.delivered, "nothing goes that a member has not delivered"
        self._source.give_up(upto, lambda then: self._timers.wake(Timer.RELEASE, then))
        if self._log.index.next(self._log.lost_asked) is not None:
            self._timers.wake(Timer.RELEASE, self._release_not_before)

    # ---------------------------------------------------------------------------------------------- looking

    def gauges(self) -> Iterator[Gauge]:
        """Yields its members and holds, the released positions, and how much was read for SHBs."""
        release, index, name = self.release, self._log.index, self.pubend
        for shb, at in release.members.items():
            yield gauges.MEMBER.gauge(at, name, shb)
        yield gauges.RELEASED.gauge(release.released, name)
        yield gauges.DELIVERED.gauge(release.delivered, name)
        yield gauges.UNRELEASED_BYTES.gauge(index.above(release.released), name)
        for shb, at in release.lowest_holds().items():
            yield gauges.HOLD.gauge(at, name, shb)
            yield gauges.HOLD_BYTES.gauge(index.above(at), name, shb)
        yield gauges.READS.gauge(len(self._reader), name)
        yield gauges.READ_RECORDS.gauge(self._reader.read_records, name)
        yield gauges.READ_BYTES.gauge(self._reader.read_bytes, name)


class AckExpected:
    """AET: how long to wait for progress before asking for it; the waits double (protocol: timers, release)."""

    __slots__ = ("_least", "_most", "_wait")

    def __init__(self, least: int, most: int) -> None:
        """`least`, `most`: the shortest and the longest wait, in nanoseconds."""
        self._least = self._wait = least
        self._most = most

    def first(self) -> int:
        """Returns how long to wait after an event, or after progress, in nanoseconds."""
        self._wait = self._least
        return self._wait

    def next(self) -> int:
        """Returns how long to wait after a probe, in nanoseconds."""
        self._wait = min(2 * self._wait, self._most)
        return self._wait
