"""Few of the kills that `python3 dev.py spark-kills` does, and that its proof sees what can be wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from documents import ROOT
from gapless_flights.data import made_up_flights
from integration.spark_kit import require_spark
from spark_kills.program import may_start_again
from spark_kills.proof import Result, committed, computed, judge_results, judge_rows, row_of

KILLS = 3
PUBLISHED = 6_000

FLIGHTS = {("flights@1", 1024 * number): line for number, line in enumerate(made_up_flights(200, seed=1), start=1)}
ROWS = [row_of(place, line) for place, line in FLIGHTS.items()]
RESULTS = [result for place, line in FLIGHTS.items() if (result := computed(place, line))]


@pytest.mark.skipif(sys.platform != "linux", reason="it finds processes in /proc")
@pytest.mark.timeout(600)
def test_every_row_comes_out_once_whoever_is_killed(tmp_path: Path) -> None:
    require_spark("spark-whole")
    options = ["--kills", str(KILLS), "--flights", str(PUBLISHED), "--seed", "7", "--json"]
    command = [sys.executable, str(ROOT / "tests" / "spark_kills"), "--directory", str(tmp_path), *options]

    done = subprocess.run(command, capture_output=True, text=True, timeout=570, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["kills"] == {"worker": 1, "broker": 1, "jvm": 1}
    assert said["parquet"]["found"] == said["parquet"]["expected"] == said["published"] == PUBLISHED
    assert said["sink"]["found"] == said["sink"]["expected"] > PUBLISHED // 10
    assert said["right"] is True


def test_what_should_come_out_is_right_in_any_order() -> None:
    assert judge_rows(FLIGHTS, reversed(ROWS)).is_right
    assert 20 < len(RESULTS) < len(FLIGHTS)
    assert judge_results(FLIGHTS, reversed(RESULTS)).is_right


@pytest.mark.parametrize(
    ("rows", "missing", "doubled", "wrong"),
    [
        (ROWS[1:], 1, 0, 0),
        ([*ROWS, ROWS[7]], 0, 1, 0),
        ([*ROWS[1:], ROWS[7]], 1, 1, 0),
        ([*ROWS, {**ROWS[0], "tick": 5}], 0, 0, 1),
        ([{**ROWS[0], "payload": b""}, *ROWS[1:]], 0, 0, 1),
        ([{**ROWS[0], "properties": {}}, *ROWS[1:]], 0, 0, 1),
        ([{**ROWS[0], "published_at": None}, *ROWS[1:]], 0, 0, 1),
    ],
)
def test_rows_that_are_not_right_are_seen(
    rows: list[Mapping[str, Any]], missing: int, doubled: int, wrong: int
) -> None:
    verdict = judge_rows(FLIGHTS, rows)

    assert (verdict.missing, verdict.doubled, verdict.wrong) == (missing, doubled, wrong)
    assert not verdict.is_right
    assert verdict.examples


@pytest.mark.parametrize(
    ("results", "missing", "doubled", "wrong"),
    [
        (RESULTS[1:], 1, 0, 0),
        ([*RESULTS, RESULTS[3], RESULTS[3]], 0, 2, 0),
        ([*RESULTS[1:], RESULTS[3]], 1, 1, 0),
        ([*RESULTS, ("made_good.JFK", "", ())], 0, 0, 1),
        ([("made_good.XXX", *RESULTS[0][1:]), *RESULTS[1:]], 1, 0, 1),
    ],
)
def test_results_that_are_not_right_are_seen(results: list[Result], missing: int, doubled: int, wrong: int) -> None:
    verdict = judge_results(FLIGHTS, results)

    assert (verdict.missing, verdict.doubled, verdict.wrong) == (missing, doubled, wrong)
    assert not verdict.is_right
    assert verdict.examples


def test_only_files_count_that_spark_has_committed(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name, files in {"9.compact": ["a", "b"], "10": ["c"], "11": []}.items():
        lines = [json.dumps({"path": f"file:///elsewhere/{file}.parquet", "action": "add"}) for file in files]
        (log / name).write_text("\n".join(["v1", *lines]), "utf-8")
    (log / ".10.crc").write_bytes(b"\xff")
    (tmp_path / "left.parquet").touch()

    assert committed(tmp_path) == [tmp_path / f"{name}.parquet" for name in "abc"]


@pytest.mark.parametrize(
    ("log", "may"),
    [
        ("the query sink is over: [STREAM_FAILED] Python worker failed to connect back.", True),
        ("WARN: not acknowledged\nthe query sink is over: Python worker failed to connect back.", True),
        ("the query sink is over: GAPLESS_GAP pubend=flights: Python worker failed to connect back.", False),
        (f"GAPLESS_IN_USE{'.' * 9000}\nthe query sink is over: Python worker failed to connect back.", False),
        ("Python worker failed to connect back, task 0 is tried again\nthe query sink is over: None", False),
        ("Traceback (most recent call last):\nPython worker failed to connect back.", True),
        ("the query sink is over: Job aborted: KeyError: 'flights@1'", False),
        ("", False),
    ],
)
def test_only_what_spark_gives_up_by_itself_is_a_mishap(log: str, may: bool) -> None:
    assert may_start_again(log) is may
