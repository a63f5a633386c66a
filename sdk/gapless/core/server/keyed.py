"""Keyed batches of all sessions: each is a question, which first finds its pubend, and is answered once.

Where a producer belongs is asked with every batch. That costs a turn of the router, and no state here that could be
wrong; a sink's batches are large.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from gapless.core.network.facts import OpenRequest, Pub, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.ports import ClientSession
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
    is_placed: bool
    """Whether the question was to log it; else where its producer belongs."""


class KeyedBatches:
    """The keyed batches that are not answered yet."""

    def __init__(self, outbox: LinkOutputs, effects: list[object]) -> None:
        """Questions for the router are appended to `effects`, answers for clients go to `outbox`."""
        self._outbox = outbox
        self._effects = effects
        self._serial = 0
        self._unanswered: dict[int, dict[int, PublishKeyed]] = {}
        """By session, and by the serial of the latest question: a client may send one again under the same number."""

    def on_publish(self, connection: LinkSession, client: ClientSession, message: PublishKeyed) -> None:
        """A batch."""
        session = client.number
        if len(self._unanswered.get(session, ())) >= UNANSWERED_MAX:
            self._refuse(connection, session, message, Code.RETRY, f"{UNANSWERED_MAX} keyed batches are unanswered")
            return
        topic, who = message.topic or None, client.principal
        request = OpenRequest(message.producer, "", 0, topic, keyed=True, principal=who)
        self._effects.append(SubmitOpen(request, self._ask(session, message, is_placed=False)))

    def on_placed(self, connection: LinkSession, reply_to: KeyedReply, placed: Submitted) -> None:
        """The router's answer to either question, of a session that lives."""
        session = reply_to.session
        message = self._unanswered.get(session, {}).pop(reply_to.serial, None)
        if message is None:
            return
        outcome = placed.outcome
        if outcome.verdict is not Verdict.OK:
            self._refuse(connection, session, message, CODES[outcome.verdict], outcome.reason)
        elif reply_to.is_placed:
            answer = KeyedPublished(message.request, placed.pubend, list(outcome.ticks))
            self._outbox.tell(connection.link, session, answer)
        else:
            assert connection.client is not None
            who, events = connection.client.principal, message.events
            pub = Pub(message.producer, message.epoch, message.index, events, placed.pubend, keyed=True, principal=who)
            self._effects.append(Submit(pub, self._ask(session, message, is_placed=True)))

    def on_session_over(self, session: int) -> None:
        """Nobody receives the answers any more; what was placed may still be logged."""
        self._unanswered.pop(session, None)

    def _ask(self, session: int, message: PublishKeyed, *, is_placed: bool) -> KeyedReply:
        self._serial += 1
        self._unanswered.setdefault(session, {})[self._serial] = message
        return KeyedReply(session, self._serial, is_placed)

    def _refuse(self, connection: LinkSession, session: int, message: PublishKeyed, code: Code, reason: str) -> None:
        self._outbox.tell(connection.link, session, RequestFailed(message.request, code, reason))
