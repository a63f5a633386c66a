"""The numbered logs of one machine: its roles ask, and log plugins answer.

A plugin that fails is the operator's trouble and never the end of the node: the pubends of its logs stand still, all
others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless import loggers, plugins
from gapless.core.alarms import Alarm, AlarmCode
from gapless.core.ports import LogAnswer, LogQuestion, LogsFound, OpenLogs
from gapless.errors import GaplessError
from gapless.spi import TellsFigures

if TYPE_CHECKING:
    from gapless.core.gauges import Gauge
    from gapless.spi import LogPlugin, Logs

log = loggers.logger("gapless.node")

CLOSE_TIMEOUT = 5.0
"""Seconds that a plugin may take to close its logs."""


class NodeLogs:
    """What was opened, which role has opened it, and by whom each log is kept."""

    def __init__(self, answer: Callable[[int, LogAnswer], None], alarm: Callable[[Alarm], None]) -> None:
        """`answer` takes a role's position and what a plugin answers it."""
        self._answer = answer
        self._alarm = alarm
        self._opened: list[tuple[str, Logs]] = []
        """With the name of its plugin."""
        self._keepers: dict[tuple[int, str], tuple[str, Logs]] = {}
        """Of each role's logs: the name of the plugin, and who is asked."""
        self._closed = False

    def ask(self, source: int, question: LogQuestion) -> None:
        """Takes a question of the role at this position. Raises nothing."""
        name = question.plugin if isinstance(question, OpenLogs) else ""
        try:
            if isinstance(question, OpenLogs):
                self._open(source, question)
            else:
                name, logs = self._keepers[source, question.log]
                logs.ask(question)
        except Exception as error:  # noqa: BLE001 - whatever a plugin does wrong, the node goes on
            self._failed(name, type(question).__name__, error)

    def gauges(self) -> Iterator[Gauge]:
        """Yields what plugins tell of their logs. Raises nothing."""
        for name, logs in self._opened:
            if isinstance(logs, TellsFigures):
                try:
                    found = list(logs.gauges())
                except Exception as error:  # noqa: BLE001 - as above
                    self._failed(name, "gauges", error)
                else:
                    yield from found

    def _failed(self, name: str, what: str, error: Exception) -> None:
        text = str(error) if isinstance(error, GaplessError) else repr(error)
        self._alarm(Alarm(AlarmCode.LOG_PLUGIN_FAILED, f"log plugin {name!r}, {what}: {text}"))
        log.error("log plugin %r failed at %s", name, what, exc_info=error)

    async def close(self) -> None:
        """Closes all logs; from now on nobody is answered. Each plugin has `CLOSE_TIMEOUT` for it."""
        self._closed = True
        opened, self._opened = self._opened, []
        self._keepers.clear()
        closing = {asyncio.ensure_future(logs.close()): name for name, logs in opened}
        if not closing:
            return
        _, late = await asyncio.wait(closing, timeout=CLOSE_TIMEOUT)
        for task, name in closing.items():
            if task in late:
                task.cancel()
                why = f"it did not close within {CLOSE_TIMEOUT:g} s"
            elif (error := task.exception()) is not None:
                why = f"it did not close: {error!r}"
            else:
                continue
            self._alarm(Alarm(AlarmCode.LOG_PLUGIN_FAILED, f"log plugin {name!r}: {why}"))

    def _open(self, source: int, question: OpenLogs) -> None:
        plugin: LogPlugin = plugins.load("log", question.plugin)(options=question.options)
        number = len(self._opened)

        def take(answer: LogAnswer) -> None:
            if not self._closed:
                said = self._told(source, number, answer) if type(answer) is LogsFound else answer
                if said is not None:
                    self._answer(source, said)

        self._opened.append((question.plugin, plugin.open(question.known, take)))

    def _told(self, source: int, number: int, found: LogsFound) -> LogsFound | None:
        """From now on, questions about these logs go to whoever has found them first."""
        opened = self._opened[number]
        own = [each for each in found.logs if self._keepers.setdefault((source, each.log), opened) is opened]
        if len(own) < len(found.logs):
            twice = sorted({each.log for each in found.logs} - {each.log for each in own})
            text = f"log plugin {opened[0]!r} has found {', '.join(twice)}, which another section has opened already"
            self._alarm(Alarm(AlarmCode.LOG_PLUGIN_FAILED, text))
        return replace(found, logs=own) if own else None
