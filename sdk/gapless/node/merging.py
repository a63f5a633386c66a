"""Requests that several roles of a node answer, each for what it has: all are asked, and the client gets one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gapless.core.ports import ClientSession, RequestHandler, SessionEnded, Tell
from gapless.core.wire.messages import Code, ListPubends, PubendList, RequestFailed, Retire, Retired, ServerMessage

Merge: TypeAlias = "Callable[[Sequence[Any]], ServerMessage]"
"""One answer, of those of all roles in their order."""


def _all_pubends(answers: Sequence[PubendList | RequestFailed]) -> ServerMessage:
    lists = [answer for answer in answers if isinstance(answer, PubendList)]
    if len(lists) < len(answers):
        return next(answer for answer in answers if not isinstance(answer, PubendList))
    return PubendList(lists[0].request, [row for one in lists for row in one.rows])


def _all_retired(answers: Sequence[Retired | RequestFailed]) -> ServerMessage:
    """Where one knows the SHB, it does not matter that another one does not."""
    done = [answer for answer in answers if isinstance(answer, Retired)]
    if not done:
        return answers[0]
    names = sorted({answer.shb for answer in done})
    if len(names) > 1:
        reason = f"several SHBs are called so, name one of them in full: {', '.join(names)}"
        return RequestFailed(done[0].request, Code.CONFIGURATION, reason)
    pubends = [pubend for answer in done for pubend in answer.pubends]
    return Retired(done[0].request, names[0], pubends, any(answer.before for answer in done))


MERGES: Final[Mapping[type, Merge]] = {ListPubends: _all_pubends, Retire: _all_retired}
"""What several roles may answer, for every role that hosts pubends has something to say; and what becomes of it."""


@dataclass(slots=True)
class _Asked:
    merge: Merge
    sources: tuple[int, ...]
    answers: dict[int, ServerMessage] = field(default_factory=dict)


class MergedRequests:
    """The requests of clients that were put to several roles and are not answered by all of them yet."""

    def __init__(self) -> None:
        self._asked: dict[tuple[int, int], _Asked] = {}
        """By session and the request's number."""

    def handler(self, kind: type, takers: Mapping[int, RequestHandler]) -> RequestHandler:
        """Takes such requests and asks all of these roles, by their position."""

        def ask(session: ClientSession, message: Any, now: int, wall: int) -> None:
            self._asked[session.number, message.request] = _Asked(MERGES[kind], tuple(takers))
            for handler in takers.values():
                handler(session, message, now, wall)

        return ask

    def answer(self, told: Tell, source: int) -> Tell | None:
        """What the client is told when a role tells it something: None while other roles have yet to answer."""
        key = told.session, getattr(told.message, "request", 0)
        asked = self._asked.get(key)
        if asked is None or source not in asked.sources:
            return told
        asked.answers[source] = told.message
        if len(asked.answers) < len(asked.sources):
            return None
        del self._asked[key]
        return Tell(told.session, asked.merge([asked.answers[one] for one in asked.sources]))

    def on_session_ended(self, ended: SessionEnded, _now: int, _wall: int) -> None:
        """Nobody waits for the answers any more."""
        for key in [key for key in self._asked if key[0] == ended.session.number]:
            del self._asked[key]
