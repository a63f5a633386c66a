"""Numbered logs of a node: a role asks, a plugin answers, and a plugin that fails is an alarm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gapless import plugins
from gapless.core.alarms import AlarmBook
from gapless.core.gauges import Family, Gauge
from gapless.core.network.facts import NetworkMap
from gapless.core.network.seam import Router, RouterContext
from gapless.core.ports import (
    Append,
    Appended,
    Follow,
    Grown,
    Handler,
    Locate,
    Located,
    LogAnswer,
    LogCapabilities,
    LogEnded,
    LogQuestion,
    LogRead,
    LogsFound,
    LogStart,
    LogTrouble,
    NumberedLog,
    OpenLogs,
    ReadLog,
    Refused,
    Set,
    Taken,
    Trim,
    Uncertain,
    Write,
)
from gapless.core.principal_limits import NO_LIMITS
from gapless.core.server import BrokerIdentity, SessionLimits
from gapless.core.server.audit import Audit
from gapless.core.server.authority import Authority
from gapless.core.server.budgets import Budgets
from gapless.core.server.reception import Reception
from gapless.core.server.users import Users
from gapless.errors import ConfigurationError
from gapless.node import logs as node_logs
from gapless.node.machine import Machine
from gapless.node.shell import AsyncShell
from gapless.plugins import hookimpl
from gapless.security.allow_all import AllowAll
from gapless.security.anonymous import Anonymous
from gapless.spi import LogPlugin, Logs
from nodes import LogRole, StraightRouter, watch_nothing
from volumes import FakeVolume

NOW, WALL = 10**9, 1_700_000_000_000
LOG = "orders.0@x"
ANSWERS = (
    Grown(LOG, 0, 7, (), 0, 10),
    LogRead("r", 0, 7, (), 0, ""),
    Located("l", 7),
    Appended("a", [7]),
    Refused("b", "too large"),
    Uncertain("c", "no answer"),
    LogTrouble(LOG, "no leader"),
    LogEnded(LOG, "deleted"),
)
QUESTIONS = (
    Follow(LOG, 0, 1000),
    Taken(LOG, 10),
    ReadLog(LOG, 0, 7, "r"),
    Locate(LOG, LogStart.LATEST, "l"),
    Trim(LOG, 3),
    Append(LOG, "a", [b"batch"], None),
)


ASKED = Family("fake_questions", "How much it was asked.")


def numbered(log: str) -> NumberedLog:
    """A log as its plugin describes it."""
    capabilities = LogCapabilities("log", alone=False, atomic=False, timed=False, trims=False, record_max=1000)
    return NumberedLog(log, "orders", "orders", 0, 0, (), capabilities, cast("Any", None), b"", "", ())


@dataclass
class FakeLogs:
    """Notes what it is asked; the test answers."""

    options: Mapping[str, Any]
    answer: Callable[[LogAnswer], None]
    asked: list[LogQuestion] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    def ask(self, question: LogQuestion) -> None:
        if "fails" in self.options:
            raise RuntimeError("a bug of the plugin")
        self.asked.append(question)

    async def close(self) -> None:
        self.closed.set()
        if "hangs" in self.options:
            await asyncio.Event().wait()
        if "fails" in self.options:
            raise RuntimeError("a bug at its end")


class TellingLogs(FakeLogs):
    """It has figures, too."""

    def gauges(self) -> list[Gauge]:
        if "fails" in self.options:
            raise RuntimeError("a bug in its figures")
        return [ASKED.gauge(len(self.asked))]


class FakePlugin:
    """The plugin, and everything that it opened."""

    def __init__(self) -> None:
        self.opened: list[FakeLogs] = []
        self.known: Mapping[str, str] = {}
        """What was said to be known when the last ones were opened."""

    @hookimpl
    def open_log(self, options: Mapping[str, Any]) -> LogPlugin:
        if "servers" not in options:
            raise ConfigurationError("servers: a broker is needed")
        return _Opening(self, options)


@dataclass
class _Opening:
    plugin: FakePlugin
    options: Mapping[str, Any]
    topics: Sequence[str] = ()

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> Logs:
        self.plugin.known = known
        kind = TellingLogs if "tells" in self.options else FakeLogs
        self.plugin.opened.append(kind(self.options, answer))
        return self.plugin.opened[-1]


class AskingRole(LogRole):
    """Asks what the test wants, and notes every answer."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.told: list[LogAnswer] = []

    def handlers(self) -> Mapping[type, Handler]:
        return dict.fromkeys((LogsFound, *map(type, ANSWERS)), self._on_answer)

    def requests(self) -> Mapping[type, Any]:
        return {}

    def _on_answer(self, answer: Any, now: int, wall: int) -> None:
        self.told.append(answer)


