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
    Subscribe,
    TakeLease,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.ranges.bounds import Bounds
from gapless_shb.core.ranges.heads import Earliest, Heads
from gapless_shb.core.ranges.reads import Reads
from gapless_shb.core.state.positions import last_event
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.rows import position_row
from gapless_shb.core.subscriptions.attach import Subscribing
from gapless_shb.core.subscriptions.checks import (
    called,
    check_may_have,
    check_positions,
    check_sealed,
    found_for_ranges,
    note_refusal,
    removed,
    ticks_of,
)
from gapless_shb.core.subscriptions.commits import CommitRecords
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.holders import Holders
from gapless_shb.core.subscriptions.unverified_positions import BeyondError, UnverifiedPositions
from gapless_shb.core.subscriptions.waiting import Reason, Waiting, WaitingRequest


class Ranges:
    """The parts of range reading; once they are `used`, the core calls `answer_ready` at the end of each turn."""

    def __init__(
        self,
        hosting: Hosting,
        subscribing: Subscribing,
        expiry: Expiry,
        ahead: UnverifiedPositions,
        commit_records: CommitRecords,
        holders: Holders,
        waiting: Waiting,
    ) -> None:
        self._hosting = hosting
        self._subscribing = subscribing
        self._waiting = waiting
        self._expiry = expiry
        self._ahead = ahead
        self.used = False
        """Whether any request about ranges has come yet. Before that there is nothing to do here."""
        self._commit_records = commit_records
        self._heads = Heads(hosting)
        self._earliest = Earliest(hosting)
        self._bounds = Bounds(hosting)
        self.reads = Reads(hosting)
        """The reads that are under way."""
        self._holders = holders

        self._handlers = self._make_handlers()

    def requests(self) -> Mapping[type, RequestHandler]:
        """Returns the handler of each request of clients."""
        return self._handlers

    def _make_handlers(self) -> dict[type, RequestHandler]:
        def guarded(handler: Callable[[ClientSession, Any, int, int], None]) -> RequestHandler:
            def handle(session: ClientSession, request: Any, now: int, wall: int) -> None:
                self.used = True
                try:
                    handler(session, request, now, wall)
                except BeyondError as beyond:
                    self._ahead.put_off(session, request, beyond, handle, now)
                except RefusedError as refused:
                    self._hosting.tell(session.number, refused.answer(request.request))

            return handle

        return {
            Attach: guarded(self._on_attach),
            AskHeads: guarded(lambda session, request, now, _: self._heads.on_ask(session, request, now)),
            AskEarliest: guarded(lambda session, request, now, _: self._earliest.on_ask(session, request, now)),
            AskBound: guarded(self._on_ask_bound),
            ReadRange: guarded(self.reads.on_read_range),
            ReadOn: guarded(self.reads.on_read_on),
            EndRead: guarded(lambda session, request, _, __: self.reads.on_end_read(session, request)),
            AcknowledgeDurably: guarded(self._on_acknowledge),
            TakeLease: guarded(self._on_take_lease),
            EndLease: guarded(self._on_end_lease),
        }

    # ---------------------------------------------------------------------------------- what happened

    def on_heard(self, pubend: PubendId, now: int, wall: int) -> None:
        """Knowledge of a pubend was taken in and offered to the readers. The head may have moved."""
        self._earliest.answer_ready(now)
        self._bounds.on_heard(pubend, now, wall)
        self.reads.on_heard(pubend, now, wall)

    def on_room(self, session: int, turn: int, now: int, wall: int) -> None:
        """The link of a session has room again: its reads go on, each time another one first."""
        self.reads.on_room(session, turn, now, wall)

    @property
    def deadline(self) -> int | None:
        """When `answer_ready` has to be called."""
        dues = (part.deadline for part in (self._heads, self._earliest, self._bounds, self.reads))
        return min((due for due in dues if due is not None), default=None)

    def answer_ready(self, now: int, wall: int) -> None:
        """Answers all requests that can be answered now, after an event or a deadline."""
        self._bounds.on_removed()
        self.reads.on_removed()
        self.reads.go_on(now, wall)
        self._heads.answer_ready(now)
        self._earliest.answer_ready(now)
        self._bounds.answer_overdue(now)

    # ---------------------------------------------------------------------------------- how it is done

    def _on_ask_bound(self, session: ClientSession, request: AskBound, now: int, wall: int) -> None:
        subscription = found_for_ranges(self._hosting, session, request.target)
        after = {position.pubend: position.tick for position in request.start}
        self._bounds.on_ask(session, request, self._heads.of(subscription, after), now, wall)

    def _on_take_lease(self, session: ClientSession, request: TakeLease, now: int, wall: int) -> None:
        subscription, again = found_for_ranges(self._hosting, session, request.target), self._handlers[TakeLease]
        sid = subscription.sid
        self._waiting.pass_on(sid, now, wall)
        if not self._subscribing.is_settled(subscription):
            self._waiting.put(Reason.PREPARING, session, request, again, sid)
        elif not self._expiry.note_return(session, request, sid, again):
            self._holders.on_lease(session, request, subscription, again, now, wall)

    def _on_end_lease(self, session: ClientSession, request: EndLease, _now: int, _wall: int) -> None:
        self._holders.on_end(session, request)

    def _on_acknowledge(self, session: ClientSession, request: AcknowledgeDurably, now: int, _wall: int) -> None:
        """Takes a reader's position, and answers when it is durable. A repeated request changes nothing."""
        subscription = found_for_ranges(self._hosting, session, request.target)
        if request.target.sid:
            check_sealed(subscription, request.target.home, request.token_seal, self._hosting)
        check_positions(request.positions, self._hosting, called(subscription.name), now)
        self._ahead.news(subscription, request.positions)
        consumer = self._hosting.consumers.get(subscription.sid)
        lock = self._holders.lock(subscription.sid)
        others = set() if lock is None else {lock.session.number}
        if consumer is not None:
            others.add(consumer.channel.session)
        if others - {session.number}:
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

    def _on_attach(self, session: ClientSession, request: Attach, now: int, wall: int) -> None:
        """Creates a subscription, or finds it. It is answered when that is durable, and its start is final."""
        sid = self._subscribing.define(session, as_subscribe(request), now, wall)
        subscription, answer = self._hosting.registry.get(sid), partial(self._answer_if_settled, sid)
        if subscription is not None and self._commit_records.needs_fence(sid):
            waiting = self._waiting.put(Reason.CLAIM, session, request, answer, sid)
            self._commit_records.fence(subscription, partial(self._fenced, waiting, subscription))
        else:
            answer(session, request, now, wall)

    def _fenced(
        self,
        waiting: WaitingRequest,
        subscription: SubscriptionRecord,
        ticks: Mapping[PubendId, Tick],
        reason: str,
        now: int,
        wall: int,
    ) -> None:
        """No transaction stores anything for the subscription any more, unless somebody consumes it again."""
        if not waiting.waits:
            return
        try:
            if reason:
                raise RefusedError(Code.RETRY, reason)
            self._commit_records.advance(subscription, ticks, now)
            self._waiting.go_on(waiting, now, wall)
        except BeyondError as beyond:
            self._waiting.take(waiting)
            self._ahead.put_off(waiting.session, waiting.request, beyond, self._handlers[Attach], now)
        except RefusedError as refused:
            self._waiting.refuse(waiting, refused)

    def _answer_if_settled(self, sid: int, session: ClientSession, request: Attach, _now: int, _wall: int) -> None:
        """Answers, when the subscription is created. What was fenced before need not be fenced again."""
        subscription = self._hosting.registry.get(sid)
        if subscription is None:
            self._hosting.tell(session.number, removed().answer(request.request))
        elif self._subscribing.is_settled(subscription):
            try:
                check_may_have(self._hosting, session.principal, subscription)  # it may have waited
            except RefusedError as refused:
                self._hosting.tell(session.number, refused.answer(request.request))
                note_refusal(self._hosting, session, subscription, refused)
            else:
                self._answer_attach(session.number, request, subscription)
        else:
            again = partial(self._answer_if_settled, sid)
            self._waiting.put(Reason.PREPARING, session, request, again, sid)

    def _answer_attach(self, session: int, request: Attach, subscription: SubscriptionRecord) -> None:
        hosting, given, sid = self._hosting, ticks_of(request), subscription.sid
        positions = [
            Position(stream.pubend, self._subscribing.attach_at(stream, stream.positions[sid], given))
            for stream in self._subscribing.found_of(subscription, given)
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
