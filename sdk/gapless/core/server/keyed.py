"""Keyed batches of all sessions: each is a question, which first finds its pubend, and is answered once.

Where a producer belongs is asked with every batch. That costs a turn of the router, and no state here that could be
wrong; a sink's batches are large.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gapless.core.network.facts import OpenRequest, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.server.link_session import LinkSession
from gapless.core.server.outbox import LinkOutputs
from gapless.core.server.publishing import CODES
from gapless.core.wire.messages import Code, KeyedPublished, PublishKeyed, RequestFailed

UNANSWERED_MAX: Final = 256
"""Keyed batches that a session may have unanswered."""


class KeyedReply(Struct, frozen=True, gc=False):
    """What the router hands back with its answer to either question of a keyed batch."""

    session: int
    serial: int


class KeyedBatches:
    """The keyed batches that are not answered yet."""

    def __init__(self, outbox: LinkOutputs, effects: list[object]) -> None:
        """Questions for the router are appended to `effects`, answers for clients go to `outbox`."""
        self._outbox = outbox
        self._effects = effects
        self._serial = 0
        self._waiting: dict[int, dict[int, PublishKeyed]] = {}
        """By session, and by serial: a client may send one again under the same number."""
        self._placed: dict[int, set[int]] = {}
        """By session, the serials of those whose pubend is found."""

    def on_publish(self, connection: LinkSession, session: int, message: PublishKeyed) -> None:
        """A batch."""
        waiting = self._waiting.setdefault(session, {})
        if len(waiting) >= UNANSWERED_MAX:
            self._refuse(connection, session, message, Code.RETRY, f"{UNANSWERED_MAX} keyed batches are unanswered")
        else:
            self._serial += 1
            waiting[self._serial] = message
            who = connection.principal
            request = OpenRequest(message.producer, "", 0, message.topic or None, keyed=True, principal=who)
            self._effects.append(SubmitOpen(request, KeyedReply(session, self._serial)))

    def on_placed(self, connection: LinkSession, reply_to: KeyedReply, placed: Submitted) -> None:
        """The router's answer to either question, of a session that lives."""
        session, serial = reply_to.session, reply_to.serial
        waiting = self._waiting.get(session, {})
        message = waiting.get(serial)
        if message is None:
            return
        outcome, is_logged = placed.outcome, serial in self._placed.get(session, ())
        if outcome.verdict is not Verdict.OK:
            self._over(session, serial)
            self._refuse(connection, session, message, CODES[outcome.verdict], outcome.reason)
        elif is_logged:
            self._over(session, serial)
            answer = KeyedPublished(message.request, placed.pubend, list(outcome.ticks))
            self._outbox.tell(connection.link, session, answer)
        else:
            self._placed.setdefault(session, set()).add(serial)
            who, events = connection.principal, message.events
            pub = Pub(message.producer, message.epoch, message.index, events, placed.pubend, keyed=True, principal=who)
            self._effects.append(Submit(pub, KeyedReply(session, serial)))

    def on_session_over(self, session: int) -> None:
        """Nobody hears the answers any more; what was placed may still be logged."""
        self._waiting.pop(session, None)
        self._placed.pop(session, None)

    def _over(self, session: int, serial: int) -> None:
        del self._waiting[session][serial]
        self._placed.get(session, set()).discard(serial)

    def _refuse(self, connection: LinkSession, session: int, message: PublishKeyed, code: Code, reason: str) -> None:
        self._outbox.tell(connection.link, session, RequestFailed(message.request, code, reason))
