"""Records of a log as JSON, one object a line: by python-json-logger, which the extra `observe` brings."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from typing import Any

from pythonjsonlogger.json import JsonFormatter


class JsonLines(JsonFormatter):
    """Begins each object with the time, the level, the logger, the node and the message; what else is known follows."""

    def __init__(self, node: str) -> None:
        super().__init__("%(message)s")
        self._node = node

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Puts all that a record says into an object. The time is UTC, with milliseconds."""
        at = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        log_data["time"] = at.replace("+00:00", "Z")
        log_data["level"] = record.levelname.lower()
        log_data["logger"] = record.name
        log_data["node"] = self._node
        super().add_fields(log_data, record, message_dict)
