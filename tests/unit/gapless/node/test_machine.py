"""The machine: one dispatch table, turns that run until quiet, one write and one send per link and turn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import pytest

from gapless.core.alarms import Alarm, AlarmBook, AlarmCode, Note, RaisedAlarm
from gapless.core.gauges import Gauge, value_of
from gapless.core.network import facts as routing
from gapless.core.network.facts import Know, NetworkMap, Save
from gapless.core.network.seam import Effect, Router, RouterContext
from gapless.core.ports import (
    AskRoom,
    EndSession,
    Handler,
    LogQuestion,
    Operation,
    Put,
    Read,
    RequestHandler,
    Set,
    Transmit,
    Write,
)
from gapless.core.principal_limits import NO_LIMITS
from gapless.core.server import BrokerIdentity, HandlerFailedError, SessionLimits
from gapless.core.server.audit import WITHOUT_END, Audit, AuditLine
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import WITHIN, Reception
from gapless.core.server.users import USERS, EndSessionsOf, UserRow, Users
from gapless.core.stream.columns import EMPTY
from gapless.core.stream.knowledge import Knowledge
from gapless.core.traces import Logged, Matched
from gapless.core.wire.messages import (
    AddUser,
    AskStatus,
    ChangeUser,
    Code,
    Done,
    Heartbeat,
    ListedUser,
    ListPubends,
    ListUsers,
    OpenPublisher,
    Publish,
    RemoveUser,
    RequestFailed,
    Status,
    TickRun,
    Unsubscribe,
    UserList,
    Verifier,
)
from gapless.errors import ConfigurationError
from gapless.node.gauges import FACTS, SESSIONS
from gapless.node.link_owner import BYTES, FRAMES
from gapless.node.machine import ROUNDS_MAX, Cookie, Machine, Network
from gapless.security.allow_all import AllowAll
from gapless.security.anonymous import Anonymous
from links import FakeLink
from nodes import LAST, PUBEND, STREAM, TOLD, LogRole, StraightRouter
from volumes import FakeVolume
from wire import columns, hello, kinds

NOW = 10**9
WALL = 1_700_000_000_000


@dataclass
class Turn:
    """What a turn wanted of the world."""

    operations: list[Operation] = field(default_factory=list)
    cookies: list[Cookie] = field(default_factory=list)
    sent: dict[int, list[Any]] = field(default_factory=dict)
    """By link: payloads, and the reason for which it is closed."""
    network: list[Network] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any((self.operations, self.cookies, self.sent, self.network, self.alarms))


class Rig:
    """A machine, its parts, its clients, and the shell around it."""

    def __init__(
        self,
        *roles: Any,
        limits: SessionLimits | None = None,
        users: Mapping[str, bytes] | None = None,
        audited: bool = False,
    ) -> None:
        self.router = StraightRouter()
        self.role = LogRole()
        self.volume = FakeVolume()
        self.now, self.wall = NOW, WALL
        self.heard: list[tuple[str, object]] = []
        self.taps = [lambda source, said: self.heard.append((source, said))]
        self.calls: list[Any] = []
        self.due: int | None = None
        self.alarms = AlarmBook()
        self.links: dict[int, FakeLink] = {}
        self.errors: list[BaseException] = []
        identity = BrokerIdentity("node", "net", durable=True, start=1)
        everyone = roles or (self.role,)
        router = cast("Router", self.router)
        self.notes: list[str] = []
        self.audit_core = Audit(is_wanted=audited)
        self.audited: list[AuditLine] = []
        self.traced: list[tuple[Logged | Matched, int]] = []
        self.room = WITHOUT_END
        self.authority = Authority(AllowAll())
        self.machine = Machine(
            identity,
            limits or SessionLimits(),
            [Reception([Anonymous()], is_local=True)],
            Users(dict(users or {}), "", 65_536, AllowAll()),
            self.authority,
            router,
            everyone,
            self.volume,
            self.audit_core,
            Budgets(NO_LIMITS),
            self,
        )
        self.machine.start(NOW, WALL, RouterContext("node", 1, NetworkMap({})))
        self.turn()

    def router_says(self, *effects: Effect) -> None:
        """In the next turn."""
        self.router.says += effects
        self.machine.on_broker_frame(0, b"")

    def call_roles(self) -> None:
        """Something happens that changes nothing: a role that is not called is not asked what it wants."""
        self.machine.on_space(low=False)

    # The shell.

    def clock(self) -> tuple[int, int]:
        return self.now, self.wall

    def schedule(self) -> None:
        self.calls.append("schedule")

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        self.calls.append("commit")
        self.wanted.operations += operations
        self.wanted.cookies += cookies

    def carry_out_reads(self) -> None:
        self.calls.append("reads")

    def arm(self, now: int, due: int) -> None:
        self.due = due

    def to_network(self, effect: Network) -> None:
        self.calls.append(effect)
        self.wanted.network.append(effect)

    def to_log(self, source: int, question: LogQuestion) -> None:
        self.calls.append((source, question))

    def alarm(self, alarm: Alarm) -> None:
        self.calls.append("alarm")
        self.wanted.alarms.append(alarm)

    def note(self, note: Note) -> None:
        self.notes.append(note.text)

    def trace(self, traced: Logged | Matched, turn: int) -> None:
        self.traced.append((traced, turn))

    def audit_room(self) -> int:
        return self.room

    def audit(self, lines: Sequence[AuditLine]) -> None:
        self.audited += lines

    def status(self) -> Iterable[Gauge | RaisedAlarm]:
        return self.alarms.alarms()

    def on_last_link_closed(self) -> None:
        self.calls.append("no links")

    def on_failed(self, error: BaseException) -> None:
        self.errors.append(error)

    # What the test does.

    def turn(self) -> Turn:
        """One turn, and what it wanted. Raises what made the machine fail."""
        self.wanted = Turn()
        self.calls.clear()
        self.due = None
        self.machine.turn()
        if self.errors:
            raise self.errors.pop()
        for number, link in self.links.items():
            if link.sent or (link.closed is not None and number in self.machine.links):
                self.wanted.sent[number], link.sent = [*link.sent], []
        return self.wanted

    def durable(self, turn: Turn) -> Turn:
        """What a turn wrote is on disk; the turn behind that."""
        self.machine.on_durable(turn.cookies)
        return self.turn()

    def connect(self, link: int, *, publisher: bool = True) -> FakeLink:
        """A client; `link` is the number that the machine gives it."""
        client = self.links[link] = FakeLink()
        client.handler = self.machine.accept(client, WITHIN)
        client.say(hello(instance=str(link)))
        self.machine.turn()
        client.hear()
        if publisher:
            client.say(OpenPublisher(1, "loader", "instance", 1, None))
            self.machine.turn()
            client.hear()
        return client

    def say(self, client: FakeLink, *messages: Any) -> list[Any]:
        """A client says something; what it hears in that turn."""
        client.say(*messages)
        self.machine.turn()
        if self.errors:
            raise self.errors.pop()
        return client.hear()


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_publish_goes_through_router_and_role_to_a_write_and_its_answer_waits_for_it(rig: Rig) -> None:
    client = rig.connect(1)
    client.say(Publish(1, 1, 1, columns(b"a", b"b"), b""))

    turn = rig.turn()
    assert turn.operations == [Put(STREAM, 2, columns(b"a", b"b").blob)]
    assert turn.cookies == [(0, 1)]
    assert turn.sent == {}

    (published,) = client.wire.decode(rig.durable(turn).sent[1])
    assert (published.sequence, published.ticks) == (2, [TickRun(1, 1, 2)])  # type: ignore[union-attr]


def test_everything_of_a_turn_is_one_group_and_one_send_per_link(rig: Rig) -> None:
    first, second = rig.connect(1), rig.connect(2)
    rig.calls.clear()
    first.say(Publish(1, 1, 1, columns(b"a"), b""), Publish(1, 1, 2, columns(b"b"), b""))
    second.say(Publish(1, 1, 3, columns(b"c"), b""))
    assert rig.calls.count("schedule") == 1

    turn = rig.turn()
    assert rig.calls.count("commit") == 1
    answers = rig.durable(turn)

    assert [operation.index for operation in turn.operations if isinstance(operation, Put)] == [1, 2, 3]
    assert turn.cookies == [(0, 1), (0, 2), (0, 3)]
    assert kinds(first.wire.decode(answers.sent[1])) == ["Published"]
    assert kinds(second.wire.decode(answers.sent[2])) == ["Published"]


def test_what_is_traced_is_told_with_the_time_of_its_turn(rig: Rig) -> None:
    rig.role.effects.append(Matched(PUBEND, EMPTY, 3, 2))
    rig.call_roles()
    rig.turn()

    assert rig.traced == [(Matched(PUBEND, EMPTY, 3, 2), NOW)]


async def test_a_turn_writes_first_then_sends_then_speaks_then_reads(rig: Rig) -> None:
    client = rig.connect(1, publisher=False)
    client.say(OpenPublisher(1, "loader", "instance", 1, None))
    alarm = Alarm(AlarmCode.DISK_LOW, "look")
    rig.role.effects += [Read(STREAM, 0, 1, "cookie"), alarm, Write([Put(STREAM, 99, b"")], None)]
    rig.call_roles()
    rig.router_says(routing.SendFrame(1, b"frame"))
    client.send = lambda *_, **__: rig.calls.append("send")  # type: ignore[method-assign]

    rig.turn()

    assert rig.calls == ["commit", "send", "alarm", routing.SendFrame(1, b"frame"), "reads"]
    assert rig.due is not None


def test_a_role_learns_when_a_link_has_room_behind_what_was_sent(rig: Rig) -> None:
    client = rig.connect(1)
    [session] = rig.role.openers
    client.pending = 100
    rig.role.effects += [Transmit(session, ((b"head", b"rest"),)), AskRoom(session, 40)]
    rig.call_roles()
    rig.turn()
    rig.turn()
    assert rig.role.rooms == []

    client.pending = 40
    rig.machine.on_drained(1)
    rig.turn()
    assert rig.role.rooms == [session]

    client.pending = 0
    rig.role.effects += [AskRoom(session, 40)]
    rig.call_roles()
    rig.turn()
    rig.turn()
    assert rig.role.rooms == [session, session]


def test_there_is_no_room_before_what_is_sent_with_the_question(rig: Rig) -> None:
    client = rig.connect(1)
    [session] = rig.role.openers
    rig.machine.links[1].pending = client.pending = 10
    send = client.send

    def sent(*payloads: Any, **how: Any) -> None:
        send(*payloads, **how)
        client.pending = 1000

    client.send = sent  # type: ignore[method-assign]
    rig.role.effects += [Transmit(session, ((b"head", b"rest"),)), AskRoom(session, 40)]
    rig.call_roles()
    rig.turn()
    rig.turn()

    assert rig.role.rooms == []


def test_a_read_is_answered_to_the_role_that_asked(rig: Rig) -> None:
    client = rig.connect(1, publisher=False)
    client.say(ListPubends(7))
    rig.turn()
    [(source, read)] = rig.machine.reads
    assert (source, read.stream) == (0, STREAM)

    rig.machine.read_one()
    (listed,) = client.wire.decode(rig.turn().sent[1])

    assert listed.request == 7  # type: ignore[union-attr]
    assert not rig.machine.reads


def test_a_role_learns_that_a_session_is_over_before_it_hears_of_the_next(rig: Rig) -> None:
    client, other = rig.connect(1, publisher=False), rig.connect(2, publisher=False)
    rig.role.calls.clear()

    rig.machine.on_closed(1)
    other.say(ListPubends(1))
    rig.turn()

    assert rig.role.calls == [("ended", client.wire.session)]
    assert len(rig.machine.reads) == 1


async def test_what_a_role_says_to_a_session_that_is_over_is_dropped(rig: Rig) -> None:
    client = rig.connect(1, publisher=False)
    session = client.wire.session
    rig.role.effects += [Transmit(session, [(b"a", b"b")]), EndSession(session, "enough")]
    rig.call_roles()
    rig.turn()
    assert client.closed == "enough"

    rig.role.effects += [Transmit(session, [(b"a", b"b")]), EndSession(session, "enough")]
    rig.call_roles()
    client.sent.clear()
    rig.turn()

    assert client.sent == []


async def test_the_end_of_a_session_that_a_role_asked_for_is_told_to_all_roles(rig: Rig) -> None:
    client = rig.connect(1, publisher=False)
    rig.role.calls.clear()

    rig.role.effects.append(EndSession(client.wire.session, "enough"))
    rig.call_roles()
    rig.turn()

    assert rig.role.calls == [("space", False), ("ended", client.wire.session)]


FROM_CORES: list[object] = [
    routing.Opened(routing.PubendMeta(PUBEND, "node"), {"shb": 3}),
    routing.Know(Knowledge(PUBEND, 0, 5), "you"),
    routing.Probe(PUBEND, 9),
    routing.Enrolled(PUBEND, "shb", 4),
    routing.Held("shb", PUBEND, 1, {}),
    routing.Interest("shb", 0, 1, {}),
    routing.Hold("shb", PUBEND, 1, {}),
    routing.Want(PUBEND, ((0, 5),), None, "shb", again=False),
    routing.Progress("shb", PUBEND, 1, 2),
]


def test_what_cores_say_to_the_router_reaches_it_in_order(rig: Rig) -> None:
    rig.role.effects += FROM_CORES
    rig.call_roles()

    rig.turn()

    assert rig.router.told == FROM_CORES


def test_everything_that_a_part_says_passes_the_tap_once_and_is_counted(rig: Rig) -> None:
    client = rig.connect(1)
    client.say(Publish(1, 1, 1, columns(b"a"), b""))
    rig.role.effects += FROM_CORES
    rig.call_roles()
    turn = rig.turn()
    rig.durable(turn)
    rig.machine.on_broker_frame(3, b"x")
    rig.turn()

    said = [(source, type(fact).__name__) for source, fact in rig.heard]
    assert said[0] == ("node", "RouterContext")
    assert said[said.index(("sessions", "Submit")) + 1] == ("router", "Submit")
    assert [fact for source, fact in rig.heard if source == "log" and fact in FROM_CORES] == FROM_CORES
    assert said[-1] == ("node", "FrameArrived")
    for source, kind in {("sessions", "Submit"), ("router", "Submitted"), ("log", "Write"), ("log", "Know")}:
        assert value_of(rig.machine.gauges(), FACTS, source=source, kind=kind) == said.count((source, kind))


def test_every_effect_of_the_seam_has_a_place(rig: Rig) -> None:
    """A new effect that nobody carries out must not go unseen."""
    from_router = {*rig.machine._from_router, *rig.machine._to_roles}
    effects = set(get_args(Effect))

    assert effects <= from_router


def test_a_message_for_a_role_that_is_not_here_goes_nowhere(rig: Rig) -> None:
    rig.router_says(Know(Knowledge(PUBEND, 0, 5)), routing.Probe(PUBEND, 4))

    assert not rig.turn()


def test_a_save_goes_to_the_routers_table_and_is_answered(rig: Rig) -> None:
    rig.router_says(Save("epoch", b"7", "cookie"), Save("old", None))

    turn = rig.turn()
    rig.durable(turn)

    assert turn.operations[0] == Set("router", b"epoch", b"7")
    assert turn.cookies == [(-1, "cookie")]
    assert rig.router.told[1:] == [routing.Saved("cookie")]


def test_frames_for_other_brokers_and_alarms_are_handed_out(rig: Rig) -> None:
    frame = routing.SendFrame(3, b"x")
    rig.router_says(routing.Dial("b"), frame, routing.Undial("c"), routing.Hangup(3))
    lost, jumped = Alarm(AlarmCode.ROUTING_IMPAIRED, "no way"), Alarm(AlarmCode.CLOCK_SUSPECT, "the clock jumped")
    rig.router_says(lost)
    rig.role.effects.append(jumped)
    rig.call_roles()

    turn = rig.turn()

    assert turn.network == [routing.Dial("b"), frame, routing.Undial("c"), routing.Hangup(3)]
    assert turn.alarms == [lost, jumped]
    assert not rig.turn()


def test_whoever_asks_is_told_the_status_in_parts_that_fit_into_frames() -> None:
    rig = Rig(limits=SessionLimits(event_bytes=4096, frame_bytes=8192))
    client = rig.connect(1)
    for number in range(20):
        rig.alarms.note(Alarm(AlarmCode.CLIENT_REFUSED, "x" * 5000, f"host-{number}"), WALL)

    client.say(AskStatus(7))
    payloads: list[bytes] = []
    parts: list[Status] = []
    while not parts or parts[-1].more:  # one a turn, so that other work is done between them
        payloads += rig.turn().sent[1]
        parts = [message for message in client.wire.decode(payloads) if isinstance(message, Status)]

    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    told = [row for part in parts for row in part.rows]
    counted = {FRAMES.name, BYTES.name}  # the answer itself is counted there
    pairs = zip(told, [*rig.machine.gauges(), *rig.alarms.alarms()], strict=True)
    assert all(one == other for one, other in pairs if getattr(one, "name", "") not in counted)
    assert len(payloads) > 1
    assert max(map(len, payloads)) < 8192


def test_a_user_counts_when_it_is_durable_and_a_new_password_ends_the_sessions_of_the_user(rig: Rig) -> None:
    verifier, other = (Verifier(byte * 16, 15_000, byte * 32, byte * 32) for byte in (b"a", b"b"))
    client, bystander = rig.connect(1), rig.connect(2)
    client.say(AddUser(7, "ada", verifier, ("ops",)))
    turn = rig.turn()
    row = UserRow(verifier, ("ops",), WALL)
    assert turn.operations == [Set(USERS, b"ada", row.stored)]
    assert turn.sent == {}

    answers = rig.durable(turn)
    assert client.wire.decode(answers.sent[1]) == [Done(7)]
    client.say(ListUsers(8))
    assert client.wire.decode(rig.turn().sent[1]) == [UserList(8, [ListedUser("ada", ("ops",), WALL)])]

    client.say(ChangeUser(9, "ada", other, None), RemoveUser(10, "bob"))
    turn = rig.turn()
    [refused] = client.wire.decode(turn.sent[1])
    assert isinstance(refused, RequestFailed)
    assert refused.request == 10
    rig.heard.clear()
    rig.durable(turn)
    [end] = [said for _, said in rig.heard if isinstance(said, EndSessionsOf)]
    assert end.name == "ada"
    assert bystander.closed is None
    assert any("'ada'" in note for note in rig.notes)


async def test_the_sessions_of_a_user_end_with_the_user() -> None:
    """Everybody here is `anonymous`, so a user of that name stands for all of them."""
    rig = Rig(users={"anonymous": UserRow(Verifier(b"a" * 16, 15_000, b"a" * 32, b"a" * 32), (), 1).stored})
    asks, other = rig.connect(1), rig.connect(2)
    asks.say(RemoveUser(7, "anonymous"))
    rig.durable(rig.turn())

    assert kinds(asks.wire.decode(rig.wanted.sent[1])) == ["Done", "Closing"]
    assert kinds(other.wire.decode(rig.wanted.sent[2])) == ["Closing"]
    assert "was removed" in str(other.closed)
    assert rig.machine.sessions.count == 0


def test_links_to_other_brokers_go_to_the_router(rig: Rig) -> None:
    rig.machine.on_broker_link(3, "b", frozenset({"phb"}), 1)
    rig.machine.on_broker_frame(3, b"x")
    rig.machine.on_broker_link_closed(3)
    rig.turn()

    assert rig.router.told == [
        routing.LinkUp(3, "b", frozenset({"phb"}), 1),
        routing.FrameArrived(3, b"x", rig.wall),
        routing.LinkDown(3),
    ]


def test_the_router_is_told_when_a_link_is_full_and_when_it_has_room(rig: Rig) -> None:
    high, low = routing.LINK_HIGH, routing.LINK_LOW
    for pending in (1, low + 1, high, high + 1, high + 9, high, low + 1, low, 0, high + 1, 0, high + 1):
        rig.machine.on_broker_pending(3, pending)
    rig.machine.on_broker_link_closed(3)
    rig.machine.on_broker_pending(3, 0)
    rig.turn()

    told = [high + 1, high, low, high + 1, 0, high + 1]
    assert rig.router.told == [*[routing.LinkRoom(3, pending) for pending in told], routing.LinkDown(3)]


def test_the_deadline_is_the_earliest_of_all_and_only_those_due_are_called(rig: Rig) -> None:
    assert rig.machine.deadline() is None
    rig.role.deadline_at = NOW + 50
    rig.call_roles()
    rig.router.wake_at = NOW + 20
    rig.turn()
    assert rig.due == NOW + 20

    rig.role.calls.clear()
    rig.now = NOW + 20
    rig.turn()
    assert rig.router.told == [routing.Wake()]
    assert rig.role.calls == []
    assert rig.due == NOW + 50

    rig.now, rig.wall = NOW + 60, WALL + 1
    rig.turn()
    assert rig.role.calls == [("deadline", (NOW + 60, WALL + 1))]

    rig.machine.accept(FakeLink(), WITHIN)
    rig.turn()
    assert rig.due == NOW + 60 + 5 * 10**9


def test_space_start_and_figures_are_of_every_role_and_figures_of_the_router(rig: Rig) -> None:
    rig.machine.on_space(low=True)
    rig.turn()

    assert rig.role.calls == [("start", (NOW, WALL)), ("space", True)]
    assert {SESSIONS.gauge(0), TOLD.gauge(0), LAST.gauge(0)} <= set(rig.machine.gauges())


async def test_closing_ends_every_session(rig: Rig) -> None:
    client = rig.connect(1)

    rig.machine.close("the node stops")
    rig.turn()

    assert client.closed == "the node stops"
    assert rig.role.calls[-1] == ("ended", client.wire.session)


async def test_the_last_link_that_closes_is_told(rig: Rig) -> None:
    owners = [rig.machine.accept(FakeLink(), WITHIN) for _ in range(2)]

    owners[0].on_closed("")
    assert "no links" not in rig.calls
    owners[1].on_closed("")
    assert "no links" in rig.calls


async def test_who_abandons_it_gets_the_links(rig: Rig) -> None:
    owner = rig.machine.accept(FakeLink(), WITHIN)

    assert list(rig.machine.abandon().values()) == [owner]
    assert not rig.machine.alive


def test_an_exception_ends_it_and_nothing_is_carried_out_any_more(rig: Rig) -> None:
    rig.role.effects += ["surprise", Write([], None)]
    rig.call_roles()

    with pytest.raises(KeyError):
        rig.turn()
    assert not rig.machine.alive
    rig.machine.on_broker_frame(1, b"")
    assert not rig.turn()
    assert rig.calls == []


def test_two_roles_cannot_answer_the_same_message() -> None:
    with pytest.raises(ConfigurationError, match="the roles 'shb' and 'other' both answer Unsubscribe"):
        Rig(Asked("shb"), Asked("other"))


class Asked(LogRole):
    """Answers what no two roles can."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def requests(self) -> Mapping[type, RequestHandler]:
        return {Unsubscribe: lambda *_: None}


