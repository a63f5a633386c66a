"""The machine: one dispatch table, steps that run until quiet, one output per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

import pytest

from gapless.core.alarms import Alarm, AlarmBook, AlarmCode
from gapless.core.network import facts as routing
from gapless.core.network.facts import Know, NetworkMap, Save, Submit
from gapless.core.network.seam import Effect, Router, RouterContext
from gapless.core.ports import (
    AllowAll,
    EndSession,
    Handler,
    Put,
    Read,
    ReadResult,
    RequestHandler,
    SessionEnded,
    Set,
    Transmit,
    Write,
)
from gapless.core.server import BrokerIdentity, HandlerFailedError, SessionLimits
from gapless.core.stream.knowledge import Knowledge
from gapless.core.wire.messages import (
    AskStatus,
    Code,
    ListPubends,
    ListSubscriptions,
    OpenPublisher,
    Publish,
    Status,
    TickRun,
)
from gapless.errors import ConfigurationError
from gapless.node.auth import Anonymous
from gapless.node.gauges import SESSIONS
from gapless.node.machine import ROUNDS_MAX, Machine, Output
from nodes import LAST, PUBEND, STREAM, TOLD, LogRole, StraightRouter
from wire import Wire, columns, hello, joined, kinds

NOW = 10**9
WALL = 1_700_000_000_000


class Rig:
    """A machine, its parts, and clients."""

    def __init__(self, *roles: Any, limits: SessionLimits | None = None) -> None:
        self.router = StraightRouter()
        self.role = LogRole()
        identity = BrokerIdentity("node", "net", durable=True, start=1)
        everyone = roles or (self.role,)
        router = cast("Router", self.router)
        self.machine = Machine(identity, limits or SessionLimits(), Anonymous(), AllowAll(), router, everyone)
        self.machine.start(NOW, WALL, RouterContext("node", 1, NetworkMap({})))
        self.machine.take_output()

    def connect(self, link: int, *, publisher: bool = True) -> Wire:
        wire = Wire()
        self.machine.on_link(link, "peer", NOW, WALL)
        self.say(link, wire, hello(instance=str(link)))
        if publisher:
            self.say(link, wire, OpenPublisher(1, "loader", "instance", 1, None))
        return wire

    def feed(self, link: int, wire: Wire, *messages: Any) -> None:
        self.machine.on_frames(link, wire.say(*messages), NOW, WALL)

    def say(self, link: int, wire: Wire, *messages: Any) -> list[Any]:
        self.feed(link, wire, *messages)
        return wire.hear(self.machine.take_output().links.get(link))


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_publish_goes_through_router_and_role_to_a_write_and_its_answer_waits_for_it(rig: Rig) -> None:
    wire = rig.connect(1)
    rig.feed(1, wire, Publish(1, 1, 1, columns(b"a", b"b")))

    output = rig.machine.take_output()
    assert output.operations == [Put(STREAM, 2, columns(b"a", b"b").blob)]
    assert output.cookies == [(0, 1)]
    assert output.links == {}

    rig.machine.on_durable(output.cookies, NOW, WALL)
    (published,) = wire.hear(rig.machine.take_output().links[1])
    assert (published.sequence, published.ticks) == (2, [TickRun(1, 1, 2)])  # type: ignore[union-attr]


def test_everything_of_a_turn_is_one_group_and_one_output_per_link(rig: Rig) -> None:
    first, second = rig.connect(1), rig.connect(2)
    rig.feed(1, first, Publish(1, 1, 1, columns(b"a")), Publish(1, 1, 2, columns(b"b")))
    rig.feed(2, second, Publish(1, 1, 3, columns(b"c")))

    output = rig.machine.take_output()
    rig.machine.on_durable(output.cookies, NOW, WALL)
    answers = rig.machine.take_output()

    assert [operation.index for operation in output.operations if isinstance(operation, Put)] == [1, 2, 3]
    assert output.cookies == [(0, 1), (0, 2), (0, 3)]
    assert {link: kinds(Wire().hear(sent)) for link, sent in answers.links.items()} == {
        1: ["Published"],
        2: ["Published"],
    }


def test_a_read_carries_its_role_and_comes_back_with_the_roles_own_cookie(rig: Rig) -> None:
    wire = rig.connect(1, publisher=False)
    rig.feed(1, wire, ListPubends(7))
    (read,) = rig.machine.take_output().reads

    assert read == Read(STREAM, 0, 0, (0, (wire.session, 7)))
    rig.machine.on_read(ReadResult(read.cookie, [(4, b"abc")], 2), NOW, WALL)
    (listed,) = wire.hear(rig.machine.take_output().links[1])

    assert (listed.request, listed.rows[0].newest, listed.rows[0].lost) == (7, 4, 2)  # type: ignore[union-attr]


def test_a_role_learns_that_a_session_is_over_before_it_hears_of_the_next(rig: Rig) -> None:
    wire = rig.connect(1, publisher=False)
    other = rig.connect(2, publisher=False)
    rig.role.calls.clear()

    rig.machine.on_link_closed(1, NOW, WALL)
    assert rig.role.calls == [("ended", wire.session)]
    rig.feed(2, other, ListPubends(1))

    assert len(rig.role.effects) == 1


def test_what_a_role_says_to_a_session_that_is_over_is_dropped(rig: Rig) -> None:
    wire = rig.connect(1, publisher=False)
    rig.role.effects += [Transmit(wire.session, [(b"a", b"b")]), EndSession(wire.session, "enough")]
    output = rig.machine.take_output()
    assert output.links[1].close == "enough"

    rig.role.effects += [Transmit(wire.session, [(b"a", b"b")]), EndSession(wire.session, "enough")]

    assert not rig.machine.take_output()


def test_the_end_of_a_session_that_a_role_asked_for_is_told_to_all_roles(rig: Rig) -> None:
    wire = rig.connect(1, publisher=False)
    rig.role.calls.clear()

    rig.role.effects.append(EndSession(wire.session, "enough"))
    rig.machine.take_output()

    assert rig.role.calls == [("ended", wire.session)]


def test_what_cores_say_to_the_router_reaches_it_in_order(rig: Rig) -> None:
    facts: list[object] = [
        routing.Opened(routing.PubendMeta(PUBEND, "node"), {"shb": 3}),
        routing.Know(Knowledge(PUBEND, 0, 5), "you"),
        routing.Probe(PUBEND, 9),
        routing.Enrolled(PUBEND, "shb", 4),
        routing.Held("shb", PUBEND, 1, {}),
        routing.Interest("shb", 0, 1, {}),
        routing.Hold("shb", PUBEND, 1, {}),
        routing.Want(PUBEND, ((0, 5),), None, "shb"),
        routing.Progress("shb", PUBEND, 1, 2),
    ]
    rig.role.effects += facts

    rig.machine.take_output()

    assert rig.router.told == facts


def test_every_effect_of_the_seam_has_a_place(rig: Rig) -> None:
    """A new effect that nobody carries out must not go unseen."""
    from_router = set(rig.machine._from_router)
    effects = set(get_args(Effect))

    assert effects <= from_router


def test_a_message_for_a_role_that_is_not_here_goes_nowhere(rig: Rig) -> None:
    rig.machine._queue.extend([Know(Knowledge(PUBEND, 0, 5)), routing.Probe(PUBEND, 4)])

    assert not rig.machine.take_output()


def test_a_save_goes_to_the_routers_table_and_is_answered(rig: Rig) -> None:
    rig.machine._queue.extend([Save("epoch", b"7", "cookie"), Save("old", None)])

    output = rig.machine.take_output()
    rig.machine.on_durable(output.cookies, NOW, WALL)

    assert output.operations[0] == Set("router", b"epoch", b"7")
    assert output.cookies == [(-1, "cookie")]
    assert rig.router.told == [routing.Saved("cookie")]


def test_frames_for_other_brokers_and_alarms_are_handed_out(rig: Rig) -> None:
    frame = routing.SendFrame(3, b"x")
    lost, jumped = Alarm(AlarmCode.ROUTING_IMPAIRED, "no way"), Alarm(AlarmCode.CLOCK_SUSPECT, "the clock jumped")
    rig.machine._queue.extend([routing.Dial("b"), lost, frame, routing.Hangup(3)])
    rig.role.effects.append(jumped)

    output = rig.machine.take_output()

    assert output.network == [routing.Dial("b"), frame, routing.Hangup(3)]
    assert output.alarms == [lost, jumped]


def test_whoever_asks_is_told_the_status_in_parts_that_fit_into_frames() -> None:
    rig = Rig(limits=SessionLimits(event_bytes=4096, frame_bytes=8192))
    wire = rig.connect(1)
    alarms = AlarmBook()
    for number in range(20):
        alarms.note(Alarm(AlarmCode.CLIENT_REFUSED, "x" * 5000, f"host-{number}"), WALL)
    rig.machine.around = alarms.alarms

    rig.feed(1, wire, AskStatus(7))
    sent = rig.machine.take_output().links[1]
    payloads = [*sent.urgent, *sent.ordinary]

    parts = [message for message in wire.decode(payloads) if isinstance(message, Status)]
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert [row for part in parts for row in part.rows] == [*rig.machine.gauges(), *alarms.alarms()]
    assert len(payloads) > 1
    assert max(len(joined(payload)) for payload in payloads) < 8192


def test_links_to_other_brokers_go_to_the_router(rig: Rig) -> None:
    rig.machine.on_broker_link(3, "b", frozenset({"phb"}), 1, NOW, WALL)
    rig.machine.on_broker_frame(3, b"x", NOW, WALL)
    rig.machine.on_broker_link_closed(3, NOW, WALL)

    assert rig.router.told == [
        routing.LinkUp(3, "b", frozenset({"phb"}), 1),
        routing.FrameArrived(3, b"x"),
        routing.LinkDown(3),
    ]


def test_the_deadline_is_the_earliest_of_all_and_only_those_due_are_called(rig: Rig) -> None:
    assert rig.machine.deadline() is None
    rig.role.deadline_at = NOW + 50
    rig.router.wake_at = NOW + 20
    assert rig.machine.deadline() == NOW + 20

    rig.role.calls.clear()
    rig.machine.on_deadline(NOW + 20, WALL)
    assert rig.router.told == [routing.Wake()]
    assert rig.role.calls == []

    assert rig.machine.deadline() == NOW + 50
    rig.machine.on_deadline(NOW + 60, WALL + 1)
    assert rig.role.calls == [("deadline", (NOW + 60, WALL + 1))]

    rig.machine.on_link(1, "peer", NOW, WALL)
    assert rig.machine.deadline() == NOW + 5 * 10**9


def test_space_start_and_status_reach_every_role_and_status_the_router(rig: Rig) -> None:
    rig.machine.on_space(NOW, WALL, low=True)

    assert rig.role.calls == [("start", (NOW, WALL)), ("space", True)]
    assert list(rig.machine.gauges()) == [SESSIONS.gauge(0), TOLD.gauge(0), LAST.gauge(0)]


def test_closing_ends_every_session(rig: Rig) -> None:
    wire = rig.connect(1)

    rig.machine.close("the node stops", NOW, WALL)

    output = rig.machine.take_output()
    assert kinds(wire.hear(output.links[1])) == ["Closing"]
    assert rig.role.calls[-1] == ("ended", wire.session)


def test_two_roles_cannot_answer_the_same_message() -> None:
    with pytest.raises(ConfigurationError, match="the roles 'shb' and 'other' both answer ListSubscriptions"):
        Rig(Asked("shb"), Asked("other"))


class Asked(LogRole):
    """Answers what no two roles can."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def requests(self) -> Mapping[type, RequestHandler]:
        return {ListSubscriptions: lambda *_: None}


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
            routing.AskPubend(routing.Want(pubend, ((0, 5),), None, "shb"), "you"),
            routing.Enrol(pubend, "shb"),
            routing.Hold("shb", pubend, 1, {}),
            routing.Released(pubend, 1, 2),
        ]
        for pubend in ("left@1", "right@1", "nobody@1")
    }
    for said in facts.values():
        rig.machine._queue.extend(said)
    rig.machine.take_output()

    assert right.facts == facts["right@1"]
    assert left.facts == facts["left@1"] + facts["nobody@1"], "of a pubend that nobody hosts, the first has to say so"


