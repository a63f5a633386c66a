"""A broker's sessions with their clients, in virtual time, with nothing behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gapless.core.alarms import Alarm, Note
from gapless.core.network.facts import Outcome, Submit, SubmitOpen, Submitted, Verdict
from gapless.core.ports import Action, Authentication, ClientSession, SessionEnded
from gapless.core.principal_limits import Limit, PrincipalLimits
from gapless.core.principals import NO_CERTIFICATE, Admission, Judgement, Later, PeerInfo, Principal, Refusal
from gapless.core.resources import Resource
from gapless.core.server import BrokerIdentity, LinkOutput, SessionLimits, Sessions
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import Reception
from gapless.core.wire.messages import ClientMessage, ListPubends, OpenPublisher, Publish, PublisherOpened, Unsubscribe
from gapless.errors import RemoteProtocolError
from wire import Wire, columns, hello

SECOND = 1_000_000_000
PEER = PeerInfo("127.0.0.1:9999", NO_CERTIFICATE, secure=False, is_local=True, binding=b"")
WALL = 1_700_000_000_000


class Guard:
    """Accepts everyone but those who say so, and remembers whom it was asked about."""

    mechanism = ""
    needs_certificate = False
    trusted = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes, str]] = []
        self.until: int | None = None
        """When what it says is over."""
        self.groups: frozenset[str] = frozenset()
        """Those of everybody."""
        self.nameless = False
        """Whether it forgets to say who somebody is."""
        self.wait = 0
        """How long a client has to wait for what it says, in nanoseconds."""

    def begin(self, client_id: str, peer: PeerInfo) -> Authentication | None:
        return Asked(self, client_id, peer.address)


class Rules:
    """Forbids what it is told to, and remembers what it was asked."""

    asks = True

    def __init__(self) -> None:
        self.forbidden: set[tuple[Action, Resource]] = set()
        self.asked: list[tuple[str, Action, Resource]] = []

    def refusal(self, principal: Principal, action: Action, resource: Resource) -> str:
        self.asked.append((principal.name, action, resource))
        return f"{principal} may not {action.value} {resource}" if (action, resource) in self.forbidden else ""


class Asked:
    """One client that is asked who it is. It is challenged as often as it says "more"."""

    def __init__(self, guard: Guard, client_id: str, peer: str) -> None:
        self._guard = guard
        self._client = client_id, peer

    def answer(self, credentials: bytes) -> Judgement:
        client_id, peer = self._client
        self._guard.asked.append((client_id, credentials, peer))
        judged: Admission | Refusal | bytes = b"who is it?"
        if credentials == b"bad":
            judged = Refusal("it says bad")
        elif credentials != b"more":
            name = "" if self._guard.nameless else credentials.decode() or "anonymous"
            principal = Principal(name, self._guard.groups)
            judged = Admission(principal, self._guard.until)
        return Later(self._guard.wait, judged) if self._guard.wait else judged


class Broker:
    """Sessions, and everything they said and did."""

    def __init__(
        self, limits: SessionLimits | None = None, *, audited: bool = False, limit: Sequence[Limit] = ()
    ) -> None:
        self.audit = Audit(is_wanted=audited)
        self.budgets = Budgets(PrincipalLimits(limit))
        self.peer = PEER
        self.guard = Guard()
        self.rules = Rules()
        self.authority = Authority(self.rules)
        self.requests: list[tuple[ClientSession, Any]] = []
        identity = BrokerIdentity("phb-1", "testnet", durable=True, start=3)
        self.sessions = Sessions(
            identity,
            limits or SessionLimits(),
            [Reception([self.guard], is_local=True)],
            self.authority,
            {ListPubends: self._on_request, Unsubscribe: self._on_request},
            self.audit,
            self.budgets,
        )
        self.now = 100 * SECOND
        self.links = 0
        self.outputs: dict[int, LinkOutput] = {}
        self.effects: list[Any] = []
        self.notes: list[Any] = []
        self.alarms: list[Any] = []

    def _on_request(self, session: ClientSession, message: Any, now: int, wall: int) -> None:
        assert (now, wall) == (self.now, WALL)
        if message.request == 4040:
            raise RemoteProtocolError("a request that makes no sense")
        self.requests.append((session, message))

    def link(self) -> Client:
        """A client that has connected and said nothing."""
        self.links += 1
        self.sessions.on_link(self.links, PEER, 0, self.now)
        self.take()
        return Client(self, self.links)

    def client(self, instance: str = "one") -> Client:
        """A client that is welcome."""
        client = self.link()
        client.say(hello(instance=instance))
        return client

    def take(self) -> dict[int, LinkOutput]:
        """Takes what the step led to."""
        for effect in self.sessions.take_effects():
            kinds: dict[type, list[Any]] = {Alarm: self.alarms, Note: self.notes}
            kinds.get(type(effect), self.effects).append(effect)
        self.outputs = self.sessions.take_links(self.now)
        return self.outputs

    def wait(self, seconds: float) -> dict[int, LinkOutput]:
        """Lets time pass, every deadline kept; returns what happened at the last one."""
        until = self.now + int(seconds * SECOND)
        outputs: dict[int, LinkOutput] = {}
        while (deadline := self.sessions.deadline()) is not None and deadline <= until:
            assert deadline > self.now or not outputs, "a deadline that was kept comes again"
            self.now = max(self.now, deadline)
            self.sessions.on_deadline(self.now)
            outputs = self.take() or outputs
        self.now = until
        return outputs

    def ended(self) -> list[int]:
        """The sessions that ended, in order."""
        return [effect.session.number for effect in self.effects if isinstance(effect, SessionEnded)]

    def placed(self) -> list[Submit | SubmitOpen]:
        """What the router was asked for and has not been looked at yet."""
        placed = [effect for effect in self.effects if isinstance(effect, (Submit, SubmitOpen))]
        self.effects = [effect for effect in self.effects if effect not in placed]
        return placed

    def answer(self, asked: Submit | SubmitOpen, outcome: Outcome, pubend: str = "default@1") -> None:
        """The router's answer."""
        self.sessions.on_placed(Submitted(asked.reply_to, pubend, outcome))