class Host(LogRole):
    """One of several roles that host pubends: it says so, and notes what concerns them."""

    def __init__(self, name: str, topic: str) -> None:
        super().__init__()
        self.name = name
        self.pubend = f"{name}@1"
        self.topic = topic
        self.facts: list[object] = []

    def handlers(self) -> Mapping[type, Handler]:
        kinds = (routing.AskPubend, routing.Enrol, routing.Hold, routing.Released)
        return {**super().handlers(), **dict.fromkeys(kinds, self._note)}

    def requests(self) -> Mapping[type, RequestHandler]:
        return {}

    def start(self, now: int, wall: int) -> None:
        self.effects.append(routing.Opened(routing.PubendMeta(self.pubend, "node", (self.topic,)), {}))

    def _note(self, fact: object, now: int, wall: int) -> None:
        self.facts.append(fact)


def test_two_roles_host_pubends_and_each_gets_what_concerns_its_own() -> None:
    left, right = Host("left", "a.#"), Host("right", "b.#")
    rig = Rig(left, right)
    facts: dict[str, list[Effect]] = {
        pubend: [
            routing.AskPubend(routing.Want(pubend, ((0, 5),), None, "shb", again=False), "you"),
            routing.Enrol(pubend, "shb"),
            routing.Hold("shb", pubend, 1, {}),
            routing.Released(pubend, 1, 2),
        ]
        for pubend in ("left@1", "right@1", "nobody@1")
    }
    for said in facts.values():
        rig.router_says(*said)
    rig.turn()

    assert right.facts == facts["right@1"]
    assert left.facts == facts["left@1"] + facts["nobody@1"], "of a pubend that nobody hosts, the first has to say so"


