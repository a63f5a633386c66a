"""What a client asks of the whole network at one node: who has to answer is asked, and the answers become one.

    client ──▶ its node ──▶ own roles ───────────────▶ one answer, which names
                   │                                    whoever did not answer
                   └─ mail ─▶ other nodes ─▶ roles ──▶

1. The client's own node judges whether the client may ask (`gapless.core.server.permissions`). Every node that is asked
   judges that too, by its own rules, for the mail says who the client is.
2. Each node of the map that has a role which may answer is asked. A node that nothing is heard of for three seconds
   has not answered; a long answer takes as long as it takes.
3. An SHB that is to be retired is looked up at all nodes first, also at the one that bears its name: so not every node
   retires another one of that name, and none retires one that runs, unless that is what was asked for.

Pure: the machine calls it in its turns and posts its mail (protocol: inquiries).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from gapless.core.deadlines import Deadlines
from gapless.core.network.facts import BrokerId, NetworkMap, Post, Posted
from gapless.core.ports import Authorizer, ClientSession, RequestHandler, SessionEnded, Tell
from gapless.core.server.answering import SECOND, AnswersToNodes, LocalRoles
from gapless.core.server.audit import Audit
from gapless.core.server.inquiry_mail import (
    MAILBOX,
    WINDOW,
    AnswerMessage,
    AnswerPage,
    AskNode,
    answer_of,
    decode_mail,
    encode_mail,
    encode_request,
)
from gapless.core.server.joining import JOINS, NEVER_ANSWERED_BY, Missing
from gapless.core.server.limits import BrokerIdentity
from gapless.core.wire.messages import AskStatus, Code, RequestFailed, Retire, Retired, ServerMessage

REPEAT: Final = 400_000_000
"""After so long without an answer a node is asked again."""
SILENT: Final = 3 * SECOND
"""A node of which nothing has come for so long has not answered."""
INQUIRIES_MAX: Final = 64
"""So many are under way at a time; clients ask again later."""
RUNS: Final = (
    "SHB {!r} runs: it has just answered. Stop its node first; if it is to be given up all the same, say that too"
    " (`gapless retire --running`, running=True)"
)
NO_ANSWER: Final = f"it has not answered for {SILENT // SECOND} s"

Collected: TypeAlias = "dict[BrokerId, Iterable[AnswerMessage]]"


@dataclass(slots=True)
class _Fetching:
    """The answer of another node, as far as it has come."""

    heard_at: int
    run: int = 0
    pages: dict[int, bytes] = field(default_factory=dict)
    count: int = 0
    asked_from: int = 0

    @property
    def wanted(self) -> int:
        """The first page that has not come."""
        return next(page for page in range(len(self.pages) + 1) if page not in self.pages)

    @property
    def complete(self) -> bool:
        return bool(self.count) and len(self.pages) == self.count

    def take(self, page: AnswerPage, now: int) -> None:
        if page.run != self.run:
            self.run, self.count = page.run, 0
            self.pages.clear()
        elif page.page in self.pages and page.pages:
            return  # repeated mail is no sign of life
        self.heard_at = now
        self.count = page.pages or self.count  # what says that it is at work may have been overtaken
        if page.page < page.pages:
            self.pages[page.page] = page.data


@dataclass(slots=True)
class _Inquiry:
    """A request of a client that other nodes, or roles, have not answered in full."""

    client: ClientSession
    message: Any
    then: Callable[[_Inquiry], None]
    fetching: dict[BrokerId, _Fetching] = field(default_factory=dict)
    answers: Collected = field(default_factory=dict)
    missing: Missing = field(default_factory=dict)
    own: bool = False
    """Whether the own roles have yet to answer."""


class Inquiries:
    """The inquiries of one node's clients, and its answers to those of others."""

    def __init__(
        self,
        broker: BrokerIdentity,
        authorizer: Authorizer,
        takers: Mapping[type, Mapping[int, RequestHandler]],
        tell: Callable[[int, ServerMessage], None],
        audit: Audit,
    ) -> None:
        """`takers`: what of this node answers each kind of request. `tell`: sends a message to a client's session."""
        self._node = broker.node
        self._network = broker.network
        self._tell_client = tell
        self._roles = LocalRoles(takers)
        self.posts: list[Post] = []
        """The mail to be posted; whoever posts it empties this."""
        self._answers = AnswersToNodes(broker.start, self._roles, authorizer, audit, self.posts.append)
        self._nodes: dict[BrokerId, frozenset[str]] = {self._node: frozenset()}
        self._number = broker.start << 24
        self._inquiries: dict[int, _Inquiry] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._telling: deque[tuple[int, Iterator[ServerMessage]]] = deque()
        """Answers that have more messages. One leaves at a time, so that other work is done between them."""
        self._now, self._wall = 0, 0

    def start(self, network: NetworkMap) -> None:
        """The map is known: before anything is asked."""
        self._nodes |= {name: node.roles for name, node in network.nodes.items()}

    # What happened.

    def on_request(self, client: ClientSession, message: Any, now: int, wall: int) -> None:
        """A client, who may, asks."""
        self._now, self._wall = now, wall
        if len(self._inquiries) >= INQUIRIES_MAX:
            reason = f"{INQUIRIES_MAX} such requests are being answered"
            self._tell_client(client.number, RequestFailed(message.request, Code.RETRY, reason))
        elif isinstance(message, Retire) and not message.only_look and not (message.running and "@" in message.shb):
            look = Retire(message.request, message.shb, only_look=True, running=message.running)
            self._begin(client, look, self._retire_found)
        else:
            self._begin(client, message, self._answer)

    def on_told(self, told: Tell, source: int, now: int, wall: int) -> None:
        """A role of this node has answered."""
        self._now, self._wall = now, wall
        self._roles.on_told(told, source)

    def on_posted(self, posted: Posted, now: int, wall: int) -> None:
        """Mail has come. What is no mail of this version is dropped: whoever asks gives up."""
        self._now, self._wall = now, wall
        mail = decode_mail(posted.data)
        if isinstance(mail, AskNode):
            self._answers.on_asked(posted.from_node, mail, now, wall)
        elif isinstance(mail, AnswerPage):
            self._on_page(posted.from_node, mail)

    def on_session_ended(self, ended: SessionEnded, _now: int, _wall: int) -> None:
        """Nobody waits for these answers any more."""
        session = ended.session.number
        for number in [number for number, one in self._inquiries.items() if one.client.number == session]:
            self._drop(number)
        self._telling = deque((to, rest) for to, rest in self._telling if to != session)

    def on_deadline(self, now: int, wall: int) -> None:
        """The deadline has come."""
        self._now, self._wall = now, wall
        if self._telling:
            self._tell_next()
        self._answers.on_deadline(now)
        for number in self._deadlines.take_expired(now):
            self._repeat(number, self._inquiries[number])

    def deadline(self) -> int | None:
        """When `on_deadline` has to be called, or None."""
        if not self._inquiries and not self._answers.count and not self._telling:
            return None  # asked after every turn of the node, and nearly always so
        if self._telling:
            return self._now
        dues = [due for due in (self._deadlines.next(), self._answers.deadline()) if due is not None]
        return min(dues, default=None)

    # Asking.

    def _targets(self, message: Any) -> Sequence[BrokerId]:
        if isinstance(message, AskStatus):
            return [message.node or self._node]
        without = NEVER_ANSWERED_BY[type(message)]
        named = message.shb.partition("@")[0] if isinstance(message, Retire) and message.only_look else None
        asked = [name for name, roles in self._nodes.items() if roles - without or name == named or not roles]
        others = [name for name in asked if name != self._node and self._nodes[name]]
        own = self._node in asked and self._roles.take(type(message))
        return sorted([*others, self._node] if own else others)

    def _begin(self, client: ClientSession, message: Any, then: Callable[[_Inquiry], None]) -> None:
        targets = self._targets(message)
        refusal = ""
        if not targets:
            refusal = f"no role of node {self._node!r} answers {type(message).__name__}"
        elif unknown := [name for name in targets if name not in self._nodes]:
            refusal = f"the network has no node {unknown[0]!r}; there are {', '.join(sorted(self._nodes))}"
        if refusal:
            self._tell_client(client.number, RequestFailed(message.request, Code.CONFIGURATION, refusal))
            return
        self._number += 1
        number = self._number
        inquiry = self._inquiries[number] = _Inquiry(client, message, then, own=self._node in targets)
        inquiry.answers = dict.fromkeys(targets, ())
        inquiry.fetching = {name: _Fetching(self._now) for name in targets if name != self._node}
        for name in list(inquiry.fetching):
            self._ask(number, inquiry, name)
        if inquiry.fetching:
            self._deadlines.set(number, self._now + REPEAT)
        if inquiry.own:
            self._roles.ask(
                client.client_id,
                client.principal,
                message,
                lambda messages: self._on_own(number, messages),
                self._now,
                self._wall,
            )
        self._end_if_complete(number, inquiry)

    def _ask(self, number: int, inquiry: _Inquiry, name: BrokerId) -> None:
        fetching = inquiry.fetching[name]
        fetching.asked_from = fetching.wanted
        client = inquiry.client
        request = encode_request(inquiry.message)
        data = encode_mail(AskNode(number, fetching.wanted, client.principal.sent, client.client_id, request))
        if data is None:
            self._give_up(inquiry, name, "what is asked is too large to be sent there")
        else:
            self.posts.append(Post(name, MAILBOX, data))

    def _repeat(self, number: int, inquiry: _Inquiry) -> None:
        for name, fetching in list(inquiry.fetching.items()):
            if self._now - fetching.heard_at >= SILENT:
                self._give_up(inquiry, name, NO_ANSWER)
            else:
                self._ask(number, inquiry, name)
        if inquiry.fetching:
            self._deadlines.set(number, self._now + REPEAT)
        self._end_if_complete(number, inquiry)

    def _give_up(self, inquiry: _Inquiry, name: BrokerId, reason: str) -> None:
        inquiry.missing[name] = reason
        del inquiry.fetching[name], inquiry.answers[name]

    # Answers.

    def _on_own(self, number: int, messages: list[AnswerMessage]) -> None:
        inquiry = self._inquiries.get(number)
        if inquiry is not None:
            inquiry.own = False
            inquiry.answers[self._node] = messages
            self._end_if_complete(number, inquiry)

    def _on_page(self, node: BrokerId, page: AnswerPage) -> None:
        inquiry = self._inquiries.get(page.question)
        fetching = inquiry.fetching.get(node) if inquiry is not None else None
        if inquiry is None or fetching is None:
            return
        fetching.take(page, self._now)
        if fetching.complete:
            inquiry.answers[node] = answer_of([fetching.pages[page] for page in range(fetching.count)])
            del inquiry.fetching[node]
            self._end_if_complete(page.question, inquiry)
        elif fetching.wanted >= fetching.asked_from + WINDOW:
            self._ask(page.question, inquiry, node)

    def _end_if_complete(self, number: int, inquiry: _Inquiry) -> None:
        if not inquiry.own and not inquiry.fetching and number in self._inquiries:
            self._drop(number)
            inquiry.then(inquiry)

    def _drop(self, number: int) -> None:
        del self._inquiries[number]
        self._deadlines.clear(number)

    def _answer(self, inquiry: _Inquiry) -> None:
        messages = self._joined(inquiry)
        self._telling.append((inquiry.client.number, messages))
        if len(self._telling) == 1:
            self._tell_next()

    def _joined(self, inquiry: _Inquiry) -> Iterator[ServerMessage]:
        """One answer of all. Whoever was asked only whether he runs is not missing in it."""
        kind = type(inquiry.message)
        asked_for_all = {name: why for name, why in inquiry.missing.items() if self._owes(kind, name)}
        return JOINS[kind](inquiry.message, inquiry.answers, asked_for_all)

    def _owes(self, kind: type, name: BrokerId) -> bool:
        return kind is AskStatus or bool(self._nodes[name] - NEVER_ANSWERED_BY[kind])

    def _tell_next(self) -> None:
        session, messages = self._telling.popleft()
        message = next(messages, None)
        if message is not None:
            self._tell_client(session, message)
            if getattr(message, "more", False):
                self._telling.append((session, messages))

    def _retire_found(self, inquiry: _Inquiry) -> None:
        """The SHB of that name is known: now it is retired, by its whole id; unless it runs, and that is not meant."""
        found = next(self._joined(inquiry))
        allowed = inquiry.message.running
        if isinstance(found, Retired) and (allowed or not found.running):
            self._begin(inquiry.client, Retire(found.request, found.shb, running=allowed), self._answer)
            return
        if isinstance(found, Retired):
            found = RequestFailed(found.request, Code.CONFIGURATION, RUNS.format(found.shb))
        self._tell_client(inquiry.client.number, found)
