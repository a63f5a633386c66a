"""What a person sees of a run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from gapless_flights.plan import kill_plan
from gapless_flights.proof import prove
from gapless_flights.report import BarReport, LineReport, conclusion, print_outcome, report_for
from gapless_flights.run import DemoOutcome, DemoRun
from gapless_flights.selections import SELECTIONS, many_selections
from gapless_flights.supervisor import DemoProgress

FLIGHTS = ["a", "b", "c"]
RIGHT = DemoOutcome(
    seed=7,
    published=3,
    seconds=1.5,
    stalled=False,
    kills={"broker": 2, "publisher": 0, "everything": 1},
    verdicts=[prove("everything", "", FLIGHTS, FLIGHTS), prove("to-s", "dest LIKE 'S%'", ["b"], ["b"])],
)
WRONG = replace(RIGHT, stalled=True, verdicts=[*RIGHT.verdicts[:1], prove("to-s", "dest LIKE 'S%'", ["b"], [])])


@pytest.fixture
def run_of_two(tmp_path: Path) -> DemoRun:
    selections = SELECTIONS[:2]
    plan = kill_plan(7, 2, [selection.name for selection in selections])
    return DemoRun(FLIGHTS, selections, plan, 7, 0, tmp_path)


def console(*, terminal: bool, width: int = 160) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_without_a_terminal_there_is_a_line_now_and_then(
    run_of_two: DemoRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless_flights.report.EVERY", 0)
    out = console(terminal=False)
    report = report_for(out)
    progress = DemoProgress(run_of_two.selections)

    report.started(run_of_two, {"everything": 3, "late-from-jfk": 1})
    progress.published = 2
    report.progress(progress, {})
    report.killed("broker", progress)
    report.close()

    assert isinstance(report, LineReport)
    assert printed(out).splitlines() == [
        "publishing 3 flights to 2 subscribers, with 2 kills (seed 7)",
        "published 2; consumed: everything 0, late-from-jfk 0",
        "kill -9 broker (published 2, consumed 0)",
    ]


async def test_lines_come_now_and_then_only(run_of_two: DemoRun) -> None:
    out = console(terminal=False)
    report = report_for(out)

    report.started(run_of_two, {})
    for _ in range(100):
        report.progress(DemoProgress(run_of_two.selections), {})

    assert len(printed(out).splitlines()) == 1


async def test_a_terminal_gets_bars(run_of_two: DemoRun) -> None:
    out = console(terminal=True)
    report = report_for(out)
    progress = DemoProgress(run_of_two.selections)

    report.started(run_of_two, {"everything": 3, "late-from-jfk": 1})
    progress.published = progress.consumed["everything"] = 3
    report.progress(progress, {"everything": 4})
    report.killed("everything", progress)
    report.close()

    assert isinstance(report, BarReport)
    assert "killed 4 ×" in printed(out)
    assert "kill -9 everything" in printed(out)


def test_a_right_outcome_is_a_table_and_a_sentence() -> None:
    out = console(terminal=False)

    print_outcome(out, RIGHT)

    assert "(everything)" in printed(out)
    assert "exactly what its selector selects, in order, once" in printed(out)
    assert "3 flights published, 4 consumed in 1.5 s; killed: broker 2 ×, everything 1 ×." in printed(out)


def test_a_narrow_terminal_gets_a_table_that_fits() -> None:
    """What the table leaves out, the sentence below it says."""
    narrow = console(terminal=True, width=80)

    print_outcome(narrow, replace(RIGHT, verdicts=[prove("to-s", "", ["b"], ["b", "x"])]))

    header = next(line for line in printed(narrow).splitlines() if "subscription" in line)
    columns = ["subscription", "selected", "consumed", "missing", "doubled", "reordered", "killed"]
    assert Text.from_ansi(header).plain.split() == columns
    assert "WRONG: to-s: 1 not selected; first at row 2: expected nothing; consumed x" in printed(narrow)


def test_many_subscribers_are_summed_up() -> None:
    rows = ["x"]
    many = [prove(f"late-{number}", "dest = 'SFO'", rows, rows) for number in range(1000)]
    wide, narrow = console(terminal=True), console(terminal=False)

    print_outcome(wide, replace(RIGHT, verdicts=[*many, prove("last", "", rows, [])]))
    print_outcome(narrow, replace(RIGHT, verdicts=many))

    for out, more in ((wide, "993 more"), (narrow, "992 more")):
        lines = Text.from_ansi(printed(out)).plain.splitlines()
        assert any(line.split()[:2] == more.split() for line in lines)
        assert not any("late-8" in line for line in lines)
    assert "WRONG: last: 1 missing" in Text.from_ansi(printed(wide)).plain
    assert "exactly what its selector selects" in printed(narrow)


def test_of_many_that_are_wrong_the_first_are_named() -> None:
    wrong = [prove(f"late-{number}", "", ["x"], []) for number in range(100)]

    lines = [line for line in conclusion(replace(RIGHT, verdicts=wrong)) if line.startswith("WRONG")]

    assert len(lines) == 21
    assert lines[-1] == "WRONG: and 80 more"


@pytest.mark.parametrize("terminal", [False, True])
async def test_progress_of_many_subscribers_is_one_figure(
    run_of_two: DemoRun, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr("gapless_flights.report.EVERY", 0)
    out = console(terminal=terminal)
    report = report_for(out)
    selections = many_selections("flights", 1000)
    progress = DemoProgress(selections)

    report.say("starting Kafka")
    report.started(run_of_two, {selection.name: 2 for selection in selections})
    progress.consumed["everything"] = 5
    report.progress(progress, {})
    report.close()

    said = Text.from_ansi(printed(out)).plain
    assert "starting Kafka" in said
    assert "by 1,000 subscribers" in said
    assert "late-from-jfk" not in said


def test_a_wrong_outcome_names_the_first_wrong_row_and_the_seed() -> None:
    lines = conclusion(WRONG)

    assert "It was given up because nothing moved any more." in lines
    assert "WRONG: to-s: 1 missing; first at row 1: expected b; consumed nothing" in lines
    assert lines[-1] == "--seed 7 draws the same kills again."
    assert not any("exactly" in line for line in lines)
