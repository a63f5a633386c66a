"""What a broker writes to its log: lines of text, or one JSON object each, and nothing beside them.

Every line names the node. Where a line concerns one, JSON has fields for it: `pubend`, `subscription`, `client_id`,
`principal`, and of an alarm its code and what it is about.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import Final

from gapless.errors import ConfigurationError, GaplessError

JSON: Final = "json"

log = logging.getLogger("gapless")


class BrokerLog:
    """The log of this process, which runs a broker: on the standard error output, and the root of all loggers."""

    def __init__(self) -> None:
        self._is_json = False

    def set_up(self, kind: str, level: str, node: str) -> None:
        """From now on, whatever is logged in this process is a line there. May be called again.

        `kind`: "text" or "json"; in the latter, warnings and exceptions that nobody catches are such lines, too.
        `node`: stands in every line. Raises ConfigurationError if what makes JSON is not installed.
        """
        formatter = _json_formatter(node) if kind == JSON else _text_formatter(node)
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(formatter)
        logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
        if kind == JSON:
            self._is_json = True
            logging.captureWarnings(capture=True)
            sys.excepthook = _on_uncaught
            sys.unraisablehook = lambda told: _tell(
                told.err_msg or "an exception that nobody can catch", told.exc_value
            )
            threading.excepthook = lambda told: _tell("an exception has ended a thread", told.exc_value)

    @contextmanager
    def errors_as_lines(self) -> Iterator[None]:
        """Within, if lines are JSON, an error that would end the process is one of them. Its exit status stays."""
        try:
            yield
        except Exception as error:
            if not self._is_json:
                raise
            is_told = isinstance(error, (GaplessError, OSError))
            log.critical("%s", error, exc_info=None if is_told else error)
            raise SystemExit(2 if isinstance(error, ConfigurationError) else 1) from None


def _text_formatter(node: str) -> logging.Formatter:
    escaped = node.replace("%", "%%")
    return logging.Formatter(f"%(asctime)s %(levelname)s {escaped} %(name)s: %(message)s")


def _json_formatter(node: str) -> logging.Formatter:
    if find_spec("pythonjsonlogger") is None:
        raise ConfigurationError("a log of JSON needs python-json-logger: pip install 'gapless[observe]'")
    from gapless.observe.json_lines import JsonLines

    return JsonLines(node)


def _on_uncaught(kind: type[BaseException], error: BaseException, _traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        _tell("an exception has ended the process", error)


def _tell(what: str, error: BaseException | None) -> None:
    log.critical("%s", what, exc_info=error)
