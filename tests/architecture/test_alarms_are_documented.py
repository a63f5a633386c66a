"""docs/reference/alarms.md has every alarm code, as the code itself explains it."""

from __future__ import annotations

from documents import ROOT
from gapless.core.alarms import AlarmCode


def test_every_code_stands_in_the_table_with_its_meaning_and_its_remedy() -> None:
    text = (ROOT / "docs/reference/alarms.md").read_text("utf-8")

    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert rows == [f"| `{code.label}` | {code.meaning} | {code.remedy} |" for code in AlarmCode]
