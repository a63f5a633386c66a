"""A run: turns, reads, the timer, links, and how it ends (INV12)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gapless.core.alarms import Alarm, AlarmBook, AlarmCode
from gapless.core.gauges import value_of
from gapless.core.network import facts as routing
from gapless.core.network.facts import NetworkMap
from gapless.core.network.seam import Router, RouterContext
from gapless.core.ports import Put, Read, Write
from gapless.core.principal_limits import NO_LIMITS
from gapless.core.server import BrokerIdentity, SessionLimits
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import WITHIN, Reception
from gapless.core.server.users import Users
from gapless.core.wire.messages import Closing, Heartbeat, ListPubends, OpenPublisher, Publish
from gapless.errors import VolumeCorruptError, VolumeFailedError
from gapless.node import upkeep
from gapless.node.gauges import COMMIT_SECONDS, SESSIONS, SYNC_RUNNING, SYNC_SECONDS, TURN_SECONDS
from gapless.node.machine import Machine
from gapless.node.shell import AsyncShell
from gapless.security.allow_all import AllowAll
from gapless.security.anonymous import Anonymous
from links import FakeLink
from nodes import STREAM, LogRole, StraightRouter, watch_nothing
from unit.gapless.client.conftest import until
from volumes import FakeVolume
from wire import columns, hello, kinds

WALL = 1_700_000_000_000


class Rig:
    """A shell over a fake volume, with a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 10**9
        self.volume = FakeVolume()
        self.router = StraightRouter()
        self.role = LogRole()
        self.failures: list[BaseException] = []
        self.alarms = AlarmBook()
        identity = BrokerIdentity("node", "net", durable=True, start=1)
        limits = SessionLimits(heartbeat=60 * 10**9)
        router = cast("Router", self.router)

        def make(shell: AsyncShell) -> Machine:
            machine = Machine(
                identity,
                limits,
                [Reception([Anonymous()], is_local=True)],
                Users({}, "", 65_536, AllowAll()),
                Authority(AllowAll()),
                router,
                [self.role],
                self.volume,
                Audit(is_wanted=False),
                Budgets(NO_LIMITS),
                shell,
            )
            machine.start(self.now, WALL, RouterContext("node", 1, NetworkMap({})))
            return machine

        self.shell = AsyncShell(
            self.volume,
            make,
            self._on_failed,
            self.alarms,
            watch_nothing,
            min_free_bytes=100,
            clock=lambda: (self.now, WALL),
        )
        self.machine = self.shell.machine
        self.shell.start()

    def _on_failed(self, shell: AsyncShell, error: BaseException) -> None:
        assert shell is self.shell
        self.failures.append(error)

    async def settle(self) -> None:
        """Waits until nothing happens any more, but for syncs that the test holds up."""
        calm = 0
        while calm < 3:
            await asyncio.sleep(0.001)
            waiting = self.shell._commit.busy and self.volume.gate.is_set()
            calm = 0 if waiting or self.machine.scheduled or self.machine.reads else calm + 1

    def call_roles(self) -> None:
        """Something happens that changes nothing: a role that is not called is not asked what it wants."""
        self.shell.machine.on_space(low=False)

    async def connect(self, instance: str = "one") -> FakeLink:
        link = FakeLink()
        link.handler = self.shell.accept(link, WITHIN)
        link.say(hello(instance=instance))
        await self.settle()
        assert kinds(link.hear()) == ["Welcome"]
        return link

    async def publisher(self, instance: str = "one") -> FakeLink:
        link = await self.connect(instance)
        link.say(OpenPublisher(1, "loader", "instance", 1, None))
        await self.settle()
        assert kinds(link.hear()) == ["PublisherOpened"]
        return link


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.volume.gate.set()
    rig.shell.abandon("the test is over")
    await rig.shell.closed()


async def test_a_receipt_comes_after_the_sync_and_not_before(rig: Rig) -> None:
    link = await rig.publisher()
    rig.volume.gate.clear()

    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()
    assert rig.volume.calls == [f"write put {STREAM} 1"]
    assert link.hear() == []
    rig.volume.gate.set()
    await rig.settle()

    assert kinds(link.hear()) == ["Published"]


async def test_what_arrives_in_one_turn_is_one_write_and_one_send_per_link(rig: Rig) -> None:
    first, second = await rig.publisher("one"), await rig.publisher("two")
    first.calls.clear()
    second.calls.clear()

    first.say(Publish(1, 1, 1, columns(b"a"), b""))
    second.say(Publish(1, 1, 2, columns(b"b"), b""))
    first.say(Publish(1, 1, 3, columns(b"c"), b""))
    await rig.settle()

    assert rig.volume.calls == ["write put log 1, put log 2, put log 3", "sync"]
    assert first.calls == [("send", 1, True)]
    assert second.calls == [("send", 1, True)]


