"""The client's session (protocol: session): greeting, heartbeats, reconnecting, what is ignored."""

from __future__ import annotations

import pytest

from gapless.core.client import OPEN_LINK
from gapless.core.client.link import effects as e
from gapless.core.client.session import ConnectionPhase
from gapless.core.wire import messages as m
from gapless.core.wire.codec import decode_client, encode
from gapless.errors import (
    ConnectionClosedError,
    ConnectionRefusedByBrokerError,
    PublishUncertainError,
)
from unit.gapless.client.fake_broker import FakeBroker
from unit.gapless.core.client.harness import SECOND, World, columns, joined


def test_a_session_is_opened() -> None:
    world = World().start()

    assert world.core.connected
    assert world.core.network == "net"
    assert world.effects(e.Connected) == [e.Connected("a:1", "fake", "net")]
    assert world.effects(e.RaiseLimit) == [e.RaiseLimit(1, world.broker.frame_bytes)]


def test_the_first_hello_names_no_network_and_later_ones_the_one_it_met() -> None:
    world = World().start()
    world.reconnect()

    assert [hello.network for hello in world.broker.messages(m.Hello)] == ["", "net"]
    assert {hello.instance for hello in world.broker.messages(m.Hello)} == {"instance-1"}


@pytest.mark.parametrize(
    "phase", [ConnectionPhase.DIALLING, ConnectionPhase.GREETING, ConnectionPhase.OPEN, ConnectionPhase.WAITING]
)
def test_it_comes_back_from_any_state(phase: ConnectionPhase) -> None:
    world = World()
    world.core.start(world.now)
    (dial,) = world.core.take_effects()
    assert isinstance(dial, e.OpenLink)
    if phase is ConnectionPhase.DIALLING:
        world.core.on_link_down(dial.link, "refused", world.now)
    else:
        world.dial(dial)
        if phase is not ConnectionPhase.GREETING:
            world.pump()
        assert world.core.phase is (
            ConnectionPhase.GREETING if phase is ConnectionPhase.GREETING else ConnectionPhase.OPEN
        )
        world.links.clear()
        world.broker.disconnect(dial.link)
        world.core.on_link_down(dial.link, "cut", world.now)
    assert world.core.phase is ConnectionPhase.WAITING
    world.core.on_link_down(dial.link, "cut again", world.now)

    world.advance(1)

    assert world.core.connected


def test_what_an_earlier_link_says_is_ignored() -> None:
    world = World().start()
    world.reconnect()
    before = world.core.phase, world.core.deadline()

    world.core.on_frames(1, [encode(1, m.Closing("late"))], world.now)
    world.core.on_frames(1, [b"garbage"], world.now)
    world.core.on_link_up(1, OPEN_LINK, world.now)
    world.core.on_link_down(1, "late", world.now)

    assert (world.core.phase, world.core.deadline()) == before
    assert world.core.take_effects() == []


def test_a_frame_of_an_earlier_session_is_ignored() -> None:
    world = World().start()
    world.reconnect()

    world.broker.tell(world.broker.session, m.Closing("stale"), number=1)
    world.broker.tell(world.broker.session, m.Closing("of nobody"), number=0)
    world.pump()

    assert world.core.connected


def test_the_address_that_failed_is_followed_by_the_next() -> None:
    world = World(addresses=("a:1", "b:2", "c:3"))
    world.unreachable = {"a:1", "b:2"}
    world.start()
    world.advance(2)

    assert world.dialled == ["a:1", "b:2", "c:3"]
    assert world.core.connected
    assert world.effects(e.Unreachable) == []

    world.cut()
    world.advance(20)
    assert world.dialled[3:] == ["a:1", "b:2", "c:3"]


def test_it_says_once_per_round_that_nobody_answers_and_goes_on_trying() -> None:
    world = World(addresses=("a:1", "b:2"))
    world.unreachable = {"a:1", "b:2"}
    world.start()
    world.advance(0.5)
    assert [effect.reason for effect in world.effects(e.Unreachable)] == ["a:1: nobody answers; b:2: nobody answers"]

    world.advance(60)
    world.unreachable = set()
    world.advance(6)
    assert world.core.connected


