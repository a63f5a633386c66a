"""The audit: who came in, and what of consequence was asked for, as lines that the node writes to a file.

    request ──▶ on_request ──▶ its answer ──▶ on_answer ──▶ a line
    sign-in, refused batch, what a role does by itself ─────▶ a line

A line is made when it is known how something has ended. Events make no line: only openings and attachments do. Pure:
whoever hosts this takes `lines` at the end of each turn, and says at its beginning what time it is, and how many lines
there is room for. Where lines must not be lost, requests that make one wait until there is room (`has_room`).

What stands in a line is bounded, whatever a client says, and no credentials, tokens or bodies are ever in it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from gapless.core.principals import NOBODY, Principal
from gapless.core.wire.codec import decode_client
from gapless.core.wire.messages import (
    AddUser,
    AskStatus,
    Attach,
    ChangeUser,
    Code,
    Hello,
    ListPubends,
    ListSubscriptions,
    ListUsers,
    OpenPublisher,
    Proof,
    PublisherOpened,
    PublishKeyed,
    PublishRefused,
    RemoveUser,
    Renew,
    RequestFailed,
    Retire,
    ServerMessage,
    Subscribe,
    Unsubscribe,
)

if TYPE_CHECKING:
    from gapless.core.network.facts import BrokerId, OpenRequest
    from gapless.core.ports import ClientSession
    from gapless.core.server.link_session import LinkSession
    from gapless.core.stream.ticks import PubendId

AuditAction: TypeAlias = Literal["sign-in", "publish", "subscribe", "consume", "manage", "observe"]
"""What was wanted: to come in, or what rules speak of."""
AuditKind: TypeAlias = Literal[
    "admission", "renewal", "expiry", "opening", "attachment", "creation", "removal", "request", "rules"
]
"""What it was that happened."""
AuditOutcome: TypeAlias = Literal["ok", "refused", "failed"]
"""How it ended; refused: the principal may not, or is not known. Failed: for any other reason."""

SELECTOR_MAX: Final = 200
RESOURCE_MAX: Final = 600
NAME_MAX: Final = 255
REASON_MAX: Final = 600
"""So many characters of each are in a line."""
OPENED_MAX: Final = 1024
"""So many producers of keyed batches are remembered of a session: what is told once is told again beyond that."""
WITHOUT_END: Final = 1 << 62
"""As much room as anybody needs: lines beyond what the node can write are left out, and counted."""

_REFUSALS: Final = frozenset({Code.FORBIDDEN, Code.UNAUTHORIZED})


class AuditLine(Struct, frozen=True, gc=False):
    """One line of the audit. A role that tells one leaves `wall` 0, and the address of a client's session empty."""

    wall: int
    """When: milliseconds since 1970."""
    principal: Principal
    peer: str
    """The address that the client connects from, or the name of the node that asks for it; "": the node itself."""
    client_id: str
    kind: AuditKind
    action: AuditAction
    resource: str
    """Topics and selector, the id of another client, the name of a user or an SHB."""
    name: str
    """Of the subscription or the publisher; "" without one."""
    outcome: AuditOutcome
    reason: str
    """Why, where it did not end well, or where nobody asked for it; else ""."""
    request: int | None
    """The number that the client has given its request."""
    session: int = 0
    """The session of this node that it is about, from which `peer` follows; 0: `peer` says it."""


Asks: TypeAlias = tuple[AuditKind, AuditAction, str, str]
"""Kind, action, resource and name of a request."""


def called(subscription: str | None) -> AuditAction:
    """What attaching to a subscription is: one that is durable is consumed."""
    return "consume" if subscription else "subscribe"


def wanted(topics: Iterable[str], selector: str) -> str:
    """What a subscription is for, as a resource."""
    text = cut(", ".join(topics), RESOURCE_MAX - SELECTOR_MAX)
    return f"{text} where {cut(selector, SELECTOR_MAX)}" if selector else text


