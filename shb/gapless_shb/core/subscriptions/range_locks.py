"""Leases: a client that reads a subscription by ranges has it alone, as long as its session lasts.

Two readers of one subscription would each acknowledge only what they have read, and the slower one would meet gaps. A
lease belongs to a session: it ends with the connection, or after three missed heartbeats. It is not durable; after a
reconnect the client asks for it again. A subscription with a consumer cannot be leased, and a leased one cannot be
consumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.wire.messages import (
    Code,
    Detached,
    EndLease,
    InUse,
    Leased,
    LeaseLost,
    TakeLease,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import taker_of
from gapless_shb.core.subscriptions.expiry import Expiry
from gapless_shb.core.subscriptions.takeovers import Takeovers, taken_over_by
from gapless_shb.core.subscriptions.waiting import Reason, Waiting


@dataclass(frozen=True, slots=True)
class RangeLock:
    """Who reads a subscription by ranges, and has it alone."""

    session: ClientSession
    request: int
    owner: str


class RangeLocks:
    """All leases of an SHB."""

    def __init__(self, hosting: Hosting, expiry: Expiry, takeovers: Takeovers, waiting: Waiting) -> None:
        self._hosting = hosting
        self._expiry = expiry
        self._takeovers = takeovers
        self._waiting = waiting
        self._held: dict[int, RangeLock] = {}

    def holder(self, sid: int) -> RangeLock | None:
        """Returns who has a lease on the subscription."""
        return self._held.get(sid)

    def on_lease(
        self,
        session: ClientSession,
        request: TakeLease,
        subscription: SubscriptionRecord,
        again: RequestHandler,
        now: int,
        wall: int,
    ) -> None:
        """Grants a lease, lets the request wait, or takes the lease from another session. Raises RefusedError.

        The subscription is neither being created nor changed. `again`: handles the request from the top.
        """
        sid, taker = subscription.sid, taker_of(session, request)
        if self._expiry.returns(session, request, sid, again):
            return
        held = self._held.get(sid)
        in_use = self._takeovers.in_use(sid, taker, request.in_use)
        if held is not None and held.owner != request.owner and held.session.instance != session.instance:
            if in_use is InUse.ERROR:
                raise RefusedError(
                    Code.IN_USE,
                    f"subscription {subscription.name!r} is leased to {held.owner!r}: two readers of one subscription "
                    "would acknowledge for each other",
                )
            if in_use is InUse.WAIT:
                self._waiting.put(Reason.IN_USE, session, request, again, sid)
                return
        if sid in self._hosting.consumers and in_use is InUse.ERROR:
            raise RefusedError(Code.IN_USE, "the subscription is consumed: it cannot be leased at the same time")
        if sid in self._hosting.consumers and in_use is InUse.WAIT:
            self._waiting.put(Reason.IN_USE, session, request, again, sid)
            return
        self._takeovers.check(sid, session, request, now, wall)
        by = f"{request.owner!r}, {taken_over_by(session.client_id, taker, wall)}"
        self._take_from_consumer(sid, by)
        if held is None:
            self._hosting.registry.become(sid, Phase.LOCKED)
        else:
            self._hosting.session_ends.remove(held.session.number, (RangeLock, sid))
            if (held.session.number, held.request) != (session.number, request.request):
                lost = LeaseLost(held.request, Code.TAKEN_OVER, f"the lease is that of {by}")
                self._hosting.tell(held.session.number, lost)
        self._held[sid] = RangeLock(session, request.request, request.owner)
        self._hosting.session_ends.add(session.number, (RangeLock, sid), lambda _now, _wall: self._free(sid))
        self._takeovers.taken(sid, taker)
        self._hosting.tell(session.number, Leased(request.request, sid))

    def _take_from_consumer(self, sid: int, by: str) -> None:
        consumer = self._hosting.consumers.get(sid)
        if consumer is not None:
            self._hosting.tell(consumer.channel.session, Detached(sid, Code.TAKEN_OVER, f"leased to {by}"))
            self._hosting.detach(sid)

    def on_end(self, session: ClientSession, request: EndLease) -> None:
        """Ends a lease, or drops the request that waits for one."""
        for sid, held in list(self._held.items()):
            if (held.session.number, held.request) == (session.number, request.request):
                self._free(sid)
                self._takeovers.left(sid)
        self._waiting.drop(session.number, request.request)

    def end(self, sid: int, code: Code, reason: str) -> None:
        """Takes a lease from its session, if there is one: a consumer has the subscription, or it is removed."""
        held = self._held.get(sid)
        if held is not None:
            self._hosting.tell(held.session.number, LeaseLost(held.request, code, reason))
            self._free(sid)

    def _free(self, sid: int) -> None:
        held = self._held.pop(sid)
        self._hosting.session_ends.remove(held.session.number, (RangeLock, sid))
        self._hosting.registry.become(sid, Phase.FREE)
