"""Frames of those principals, of which most are not what anybody would say.

What a mutated frame means is found out as a broker does it (`decode_client`), so the model can judge it. A number may
mean several requests then, and nobody knows which consumers there are still: so less is expected than of requests as
they should be (`rights_play`). What comes, what is logged, what there is, and what is shown is held against the rules
all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fuzz.mutations import Mutator
from gapless.core.wire.codec import carries_events, decode_client
from gapless.core.wire.messages import (
    PROTOCOL,
    Attach,
    AttachedTo,
    Code,
    Deliver,
    Detached,
    Done,
    Hello,
    KeyedPublished,
    Leased,
    OpenPublisher,
    PubendList,
    Publish,
    Published,
    PublisherOpened,
    PublishKeyed,
    PublishRefused,
    RangeEvents,
    RangeRead,
    RequestFailed,
    Retire,
    Retired,
    Status,
    Subscribe,
    Subscribed,
    SubscriptionList,
    Target,
    Ticks,
    UserList,
)
from gapless.core.wire.numbering import HEAD_BYTES
from gapless.errors import RemoteProtocolError
from sim.rights_draws import (
    CHANGE,
    RANGES,
    Asked,
    Consumer,
    Need,
    Publisher,
    Record,
    Session,
    rows_of,
)
from sim.rights_model import Owned, Who
from sim.rights_nodes import MILLISECOND, NAMES, PUBENDS, Client
from sim.rights_play import Play


class Fuzz(Play):
    """A network that is told nonsense."""

    def __init__(self, seed: str) -> None:
        self.mutator: Mutator | None = None
        self.sent: dict[tuple[str, str], list[tuple[Who, Asked]]] = {}
        """Who has sent what, by topic and body."""
        self.made: dict[Owned, list[tuple[Who, Asked]]] = {}
        """Who has asked for subscriptions since they were looked at."""
        self.let: set[Owned] = set()
        """The subscriptions that somebody has asked for who might have them."""
        super().__init__(seed)
        self.mutator = Mutator(self.random)

    def frames(self, count: int) -> None:
        """So many frames, under rules that change."""
        for number in range(count):
            if not number % CHANGE:
                self.change_rules()
                self.look_at_everything()
            self._frame()
            self.nodes.settle()
            self._hear_all()
            self.nodes.pass_until(self.nodes.now + self.random.randrange(3) * MILLISECOND)
            self._stay_alive()
        self.look_at_everything()

    def _frame(self) -> None:
        random = self.random
        assert self.mutator is not None
        self.counts["frames"] += 1
        if random.random() < 0.01:
            self._come_wrongly()
            return
        session = random.choice(self.sessions)
        message = self.draws.request(session)
        if message is None:
            self.connect(session)
            return
        payload = session.client.payload(message)
        if random.random() < 0.7:
            mutate = self.mutator.noise if carries_events(payload) else self.mutator.frame
            payload = payload[:HEAD_BYTES] + mutate(payload[HEAD_BYTES:])
        if random.random() < 0.03:
            payload = self.mutator.noise(payload)
        try:
            meant = decode_client(payload)
        except RemoteProtocolError:
            self.counts["frames that mean nothing"] += 1
        else:
            self.note(session, meant)
        self.story.append(f"{session.who.name} as {session.client_id!r} at {session.node}: {payload!r}")
        session.client.say_payloads(payload)

    def _come_wrongly(self) -> None:
        """Somebody comes, and does not even do that as he should."""
        assert self.mutator is not None
        client = Client(self.nodes[self.random.choice(NAMES)], 0)
        payload = client.payload(Hello(PROTOCOL, "", "ada", "instance", b"ada,x"))
        client.say_payloads(payload[:HEAD_BYTES] + self.mutator.frame(payload[HEAD_BYTES:]))
        self.nodes.settle()
        client.close()

    # What was said.

    def note(self, session: Session, message: Any) -> None:
        """Keeps account of what a frame means."""
        if session is self.watcher:
            super().note(session, message)
            return
        events: list[tuple[str, str]] = []
        asked = Asked(message, (), self._now(), waits=True)
        with suppress(ValueError):  # events that are none
            events = list(rows_of(message.events)) if isinstance(message, (Publish, PublishKeyed)) else []
            asked.needs, asked.waits = tuple(self.needs_of(session, message)), False
        self.counts["requests"] += 1
        if isinstance(message, (Publish, PublishKeyed)):
            for event in events:
                self.sent.setdefault(event, []).append((session.who, asked))
        if isinstance(message, (Subscribe, Attach)) and message.name:
            self.made.setdefault(Owned(session.client_id, message.name), []).append((session.who, asked))
        number = (
            message.publisher if isinstance(message, (OpenPublisher, Publish)) else getattr(message, "request", None)
        )
        session.said.setdefault((isinstance(message, OpenPublisher), number), []).append(asked)

    def _asked(self, session: Session, number: int, *, opening: bool = False) -> list[Asked]:
        return session.said.get((opening, number), [])

    def _one_was_allowed(
        self, session: Session, number: int, answer: Any, *, opening: bool = False, kind: type = object
    ) -> list[Asked]:
        """Returns what the answer may belong to, and may be granted. Raises Fault if it is nothing."""
        asked = self._asked(session, number, opening=opening)
        good = [
            each
            for each in asked
            if isinstance(each.message, kind)
            and all(True in self.answers_to(session.who, need, each.since) for need in each.needs)
        ]
        if not good:
            raise self._fault(session, f"{answer} grants what is forbidden: {[each.message for each in asked]}")
        self.counts["granted"] += 1
        return good

    def answers_to(self, who: Who, need: Need, since: dict[str, int] | None = None) -> set[bool]:
        return super().answers_to(who, need, since) if need[0] in NAMES else {True, False}

    def needs_of(self, session: Session, message: Any) -> Iterator[Need]:
        """As of what should be, but that nobody knows what topics a subscription has."""
        if isinstance(message, (Subscribe, Attach)):
            yield from self._needs_of(session.node, session.client_id, message.name, message.topics)
        else:
            yield from super().needs_of(session, message)

    # What came.

    def _until_answered(self) -> None:
        self.nodes.settle()
        self._hear_all()

    def _judge_what_goes_on(self) -> None:
        """Nobody knows exactly what goes on. What comes of it is judged when it comes."""

    def _on_closed(self, session: Session) -> None:
        self.counts["sessions that ended"] += 1
        self.connect(session)

    def hear(self, session: Session, message: Any) -> None:
        if session is self.watcher and not isinstance(message, (Deliver, SubscriptionList)):
            super().hear(session, message)
            return
        number = getattr(message, "request", 0)
        if isinstance(message, Subscribed):
            good = [
                each for each in self._one_was_allowed(session, number, message) if isinstance(each.message, Subscribe)
            ]
            topics = tuple(topic for each in good for topic in each.message.topics)
            key = Owned(session.client_id, good[-1].message.name) if good[-1].message.name else None
            home = session.node
            if key is not None:
                target = Target(key.name, message.home_sid or message.sid, message.generation, message.home)
                home = message.home.partition("@")[0] or session.node
                self.durables[key] = Record(good[-1].message.topics, home, target, message.seal)
            needs: list[Need] = []
            for node in {session.node: None, home: None} if len(good) == 1 else ():
                needs += self._needs_of(node, session.client_id, good[0].message.name, topics)
            session.consumers[message.sid] = Consumer(needs, topics, key)
        elif isinstance(message, AttachedTo):
            good = [
                each for each in self._one_was_allowed(session, number, message) if isinstance(each.message, Attach)
            ]
            request = good[-1].message
            target = Target(request.name, message.sid, message.generation, message.home)
            self.durables[Owned(session.client_id, request.name)] = Record(
                request.topics, session.node, target, message.seal
            )
        elif isinstance(message, KeyedPublished) and not message.ticks:
            pass  # all of it had been logged before, or lies below what had: nothing was done
        elif isinstance(message, (Done, Ticks, Retired, RangeRead, Status, UserList, KeyedPublished, Leased)):
            self._one_was_allowed(session, number, message)
        elif isinstance(message, PublisherOpened):
            good = self._one_was_allowed(session, message.publisher, message, opening=True)
            request = good[-1].message
            publisher = Publisher(request.name, request.topic, message.pubend, message.epoch, message.sequence + 1)
            session.publishers[message.publisher] = publisher
        elif isinstance(message, Published):
            publisher_ = session.publishers.get(message.publisher)
            if publisher_ is not None:
                publisher_.next = message.sequence + 1
            for run in message.ticks:
                if publisher_ is not None:
                    self.ends[publisher_.pubend] = run.first + run.step * (run.count - 1)
        elif isinstance(message, RequestFailed):
            self._on_failed(session, message)
        elif isinstance(message, PublishRefused):
            self._on_publish_refused(session, message)
        elif isinstance(message, SubscriptionList):
            self._on_subscriptions(session, message)
        elif isinstance(message, PubendList):
            self._on_pubends(session, message)
        elif isinstance(message, RangeEvents):
            self._check_events(session, ("#",), message.columns.events(""))
        elif isinstance(message, Deliver) or (isinstance(message, Detached) and self._is_known(session, message)):
            super().hear(session, message)

    @staticmethod
    def _is_known(session: Session, detached: Detached) -> bool:
        """Whether it is known by which request that consumer came."""
        consumer = session.consumers.get(detached.sid)
        return consumer is not None and bool(consumer.needs)

    def _on_failed(self, session: Session, message: RequestFailed) -> None:
        asked = self._asked(session, message.request)
        if message.code is not Code.FORBIDDEN or any(
            each.waits or isinstance(each.message, (*RANGES, Subscribe, Attach, Retire)) for each in asked
        ):
            return
        self.counts["refused"] += 1
        if all(self.answers_to(session.who, need, each.since) == {True} for each in asked for need in self._all(each)):
            raise self._fault(session, f"{message} refuses what is allowed: {[each.message for each in asked]}")

    def _all(self, asked: Asked) -> list[Need]:
        """What it needs; where a producer belongs only the nodes know, if its topic is not one of theirs."""
        needs = list(asked.needs)
        if isinstance(asked.message, PublishKeyed):
            for node in NAMES:
                needs += self._needs_of_publisher(node, None, asked.message.producer)
        return needs

    def _on_publish_refused(self, session: Session, message: PublishRefused) -> None:
        publisher = session.publishers.get(message.publisher)
        if publisher is not None and message.sequence:
            publisher.next = message.sequence
        if message.code is Code.FORBIDDEN:
            self.counts["refused"] += 1

    def _on_subscriptions(self, session: Session, message: SubscriptionList) -> None:
        if session is self.watcher:
            if not message.more:
                session.asked.pop(message.request, None)
            self.let.update(filter(self._was_let, self.made))
            self.made.clear()
            for row in message.rows:
                if Owned(row.client_id, row.name) not in self.let:
                    raise self._fault(session, f"{row} is there, and was never allowed")
            return
        good = self._one_was_allowed(session, message.request, message)
        for row in message.rows:
            need = (row.node, "observe", Owned(row.client_id, row.name))
            if all(self.answers_to(session.who, need, each.since) == {False} for each in good):
                raise self._fault(session, f"{row} is listed, and is not to be seen")

    def _on_pubends(self, session: Session, message: PubendList) -> None:
        good = self._one_was_allowed(session, message.request, message)
        for row in message.rows:
            name = row.pubend.partition("@")[0]
            need = (name.partition("-")[0], "observe", f"topic {PUBENDS[name]}")
            if all(self.answers_to(session.who, need, each.since) == {False} for each in good):
                raise self._fault(session, f"{row.pubend} is listed, and is not to be seen")

    def _was_let(self, key: Owned) -> bool:
        """Whether somebody who has asked for a subscription might have it."""
        return any(
            all(
                any(True in self.answers_to(who, (node, action, what), asked.since) for node in NAMES)
                for _, action, what in self._needs_of("", key.client_id, key.name, asked.message.topics)
            )
            for who, asked in self.made[key]
        )

    def _was_published(self, session: Session, event: Any) -> None:
        sent = self.sent.get((event.topic, event.body.decode("latin-1")), ())
        need = "publish", event.topic
        if not any(True in self.answers_to(who, (node, *need), asked.since) for who, asked in sent for node in NAMES):
            raise self._fault(session, f"{event} was logged, and nobody might publish it")
