"""Progress: a bar for a person, lines now and then for a file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gapless_spark.pipelines import progress as module
from gapless_spark.pipelines.progress import shown


def test_lines_come_now_and_then_and_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: clock[0])
    out = io.StringIO()
    with shown("archived", "events", Console(file=out, width=40)) as say:
        for done in range(0, 1200, 100):
            say(done, 1100, "2 gaps" if done else "")
            clock[0] += 1

    assert out.getvalue().splitlines() == [
        "archived: 0 of 1,100 events",
        "archived: 500 of 1,100 events, 2 gaps",
        "archived: 1,000 of 1,100 events, 2 gaps",
        "archived: 1,100 of 1,100 events, 2 gaps",
    ]


def test_without_an_end_there_is_none_said() -> None:
    out = io.StringIO()
    with shown("archived", "events", Console(file=out)) as say:
        say(12345, None, "")

    assert out.getvalue() == "archived: 12,345 events\n"


def test_a_terminal_has_a_bar() -> None:
    out = io.StringIO()
    with shown("replayed", "events", Console(file=out, force_terminal=True, width=100)) as say:
        say(500, 1000, "3 gaps")
        say(1000, 1000, "3 gaps")

    assert "1000/1000" in out.getvalue()
    assert "events, 3 gaps" in out.getvalue()
