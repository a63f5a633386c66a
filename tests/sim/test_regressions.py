"""Every failure that was shrunk and kept in tests/sim/regressions holds now.

`gapless simulate` writes such files. What a draw means may shift when code changes; then a file is one more seed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gapless_sim.search.regression import read_regression
from gapless_sim.search.run import run_seed

DIRECTORY = Path(__file__).parent / "regressions"
FILES = sorted(DIRECTORY.glob("*.json"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_failed_once_holds(path: Path) -> None:
    regression = read_regression(path)
    result = run_seed(regression.options, regression.choice_sequences)

    assert result.violation is None, f"{regression.what}, again: {result.violation}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_says_what_it_was(path: Path) -> None:
    regression = read_regression(path)

    assert len(regression.what.split()) > 3, "a sentence is what is left of it when the code has changed"
    assert ": " in regression.failed


def test_there_are_some() -> None:
    assert FILES != []
