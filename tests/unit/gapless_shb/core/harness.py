"""A small world around one SHB core: a pubend's log, a lossy network that filters, a disk, clients.

It is driven by a random generator, and everything it does is allowed by the seams: knowledge may be
lost, repeated, delayed and filtered under an old interest version; writes become durable late; a crash
forgets what is not durable; clients disconnect, come back with any of their tokens, and are slow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from gapless.core.alarms import Alarm
from gapless.core.network import facts as r
from gapless.core.ports import (
    VOLUME_LOG,
    AllowAll,
    Chop,
    ClientSession,
    Delete,
    LogFacts,
    Put,
    Read,
    ReadResult,
    RoleContext,
    SessionEnded,
    Set,
    Tell,
    Transmit,
    Write,
)
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, STEP, tick_at
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_server
from gapless.selectors.filters import Filter
from gapless_shb.core.broker import SubscriberHostingBroker, Timing
from gapless_shb.core.constream import CatchUp

PUBEND = "p@1"
WALL = 1_800_000_000_000
BASE = tick_at(WALL)


def say(shb: SubscriberHostingBroker, fact: object, now: int, wall: int) -> None:
    """A router says something to the broker."""
    shb.handlers()[type(fact)](fact, now, wall)


def ask(shb: SubscriberHostingBroker, session: ClientSession, request: object, now: int, wall: int) -> None:
    """A client asks something of the broker."""
    shb.requests()[type(request)](session, request, now, wall)


class Disk:
    """Tables and streams that remember which writes are durable."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.streams: dict[str, dict[int, bytes]] = {}
        self.chopped: dict[str, int] = {}
        self.durable_writes: list[Write] = []
        self.pending: list[Write] = []

    def apply(self, write: Write) -> None:
        for operation in write.operations:
            if isinstance(operation, Put):
                stream = self.streams.setdefault(operation.stream, {})
                assert not stream or operation.index > max(stream), "indexes must increase"
                stream[operation.index] = operation.record
            elif isinstance(operation, Chop):
                self.chopped[operation.stream] = max(self.chopped.get(operation.stream, 0), operation.upto)
            elif isinstance(operation, Set):
                self.tables.setdefault(operation.table, {})[operation.key] = operation.value
            elif isinstance(operation, Delete):
                self.tables.setdefault(operation.table, {}).pop(operation.key, None)

    def crashed(self) -> Disk:
        fresh = Disk()
        for write in self.durable_writes:
            fresh.apply(write)
        fresh.durable_writes = list(self.durable_writes)
        return fresh

    # RecoveryReader

    def scan(self, table: str, prefix: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((k, v) for k, v in self.tables.get(table, {}).items() if k.startswith(prefix)))

    def records(self, stream: str, after: int = 0) -> Iterator[tuple[int, bytes]]:
        after = max(after, self.first(stream))
        return iter(sorted((i, d) for i, d in self.streams.get(stream, {}).items() if i > after))

    def first(self, stream: str) -> int:
        return self.chopped.get(stream, 0)

    def given_up(self, stream: str) -> tuple[tuple[int, int], ...]:
        return ()

    def facts(self, log: str) -> LogFacts:
        return LogFacts(log, self.first(log), max(self.streams.get(log, {0: b""})), VOLUME_LOG)

    def size(self, stream: str) -> int:
        return sum(map(len, self.streams.get(stream, {}).values()))


@dataclass
class Client:
    """An application that keeps its token with its effects, so consumed must be exactly what it is owed."""

    name: str
    selector: str
    start: m.StartAt = m.StartAt.LATEST
    session: int = 0
    sid: int = 0
    generation: int = 0
    seal: bytes = b""
    begins: int | None = None
    token: int | None = None
    acked: int = 0
    last_event: int = 0
    tokens: list[int] = field(default_factory=list)
    consumed: list[int] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    gap_end: int | None = None
    """Where the message before this one ended, if that was a gap."""
    inbox: list[tuple[str, object]] = field(default_factory=list)
    credit: int = 0
    removed: bool = False

    def matches(self, properties: dict[str, int]) -> bool:
        return Filter(("#",), self.selector).matches("t", properties, {})