def cut(text: str, most: int) -> str:
    """Returns at most so many characters of a text; one that was longer ends with a …."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _attaches(message: Subscribe | Attach, _client_id: str) -> Asks:
    return "attachment", called(message.name), wanted(message.topics, message.selector), message.name or ""


def _unsubscribes(message: Unsubscribe, client_id: str) -> Asks:
    action: AuditAction = "consume" if message.client_id == client_id else "manage"
    return "request", action, message.client_id, message.name


def _of_user(message: AddUser | ChangeUser | RemoveUser, _client_id: str) -> Asks:
    return "request", "manage", f"{_VERBS[type(message)]} user {message.name}", ""


_VERBS: Final = {AddUser: "add", ChangeUser: "change", RemoveUser: "remove"}
_DESCRIBED: Final[Mapping[type, Callable[[Any, str], Asks]]] = {
    Subscribe: _attaches,
    Attach: _attaches,
    Unsubscribe: _unsubscribes,
    Retire: lambda message, _: ("request", "manage", message.shb, ""),
    **dict.fromkeys((AddUser, ChangeUser, RemoveUser), _of_user),
    OpenPublisher: lambda message, _: ("opening", "publish", message.topic or "", message.name),
    PublishKeyed: lambda message, _: ("opening", "publish", message.topic, message.producer),
    ListUsers: lambda *_: ("request", "manage", "users", ""),
    ListSubscriptions: lambda *_: ("request", "observe", "subscriptions", ""),
    ListPubends: lambda *_: ("request", "observe", "pubends", ""),
    AskStatus: lambda *_: ("request", "observe", "status", ""),
}
"""What each request is that makes a line, if it comes from a client with that id."""
_LISTINGS: Final = (ListSubscriptions, ListPubends, AskStatus)
MAKE_LINES: Final = frozenset({*_DESCRIBED.keys() - _LISTINGS, Hello, Proof, Renew})
"""The messages that make a line whatever becomes of them."""


def line_of(message: Any, client: ClientSession, peer: str, answer: ServerMessage | None, wall: int) -> AuditLine:
    """The line about a request that was answered; None: it never was, because its session ended before."""
    kind, action, resource, name = _DESCRIBED[type(message)](message, client.client_id)
    outcome, reason = _outcome(answer)
    return AuditLine(
        wall,
        client.principal,
        peer,
        client.client_id,
        kind,
        action,
        cut(resource, RESOURCE_MAX),
        cut(name, NAME_MAX),
        outcome,
        reason,
        message.publisher if isinstance(message, OpenPublisher) else message.request,
    )


def _outcome(answer: ServerMessage | None) -> tuple[AuditOutcome, str]:
    if answer is None:
        return "failed", "its session ended before the answer"
    if isinstance(answer, RequestFailed | PublishRefused):
        return "refused" if answer.code in _REFUSALS else "failed", cut(answer.reason, REASON_MAX)
    return "ok", ""


def makes_a_line(payload: bytes) -> bool:
    """Whether a client's frame needs room for its line, as one does that cannot be decoded: its session ends."""
    try:
        return type(decode_client(payload)) in MAKE_LINES
    except Exception:  # noqa: BLE001 - whoever takes the frame says what is wrong with it
        return True


def _changes_nothing(message: Any) -> bool:
    """Whether a request makes a line only where it is refused."""
    return message.only_look if isinstance(message, Retire) else isinstance(message, _LISTINGS)


class Tells(Struct, frozen=True, gc=False):
    """What a request will tell when it is answered."""

    line: AuditLine
    only_refused: bool
    keyed: tuple[str, str] | None
    """The producer and the topic, of which one line of each session is enough."""


