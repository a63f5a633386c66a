"""A broker's log: every line names the node, and as JSON each is one object with nothing beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from typing import Any

import pytest

from gapless.errors import ConfigurationError
from gapless.observe import logs
from gapless.observe.logs import BrokerLog

BEGIN = "import logging, sys, threading, warnings\nfrom gapless.observe.logs import BrokerLog\nlog = BrokerLog()\n"


def told(program: str, status: int = 0) -> str:
    """What a process writes to its standard error output that has set up its log. It is a process's own matter."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", BEGIN + program],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        check=False,
        timeout=50,
    )
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    return done.stderr


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_text_names_the_node() -> None:
    text = told("log.set_up('text', 'info', 'desk 100%')\nlogging.getLogger('gapless.node').info('it %s', 'serves')")

    assert text.endswith(" INFO desk 100% gapless.node: it serves\n")


def test_the_level_counts() -> None:
    program = "logging.getLogger('a').info('no')\nlogging.getLogger('a').warning('yes')"

    assert [line["message"] for line in objects(told(f"log.set_up('json', 'warning', 'n')\n{program}"))] == ["yes"]


def test_an_object_has_what_is_known() -> None:
    """Whatever stands in the message, it is one line."""
    program = (
        "log.set_up('json', 'info', 'desk')\n"
        "fields = {'pubend': 'p@1', 'client_id': 'c\\nd'}\n"
        "logging.getLogger('gapless.node').warning('a \"b\"\\n\\x1b\\u2028 ü', extra=fields)"
    )
    [line] = objects(told(program))

    at = datetime.fromisoformat(line.pop("time").replace("Z", "+00:00"))
    assert abs((at - datetime.now(timezone.utc)).total_seconds()) < 60
    assert line == {
        "level": "warning",
        "logger": "gapless.node",
        "node": "desk",
        "message": 'a "b"\n\x1b\u2028 ü',
        "pubend": "p@1",
        "client_id": "c\nd",
    }


def test_an_exception_is_text_within_its_object() -> None:
    program = (
        "log.set_up('json', 'info', 'desk')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    logging.getLogger('gapless').exception('it failed')"
    )
    [line] = objects(told(program))

    assert line["message"] == "it failed"
    assert line["exc_info"].startswith("Traceback")
    assert line["exc_info"].endswith("ZeroDivisionError: division by zero")


def test_nothing_else_is_written() -> None:
    """Warnings, exceptions in threads and in destructors, and the one that ends the process."""
    program = (
        "log.set_up('json', 'info', 'desk')\n"
        "warnings.warn('old', DeprecationWarning)\n"
        "def fail(*_): raise KeyError('x')\n"
        "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "Dying = type('Dying', (), {'__del__': fail}); Dying()\n"
        "raise ValueError('the end')"
    )
    lines = objects(told(program, status=1))

    assert ["DeprecationWarning" in lines[0]["message"], *("KeyError" in line["exc_info"] for line in lines[1:3])] == [
        True
    ] * 3
    assert lines[3]["exc_info"].endswith("ValueError: the end")
    assert all(line["node"] == "desk" for line in lines)


@pytest.mark.parametrize(
    ("error", "status", "has_traceback"),
    [("ConfigurationError('a key')", 2, False), ("StorageError('a disk')", 1, False), ("KeyError('a bug')", 1, True)],
)
def test_an_error_that_ends_the_broker_is_a_line(error: str, status: int, has_traceback: bool) -> None:
    program = (
        "from gapless.errors import *\n"
        f"with log.errors_as_lines():\n    log.set_up('json', 'info', 'desk')\n    raise {error}"
    )
    [line] = objects(told(program, status))

    assert error.partition("'")[2].rstrip("')") in line["message"]
    assert ("exc_info" in line) is has_traceback


def test_as_text_errors_are_for_the_command_line() -> None:
    text = told("with log.errors_as_lines():\n    log.set_up('text', 'info', 'desk')\n    raise ValueError('x')", 1)

    assert text.startswith("Traceback")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "find_spec", lambda _name: None)

    with pytest.raises(ConfigurationError, match=r"pip install 'gapless\[observe\]'"):
        BrokerLog().set_up("json", "info", "desk")