def test_a_publisher_is_opened_at_the_role_whose_pubend_carries_its_topic() -> None:
    left, right = Host("left", "a.#"), Host("right", "b.#")
    rig = Rig(left, right)
    wire = rig.connect(1, publisher=False)
    opened = [
        rig.say(1, wire, OpenPublisher(number, f"loader-{number}", "instance", 1, topic))[0].pubend
        for number, topic in enumerate(["a.x", "b.x", None, "c.x"], 1)
    ]
    rig.feed(1, wire, Publish(2, 1, 1, columns(b"x", b"y")))
    output = rig.machine.take_output()

    assert opened == ["left@1", "right@1", "left@1", "left@1"]
    assert output.cookies == [(1, 1)], "the second role writes it"
    assert (left.last, right.last) == (0, 2)

    rig.machine.on_durable(output.cookies, NOW, WALL)
    (published,) = wire.hear(rig.machine.take_output().links[1])
    assert (published.publisher, published.sequence) == (2, 2)  # type: ignore[union-attr]


class Reader(Host):
    """A role that takes mail."""

    def handlers(self) -> Mapping[type, Handler]:
        return {**super().handlers(), routing.Posted: self._note}


def test_mail_goes_to_the_role_of_that_name_and_to_no_other() -> None:
    left, right = Reader("left", "a.#"), Reader("right", "b.#")
    rig = Rig(left, right, Host("deaf", "c.#"))
    mail = [routing.Posted("far", role, b"hello") for role in ("left", "right", "deaf", "nobody")]
    rig.machine._queue.extend(mail)
    left.effects.append(routing.Post("far", "right", b"answer"))
    rig.machine.take_output()

    assert (left.facts, right.facts) == ([mail[0]], [mail[1]])
    assert rig.router.told[-1] == routing.Post("far", "right", b"answer")


