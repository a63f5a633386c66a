"""Requests that wait, all in one place (protocol: waiting).

Whatever a request has waited for, it runs again from the top, as if it had come just now: each of its checks counts
once more. So nothing that happened meanwhile has to be thought of where it waits. What is done for one request alone
goes on where it was: a creation, the consumer that was chosen, the question to its home. A request waits for one thing
at a time, and its session's end ends its waiting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from gapless.core.gauges import Gauge
from gapless.core.ports import ClientSession, RequestHandler
from gapless.core.wire.messages import ServerMessage
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.state import gauges
from gapless_shb.core.state.refusals import RefusedError
from gapless_shb.core.state.session_ends import End
from gapless_shb.core.state.subscription import Phase


class Reason(Enum):
    """What a request waits for; the value says that to an operator."""

    IN_USE = "somebody else has it"
    """Until it is free; whoever has waited longest comes first."""
    PREPARING = "it is being created or changed"
    """Until that is durable, and answered: to whoever has asked for it first of all."""
    RECORD = "its commit record is being written"
    """Until that is durable. Its consumer is chosen."""
    CLAIM = "pubends where transactions store its position have not answered"
    """Until they have, and nobody else stores it there any more."""
    RETURN = "its return is being noted"
    """Until that is durable."""
    POSITION = "its position is ahead of all that is known here"
    """Until the pubend has said how far it is."""
    HOME = "its home has not answered"
    """Until the SHB that keeps the subscription has; it makes the checks, and the request goes on with its answer."""


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """One of them."""

    reason: Reason
    session: ClientSession
    request: Any
    again: RequestHandler
    """Handles it from the top."""
    sid: int
    """Of its subscription; 0: that does not exist yet."""
    left: End | None
    """What follows if its session ends first."""
    waits: bool = True
    """Whether it still does."""


class Waiting:
    """All requests about subscriptions that wait."""

    def __init__(self, hosting: Hosting) -> None:
        self._hosting = hosting
        self._requests: dict[int, dict[WaitingRequest, None]] = {}
        """By subscription, in the order in which they came."""
        self._passing_on: set[int] = set()
        """The subscriptions whose requests go on just now, one after the other."""

    def put(
        self,
        reason: Reason,
        session: ClientSession,
        request: Any,
        again: RequestHandler,
        sid: int = 0,
        left: End | None = None,
    ) -> WaitingRequest:
        """Lets a request wait."""
        waiting = WaitingRequest(reason, session, request, again, sid, left)
        self._requests.setdefault(sid, {})[waiting] = None
        self._hosting.session_ends.add(session.number, waiting, partial(self._left, waiting))
        return waiting

    def go_on(self, waiting: WaitingRequest, now: int, wall: int) -> None:
        """What a request has waited for has come, unless it waits no more."""
        if self.take(waiting):
            waiting.again(waiting.session, waiting.request, now, wall)

    def refuse(self, waiting: WaitingRequest, why: RefusedError) -> None:
        """What a request has waited for will not come."""
        self.answer(waiting, why.answer(waiting.request.request))

    def answer(self, waiting: WaitingRequest, message: ServerMessage) -> None:
        """Somebody else has answered a request, unless it waits no more."""
        if self.take(waiting):
            self._hosting.tell(waiting.session.number, message)

    def wake(self, sid: int, reason: Reason, now: int, wall: int) -> None:
        """What several requests have waited for has come."""
        for waiting in [each for each in self._requests.get(sid, ()) if each.reason is reason]:
            self.go_on(waiting, now, wall)

    def refuse_all(self, sid: int, why: RefusedError) -> None:
        """A subscription is removed."""
        for waiting in list(self._requests.get(sid, ())):
            self.refuse(waiting, why)

    def pass_on(self, sid: int, now: int, wall: int) -> None:
        """Whatever a subscription is now: requests that waited for that go on, before any that comes later."""
        if sid not in self._requests or sid in self._passing_on:
            return
        self._passing_on.add(sid)
        if not self._hosting.registry.is_preparing(sid):
            self.wake(sid, Reason.PREPARING, now, wall)
        while (first := self._first_in_line(sid)) is not None:
            self.go_on(first, now, wall)
        self._passing_on.remove(sid)

    @property
    def is_due(self) -> bool:
        """Whether a subscription that requests wait for has gone over to another phase."""
        return any(sid in self._requests for sid in self._hosting.registry.moved)

    def pass_all_on(self, now: int, wall: int) -> None:
        """Does that for all subscriptions that have gone over to another phase."""
        registry = self._hosting.registry
        moved, registry.moved = registry.moved, {}
        for sid in moved:
            self.pass_on(sid, now, wall)

    def drop(self, session: int, request: int) -> None:
        """A client does not want what it has asked for any more."""
        for waiting in list(self):
            if (waiting.session.number, waiting.request.request) == (session, request):
                self.take(waiting)

    def is_awaited(self, sid: int, reason: Reason) -> bool:
        """Whether a request about a subscription waits for this."""
        return any(waiting.reason is reason for waiting in self._requests.get(sid, ()))

    def of(self, sid: int) -> list[WaitingRequest]:
        """Returns the requests about a subscription that wait."""
        return list(self._requests.get(sid, ()))

    def gauges(self) -> Iterator[Gauge]:
        """Yields how many requests wait, by what they wait for."""
        counts = Counter(waiting.reason for waiting in self)
        for reason in Reason:
            yield gauges.WAITING.gauge(counts[reason], reason.name.lower())

    def __iter__(self) -> Iterator[WaitingRequest]:
        for requests in self._requests.values():
            yield from requests

    def _left(self, waiting: WaitingRequest, now: int, wall: int) -> None:
        self.take(waiting)
        if waiting.left is not None:
            waiting.left(now, wall)

    def _first_in_line(self, sid: int) -> WaitingRequest | None:
        """Returns the request that may have a subscription now, if that is free."""
        if self._hosting.registry.phase(sid) is not Phase.FREE:
            return None
        return next((waiting for waiting in self._requests.get(sid, ()) if waiting.reason is Reason.IN_USE), None)

    def take(self, waiting: WaitingRequest) -> bool:
        """Takes a request out. Returns whether it was there."""
        if not waiting.waits:
            return False
        waiting.waits = False
        self._hosting.session_ends.remove(waiting.session.number, waiting)
        requests = self._requests[waiting.sid]
        del requests[waiting]
        if not requests:
            del self._requests[waiting.sid]
        return True


def told(waiting: WaitingRequest) -> str:
    """Returns whose request waits, and for what, for people."""
    session = waiting.session
    return f"instance {session.instance[:8]} of client {session.client_id!r} waits: {waiting.reason.value}"
