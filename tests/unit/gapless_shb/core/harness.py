"""An SHB core on a rig, with what it stands between: a pubend's log, the network that filters, and applications.

Nothing happens by itself, and nothing is left to chance: the simulator does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from gapless.core.alarms import Alarm, Note
from gapless.core.network import facts as r
from gapless.core.ports import (
    AskRoom,
    ClientSession,
    EndSession,
    LinkHasRoom,
    Read,
    ReadResult,
    RoleContext,
    RulesHold,
    SessionEnded,
    Tell,
    Transmit,
)
from gapless.core.principals import NOBODY
from gapless.core.server.audit import AuditLine
from gapless.core.stream.columns import EventBatch
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import MILLISECOND, STEP, tick_at
from gapless.core.traces import Matched
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_server
from gapless.selectors.filters import Filter
from gapless_shb.core.broker import SubscriberHostingBroker, Timing
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.broker_state import CatchUp
from gapless_shb.core.subscriptions.waiting import Reason
from unit.rig import Rig

PUBEND = "p@1"
WALL = 1_800_000_000_000
BASE = tick_at(WALL)
CACHED = CatchUp(48 << 20, 1 << 14, imprecise=False)
"""All that was delivered stays in memory."""
FORGETFUL = CatchUp(0, 1 << 14, imprecise=True)
"""Nothing does, and the PFS is imprecise."""
RECORDS_PER_READ = 3


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


class World(Rig[SubscriberHostingBroker]):
    """See the module. What comes from the broker is taken at once; what goes to it, a test delivers."""

    timing = Timing()
    """Of the broker that is booted next."""
    body = b"x"
    """Of each event."""
    grain = MILLISECOND
    """Of the pubend: 1 if its log numbers its records."""
    created = BASE
    """Where the pubend began, or a gateway has found its log."""
    located = 0
    """Where the records begin of every time that a hold asks for."""
    hidden = False
    """Whether the router knows nothing of the pubend yet."""

    def __init__(self, catch_up: CatchUp = CACHED, *, retain: int | None = None, seen: bool = True) -> None:
        """`retain`: milliseconds after which the pubend gives up what was delivered; `seen`: it is heard of at once."""
        self.catch_up = catch_up
        self.retain = retain
        self.seen = seen
        self.log: list[tuple[int, dict[str, int], bytes]] = []
        self.lost = 0
        self.stable = BASE
        self.sessions = 0
        self.clients: list[Client] = []
        self.wants: list[r.Want] = []
        self.known_version = 0
        self.filters: dict[int, Filter] = {}
        self.enrolled: int | None = None
        self.holds: dict[int, int] = {}
        self.hold_version = 0
        self.held_answers: list[r.Held] = []
        self.progress = (0, 0)
        self.alarms: list[str] = []
        self.notes: list[str] = []
        self.audit: list[AuditLine] = []
        self.matched: list[Matched] = []
        self.rules_held: list[int] = []
        """The versions of the rules of which the broker has said that they hold."""
        self.numbers: dict[int, dict[int, str]] = {}
        self.claims: list[r.SubmitOpen] = []
        """What pubends were asked about subscriptions, and have not answered."""
        self.ended: list[int] = []
        """The sessions that the broker has ended."""
        self.room_asked: list[AskRoom] = []
        """Which links ought to say when they have room."""
        super().__init__(self.make_role, role="shb", now=1_000_000_000, wall=WALL)

    # ------------------------------------------------------------------------------------- the broker

    def make_role(self, context: RoleContext) -> SubscriberHostingBroker:
        return SubscriberHostingBroker(context, self.timing, self.catch_up)

    @property
    def hosting(self) -> Hosting:
        """What the broker's parts share."""
        return self.role._hosting

    @property
    def shb(self) -> str:
        """What the broker calls itself between brokers."""
        return self.role._shb

    @property
    def reasons(self) -> list[Reason]:
        """What requests wait for."""
        return [waiting.reason for waiting in self.role._waiting]

    @property
    def stream(self) -> Constream:
        """The pubend, as the broker has it."""
        return self.hosting.streams[PUBEND]

    def boot(self) -> list[object]:
        said = super().boot()
        return [*said, *self.see()] if self.seen else said

    def see(self) -> list[object]:
        """The router says what there is of the pubend; this broker counts there once its interest is known."""
        if self.hidden:
            return []
        if self.enrolled is None and self.known_version:
            self.enrolled = self.stable
        meta = r.PubendMeta(
            PUBEND, "node", created=self.created, stable=self.stable, grain=self.grain, reach=self.stable
        )
        return self.feed(r.Seen(meta, self.enrolled))

    def crash(self, keep: int = 0) -> list[object]:
        for client in self.clients:
            client.session = 0
            client.inbox.clear()
        self.wants.clear()
        return super().crash(keep)

    def perform(self, read: Read) -> ReadResult:
        result = super().perform(read)
        return replace(result, records=result.records[:RECORDS_PER_READ])

    def on_said(self, effect: object) -> None:
        if isinstance(effect, Tell):
            self.client_gets(effect.session, effect.message)
        elif isinstance(effect, Transmit):
            for head, body in effect.payloads:
                self.client_gets(effect.session, decode_server(head + body))
        elif isinstance(effect, r.Want):
            self.wants.append(effect)
        elif isinstance(effect, r.Interest):
            self._interest(effect)
        elif isinstance(effect, r.Hold):
            self.hold(effect)
        elif isinstance(effect, r.Progress):
            self.progressed(effect)
        elif isinstance(effect, r.SubmitOpen):
            self.claims.append(effect)
        elif isinstance(effect, EndSession):
            self.ended.append(effect.session)
        elif isinstance(effect, AskRoom):
            self.room_asked.append(effect)
        elif isinstance(effect, AuditLine):
            self.audit.append(effect)
        elif isinstance(effect, RulesHold):
            self.rules_held.append(effect.version)
        elif isinstance(effect, Matched):
            self.matched.append(effect)
        else:
            assert isinstance(effect, Alarm | Note)
            (self.alarms if isinstance(effect, Alarm) else self.notes).append(effect.text)

    # ------------------------------------------------------------------------------------- the network

    def publish(self) -> None:
        """One more event is in the pubend's log, and nobody has heard of it."""
        number = len(self.log)
        self.stable += (1 + number * 7 % 4) * STEP
        properties = {"w": number * 3 % 4, "n": number}
        self.log.append((self.stable, properties, encode_event("t", properties, None, self.body)))

    def answer_wants(self) -> None:
        """The pubend answers all that was asked of it."""
        wants, self.wants = self.wants, []
        for want in wants:
            for lo, upto in want.ranges:
                if lo < (hi := min(upto, self.stable)):
                    self.deliver(self.knowledge(lo, hi, raw=True, reply=True))

    def answer_holds(self) -> None:
        """The pubend answers the rows of holds that it got."""
        answers, self.held_answers = self.held_answers, []
        for held in answers:
            self.feed(held)

    def _interest(self, interest: r.Interest) -> None:
        if interest.full or interest.base == self.known_version:
            if interest.full:
                self.filters = {}
            self.filters |= dict(interest.add)
            for sid in interest.drop:
                self.filters.pop(sid, None)
            self.known_version = interest.version
            if self.enrolled is None and self.seen:
                self.see()
        elif interest.version != self.known_version:
            self.feed(r.AskInterest())

    def hold(self, row: r.Hold) -> None:
        if row.version < self.hold_version:
            return
        self.hold_version = row.version
        self.holds = {sid: max(at, self.lost, self.located if sid in row.times else 0) for sid, at in row.at.items()}
        self.held_answers.append(r.Held(row.shb, PUBEND, row.version, dict(self.holds), self.stable))

    def progressed(self, progress: r.Progress) -> None:
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
        batch = EventBatch([row[0] for row in events], [row[2] for row in events], [len(self.body)] * len(events))
        stamp = None if raw else {self.shb: self.known_version}
        lost = min(self.lost, hi)
        return Knowledge(PUBEND, lo, hi, batch, lost if lost > lo else 0, stamp, reply)

    def deliver(self, knowledge: Knowledge) -> None:
        self.feed(r.Know(knowledge))

    # ------------------------------------------------------------------------------------- the clients

    def _client(self, session: int) -> Client | None:
        return next((client for client in self.clients if client.session == session), None)

    def client_gets(self, session: int, message: object) -> None:
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
        return ClientSession(client.session, "c", f"i{client.session}", NOBODY)

    def attach(self, client: Client, token: int | None, credit: int = 100) -> None:
        self.sessions += 1
        client.session = self.sessions
        client.inbox.clear()
        client.gap_end = None
        client.credit = credit
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
        self.feed(request, self.session_of(client))

    def has_room(self, session: ClientSession) -> None:
        """What was given to the link of a session has left."""
        self.room_asked = [ask for ask in self.room_asked if ask.session != session.number]
        self.feed(LinkHasRoom(session, 0))

    def detach(self, client: Client) -> None:
        session, client.session = self.session_of(client), 0
        client.inbox.clear()
        self.feed(SessionEnded(session))

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
        elif isinstance(message, m.DeliverSilence):
            if message.sids is None or client.sid in message.sids:
                client.token = max(client.token, message.upto)
        elif isinstance(message, m.DeliverGap):
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

    # ------------------------------------------------------------------------------------------ the end

    def rest(self) -> None:
        """Everybody is connected and takes everything, until nothing more comes."""
        for _ in range(60):
            self.see()
            self.deliver(self.knowledge(self.stable - STEP, self.stable, raw=True, reply=False))
            self.sync()
            self.answer_holds()
            self.read()
            self.answer_wants()
            for client in self.clients:
                if not client.session:
                    self.attach(client, client.token if client.begins is not None else None)
                while client.inbox:
                    self.consume(client)
                self.grant(client, 50)
            self.pause(300)
        assert all(client.token is not None and client.token >= self.stable for client in self.clients)

    def grant(self, client: Client, events: int) -> None:
        """The application takes that many more."""
        client.credit += events
        self.feed(m.Credit(client.sid, events, 0), self.session_of(client))

    def check(self) -> None:
        """Every client consumed exactly what it is owed: once, in order, but for gaps it was told of (I4, I10)."""
        for client in self.clients:
            assert client.begins is not None
            assert client.token is not None
            owed = [
                tick
                for tick, properties, _ in self.log
                if client.begins < tick <= client.token and client.matches(properties)
            ]
            assert client.consumed == [tick for tick in owed if not any(lo < tick <= hi for lo, hi in client.gaps)]
