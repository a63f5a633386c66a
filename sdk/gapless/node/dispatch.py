"""Which role of a node takes what: most of it by its type, what concerns a pubend by whose that is.

Rules of this module: as for the cores (`gapless.core`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Final, get_args

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless.core.ports import Handler, LinkHasRoom, LogAnswer, RequestHandler, Role, RulesReplaced, SessionEnded
from gapless.core.server.inquiry_mail import MAILBOX
from gapless.core.server.joining import JOINS
from gapless.core.stream.ticks import PubendId, name_of
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

OF_NODE: Final = (routing.RanTwice, RulesReplaced)
"""What is said of the node as a whole: every role may take it."""

LOG_ANSWERS: Final = get_args(LogAnswer)
"""What a log answers: only the role that asked gets it."""


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
        self.inquired: dict[type, dict[int, RequestHandler]] = {kind: {} for kind in JOINS}
        """What is asked of the whole network: of each kind of request, the handlers of the roles that answer it."""
        self.requests = self._requests_of(roles)
        """The handler of each other client message that a role answers."""
        self.facts: dict[type, Handler] = {
            kind: self._taker(kind, takers) for kind, takers in takers_of(roles, tables).items()
        } | {routing.Posted: self._on_posted}
        """What takes each fact that a router may say to a core."""
        self.of_sessions: dict[type, list[Handler]] = {
            kind: [table[kind] for table in tables if kind in table] for kind in (SessionEnded, LinkHasRoom)
        }
        """What is said of sessions: of each kind, the handlers of every role that takes it."""
        self.of_node: dict[type, list[Handler]] = {
            kind: [table[kind] for table in tables if kind in table] for kind in OF_NODE
        }
        """What is said of the node itself: likewise."""
        self.judges = [source for source, table in enumerate(tables) if RulesReplaced in table]
        """The roles that judge again what they have allowed, by position."""
        self.log_answers: list[dict[type, Handler]] = [
            {kind: table.get(kind, _nobody) for kind in LOG_ANSWERS} for table in tables
        ]
        """By position of the role: what answers its own questions alone."""
        if MAILBOX in self._names:
            raise ConfigurationError(f"no role can be called {MAILBOX!r}: the node itself has its mail under that name")
        self._mailboxes = {
            name: table[routing.Posted]
            for name, table in zip(self._names, tables, strict=True)
            if routing.Posted in table
        }
        self._answered = {
            name: table[routing.Submitted]
            for name, table in zip(self._names, tables, strict=True)
            if routing.Submitted in table
        }
        self._hosted: dict[PubendId, tuple[int, routing.PubendMeta]] = {}
        """The pubends of this node: whose each is, by the role's position, and what was last said of it."""

    def take_node_mail(self, handler: Handler) -> None:
        """This handler takes the mail of the node itself."""
        self._mailboxes[MAILBOX] = handler

    def on_opened(self, opened: routing.Opened, source: int) -> None:
        """A role hosts a pubend: that is how it registers for what concerns it."""
        host, _ = self._hosted.setdefault(opened.meta.pubend, (source, opened.meta))
        if host != source:
            names = self._names[host], self._names[source]
            raise ConfigurationError(f"the roles {names[0]!r} and {names[1]!r} both host {opened.meta.pubend}")
        self._hosted[opened.meta.pubend] = source, opened.meta

    def _touching(self, source: int, handler: Callable[..., None]) -> Callable[..., None]:
        touch = self.touched.add

        def handle(*said_and_time: Any) -> None:
            touch(source)
            handler(*said_and_time)

        return handle

    def _requests_of(self, roles: Sequence[Role]) -> dict[type, RequestHandler]:
        """The handler of each client message that one role answers; several may answer what the network is asked."""
        claimed: dict[type, str] = {}
        requests: dict[type, RequestHandler] = {}
        for source, role in enumerate(roles):
            for kind, handler in role.requests().items():
                touching = self._touching(source, handler)
                if kind in self.inquired:
                    self.inquired[kind][source] = touching
                else:
                    _claim(claimed, kind, role)
                    requests[kind] = touching
        return requests

    def _taker(self, kind: type, takers: dict[int, Handler]) -> Handler:
        if len(takers) > 1:
            return partial(self._to_host, kind, takers)
        return next(iter(takers.values()), _nobody)

    def _to_host(self, kind: type, takers: dict[int, Handler], effect: Any, now: int, wall: int) -> None:
        """Of several roles, the one that hosts the pubend; of a pubend that nobody hosts, the first has to say so."""
        pubend = PUBEND_OF[kind](effect)
        if not pubend and kind is routing.SubmitOpen:
            pubend = self._pubend_for(effect.request.topic)
        if pubend not in self._hosted:  # it may be gone: who hosts another incarnation of it has to say so
            pubend = next((other for other in self._hosted if name_of(other) == name_of(pubend)), "")
        source = self._hosted[pubend][0] if pubend in self._hosted else next(iter(takers))
        takers.get(source, _nobody)(effect, now, wall)

    def _pubend_for(self, topic: str | None) -> PubendId:
        """A pubend of the host that a publisher is to be opened at: of the first one that carries its topic."""
        for _, meta in sorted(self._hosted.values(), key=itemgetter(0)):
            if not meta.read_only and (topic is None or any(topic_matches(pattern, topic) for pattern in meta.topics)):
                return meta.pubend
        return ""

    def on_answered(self, asked: routing.RoleAsks, placed: routing.Submitted, now: int, wall: int) -> None:
        """A role has asked for an opening."""
        self._answered.get(asked.role, _nobody)(placed, now, wall)

    def _on_posted(self, posted: routing.Posted, now: int, wall: int) -> None:
        """Only the role that it is for gets it. Any role may take mail, and so may the node itself."""
        self._mailboxes.get(posted.role, _nobody)(posted, now, wall)


def takers_of(roles: Sequence[Role], tables: Sequence[Mapping[type, Handler]]) -> dict[type, dict[int, Handler]]:
    """Who takes each fact that a router may say to a core, by position."""
    claimed: dict[type, str] = {}
    takers: dict[type, dict[int, Handler]] = {kind: {} for kind in get_args(Effect)}
    for source, (role, table) in enumerate(zip(roles, tables, strict=True)):
        for kind, handler in table.items():
            if kind in LOG_ANSWERS or kind in (SessionEnded, LinkHasRoom, routing.Posted, routing.Submitted, *OF_NODE):
                continue  # for every role that takes it, or for who asked
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
