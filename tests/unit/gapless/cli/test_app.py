"""The commands as a whole: their list, and how errors are shown."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from gapless import ConnectionClosedError, GaplessError
from gapless.cli import app as app_module
from gapless.cli.app import app, show_error
from gapless.cli.connecting import INTERRUPTED
from gapless.cli.helping import unwrapped
from gapless.client.credentials import PASSWORD_FILE
from gapless.node.config import OF_COMMANDS
from unit.gapless.cli.conftest import Gapless

COMMANDS = {
    "broker", "publish", "subscribe", "unsubscribe", "subscriptions", "pubends", "selector", "doctor",
    "retire", "scrub", "repair", "network", "tail",
}  # fmt: skip
ADDED = {"demo", "simulate"}
"""Commands that come in by the entry points `gapless.cli`, and need nothing that is not always there."""


def test_every_command_explains_itself(gapless: Gapless) -> None:
    listed = gapless("--help").stdout

    assert {command.name for command in app.registered_commands} == COMMANDS
    for name in COMMANDS | ADDED:
        assert name in listed
        assert "--json" in gapless(name, "--help").stdout


@pytest.mark.parametrize("command", [[], ["publish"], ["demo"]], ids=str)
def test_h_is_help(gapless: Gapless, command: list[str]) -> None:
    """Also of a command that a connector adds."""
    assert gapless(*command, "-h").stdout == gapless(*command, "--help").stdout


@pytest.mark.parametrize("command", [["retire"], ["simulate"], ["pipeline", "archive"]], ids=" ".join)
def test_help_is_wrapped_once(gapless: Gapless, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    """At the width of the terminal: in a wide one each paragraph is one line. Also of a connector's commands."""
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("TERMINAL_WIDTH", "1000")

    told = gapless(*command, "--help").stdout.split("Options")[0].split("Arguments")[0]
    paragraphs = [each.strip() for each in told.split("Usage:")[1].splitlines()[1:]]

    assert all(before == "" or after == "" for before, after in pairwise(paragraphs)), paragraphs


def test_what_is_meant_to_be_lines_stays_lines() -> None:
    assert unwrapped("a\nb\n\nc\n  d\n\n\b\ne\nf") == "a b\n\nc d\n\n\b\ne\nf"


@pytest.mark.parametrize("module", ["gapless", "gapless.cli"])
def test_the_package_can_be_run(module: str) -> None:
    command = [sys.executable, "-m", module, "publish", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)

    assert "Usage: gapless publish " in done.stdout


def test_a_shell_can_complete_commands() -> None:
    """What the script that --install-completion installs asks for when somebody presses Tab."""
    done = subprocess.run(
        [sys.executable, "-m", "gapless"],
        env={**os.environ, "_GAPLESS_COMPLETE": "complete_bash", "COMP_WORDS": "gapless pub", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.stdout.split() == ["publish", "pubends"]


def test_a_broker_knows_the_variables_of_all_commands() -> None:
    """It refuses every other one."""
    found: set[Any] = set()
    for command in vars(get_command(app))["commands"].values():
        for option in command.params:
            found |= {option.envvar} if isinstance(option.envvar, str) else set(option.envvar or ())

    assert found | {PASSWORD_FILE} == OF_COMMANDS


def test_without_a_command_it_says_what_there_is(gapless: Gapless) -> None:
    assert "subscriptions" in gapless(status=2).output


@pytest.mark.parametrize("arguments", [["nonsense"], ["publish"], ["subscribe", "x"], ["pubends", "--nonsense"]])
def test_what_is_no_usage_ends_with_status_2(gapless: Gapless, arguments: list[str]) -> None:
    gapless(*arguments, status=2)


def test_the_version_is_printed(gapless: Gapless) -> None:
    assert gapless("--version").stdout.startswith("gapless 0.")


def test_an_error_is_a_sentence_and_a_traceback_only_on_demand(gapless: Gapless) -> None:
    command = ["pubends", "--url", "gapless://127.0.0.1:1"]

    result = gapless(*command, status=1)
    debugged = CliRunner().invoke(app, ["--debug", *command])

    assert result.stderr.startswith("gapless: cannot connect")
    assert "Traceback" not in result.output
    assert isinstance(debugged.exception, ConnectionClosedError)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (GaplessError("a sentence"), "a sentence"),
        (GaplessError(), "GaplessError"),
        (FileNotFoundError(2, "No such file or directory", "x.toml"), "x.toml: No such file or directory"),
        (OSError("no number"), "no number"),
    ],
)
def test_an_error_says_something(capsys: pytest.CaptureFixture[str], error: BaseException, text: str) -> None:
    show_error(error)

    assert capsys.readouterr().err == f"gapless: {text}\n"


def test_an_interrupt_has_the_status_of_one(gapless: Gapless, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(main: Coroutine[Any, Any, Any]) -> None:
        main.close()
        raise KeyboardInterrupt

    monkeypatch.setattr("gapless.cli.listings.run", interrupt)

    gapless("pubends", status=INTERRUPTED)


def test_an_interrupt_while_the_loop_is_closed_is_no_traceback() -> None:
    """The loop waits for its threads then, and one of them would print a traceback for an exception in the wait."""
    program = (
        "import asyncio, os, signal, time; from gapless.cli.connecting import run\n"
        "def interrupt(): time.sleep(0.2); os.kill(os.getpid(), signal.SIGINT); time.sleep(0.2)\n"
        "async def main(): asyncio.get_running_loop().run_in_executor(None, interrupt); print('done')\n"
        "run(main())"
    )

    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "done\n", "")


def test_a_reader_that_has_enough_is_no_error() -> None:
    """As in `gapless subscriptions | head -1`."""
    program = (
        "import sys; from gapless.cli import listings, app\n"
        "def fail(*_): raise BrokenPipeError(32, 'Broken pipe')\n"
        "listings.run = fail; sys.argv = ['gapless', 'pubends', '--url', 'embedded:']; app.app()"
    )
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (1, "")


def test_help_waits_for_no_broker_and_no_demo() -> None:
    """What runs a node, and what draws progress bars, is imported by the commands that want it."""
    source = Path(app_module.__file__).parent
    heavy = ("gapless.node", "rich", "sqlite3", "gapless_")
    imported = {
        name
        for path in source.glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }

    assert sorted(name for name in imported if name.startswith(heavy)) == []


INTERRUPTED_WHILE_IMPORTING = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, whatever started the tests
import gapless_main

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["gapless", "doctor", "--url", "gapless://127.0.0.1:1"]
gapless_main.main()
"""


@pytest.mark.parametrize("module", ["gapless", "msgspec", "gapless.cli.app", "gapless.plugins"])
def test_an_interrupt_is_no_traceback_however_early_it_comes(module: str) -> None:
    """While the package is imported, before anything of it can catch one, and when the command runs."""
    result = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode in {-signal.SIGINT, 130}
    assert result.stderr == ""
