"""How the demo's processes report, and learn that they are to end."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from gapless_flights import reporting
from gapless_flights.reporting import Reporter

PROGRAM = """
import asyncio
from gapless_flights import reporting
reporting.GRACE = {grace}

async def main():
    stop, ended = reporting.Stop(), asyncio.Event()
    stop.then(ended.set) if {heeds} else None
    print("runs", bool(stop), flush=True)
    await ended.wait()
    stop.then(lambda: print("told again", bool(stop), flush=True))

asyncio.run(main())
"""


def run(*, grace: float, heeds: bool) -> tuple[int, str]:
    """Runs a process until it says that it runs, closes its input, and returns its status and the rest it says."""
    command = [sys.executable, "-c", PROGRAM.format(grace=grace, heeds=heeds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "runs False\n"
            process.stdin.close()
            rest = process.stdout.read()
        except BaseException:
            process.kill()
            raise
    return process.returncode, rest


def test_the_end_of_the_input_is_heard_also_by_who_asks_later() -> None:
    assert run(grace=60, heeds=True) == (0, "told again True\n")


def test_who_does_not_heed_it_ends_all_the_same() -> None:
    """Nobody is left who would wait for it."""
    assert run(grace=0.1, heeds=False) == (3, "")


def test_reports_are_lines_and_not_too_many(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 100.0, 100.0, 100.0 + reporting.EVERY])
    monkeypatch.setattr(reporting, "monotonic", lambda: next(times))
    reporter = Reporter()

    was_due = [reporter.is_due]
    reporter.report(published=1)
    was_due += [reporter.is_due, reporter.is_due]

    assert was_due == [True, False, True]

    assert json.loads(capsys.readouterr().out) == {"published": 1}