class Rig:
    """A shell with two roles that ask logs."""

    def __init__(self) -> None:
        self.roles = [AskingRole("one"), AskingRole("two")]
        self.alarms = AlarmBook()
        self.failures: list[BaseException] = []
        identity = BrokerIdentity("node", "net", durable=True, start=1)

        def make(shell: AsyncShell) -> Machine:
            router = cast("Router", StraightRouter())
            limits = SessionLimits()
            machine = Machine(
                identity,
                limits,
                [Reception([Anonymous()], is_local=True)],
                Users({}, "", 65_536, AllowAll()),
                Authority(AllowAll()),
                router,
                self.roles,
                cast("Any", FakeVolume()),
                Audit(is_wanted=False),
                Budgets(NO_LIMITS),
                shell,
            )
            machine.start(NOW, WALL, RouterContext("node", 1, NetworkMap({})))
            return machine

        self.shell = AsyncShell(
            cast("Any", FakeVolume()),
            make,
            lambda _, error: self.failures.append(error),
            self.alarms,
            watch_nothing,
            clock=lambda: (NOW, WALL),
        )
        self.shell.start()

    async def ask(self, role: AskingRole, *questions: object) -> None:
        """A role asks, in one turn."""
        role.effects += questions
        self.shell.machine.on_space(low=False)
        await self.turn()

    async def turn(self) -> None:
        await asyncio.sleep(0.001)
        assert not self.shell.machine.scheduled

    def alarmed(self) -> list[str]:
        return [raised.text for raised in self.alarms.alarms()]


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePlugin]:
    plugin = FakePlugin()
    monkeypatch.setattr(plugins, "_added", {})
    plugins.add("log", "fake", plugin)
    yield plugin
    plugins.load.cache_clear()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.shell.abandon("the test is over")
    await rig.shell.closed()
    assert rig.failures == []


def test_hook_open_log_takes_options_and_refuses_wrong_ones(plugin: FakePlugin) -> None:
    opening = plugins.load("log", "fake")(options={"servers": "here"})

    logs = opening.open({LOG: "family"}, lambda _: None)

    assert plugin.opened == [logs]
    assert plugin.known == {LOG: "family"}
    with pytest.raises(ConfigurationError, match="a broker is needed"):
        plugins.load("log", "fake")(options={})


async def test_every_question_reaches_the_plugin_and_every_answer_the_role_that_asked(
    rig: Rig, plugin: FakePlugin
) -> None:
    asking, other = rig.roles

    await rig.ask(asking, OpenLogs("fake", {"servers": "here"}, (), {}))
    (logs,) = plugin.opened
    logs.answer(LogsFound([numbered(LOG)]))
    await rig.turn()
    await rig.ask(asking, *QUESTIONS)
    for answer in ANSWERS:
        logs.answer(answer)
    assert asking.told == [LogsFound([numbered(LOG)])]  # what comes later waits for a turn
    await rig.turn()

    assert logs.options == {"servers": "here"}
    assert logs.asked == [*QUESTIONS]
    assert asking.told == [LogsFound([numbered(LOG)]), *ANSWERS]
    assert other.told == []
    assert rig.alarmed() == []


async def test_two_roles_may_read_one_log_each_for_itself(rig: Rig, plugin: FakePlugin) -> None:
    for role in rig.roles:
        await rig.ask(role, OpenLogs("fake", {"servers": role.name}, (), {}))
    for logs in plugin.opened:
        logs.answer(LogsFound([numbered(LOG)]))

    await rig.ask(rig.roles[1], Taken(LOG, 5))
    await rig.ask(rig.roles[0], Taken(LOG, 3))

    assert [logs.asked for logs in plugin.opened] == [[Taken(LOG, 3)], [Taken(LOG, 5)]]