def test_delays_grow_and_differ_between_clients() -> None:
    def delays(seed: int) -> list[float]:
        world = World(seed=seed)
        world.unreachable = {"a:1"}
        world.start()
        found = []
        for _ in range(8):
            due = world.core.deadline()
            assert due is not None
            found.append((due - world.now) / SECOND)
            world.advance(found[-1])
        return found

    first = delays(1)
    assert all(0.5 * min(0.1 * 2**n, 5) <= delay <= min(0.1 * 2**n, 5) for n, delay in enumerate(first))
    assert first == delays(1)
    assert first != delays(2)


def test_after_a_steady_session_the_first_try_comes_soon() -> None:
    world = World()
    world.unreachable = {"a:1"}
    world.start()
    world.advance(30)
    world.unreachable = set()
    world.advance(10)
    world.advance(5)

    world.cut()
    world.advance(0.1)

    assert world.core.connected


def test_sessions_that_break_at_once_are_not_tried_in_a_tight_loop() -> None:
    world = World().start()
    for _ in range(10):
        world.broker.tell_raw(world.broker.session.link, encode(world.broker.session.number, m.Closing("go")))
        world.pump()
        world.advance(5)

    assert len(world.dialled) <= 11

    dialled = len(world.dialled)
    world.broker.refusal = m.HelloRefused(m.Code.RETRY, "full")
    world.cut()
    world.advance(60)
    assert len(world.dialled) - dialled < 30


def test_heartbeats_are_sent_when_there_is_nothing_else_to_say() -> None:
    world = World().start()
    world.advance(10.5)

    assert len(world.broker.messages(m.Heartbeat)) == 10
    assert world.core.connected


def test_no_heartbeat_is_sent_while_there_is_something_to_say() -> None:
    world = World().start()
    publisher = world.open()
    for _ in range(20):
        world.advance(0.5)
        world.publish(publisher, b"x")

    assert len(world.broker.messages(m.Heartbeat)) <= 1


def test_a_silent_link_is_dead_after_three_heartbeats() -> None:
    world = World().start()
    world.broker.silent = True

    world.advance(2.9)
    assert world.core.connected

    world.advance(0.2)
    assert "nothing was heard for 3 s" in world.effects(e.Disconnected)[0].reason
    assert any("nothing was heard" in hangup.reason for hangup in world.effects(e.CloseLink))


def test_a_process_that_overslept_listens_before_it_judges() -> None:
    """The frames that lie in the socket were sent in time; the timer may run before they are read."""
    world = World().start()
    world.now += 60 * SECOND
    world.core.on_deadline(world.now)
    world.pump()
    assert world.core.connected

    world.broker.silent = True
    world.advance(0.9)
    assert world.core.connected
    world.advance(3)
    assert world.effects(e.Disconnected) != []


def test_a_dial_or_greeting_that_takes_too_long_is_given_up() -> None:
    world = World()
    world.core.start(world.now)
    (dial,) = world.core.take_effects()
    assert isinstance(dial, e.OpenLink)
    world.now += 10 * SECOND
    world.core.on_deadline(world.now)

    effects = world.core.take_effects()
    assert e.CloseLink(dial.link, "the broker did not answer in time") in effects

    world.core.on_link_up(dial.link, OPEN_LINK, world.now)
    assert world.core.take_effects() == []


IN_SESSION = b"\1" + bytes(15)
"""The head of a frame of session 1; it gets its number when it is sent."""


@pytest.mark.parametrize(
    "garbage",
    [
        b"short",
        b"12345678",
        IN_SESSION + b"\xc1\xc1",
        IN_SESSION + b"\2\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff",
        IN_SESSION + b"\x92\x63\x01",
        encode(1, m.DeliverSilence(9, 5, None)),
        encode(1, m.Welcome(1, 2, "net", "x", True, 1, 1, 1, 1, 1)),
        encode(1, m.HelloRefused(m.Code.RETRY, "late")),
    ],
    ids=["short", "no message", "no msgpack", "huge count", "unknown kind", "unknown pubend", "Welcome", "Refused"],
)
def test_garbage_from_the_broker_ends_the_link_and_nothing_else(garbage: bytes) -> None:
    world = World().start()
    publisher = world.open()
    reader = world.subscribe()
    assert garbage[:8] != b"\1\0\0\0\0\0\0\0" or world.broker.session.number == 1

    world.broker.tell_raw(world.broker.session.link, garbage)
    world.pump()
    assert not world.core.connected or garbage == b"12345678"
    world.advance(5)

    assert world.core.connected
    world.publish(publisher, b"after")
    assert reader.take_all() == [b"after"]


