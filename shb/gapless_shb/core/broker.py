"""The subscriber-hosting broker as one pure core: what comes in, what goes out, and when (algorithms.md 3).

The parts: `constream` follows a pubend, `readers` catch up in `turns`, `pfs` remembers what matched whom,
`subscribing` creates and attaches, `checkpoint` makes durable, `recovery` finds that again, `listing` answers
questions, `ranges` serves those who keep the position themselves. This module only connects them to the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from gapless.core.deadlines import Deadlines
from gapless.core.effects import Operation, ReadResult
from gapless.core.messages import (
    Acknowledge,
    Credit,
    Detach,
    ListSubscriptions,
    Subscribe,
    Unsubscribe,
)
from gapless.core.roles import ClientSession, Handler, RequestHandler, RoleContext, SessionEnded
from gapless.core.routing import AskInterest, Deliver, Held, Probed, PubendMeta, Seen
from gapless.core.ticks import ShbId, Tick
from gapless_shb.core.ahead import Ahead
from gapless_shb.core.checkpoint import Checkpoints, position_row
from gapless_shb.core.constream import CatchUp, Constream
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.leases import Leases
from gapless_shb.core.listing import Listings
from gapless_shb.core.pfs import Pfs
from gapless_shb.core.positions import Position
from gapless_shb.core.ranges.service import Ranges
from gapless_shb.core.recovery import recover
from gapless_shb.core.subscribing import Subscribing
from gapless_shb.core.subscriptions import META, SUBSCRIPTIONS, Registry

_MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Timing:
    """How often an SHB does things, in milliseconds (algorithms.md 1.3)."""

    checkpoint_ms: int = 250
    idle_checkpoint_ms: int = 5_000
    silence_ms: int = 1_000
    repeat_ms: int = 5_000
    stalled_ms: int = 3_000
    lease_ms: int | None = None


class Timer(Enum):
    """What an SHB has deadlines for."""

    CHECKPOINT = "checkpoint"
    SILENCE = "silence"
    REPEAT = "repeat"
    LISTING = "listing"
    LEASES = "leases"


def shb_id(context: RoleContext) -> ShbId:
    """An SHB's id carries its storage's: with another storage it is another SHB (algorithms.md 1.1)."""
    return f"{context.broker}@{context.storage_id}"


class SubscriberHostingBroker:
    """The SHB core. See the module."""

    name = "shb"

    def __init__(self, context: RoleContext, timing: Timing, catch_up: CatchUp | None = None) -> None:
        self._timing = timing
        self._deadlines: Deadlines[Timer] = Deadlines()
        meta = dict(context.reader.scan(META)).get(b"registry")
        self._shb = shb_id(context)
        registry = Registry.recover(meta, context.reader.scan(SUBSCRIPTIONS))
        self._hosting = Hosting(self._shb, context.network, context.secret, registry)
        if catch_up is not None:
            self._hosting.around.catch_up = catch_up
        self._leases = Leases(self._hosting, timing.lease_ms, context.reader)
        self._ahead = Ahead(self._hosting, self._end_consumption)
        self._subscribing = Subscribing(self._hosting, self._leases, self._ahead)
        self._ranges = Ranges(self._hosting, self._subscribing, self._leases, self._ahead)
        self._listings = Listings(self._hosting)
        self._checkpoints = Checkpoints(self._hosting, self._subscribing.is_creating)
        self._urgent = False
        """Whether the next checkpoint must not wait: a consumer has left since the last one was begun."""
        recover(self._hosting, context)

    def start(self, now: int, wall: int) -> None:
        """Says what it is interested in, under a version of its own: what was not durable is gone."""
        for timer, after in (
            (Timer.SILENCE, self._timing.silence_ms),
            (Timer.REPEAT, self._timing.repeat_ms),
            (Timer.CHECKPOINT, self._timing.idle_checkpoint_ms),
        ):
            self._deadlines.set(timer, now + after * _MILLISECOND)
        self._hosting.write_start()
        self._leases.start()
        self._await_beat(now)
        self._ahead.look_back(now)
        for stream in self._streams():
            stream.holds.renew(now)
            self._hosting.write_holds(stream)

    # -------------------------------------------------------------------------------------- the tables

    def handlers(self) -> Mapping[type, Handler]:
        """What routers say to an SHB."""
        return {
            Deliver: self._on_deliver,
            Seen: self._on_seen,
            Probed: self._on_probed,
            Held: self._on_held,
            AskInterest: self._on_ask_interest,
            SessionEnded: self._on_session_ended,
        }

    def requests(self) -> Mapping[type, RequestHandler]:
        """What clients ask of an SHB."""
        return {
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
            Credit: self._on_credit,
            Acknowledge: self._on_acknowledge,
            Detach: self._on_detach,
            ListSubscriptions: self._on_list,
            **self._ranges.requests(self._after_range_request),
        }

    # ---------------------------------------------------------------------------------- what routers say

    def _on_deliver(self, deliver: Deliver, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(deliver.knowledge.pubend)
        if stream is not None:
            stream.on_knowledge(deliver.knowledge, now, wall)
            self._ranges.on_knowledge(deliver.knowledge, now, wall)
            self._ahead.on_heard(stream, now, wall)
            self._after(stream, now)

    def _on_seen(self, seen: Seen, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(seen.meta.pubend)
        if stream is None and seen.enrolled_at is None:
            return
        if stream is None:
            assert seen.enrolled_at is not None
            stream = self._discover(seen.meta, seen.enrolled_at, now, wall)
        stream.learn(seen.meta)
        if seen.enrolled_at is not None and stream.enrol(seen.enrolled_at):
            self._soon(now)
            self._checkpoints.send_holds(now)
            self._subscribing.go_on(now, wall)
            self._ranges.settle(now, wall)
        stream.catch_up(seen.meta.stable, now)
        self._ahead.on_heard(stream, now, wall)
        self._after(stream, now)

    def _discover(self, meta: PubendMeta, at: Tick, now: int, wall: int) -> Constream:
        """A pubend this SHB did not know: subscriptions begin where the rule of algorithms.md 6.6 says."""
        pfs = Pfs(meta.pubend, at, 0, imprecise=self._hosting.around.catch_up.imprecise)
        stream = Constream(meta, at, pfs, self._hosting.around)
        stream.learn(meta)
        self._hosting.streams[meta.pubend] = stream
        rows: list[Operation] = []
        for subscription in self._hosting.registry:
            start = stream.start_of(subscription)
            # This broker's clock was ahead of the pubend's by hours, it seems: what comes from now on is owed.
            too_late = start > at and meta.pubend not in subscription.start
            start = stream.behind(at) if too_late else start
            position = Position(start, acked=start, held=start < at)
            stream.add(subscription.sid, position, subscription.version)
            if position.held:
                stream.holds.put(subscription.sid, start, now)
            if (too_late or position.held) and subscription.durable:
                rows.append(position_row(subscription.sid, meta.pubend, position))
            self._ahead.look_at(stream, subscription.sid, now)
        self._hosting.write_holds(stream, *rows)
        self._hosting.attach_to_new(stream, now, wall)
        return stream

    def _on_probed(self, probed: Probed, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(probed.pubend)
        if stream is not None:
            stream.on_probe(probed.upto, now)
            self._checkpoints.report(stream)
            self._after(stream, now)

    def _on_held(self, held: Held, now: int, wall: int) -> None:
        stream = self._hosting.streams.get(held.pubend)
        if stream is not None:
            self._subscribing.on_held(stream, stream.holds.on_held(held))
            self._ahead.on_held(stream, held, now, wall)
            self._soon(now)
            self._subscribing.go_on(now, wall)
            self._ranges.settle(now, wall)

    def _on_ask_interest(self, _ask: AskInterest, _now: int, _wall: int) -> None:
        self._hosting.announce_in_full()

    # -------------------------------------------------------------------------------- what clients ask

    def _on_subscribe(self, session: ClientSession, request: Subscribe, now: int, wall: int) -> None:
        if self._ranges.admits(session, request):
            self._subscribing.on_subscribe(session, request, now, wall)
        self._ranges.settle(now, wall)
        self._after_all(now)

    def _on_unsubscribe(self, session: ClientSession, request: Unsubscribe, now: int, wall: int) -> None:
        self._subscribing.on_unsubscribe(session, request, now, wall)
        self._ranges.settle(now, wall)

    def _on_credit(self, session: ClientSession, credit: Credit, now: int, wall: int) -> None:
        consumer = self._hosting.around.consumers.get(credit.sid)
        if consumer is None or consumer.channel.session != session.number:
            return
        if credit.request not in {0, consumer.request}:
            return  # of whom it was taken over from, in the same session
        consumer.grant(credit.events, credit.bytes)
        for stream in self._streams():
            if credit.sid in stream.turns.readers:
                stream.turns.step(credit.sid, now, wall)
                self._after(stream, now)

    def _on_acknowledge(self, session: ClientSession, request: Acknowledge, now: int, wall: int) -> None:
        consumer = self._hosting.around.consumers.get(request.sid)
        if consumer is None or consumer.channel.session != session.number:
            return  # a zombie's acknowledgement: somebody else may have the subscription (U09)
        for said in request.positions:
            self._ahead.acknowledge(consumer, said, now)
        self._soon(now)

    def _on_detach(self, session: ClientSession, request: Detach, now: int, wall: int) -> None:
        consumer = self._hosting.around.consumers.get(request.sid)
        if consumer is None or consumer.channel.session != session.number:
            return
        if request.request in {0, consumer.request}:  # else it has been taken over since, in the same session
            self._end_consumption(request.sid, now, wall)

    def _on_list(self, session: ClientSession, request: ListSubscriptions, now: int, wall: int) -> None:
        self._listings.on_list(session.number, request.request)
        self._go_on_telling(now)

    def _on_session_ended(self, ended: SessionEnded, now: int, wall: int) -> None:
        self._subscribing.on_session_ended(ended.session, now)
        self._ahead.on_session_ended(ended.session.number)
        channel = self._hosting.around.channels.pop(ended.session.number, None)
        for sid in list(channel.consumers) if channel else ():
            self._end_consumption(sid, now, wall)
        self._ranges.on_session_ended(ended.session, now, wall)

    def _end_consumption(self, sid: int, now: int, wall: int) -> None:
        consumer = self._hosting.detach(sid)
        if consumer is not None and not consumer.subscription.durable:
            self._subscribing.remove(consumer.subscription, now, None)
        self._subscribing.on_detached(sid, now, wall)
        # What was acknowledged last is made durable at once: the broker may be about to stop in order.
        self._urgent = True
        self._deadlines.set_earlier(Timer.CHECKPOINT, now)

    # ---------------------------------------------------------------------------------------- durability

    def on_durable(self, cookie: Any, now: int, wall: int) -> None:
        """A write is on disk: say what had to wait for it."""
        kind = cookie[0]
        if kind == "interest":
            self._hosting.announce(cookie[1])
            if cookie[2] is not None:
                self.on_durable(cookie[2], now, wall)
        elif kind == "created":
            self._subscribing.on_created(cookie[1], now, wall)
        elif kind == "answer":
            self._hosting.tell(cookie[1], cookie[2])
        elif kind == "returned":
            for session, request in self._leases.returned(cookie[1]):
                self._subscribing.on_subscribe(session, request, now, wall)
        elif kind == "started":
            self._hosting.started(cookie[1])
        elif kind == "holds":
            self._hosting.streams[cookie[1]].holds.durable = cookie[2]
            self._checkpoints.send_holds(now)
        elif kind == "checkpoint":
            self._checkpoints.on_durable(cookie[1], now)
            if self._urgent:
                self._deadlines.set_earlier(Timer.CHECKPOINT, now)
        self._ranges.settle(now, wall)
        self._after_all(now)

    def _checkpoint(self, now: int) -> None:
        self._deadlines.set(Timer.CHECKPOINT, now + self._timing.idle_checkpoint_ms * _MILLISECOND)
        if self._checkpoints.under_way:
            self._soon(now)
            return
        self._urgent = False
        self._checkpoints.begin()

    # --------------------------------------------------------------------------------------------- time

    def on_read(self, result: ReadResult, now: int, wall: int) -> None:
        """A PFS was read: for a reader, for a range, or for a listing."""
        cookie: Any = result.cookie
        if cookie[0] == "list":
            self._listings.on_read(cookie[1], result)
            self._go_on_telling(now)
            return
        if self._ranges.on_read(result, now):
            self._after_all(now)
            return
        _, pubend, sid, number = cookie
        stream = self._hosting.streams.get(pubend)
        if stream is not None:
            stream.turns.on_read(sid, number, result, now, wall)
            self._after(stream, now)

    def on_space(self, now: int, wall: int, *, low: bool) -> None:
        """A nearly full disk changes nothing here: what is written is little, and it lets space be freed."""

    def deadline(self) -> int | None:
        """The earliest of its own deadlines, its holds' and its pubends'."""
        due = self._deadlines.next()
        of_ranges = self._ranges.deadline
        if of_ranges is not None:
            due = of_ranges if due is None else min(due, of_ranges)
        stalled = self._timing.stalled_ms * _MILLISECOND
        for stream in self._hosting.streams.values():
            for time in (stream.holds.deadline, stream.deadline(stalled)):
                if time is not None and (due is None or time < due):
                    due = time
        return due

    def on_deadline(self, now: int, wall: int) -> None:
        """Some deadline has come."""
        for timer in self._deadlines.take_expired(now):
            if timer is Timer.CHECKPOINT:
                self._checkpoint(now)
            elif timer is Timer.SILENCE:
                self._deadlines.set(Timer.SILENCE, now + self._timing.silence_ms * _MILLISECOND)
                self._say_silence()
            elif timer is Timer.REPEAT:
                self._deadlines.set(Timer.REPEAT, now + self._timing.repeat_ms * _MILLISECOND)
                self._repeat()
            elif timer is Timer.LISTING:
                self._listings.tell()
                self._go_on_telling(now)
            elif timer is Timer.LEASES:
                self._leases.on_beat(self._is_awaited, lambda lapsed: self._subscribing.remove(lapsed, now, None))
                self._await_beat(now)
        self._checkpoints.send_holds(now)
        self._ranges.settle(now, wall)
        for stream in self._streams():
            stream.turns.pump(now, wall)
            stream.on_deadline(now, self._timing.stalled_ms * _MILLISECOND)

    def take_effects(self) -> list[object]:
        """What to do."""
        return self._hosting.take_effects()

    def status(self) -> Mapping[str, object]:
        """What `gapless doctor` shows."""
        return {
            "subscriptions": len(self._hosting.registry),
            "consumers": len(self._hosting.around.consumers),
            "pubends": {stream.pubend: stream.status() for stream in self._streams()},
        }

    def _say_silence(self) -> None:
        for stream in self._streams():
            for channel in self._hosting.around.channels.values():
                channel.tell_idle(stream.pubend, stream.behind(stream.head), stream.live)

    def _repeat(self) -> None:
        self._hosting.announce_version()
        for stream in self._streams():
            self._checkpoints.report(stream)

    def _go_on_telling(self, now: int) -> None:
        if self._listings.telling:
            self._deadlines.set_earlier(Timer.LISTING, now + _MILLISECOND)

    def _streams(self) -> list[Constream]:
        return list(self._hosting.streams.values())

    def _after(self, stream: Constream, now: int) -> None:
        stream.send_wants(now)
        if stream.pfs.has_open:
            self._soon(now)

    def _after_all(self, now: int) -> None:
        for stream in self._streams():
            self._after(stream, now)

    def _after_range_request(self, now: int) -> None:
        if self._ranges.take_acknowledged():
            self._soon(now)
        self._after_all(now)

    def _soon(self, now: int) -> None:
        self._deadlines.set_earlier(Timer.CHECKPOINT, now + self._timing.checkpoint_ms * _MILLISECOND)

    def _is_awaited(self, sid: int) -> bool:
        return self._subscribing.is_awaited(sid) or self._ranges.is_awaited(sid)

    def _await_beat(self, now: int) -> None:
        if self._leases.beat_ms is not None:
            self._deadlines.set(Timer.LEASES, now + self._leases.beat_ms * _MILLISECOND)
