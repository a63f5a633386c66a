"""The plugin `kafka`: partitions of Kafka topics are logs (hook `open_log`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

    def open(self, answer: Callable[[LogAnswer], None]) -> KafkaLogs:
        """Begins to look for the topics."""
        return KafkaLogs(self._section, partial(connect, access=self._access), answer)


@hookimpl
def open_log(options: Mapping[str, Any]) -> LogPlugin:
    """Returns the plugin. Raises ConfigurationError, which names each wrong option."""
    try:
        require_tested(version("aiokafka"))
    except PackageNotFoundError as error:
        raise PluginError('Kafka topics need aiokafka: pip install "gapless[kafka]"') from error
    section = section_from(options)
    return KafkaPlugin(section, section.access())
