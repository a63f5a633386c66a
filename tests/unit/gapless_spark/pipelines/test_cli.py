"""The commands: what they take, what they print, and how what is wrong is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gapless.cli.connecting import INTERRUPTED
from gapless.errors import ConfigurationError
from gapless_spark.pipelines import archive as archive_module
from gapless_spark.pipelines import broker, cli, compaction, session
from gapless_spark.pipelines import replay as replay_module
from gapless_spark.pipelines.archive import Archived
from gapless_spark.pipelines.replay import Replayed
from unit.gapless_spark.pipelines.archives import P, add_batch, make_archive, numbers_in, tick

COMMANDS = ("archive", "compact", "replay", "heal")


class Called(dict[str, Any]):
    """Stands for a pipeline: remembers with what it was called, and answers."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, *places: Any, **names: Any) -> Any:
        self.update(names, places=places)
        if "on_progress" in names:
            names["on_progress"](self.answer)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def invoke(*arguments: object, status: int = 0) -> Any:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result


@pytest.fixture
def archiving(monkeypatch: pytest.MonkeyPatch) -> Called:
    """No Spark, and no broker."""

    @contextmanager
    def nothing(*arguments: Any) -> Iterator[Any]:
        yield arguments

    called = Called(Archived(3, 48, 0, 1.5, 48, 0.2))
    monkeypatch.setattr(session, "spark_session", nothing)
    monkeypatch.setattr(broker, "connected", nothing)
    monkeypatch.setattr(archive_module, "archive", called)
    return called


def test_every_command_explains_itself() -> None:
    listed = invoke("--help").stdout

    for name in COMMANDS:
        assert name in listed
        assert "--json" in invoke(name, "--help").stdout


def test_archive(archiving: Called, tmp_path: Path) -> None:
    path = tmp_path / "a"
    result = invoke("archive", path, "--subscription", "s", "--topic", "t.#", "--topic", "u", "--spark-conf", "a=b=c")

    assert result.stdout == f"archived 48 events in 3 batches, 1.5 s: {path}\n"
    assert "archived: 48 of 48 events, 3 batches, 0 s behind" in result.stderr
    assert archiving["places"][0] == ("local[*]", {"a": "b=c"})
    assert (archiving["subscription"], archiving["topics"], archiving["start"]) == ("s", ["t.#", "u"], "earliest")
    assert (archiving["follow"], archiving["selector"], archiving["max_events"]) == (False, None, 250_000)


def test_archive_for_programs_and_with_gaps(archiving: Called, tmp_path: Path) -> None:
    archiving.answer = Archived(3, 48, 2, 1.5, 48, 0.2)
    result = invoke("archive", tmp_path, "--subscription", "s", "--json", status=1)

    assert json.loads(result.stdout) == {
        "archive": str(tmp_path), "batches": 3, "events": 48, "gaps": 2, "seconds": 1.5, "waiting": 48,
        "lag_seconds": 0.2,
    }  # fmt: skip
    archiving.answer = Archived()
    assert "nothing new" in invoke("archive", tmp_path, "--subscription", "s").stdout


@pytest.mark.parametrize(("follow", "status"), [(True, 0), (False, INTERRUPTED)])
def test_archive_that_is_stopped(
    archiving: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, follow: bool, status: int
) -> None:
    """By Ctrl-C or SIGTERM: behind the batch in hand."""

    class Stopped(Called):
        def __call__(self, *places: Any, **names: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            assert names["stopping"].is_set()
            return super().__call__(*places, **names)

    stopped = Stopped(archiving.answer)
    monkeypatch.setattr(archive_module, "archive", stopped)
    before = signal.getsignal(signal.SIGTERM)
    result = invoke("archive", tmp_path, "--subscription", "s", *(["--follow"] if follow else []), status=status)

    assert "archived 48 events" in result.stdout
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_interrupt_ends_it_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), cli._stopping() as stopping:
        for _ in range(2):
            assert isinstance(stopping, threading.Event)
            os.kill(os.getpid(), signal.SIGINT)


def test_what_is_wrong_is_said_before_spark_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "spark_session", Called(AssertionError("it was started")))
    for arguments, text in (
        ((tmp_path / "new",), "is a new archive: name the durable subscription"),
        ((make_archive(tmp_path / "a").path, "--subscription", "other"), "take another path"),
        ((tmp_path / "new", "--start", "noon"), "is not latest, earliest"),
        ((tmp_path / "new", "--spark-conf", "x"), "is not NAME=VALUE"),
        ((tmp_path / "new", "--subscription", "s", "--url", "embedded:x"), "a pipeline needs one of its own"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            invoke("archive", *arguments)


def test_compact(tmp_path: Path) -> None:
    folder = make_archive(tmp_path)
    assert "nothing to compact" in invoke("compact", tmp_path).stdout
    for at in (0, 5, 10):
        add_batch(folder, {P: at + 5}, {P: [at + 1, at + 2]})
    before = numbers_in(folder)
    result = invoke("compact", tmp_path, "--keep", "0")

    assert result.stdout.splitlines() == [
        "3 files of 3 batches became 1, with 6 events",
        "3 replaced files removed, 0 kept for those who read them",
    ]
    assert numbers_in(folder) == before
    assert json.loads(invoke("compact", tmp_path, "--json").stdout)["batches"] == 0


def test_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(Replayed(5, 2, 1, 8, ((P, tick(0), tick(4)),)))
    monkeypatch.setattr(replay_module, "replay", called)
    result = invoke(
        "replay", tmp_path, "--topic", "t", "--from", "2026-01-01T00:00:00Z", "--to", 77, "--pubend", P, status=1
    )

    assert result.stdout.startswith("published 5 events; 2 were there already, and 1 were noted")
    assert f"GAP: the archive lacks ({tick(0)}, {tick(4)}] of p@1, 2027-01-15 08:00:00 to " in result.stdout
    assert "replayed: 8 of 8 events" in result.stderr
    assert (called["start"], called["end"]) == (datetime(2026, 1, 1, tzinfo=timezone.utc), 77)
    assert (called["topic"], called["pubends"], called["resume"]) == ("t", [P], True)
    assert json.loads(invoke("replay", tmp_path, "--json", status=1).stdout)["gaps"] == [[P, tick(0), tick(4)]]
    with pytest.raises(ConfigurationError, match="--from: 'noon' is neither a tick nor a time with its zone"):
        invoke("replay", tmp_path, "--from", "noon")


@pytest.mark.parametrize(
    ("command", "module"),
    [("compact", "pyarrow.parquet"), ("replay", "pyarrow"), ("archive", "pyarrow.parquet")],
)
def test_what_is_not_installed_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, module: str
) -> None:
    add_batch(make_archive(tmp_path), {P: 5}, {P: [1]})
    for name in [name for name in sys.modules if name.startswith("gapless_spark.") and name != cli.__name__]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    extra = ["--topic", "x"] if command == "replay" else []

    with pytest.raises(ConfigurationError, match=r'pip install "gapless\[spark\]"'):
        invoke(command, tmp_path, *extra)


def test_pyspark_that_is_not_installed_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigurationError, match="this needs PySpark 4"):
        with session.spark_session("local[1]", {}):
            pass


def test_help_waits_for_neither_spark_nor_pyarrow() -> None:
    program = "import sys; import gapless_spark.pipelines.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert {"pyarrow", "pyspark", "rich.progress"} & set(done.stdout.split()) == set()
    assert compaction.KEEP_SECONDS == 3600.0, "as the option says"
    assert (compaction.ROWS, archive_module.MAX_EVENTS) == (1_000_000, 250_000)