def test_mail_has_a_limit() -> None:
    left = Host("left", "a.#")
    rig = Rig(left)
    left.effects.append(routing.Post("far", "right", bytes(routing.MAIL_BYTES_MAX)))
    rig.machine.take_output()
    left.effects.append(routing.Post("far", "right", bytes(routing.MAIL_BYTES_MAX + 1)))

    with pytest.raises(ValueError, match="mail to right of 'far' has 65,537 bytes"):
        rig.machine.take_output()


def test_a_pubend_has_one_host_and_other_facts_one_taker() -> None:
    with pytest.raises(ConfigurationError, match="the roles 'same' and 'same' both host same@1"):
        Rig(Host("same", "#"), Host("same", "#"))

    class Curious(Host):
        def handlers(self) -> Mapping[type, Handler]:
            return {**super().handlers(), Know: self._note}

    with pytest.raises(ConfigurationError, match="both answer Know"):
        Rig(Curious("left", "#"), Curious("right", "#"))


class Chatterbox(LogRole):
    """Says something in every round, for ever."""

    def take_effects(self) -> list[object]:
        return [Write([])]


def test_parts_that_never_fall_silent_are_stopped() -> None:
    with pytest.raises(AssertionError, match=f"after {ROUNDS_MAX} rounds"):
        Rig(Chatterbox())


def test_an_effect_that_nobody_knows_is_a_bug(rig: Rig) -> None:
    rig.role.effects.append("surprise")

    with pytest.raises(KeyError):
        rig.machine.take_output()


def test_a_violation_ends_one_session_and_a_bug_ends_the_step(rig: Rig) -> None:
    wire, other = rig.connect(1, publisher=False), rig.connect(2, publisher=False)

    assert kinds(rig.say(1, wire, ListPubends(-1))) == ["Closing"]
    with pytest.raises(HandlerFailedError, match="a bug in a core"):
        rig.feed(2, other, ListPubends(666))


def test_a_quiet_step_wants_nothing() -> None:
    assert not Output()
    assert Output(cookies=[(0, 1)])


def test_a_resume_reaches_the_client(rig: Rig) -> None:
    wire = rig.connect(1)

    (refused,) = rig.say(1, wire, Publish(1, 1, 5, columns(b"a")))

    assert (refused.code, refused.sequence) == (Code.RESUME, 1)


def test_handlers_are_those_of_the_role_that_declares_them(rig: Rig) -> None:
    assert rig.machine._to_roles[Submit] == {0: rig.role._on_submit}
    assert SessionEnded not in rig.machine._to_roles