def test_a_publisher_is_opened_at_the_role_whose_pubend_carries_its_topic() -> None:
    left, right = Host("left", "a.#"), Host("right", "b.#")
    rig = Rig(left, right)
    client = rig.connect(1, publisher=False)
    opened = [
        rig.say(client, OpenPublisher(number, f"loader-{number}", "instance", 1, topic))[0].pubend
        for number, topic in enumerate(["a.x", "b.x", None, "c.x"], 1)
    ]
    client.say(Publish(2, 1, 1, columns(b"x", b"y"), b""))
    turn = rig.turn()

    assert opened == ["left@1", "right@1", "left@1", "left@1"]
    assert turn.cookies == [(1, 1)], "the second role writes it"
    assert (left.last, right.last) == (0, 2)

    (published,) = client.wire.decode(rig.durable(turn).sent[1])
    assert (published.publisher, published.sequence) == (2, 2)  # type: ignore[union-attr]


class Reader(Host):
    """A role that takes mail."""

    def handlers(self) -> Mapping[type, Handler]:
        return {**super().handlers(), routing.Posted: self._note}


def test_mail_goes_to_the_role_of_that_name_and_to_no_other() -> None:
    left, right = Reader("left", "a.#"), Reader("right", "b.#")
    rig = Rig(left, right, Host("deaf", "c.#"))
    mail = [routing.Posted("far", role, b"hello") for role in ("left", "right", "deaf", "nobody")]
    rig.router_says(*mail)
    left.effects.append(routing.Post("far", "right", b"answer"))
    rig.call_roles()
    rig.turn()

    assert (left.facts, right.facts) == ([mail[0]], [mail[1]])
    assert rig.router.told[-1] == routing.Post("far", "right", b"answer")