class Audit:
    """The lines of a node's sessions, and those that its roles tell."""

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        """Whether anybody writes the lines: if not, nobody need tell anything."""
        self.lines: list[AuditLine] = []
        """Those of this turn; whoever takes them empties this."""
        self._wall = 0
        self._room = WITHOUT_END
        self._sessions: dict[int, dict[Hashable, Tells]] = {}
        """What is not answered, by session, and by what its answer will name."""
        self._opened: dict[int, set[tuple[str, str]]] = {}
        """Of each session the producers of keyed batches, with their topics, that have a line."""

    @property
    def has_room(self) -> bool:
        """Whether one more request is to be taken. What was taken before may go beyond that when it is answered."""
        return len(self.lines) < self._room

    @property
    def remembered(self) -> int:
        """Of how many sessions something is remembered: what they have asked, or what they were told once."""
        return len(self._sessions.keys() | self._opened.keys())

    # What happened.

    def begin_turn(self, wall: int, room: int) -> None:
        """A turn begins. `room`: how many lines can be taken until requests have to wait."""
        self._wall, self._room = wall, room

    def on_sign_in(
        self, connection: LinkSession, kind: AuditKind, outcome: AuditOutcome, reason: str, principal: Principal
    ) -> None:
        """Somebody was let in or not, or has new credentials, or has to go because they are over."""
        client = connection.client
        client_id = connection.handshake.client_id if client is None else client.client_id
        address, reason = connection.peer.address, cut(reason, REASON_MAX)
        line = AuditLine(
            self._wall, principal, address, cut(client_id, NAME_MAX), kind, "sign-in", "", "", outcome, reason, None
        )
        self.lines.append(line)

    def on_request(self, connection: LinkSession, client: ClientSession, message: Any) -> None:
        """A client asks for something. Exactly one answer follows, or its session ends."""
        if type(message) not in _DESCRIBED:
            return
        key = ("publisher", message.publisher) if isinstance(message, OpenPublisher) else message.request
        keyed = (message.producer, message.topic) if isinstance(message, PublishKeyed) else None
        line = line_of(message, client, connection.peer.address, None, self._wall)
        unanswered = self._sessions.setdefault(client.number, {})
        unanswered[key] = Tells(line, _changes_nothing(message), keyed)

    def on_answer(self, session: int, answer: ServerMessage) -> None:
        """A client is answered: perhaps what it has asked for."""
        unanswered = self._sessions.get(session)
        if not unanswered:
            return
        is_opening = isinstance(answer, PublisherOpened | PublishRefused)
        key = ("publisher", answer.publisher) if is_opening else getattr(answer, "request", None)  # type: ignore[attr-defined]
        tells = unanswered.pop(key, None)
        if tells is None:
            return
        outcome, reason = _outcome(answer)
        if outcome == "ok" and (tells.only_refused or self._was_told(session, tells.keyed)):
            return
        if tells.only_refused and outcome != "refused":
            return
        self.lines.append(replace(tells.line, wall=self._wall, outcome=outcome, reason=reason))

    def on_batch_refused(self, connection: LinkSession, topic: str | None, publisher: str, reason: str) -> None:
        """A publisher that is open has sent something that its client may not publish."""
        client = connection.client
        assert client is not None, "who is answered has a session"
        line = AuditLine(
            self._wall,
            client.principal,
            connection.peer.address,
            client.client_id,
            "request",
            "publish",
            topic or "",
            cut(publisher, NAME_MAX),
            "refused",
            cut(reason, REASON_MAX),
            None,
        )
        self.lines.append(line)

    def on_session_over(self, session: int) -> None:
        """A session has ended: what it has asked for will not be answered."""
        self._opened.pop(session, None)
        for tells in self._sessions.pop(session, {}).values():
            if not tells.only_refused:
                self.lines.append(replace(tells.line, wall=self._wall))

    def on_node_answered(
        self, node: BrokerId, client: ClientSession, message: Any, answers: Iterable[ServerMessage]
    ) -> None:
        """Another node was answered that has asked for a client of its own."""
        failed = next((answer for answer in answers if isinstance(answer, RequestFailed)), None)
        is_refused = failed is not None and failed.code in _REFUSALS
        if _changes_nothing(message) and not is_refused:
            return
        line = line_of(message, client, node, failed, self._wall)
        self.lines.append(line if failed is not None else replace(line, outcome="ok", reason=""))

    def on_told(self, line: AuditLine, peer: str) -> None:
        """A role tells a line. `peer`: the address of the client whose session it names; "" if it names none."""
        self.lines.append(replace(line, wall=self._wall, peer=peer or line.peer))

    def _was_told(self, session: int, keyed: tuple[str, str] | None) -> bool:
        if keyed is None:
            return False
        opened = self._opened.setdefault(session, set())
        if keyed in opened:
            return True
        if len(opened) >= OPENED_MAX:
            opened.clear()
        opened.add(keyed)
        return False


def of_subscription(
    kind: Literal["creation", "removal"],
    by: ClientSession | None,
    client_id: str,
    name: str,
    resource: str,
    reason: str,
    node: BrokerId,
) -> AuditLine:
    """What a role tells of a durable subscription. `by`: who has asked for it; None: nobody has.

    `node`: which node has asked for that client; "": it is one of this node.
    """
    principal = NOBODY if by is None else by.principal
    session = 0 if by is None or node else by.number
    return AuditLine(
        0, principal, node, client_id, kind, "consume", resource, cut(name, NAME_MAX), "ok", reason, None, session
    )


def of_publisher(request: OpenRequest, pubend: PubendId) -> AuditLine:
    """What a role tells of a publisher with a name: the pubend knows it from now on, and for ever."""
    principal, name = Principal.of(request.principal), cut(request.publisher, NAME_MAX)
    return AuditLine(0, principal, "", "", "creation", "publish", pubend, name, "ok", "", None)


def of_observer(principal: Principal, address: str, outcome: AuditOutcome, reason: str) -> AuditLine:
    """What the node tells of somebody who has come over HTTP to look at its figures."""
    why = cut(reason, REASON_MAX)
    return AuditLine(0, principal, address, "", "admission", "observe", "status", "", outcome, why, None)


def of_rules(name: str, what: str) -> AuditLine:
    """What the node tells of the rules that count: that they do, and that they hold."""
    return AuditLine(0, NOBODY, "", "", "rules", "manage", "rules", cut(name, NAME_MAX), "ok", what, None)


def of_lost_right(
    principal: Principal, session: int, client_id: str, name: str, resource: str, reason: str
) -> AuditLine:
    """What a role tells when other rules have taken from somebody what earlier ones had let him have.

    `session`: of whoever has had it; 0: it is a session of another node.
    """
    action, of = called(name), cut(name, NAME_MAX)
    return AuditLine(0, principal, "", client_id, "rules", action, resource, of, "refused", reason, None, session)