async def test_the_limit_is_raised_before_the_welcome_is_sent(rig: Rig) -> None:
    link = await rig.connect()

    assert link.calls == [("limit", SessionLimits().frame_bytes), ("send", 1, False)]


async def test_a_read_sees_what_was_written_in_the_same_turn(rig: Rig) -> None:
    link = await rig.publisher()
    rig.volume.gate.clear()

    link.say(Publish(1, 1, 1, columns(b"a", b"b"), b""), ListPubends(5))
    await rig.settle()

    (listed,) = link.hear()
    assert listed.rows[0].newest == 2
    assert rig.volume.calls == ["write put log 2", "read log"]


async def test_a_record_that_cannot_be_read_is_an_answer_and_no_failure(rig: Rig) -> None:
    results: list[Any] = []
    rig.role.on_read = lambda result, *_: results.append(result)  # type: ignore[method-assign]
    stream = rig.volume.stream(STREAM)
    stream.first = 3

    def broken(*_: Any) -> Any:
        raise VolumeCorruptError("block checksum mismatch")

    stream.read = broken  # type: ignore[method-assign,assignment]
    rig.role.effects.append(Read(STREAM, 0, 9, "cookie"))
    rig.call_roles()
    link = await rig.connect()
    await rig.settle()

    (result,) = results
    assert (result.cookie, result.records, result.first) == ("cookie", (), 3)
    assert result.error == "block checksum mismatch"
    assert rig.shell.alive
    assert link.closed is None