@pytest.mark.parametrize(
    "message",
    [
        m.BrokerHeartbeat(),
        m.Closing("no"),
        m.Welcome(m.PROTOCOL + 1, 2, "net", "x", True, 1000, 1, 1, 1, 1),
        m.Welcome(m.PROTOCOL, 0, "net", "x", True, 1000, 1, 1, 1, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 0, 1, 1, 1, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 1000, 0, 1, 1, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 1000, 1, 0, 1, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 1000, 1, (64 << 20) + 1, 1, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 1000, 1, 1, 0, 1),
        m.Welcome(m.PROTOCOL, 3, "net", "x", True, 1000, 1, 1, 1, -1),
    ],
    ids=[
        "Alive",
        "Closing",
        "other protocol",
        "no session",
        "no heartbeat",
        "no event",
        "no frame",
        "frames without end",
        "no batch",
        "no window",
    ],
)
def test_a_greeting_that_makes_no_sense_ends_the_link(message: m.ServerMessage) -> None:
    world = World()
    world.core.start(world.now)
    (dial,) = world.core.take_effects()
    assert isinstance(dial, e.OpenLink)
    world.core.on_link_up(dial.link, OPEN_LINK, world.now)
    world.core.take_effects()

    world.core.on_frames(dial.link, [encode(0, message)], world.now)

    assert world.core.phase is ConnectionPhase.WAITING


def test_an_address_in_another_network_is_no_address() -> None:
    """The network is pinned by the first Welcome: a broker that was set up anew is not the same one."""
    world = World().start()
    reader = world.subscribe()
    world.broker.restart()
    world.broker.network = "other"
    world.pump()
    world.advance(1)

    (closed,) = world.effects(e.Closed)
    assert isinstance(closed.error, ConnectionRefusedByBrokerError)
    assert isinstance(world.failure(reader.number), ConnectionRefusedByBrokerError)
    assert world.core.deadline() is None


def test_a_refusal_is_final_only_when_every_address_refuses() -> None:
    world = World(addresses=("a:1", "b:2"))
    world.broker.refusal = m.HelloRefused(m.Code.UNAUTHORIZED, "who are you")
    world.unreachable = {"b:2"}
    world.start()
    world.advance(10)
    assert world.effects(e.Closed) == []
    assert any("who are you" in notice.text for notice in world.effects(e.Notice))

    world.unreachable = set()
    world.advance(10)
    (closed,) = world.effects(e.Closed)
    assert str(closed.error) == "who are you"


def test_a_broker_that_is_full_is_asked_again() -> None:
    world = World()
    world.broker.refusal = m.HelloRefused(m.Code.RETRY, "full")
    world.start()
    world.advance(3)
    world.broker.refusal = None
    world.advance(5)

    assert world.core.connected


def test_a_broker_that_shuts_down_is_left_for_another() -> None:
    world = World(addresses=("a:1", "b:2")).start()
    world.broker.tell(world.broker.session, m.Closing("shutting down"))
    world.pump()
    assert world.effects(e.Disconnected) == [e.Disconnected("a:1", "shutting down")]

    world.advance(1)
    assert world.dialled == ["a:1", "b:2"]
    assert world.core.connected


CUT_OFF = m.BrokerHeartbeat("no link to the network")


def test_a_broker_that_is_cut_off_is_left_for_another() -> None:
    world = World(addresses=("a:1", "b:2")).start()
    world.broker.tell(world.broker.session, CUT_OFF)
    world.pump()
    assert world.effects(e.Disconnected) == [e.Disconnected("a:1", "the broker is cut off: no link to the network")]

    world.advance(1)
    assert world.dialled == ["a:1", "b:2"]
    assert world.core.connected


