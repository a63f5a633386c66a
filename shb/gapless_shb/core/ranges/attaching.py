"""Creating a durable subscription, or finding it, without consuming it (protocol: ranges)."""

from __future__ import annotations

from gapless.core.ports import ClientSession
from gapless.core.wire.messages import Attach, AttachedTo, InUse, Position, Subscribe
from gapless.core.wire.tokens import seal
from gapless_shb.core.admission import removed
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.subscribing import Subscribing


def as_subscribe(request: Attach) -> Subscribe:
    """The same wish as of one who consumes."""
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
    )


class Attaching:
    """Answers Attach, when the subscription is durable and where it begins is final."""

    def __init__(self, hosting: Hosting, subscribing: Subscribing) -> None:
        self._hosting = hosting
        self._subscribing = subscribing
        self._waiting: list[tuple[int, Attach, int]] = []
        """Session, request and subscription of those that are being created."""

    def on_attach(self, session: ClientSession, request: Attach, now: int, wall: int) -> None:
        """Creates it, or finds it. Raises RefusedError."""
        sid = self._subscribing.define(session, as_subscribe(request), now, wall)
        self._waiting.append((session.number, request, sid))

    def is_awaited(self, sid: int) -> bool:
        """Whether somebody waits for a subscription that is being created."""
        return any(waiting == sid for _, _, waiting in self._waiting)

    def answer_ready(self) -> None:
        """Something happened: answers what is created."""
        waiting, self._waiting = self._waiting, []
        for session, request, sid in waiting:
            if self._hosting.registry.get(sid) is None:
                self._hosting.tell(session, removed().answer(request.request))
            elif self._subscribing.is_creating(sid):
                self._waiting.append((session, request, sid))
            else:
                self._answer(session, request, sid)

    def on_session_ended(self, session: int) -> None:
        """Nobody hears the answers any more; what is being created stays."""
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
        sealed = seal(hosting.secret, hosting.network, sid, subscription.generation)
        hosting.tell(session, AttachedTo(request.request, sid, subscription.generation, sealed, positions))
