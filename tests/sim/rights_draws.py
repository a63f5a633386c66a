"""What principals ask for, drawn at random, and what the test knows of each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

import msgspec

from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Event, encode_event
from gapless.core.wire.messages import (
    Acknowledge,
    Acknowledged,
    AcknowledgeDurably,
    AddUser,
    AskBound,
    AskEarliest,
    AskHeads,
    AskStatus,
    Attach,
    ChangeUser,
    ClosePublisher,
    Detach,
    EndLease,
    InUse,
    ListedSubscription,
    ListPubends,
    ListSubscriptions,
    ListUsers,
    OnChange,
    OpenPublisher,
    Position,
    Publish,
    PublishKeyed,
    ReadRange,
    RemoveUser,
    Retire,
    StartAt,
    Subscribe,
    TakeLease,
    Target,
    Unsubscribe,
    Verifier,
)
from gapless.errors import ConfigurationError
from gapless.security.rule_tables import rules_of
from gapless.security.rules import Rules
from sim.rights_model import Owned, Table, What, Who, topics_of
from sim.rights_nodes import CARRIES, NAMES, SECOND, Client

PRINCIPALS: Final = (Who("ada", ("x",)), Who("bob", ("x", "y")), Who("cyd", ("y",)), Who("dan"), Who("anonymous"))
CLIENT_IDS: Final = ("ada", "ada-1", "bob", "bob-1", "cyd", "dan", "dana", "pool-1", "")
NAMES_OF_SUBSCRIPTIONS: Final = ("late", "low", "job")
PUBLISHERS: Final = ("desk", "till", "~")
"""How names of publishers begin; with the last one it has none."""
TOPICS: Final = ("a", "b", "c", "a.a", "a.b", "b.a", "b.b", "c.a", "b.a.c")
PATTERNS: Final = ("#", "*", "a.#", "b.#", "*.a", "a.*", "b.a.#", "*.*", "c.#", *TOPICS)
REQUESTS: Final = 20
"""Of a sequence."""
CHANGE: Final = 50
"""So many requests come between two changes of the rules."""
COMING: Final = 2
"""So many sessions are new when a sequence begins."""
SESSIONS: Final = 8
PATIENCE: Final = 12 * SECOND
MUCH: Final = 1 << 40
VERIFIER: Final = Verifier(b"salt of 16 bytes", 10_000, bytes(32), bytes(32))
RANGES: Final = (AskHeads, AskBound, AskEarliest, AcknowledgeDurably, TakeLease, ReadRange)
Need: TypeAlias = "tuple[str, str, What]"
"""A node, an action, and what it is about: that node judges it."""


class Fault(AssertionError):  # noqa: N818 - it is what is looked for
    """Something has happened that the rules forbid, or has not that they allow."""


@dataclass
class Asked:
    """A request that has no answer yet, or a batch."""

    message: Any
    needs: Sequence[Need]
    since: dict[str, int]
    """Of each node the number of the rules that it had then."""
    events: Sequence[str] = ()
    """The bodies of what it publishes."""
    consumers: Sequence[Consumer] = ()
    """Whoever consumed anything then, if it publishes."""
    waits: bool = False
    """Whether its answer may take as long as it likes."""
    touched: int = 0
    """How many times subscriptions had been touched then."""
    users: int = 0
    """How many times somebody had asked for another user then."""


@dataclass
class Consumer:
    """A consumer, and what entitles it."""

    needs: Sequence[Need]
    topics: tuple[str, ...]
    key: Owned | None
    expected: set[str] = field(default_factory=set)
    """Bodies that are to come yet."""
    got: set[str] = field(default_factory=set)
    """Those that came."""
    leaves: bool = False
    """Whether it has asked to be detached, which may not have been heard yet."""


@dataclass
class Publisher:
    """An open publisher."""

    name: str
    topic: str | None
    pubend: str
    epoch: int
    next: int
    unanswered: list[Asked] = field(default_factory=list)

    @property
    def node(self) -> str:
        return node_of(self.pubend)


@dataclass
class Record:
    """A durable subscription."""

    topics: tuple[str, ...]
    home: str
    target: Target
    seal: bytes


@dataclass
class Session:
    """What one principal has open at one node."""

    client: Client
    who: Who
    client_id: str
    asked: dict[int, Asked] = field(default_factory=dict)
    consumers: dict[int, Consumer] = field(default_factory=dict)
    publishers: dict[int, Publisher] = field(default_factory=dict)
    opening: dict[int, Asked] = field(default_factory=dict)
    leases: dict[int, Consumer] = field(default_factory=dict)
    reads: dict[int, Asked] = field(default_factory=dict)
    parts: dict[int, tuple[list[ListedSubscription], int]] = field(default_factory=dict)
    """Of lists that have not come as a whole: rows, and how many are hidden, by request."""
    said: dict[object, list[Asked]] = field(default_factory=dict)
    """All that was ever said under a number, where frames are mutated."""

    @property
    def node(self) -> str:
        return self.client.node.name

    @property
    def asks_for_users(self) -> bool:
        """Whether it waits for the answer to a request for another user."""
        return any(isinstance(each.message, (AddUser, RemoveUser)) for each in self.asked.values())

    @property
    def waits_for_answers(self) -> bool:
        """Whether an answer is due to it that does not wait for others."""
        asked = any(not each.waits for each in self.asked.values())
        return asked or bool(self.opening) or any(each.unanswered for each in self.publishers.values())


def node_of(pubend: str) -> str:
    """The node of a pubend."""
    return pubend.partition("-")[0]


def host_of(topic: str) -> str:
    """The node whose pubends take a topic."""
    hosts = (
        node for node, patterns in CARRIES.items() if any(topics_of(topic) <= topics_of(each) for each in patterns)
    )
    return next(hosts, "east")


_decode = msgspec.msgpack.Decoder(Event).decode


def rows_of(events: EventColumns) -> Iterator[tuple[str, str]]:
    """The topic and the body of each event."""
    for whole in events.cut()[0]:
        event = _decode(whole)
        yield event.topic, event.body.decode("latin-1")


class Draws:
    """Draws from a seed: what fits what there is."""

    def __init__(self, random: Random, durables: Mapping[Owned, Record], ends: Mapping[str, int]) -> None:
        self.random = random
        self.durables = durables
        self.ends = ends
        self.number = 0

    def next(self) -> int:
        self.number += 1
        return self.number

    def _events(self, topics: Sequence[str]) -> EventColumns:
        bodies = [f"event {self.next()}".encode() for _ in topics]
        return EventColumns.of(
            [encode_event(topic, {}, None, body) for topic, body in zip(topics, bodies, strict=True)], map(len, bodies)
        )

    def subscribe(self, name: str | None, topics: tuple[str, ...], start: StartAt = StartAt.LATEST) -> Subscribe:
        in_use = self.random.choice((InUse.ERROR, InUse.ERROR, InUse.TAKEOVER, InUse.TAKEOVER, InUse.WAIT))
        change = self.random.choice((OnChange.ERROR, OnChange.KEEP_POSITION, OnChange.JMS))
        number = self.next()
        return Subscribe(
            number,
            name,
            topics,
            "",
            start,
            0,
            None,
            0,
            0,
            b"",
            [],
            in_use,
            MUCH,
            MUCH,
            attempt=number,
            on_change=change,
        )

    def request(self, session: Session) -> Any:
        """A request that fits what the session has; None: another session is to come in its place."""
        random = self.random
        kind = random.random()
        if kind < 0.03:
            return None
        if kind < 0.33:
            return self._publishing(session)
        if kind < 0.58:
            return self._subscribing(session)
        if kind < 0.80:
            return self._range(session)
        return self._inquiry(session)

    def _publishing(self, session: Session) -> Any:
        random = self.random
        way = random.random()
        if way < 0.25:
            topic = random.choice(TOPICS)
            return PublishKeyed(self.next(), 1, self.next(), f"keyed {topic}", topic, self._events([topic]))
        ready = [
            number
            for number, each in session.publishers.items()
            if not each.unanswered and number not in session.opening
        ]
        if way < 0.45 or not ready:
            free = [number for number in range(1, 5) if number not in session.opening]
            if not free:
                return AskHeads(self.next(), None, None, 0)
            number = random.choice(free)
            carried = random.choice((*TOPICS, None))
            return OpenPublisher(number, f"{random.choice(PUBLISHERS)} {self.next()}", "only", 1, carried)
        number = random.choice(ready)
        if way < 0.48:
            return ClosePublisher(number)
        publisher = session.publishers[number]
        own = [topic for topic in TOPICS if host_of(topic) == publisher.node]
        topics = [publisher.topic if publisher.topic and random.random() < 0.7 else random.choice(own)]
        if random.random() < 0.3:
            topics.append(random.choice(own))
        return Publish(number, publisher.epoch, publisher.next, self._events(topics), b"")

    def _subscribing(self, session: Session) -> Any:
        random = self.random
        way = random.random()
        topics = tuple(random.sample(PATTERNS, random.choice((1, 1, 1, 2))))
        start = random.choice((StartAt.LATEST, StartAt.EARLIEST))
        name = random.choice(NAMES_OF_SUBSCRIPTIONS)
        record = self.durables.get(Owned(session.client_id, name))
        if record is not None and random.random() < 0.6:
            topics = record.topics
        if way < 0.15:
            return self.subscribe(None, topics, start)
        if way < 0.55:
            return self.subscribe(name, topics, start)
        if way < 0.7:
            return Attach(self.next(), name, topics, "", start, 0, None, 0, 0, b"")
        if way < 0.85 and session.consumers:
            sid = random.choice(list(session.consumers))
            if random.random() < 0.5:
                return Detach(sid)
            positions = [Acknowledged(pubend, tick, 0) for pubend, tick in self.ends.items()]
            return Acknowledge(sid, positions)
        client_id = session.client_id if random.random() < 0.5 else random.choice(CLIENT_IDS)
        return Unsubscribe(self.next(), name, client_id)

    def _range(self, session: Session) -> Any:
        random = self.random
        way = random.random()
        name = random.choice(NAMES_OF_SUBSCRIPTIONS)
        mine = [key for key in self.durables if key.client_id == session.client_id]
        target, seal = Target(name), b""
        if mine and random.random() < 0.8:
            record = self.durables[random.choice(mine)]
            target, seal = record.target, record.seal
            if random.random() < 0.3:
                target = Target("", target.sid, target.generation, target.home)
            elif random.random() < 0.5:
                target = Target(target.name)
        number = self.next()
        if way < 0.15:
            after = [Position(pubend, tick) for pubend, tick in self.ends.items()] if random.random() < 0.5 else None
            return AskHeads(number, target if random.random() < 0.8 else None, after, random.choice((0, 0, 2000)))
        if way < 0.25:
            return AskBound(number, target, [], 10, None)
        if way < 0.35:
            return AskEarliest(number, target if random.random() < 0.7 else None)
        if way < 0.5:
            positions = [Position(pubend, tick) for pubend, tick in self.ends.items()]
            return AcknowledgeDurably(number, target, seal, positions)
        if way < 0.7:
            return TakeLease(number, target, "owner", random.choice((InUse.ERROR, InUse.TAKEOVER)), attempt=number)
        if way < 0.75 and session.leases:
            return EndLease(random.choice(list(session.leases)))
        pubend = random.choice(list(self.ends)) if self.ends else "east-0"
        return ReadRange(number, target, pubend, 0, self.ends.get(pubend, 0), MUCH, MUCH)

    def _inquiry(self, session: Session) -> Any:
        random = self.random
        number = self.next()
        name = random.choice(("eve", "eve" if session.who.name == "anonymous" else session.who.name))
        return random.choice(
            (
                ListSubscriptions(number),
                ListSubscriptions(number),
                ListSubscriptions(number),
                ListPubends(number),
                ListPubends(number),
                AskStatus(number, random.choice(("", *NAMES))),
                Retire(number, random.choice((*NAMES, "north")), only_look=True),
                AddUser(number, name, VERIFIER, ()),
                ChangeUser(number, name, VERIFIER, random.choice((None, ()))),
                RemoveUser(number, name),
                ListUsers(number),
            )
        )


def draw_rules(random: Random) -> tuple[list[Table], Rules]:
    """Rules that make sense, with which many things are allowed and many are not; and the same as brokers have them."""
    while True:
        tables = [_draw_table(random, denies=False) for _ in range(random.randrange(3, 9))]
        tables += [_draw_table(random, denies=True) for _ in range(random.choice((0, 0, 1, 1, 2, 4)))]
        written: dict[str, list[Table]] = {"allow": [], "deny": []}
        for each in tables:
            table = {key: value for key, value in each.items() if key != "denies"}
            written["deny" if each["denies"] else "allow"].append(table)
        try:
            return tables, rules_of(written, "", {})
        except ConfigurationError:
            continue


def _draw_table(random: Random, *, denies: bool) -> Table:
    everybody = ("*", *(who.name for who in PRINCIPALS), "group:x", "group:y")
    who = random.sample(everybody, random.choice((1, 2, 3)))
    publishers = random.sample(("desk *", "*till*", "keyed a*", "keyed *", "*"), random.choice((1, 2)))
    if denies and random.random() < 0.1:
        return {"denies": True, "who": who, "actions": ["publish"], "publishers": publishers}
    table: dict[str, Any] = {"denies": denies, "who": ["*"] if not denies and random.random() < 0.25 else who}
    of_topics, of_durables = random.random() < 0.75, random.random() < 0.6
    actions = [action for action in ("publish", "subscribe") if of_topics and random.random() < 0.75]
    if of_durables or not actions:
        actions += [action for action in ("consume", "observe") if random.random() < 0.7]
    if not (of_topics and actions) and random.random() < 0.7:
        actions = [action for action in actions if action in {"consume", "observe"}] + ["manage"]
    table["actions"] = actions or ["observe"]
    if {"publish", "subscribe"} & set(actions) or (
        "observe" in actions and "manage" not in actions and random.random() < 0.4
    ):
        wide = random.random() < 0.5 and not denies
        table["topics"] = ["#"] if wide else random.sample(PATTERNS, random.choice((1, 2, 3)))
    if not denies and "publish" in actions and random.random() < 0.3:
        table["publishers"] = publishers
    if {"consume", "manage", "observe"} & set(table["actions"]):
        if random.random() < 0.5:
            table["names"] = random.sample((*NAMES_OF_SUBSCRIPTIONS, "l*", "*o*", "*"), random.choice((1, 2)))
        if random.random() < (0.3 if denies else 0.65):
            table["client_ids"] = random.sample((*CLIENT_IDS, "*", "*", "ada*", "*-1"), random.choice((1, 2)))
    return table
