"""All requests about ranges at one SHB, and what the core reports to their parts (protocol: ranges)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.messages import (
    AcknowledgeDurably,
    AskBound,
    AskEarliest,
    AskHeads,
    Attach,
    AttachedTo,
    Code,
    Done,
    EndLease,
    EndRead,
    InUse,
    Position,
    ReadOn,
    ReadRange,
    ServerMessage,
    Subscribe,
    TakeLease,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.ranges.bounds import Bounds
from gapless_shb.core.ranges.heads import Earliest, Heads
from gapless_shb.core.ranges.reads import Reads
from gapless_shb.core.state.positions import last_event
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.rows import position_row
from gapless_shb.core.subscriptions.attach import Subscribing
from gapless_shb.core.subscriptions.checks import called, check_positions, check_sealed, found_for_ranges, removed
from gapless_shb.core.subscriptions.commits import Desks
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.positions_ahead import BeyondError, PositionsAhead
from gapless_shb.core.subscriptions.range_locks import ExclusiveReaders
from gapless_shb.core.subscriptions.takeovers import Takeovers


class Ranges:
    """The parts of range reading; once they are `used`, the core calls `answer_ready` at the end of each turn."""

    def __init__(
        self,
        hosting: Hosting,
        subscribing: Subscribing,
        expiry: Expiry,
        ahead: PositionsAhead,
        desks: Desks,
        takeovers: Takeovers,
    ) -> None:
        self._hosting = hosting
        self._subscribing = subscribing
        self._expiry = expiry
        self._ahead = ahead
        self.used = False
        """Whether any request about ranges has come yet. Before that there is nothing to do here."""
        self._attaching = Attaching(hosting, subscribing, ahead, desks)
        self._heads = Heads(hosting)
        self._earliest = Earliest(hosting)
        self._bounds = Bounds(hosting)
        self._reads = Reads(hosting)
        self._exclusive = ExclusiveReaders(hosting, takeovers, self._grant)

    def requests(self) -> Mapping[type, RequestHandler]:
        """Returns the handler of each request of clients."""

        def guarded(handler: Callable[[ClientSession, Any, int, int], None]) -> RequestHandler:
            def handle(session: ClientSession, request: Any, now: int, wall: int) -> None:
                self.used = True
                try:
                    handler(session, request, now, wall)
                except BeyondError as beyond:
                    self._ahead.put_off(session, request, beyond, partial(handle, session, request), now)
                except RefusedError as refused:
                    self._hosting.tell(session.number, refused.answer(request.request))

            return handle

        return {
            Attach: guarded(self._attaching.on_attach),
            AskHeads: guarded(lambda session, request, now, _: self._heads.on_ask(session, request, now)),
            AskEarliest: guarded(lambda session, request, now, _: self._earliest.on_ask(session, request, now)),
            AskBound: guarded(self._on_ask_bound),
            ReadRange: guarded(self._reads.on_read_range),
            ReadOn: guarded(self._reads.on_read_on),
            EndRead: guarded(lambda session, request, _, __: self._reads.on_end_read(session, request)),
            AcknowledgeDurably: guarded(self._on_acknowledge),
            TakeLease: guarded(self._exclusive.on_lease),
            EndLease: guarded(self._on_end_lease),
        }

    def admits(self, session: ClientSession, request: Subscribe, now: int, wall: int) -> bool:
        """Whether a consumer may attach now, because there is no lease. If not, its request is answered, or waits."""
        try:
            return self._exclusive.admits(session, request, now, wall)
        except RefusedError as refused:
            self._hosting.tell(session.number, refused.answer(request.request))
            return False

    def is_awaited(self, sid: int) -> bool:
        """Whether a session uses a subscription, or waits for its creation: then its lease does not run."""
        return self._exclusive.holder(sid) is not None or self._attaching.is_awaited(sid)

    # ---------------------------------------------------------------------------------- what happened

    def on_heard(self, pubend: PubendId, now: int, wall: int) -> None:
        """Knowledge of a pubend was taken in and offered to the readers. The head may have moved."""
        self._earliest.answer_ready(now)
        self._bounds.on_heard(pubend, now, wall)
        self._reads.on_heard(pubend, now, wall)

    def on_room(self, session: int, turn: int, now: int, wall: int) -> None:
        """The link of a session has room again: its reads go on, each time another one first."""
        self._reads.on_room(session, turn, now, wall)

    def on_session_ended(self, session: ClientSession, now: int, wall: int) -> None:
        """A session has ended: drops its requests, and ends its leases."""
        for part in (self._attaching, self._heads, self._earliest, self._bounds, self._reads, self._exclusive):
            part.on_session_ended(session.number)
        self._pass_leases_on(now, wall)

    @property
    def deadline(self) -> int | None:
        """When `answer_ready` has to be called."""
        dues = (part.deadline for part in (self._heads, self._earliest, self._bounds, self._reads))
        return min((due for due in dues if due is not None), default=None)

    def answer_ready(self, now: int, wall: int) -> None:
        """Answers all requests that can be answered now, after an event or a deadline."""
        self._attaching.answer_ready()
        self._exclusive.on_removed()
        self._bounds.on_removed()
        self._reads.on_removed()
        self._reads.go_on(now, wall)
        self._heads.answer_ready(now)
        self._earliest.answer_ready(now)
        self._bounds.answer_overdue(now)
        self._pass_leases_on(now, wall)

    def _pass_leases_on(self, now: int, wall: int) -> None:
        """Gives leases that have ended to the requests that waited for them, before any later request."""
        for session, request in self._exclusive.take_ended():
            if isinstance(request, Subscribe):
                if self.admits(session, request, now, wall):
                    self._subscribing.on_subscribe(session, request, now, wall)
                continue
            try:
                self._exclusive.on_lease(session, request, now, wall)
            except RefusedError as refused:
                self._hosting.tell(session.number, refused.answer(request.request))

    # ---------------------------------------------------------------------------------- how it is done

    def _on_ask_bound(self, session: ClientSession, request: AskBound, now: int, wall: int) -> None:
        subscription = found_for_ranges(self._hosting, session, request.target)
        after = {position.pubend: position.tick for position in request.start}
        self._bounds.on_ask(session, request, self._heads.of(subscription, after), now, wall)

    def _on_end_lease(self, session: ClientSession, request: EndLease, now: int, wall: int) -> None:
        self._exclusive.on_end(session, request)
        self._pass_leases_on(now, wall)

    def _on_acknowledge(self, session: ClientSession, request: AcknowledgeDurably, now: int, _wall: int) -> None:
        """Takes a reader's position, and answers when it is durable. A repeated request changes nothing."""
        subscription = found_for_ranges(self._hosting, session, request.target)
        if request.target.sid:
            check_sealed(subscription, request.target.home, request.token_seal, self._hosting)
        check_positions(request.positions, self._hosting, called(subscription.name), now)
        streams = self._hosting.streams
        news = [
            said
            for said in request.positions
            if said.pubend in streams and said.tick > streams[said.pubend].positions[subscription.sid].acked
        ]
        self._ahead.check(news, called(subscription.name))
        consumer = self._hosting.consumers.get(subscription.sid)
        holder = self._exclusive.holder(subscription.sid)
        others = {holder} if consumer is None else {holder, consumer.channel.session}
        if others - {None, session.number}:
            reason = f"another consumer has subscription {subscription.name!r}: it alone may say what is done with"
            raise RefusedError(Code.IN_USE, reason)
        rows = self._expiry.forget(subscription.sid)
        for said in request.positions:
            stream = self._hosting.streams.get(said.pubend)
            if stream is not None:
                position = stream.positions[subscription.sid]
                stream.acknowledge(subscription.sid, said.tick, last_event(position, stream.head, said.tick))
                rows.append(position_row(subscription.sid, said.pubend, position))
        self._hosting.write_then_tell(rows, session.number, Done(request.request))
        self._hosting.unsaved = True

    def _grant(self, sid: int, session: int, answer: ServerMessage) -> None:
        """Answers that a session has a subscription. What was noted of its absence is durably deleted before."""
        obsolete = self._expiry.forget(sid)
        if obsolete:
            self._hosting.write_then_tell(obsolete, session, answer)
        else:
            self._hosting.tell(session, answer)


