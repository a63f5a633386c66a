"""Who has a subscription, a consumer or a reader by ranges, and who takes it from whom (protocol: exclusive-consumers).

Two readers of one subscription would each acknowledge only what they have read, and the slower one would meet gaps. So
a client that reads it by ranges may have a *lease* on it, as another one consumes it: then it has it alone. A lease
belongs to a session: it ends with the connection, or after three missed heartbeats. It is not durable; after a
reconnect the client asks for it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.stream.ticks import tick_at, time_at
from gapless.core.wire.messages import (
    Code,
    Detached,
    EndLease,
    InUse,
    Leased,
    LeaseLost,
    Subscribe,
    TakeLease,
)
from gapless_shb.core.hosting import MOVED, Hosting
from gapless_shb.core.state.consumers import Consumer
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.registry import SubscriptionRecord
from gapless_shb.core.state.subscription import Phase
from gapless_shb.core.state.takers import taker_of
from gapless_shb.core.subscriptions.takeovers import Takeovers, taken_over_by
from gapless_shb.core.subscriptions.waiting import Reason, Waiting


@dataclass(frozen=True, slots=True)
class RangeLock:
    """Who reads a subscription by ranges, and has it alone."""

    session: ClientSession
    request: int
    owner: str


class Holders:
    """All who have subscriptions of an SHB; its leases are kept here, its consumers in `Hosting`."""

    def __init__(self, hosting: Hosting, takeovers: Takeovers, waiting: Waiting) -> None:
        self._hosting = hosting
        self._takeovers = takeovers
        self._waiting = waiting
        self._locks: dict[int, RangeLock] = {}

    def lock(self, sid: int) -> RangeLock | None:
        """Returns who has a lease on the subscription."""
        return self._locks.get(sid)

    def in_use(self, subscription: SubscriptionRecord, instance: str) -> str | None:
        """Returns who has a subscription, for a consumer of this client instance; None if nobody has it."""
        holder = self._locks.get(subscription.sid) or self._hosting.consumers.get(subscription.sid)
        return None if holder is None else _in_use(holder, instance, subscription, reads=False)

    def make_way(
        self,
        session: ClientSession,
        request: Subscribe | TakeLease,
        subscription: SubscriptionRecord,
        again: RequestHandler,
        now: int,
        wall: int,
        *,
        makes_anew: bool,
    ) -> bool:
        """Takes a subscription from whoever has it. Returns whether nobody has it now; if not, the request waits.

        Raises RefusedError. `again`: handles the request from the top. `makes_anew`: the subscription is made anew; for
        that no consumer loses it.
        """
        sid, taker = subscription.sid, taker_of(session, request)
        holder = self._locks.get(sid) or self._hosting.consumers.get(sid)
        if holder is not None and not _gives_way(holder, session, request):
            in_use = self._takeovers.in_use(sid, taker, request.in_use)
            if in_use is InUse.TAKEOVER and makes_anew and isinstance(holder, Consumer):
                in_use = InUse.ERROR
            if in_use is InUse.ERROR:
                reads = isinstance(request, TakeLease)
                raise RefusedError(Code.IN_USE, _in_use(holder, session.instance, subscription, reads=reads))
            if in_use is InUse.WAIT:
                self._waiting.put(Reason.IN_USE, session, request, again, sid)
                return False
        self._takeovers.check(sid, session, request, now, wall)
        by = taken_over_by(session.client_id, taker, wall)
        if isinstance(holder, RangeLock):
            is_repeated = (holder.session.number, holder.request) == (session.number, request.request)
            what = "a consumer has the subscription: "
            if isinstance(request, TakeLease):
                what = f"the lease is that of {request.owner!r}, "
            self._end_lock(sid, None if is_repeated else LeaseLost(holder.request, Code.TAKEN_OVER, what + by))
            self._takeovers.left(sid)
        elif holder is not None:
            what = f"leased to {request.owner!r}, " if isinstance(request, TakeLease) else ""
            self.take_from(holder, None if _gives_way(holder, session, request) else what + by)
        return True

    def take_from(self, consumer: Consumer, by: str | None) -> None:
        """A consumer loses its subscription. `by`: to whom; None: to another session of the same client instance."""
        if by is None:
            self._hosting.end_session(consumer.channel.session, MOVED)
        else:
            self._hosting.tell(consumer.channel.session, Detached(consumer.sid, Code.TAKEN_OVER, by))
        self._hosting.detach(consumer.sid)

    def on_lease(
        self,
        session: ClientSession,
        request: TakeLease,
        subscription: SubscriptionRecord,
        again: RequestHandler,
        now: int,
        wall: int,
    ) -> None:
        """Grants a lease, lets the request wait, or takes the subscription from another one. Raises RefusedError.

        The subscription is neither being created nor changed.
        """
        if not self.make_way(session, request, subscription, again, now, wall, makes_anew=False):
            return
        sid = subscription.sid
        self._hosting.registry.become(sid, Phase.LOCKED)
        self._locks[sid] = RangeLock(session, request.request, request.owner)
        self._hosting.session_ends.add(session.number, (RangeLock, sid), lambda _now, _wall: self._end_lock(sid, None))
        self._takeovers.taken(sid, taker_of(session, request))
        self._hosting.tell(session.number, Leased(request.request, sid))

    def on_end(self, session: ClientSession, request: EndLease) -> None:
        """Ends a lease, or drops the request that waits for one."""
        for sid, lock in list(self._locks.items()):
            if (lock.session.number, lock.request) == (session.number, request.request):
                self._end_lock(sid, None)
                self._takeovers.left(sid)
        self._waiting.drop(session.number, request.request)

    @property
    def leased(self) -> list[int]:
        """The subscriptions that somebody has a lease on."""
        return list(self._locks)

    def forbid(self, sid: int, reason: str) -> None:
        """Who has a lease may not have it any more."""
        lock = self._locks[sid]
        self._end_lock(sid, LeaseLost(lock.request, Code.FORBIDDEN, reason))
        self._takeovers.left(sid)

    def removed(self, sid: int) -> None:
        """A subscription is removed."""
        lock = self._locks.get(sid)
        if lock is not None:
            self._end_lock(sid, LeaseLost(lock.request, Code.UNSUBSCRIBED, "the subscription was removed"))
        self._takeovers.forget(sid)

    def _end_lock(self, sid: int, lost: LeaseLost | None) -> None:
        """A lease is over. `lost`: what its session is told."""
        session = self._locks.pop(sid).session.number
        if lost is not None:
            self._hosting.tell(session, lost)
        self._hosting.session_ends.remove(session, (RangeLock, sid))
        self._hosting.registry.become(sid, Phase.FREE)


def _gives_way(holder: Consumer | RangeLock, session: ClientSession, request: Subscribe | TakeLease) -> bool:
    """Whether a request comes from whoever has the subscription already, and only goes on in another session."""
    if isinstance(holder, Consumer):
        is_same = holder.instance == session.instance and holder.channel.session != session.number
        return is_same and isinstance(request, Subscribe)
    return isinstance(request, TakeLease) and (
        holder.owner == request.owner or holder.session.instance == session.instance
    )


def _in_use(holder: Consumer | RangeLock, instance: str, of: SubscriptionRecord, *, reads: bool) -> str:
    """Returns who has a subscription, since when, and what a client instance that wants it can do."""
    if isinstance(holder, RangeLock):
        why = ": two readers of one subscription would acknowledge for each other" if reads else ""
        return f"subscription {of.name!r} is leased to {holder.owner!r}{why}"
    if reads:
        return "the subscription is consumed: it cannot be leased at the same time"
    who = "this very connection"
    if holder.instance != instance:
        who = f"another process or connection of client {of.client_id!r} (instance {holder.instance[:8]})"
    return (
        f"subscription {of.name!r} is consumed by {who} since {time_at(tick_at(holder.since)):%Y-%m-%d %H:%M:%S} UTC:"
        " in_use='takeover' takes it over, in_use='wait' waits until it is free"
    )
