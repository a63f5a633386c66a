"""A broker in memory that speaks the protocol, and misbehaves on request.

Pure: links are numbers, frames go in, frames come out. Events are kept in a list per pubend; a
subscription remembers what its application acknowledged; a publisher what it logged. There is no disk,
so "durable" is what the test says it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge
from gapless.core.ports import Authentication, Authenticator
from gapless.core.principals import NO_CERTIFICATE, Admission, Judgement, PeerInfo
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.ticks import FOREVER, STEP, PubendId, Tick
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_client, deliver_head, encode, session_of
from gapless.core.wire.numbering import HEAD_BYTES, SESSION_BYTES, Sent
from gapless.core.wire.tokens import Tokens, find_token, merge_tokens, split_consumed, split_tokens
from gapless.selectors.filters import Filter

PUBEND = "p@1"
BASE = 1 << 60
"""The tick before the first event."""


@dataclass
class Stream:
    """One pubend's log."""

    number: int
    ticks: list[Tick] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    body_lengths: list[int] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    lost: Tick = 0

    @property
    def newest(self) -> Tick:
        return max(self.ticks[-1] if self.ticks else BASE, self.lost)

    def append(self, columns: EventColumns) -> list[Tick]:
        ticks = [self.newest + STEP * (i + 1) for i in range(columns.count)]
        batch = columns.batch(ticks)
        self.ticks += ticks
        self.events += batch.events
        self.body_lengths += batch.body_lengths
        columns.check()
        self.headers += batch.headers
        return ticks


@dataclass
class Name:
    """What is known of a publisher's name."""

    epoch: int = 0
    instance: str = ""
    attempt: int = 0
    sequence: int = 0
    log: list[tuple[int, list[Tick], bytes]] = field(default_factory=list)
    """(last sequence, ticks, content) of every batch."""
    tokens: Tokens = ()


@dataclass
class Subscription:
    """A subscription, durable if it has a name."""

    sid: int
    client_id: str
    name: str | None
    filter: Filter
    generation: int
    acknowledged: dict[PubendId, Tick]
    quiet_from: dict[PubendId, Tick] = field(default_factory=dict)
    session: Session | None = None
    position: dict[PubendId, Tick] = field(default_factory=dict)
    credit_events: int = 0
    credit_bytes: int = 0
    waiting: list[tuple[Session, m.Subscribe]] = field(default_factory=list)
    claim: int = 0
    enlisted: dict[PubendId, None] = field(default_factory=dict)
    epoch: int = 0
    holder: str = ""
    doubt: bool = False
    attempts: dict[PubendId, tuple[Tick, int, str]] = field(default_factory=dict)
    units: dict[PubendId, Tick] = field(default_factory=dict)


@dataclass
class Session:
    """One link; welcome once `number` is not 0."""

    link: int
    number: int = 0
    client_id: str = ""
    instance: str = ""
    judge: Authentication | None = None
    named: set[int] = field(default_factory=set)
    sent: Sent = field(default_factory=Sent)
    publishers: dict[int, tuple[str, int]] = field(default_factory=dict)
    resume_at: dict[int, int] = field(default_factory=dict)
    """Of publishers with a refusal: the sequence that they are to send next."""
    """(name, epoch) by the client's number."""


def decode_proof(payload: bytes) -> m.Proof:
    """Only the handshake knows it."""
    return msgspec.msgpack.decode(payload[SESSION_BYTES:], type=m.Proof)


