"""Which role of a node takes what: most of it by its type, what concerns a pubend by whose that is.

Rules of this module: as for the cores (`gapless.core`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final, TypeAlias, get_args

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless.core.ports import Appended, ClientSession, Handler, RequestHandler, Role, SessionEnded, Tell
from gapless.core.stream.ticks import PubendId
from gapless.core.wire.messages import Code, ListPubends, PubendList, RequestFailed, Retire, Retired, ServerMessage
from gapless.errors import ConfigurationError
from gapless.selectors.topics import topic_matches

PUBEND_OF: Final[dict[type, Callable[[Any], PubendId]]] = {
    routing.AskPubend: attrgetter("want.pubend"),
    routing.Enrol: attrgetter("pubend"),
    routing.Hold: attrgetter("pubend"),
    routing.Released: attrgetter("pubend"),
    routing.SubmitOpen: attrgetter("request.pubend"),
    routing.Submit: attrgetter("pub.pubend"),
}
"""What concerns a pubend goes to whoever hosts it: two roles may take the same of these, no other fact."""


class Dispatch:
    """The handlers of all roles. A fact that nobody takes is dropped: the seam is lossy."""

    def __init__(self, roles: Sequence[Role]) -> None:
        """Raises ConfigurationError when two roles claim the same message, or a fact that concerns no pubend."""
        self._names = [role.name for role in roles]
        self.touched: set[int] = set()
        """The roles that were called since this was last cleared, by position: they may want something."""
        tables: list[dict[type, Handler]] = [
            {kind: self._touching(source, handler) for kind, handler in role.handlers().items()}
            for source, role in enumerate(roles)
        ]
        self.merged = MergedRequests()
        """What clients asked and several roles answer."""
        self.requests = self._requests_of(roles)
        """The handler of each client message that a role answers."""
        self.facts: dict[type, Handler] = {
            kind: self._taker(kind, takers) for kind, takers in takers_of(roles, tables).items()
        } | {routing.Posted: self._on_posted}
        """What takes each fact that a router may say to a core."""
        self.session_ended = [table[SessionEnded] for table in tables if SessionEnded in table]
        """For every role that takes it."""
        self.session_ended.append(self.merged.on_session_ended)
        self.appended = [table.get(Appended, _nobody) for table in tables]
        """By position of the role: its own appends alone."""
        self._mailboxes = {
            name: table[routing.Posted]
            for name, table in zip(self._names, tables, strict=True)
            if routing.Posted in table
        }
        self._hosted: dict[PubendId, tuple[int, routing.PubendMeta]] = {}
        """The pubends of this node: whose each is, by the role's position, and what was last said of it."""

    def on_opened(self, opened: routing.Opened, source: int) -> None:
        """A role hosts a pubend: that is how it registers for what concerns it."""
        host, _ = self._hosted.setdefault(opened.meta.pubend, (source, opened.meta))
        if host != source:
            names = self._names[host], self._names[source]
            raise ConfigurationError(f"the roles {names[0]!r} and {names[1]!r} both host {opened.meta.pubend}")
        self._hosted[opened.meta.pubend] = source, opened.meta

    def _touching(self, source: int, handler: Callable[..., None]) -> Callable[..., None]:
        def handle(*said_and_time: Any) -> None:
            self.touched.add(source)
            handler(*said_and_time)

        return handle

    def _requests_of(self, roles: Sequence[Role]) -> dict[type, RequestHandler]:
        """The handler of each client message that a role answers; several roles may answer what can be merged."""
        claimed: dict[type, str] = {}
        takers: dict[type, dict[int, RequestHandler]] = {}
        for source, role in enumerate(roles):
            for kind, handler in role.requests().items():
                if kind not in MERGES:
                    _claim(claimed, kind, role)
                takers.setdefault(kind, {})[source] = self._touching(source, handler)
        return {
            kind: next(iter(found.values())) if len(found) == 1 else self.merged.handler(kind, found)
            for kind, found in takers.items()
        }

    def _taker(self, kind: type, takers: dict[int, Handler]) -> Handler:
        if len(takers) > 1:
            return partial(self._to_host, kind, takers)
        return next(iter(takers.values()), _nobody)

    def _to_host(self, kind: type, takers: dict[int, Handler], effect: Any, now: int, wall: int) -> None:
        """Of several roles, the one that hosts the pubend; of a pubend that nobody hosts, the first has to say so."""
        pubend = PUBEND_OF[kind](effect)
        if not pubend and kind is routing.SubmitOpen:
            pubend = self._pubend_for(effect.request.topic)
        source = self._hosted[pubend][0] if pubend in self._hosted else next(iter(takers))
        takers.get(source, _nobody)(effect, now, wall)

    def _pubend_for(self, topic: str | None) -> PubendId:
        """A pubend of the host that a publisher is to be opened at: of the first one that carries its topic."""
        for _, meta in sorted(self._hosted.values(), key=itemgetter(0)):
            if not meta.sealed and (topic is None or any(topic_matches(pattern, topic) for pattern in meta.topics)):
                return meta.pubend
        return ""

    def _on_posted(self, posted: routing.Posted, now: int, wall: int) -> None:
        """Only the role that it is for gets it. Any role may take mail."""
        self._mailboxes.get(posted.role, _nobody)(posted, now, wall)


def takers_of(roles: Sequence[Role], tables: Sequence[Mapping[type, Handler]]) -> dict[type, dict[int, Handler]]:
    """Who takes each fact that a router may say to a core, by position."""
    claimed: dict[type, str] = {}
    takers: dict[type, dict[int, Handler]] = {kind: {} for kind in get_args(Effect)}
    for source, (role, table) in enumerate(zip(roles, tables, strict=True)):
        for kind, handler in table.items():
            if kind in (SessionEnded, routing.Posted, Appended):  # for every role that takes it, or for who asked
                continue
            if kind not in PUBEND_OF:
                _claim(claimed, kind, role)
            takers.setdefault(kind, {})[source] = handler
    return takers


def _claim(claimed: dict[type, str], kind: type, role: Role) -> None:
    if kind in claimed:
        raise ConfigurationError(f"the roles {claimed[kind]!r} and {role.name!r} both answer {kind.__name__}")
    claimed[kind] = role.name


def _nobody(_message: Any, _now: int, _wall: int) -> None:
    """The node has no such role."""


# What several roles answer, each for what it has: all are asked, and the client gets one answer.

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