class World:
    """The world. `step` does one random thing; `settle` heals everything and lets it come to rest."""

    timing = Timing()
    """Of the broker that is booted next."""

    def __init__(self, seed: int, *, retain: int | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000_000
        self.wall = WALL
        self.retain = retain
        self.catch_up = CatchUp((48 << 20, 0, 500)[seed % 3], (1 << 14, 2)[seed % 2], imprecise=seed % 5 == 0)
        self.log: list[tuple[int, dict[str, int], bytes]] = []
        self.lost = 0
        self.stable = BASE
        self.disk = Disk()
        self.sessions = 0
        self.clients: list[Client] = []
        self.wants: list[r.Want] = []
        self.in_flight: list[Knowledge] = []
        self.reads: list[Read] = []
        self.known_version = 0
        self.filters: dict[int, Filter] = {}
        self.enrolled: int | None = None
        self.holds: dict[int, int] = {}
        self.hold_version = 0
        self.held_answers: list[r.Held] = []
        self.progress = (0, 0)
        self.alarms: list[str] = []
        self.numbers: dict[int, dict[int, str]] = {}
        self.shb = self._boot()

    # ------------------------------------------------------------------------------------- the broker

    def _boot(self) -> SubscriberHostingBroker:
        context = RoleContext("shb", "node", "net", "vol", self.disk, self.now, self.wall, b"secret", AllowAll())
        shb = SubscriberHostingBroker(context, self.timing, self.catch_up)
        self.shb = shb
        shb.start(self.now, self.wall)
        self._see()
        self.pump()
        return shb

    def _see(self) -> None:
        at = self.enrolled
        if at is None and self.known_version:
            at = self.enrolled = self.stable
        meta = r.PubendMeta(PUBEND, "node", created=BASE, stable=self.stable)
        say(self.shb, r.Seen(meta, at), self.now, self.wall)

    def crash(self) -> None:
        self.disk = self.disk.crashed()
        for client in self.clients:
            client.session = 0
            client.inbox.clear()
        self.reads.clear()
        self.wants.clear()
        if self.random.random() < 0.5:
            self.in_flight.clear()
        self._boot()

    def pump(self) -> None:
        while True:
            effects = self.shb.take_effects()
            if not effects:
                return
            for effect in effects:
                self._do(effect)

    def _do(self, effect: object) -> None:
        if isinstance(effect, Write):
            self.disk.apply(effect)
            self.disk.pending.append(effect)
        elif isinstance(effect, Read):
            self._read(effect)
        elif isinstance(effect, Tell):
            self._client_gets(effect.session, effect.message)
        elif isinstance(effect, Transmit):
            for head, body in effect.payloads:
                self._client_gets(effect.session, decode_server(head + body))
        elif isinstance(effect, r.Want):
            self.wants.append(effect)
        elif isinstance(effect, r.Interest):
            self._interest(effect)
        elif isinstance(effect, r.Hold):
            self._hold(effect)
        elif isinstance(effect, r.Progress):
            self._progressed(effect)
        elif isinstance(effect, Alarm):
            self.alarms.append(effect.text)
        else:
            raise AssertionError(effect)  # noqa: TRY004 - a defect of the core, not of a caller

    def _read(self, read: Read) -> None:
        records: list[tuple[int, bytes]] = []
        for index, data in self.disk.records(read.stream, read.after):
            records.append((index, data))
            if index >= read.upto or len(records) >= 3:
                break
        self.reads.append(read)
        self._answers = getattr(self, "_answers", {})
        self._answers[id(read)] = records

    # ------------------------------------------------------------------------------------- the network

    def _interest(self, interest: r.Interest) -> None:
        if interest.full or interest.base == self.known_version:
            if interest.full:
                self.filters = {}
            self.filters |= dict(interest.add)
            for sid in interest.drop:
                self.filters.pop(sid, None)
            self.known_version = interest.version
            if self.enrolled is None:
                self._see()
        elif interest.version != self.known_version:
            say(self.shb, r.AskInterest(), self.now, self.wall)

    def _hold(self, row: r.Hold) -> None:
        if row.version < self.hold_version or self.random.random() < 0.2:
            return
        self.hold_version = row.version
        self.holds = {sid: max(at, self.lost) for sid, at in row.at.items()}
        self.held_answers.append(r.Held(row.shb, PUBEND, row.version, dict(self.holds), self.stable))

    def _progressed(self, progress: r.Progress) -> None:
        assert progress.released <= progress.delivered, "released beyond delivered"
        self.progress = (max(self.progress[0], progress.released), max(self.progress[1], progress.delivered))

    def release(self) -> None:
        """The pubend forgets what it may."""
        if self.enrolled is None:
            return
        upto = min([self.progress[0], *self.holds.values()])
        if self.retain is not None:
            upto = max(upto, min(self.progress[1], self.stable - self.retain * MILLISECOND))
        # Records hold batches: here every event is one.
        self.lost = max(self.lost, min(upto, self.stable))

    def knowledge(self, lo: int, hi: int, *, raw: bool, reply: bool) -> Knowledge:
        events = [row for row in self.log if lo < row[0] <= hi and row[0] > self.lost]
        if not raw:
            events = [row for row in events if any(f.matches("t", row[1], {}) for f in self.filters.values())]
        batch = EventBatch([row[0] for row in events], [row[2] for row in events], [1] * len(events))
        stamp = None if raw else {self.shb._shb: self.known_version}
        lost = min(self.lost, hi)
        return Knowledge(PUBEND, lo, hi, batch, lost if lost > lo else 0, stamp, reply)

    def deliver(self, knowledge: Knowledge) -> None:
        say(self.shb, r.Know(knowledge), self.now, self.wall)
        self.pump()

    # ------------------------------------------------------------------------------------- the clients

    def _client(self, session: int) -> Client | None:
        return next((client for client in self.clients if client.session == session), None)

    def _client_gets(self, session: int, message: object) -> None:
        if isinstance(message, m.PubendNumber):
            self.numbers.setdefault(session, {})[message.number] = message.pubend
            return
        client = self._client(session)
        if client is None:
            return
        if isinstance(message, m.Subscribed):
            client.sid, client.generation, client.seal = message.sid, message.generation, message.seal
            positions = {p.pubend: p.tick for p in message.positions}
            if client.begins is None:
                client.begins = positions.get(PUBEND, BASE)
                client.token = client.begins
                client.acked = 0
            elif client.token is None:
                raise AssertionError("attached without a token although it has begun")
            return
        if isinstance(message, m.RequestFailed):
            raise AssertionError(message)  # noqa: TRY004 - as above
        client.inbox.append(("message", message))

    def session_of(self, client: Client) -> ClientSession:
        return ClientSession(client.session, "c", f"i{client.session}", "")

    def attach(self, client: Client, token: int | None) -> None:
        self.sessions += 1
        client.session = self.sessions
        client.inbox.clear()
        client.gap_end = None
        client.credit = self.random.choice([1, 3, 100])
        positions = None if token is None else [m.Position(PUBEND, token)]
        if token is not None:
            client.token = token
            client.tokens = [old for old in client.tokens if old <= token]
            client.consumed = [tick for tick in client.consumed if tick <= token]
            client.gaps = [(lo, min(hi, token)) for lo, hi in client.gaps if lo < token]
        acknowledged = [m.Acknowledged(PUBEND, client.acked, client.last_event)] if client.acked else []
        request = m.Subscribe(
            1,
            client.name,
            ("#",),
            client.selector,
            client.start,
            0,
            positions,
            client.sid if token is not None else 0,
            client.generation,
            client.seal,
            acknowledged,
            m.InUse.TAKEOVER,
            client.credit,
            1 << 30,
        )
        ask(self.shb, self.session_of(client), request, self.now, self.wall)
        self.pump()

    def detach(self, client: Client) -> None:
        session, client.session = self.session_of(client), 0
        client.inbox.clear()
        say(self.shb, SessionEnded(session), self.now, self.wall)
        self.pump()

    def consume(self, client: Client) -> None:
        """Takes one message out of the inbox and stores the token with it."""
        if not client.inbox or client.token is None:
            return
        _, message = client.inbox.pop(0)
        gap_end, client.gap_end = client.gap_end, None
        if isinstance(message, m.Deliver):
            for tick in message.columns.ticks():
                assert tick > client.token, f"{client.name}: {tick} at or below the token {client.token}"
                client.consumed.append(tick)
                client.token = tick
                client.last_event = tick
            client.credit -= message.columns.count
            assert client.credit >= 0, "more was sent than the credit allows"
        elif isinstance(message, m.Silence):
            if message.sids is None or client.sid in message.sids:
                client.token = max(client.token, message.upto)
        elif isinstance(message, m.Gap):
            assert message.start >= client.token or message.end > client.token
            assert message.start != gap_end, f"{client.name}: a lost range in pieces, one ends at {gap_end}"
            client.gap_end = message.end
            client.gaps.append((max(message.start, client.token), message.end))
            client.token = max(client.token, message.end)
        elif isinstance(message, m.Detached):
            client.session = 0
            client.inbox.clear()
            return
        client.tokens.append(client.token)

    # ------------------------------------------------------------------------------------- what happens

    def publish(self) -> None:
        self.stable += self.random.randrange(1, 5) * STEP
        properties = {"w": self.random.randrange(4), "n": len(self.log)}
        self.log.append((self.stable, properties, encode_event("t", properties, None, b"x")))

    def push(self, lo: int) -> None:
        raw = self.random.random() < 0.3
        self.in_flight.append(self.knowledge(lo, self.stable, raw=raw, reply=False))

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * 1_000_000
        self.wall += milliseconds
        deadline = self.shb.deadline()
        if deadline is not None and deadline <= self.now:
            self.shb.on_deadline(self.now, self.wall)
        self.pump()

    def sync(self) -> None:
        pending, self.disk.pending = self.disk.pending, []
        self.disk.durable_writes += pending
        for write in pending:
            if write.cookie is not None:
                self.shb.on_durable(write.cookie, self.now, self.wall)
        self.pump()

    def answer_reads(self) -> None:
        reads, self.reads = self.reads, []
        for read in reads:
            records = self._answers.pop(id(read))
            result = ReadResult(read.cookie, records, self.disk.first(read.stream))
            self.shb.on_read(result, self.now, self.wall)
        self.pump()

    def answer_wants(self, *, lossy: bool) -> None:
        wants, self.wants = self.wants, []
        for want in wants:
            for lo, upto in want.ranges:
                hi = min(upto, self.stable)
                if lo < hi and not (lossy and self.random.random() < 0.3):
                    self.deliver(self.knowledge(lo, hi, raw=True, reply=True))

    def step(self) -> None:
        """One random thing."""
        action = self.random.choice(
            ["publish"] * 6
            + ["push"] * 3
            + ["arrive"] * 3
            + ["sync", "reads", "wants", "time", "held"] * 2
            + ["consume"] * 6
            + ["grant", "ack", "attach", "detach", "subscribe", "release", "see"]
            + (["crash"] if self.random.random() < 0.15 else [])
        )
        getattr(self, f"_step_{action}")()

    def _step_publish(self) -> None:
        for _ in range(self.random.randrange(1, 4)):
            lo = self.stable
            self.publish()
            if self.random.random() < 0.7:
                self.push(lo)

    def _step_push(self) -> None:
        self.push(self.stable - self.random.randrange(1, 40) * STEP)

    def _step_arrive(self) -> None:
        if self.in_flight:
            at = self.random.randrange(len(self.in_flight))
            knowledge = self.in_flight[at]
            if self.random.random() < 0.8:
                self.in_flight.pop(at)
            if self.random.random() < 0.85:
                self.deliver(knowledge)

    def _step_sync(self) -> None:
        self.sync()

    def _step_reads(self) -> None:
        self.answer_reads()

    def _step_wants(self) -> None:
        self.answer_wants(lossy=True)

    def _step_time(self) -> None:
        self.pass_time(self.random.choice([1, 60, 260, 1000]))

    def _step_held(self) -> None:
        answers, self.held_answers = self.held_answers, []
        for held in answers:
            say(self.shb, held, self.now, self.wall)
        self.pump()

    def _step_see(self) -> None:
        self._see()
        self.pump()

    def _step_crash(self) -> None:
        self.crash()

    def _step_release(self) -> None:
        self.release()

    def _step_subscribe(self) -> None:
        if len(self.clients) < 4:
            number = len(self.clients)
            start = self.random.choice([m.StartAt.LATEST, m.StartAt.LATEST, m.StartAt.EARLIEST])
            client = Client(f"s{number}", self.random.choice(["w = 1", "w > 1", "", "w = 9"]), start)
            self.clients.append(client)
            self.attach(client, None)

    def _pick(self) -> Client | None:
        return self.random.choice(self.clients) if self.clients else None

    def _step_attach(self) -> None:
        client = self._pick()
        if client is None or client.session:
            return
        if client.begins is None or client.token is None:
            client.sid = 0
            self.attach(client, None)
        elif client.tokens and self.random.random() < 0.2:
            old = [token for token in client.tokens if token >= client.acked]
            self.attach(client, self.random.choice(old) if old else client.token)
        else:
            self.attach(client, client.token)

    def _step_detach(self) -> None:
        client = self._pick()
        if client is not None and client.session:
            self.detach(client)

    def _step_consume(self) -> None:
        client = self._pick()
        if client is not None and client.session:
            for _ in range(self.random.randrange(1, 4)):
                self.consume(client)

    def _step_grant(self) -> None:
        client = self._pick()
        if client is not None and client.session and client.sid:
            client.credit += 5
            ask(self.shb, self.session_of(client), m.Credit(client.sid, 5, 0), self.now, self.wall)
            self.pump()

    def _step_ack(self) -> None:
        client = self._pick()
        if client is not None and client.session and client.sid and client.token and client.begins is not None:
            client.acked = max(client.acked, client.token)
            acknowledged = m.Acknowledge(client.sid, [m.Acknowledged(PUBEND, client.acked, client.last_event)])
            ask(self.shb, self.session_of(client), acknowledged, self.now, self.wall)
            self.pump()

    # ------------------------------------------------------------------------------------- the end

    def settle(self) -> None:
        """Faults stop: everybody is connected, takes everything, and the world runs on for a while."""
        self.in_flight.clear()
        for round_number in range(200):
            self._see()
            self.pump()
            self.in_flight.append(self.knowledge(self.stable - STEP, self.stable, raw=True, reply=False))
            self._step_arrive()
            self.sync()
            self._step_held()
            self.answer_reads()
            self.answer_wants(lossy=False)
            for client in self.clients:
                if not client.session:
                    self.attach(client, client.token if client.begins is not None else None)
                while client.inbox:
                    self.consume(client)
                if client.session and client.sid:
                    client.credit += 50
                    ask(self.shb, self.session_of(client), m.Credit(client.sid, 50, 0), self.now, self.wall)
                    self.pump()
            self.pass_time(300)
            if round_number > 40 and all(c.token is not None and c.token >= self.stable for c in self.clients):
                return
        raise AssertionError(f"no rest: {[(c.name, c.token, self.stable, c.begins) for c in self.clients]}")

    def check(self) -> None:
        """Every client consumed exactly what it is owed: once, in order, but for gaps it was told of (I4, I10)."""
        assert not self.alarms, self.alarms
        for client in self.clients:
            if client.begins is None or client.token is None:
                continue
            owed = [
                tick
                for tick, properties, _ in self.log
                if client.begins < tick <= client.token and client.matches(properties)
            ]
            inside = [tick for tick in owed if not any(lo < tick <= hi for lo, hi in client.gaps)]
            assert client.consumed == inside, (client, sorted(set(inside) ^ set(client.consumed)))
            if self.retain is None:
                assert not client.gaps, (client.name, client.gaps, client.begins)
