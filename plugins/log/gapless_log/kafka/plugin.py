"""The plugin `kafka`: partitions of Kafka topics are logs (hook `open_log`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gapless.core.ports import LogAnswer
from gapless.errors import PluginError
from gapless.plugins import hookimpl
from gapless.spi import LogPlugin
from gapless_log.kafka.logs import KafkaLogs
from gapless_log.kafka.options import KafkaSection, section_from
from gapless_log.kafka.requests import Access, connect, require_tested


class KafkaPlugin:
    """See `gapless.spi.LogPlugin`."""

    def __init__(self, section: KafkaSection, access: Access) -> None:
        self._section = section
        self._access = access

    @property
    def topics(self) -> Sequence[str]:
        """The topics of the events of its logs."""
        return [topic.rules.topic for topic in self._section.topics]

    def open(self, known: Mapping[str, str], answer: Callable[[LogAnswer], None]) -> KafkaLogs:
        """Begins to look for the topics."""
        return KafkaLogs(self._section, known, partial(connect, access=self._access), answer, _wall)


def _wall() -> int:
    return time.time_ns() // 1_000_000


@hookimpl
def open_log(options: Mapping[str, Any]) -> LogPlugin:
    """Returns the plugin. Raises ConfigurationError, which names each wrong option."""
    try:
        require_tested(version("aiokafka"))
    except PackageNotFoundError as error:
        raise PluginError('Kafka topics need aiokafka: pip install "gapless[kafka]"') from error
    section = section_from(options)
    return KafkaPlugin(section, section.access())
