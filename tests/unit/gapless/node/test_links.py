"""A node's links on the event loop: dials that hang, fail or come too late, strangers, timers, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from gapless.core.alarms import Alarm
from gapless.core.network import facts as routing
from gapless.core.network.greeting import LinkIdentity
from gapless.core.network.links import GREETING_TIME, LinkPhase
from gapless.core.network.peers import STRANGERS_MAX, BrokerLinks
from gapless.node.links import NodeLinks
from gapless.node.machine import Machine
from gapless.spi import Certificate, Link, LinkHandler, Transport
from links import FakeLink

ROLES = {"a": frozenset({"phb"}), "b": frozenset({"shb"})}


class FakeMachine:
    """Notes what it is told of brokers."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.failures: list[BaseException] = []

    def on_broker_link(self, *said: Any) -> None:
        self.told.append(("up", *said))

    def on_broker_frame(self, *said: Any) -> None:
        self.told.append(("frame", *said))

    def on_broker_pending(self, *said: Any) -> None:
        self.told.append(("pending", *said))

    def on_broker_link_closed(self, *said: Any) -> None:
        self.told.append(("down", *said))

    def on_ran_twice(self, *said: Any) -> None:
        self.told.append(("ran twice", *said))

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)


class Dialing:
    """A transport whose dials the test answers."""

    def __init__(self) -> None:
        self.dialed: list[tuple[str, Callable[[Link], LinkHandler]]] = []
        self.cancelled = 0
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def dial(self, address: str, accept: Callable[[Link], LinkHandler]) -> None:
        self.dialed.append((address, accept))
        try:
            await asyncio.shield(self.answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


class Side:
    """One node's links, and the world around them."""

    def __init__(self, name: str, now: list[int], transport: Dialing) -> None:
        self.machine: Machine = cast("Machine", FakeMachine())
        self.heard = cast("FakeMachine", self.machine)
        self.alarms: list[Alarm] = []
        self.clock = lambda: (now[0], 0)
        me = LinkIdentity("flights", name, ROLES[name], 7, "straight", secret=b"s")
        addresses = {other: f"{other}:1" for other in ROLES}
        self.core = BrokerLinks(me, ROLES, addresses, name.encode())
        self.links = NodeLinks(self.core, cast("Transport", transport), self, ())

    def alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)

    def on_shut_out(self, shut_out: routing.ShutOut) -> None:
        self.heard.told.append(("shut out", shut_out))

    def dial(self, peer: str) -> None:
        self.links.to_network(routing.Dial(peer))
        self.links.flush()


class Rig:
    """Node `a` dials node `b`."""

    def __init__(self) -> None:
        self.now = [10**9]
        self.transport = Dialing()
        self.a = Side("a", self.now, self.transport)
        self.b = Side("b", self.now, Dialing())

    def take_up(self, number: int = 0) -> FakeLink:
        """A dial of `a` reaches somebody; returns its end of the link."""
        link = FakeLink()
        link.handler = self.transport.dialed[number][1](link)
        return link

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def link(self) -> tuple[FakeLink, FakeLink]:
        """Both ends of a link that is up."""
        self.a.dial("b")
        await self.settle()
        here, there = self.take_up(), FakeLink()
        there.handler = self.b.links.accept(there)
        for _ in range(4):
            await self.settle()
            self.carry(here, there)
            self.carry(there, here)
        return here, there

    def carry(self, source: FakeLink, target: FakeLink) -> None:
        """What one end has sent arrives at the other."""
        sent, source.sent = source.sent, []
        if sent and target.handler is not None:
            target.handler.on_frames(sent)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    for side in (rig.a, rig.b):
        side.links.close("the test is over")
        await side.links.closed()


async def test_a_link_comes_up_and_carries_frames(rig: Rig) -> None:
    here, there = await rig.link()
    assert rig.a.heard.told == [("up", 1, "b", frozenset({"shb"}), 7)]
    assert rig.b.heard.told == [("up", 1, "a", frozenset({"phb"}), 7)]

    rig.a.links.to_network(routing.SendFrame(1, b"ordinary"))
    rig.a.links.to_network(routing.SendFrame(1, b"urgent", urgent=True))
    here.calls.clear()
    rig.a.links.flush()

    assert here.calls == [("send", 1, True), ("send", 1, False)]
    rig.carry(here, there)
    assert rig.b.heard.told[1:] == [("frame", 1, b"urgent"), ("frame", 1, b"ordinary")]