class FakeBroker:
    """Feed it with `connect`, `frames` and `disconnect`; `take` gives what it sends, or None to hang up."""

    def __init__(self, *, network: str = "net", durable: bool = True, pubends: Sequence[str] = (PUBEND,)) -> None:
        self.network = network
        self.node = "fake"
        self.host = ""
        """The node that is named as the pubends' host."""
        self.durable = durable
        self.heartbeat_ms = 1000
        self.window_batches = 8
        self.window_bytes = 1 << 20
        self.answers: tuple[str, ...] = ("AskStatus", "Renew", "AddUser", "ChangeUser", "RemoveUser", "ListUsers")
        self.users: dict[str, tuple[m.Verifier, tuple[str, ...]]] = {}
        self.event_bytes = 1 << 16
        self.frame_bytes = 1 << 20
        self.batch_max = 4
        self.streams: dict[PubendId, Stream] = {}
        self.names: dict[str, Name] = {}
        self.forgotten: set[str] = set()
        """Names that were known once."""
        self.subscriptions: dict[int, Subscription] = {}
        self.received: list[Any] = []
        self.retired = False
        """Whether the SHB `away` was given up."""
        """Every client message, decoded, in order."""
        self.credit_exceeded = False
        self.refusal: m.HelloRefused | None = None
        """What every Hello is answered with."""
        self.authenticators: list[Authenticator] = []
        """Who judges clients; without any, all are let in."""
        self.admitted: list[str] = []
        """The principals that were let in, and those of the renewals."""
        self.delay = 0.0
        """So long it says that it takes, and says nothing more; `late` has the rest."""
        self.late: list[tuple[Session, Judgement]] = []
        self.expires_ms = 0
        """How long credentials are valid."""
        self.full_disk = False
        """Whether batches are put off."""
        self.pinned_bytes: int | None = None
        """What listings say that each subscription holds back."""
        self.silent = False
        """Whether nothing is said: heartbeats are all that comes."""
        self.rejects = b""
        """A batch whose events contain this is refused for good."""
        self.knows_commits = True
        self.withheld: list[tuple[Session, m.Committed]] | None = None
        """Answers to commits that a test sends itself; None: they are sent at once."""
        self.put_off: list[type] = []
        """Requests of these types are answered with RETRY, once each."""
        self._links: dict[int, Session] = {}
        self._sessions = 0
        self._sids = 0
        self._out: list[tuple[int, bytes | None]] = []
        for pubend in pubends:
            self.add_pubend(pubend)

    # The script.

    def add_pubend(self, pubend: PubendId) -> None:
        """A pubend comes to be."""
        self.streams[pubend] = Stream(len(self.streams))

    def log(self, *bodies: bytes, topic: str = "t", pubend: PubendId = PUBEND, **properties: Any) -> list[Tick]:
        """Appends events of nobody, and delivers them."""
        events = [encode_event(topic, properties, None, body) for body in bodies]
        ticks = self.streams[pubend].append(EventColumns.of(events, map(len, bodies)))
        self.deliver()
        return ticks

    def say_silence(self, upto: Tick | None = None, pubend: PubendId = PUBEND) -> Tick:
        """Nothing comes up to a tick: said to every session."""
        stream = self.streams[pubend]
        upto = stream.newest + STEP // 2 if upto is None else upto
        for session in self._links.values():
            attached = [sub for sub in self._of(session) if not self._pending(sub, pubend)]
            if session.number and attached:
                self.tell(session, m.DeliverSilence(self._number(session, pubend), upto, [sub.sid for sub in attached]))
                for sub in attached:
                    sub.position[pubend] = max(upto, sub.position.get(pubend, 0))
        return upto

    def release(self, upto: Tick, pubend: PubendId = PUBEND) -> None:
        """Everything up to a tick is gone from the log."""
        stream = self.streams[pubend]
        kept = sum(tick <= upto for tick in stream.ticks)
        stream.lost = upto
        for column in (stream.ticks, stream.events, stream.body_lengths, stream.headers):
            del column[:kept]

    def restart(self) -> None:
        """All links are gone; what is durable stays."""
        for link in list(self._links):
            self._out.append((link, None))
            self.disconnect(link)

    def tell(self, session: Session, message: m.ServerMessage, number: int | None = None) -> None:
        """Says anything to a session; with `number`, as if it were another one."""
        self.tell_raw(session.link, encode(session.number if number is None else number, message))

    def tell_raw(self, link: int, payload: bytes) -> None:
        """Sends bytes; a frame of the link's session with its number."""
        session = self._links.get(link)
        if session is not None and len(payload) > HEAD_BYTES and session_of(payload) == session.number != 0:
            payload = session.sent.stamp(payload, urgent=False)
        self._out.append((link, payload))

    @property
    def session(self) -> Session:
        """The newest session."""
        return next(reversed(self._links.values()))

    def messages(self, kind: type) -> list[Any]:
        """What clients sent, of one type."""
        return [message for message in self.received if type(message) is kind]

    # What happened.

    def connect(self, link: int) -> None:
        """A link is there."""
        self._links[link] = Session(link)

    def disconnect(self, link: int) -> None:
        """A link is gone."""
        session = self._links.pop(link, None)
        if session is not None:
            for sub in self._of(session):
                self._end_consumption(sub)

    def frames(self, link: int, payloads: Iterable[bytes]) -> None:
        """Frames arrived."""
        for payload in payloads:
            session = self._links.get(link)
            if session is not None:
                message = decode_proof(payload) if session.judge and not session.number else decode_client(payload)
                self.received.append(message)
                getattr(self, f"_on_{type(message).__name__.lower()}")(session, message)
        self.deliver()

    def take(self) -> list[tuple[int, bytes | None]]:
        """What is to be sent, by link; None hangs up."""
        out, self._out = self._out, []
        return out

    # The session.

    def _on_hello(self, session: Session, hello: m.Hello) -> None:
        if self.refusal is not None:
            self._refuse(session, self.refusal)
            return
        if hello.network and hello.network != self.network:
            self._refuse(session, m.HelloRefused(m.Code.NETWORK_MISMATCH, f"this is {self.network}"))
            return
        session.client_id, session.instance = hello.client_id, hello.instance
        if not self.authenticators:
            self._welcome(session)
            return
        session.judge = self._judge(hello.mechanism, hello.client_id)
        if session.judge is None:
            takes = ", ".join(each.mechanism for each in self.authenticators)
            self._refuse(session, m.HelloRefused(m.Code.UNAUTHORIZED, f"this broker takes {takes}"))
            return
        self._on_judged(session, session.judge.answer(hello.credentials))

    def _judge(self, mechanism: str, client_id: str) -> Authentication | None:
        peer = PeerInfo("fake", NO_CERTIFICATE, secure=True, is_local=True, binding=b"")
        judges = (each.begin(client_id, peer) for each in self.authenticators if each.mechanism == mechanism)
        return next(judges, None)

    def _on_proof(self, session: Session, proof: m.Proof) -> None:
        assert session.judge is not None
        self._on_judged(session, session.judge.answer(proof.data))

    def _on_judged(self, session: Session, judged: Judgement) -> None:
        if self.delay:
            self.tell(session, m.Waiting(round(self.delay * 1000)), 0)
            self.late.append((session, judged))
        else:
            self._answer(session, judged)

    def take_late(self) -> None:
        """The time is over."""
        late, self.late = self.late, []
        for session, judged in late:
            self._answer(session, judged)

    def _answer(self, session: Session, judged: Judgement) -> None:
        if isinstance(judged, bytes):
            self.tell(session, m.Challenge(judged), 0)
        elif isinstance(judged, Admission):
            self.admitted.append(judged.principal.name)
            self._welcome(session)
        else:
            self._refuse(session, m.HelloRefused(m.Code.UNAUTHORIZED, "the credentials are not valid here"))

    def _on_renew(self, session: Session, renew: m.Renew) -> None:
        judge = self._judge(renew.mechanism, session.client_id)
        judged = None if judge is None else judge.answer(renew.credentials)
        if isinstance(judged, Admission):
            self.admitted.append(judged.principal.name)
            self.tell(session, m.Renewed(renew.request, self.expires_ms))
        else:
            self.tell(
                session, m.RequestFailed(renew.request, m.Code.UNAUTHORIZED, "the credentials are not valid here")
            )

    def _welcome(self, session: Session) -> None:
        for other in list(self._links.values()):
            if other is not session and (other.client_id, other.instance) == (session.client_id, session.instance):
                self.disconnect(other.link)
        self._sessions += 1
        session.number = self._sessions
        welcome = m.Welcome(
            m.PROTOCOL,
            session.number,
            self.network,
            self.node,
            self.durable,
            self.heartbeat_ms,
            self.event_bytes,
            self.frame_bytes,
            self.window_batches,
            self.window_bytes,
            self.answers,
            self.expires_ms,
        )
        self.tell(session, welcome, 0)

    def _refuse(self, session: Session, refused: m.HelloRefused) -> None:
        self.tell(session, refused, 0)
        self._out.append((session.link, None))
        self.disconnect(session.link)

    def _on_heartbeat(self, session: Session, _message: m.Heartbeat) -> None:
        if not self.silent:
            self.tell(session, m.BrokerHeartbeat())

    def _on_goodbye(self, session: Session, _message: m.Goodbye) -> None:
        self.disconnect(session.link)

    # Publishing.

    def _on_openpublisher(self, session: Session, message: m.OpenPublisher) -> None:
        if self._puts_off(m.OpenPublisher):
            self.tell(session, m.PublishRefused(message.publisher, 0, m.Code.RETRY, "not yet"))
            return
        if message.name in self.forgotten and message.name not in self.names and message.epoch:
            self.tell(session, m.PublishRefused(message.publisher, 0, m.Code.FORGOTTEN, "not known any more"))
            return
        name = self.names.setdefault(message.name, Name())
        if message.attempt > 1 and name.instance and name.instance != message.instance:
            self.tell(session, m.PublishRefused(message.publisher, 0, m.Code.FENCED, "a newer rival exists"))
            return
        if name.instance != message.instance or message.attempt > name.attempt:
            name.epoch += 1
        name.instance, name.attempt = message.instance, message.attempt
        session.publishers[message.publisher] = (message.name, name.epoch)
        session.resume_at.pop(message.publisher, None)
        tick = name.log[-1][1][-1] if name.log else 0
        pubend = message.pubend or PUBEND
        texts = tuple(map(str, name.tokens))
        opened = m.PublisherOpened(message.publisher, pubend, name.epoch, name.sequence, tick, self.host, texts)
        self.tell(session, opened)

    def _on_closepublisher(self, session: Session, message: m.ClosePublisher) -> None:
        name, _ = session.publishers.pop(message.publisher, ("", 0))
        if name.startswith("~"):
            self.forget(name)

    def forget(self, name: str) -> None:
        """No longer knows a publisher without a name."""
        del self.names[name]
        self.forgotten.add(name)

    def _on_publish(self, session: Session, message: m.Publish) -> None:
        if self.silent:
            return
        name = self.names[session.publishers[message.publisher][0]]
        content = message.events.blob + message.tokens
        tokens = split_tokens(message.tokens)
        last = message.first + message.events.count - 1

        def refuse(code: m.Code, sequence: int, reason: str) -> None:
            session.resume_at[message.publisher] = sequence
            self.tell(session, m.PublishRefused(message.publisher, sequence, code, reason))

        if message.first > session.resume_at.get(message.publisher, FOREVER):
            return  # it was sent before the client knew of the refusal
        session.resume_at.pop(message.publisher, None)
        if message.epoch < name.epoch:
            refuse(m.Code.FENCED, message.first, "a newer rival exists")
        elif self.rejects and self.rejects in content:
            refuse(m.Code.REJECTED, message.first, "not allowed")
        elif message.first <= name.sequence and message.events.count:
            known = [(ticks, logged) for end, ticks, logged in name.log if end == last]
            if not known or known[0][1] != content:
                refuse(m.Code.REJECTED, message.first, "other content under a logged sequence")
            else:
                self.tell(session, m.Published(message.publisher, last, _runs(known[0][0])))
        elif message.first > name.sequence + 1:
            refuse(m.Code.RESUME, name.sequence + 1, "a gap")
        elif self.full_disk:
            refuse(m.Code.RETRY, message.first, "the disk is full")
        elif any((before := find_token(name.tokens, token)) and not before <= token for token in tokens):
            refuse(m.Code.STALE, message.first, "a token stands before the stored one")
        elif not self._takes_consumed(message):
            refuse(m.Code.STALE, message.first, "a subscription was claimed anew")
        elif not message.events.count:
            name.tokens = merge_tokens(name.tokens, tokens)
            self.tell(session, m.PositionsStored(message.publisher))
        else:
            ticks = self.streams[PUBEND].append(message.events)
            name.sequence = last
            name.tokens = merge_tokens(name.tokens, tokens)
            name.log.append((last, ticks, content))
            self.tell(session, m.Published(message.publisher, last, _runs(ticks)))

    def _takes_consumed(self, message: m.Publish) -> bool:
        """Stores the positions of subscriptions, unless one of them was claimed by another consumer since."""
        consumed = [(self.subscriptions[each.token.sid], each) for each in split_consumed(message.tokens)]
        if any(PUBEND not in sub.enlisted or each.epoch != sub.claim for sub, each in consumed):
            return False
        for sub, each in consumed:
            for pubend, tick in each.token.ticks.items():
                sub.acknowledged[pubend] = max(tick, sub.acknowledged.get(pubend, 0))
        return True

    # Subscribing.

    def _on_subscribe(self, session: Session, message: m.Subscribe) -> None:
        try:
            if self._puts_off(m.Subscribe):
                raise _Refused(m.Code.RETRY, "not yet")
            self._subscribe(session, message)
        except _Refused as refused:
            self.tell(session, m.RequestFailed(message.request, refused.code, refused.reason))

    def _subscribe(self, session: Session, message: m.Subscribe) -> None:
        sub = self._find(session, message)
        created = sub is None
        if sub is None:
            sub = self._create(session, message)
        else:
            if message.token_sid and (message.token_sid, message.token_seal) != (sub.sid, _seal(sub)):
                raise _Refused(m.Code.TOKEN_MISMATCH, "a token of another subscription")
            if not message.sid and sub.filter != Filter(message.topics, message.selector):
                raise _Refused(m.Code.MISMATCH, "exists with another selector")
            if sub.session is not None:
                if message.in_use is m.InUse.ERROR:
                    raise _Refused(m.Code.IN_USE, "in use")
                if message.in_use is m.InUse.WAIT:
                    sub.waiting.append((session, message))
                    return
                self.tell(sub.session, m.Detached(sub.sid, m.Code.TAKEN_OVER, "taken over"))
                sub.session = None
        self._attach(session, message, sub, created=created)

    def _find(self, session: Session, message: m.Subscribe) -> Subscription | None:
        if message.sid:
            sub = self.subscriptions.get(message.sid)
            if sub is None or sub.generation != message.generation:
                raise _Refused(m.Code.NOT_FOUND, "it does not exist any more")
            return sub
        return next(
            (sub for sub in self.subscriptions.values() if message.name and self._is(sub, session, message)), None
        )

    @staticmethod
    def _is(sub: Subscription, session: Session, message: m.Subscribe) -> bool:
        return (sub.client_id, sub.name) == (session.client_id, message.name)

    def _create(self, session: Session, message: m.Subscribe) -> Subscription:
        self._sids += 1
        at = {pubend: self._start(message, pubend, stream) for pubend, stream in self.streams.items()}
        wanted = Filter(message.topics, message.selector)
        sub = Subscription(self._sids, session.client_id, message.name, wanted, 1000 + self._sids, at)
        self.subscriptions[sub.sid] = sub
        return sub

    @staticmethod
    def _start(message: m.Subscribe, pubend: PubendId, stream: Stream) -> Tick:
        if message.start is m.StartAt.LATEST:
            return stream.newest
        if message.start is m.StartAt.TOKEN:
            return next((p.tick for p in message.positions or () if p.pubend == pubend), 0)
        return 0

    def _attach(self, session: Session, message: m.Subscribe, sub: Subscription, *, created: bool) -> None:
        for acknowledged in message.acknowledged:
            self._acknowledge(sub, acknowledged)
        given = None if message.positions is None else {p.pubend: p.tick for p in message.positions}
        sub.session = session
        sub.position = {
            pubend: sub.acknowledged.get(pubend, 0) if given is None else given.get(pubend, 0)
            for pubend in self.streams
        }
        sub.credit_events, sub.credit_bytes = message.credit_events, message.credit_bytes
        positions = [m.Position(*pair) for pair in sub.position.items()]
        answer = m.Subscribed(message.request, sub.sid, sub.generation, _seal(sub), created, positions)
        if message.commits and self.knows_commits:
            holder = f"{session.instance}/{message.request}"
            is_new = sub.holder != holder
            if is_new:
                sub.doubt = bool(sub.holder)
            if is_new or message.sid:  # who asks again because no answer has come is told the same
                sub.epoch += 1
            sub.holder, doubt = holder, sub.doubt and not message.sid
            attempts = tuple(m.Attempts(pubend, *attempt[:2]) for pubend, attempt in sub.attempts.items())
            units = tuple(m.Position(*pair) for pair in sub.units.items())
            if doubt or not sub.claim or not message.sid:
                sub.claim = sub.epoch
            key, enlisted = f"here/{sub.sid}", tuple(sub.enlisted)
            answer = replace(answer, epoch=sub.epoch, doubt=doubt, attempts=attempts, units=units)
            answer = replace(answer, key=key, claim=sub.claim, enlisted=enlisted)
        self.tell(session, answer)

    def _on_commit(self, session: Session, message: m.Commit) -> None:
        sub = self.subscriptions.get(message.sid)
        if sub is None or sub.session is not session or message.epoch != sub.epoch:
            return
        for acknowledged in message.positions:
            self._acknowledge(sub, acknowledged)
        if message.unit is not None:
            self._announce(sub, message.unit, attempt=message.unit.counted)
        if message.enlists:
            sub.enlisted[message.enlists] = None
        committed = m.Committed(sub.sid, message.number)
        if self.withheld is None:
            self.tell(session, committed)
        else:
            self.withheld.append((session, committed))

    @staticmethod
    def _announce(sub: Subscription, unit: m.Unit, *, attempt: bool) -> None:
        if attempt:
            tick, count, by = sub.attempts.get(unit.pubend, (0, 0, ""))
            if tick != unit.first or by != sub.holder:
                sub.attempts[unit.pubend] = unit.first, count + 1 if tick == unit.first else 1, sub.holder
        if unit.last > unit.first:
            sub.units[unit.pubend] = unit.last

    def _on_credit(self, _session: Session, message: m.Credit) -> None:
        sub = self.subscriptions.get(message.sid)
        if sub is not None:
            sub.credit_events += message.events
            sub.credit_bytes += message.bytes

    def _on_acknowledge(self, session: Session, message: m.Acknowledge) -> None:
        sub = self.subscriptions.get(message.sid)
        if sub is not None and sub.session is session:
            for acknowledged in message.positions:
                self._acknowledge(sub, acknowledged)

    @staticmethod
    def _acknowledge(sub: Subscription, acknowledged: m.Acknowledged) -> None:
        pubend = acknowledged.pubend
        sub.acknowledged[pubend] = max(acknowledged.tick, sub.acknowledged.get(pubend, 0))
        sub.quiet_from[pubend] = max(acknowledged.event, sub.quiet_from.get(pubend, 0))

    def _on_detach(self, session: Session, message: m.Detach) -> None:
        sub = self.subscriptions.get(message.sid)
        if sub is not None and sub.session is session:
            if message.handed is not None:
                for unit in message.handed:
                    self._announce(sub, unit, attempt=True)
                sub.holder = ""
            self._end_consumption(sub)

    def _end_consumption(self, sub: Subscription) -> None:
        sub.session = None
        if sub.name is None:
            del self.subscriptions[sub.sid]
        while sub.waiting and sub.session is None:
            session, message = sub.waiting.pop(0)
            if self._links.get(session.link) is session:
                self._attach(session, message, sub, created=False)

    # Delivering.

    def deliver(self) -> None:
        """Sends what is there and may be sent."""
        for sub in list(self.subscriptions.values()):
            if sub.session is not None and not self.silent:
                for pubend in self.streams:
                    self._deliver(sub, sub.session, pubend)

    def _deliver(self, sub: Subscription, session: Session, pubend: PubendId) -> None:
        stream = self.streams[pubend]
        position = sub.position.get(pubend, 0)
        if position < stream.lost:
            number = self._number(session, pubend)
            self.tell(session, m.DeliverGap(sub.sid, number, position, stream.lost, "released early"))
            sub.position[pubend] = stream.lost
        while sub.credit_events > 0 and sub.credit_bytes > 0:
            found = self._pending(sub, pubend)[: min(self.batch_max, sub.credit_events)]
            if not found:
                return
            batch = EventBatch(
                [stream.ticks[i] for i in found],
                [stream.events[i] for i in found],
                [stream.body_lengths[i] for i in found],
            )
            payload = batch.payload((1 << len(found)) - 1)
            sub.credit_events -= len(found)
            sub.credit_bytes -= len(payload)
            sub.position[pubend] = batch.ticks[-1]
            number = self._number(session, pubend)
            self.tell_raw(session.link, deliver_head(session.number, sub.sid, number) + payload)

    def _pending(self, sub: Subscription, pubend: PubendId) -> list[int]:
        stream = self.streams[pubend]
        position = sub.position.get(pubend, 0)
        return [
            i
            for i, (tick, header) in enumerate(zip(stream.ticks, stream.headers, strict=True))
            if tick > position and sub.filter.matches(header.topic, header.properties, {})
        ]

    def _number(self, session: Session, pubend: PubendId) -> int:
        number = self.streams[pubend].number
        if number not in session.named:
            session.named.add(number)
            self.tell(session, m.PubendNumber(number, pubend))
        return number

    def _of(self, session: Session) -> list[Subscription]:
        return [sub for sub in self.subscriptions.values() if sub.session is session]

    # Questions.

    def _on_unsubscribe(self, session: Session, message: m.Unsubscribe) -> None:
        if self._puts_off(m.Unsubscribe):
            self.tell(session, m.RequestFailed(message.request, m.Code.RETRY, "not yet"))
            return
        for sub in list(self.subscriptions.values()):
            if (sub.client_id, sub.name) == (message.client_id, message.name):
                if sub.session is not None:
                    self.tell(sub.session, m.Detached(sub.sid, m.Code.UNSUBSCRIBED, "removed"))
                del self.subscriptions[sub.sid]
                self.tell(session, m.Done(message.request))
                return
        self.tell(session, m.RequestFailed(message.request, m.Code.NOT_FOUND, "no such subscription"))

    def _on_listsubscriptions(self, session: Session, message: m.ListSubscriptions) -> None:
        rows = [
            m.ListedSubscription(
                sub.sid,
                sub.client_id,
                sub.name,
                sub.filter.topics,
                sub.filter.selector,
                sub.session is not None,
                [m.Position(*pair) for pair in sub.acknowledged.items()],
                3,
                1.5,
                False,
                pinned_bytes=self.pinned_bytes,
            )
            for sub in self.subscriptions.values()
            if sub.name is not None
        ]
        self.tell(session, m.SubscriptionList(message.request, rows))

    def _on_listpubends(self, session: Session, message: m.ListPubends) -> None:
        rows = [
            m.ListedPubend(
                pubend, ("#",), BASE, stream.lost, stream.newest, stream.newest, stream.lost, 1, len(self.names)
            )
            for pubend, stream in self.streams.items()
        ]
        self.tell(session, m.PubendList(message.request, rows))

    def _on_askstatus(self, session: Session, message: m.AskStatus) -> None:
        if self.silent:
            return
        gauge = Gauge("gapless_node_sessions", (), 3, "Clients.")
        alarm = RaisedAlarm("disk_low", "", "only 7 bytes", 2, 1000, 61_000, False, "It is full.", "Make room.")
        self.tell(session, m.Status(message.request, [gauge], more=True))
        self.tell(session, m.Status(message.request, [alarm]))

    def _on_adduser(self, session: Session, message: m.AddUser) -> None:
        self.users[message.name] = message.verifier, message.groups
        self.tell(session, m.Done(message.request))

    def _on_changeuser(self, session: Session, message: m.ChangeUser) -> None:
        verifier, groups = self.users[message.name]
        self.users[message.name] = message.verifier or verifier, groups if message.groups is None else message.groups
        self.tell(session, m.Done(message.request))

    def _on_removeuser(self, session: Session, message: m.RemoveUser) -> None:
        if self.users.pop(message.name, None) is None:
            reason = f"there is no user {message.name!r}"
            self.tell(session, m.RequestFailed(message.request, m.Code.CONFIGURATION, reason))
        elif not self.silent:
            self.tell(session, m.Done(message.request))

    def _on_listusers(self, session: Session, message: m.ListUsers) -> None:
        for name, (_, groups) in self.users.items():
            self.tell(session, m.UserList(message.request, [m.ListedUser(name, groups, 60_000)], more=True))
        self.tell(session, m.UserList(message.request, []))

    def _on_retire(self, session: Session, message: m.Retire) -> None:
        if message.shb != "away":
            self.tell(session, m.RequestFailed(message.request, m.Code.CONFIGURATION, f"no SHB {message.shb!r}"))
            return
        self.tell(session, m.Retired(message.request, "away@disk", list(self.streams), self.retired))
        self.retired = self.retired or not message.only_look

    def _puts_off(self, kind: type) -> bool:
        if kind in self.put_off:
            self.put_off.remove(kind)
            return True
        return False


class _Refused(Exception):  # noqa: N818
    def __init__(self, code: m.Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def _seal(sub: Subscription) -> bytes:
    return f"seal of {sub.sid}".encode()


def _runs(ticks: Sequence[Tick]) -> list[m.TickRun]:
    assert all(b - a == STEP for a, b in zip(ticks, islice(ticks, 1, None), strict=False))
    assert ticks[-1] < FOREVER
    return [m.TickRun(ticks[0], STEP, len(ticks))]


def logged(broker: FakeBroker) -> list[bytes]:
    """The bodies of everything that is logged, in order."""
    stream = broker.streams[PUBEND]
    pairs = zip(stream.events, stream.body_lengths, strict=True)
    return [event[len(event) - length :] for event, length in pairs]
