"""An engine without a loop: the order of a turn, and what ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.network.facts import NetworkMap, SendFrame
from gapless.core.network.seam import Router, RouterContext
from gapless.core.ports import AllowAll, Operation, Put, Read, Write
from gapless.core.server import BrokerIdentity, SessionLimits
from gapless.core.wire.messages import OpenPublisher
from gapless.node.auth import Anonymous
from gapless.node.engine import Engine
from gapless.node.machine import Cookie, Machine, Network
from links import FakeLink
from nodes import STREAM, LogRole, StraightRouter
from volumes import FakeVolume
from wire import hello, kinds

NOW, WALL = 10**9, 1_700_000_000_000


class World:
    """A shell that notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.due: int | None = None
        self.now = NOW
        self.role = LogRole()
        self.volume = FakeVolume()
        identity = BrokerIdentity("node", "net", durable=True, start=1)
        router = cast("Router", StraightRouter())
        self.machine = Machine(identity, SessionLimits(), Anonymous(), AllowAll(), router, [self.role])
        self.machine.start(NOW, WALL, RouterContext("node", 1, NetworkMap({})))
        self.engine = Engine(self.machine, self.volume, self)

    def clock(self) -> tuple[int, int]:
        return self.now, WALL

    def schedule(self) -> None:
        self.calls.append("schedule")

    def commit(self, operations: Sequence[Operation], cookies: Sequence[Cookie]) -> None:
        self.calls.append(("commit", [type(operation).__name__ for operation in operations], list(cookies)))

    def carry_out_reads(self) -> None:
        self.calls.append(("reads", len(self.engine.reads)))

    def arm(self, now: int, due: int) -> None:
        self.due = due

    def to_network(self, effect: Network) -> None:
        self.calls.append(effect)

    def alarm(self, alarm: Alarm) -> None:
        self.calls.append(("alarm", alarm))

    def on_last_link_closed(self) -> None:
        self.calls.append("no links")

    def on_failed(self, error: BaseException) -> None:
        self.calls.append(error)

    def turn(self) -> list[Any]:
        self.calls.clear()
        self.engine.turn()
        return self.calls


def test_whatever_happens_before_a_turn_asks_for_one_turn() -> None:
    world = World()
    world.engine.on_broker_frame(1, b"")
    world.engine.on_broker_frame(1, b"")

    assert world.calls == ["schedule"]
    assert world.turn() == []


async def test_a_turn_writes_first_then_sends_then_reads_then_speaks() -> None:
    world = World()
    link = FakeLink()
    owner = world.engine.accept(link)
    link.handler = owner
    link.say(hello(instance="one"))
    world.turn()
    assert kinds(link.hear()) == ["Welcome"]
    link.say(OpenPublisher(1, "loader", "instance", 1, None))
    world.role.effects += [
        Read(STREAM, 0, 1, "cookie"),
        Alarm(AlarmCode.DISK_LOW, "look"),
        Write([Put(STREAM, 99, b"")], None),
    ]
    world.machine._output.network.append(SendFrame(1, b"frame"))

    calls = world.turn()

    assert [call[0] if isinstance(call, tuple) else call for call in calls] == [
        "commit",
        "alarm",
        SendFrame(1, b"frame"),
        "reads",
    ]
    assert kinds(link.hear()) == ["PublisherOpened"]
    assert world.due is not None


def test_an_exception_ends_it_and_nothing_is_carried_out_any_more() -> None:
    world = World()
    bug = ValueError("a bug in a core")

    def broken(*_: Any) -> None:
        raise bug

    world.machine.on_broker_frame = broken  # type: ignore[method-assign,assignment]
    world.engine.on_broker_frame(1, b"")

    assert world.turn() == [bug]
    assert not world.engine.alive
    world.engine.on_broker_frame(1, b"")
    assert world.turn() == []


async def test_the_last_link_that_closes_is_told() -> None:
    world = World()
    owners = [world.engine.accept(FakeLink()) for _ in range(2)]

    owners[0].on_closed("")
    assert "no links" not in world.calls
    owners[1].on_closed("")
    assert "no links" in world.calls


async def test_who_abandons_it_gets_the_links() -> None:
    world = World()
    owner = world.engine.accept(FakeLink())

    assert list(world.engine.abandon().values()) == [owner]
    assert not world.engine.alive