class Attaching:
    """Answers Attach, when the subscription is durable and its start is final."""

    def __init__(self, hosting: Hosting, subscribing: Subscribing, ahead: PositionsAhead, desks: Desks) -> None:
        self._hosting = hosting
        self._ahead = ahead
        self._desks = desks
        self._subscribing = subscribing
        self._waiting: list[tuple[int, Attach, int]] = []
        """Session, request and subscription of each creation that is under way."""

    def on_attach(self, session: ClientSession, request: Attach, now: int, wall: int) -> None:
        """Creates the subscription, or finds it. Raises RefusedError."""
        sid = self._subscribing.define(session, as_subscribe(request), now, wall)
        subscription = self._hosting.registry.get(sid)
        if subscription is not None and self._desks.needs_fence(sid):
            self._desks.fence(subscription, partial(self._fenced, session, request, sid))
        else:
            self._waiting.append((session.number, request, sid))

    def _fenced(
        self,
        session: ClientSession,
        request: Attach,
        sid: int,
        ticks: Mapping[PubendId, Tick],
        reason: str,
        now: int,
        wall: int,
    ) -> None:
        """No transaction stores anything for the subscription any more, unless somebody consumes it again."""
        subscription = self._hosting.registry.get(sid)
        try:
            if reason:
                raise RefusedError(Code.RETRY, reason)
            if subscription is not None:
                self._desks.advance(subscription, ticks, now)
            self._waiting.append((session.number, request, sid))
        except BeyondError as beyond:
            again = partial(self.on_attach, session, request)
            self._ahead.put_off(session, request, beyond, again, now)
        except RefusedError as refused:
            self._hosting.tell(session.number, refused.answer(request.request))

    def is_awaited(self, sid: int) -> bool:
        """Whether a session waits for a subscription that is being created."""
        return any(waiting == sid for _, _, waiting in self._waiting)

    def answer_ready(self) -> None:
        """Answers the requests whose subscription is created now."""
        waiting, self._waiting = self._waiting, []
        for session, request, sid in waiting:
            if self._hosting.registry.get(sid) is None:
                self._hosting.tell(session, removed().answer(request.request))
            elif self._subscribing.is_creating(sid):
                self._waiting.append((session, request, sid))
            else:
                self._answer(session, request, sid)

    def on_session_ended(self, session: int) -> None:
        """Drops the requests of a session. What is being created stays."""
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != session]

    def _answer(self, session: int, request: Attach, sid: int) -> None:
        hosting = self._hosting
        subscription = hosting.registry.get(sid)
        assert subscription is not None
        given = None if request.positions is None else {p.pubend: p.tick for p in request.positions}
        positions = [
            Position(stream.pubend, self._subscribing.attach_at(stream, stream.positions[sid], given))
            for stream in hosting.streams.values()
        ]
        sealed, home = hosting.seals.of(subscription), hosting.seals.home
        hosting.tell(session, AttachedTo(request.request, sid, subscription.generation, sealed, positions, home))


def as_subscribe(request: Attach) -> Subscribe:
    """Returns the request as a Subscribe: it asks for the same, without consuming."""
    return Subscribe(
        request.request,
        request.name,
        request.topics,
        request.selector,
        request.start,
        request.start_wall,
        request.positions,
        request.token_sid,
        request.token_generation,
        request.token_seal,
        [],
        InUse.ERROR,
        0,
        0,
        token_home=request.token_home,
        no_local=request.no_local,
    )
