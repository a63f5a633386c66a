"""What transports and authenticators find wrong reaches the operator as alarms, and that it is over, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless import loggers
from gapless.spi import TellsTroubles

if TYPE_CHECKING:
    from gapless.core.alarms import Alarm, AlarmCode

log = loggers.logger("gapless.node")


class Troubles:
    """What there was at the last look. Alarms of a node's machines end with them: each has troubles of its own."""

    def __init__(self, plugins: Iterable[object], on_alarm: Callable[[Alarm], None]) -> None:
        """Those of `plugins` are asked that have something to tell."""
        self._plugins = [plugin for plugin in plugins if isinstance(plugin, TellsTroubles)]
        self._on_alarm = on_alarm
        self._told: dict[tuple[AlarmCode, str], Alarm] = {}

    def look(self) -> None:
        """Asks now, and tells what has changed. A plugin that cannot answer is not asked again."""
        found: dict[tuple[AlarmCode, str], Alarm] = {}
        for plugin in list(self._plugins):
            try:
                found.update({(alarm.code, alarm.about): alarm for alarm in plugin.troubles()})
            except Exception:
                log.exception("a plugin cannot tell what is wrong with it, and is not asked any more")
                self._plugins.remove(plugin)
        told, self._told = self._told, found
        for key, alarm in found.items():
            if told.get(key) != alarm:
                self._on_alarm(alarm)
        for key in told.keys() - found.keys():
            self._on_alarm(replace(told[key], text=f"it is over that {told[key].text}", over=True))
