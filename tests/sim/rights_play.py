"""Requests drawn at random under rules that change, and what must not come of them.

Five principals ask over sessions at two nodes. The model (`rights_model`) says what each of them may; this keeps
account of what there is (subscriptions, consumers, publishers, leases, events), and holds each answer, each row and
each event against both:

- a request that is granted was allowed, and one that is refused as forbidden was not;
- what is delivered or read is allowed by the rules that hold where it is, and was logged by somebody who might;
- a listing shows what its reader may know of, and counts the rest, to the row;
- when rules hold, no consumer and no lease is left that they forbid, and nobody else has lost one.

A request may be judged at two nodes, and while it is under way rules may change: so of each node all rules count that
it had from the request to its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

from gapless.core.ports import Roaming
from gapless.core.stream.columns import EventColumns
from gapless.core.wire.messages import (
    Acknowledge,
    AddUser,
    AskStatus,
    Attach,
    AttachedTo,
    ChangeUser,
    ClosePublisher,
    Code,
    Deliver,
    Detach,
    Detached,
    Done,
    EndLease,
    Heartbeat,
    InUse,
    KeyedPublished,
    Leased,
    LeaseLost,
    ListedSubscription,
    ListPubends,
    ListSubscriptions,
    ListUsers,
    OnChange,
    OpenPublisher,
    PubendList,
    Publish,
    Published,
    PublisherOpened,
    PublishKeyed,
    PublishRefused,
    RangeEvents,
    RangeRead,
    RemoveUser,
    RequestFailed,
    Retire,
    Retired,
    Status,
    Subscribe,
    Subscribed,
    SubscriptionList,
    Target,
    Ticks,
    Unsubscribe,
    UserList,
)
from gapless_shb.core.state.places import home_of
from sim.rights_draws import (
    CHANGE,
    CLIENT_IDS,
    COMING,
    PATIENCE,
    PRINCIPALS,
    RANGES,
    REQUESTS,
    SESSIONS,
    Asked,
    Consumer,
    Draws,
    Fault,
    Need,
    Publisher,
    Record,
    Session,
    draw_rules,
    host_of,
    node_of,
    rows_of,
)
from sim.rights_model import Model, Named, Owned, Some, Who, topics_of
from sim.rights_nodes import MILLISECOND, NAMES, PUBENDS, SECOND, Nodes


class Play:
    """One network, and all that is asked of it."""

    def __init__(self, seed: str) -> None:
        self.random = Random(seed)
        self.seed = seed
        self.nodes = Nodes()
        self.roaming = Roaming(NAMES, b"a secret of some length")
        self.rules: dict[str, list[Model]] = {name: [] for name in NAMES}
        """Of each node all that it ever had."""
        self.held: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.durables: dict[Owned, Record] = {}
        self.touched: list[Owned] = []
        """The subscriptions that requests and answers were about, in their order."""
        self.unsure: set[Owned] = set()
        """Those of which a request was refused that had begun under other rules: it may have changed them."""
        self.sessions: list[Session] = []
        self.logged: dict[str, str] = {}
        """The events that may be in a log, by their bodies, with their topics."""
        self.never: set[str] = set()
        """Bodies of what was refused as forbidden."""
        self.users: dict[str, set[str]] = {name: set() for name in NAMES}
        self.ended: set[tuple[str, str]] = set()
        """At which node the sessions of which users may end, or have."""
        self.ends: dict[str, int] = {}
        """The newest tick that a receipt has named, by pubend."""
        self.counts: Counter[str] = Counter()
        self.story: list[str] = []
        self.draws = Draws(self.random, self.durables, self.ends)
        self._heartbeat_at = self._until_change = self._users_asked = 0
        self._unsure_users: set[str] = set()
        """The nodes at which somebody has asked for another user, and left before the answer."""
        self.watcher = Session(self.nodes["east"].connect("watcher", "watcher", ""), Who(""), "watcher")
        self.change_rules()
        self._say(self.watcher, self.draws.subscribe(None, ("#",)))
        self._until_answered()
        for _ in range(SESSIONS):
            self.connect()

    # ------------------------------------------------------------------------------------------- whole sequences

    def sequence(self, requests: int = REQUESTS) -> None:
        """So many requests of principals of whom some have just come; now and then under other rules."""
        for _ in range(COMING):
            self.connect(self.random.choice(self.sessions))
        for _ in range(requests):
            if self._until_change <= 0:
                self._until_change = CHANGE
                self.change_rules()
            self._until_change -= 1
            self.request()
        self.look_at_everything()
        self._look_at_consumers()
        self.counts["sequences"] += 1

    def request(self) -> None:
        """Somebody asks for something, and mostly gets an answer."""
        random = self.random
        session = random.choice(self.sessions)
        message = self.draws.request(session)
        if message is None:
            self.connect(session)
        else:
            self._say(session, message)
            self._until_answered()
        if self.unsure:
            self.look_at_everything()
        self.nodes.pass_until(self.nodes.now + random.randrange(8) * MILLISECOND)
        self._stay_alive()

    # ------------------------------------------------------------------------------------------- rules

    def change_rules(self) -> None:
        """Other rules count, now and then at one node alone, and now and then while requests are under way."""
        random = self.random
        tables, rules = draw_rules(random)
        model = Model(tables)
        names = list(NAMES) if not self.rules["east"] or random.random() < 0.8 else [random.choice(NAMES)]
        random.shuffle(names)
        for name in names:
            self._ask_some()
            self.rules[name].append(model)
            self.nodes[name].machine.on_authorizer(rules)
            self.story.append(f"{name} has the rules {tables}")
            if random.random() < 0.5:
                self.nodes.settle()
            self._ask_some()
        if not self.nodes.wait(lambda: all(self.nodes[name].authority.holds for name in NAMES), PATIENCE):
            raise Fault("the rules do not hold")
        self._hear_all()
        self.held = {name: len(self.rules[name]) - 1 for name in NAMES}
        self._until_answered()
        if self.unsure:
            self.look_at_everything()
        self._judge_what_goes_on()
        self.counts["changes"] += 1

    def _ask_some(self) -> None:
        """Requests that are under way while rules change."""
        for _ in range(self.random.choice((0, 0, 0, 1, 3)) if self.sessions else 0):
            session = self.random.choice(self.sessions)
            if (message := self.draws.request(session)) is not None:
                self._say(session, message)

    def answers_to(self, who: Who, need: Need, since: dict[str, int] | None = None) -> set[bool]:
        """What the rules say that the node had from then on; without `since`, those that hold there, and later ones."""
        node, action, what = need
        models = self.rules[node][(self.held if since is None else since)[node] :]
        return {model.allows(who, action, what) for model in models}

    def _granted(self, session: Session, asked: Asked) -> None:
        """Raises Fault unless it may be so."""
        self.counts["granted"] += 1
        if isinstance(asked.message, RANGES) and self._was_busy(session, asked):
            return  # while it waited, the subscription may have got other topics
        since = {name: max(asked.since[name], held) for name, held in self.held.items()}
        for need in asked.needs:
            if self.answers_to(session.who, need, since) == {False}:
                raise self._fault(session, f"{asked.message} was granted, and {need} is forbidden")

    def _refused(self, session: Session, asked: Asked, code: Code, reason: str) -> None:
        """Raises Fault unless it may be so."""
        if code is Code.FORBIDDEN:
            self.counts["refused"] += 1
            needs = [*asked.needs, *self.needs_of(session, asked.message)]  # another request may have come between
            if isinstance(asked.message, Retire):
                needs += [(node, "manage", f"shb {asked.message.shb}") for node in NAMES]
            if isinstance(asked.message, OpenPublisher):  # without a topic any node may be its host
                needs += [each for node in NAMES for each in self._needs_of_publisher(node, None, asked.message.name)]
            if isinstance(asked.message, (*RANGES, Subscribe)) and self._was_busy(session, asked):
                return  # it may have been judged by topics of which only a later answer told
            if all(self.answers_to(session.who, need, asked.since) == {True} for need in needs):
                raise self._fault(session, f"{asked.message} was refused, and all of it is allowed: {reason}")
            return
        self.counts["failed"] += 1
        self.counts[f"failed: {code.value}"] += 1
        for need in self._needs_alone(session, asked):
            if self.answers_to(session.who, need, asked.since) == {False}:
                raise self._fault(session, f"{asked.message} failed with {code}, and {need} is forbidden: {reason}")

    def _judge_what_goes_on(self) -> None:
        """The rules hold: whoever has something still may have it."""
        for session in self.sessions:
            for kind in (session.consumers, session.leases):
                for number, held in kind.items():
                    for need in held.needs:
                        if self.answers_to(session.who, need) == {False}:
                            raise self._fault(session, f"the rules hold, and {number} goes on: {need} is forbidden")

    def _lost(self, session: Session, held: Consumer, code: Code, reason: str) -> None:
        """A consumer or a lease has ended as the rules say: raises Fault if they do not."""
        if code is Code.FORBIDDEN:
            self.counts["lost"] += 1
            self.counts["leases lost"] += not held.topics
            if all(self.answers_to(session.who, need) == {True} for need in held.needs):
                raise self._fault(session, f"a consumer of {held.topics} was ended, and may go on: {reason}")

    def _fault(self, session: Session, what: str) -> Fault:
        told = "\n  ".join(self.story[-25:])
        return Fault(f"{session.who} as {session.client_id!r} at {session.node}: {what}\nseed {self.seed}\n  {told}")

    # ------------------------------------------------------------------------------------------- asking

    def connect(self, instead: Session | None = None) -> None:
        """A principal comes, in place of a session that ends."""
        random = self.random
        if instead is not None:
            instead.client.leave()
            self._hear_all()
            if instead.asks_for_users:
                self._unsure_users.add(instead.node)
            for asked in instead.asked.values():
                self._is_unsure(instead, asked)
            self.sessions.remove(instead)
        who = random.choice(PRINCIPALS)
        own = [each for each in CLIENT_IDS if each.partition("-")[0] == who.name]
        client_id = random.choice(own if own and random.random() < 0.6 else CLIENT_IDS)
        node = self.nodes[random.choice(NAMES)]
        client = node.connect(client_id, f"instance {self.draws.next()}", ",".join((who.name, *who.groups)))
        self.sessions.append(Session(client, who, client_id))
        self.story.append(f"{who} comes as {client_id!r} to {node.name}")

    def _say(self, session: Session, message: Any, payload: bytes | None = None) -> None:
        """Notes what is asked, and says it, or these bytes, which mean it."""
        self.note(session, message)
        self.story.append(f"{session.who.name} as {session.client_id!r} at {session.node}: {message}")
        session.client.say_payloads(session.client.payload(message) if payload is None else payload)

    def note(self, session: Session, message: Any) -> None:
        """Keeps account of a message that is going to be said."""
        self._users_asked += isinstance(message, (AddUser, RemoveUser))
        asked = Asked(message, tuple(self.needs_of(session, message)), self._now(), touched=len(self.touched))
        asked.users = -1 if any(each.asks_for_users for each in self.sessions) else self._users_asked
        self._touch(session, message)
        self.counts["requests"] += 1
        if isinstance(message, OpenPublisher):
            session.publishers.pop(message.publisher, None)
            session.opening[message.publisher] = asked
        elif isinstance(message, Publish):
            publisher = session.publishers.get(message.publisher)
            if publisher is not None:
                asked.events, asked.consumers = self._published(message.events), self._consumers()
                publisher.unanswered.append(asked)
                publisher.next += message.events.count
        elif isinstance(message, ClosePublisher):
            session.publishers.pop(message.publisher, None)
        elif isinstance(message, Detach):
            if consumer := session.consumers.get(message.sid):
                consumer.leaves = True
        elif isinstance(message, EndLease):
            session.leases.pop(message.request, None)
        elif isinstance(message, Acknowledge):
            pass
        else:
            if isinstance(message, PublishKeyed):
                asked.events, asked.consumers = self._published(message.events), self._consumers()
            in_use = getattr(message, "in_use", None)
            asked.waits = in_use is InUse.WAIT or getattr(message, "wait_ms", 0) > 0
            session.asked[message.request] = asked

    def _touch(self, session: Session, message: Any) -> None:
        if isinstance(message, (Subscribe, Attach)) and message.name:
            self.touched.append(Owned(session.client_id, message.name))
        elif isinstance(message, Unsubscribe):
            self.touched.append(Owned(message.client_id, message.name))

    def _answered(self, session: Session, asked: Asked) -> None:
        """A request has its answer. Where another one was about the same, nobody knows which of them came first."""
        mark = len(self.touched)
        self._touch(session, asked.message)
        for key in self.touched[mark:]:
            if self.touched[asked.touched : mark].count(key) > 1:
                self.unsure.add(key)

    def _was_busy(self, session: Session, asked: Asked) -> bool:
        """Whether meanwhile something else was asked about subscriptions of the same client id."""
        mark = len(self.touched)
        for other in self.sessions:
            for each in other.asked.values():
                self._touch(other, each.message)
        found = [key.client_id for key in self.touched[asked.touched :]]
        del self.touched[mark:]
        return found.count(session.client_id) > isinstance(asked.message, Subscribe)

    def _touched_since(self, asked: Asked) -> set[Owned]:
        """The subscriptions of which nobody knows how they stood meanwhile."""
        mark = len(self.touched)
        for session in self.sessions:
            for each in session.asked.values():
                self._touch(session, each.message)
        found = {*self.touched[asked.touched :], *self.unsure}
        del self.touched[mark:]
        return found

    def _consumers(self) -> list[Consumer]:
        return [consumer for session in self.sessions for consumer in session.consumers.values()]

    def _published(self, events: EventColumns) -> list[str]:
        found = list(rows_of(events))
        self.logged |= {body: topic for topic, body in found}
        return [body for _, body in found]

    def _now(self) -> dict[str, int]:
        return {name: len(rules) - 1 for name, rules in self.rules.items()}

    def _home(self, client_id: str, name: str) -> str:
        record = self.durables.get(Owned(client_id, name))
        return home_of(client_id, self.roaming) if record is None else record.home

    def needs_of(self, session: Session, message: Any) -> Iterator[Need]:
        """What has to be allowed, and at which node."""
        here, client_id = session.node, session.client_id
        if isinstance(message, (Subscribe, Attach)):
            yield from self._needs_of(here, client_id, message.name, message.topics)
            home = self._home(client_id, message.name) if message.name else here
            record = self.durables.get(Owned(client_id, message.name or ""))
            if record is not None and getattr(message, "on_change", OnChange.ERROR) is OnChange.ERROR:
                yield from self._needs_of(home, client_id, None, record.topics)  # what differs would be told
            if home != here and isinstance(message, Subscribe):
                yield from self._needs_of(home, client_id, message.name, message.topics)
        elif isinstance(message, OpenPublisher):
            yield from self._needs_of_publisher(here, message.topic, message.name)
            yield from self._needs_of_publisher(host_of(message.topic) if message.topic else here, None, message.name)
        elif isinstance(message, PublishKeyed):
            if message.topic:
                yield from self._needs_of_publisher(here, message.topic, message.producer)
                yield from self._needs_of_publisher(host_of(message.topic), None, message.producer)
                for topic, _ in rows_of(message.events):
                    yield host_of(message.topic), "publish", topic
        elif isinstance(message, Publish):
            publisher = session.publishers.get(message.publisher)
            if publisher is not None:
                yield from self._needs_of_publisher(here, publisher.topic, publisher.name)
                yield from self._needs_of_publisher(publisher.node, None, publisher.name)
                for topic, _ in rows_of(message.events):
                    yield publisher.node, "publish", topic
        elif isinstance(message, Unsubscribe):
            action = "consume" if message.client_id == client_id else "manage"
            for node in dict.fromkeys((here, self._home(message.client_id, message.name))):
                yield node, action, Owned(message.client_id, message.name)
        elif isinstance(message, (ListSubscriptions, ListPubends)):
            yield here, "observe", "subscriptions" if isinstance(message, ListSubscriptions) else "pubends"
        elif isinstance(message, AskStatus):
            for node in dict.fromkeys((here, message.node or here)):
                yield node, "observe", "status"
        elif isinstance(message, Retire):
            yield here, "manage", f"shb {message.shb}"
        elif isinstance(message, (AddUser, ChangeUser, RemoveUser, ListUsers)):
            is_own = isinstance(message, ChangeUser) and message.name == session.who.name
            is_password = isinstance(message, ChangeUser) and message.groups is None and message.verifier is not None
            if not (is_own and is_password):
                yield here, "manage", "users"
        elif isinstance(message, RANGES) and message.target is not None:
            yield from self._needs_of_target(here, client_id, message.target)

    def _needs_alone(self, session: Session, asked: Asked) -> Iterable[Need]:
        """What the client's own node judges first, whatever there is: without it nothing else is told."""
        message, here = asked.message, session.node
        if isinstance(message, Publish):
            return ()
        if isinstance(message, (Subscribe, Attach)):
            return self._needs_of(here, session.client_id, message.name, message.topics)
        if isinstance(message, RANGES):
            target = message.target
            return self._needs_of(here, session.client_id, None if target is None else target.name, ())
        return [need for need in asked.needs if need[0] == here][:1]

    @staticmethod
    def _needs_of_publisher(node: str, topic: str | None, name: str) -> Iterator[Need]:
        if topic:
            yield node, "publish", topic
        if not name.startswith("~"):
            yield node, "publish", Named(name)

    @staticmethod
    def _needs_of(node: str, client_id: str, name: str | None, topics: Iterable[str]) -> Iterator[Need]:
        if name:
            yield node, "consume", Owned(client_id, name)
        for topic in topics:
            yield node, "subscribe", topic

    def _needs_of_target(self, here: str, client_id: str, target: Target) -> Iterator[Need]:
        if target.name:
            yield here, "consume", Owned(client_id, target.name)
        for key, record in self.durables.items():
            is_meant = target.sid == record.target.sid if target.sid else target.name == key.name
            if is_meant and key.client_id == client_id and record.home == here:
                yield from self._needs_of(here, client_id, key.name, record.topics)

    # ------------------------------------------------------------------------------------------- hearing

    def _until_answered(self) -> None:
        """All that was asked has its answer, but for what may wait."""

        def answered() -> bool:
            self._hear_all()
            return not any(session.waits_for_answers for session in (*self.sessions, self.watcher))

        if not self.nodes.wait(answered, PATIENCE):
            for session in self.sessions:
                if session.waits_for_answers:
                    raise self._fault(session, f"no answer comes: {session.asked} {session.opening}")

    def _hear_all(self) -> None:
        for session in (*self.sessions, self.watcher):
            heard, session.client.heard = session.client.heard, []
            for message in heard:
                self.hear(session, message)
        for session in list(self.sessions):
            for sid in [sid for sid, consumer in session.consumers.items() if consumer.leaves]:
                del session.consumers[sid]
            if session.client.closed is not None and not session.client.left:
                self._on_closed(session)

    def _on_closed(self, session: Session) -> None:
        """Sessions end of those whose user was changed; nobody else's."""
        if (session.node, session.who.name) not in self.ended:
            raise self._fault(session, f"the session is over: {session.client.closed}")
        self.connect(session)

    def hear(self, session: Session, message: Any) -> None:
        hear = self.HEARS.get(type(message))
        if hear is not None:
            hear(self, session, message)

    def _on_subscribed(self, session: Session, message: Subscribed) -> None:
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        self._answered(session, asked)
        request = asked.message
        key = Owned(session.client_id, request.name) if request.name else None
        home = message.home.partition("@")[0] or session.node
        self.counts["guests"] += home != session.node
        needs = tuple(self.needs_of(session, request))
        session.consumers[message.sid] = Consumer(needs, request.topics, key)
        if key is not None:
            target = Target(key.name, message.home_sid or message.sid, message.generation, message.home)
            self.durables[key] = Record(request.topics, home, target, message.seal)

    def _on_attached(self, session: Session, message: AttachedTo) -> None:
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        self._answered(session, asked)
        request = asked.message
        target = Target(request.name, message.sid, message.generation, message.home)
        self.durables[Owned(session.client_id, request.name)] = Record(
            request.topics, session.node, target, message.seal
        )

    def _on_failed(self, session: Session, message: RequestFailed) -> None:
        asked = session.asked.pop(message.request, None) or session.reads.pop(message.request, None)
        if asked is None:
            raise self._fault(session, f"nobody has asked: {message}")
        if isinstance(asked.message, (AskStatus, Retire)) and message.code is Code.NO_ANSWER:
            return
        self._refused(session, asked, message.code, message.reason)
        self._answered(session, asked)
        if message.code is Code.FORBIDDEN:
            self.never.update(asked.events)
            self._is_unsure(session, asked)
        if isinstance(asked.message, Unsubscribe):
            self._look_at_hint(session, asked, message.reason)

    def _is_unsure(self, session: Session, asked: Asked) -> None:
        """What was asked may have been begun, if it was allowed, although it was not granted."""
        mark = len(self.touched)
        self._touch(session, asked.message)
        if all(True in self.answers_to(session.who, need, asked.since) for need in asked.needs):
            self.unsure.update(self.touched[mark:])

    def _look_at_hint(self, session: Session, asked: Asked, reason: str) -> None:
        """A reason may name other subscriptions, to whoever may know of them."""
        request = asked.message
        told = reason.partition("there is one of client ")[2]
        home = self._home(request.client_id, request.name)
        for client_id in CLIENT_IDS:
            if repr(client_id) in told:
                need: Need = (home, "observe", Owned(client_id, request.name))
                if self.answers_to(session.who, need, asked.since) == {False}:
                    raise self._fault(session, f"{reason!r} tells of {need}, which is forbidden")

    def _on_ticks(self, session: Session, message: Ticks) -> None:
        asked = session.asked[message.request]
        self._on_done(session, message)
        told = {position.pubend.partition("@")[0] for position in message.positions}
        for name, pattern in PUBENDS.items() if getattr(asked.message, "target", "") is None else ():
            need: Need = (session.node, "subscribe", Some(pattern))
            if (name in told) not in self.answers_to(session.who, need, asked.since):
                raise self._fault(session, f"{message} tells of pubends that are forbidden, or lacks {name}")

    def _on_done(self, session: Session, message: Done | Ticks | Retired | RangeRead) -> None:
        asked = session.asked.pop(message.request, None) or session.reads.pop(message.request)
        self._granted(session, asked)
        request = asked.message
        self._answered(session, asked)
        if isinstance(request, Unsubscribe):
            self.durables.pop(Owned(request.client_id, request.name), None)
        elif isinstance(request, AddUser):
            self.users[session.node].add(request.name)
        elif isinstance(request, (RemoveUser, ChangeUser)):
            self.ended.add((session.node, request.name))
            if isinstance(request, RemoveUser):
                self.users[session.node].discard(request.name)

    def _on_status(self, session: Session, message: Status) -> None:
        if not message.more:
            self._granted(session, session.asked.pop(message.request))

    def _on_users(self, session: Session, message: UserList) -> None:
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        if asked.users < self._users_asked:
            return  # nobody knows which came first
        if session.node in self._unsure_users:
            self._unsure_users.discard(session.node)
            self.users[session.node] = {row.name for row in message.rows}
        if (found := {row.name for row in message.rows}) != self.users[session.node]:
            raise self._fault(session, f"the users are {found}, and should be {self.users[session.node]}")

    def _on_subscriptions(self, session: Session, message: SubscriptionList) -> None:
        rows, hidden = session.parts.pop(message.request, ([], 0))
        rows, hidden = [*rows, *message.rows], hidden + message.hidden
        if message.more:
            session.parts[message.request] = rows, hidden
            return
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        missing = {each.node for each in message.missing}
        if session is self.watcher:
            self._make_sure({Owned(row.client_id, row.name): row for row in rows})
        shown = {Owned(row.client_id, row.name): row.node for row in rows}
        unsure = self._touched_since(asked)
        exact = hid = 0
        for key, record in self.durables.items():
            if key in unsure:
                continue
            may = self.answers_to(session.who, (record.home, "observe", key), asked.since)
            whole = self.answers_to(session.who, (record.home, "observe", "subscriptions"), asked.since)
            if record.home in missing or (record.home != session.node and whole == {False}):
                if whole == {True} or key in shown:
                    raise self._fault(session, f"{record.home} has not answered: {message.missing}")
                continue
            if (key in shown) not in may and len(whole) == 1:
                raise self._fault(session, f"{key} is {'' if key in shown else 'not '}listed: allowed {may}")
            exact += len(may) == len(whole) == 1
            hid += key not in shown
        for key in shown.keys() - self.durables.keys() - unsure:
            raise self._fault(session, f"{key} is listed, and nobody has made it")
        if exact == len(self.durables) and not unsure and hidden != hid:
            raise self._fault(session, f"{hidden} are hidden, and not {hid}")
        self.counts["rows shown"] += len(rows)
        self.counts["rows hidden"] += hidden

    def _make_sure(self, rows: Mapping[Owned, ListedSubscription]) -> None:
        """Learns what has become of subscriptions whose requests were refused half way."""
        for key in self.unsure:
            self.durables.pop(key, None)
            if (row := rows.get(key)) is not None:
                self.durables[key] = Record(row.topics, row.node, Target(key.name), b"")
        self.unsure.clear()

    def _on_pubends(self, session: Session, message: PubendList) -> None:
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        shown = {row.pubend.partition("@")[0] for row in message.rows}
        missing = {each.node for each in message.missing}
        hidden, certain = 0, True
        for name, pattern in PUBENDS.items():
            node, is_shown = node_of(name), name in shown
            whole = self.answers_to(session.who, (node, "observe", "pubends"), asked.since)
            may = self.answers_to(session.who, (node, "observe", f"topic {pattern}"), asked.since)
            if node in missing or (node != session.node and whole == {False}):
                if whole == {True} or is_shown:
                    raise self._fault(session, f"{node} has not answered, or should not have: {message}")
                continue
            if is_shown not in may and len(whole) == 1:
                raise self._fault(session, f"pubend {name} is listed: {is_shown}; allowed: {may}")
            certain &= len(may) == len(whole) == 1
            hidden += not is_shown
        if certain and hidden != message.hidden:
            raise self._fault(session, f"{message.hidden} pubends are hidden, and not {hidden}")

    def _on_leased(self, session: Session, message: Leased) -> None:
        asked = session.asked.pop(message.request)
        self._granted(session, asked)
        needs = tuple(self.needs_of(session, asked.message))
        session.leases[message.request] = Consumer(needs, (), None)

    def _on_lease_lost(self, session: Session, message: LeaseLost) -> None:
        held = session.leases.pop(message.request, None)
        if held is not None:
            self._lost(session, held, message.code, message.reason)

    def _on_detached(self, session: Session, message: Detached) -> None:
        held = session.consumers.pop(message.sid, None)
        if held is not None:
            self._lost(session, held, message.code, message.reason)

    def _on_opened(self, session: Session, message: PublisherOpened) -> None:
        asked = session.opening.pop(message.publisher)
        self._granted(session, asked)
        request = asked.message
        opened = Publisher(request.name, request.topic, message.pubend, message.epoch, message.sequence + 1)
        session.publishers[message.publisher] = opened

    def _on_published(self, session: Session, message: Published) -> None:
        publisher = session.publishers.get(message.publisher)
        while publisher is not None and publisher.unanswered:
            asked = publisher.unanswered[0]
            if asked.message.first + asked.message.events.count - 1 > message.sequence:
                break
            self._granted(session, publisher.unanswered.pop(0))
            for run in message.ticks:
                pubend = publisher.pubend
                self.ends[pubend] = max(self.ends.get(pubend, 0), run.first + run.step * (run.count - 1))
            self._expect(asked)

    def _expect(self, asked: Asked) -> None:
        """Whoever consumed their topics when they were published is to get them."""
        for consumer in asked.consumers:
            for body in asked.events:
                if any(self.logged[body] in topics_of(pattern) for pattern in consumer.topics):
                    consumer.expected.add(body)

    def _on_publish_refused(self, session: Session, message: PublishRefused) -> None:
        opening = None if message.sequence else session.opening.pop(message.publisher, None)
        if opening is not None:
            self._refused(session, opening, message.code, message.reason)
            return
        publisher = session.publishers.get(message.publisher)
        if publisher is None or not publisher.unanswered:
            return
        for number, asked in enumerate(publisher.unanswered):
            if not number:
                self._refused(session, asked, message.code, message.reason)
            self.never.update(asked.events)
        publisher.unanswered.clear()
        publisher.next = message.sequence
        if message.code not in {Code.FORBIDDEN, Code.INVALID_MESSAGE, Code.RESUME}:
            session.publishers.pop(message.publisher)

    def _on_keyed(self, session: Session, message: KeyedPublished) -> None:
        asked = session.asked.pop(message.request)
        if not message.ticks:  # a later batch of its producer was quicker: nothing of this one was logged
            return
        self._granted(session, asked)
        node = node_of(message.pubend)
        for topic, _ in rows_of(asked.message.events):
            if self.answers_to(session.who, (node, "publish", topic), asked.since) == {False}:
                raise self._fault(session, f"{asked.message} was logged at {node}, and {topic} is forbidden")
        self._expect(asked)

    def _on_deliver(self, session: Session, message: Deliver) -> None:
        consumer = session.consumers.get(message.sid)
        events = message.columns.events("")
        if session is not self.watcher:
            if consumer is None:
                raise self._fault(session, f"{events} come for {message.sid}, which has ended")
            for need in consumer.needs:
                if True not in self.answers_to(session.who, need):
                    raise self._fault(session, f"{events} come, and {need} is forbidden")
            self._check_events(session, consumer.topics, events)
            consumer.got.update(event.body.decode("latin-1") for event in events)
            self.counts["events delivered"] += len(events)
            return
        for event in events:
            self._was_published(session, event)

    def _on_range(self, session: Session, message: RangeEvents) -> None:
        asked = session.asked.get(message.request)
        events = message.columns.events("")
        if asked is None:
            raise self._fault(session, f"{events} come for the read {message.request}, which has ended")
        needs = [*asked.needs, *self.needs_of(session, asked.message)]  # it may have been made just before
        for need in needs:
            if True not in self.answers_to(session.who, need):
                raise self._fault(session, f"{events} are read, and {need} is forbidden")
        topics = tuple(what for _, action, what in needs if action == "subscribe" and isinstance(what, str))
        self._check_events(session, topics, events)
        self.counts["events read"] += len(events)

    def _check_events(self, session: Session, topics: Sequence[str], events: Sequence[Any]) -> None:
        for event in events:
            self._was_published(session, event)
            if not any(topics_of(event.topic) <= topics_of(pattern) for pattern in topics):
                raise self._fault(session, f"{event} comes, which is not one of {topics}")
            if True not in self.answers_to(session.who, (session.node, "subscribe", event.topic)):
                raise self._fault(session, f"{event} comes, and its topic is forbidden")

    def _was_published(self, session: Session, event: Any) -> None:
        body = event.body.decode("latin-1")
        if body in self.never or self.logged.get(body) != event.topic:
            raise self._fault(session, f"{event} was logged, and was not let")

    HEARS: Final[dict[type, Callable[[Play, Session, Any], None]]] = {
        Subscribed: _on_subscribed,
        AttachedTo: _on_attached,
        RequestFailed: _on_failed,
        Done: _on_done,
        Ticks: _on_ticks,
        Retired: _on_done,
        RangeRead: _on_done,
        Status: _on_status,
        UserList: _on_users,
        SubscriptionList: _on_subscriptions,
        PubendList: _on_pubends,
        Leased: _on_leased,
        LeaseLost: _on_lease_lost,
        Detached: _on_detached,
        PublisherOpened: _on_opened,
        Published: _on_published,
        PublishRefused: _on_publish_refused,
        KeyedPublished: _on_keyed,
        Deliver: _on_deliver,
        RangeEvents: _on_range,
    }

    # ------------------------------------------------------------------------------------------- looking

    def look_at_everything(self) -> None:
        """What there is, as the node's own process is shown it, is what was granted."""
        self._say(self.watcher, ListSubscriptions(self.draws.next()))
        self._until_answered()

    def _look_at_consumers(self) -> None:
        """Whoever may consume was given what was logged since he came."""

        def complete() -> bool:
            self._hear_all()
            return not any(each.expected - each.got for session in self.sessions for each in session.consumers.values())

        if not self.nodes.wait(complete, PATIENCE):
            for session in self.sessions:
                for consumer in session.consumers.values():
                    if lacks := consumer.expected - consumer.got:
                        raise self._fault(session, f"the consumer of {consumer.key} {consumer.topics} lacks {lacks}")

    def _stay_alive(self) -> None:
        if self.nodes.now >= self._heartbeat_at:
            self._heartbeat_at = self.nodes.now + 4 * SECOND
            for session in (*self.sessions, self.watcher):
                session.client.say(Heartbeat())