def test_mail_has_a_limit() -> None:
    left = Host("left", "a.#")
    rig = Rig(left)
    left.effects.append(routing.Post("far", "right", bytes(routing.MAIL_BYTES_MAX)))
    rig.call_roles()
    rig.turn()
    left.effects.append(routing.Post("far", "right", bytes(routing.MAIL_BYTES_MAX + 1)))
    rig.call_roles()

    with pytest.raises(ValueError, match="mail to right of 'far' has 65,537 bytes"):
        rig.turn()


def test_a_pubend_has_one_host_and_other_facts_one_taker() -> None:
    with pytest.raises(ConfigurationError, match="the roles 'same' and 'same' both host same@1"):
        Rig(Host("same", "#"), Host("same", "#"))

    class Curious(Host):
        def handlers(self) -> Mapping[type, Handler]:
            return {**super().handlers(), Know: self._note}

    with pytest.raises(ConfigurationError, match="both answer Know"):
        Rig(Curious("left", "#"), Curious("right", "#"))


class Chatterbox(LogRole):
    """Answers its own mail, for ever."""

    def handlers(self) -> Mapping[type, Handler]:
        return {**super().handlers(), routing.Posted: self._answer}

    def start(self, now: int, wall: int) -> None:
        self._answer(None, now, wall)

    def _answer(self, _mail: object, _now: int, _wall: int) -> None:
        self.effects.append(routing.Post("node", self.name, b"and another thing"))