class Client:
    """One client, and what it heard last."""

    def __init__(self, broker: Broker, link: int) -> None:
        self.broker = broker
        self.link = link
        self.wire = Wire()

    @property
    def session(self) -> int:
        return self.wire.session

    def say(self, *messages: ClientMessage | Publish) -> list[Any]:
        """Sends messages in one go; returns what is heard in answer."""
        return self.send(*self.wire.say(*messages))

    def send(self, *payloads: bytes) -> list[Any]:
        """Sends payloads with their numbers; returns what is heard in answer."""
        numbered = [self.wire.numbered(payload) for payload in payloads]
        self.broker.sessions.on_frames(self.link, numbered, self.broker.now, WALL)
        return self.hear()

    def hear(self) -> list[Any]:
        """What the broker has for this client now."""
        return self.wire.hear(self.broker.take().get(self.link))

    def open(self, number: int = 1, name: str = "loader", pubend: str = "default@1") -> Any:
        """Opens a publisher that has logged nothing yet; returns what is heard."""
        self.say(OpenPublisher(number, name, "instance", 1, None))
        (asked,) = self.broker.placed()
        self.broker.answer(asked, Outcome(Verdict.OK, epoch=1), pubend)
        (opened,) = self.hear()
        assert isinstance(opened, PublisherOpened)
        return opened

    def publish(self, first: int, *bodies: bytes, number: int = 1) -> Submit:
        """Publishes a batch; returns what the router is asked for."""
        assert self.say(Publish(number, 1, first, columns(*bodies), b"")) == []
        (asked,) = self.broker.placed()
        assert isinstance(asked, Submit)
        return asked

    def closed(self) -> str | None:
        """Why the broker closed the link in the last step; None if it did not."""
        output = self.broker.outputs.get(self.link)
        return output.close if output else None


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def make_broker() -> type[Broker]:
    return Broker
