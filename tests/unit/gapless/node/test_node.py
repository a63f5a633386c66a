"""A node: starting, restarting after a failure, stopping (INV12, S09, S11, S17, P05, P12)."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gapless import plugins
from gapless.core.alarms import ALARMS, AlarmCode
from gapless.core.gauges import value_of
from gapless.core.server import HandlerFailedError
from gapless.core.wire.messages import Closing, Code, ListPubends, OpenPublisher, Publish
from gapless.errors import (
    ConfigurationError,
    VolumeCorruptError,
    VolumeFailedError,
    VolumeFullError,
    VolumeLockedError,
)
from gapless.node import node as node_module
from gapless.node.config import NodeConfig, make_config
from gapless.node.gauges import SERVING, SESSIONS
from gapless.node.node import CRASHES_MAX, SWITCH_INTERVAL, YOUNG_OBJECTS, Node, serve
from gapless.security.anonymous import Anonymous
from links import FakeLink, FakeListener, FakeTransport
from nodes import LAST, STREAM, LogRole, StraightRouter
from volumes import FakeVolume
from wire import columns, hello, kinds


class World:
    """What a node finds when it starts: a disk that survives it, plugins, and a transport."""

    def __init__(self) -> None:
        self.disk = FakeVolume()
        self.transport = FakeTransport()
        self.memory = FakeTransport()
        self.opened = 0
        self.open_errors: list[Exception] = []
        self.roles: list[LogRole] = []
        self.bug_at_start = 0
        self.trying = False

    def load(self, kind: str, name: str) -> Any:
        hooks = {
            "auth": lambda **_: Anonymous(),
            "transport": lambda **_: self.memory if name == "memory" else self.transport,
            "storage": self.try_storage if name == "memory" else self.open_storage,
            "routing": lambda **_: StraightRouter(),
            "role": self.open_role,
        }
        return hooks[kind]

    def try_storage(self, **_: Any) -> FakeVolume:
        """An empty one, over which a role is made to see whether its settings are right."""
        self.trying = True
        return FakeVolume()

    def open_storage(self, **_: Any) -> FakeVolume:
        """The same disk again, as its last opener left it."""
        self.opened += 1
        if self.open_errors:
            raise self.open_errors.pop(0)
        assert self.opened == 1 or self.disk.closed
        self.disk.closed = False
        self.disk.created = False
        return self.disk

    def open_role(self, context: Any) -> LogRole:
        if self.trying:
            self.trying = False
            return LogRole(0)
        if self.bug_at_start:
            self.bug_at_start -= 1
            raise ValueError("a bug in recovery")
        role = LogRole(context.reader.facts(STREAM).decided)
        self.roles.append(role)
        return role

    async def start(self, **sections: Any) -> Node:
        return await Node.start(self.config(**sections))

    def config(self, **sections: Any) -> NodeConfig:
        return make_config({"node": {"roles": ["log"]}, "listen": [{"address": "127.0.0.1:0"}], **sections})

    @property
    def listener(self) -> FakeListener:
        return self.transport.listeners[-1]  # the one before was there for a moment, to see whether it can be

    async def connect(self, instance: str = "one", *, publisher: bool = True) -> FakeLink:
        link = self.listener.connect()
        link.say(hello(instance=instance))
        await until(lambda: link.sent)
        assert kinds(link.hear()) == ["Welcome"]
        if publisher:
            link.say(OpenPublisher(1, "loader", "instance", 1, None))
            await until(lambda: link.sent)
            assert kinds(link.hear()) == ["PublisherOpened"]
        return link


async def until(condition: Any) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never became true")


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    world = World()
    monkeypatch.setattr(plugins, "load", world.load)
    monkeypatch.setattr(node_module, "PAUSE_FIRST", 0.01)
    monkeypatch.setattr(node_module, "PAUSE_MOST", 0.04)
    yield world
    world.disk.gate.set()


async def test_a_node_says_where_it_is_reached(world: World) -> None:
    node = await world.start()

    assert node.address == "127.0.0.1:4711"
    assert node.addresses == ["127.0.0.1:4711"]
    assert node.url == "gapless://127.0.0.1:4711"
    assert node.urls == [node.url]
    assert node.serving
    gauges = list(node.gauges())
    assert value_of(gauges, SERVING, node="broker") == 1
    assert value_of(gauges, LAST) == 0
    assert value_of(gauges, SESSIONS) == 0
    await node.stop()
    assert list(node.gauges()) == [SERVING.gauge(0, "broker")]
    assert not node.serving


async def test_a_node_with_tls_says_so(world: World) -> None:
    world.transport.encrypts = True
    node = await world.start()

    assert node.url == "gapless+tls://127.0.0.1:4711"
    await node.stop()


async def test_a_node_without_listeners_is_dialed_within_the_process(world: World) -> None:
    dialed: list[Any] = []

    async def dial(address: str, accept: Any) -> Any:
        dialed.append((address, accept))
        return "link"

    world.memory.dial = dial  # type: ignore[method-assign]
    node = await world.start(listen=[])
    with pytest.raises(ConfigurationError, match="no listener"):
        _ = node.address

    def accept(_: Any) -> Any:
        return None

    links: list[Any] = [await node.dial(accept), await node.dial(accept)]
    assert links == ["link", "link"]

    assert len(world.memory.listeners) == 1
    assert dialed == [(world.memory.listeners[0].address, accept)] * 2
    await node.stop()
    assert world.memory.listeners[0].closed


async def test_the_start_is_counted_on_disk_before_the_first_welcome(world: World) -> None:
    node = await world.start()
    link = await world.connect()

    assert world.disk.calls[:2] == ["write set node, set node, set node, set node, set node", "sync"]
    first = link.wire.session >> 32
    await node.stop()
    node = await world.start()
    world.transport.listeners[:] = world.transport.listeners[-1:]
    assert (await world.connect(publisher=False)).wire.session >> 32 == (first + 1) % (1 << 32)
    await node.stop()


async def test_an_address_that_cannot_be_bound_leaves_nothing_open(world: World) -> None:
    world.transport.error = ConfigurationError("address in use")

    with pytest.raises(ConfigurationError, match="address in use"):
        await world.start()

    assert world.opened == 0


async def test_an_address_that_is_taken_meanwhile_leaves_nothing_open(world: World) -> None:
    """Somebody else is there when the volume has been opened."""
    listen = world.transport.listen

    async def once(address: str, accept: Any) -> Any:
        listener = await listen(address, accept)
        world.transport.error = ConfigurationError("address in use")
        return listener

    world.transport.listen = once  # type: ignore[method-assign]
    with pytest.raises(ConfigurationError, match="address in use"):
        await world.start()

    assert world.opened == 1
    assert world.disk.closed


async def test_a_volume_in_use_is_said_at_once(world: World) -> None:
    world.open_errors = [VolumeLockedError("in use by another process")]

    with pytest.raises(VolumeLockedError):
        await world.start()

    assert all(listener.closed for listener in world.transport.listeners)


async def test_a_core_that_cannot_recover_ends_the_start(world: World) -> None:
    world.bug_at_start = 1

    with pytest.raises(ValueError, match="a bug in recovery"):
        await world.start()

    assert world.disk.closed


async def test_a_core_that_fails_in_its_first_turn_ends_the_start(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(LogRole, "take_effects", lambda *_: ["surprise"])

    with pytest.raises(KeyError):
        await world.start()

    assert world.disk.closed


@pytest.mark.parametrize("error", [VolumeFailedError("EIO"), VolumeFullError("no space")], ids=["failed", "full"])
@pytest.mark.parametrize("how", ["sync", "write"])
async def test_after_a_failure_of_the_storage_a_new_machine_recovers_and_nothing_was_acknowledged(
    world: World, how: str, error: Exception, caplog: Any
) -> None:
    node = await world.start()
    link = await world.connect()
    if how == "sync":
        world.disk.sync_errors = [error]
    else:
        world.disk.write_error = error

    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await until(lambda: not node.serving)
    world.disk.write_error = None
    await until(lambda: node.serving)

    reason = "the broker has failed and recovers" + (": its disk is full" if isinstance(error, VolumeFullError) else "")
    assert link.hear() == [Closing(reason)]
    assert link.closed == reason
    assert world.opened == 2
    assert not world.listener.closed
    assert f"the storage has failed, nothing was acknowledged that is not durable: {error}" in caplog.text
    again = await world.connect()
    first = 2 if how == "sync" else 1  # the batch of a failed sync was there after reopening: it is adopted
    again.say(Publish(1, 1, first, columns(b"b"), b""))
    await until(lambda: again.sent)
    assert kinds(again.hear()) == ["Published"]
    await node.stop()


async def test_who_connects_while_the_node_recovers_is_told_to_come_again(world: World) -> None:
    node = await world.start()
    link = await world.connect()
    world.open_errors = [VolumeFailedError("still broken")] * 3
    world.disk.sync_errors = [VolumeFailedError("EIO")]
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await until(lambda: not node.serving)

    refused = world.listener.connect()
    assert refused.handler is not None
    refused.handler.on_frames([b"whatever"])
    refused.handler.on_drained()

    (answer,) = refused.hear()
    assert (answer.code, answer.reason) == (Code.RETRY, "the broker is recovering")
    assert refused.closed == "the broker is recovering"
    await until(lambda: node.serving)
    assert world.opened == 5
    await node.stop()


async def test_the_pauses_between_attempts_grow(world: World, monkeypatch: Any) -> None:
    pauses: list[float] = []
    node = await world.start()

    async def sleep() -> None:
        pauses.append(node._pause)
        await asyncio.sleep(0)
        node._pause = min(2 * node._pause, node_module.PAUSE_MOST)

    monkeypatch.setattr(node, "_sleep", sleep)
    link = await world.connect()
    world.open_errors = [VolumeFailedError("still broken")] * 4
    world.disk.sync_errors = [VolumeFailedError("EIO")]
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await until(lambda: world.opened == 6 and node.serving)

    assert pauses == [0.01, 0.02, 0.04, 0.04, 0.04]
    await node.stop()


async def test_a_bug_in_a_core_starts_it_over_with_its_traceback_in_the_log(world: World, caplog: Any) -> None:
    node = await world.start()
    link = await world.connect(publisher=False)

    link.say(ListPubends(666))
    await until(lambda: world.opened == 2 and node.serving)

    assert link.closed == "the broker has failed and recovers"
    assert "a bug: an exception in a core" in caplog.text
    assert "_on_list" in caplog.text
    [alarm] = node.alarms()
    assert (alarm.code, alarm.count, alarm.over) == (AlarmCode.BROKER_FAILED.label, 1, False)
    assert value_of(node.gauges(), ALARMS, code=AlarmCode.BROKER_FAILED.label) == 1
    assert "a ListPubends of client 'desk-7' (anonymous) at" in caplog.text
    await world.connect("another")
    await node.stop()


async def test_whoever_felled_it_stays_outside_and_what_felled_it_is_not_handled_again(world: World) -> None:
    """Else it would fall once more as soon as he is back, and end with the fifth time."""
    node = await world.start()
    link = await world.connect(publisher=False)
    link.say(ListPubends(666))
    await until(lambda: world.opened == 2 and node.serving)

    back = world.listener.connect()
    back.say(hello())
    await until(lambda: back.sent)
    assert kinds(back.hear()) == ["HelloRefused"]
    for number in range(CRASHES_MAX):
        other = await world.connect(f"another {number}", publisher=False)
        other.say(ListPubends(666))
        await until(lambda link=other: link.closed)
        assert "this very message" in str(other.closed)

    assert world.opened == 2
    await node.stop()


async def test_a_core_that_keeps_failing_ends_the_node(world: World, caplog: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(node_module, "PAUSE_FIRST", 0.01)
    node = await world.start()
    for number in range(CRASHES_MAX):
        await until(lambda: node.serving)
        link = await world.connect(f"one of {number}", publisher=False)
        link.say(ListPubends(666 + number))
        await until(lambda count=number: world.opened == count + 2 or node._error is not None)

    with pytest.raises(HandlerFailedError, match="a bug in a core"):
        await node.wait()

    assert world.opened == CRASHES_MAX
    assert world.listener.closed
    assert world.disk.closed
    assert "gives up" in caplog.text
    await node.stop()


async def test_crashes_long_ago_are_forgotten(world: World, monkeypatch: Any) -> None:
    monkeypatch.setattr(node_module, "STEADY", 0.0)
    monkeypatch.setattr(node_module, "PAUSE_FIRST", 0.01)
    node = await world.start()
    for number in range(CRASHES_MAX + 2):
        link = await world.connect(f"one of {number}", publisher=False)
        link.say(ListPubends(666 + number))
        await until(lambda count=number: world.opened == count + 2 and node.serving)

    await node.stop()


@pytest.mark.parametrize(
    "error", [VolumeCorruptError("it lost something"), ConfigurationError("gone")], ids=["corrupt", "configuration"]
)
async def test_a_volume_that_must_not_be_served_ends_the_node(world: World, error: Exception) -> None:
    node = await world.start()
    link = await world.connect()
    world.open_errors = [error]
    world.disk.sync_errors = [VolumeFailedError("EIO")]

    link.say(Publish(1, 1, 1, columns(b"a"), b""))

    with pytest.raises(type(error)):
        await node.wait()
    assert world.listener.closed


async def test_stopping_ends_everything_in_order_and_more_than_once(world: World) -> None:
    node = await world.start()
    link = await world.connect()

    await asyncio.gather(node.stop("maintenance"), node.stop())
    await node.stop()
    await node.wait()

    assert [message.reason for message in link.hear()] == ["maintenance"]
    assert link.closed == "maintenance"
    assert world.listener.closed
    assert world.disk.closed


async def test_stopping_does_not_wait_for_a_recovery_that_may_never_succeed(world: World) -> None:
    node = await world.start()
    link = await world.connect()
    world.open_errors = [VolumeFailedError("still broken")] * 10_000
    world.disk.sync_errors = [VolumeFailedError("EIO")]
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await until(lambda: world.opened > 2)

    await node.stop()

    assert world.listener.closed
    assert not node.serving


@pytest.mark.skipif(os.name == "nt", reason="signals")
async def test_serving_ends_with_a_signal(world: World) -> None:
    ready: list[Node] = []

    def on_ready(node: Node) -> None:
        ready.append(node)
        asyncio.get_running_loop().call_soon(stop)

    def stop() -> None:
        thresholds.append(gc.get_threshold()[0])
        intervals.append(sys.getswitchinterval())
        os.kill(os.getpid(), signal.SIGTERM)

    thresholds, intervals = [gc.get_threshold()[0]], [sys.getswitchinterval()]
    await serve(world.config(), on_ready)

    assert len(ready) == 1
    assert [*thresholds[1:], gc.get_threshold()[0]] == [YOUNG_OBJECTS, thresholds[0]], "afterwards as before"
    assert [*intervals[1:], sys.getswitchinterval()] == pytest.approx([SWITCH_INTERVAL, intervals[0]])
    assert world.disk.closed


async def test_serving_says_why_it_could_not_go_on(world: World) -> None:
    def on_ready(node: Node) -> None:
        world.open_errors = [VolumeCorruptError("it lost something")]
        world.disk.write_error = VolumeFailedError("EIO")
        link = world.listener.connect()
        link.say(hello(), OpenPublisher(1, "loader", "instance", 1, None))
        node._shell.machine.fail(VolumeFailedError("EIO"))  # type: ignore[union-attr]

    with pytest.raises(VolumeCorruptError):
        await serve(world.config(), on_ready)