def test_parts_that_never_fall_silent_are_stopped() -> None:
    with pytest.raises(AssertionError, match=f"after {ROUNDS_MAX} rounds"):
        Rig(Chatterbox())


async def test_a_violation_ends_one_session_and_a_bug_ends_the_machine(rig: Rig) -> None:
    client, other = rig.connect(1, publisher=False), rig.connect(2, publisher=False)

    assert kinds(rig.say(client, ListPubends(-1))) == ["Closing"]
    assert kinds(rig.say(other, Heartbeat())) == []
    with pytest.raises(HandlerFailedError, match="a bug in a core"):
        rig.say(other, ListPubends(666))


def test_a_quiet_turn_wants_nothing(rig: Rig) -> None:
    assert not rig.turn()
    assert rig.calls == []


def test_a_resume_reaches_the_client(rig: Rig) -> None:
    client = rig.connect(1)

    (refused,) = rig.say(client, Publish(1, 1, 5, columns(b"a"), b""))

    assert (refused.code, refused.sequence) == (Code.RESUME, 1)


def test_a_role_that_was_not_called_is_not_asked_what_it_wants(rig: Rig) -> None:
    write = Write([Put(STREAM, 99, b"")], None)
    rig.role.effects.append(write)

    assert not rig.turn()

    rig.call_roles()

    assert rig.turn().operations == write.operations