async def test_the_limit_is_raised_while_the_last_word_of_the_handshake_is_handled(rig: Rig) -> None:
    here, there = await rig.link()

    assert [call[0] for call in here.calls if call[0] == "limit"] == ["limit"]
    assert [call[0] for call in there.calls if call[0] == "limit"] == ["limit"]


async def test_a_dial_that_fails_is_tried_again(rig: Rig) -> None:
    rig.transport.answer.set_exception(ConnectionRefusedError(111, "Connection refused"))

    rig.a.dial("b")
    await rig.settle()
    assert len(rig.transport.dialed) == 1
    rig.now[0] += 10**9
    rig.a.core.on_deadline(rig.now[0])
    rig.a.links.flush()
    await rig.settle()

    assert len(rig.transport.dialed) == 2
    rig.now[0] += 10 * 10**9
    rig.a.core.on_deadline(rig.now[0])
    rig.a.links.flush()
    assert "Connection refused" in rig.a.alarms[0].text


async def test_the_timer_comes_by_itself(rig: Rig) -> None:
    rig.transport.answer.set_exception(OSError("no way there"))
    rig.a.dial("b")
    await rig.settle()

    rig.now[0] += 3600 * 10**9
    for _ in range(1000):
        if len(rig.transport.dialed) > 1:
            break
        await asyncio.sleep(0.01)

    assert len(rig.transport.dialed) > 1


async def test_a_dial_that_hangs_is_given_up(rig: Rig) -> None:
    rig.a.dial("b")
    await rig.settle()

    rig.now[0] += GREETING_TIME
    rig.a.core.on_deadline(rig.now[0])
    rig.a.links.flush()
    await rig.settle()

    assert rig.transport.cancelled == 1


async def test_who_answers_when_nobody_waits_any_more_is_let_go(rig: Rig) -> None:
    rig.a.dial("b")
    await rig.settle()
    rig.now[0] += GREETING_TIME
    rig.a.core.on_deadline(rig.now[0])
    rig.a.links.flush()

    link = rig.take_up()
    await rig.settle()

    assert link.closed == "nobody waits for it any more"
    assert link.sent == []


async def test_a_flood_of_strangers_is_sent_away(rig: Rig) -> None:
    strangers = [FakeLink() for _ in range(STRANGERS_MAX + 3)]
    for stranger in strangers:
        stranger.handler = rig.b.links.accept(stranger)
    await rig.settle()

    assert [stranger.closed for stranger in strangers].count(None) == STRANGERS_MAX
    assert strangers[-1].closed == "too many are on their way in"


async def test_what_breaks_the_framing_ends_the_link_with_a_reason(rig: Rig) -> None:
    here, there = await rig.link()
    assert there.handler is not None

    there.handler.on_broken("a frame of 2 GiB")
    await rig.settle()

    assert there.closed == "a frame of 2 GiB"
    assert rig.b.heard.told[-1] == ("down", 1)
    rig.carry(there, here)
    assert rig.a.heard.told[-1] == ("down", 1)
    assert here.closed == "it closed the link: a frame of 2 GiB"


async def test_a_bug_in_the_core_ends_the_machine(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    here, _ = await rig.link()
    assert here.handler is not None
    error = ValueError("a bug")

    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(rig.a.core, "on_payloads", broken)
    here.handler.on_frames([b"x"])

    assert rig.a.heard.failures == [error]


async def test_at_the_end_links_are_closed_and_dials_given_up_and_nothing_more_happens(rig: Rig) -> None:
    here, there = await rig.link()
    rig.b.dial("a")

    rig.a.links.close("the node is stopping")
    await asyncio.wait_for(rig.a.links.closed(), 10)

    assert here.closed == "the node is stopping"
    assert rig.a.heard.told[-1] == ("down", 1)
    rig.carry(here, there)
    assert there.closed == "it closed the link: the node is stopping"
    told = len(rig.a.heard.told)
    assert here.handler is not None
    here.handler.on_frames([b"late"])
    here.handler.on_closed("")
    rig.a.links.flush()
    assert len(rig.a.heard.told) == told


async def test_a_certificate_s_name_reaches_the_core(rig: Rig) -> None:
    rig.a.dial("b")
    await rig.settle()
    link = FakeLink()
    link.certificate = Certificate("b")

    link.handler = rig.transport.dialed[0][1](link)

    (made,) = rig.a.core._links.values()
    assert (made.phase, made.certificate) == (LinkPhase.GREETING, "b")
