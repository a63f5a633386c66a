"""A node's own answers to inquiries: of its roles, and for other nodes, which fetch them in pages.

A role is asked as if by a client: under a session that no client has. So no role knows of inquiries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gapless.core.network.facts import BrokerId, Post
from gapless.core.ports import Authorizer, ClientSession, RequestHandler, Tell
from gapless.core.principals import Principal
from gapless.core.server.audit import Audit
from gapless.core.server.inquiry_mail import (
    MAILBOX,
    WINDOW,
    AnswerMessage,
    AnswerPage,
    AskNode,
    decode_request,
    encode_mail,
    pages_of,
)
from gapless.core.server.permissions import refusal_of
from gapless.core.wire.messages import Code, RequestFailed
from gapless.core.wire.messages.checks import problem_of
from gapless.errors import RemoteProtocolError

SECOND: Final = 1_000_000_000
KEPT: Final = 10 * SECOND
"""So long an answer is kept after it was last asked for."""
ANSWERS_MAX: Final = 32
"""So many answers are kept, or put together, at a time; who comes later is not answered until one is gone."""
ANSWERS_BYTES_MAX: Final = 64 << 20
"""About how many bytes of them are kept, beside the newest one."""
SESSIONS_FROM: Final = 1 << 64
"""The sessions under which roles are asked have numbers from here on, and no client's session has."""

Then: TypeAlias = "Callable[[list[AnswerMessage]], None]"


@dataclass(slots=True)
class _Asked:
    waiting: dict[int, None]
    """The roles that have not answered in full, by position."""
    answers: dict[int, list[Any]]
    then: Then


class LocalRoles:
    """The roles of this node, as far as they answer inquiries."""

    def __init__(self, takers: Mapping[type, Mapping[int, RequestHandler]]) -> None:
        """`takers`: for each kind of request the handlers, by the position of their role."""
        self._takers = takers
        self._asked: dict[int, _Asked] = {}
        self._count = 0

    def take(self, kind: type) -> bool:
        """Whether a role of this node answers such requests."""
        return bool(self._takers.get(kind))

    def ask(self, client_id: str, principal: Principal, message: Any, then: Then, now: int, wall: int) -> None:
        """Asks every role that answers such a request; `then` is called once with the messages of all."""
        takers = self._takers.get(type(message), {})
        self._count += 1
        session = ClientSession(SESSIONS_FROM + self._count, client_id, "", principal)
        if not takers:
            then([])
            return
        self._asked[session.number] = _Asked(dict.fromkeys(takers), {source: [] for source in takers}, then)
        for source, handler in takers.items():
            try:
                handler(session, message, now, wall)
            except RemoteProtocolError as error:
                failed = RequestFailed(message.request, Code.CONFIGURATION, str(error))
                self.on_told(Tell(session.number, failed), source)

    def on_told(self, told: Tell, source: int) -> None:
        """A role has answered, or a part of it."""
        asked = self._asked.get(told.session)
        if asked is None or source not in asked.waiting:
            return
        asked.answers[source].append(told.message)
        if getattr(told.message, "more", False):
            return
        del asked.waiting[source]
        if not asked.waiting:
            del self._asked[told.session]
            asked.then([message for answer in asked.answers.values() for message in answer])


@dataclass(slots=True)
class _Kept:
    run: int
    wanted: int
    """The page from which on it was last asked for."""
    asked_at: int
    pages: list[bytes] = field(default_factory=list)
    """Empty until the answer is complete."""

    @property
    def size(self) -> int:
        return sum(map(len, self.pages))


class AnswersToNodes:
    """What this node answers to other nodes. A question that is repeated has the same answer while that is kept."""

    def __init__(
        self, start: int, roles: LocalRoles, authorizer: Authorizer, audit: Audit, post: Callable[[Post], None]
    ) -> None:
        """`start`: names this life of the node."""
        self._audit = audit
        self._roles = roles
        self._authorizer = authorizer
        self._post = post
        self._run = start << 24
        self._kept: dict[tuple[BrokerId, int], _Kept] = {}
        """The one that was asked for last is the last one."""

    @property
    def count(self) -> int:
        """How many answers are kept, or put together."""
        return len(self._kept)

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called, or None."""
        return min((kept.asked_at + KEPT for kept in self._kept.values() if kept.pages), default=None)

    def on_deadline(self, now: int) -> None:
        """Forgets what nobody has asked for any more."""
        self._kept = {key: kept for key, kept in self._kept.items() if not kept.pages or now < kept.asked_at + KEPT}

    def on_asked(self, asker: BrokerId, ask: AskNode, now: int, wall: int) -> None:
        """Another node asks, or asks again."""
        key = asker, ask.question
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._kept[key] = kept
            kept.wanted, kept.asked_at = ask.page, now
            self._send(key, kept)
        elif self._make_room():
            self._run += 1
            kept = self._kept[key] = _Kept(self._run, ask.page, now)
            self._begin(key, kept, ask, now, wall)

    def _begin(self, key: tuple[BrokerId, int], kept: _Kept, ask: AskNode, now: int, wall: int) -> None:
        def answer(messages: list[AnswerMessage]) -> None:
            if self._audit.is_wanted and message is not None:
                self._audit.on_node_answered(key[0], client, message, messages)
            kept.pages = pages_of(messages)
            kept.asked_at = max(kept.asked_at, now)
            self._send(key, kept)

        client = ClientSession(0, ask.client_id, "", Principal.of(ask.principal))
        message = decode_request(ask.request)
        if message is None:
            answer([RequestFailed(0, Code.CONFIGURATION, "it does not know this request: update it")])
            return
        problem = problem_of(message)
        # The asking node has checked what its own rules say; these are the rules of this one.
        refusal = refusal_of(message, client, self._authorizer)
        if problem is not None:
            answer([RequestFailed(message.request, *problem)])
        elif refusal:
            answer([RequestFailed(message.request, Code.FORBIDDEN, refusal)])
        else:
            self._roles.ask(ask.client_id, client.principal, message, answer, now, wall)

    def _make_room(self) -> bool:
        """Forgets answers that were not asked for lately, if there are too many. Returns whether there is room."""
        complete = [key for key, kept in self._kept.items() if kept.pages]
        size = sum(self._kept[key].size for key in complete)
        for key in complete:
            if len(self._kept) < ANSWERS_MAX and size <= ANSWERS_BYTES_MAX:
                break
            size -= self._kept.pop(key).size
        return len(self._kept) < ANSWERS_MAX

    def _send(self, key: tuple[BrokerId, int], kept: _Kept) -> None:
        """Sends the pages that are wanted; while there are none, that it is at work."""
        asker, question = key
        if not kept.pages:
            self._mail(asker, AnswerPage(question, kept.run, 0, 0, b""))
        for page in range(kept.wanted, min(kept.wanted + WINDOW, len(kept.pages))):
            self._mail(asker, AnswerPage(question, kept.run, page, len(kept.pages), kept.pages[page]))

    def _mail(self, to: BrokerId, page: AnswerPage) -> None:
        data = encode_mail(page)
        assert data is not None
        self._post(Post(to, MAILBOX, data))
