"""Two SHB cores of one network, the pubend between them, and the mail that a test delivers, drops or repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gapless.core.alarms import Alarm
from gapless.core.network import facts as r
from gapless.core.ports import ClientSession, Roaming, RoleContext, SessionEnded
from gapless.core.principals import NOBODY
from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless_shb.core.broker import SubscriberHostingBroker
from gapless_shb.core.roaming import mail
from gapless_shb.core.state.places import home_of
from unit.gapless_shb.core.harness import PUBEND, World

NODES = ("shb1", "shb2")
SECRET = b"the secret of the network"
CLIENT = "c"
HOME = home_of(CLIENT, Roaming(NODES, SECRET))
OTHER = next(node for node in NODES if node != HOME)


class Node(World):
    """One of the SHBs."""

    def __init__(self, node: str, posted: list[tuple[str, str, bytes]], secret: bytes = SECRET) -> None:
        self.node = node
        self.posted = posted
        self.secret = secret
        self.messages: dict[int, list[object]] = {}
        super().__init__()

    def make_role(self, context: RoleContext) -> SubscriberHostingBroker:
        roaming = Roaming(NODES, self.secret)
        return super().make_role(replace(context, broker=self.node, storage_id=f"of-{self.node}", roaming=roaming))

    def on_said(self, effect: object) -> None:
        if isinstance(effect, r.Post):
            assert effect.role == "shb"
            self.posted.append((self.node, effect.to_node, effect.data))
        elif isinstance(effect, Alarm):
            self.alarms.append(effect.code.label)
        else:
            super().on_said(effect)

    def client_gets(self, session: int, message: object) -> None:
        assert session > 0, "a session elsewhere gets mail"
        self.messages.setdefault(session, []).append(message)
        super().client_gets(session, message)

    def roams(self, *, on: bool) -> None:
        """As a broker of an earlier version, which knew of no home, or as one of this version again."""
        self.hosting.places._roaming = Roaming(NODES, self.secret) if on else None


class Pair:
    """The home of the client's subscriptions, and another SHB."""

    kind = Node

    def __init__(self, secret: bytes = SECRET) -> None:
        self.posted: list[tuple[str, str, bytes]] = []
        self.nodes = {node: self.kind(node, self.posted, secret) for node in NODES}
        self.home, self.other = self.nodes[HOME], self.nodes[OTHER]
        self.cut = False
        """Whether mail is lost."""
        self.sessions = 0
        self.requests = 0
        for node in self.nodes.values():
            node.log = self.home.log
        self.settle()

    # ------------------------------------------------------------------------------------ time and mail

    def mail(self) -> list[mail.Mail]:
        """What is under way."""
        said = [mail.decode(data) for _, _, data in self.posted]
        assert None not in said
        return [each for each in said if each is not None]

    def deliver_mail(self) -> None:
        """All mail arrives, and its answers; or none does."""
        while self.posted:
            source, target, data = self.posted.pop(0)
            if not self.cut:
                self.nodes[target].feed(r.Posted(source, "shb", data))
                self.nodes[target].sync()

    def settle(self, ms: int = 0, step: int = 250) -> None:
        """Time passes, everything is synced and answered."""
        for _ in range(max(1, ms // step)):
            self.home.stable += STEP  # silence
            self.exchange()
            for node in self.nodes.values():
                node.pause(min(step, ms))
                node.sync()
            self.deliver_mail()
        self.exchange()

    def exchange(self) -> None:
        """The pubend says what there is, and answers."""
        for node in self.nodes.values():
            node.stable = max(each.stable for each in self.nodes.values())
            node.lost = max(each.lost for each in self.nodes.values())
            node.sync()
            node.see()
            node.sync()
            node.answer_holds()
            node.deliver(node.knowledge(node.stable - 1, node.stable, raw=False, reply=False))
            node.answer_wants()
            node.read()
            node.answer_wants()
            node.sync()
        self.deliver_mail()

    def publish(self, count: int = 1) -> list[int]:
        """So many events, which both SHBs get. Returns their ticks."""
        ticks = []
        for _ in range(count):
            self.home.publish()
            ticks.append(self.home.stable)
            self.exchange()
        return ticks

    def release(self) -> int:
        """The pubend forgets what both have released. Returns up to where."""
        nodes = self.nodes.values()
        upto = min([node.progress[0] for node in nodes] + [at for node in nodes for at in node.holds.values()])
        for node in nodes:
            node.lost = max(node.lost, upto)
        return self.home.lost

    # ------------------------------------------------------------------------------------------ clients

    def session(self, instance: str = "i") -> ClientSession:
        """A new session of the client."""
        self.sessions += 1
        return ClientSession(self.sessions, CLIENT, instance, NOBODY)

    def subscribe(
        self,
        node: Node,
        session: ClientSession,
        *,
        token: Token | None = None,
        selector: str = "",
        in_use: m.InUse = m.InUse.ERROR,
        again: bool = False,
        start: m.StartAt = m.StartAt.LATEST,
        start_wall: int = 0,
        acknowledged: tuple[m.Acknowledged, ...] = (),
        commits: bool = False,
        on_change: m.OnChange = m.OnChange.ERROR,
        number: int | None = None,
        process: str = "",
        asked: int = 0,
        confirms: int = 0,
    ) -> int:
        """A client asks for the subscription `s`; `again`: by its id. Returns the number of the request.

        `number`: that of an earlier request.
        """
        self.requests += 1
        given = token.answer if token is not None else None
        positions = None if token is None else [m.Position(PUBEND, token.tick)]
        request = m.Subscribe(
            number or self.requests,
            "s",
            ("#",),
            selector,
            m.StartAt.TOKEN if token is not None else start,
            start_wall,
            positions,
            (given.home_sid or given.sid) if given else 0,
            given.generation if given else 0,
            given.seal if given else b"",
            list(acknowledged),
            in_use,
            1000,
            1 << 30,
            (given.home_sid or given.sid) if given and again else 0,
            given.generation if given and again else 0,
            given.home if given and again else "",
            given.home if given else "",
            commits=commits,
            on_change=on_change,
            attempt=self.requests,
            process=process,
            asked=asked,
            confirms=confirms,
        )
        node.feed(request, session)
        return request.request

    def come(self, node: Node, instance: str = "i", *, wait: int = 1000, **how: Any) -> ClientSession:
        """A new session asks for the subscription, and this time passes."""
        session = self.session(instance)
        self.subscribe(node, session, **how)
        self.settle(wait)
        return session

    def answer(self, node: Node, session: ClientSession) -> object:
        """What the session was answered last to a request."""
        said = node.messages.get(session.number, [])
        answers = [each for each in said if isinstance(each, m.Subscribed | m.RequestFailed | m.Done)]
        return answers[-1] if answers else None

    def attached(self, node: Node, session: ClientSession) -> m.Subscribed:
        """The same, of an attachment."""
        answer = self.answer(node, session)
        assert isinstance(answer, m.Subscribed), answer
        return answer

    def refused(self, node: Node, session: ClientSession) -> m.RequestFailed:
        """The same, of a refusal."""
        answer = self.answer(node, session)
        assert isinstance(answer, m.RequestFailed), answer
        return answer

    def ticks(self, node: Node, session: ClientSession) -> list[int]:
        """The events that the session got."""
        return [
            tick
            for each in node.messages.get(session.number, [])
            if isinstance(each, m.Deliver)
            for tick in each.columns.ticks()
        ]

    def got(self, node: Node, session: ClientSession, kind: type) -> list[object]:
        """What it got of a kind."""
        return [each for each in node.messages.get(session.number, []) if isinstance(each, kind)]

    def acknowledge(self, node: Node, session: ClientSession, tick: int, event: int | None = None) -> None:
        """The application is done with everything up to a tick."""
        sid = self.attached(node, session).sid
        node.feed(m.Acknowledge(sid, [m.Acknowledged(PUBEND, tick, tick if event is None else event)]), session)

    def leave(self, node: Node, session: ClientSession) -> None:
        """The session ends."""
        node.feed(SessionEnded(session))


class Token:
    """An attachment, and how far it was consumed."""

    def __init__(self, answer: m.Subscribed, tick: int) -> None:
        self.answer = answer
        self.tick = tick


def begins(answer: m.Subscribed) -> int:
    """Where an attachment goes on."""
    return next(each.tick for each in answer.positions if each.pubend == PUBEND)


__all__ = ["CLIENT", "HOME", "NODES", "OTHER", "Node", "Pair", "Token", "begins"]