async def test_a_log_that_two_sections_find_stays_with_the_first_and_the_operator_is_told(
    rig: Rig, plugin: FakePlugin
) -> None:
    role = rig.roles[0]
    await rig.ask(role, OpenLogs("fake", {"servers": "a"}, (), {}), OpenLogs("fake", {"servers": "b"}, (), {}))
    first, second = plugin.opened

    first.answer(LogsFound([numbered(LOG)]))
    second.answer(LogsFound([numbered(LOG), numbered("other.0@y")]))
    second.answer(LogsFound([numbered(LOG)]))
    await rig.turn()
    await rig.ask(role, Taken(LOG, 1), Taken("other.0@y", 2))

    assert role.told == [LogsFound([numbered(LOG)]), LogsFound([numbered("other.0@y")])]
    assert first.asked == [Taken(LOG, 1)]
    assert second.asked == [Taken("other.0@y", 2)]
    assert "log plugin 'fake' has found orders.0@x, which another section has opened" in rig.alarmed()[0]


@pytest.mark.parametrize(
    ("question", "alarm"),
    [
        (OpenLogs("nonsense", {}, (), {}), "log plugin 'nonsense', OpenLogs: no log plugin is called 'nonsense'"),
        (OpenLogs("fake", {}, (), {}), "log plugin 'fake', OpenLogs: servers: a broker is needed"),
        (Taken("unheard.0@of", 1), "log plugin '', Taken: KeyError"),
    ],
)
async def test_a_question_that_cannot_be_asked_is_an_alarm_and_not_the_end(
    rig: Rig, plugin: FakePlugin, question: LogQuestion, alarm: str
) -> None:
    await rig.ask(rig.roles[0], question)

    (raised,) = rig.alarms.alarms()
    assert raised.text.startswith(alarm)
    assert raised.code == "log_plugin_failed"
    assert rig.shell.alive


async def test_a_plugin_that_fails_at_a_question_is_an_alarm_and_not_the_end(rig: Rig, plugin: FakePlugin) -> None:
    role = rig.roles[0]
    await rig.ask(role, OpenLogs("fake", {"servers": "here", "fails": True}, (), {}))
    plugin.opened[0].answer(LogsFound([numbered(LOG)]))

    await rig.ask(role, Taken(LOG, 1))

    assert rig.alarmed() == ["log plugin 'fake', Taken: RuntimeError('a bug of the plugin')"]
    assert rig.shell.alive


async def test_the_end_closes_every_plugin_and_none_is_heard_any_more(
    plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_logs, "CLOSE_TIMEOUT", 0.01)
    rig = Rig()
    role = rig.roles[0]
    for how in ("hangs", "fails", "ends"):
        await rig.ask(role, OpenLogs("fake", {"servers": "here", how: True}, (), {}))

    rig.shell.abandon("the test is over")
    await rig.shell.closed()
    for logs in plugin.opened:
        logs.answer(LogsFound([numbered(LOG)]))

    assert all(logs.closed.is_set() for logs in plugin.opened)
    assert sorted(caplog.messages) == [
        "log plugin 'fake': it did not close within 0.01 s (log_plugin_failed)",
        "log plugin 'fake': it did not close: RuntimeError('a bug at its end') (log_plugin_failed)",
    ]
    assert role.told == []


async def test_a_question_leaves_after_the_writes_of_its_turn(rig: Rig, plugin: FakePlugin) -> None:
    calls: list[str] = []
    rig.shell.commit = lambda *_: calls.append("commit")  # type: ignore[method-assign]
    rig.shell.to_log = lambda *_: calls.append("ask")  # type: ignore[method-assign]

    await rig.ask(rig.roles[0], OpenLogs("fake", {}, (), {}), Write([Set("rows", b"key", b"value")]))

    assert calls == ["commit", "ask"]


async def test_what_plugins_tell_of_their_logs_is_among_the_figures(rig: Rig, plugin: FakePlugin) -> None:
    told = {"servers": "here", "tells": True}
    others: list[dict[str, Any]] = [{"servers": "there"}, told | {"fails": True}]
    await rig.ask(rig.roles[0], *(OpenLogs("fake", options, (), {}) for options in (*others, told)))

    assert len(plugin.opened) == 3
    assert [gauge for gauge in rig.shell.gauges() if gauge.name == ASKED.name] == [ASKED.gauge(0)]
    assert rig.alarmed() == ["log plugin 'fake', gauges: RuntimeError('a bug in its figures')"]