async def test_many_reads_do_not_hold_up_the_loop(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.node.shell.READ_TIME", 0)
    link = await rig.connect()
    requests = [ListPubends(number) for number in range(50)]
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        if len(link.sent) < len(requests):
            asyncio.get_running_loop().call_soon(count)

    link.say(*requests)
    count()
    await rig.settle()

    assert [listed.request for listed in link.hear()] == list(range(50))
    assert turns >= 50


async def test_a_deadline_is_kept(rig: Rig) -> None:
    rig.role.deadline_at = rig.now + 30_000_000
    rig.call_roles()
    await rig.connect()
    rig.role.calls.clear()

    await rig.settle()
    assert rig.role.calls == []
    rig.now += 30_000_000
    for _ in range(5000):
        if rig.role.calls:
            break
        await asyncio.sleep(0.001)

    assert rig.role.calls == [("deadline", (rig.now, WALL))]


async def test_an_earlier_deadline_replaces_the_timer_and_a_later_one_does_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, timers = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def noted(delay: float, *call: Any, **how: Any) -> asyncio.TimerHandle:
        timers.append((round(delay), timer := call_later(delay, *call, **how)))
        return timer

    monkeypatch.setattr(loop, "call_later", noted)
    link = await rig.connect()
    for seconds in (4, 2, 3):
        rig.role.deadline_at = rig.now + seconds * 10**9
        rig.call_roles()
        link.say(Heartbeat())
        await rig.settle()

    assert [(seconds, timer.cancelled()) for seconds, timer in timers if seconds in (2, 3, 4)] == [
        (4, True),
        (2, False),
    ]


async def test_a_deadline_that_never_moves_does_not_starve_the_loop(rig: Rig) -> None:
    rig.role.on_deadline = lambda *_: None  # type: ignore[method-assign]
    rig.role.deadline_at = rig.now
    rig.call_roles()
    await rig.connect()

    began = asyncio.get_running_loop().time()
    await rig.settle()

    assert asyncio.get_running_loop().time() - began < 2
    rig.role.deadline_at = None
    rig.call_roles()


async def test_a_deadline_adds_no_turn_beside_the_one_that_is_due(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn here leaves something for the next one, as where a client has asked for much at once."""
    iterations = turns = 0
    done = asyncio.Event()
    turn = rig.machine.turn

    def count_turn() -> None:
        nonlocal turns
        turns += 1
        turn()
        if not done.is_set():
            rig.call_roles()

    def iterate() -> None:
        nonlocal iterations
        iterations += 1
        time.sleep(0.0002)
        if iterations < 300:
            asyncio.get_running_loop().call_soon(iterate)
        else:
            done.set()

    monkeypatch.setattr(rig.machine, "turn", count_turn)
    rig.role.on_deadline = lambda *_: None  # type: ignore[method-assign]
    rig.role.deadline_at = rig.now
    rig.call_roles()
    iterate()
    await done.wait()
    rig.role.deadline_at = None
    await rig.settle()

    assert 300 <= turns < 330, "one in each iteration of the loop"


async def test_pending_bytes_are_told_until_they_are_gone(rig: Rig) -> None:
    link = await rig.connect()
    told: list[int] = []
    rig.machine.sessions.on_pending = lambda link, pending, now: told.append(pending)  # type: ignore[method-assign] # noqa: ARG005

    for pending in (0, 700, 0, 0):
        link.pending = pending
        link.say(ListPubends(1))
        await rig.settle()
    link.pending = 3
    assert link.handler is not None
    link.handler.on_drained()
    await rig.settle()

    assert told == [700, 0, 3]


async def test_what_has_left_between_two_sends_is_seen_to_have_left(rig: Rig) -> None:
    """Each send leaves the same few bytes pending for a moment: that is progress, not a client that stands still."""
    link = await rig.connect()
    told: list[int] = []
    rig.machine.sessions.on_pending = lambda link, pending, now: told.append(pending)  # type: ignore[method-assign] # noqa: ARG005
    send = link.send

    def send_and_hold(payloads: Any, *, urgent: bool = False) -> None:
        send(payloads, urgent=urgent)
        link.pending = 49

    link.send = send_and_hold  # type: ignore[method-assign]
    for _ in range(3):
        link.say(ListPubends(1))
        await rig.settle()
        link.pending = 0

    assert told == [49, 0, 49, 0, 49]


async def test_a_link_with_too_much_pending_is_paused_and_resumed(rig: Rig) -> None:
    link = await rig.connect()
    link.pending = SessionLimits().pending_bytes + 1
    link.say(ListPubends(1))
    await rig.settle()
    link.pending = 0
    assert link.handler is not None
    link.handler.on_drained()
    await rig.settle()

    assert [call for call in link.calls if isinstance(call, str)] == ["pause", "resume"]


async def test_a_closed_link_ends_its_session(rig: Rig) -> None:
    link = await rig.connect()
    assert value_of(rig.shell.gauges(), SESSIONS) == 1

    link.close("the client is gone")
    await rig.settle()

    assert value_of(rig.shell.gauges(), SESSIONS) == 0
    assert rig.role.calls[-1][0] == "ended"


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "INTERVAL", 0.01)


async def test_low_space_is_told_to_the_roles(quick_looks: None, rig: Rig) -> None:
    rig.volume.free_bytes = 99
    await until(lambda: ("space", True) in rig.role.calls)
    rig.volume.free_bytes = 100
    await until(lambda: ("space", False) in rig.role.calls)


async def test_alarms_are_logged_and_remembered(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    alarm = Alarm(AlarmCode.CLOCK_SUSPECT, "the clock jumped")
    rig.role.effects += [alarm]
    rig.call_roles()
    rig.router.says = [routing.Dial("b")]
    rig.machine.on_broker_frame(0, b"")
    await rig.connect()

    [raised] = rig.alarms.alarms()
    assert (raised.code, raised.text, raised.last) == ("clock_suspect", "the clock jumped", WALL)
    assert "the clock jumped (clock_suspect)" in caplog.text
    assert "Dial" in caplog.text


@pytest.mark.parametrize("how", ["sync", "write"])
async def test_a_failed_storage_ends_the_run_and_nothing_is_acknowledged(rig: Rig, how: str) -> None:
    link = await rig.publisher()
    error = VolumeFailedError("EIO")
    if how == "sync":
        rig.volume.sync_errors = [error]
    else:
        rig.volume.write_error = error

    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()
    link.say(Publish(1, 1, 2, columns(b"b"), b""))
    await rig.settle()

    assert rig.failures == [error]
    assert not rig.shell.alive
    assert link.hear() == []
    rig.shell.abandon("the broker has failed")
    assert link.hear() == [Closing("the broker has failed")]
    assert link.closed == "the broker has failed"
    await rig.shell.closed()
    assert rig.volume.closed


async def test_a_bug_in_a_core_ends_the_run(rig: Rig) -> None:
    link, other = await rig.connect("one"), await rig.connect("two")

    link.say(ListPubends(666))
    other.say(ListPubends(1))
    await rig.settle()

    assert [str(error.__cause__) for error in rig.failures] == ["a bug in a core"]
    assert other.hear() == []


async def test_a_volume_is_not_closed_while_a_sync_uses_it(rig: Rig) -> None:
    link = await rig.publisher()
    rig.volume.gate.clear()
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()
    rig.shell.abandon("over")
    rig.shell.abandon("over")
    assert link.hear() == [Closing("over")]

    closing = asyncio.ensure_future(rig.shell.closed())
    await rig.settle()
    assert not closing.done()
    rig.volume.gate.set()
    await closing

    assert rig.volume.closed
    assert rig.failures == []


async def test_stopping_answers_what_is_being_written_tells_the_clients_and_closes(rig: Rig) -> None:
    link = await rig.publisher()
    rig.volume.gate.clear()
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()

    stopping = asyncio.ensure_future(rig.shell.stop("the node stops", 5))
    await rig.settle()
    rig.volume.gate.set()
    await stopping

    assert kinds(link.hear()) == ["Published", "Closing"]
    assert link.closed == "the node stops"
    assert rig.volume.closed
    assert not rig.shell.alive


async def test_what_roles_write_while_sessions_end_is_written_before_the_volume_closes(rig: Rig) -> None:
    rig.role.last_words = [Write([Put("last", 1, b"x")])]
    await rig.connect()

    await rig.shell.stop("the node stops", 5)

    assert "write put last 1" in rig.volume.calls


async def test_stopping_does_not_wait_for_ever(rig: Rig) -> None:
    link = await rig.publisher()
    rig.volume.gate.clear()
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()

    await asyncio.wait_for(rig.shell.stop("the node stops", 0.02), 2)

    assert link.closed == "the node stops"
    assert not rig.volume.closed


class Syncing:
    """A shell of a volume, whose machine does nothing but to note what is durable."""

    def __init__(self, *, durable: bool = True) -> None:
        self.volume = FakeVolume(durable=durable)
        self.released: list[list[Any]] = []
        self.failed: list[BaseException] = []
        machine = SimpleNamespace(
            on_durable=self.released.append,
            fail=self.failed.append,
            on_space=None,
            on_log_answer=None,
            abandon=dict,
            authenticators=tuple,
        )
        self.shell = AsyncShell(
            self.volume, lambda _: cast("Machine", machine), lambda *_: None, AlarmBook(), watch_nothing
        )

    def put(self, index: int) -> None:
        self.shell.commit([Put("log", index, b"x")], [(0, index)])


async def test_syncs_run_in_threads_two_at_a_time_and_release_in_order() -> None:
    rig = Syncing()
    rig.volume.gate.clear()
    for index in range(1, 8):
        rig.put(index)
        await asyncio.sleep(0)
    await until(lambda: rig.volume.syncing == 2)
    assert rig.released == []
    rig.volume.gate.set()
    await until(lambda: sum(map(len, rig.released)) == 7)

    assert [cookie for group in rig.released for _, cookie in group] == [1, 2, 3, 4, 5, 6, 7]
    assert rig.volume.calls.count("sync") == 3
    assert rig.volume.syncing_most == 2
    assert len(rig.volume.streams["log"].records) == 7


async def test_it_tells_how_many_commits_syncs_and_turns_there_were_and_how_long_they_took(rig: Rig) -> None:
    link = await rig.publisher()
    names = [f"{family.name}_{what}" for family in (COMMIT_SECONDS, SYNC_SECONDS) for what in ("count", "sum")]
    turns = value_of(rig.shell.gauges(), f"{TURN_SECONDS.name}_count")
    before = [value_of(rig.shell.gauges(), name) for name in names]

    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await rig.settle()

    after = [value_of(rig.shell.gauges(), name) for name in names]
    assert (after[0], after[2]) == (before[0] + 1, before[2] + 1)
    assert after[1] > before[1]
    assert after[3] > before[3]
    assert value_of(rig.shell.gauges(), f"{TURN_SECONDS.name}_count") >= turns + 2


async def test_a_sync_that_hangs_shows_while_it_does(rig: Rig) -> None:
    link = await rig.publisher()
    assert value_of(rig.shell.gauges(), SYNC_RUNNING) == 0
    rig.volume.gate.clear()
    link.say(Publish(1, 1, 1, columns(b"a"), b""))
    await asyncio.sleep(0.02)
    running = value_of(rig.shell.gauges(), SYNC_RUNNING)
    await asyncio.sleep(0.02)
    longer = value_of(rig.shell.gauges(), SYNC_RUNNING)
    rig.volume.gate.set()
    await rig.settle()

    assert 0 < running < longer - 0.01
    assert value_of(rig.shell.gauges(), SYNC_RUNNING) == 0


async def test_an_error_of_the_storage_that_is_not_one_of_ours_is_a_failure_too() -> None:
    rig = Syncing()
    rig.volume.sync_errors = [RuntimeError("a bug in a plugin")]
    rig.put(1)
    await until(lambda: rig.failed)

    assert rig.released == []
    assert [type(error) for error in rig.failed] == [RuntimeError]


async def test_what_lives_in_memory_is_released_without_a_thread_and_not_at_once() -> None:
    threads = threading.active_count()
    rig = Syncing(durable=False)
    rig.put(1)
    assert rig.released == []

    await asyncio.sleep(0)

    assert rig.released == [[(0, 1)]]
    assert threading.active_count() == threads


def test_the_loop_may_be_gone_when_a_sync_ends() -> None:
    async def begin() -> Syncing:
        rig = Syncing()
        rig.volume.gate.clear()
        rig.put(1)
        await until(lambda: rig.volume.syncing_most)
        return rig

    others = set(threading.enumerate())
    rig = asyncio.run(begin())
    threads = set(threading.enumerate()) - others
    assert threads
    rig.volume.gate.set()
    rig.shell.let_go()

    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