def test_where_all_are_cut_off_or_there_is_one_it_stays() -> None:
    alone = World(addresses=("a:1", "a:1")).start()
    alone.broker.tell(alone.broker.session, CUT_OFF)
    alone.pump()
    assert alone.core.connected

    world = World(addresses=("a:1", "b:2")).start()
    for _ in range(3):
        world.broker.tell(world.broker.session, CUT_OFF)
        world.pump()
        world.advance(1)
    assert world.dialled == ["a:1", "b:2"]
    assert world.core.connected


def test_what_was_cut_off_long_ago_counts_no_more() -> None:
    world = World(addresses=("a:1", "b:2")).start()
    for said in (CUT_OFF, m.BrokerHeartbeat(), CUT_OFF):
        world.broker.tell(world.broker.session, said)
        world.pump()
        world.advance(2)

    assert world.dialled == ["a:1", "b:2", "a:1"]


def test_close_says_goodbye_last_and_ends_everything() -> None:
    world = World().start()
    publisher = world.open()
    reader = world.subscribe()
    world.broker.silent = True
    ticket = world.publish(publisher, b"x")
    asked = world.core.list_pubends(world.now)
    world.core.take_effects()

    world.core.close(world.now)
    world.pump()

    assert isinstance(world.broker.received[-1], m.Goodbye)
    assert isinstance(world.receipts(publisher)[ticket], PublishUncertainError)
    assert isinstance(world.failure(publisher), PublishUncertainError)
    assert isinstance(world.failure(reader.number), ConnectionClosedError)
    assert isinstance(world.failure(asked), ConnectionClosedError)
    assert world.effects(e.Closed) == [e.Closed(None)]
    assert world.core.deadline() is None

    world.core.close(world.now)
    assert world.core.take_effects() == []


def test_close_without_a_link_is_just_as_final() -> None:
    world = World()
    world.unreachable = {"a:1"}
    world.start()
    world.core.close(world.now)
    world.pump()

    assert world.effects(e.Closed) == [e.Closed(None)]
    assert world.core.deadline() is None


def test_control_messages_are_urgent_and_events_are_not() -> None:
    world = World().start()
    publisher = world.open()
    world.subscribe()
    world.publish(publisher, b"x")
    world.advance(2)
    world.core.close(world.now)
    world.pump()

    kinds = {type(message): send.urgent for send in world.sends for message in _decoded(send)}
    assert kinds[m.Publish] is False
    assert kinds[m.OpenPublisher] is False, "an opening would fence a batch that was sent before, and overtaken"
    assert kinds[m.Goodbye] is False
    assert kinds[m.Subscribe] is True
    assert kinds[m.Heartbeat] is False, "it finds the loss of what was published last"


def test_what_one_step_sends_goes_in_one_effect() -> None:
    world = World(FakeBroker()).start()
    publisher = world.open()
    for _ in range(5):
        world.core.publish(publisher, columns(b"x"), (), world.now)

    (send,) = [effect for effect in world.core.take_effects() if isinstance(effect, e.SendFrames)]
    assert len(send.payloads) == 5


def _decoded(send: e.SendFrames) -> list[object]:
    return [decode_client(joined(payload)) for payload in send.payloads]


def still(world: World, seconds: float) -> bool:
    world.advance(seconds)
    return world.core.stands_still(world.now)


def test_whoever_leaves_asks_for_a_sign_of_life_and_a_broker_that_gives_none_stands_still() -> None:
    world = World().start()
    assert not still(world, 4), "nobody has asked"

    world.core.ask_for_life(world.now)
    world.pump()
    assert not still(world, 3), "it has answered"
    world.broker.silent = True
    assert not still(world, 0.5)
    world.core.ask_for_life(world.now)
    world.pump()
    assert not still(world, 1.9)
    world.core.ask_for_life(world.now)  # that it is asked again changes nothing
    assert still(world, 0.1)


def test_a_broker_that_is_gone_stands_still_and_one_that_is_too_old_to_be_asked_does_not() -> None:
    world = World().start()
    world.broker.answers = ()
    world.reconnect()
    world.core.ask_for_life(world.now)
    assert not still(world, 4)

    world.unreachable.add("a:1")
    world.cut()
    world.core.ask_for_life(world.now)
    assert still(world, 2)
