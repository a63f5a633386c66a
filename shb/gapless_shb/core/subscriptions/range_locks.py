"""Leases: a client that reads a subscription by ranges has it alone, as long as its session lasts.

Two readers of one subscription would each acknowledge only what they have read, and the slower one would meet gaps. A
lease belongs to a session: it ends with the connection, or after three missed heartbeats. It is not durable; after a
reconnect the client asks for it again. A subscription with a consumer cannot be leased, and a leased one cannot be
consumed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from gapless.core.ports import ClientSession
from gapless.core.wire.messages import (
    Code,
    Detached,
    EndLease,
    InUse,
    Leased,
    LeaseLost,
    ServerMessage,
    Subscribe,
    TakeLease,
)
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.takers import taker_of
from gapless_shb.core.subscriptions.checks import found_for_ranges
from gapless_shb.core.subscriptions.takeovers import Takeovers, taken_over_by

Waiting: TypeAlias = "tuple[ClientSession, TakeLease | Subscribe]"


@dataclass(slots=True)
class Holder:
    """A lease, and the requests that wait for its end."""

    session: ClientSession
    request: int
    owner: str
    waiting: list[Waiting] = field(default_factory=list)


class ExclusiveReaders:
    """All leases of an SHB."""

    def __init__(
        self, hosting: Hosting, takeovers: Takeovers, grant: Callable[[int, int, ServerMessage], None]
    ) -> None:
        """`grant` (sid, session, answer): sends the answer when it is durable that the subscription is in use."""
        self._hosting = hosting
        self._takeovers = takeovers
        self._grant = grant
        self._held: dict[int, Holder] = {}
        self._ended: list[Waiting] = []
        """The requests that waited for a lease that has ended."""

    def holder(self, sid: int) -> int | None:
        """Returns the session that has a lease on the subscription."""
        held = self._held.get(sid)
        return None if held is None else held.session.number

    def on_lease(self, session: ClientSession, request: TakeLease, now: int, wall: int) -> None:
        """Grants a lease, lets the request wait, or takes the lease from another session. Raises RefusedError."""
        subscription = found_for_ranges(self._hosting, session, request.target)
        sid, taker = subscription.sid, taker_of(session, request)
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
                held.waiting.append((session, request))
                return
        if sid in self._hosting.consumers and in_use is not InUse.TAKEOVER:
            raise RefusedError(Code.IN_USE, "the subscription is consumed: it cannot be leased at the same time")
        self._takeovers.check(sid, session, request, now, wall)
        by = f"{request.owner!r}, {taken_over_by(session.client_id, taker, wall)}"
        self._take_from_consumer(sid, by)
        waiting = [] if held is None else held.waiting
        if held is not None and (held.session.number, held.request) != (session.number, request.request):
            lost = LeaseLost(held.request, Code.TAKEN_OVER, f"the lease is that of {by}")
            self._hosting.tell(held.session.number, lost)
        self._held[sid] = Holder(session, request.request, request.owner, waiting)
        self._takeovers.taken(sid, taker)
        self._grant(sid, session.number, Leased(request.request, sid))

    def _take_from_consumer(self, sid: int, by: str) -> None:
        consumer = self._hosting.consumers.get(sid)
        if consumer is not None:
            self._hosting.tell(consumer.channel.session, Detached(sid, Code.TAKEN_OVER, f"leased to {by}"))
            self._hosting.detach(sid)

    def admits(self, session: ClientSession, request: Subscribe, now: int, wall: int) -> bool:
        """Whether a consumer may have its subscription now; if not, the request waits. Raises RefusedError."""
        sid = request.sid
        if not sid and request.name:
            found = self._hosting.registry.find(session.client_id, request.name)
            sid = 0 if found is None else found.sid
        held = self._held.get(sid)
        if held is None:
            return True
        taker = taker_of(session, request)
        in_use = self._takeovers.in_use(sid, taker, request.in_use)
        if in_use is InUse.ERROR:
            raise RefusedError(Code.IN_USE, f"the subscription is leased to {held.owner!r}")
        if in_use is InUse.WAIT:
            held.waiting.append((session, request))
            return False
        self._takeovers.check(sid, session, request, now, wall)
        by = taken_over_by(session.client_id, taker, wall)
        self._lose(sid, Code.TAKEN_OVER, f"a consumer has the subscription: {by}")
        self._takeovers.left(sid)
        return True

    def on_end(self, session: ClientSession, request: EndLease) -> None:
        """Ends a lease, or drops the request that waits for one."""
        for sid, held in list(self._held.items()):
            if (held.session.number, held.request) == (session.number, request.request):
                self._free(sid)
                self._takeovers.left(sid)
            held.waiting[:] = [
                waiting
                for waiting in held.waiting
                if (waiting[0].number, waiting[1].request) != (session.number, request.request)
            ]

    def on_session_ended(self, session: int) -> None:
        """Ends the leases of a session, and drops its requests."""
        for sid, held in list(self._held.items()):
            held.waiting[:] = [waiting for waiting in held.waiting if waiting[0].number != session]
            if held.session.number == session:
                self._free(sid)

    def on_removed(self) -> None:
        """Ends the leases of removed subscriptions, and lets waiting requests be answered."""
        for sid in [sid for sid in self._held if self._hosting.registry.get(sid) is None]:
            self._lose(sid, Code.UNSUBSCRIBED, "the subscription was removed")

    def take_ended(self) -> list[Waiting]:
        """Takes out the requests that waited for a lease that has ended, in order."""
        ended, self._ended = self._ended, []
        return ended

    def _lose(self, sid: int, code: Code, reason: str) -> None:
        held = self._held[sid]
        self._hosting.tell(held.session.number, LeaseLost(held.request, code, reason))
        self._free(sid)

    def _free(self, sid: int) -> None:
        self._ended += self._held.pop(sid).waiting
