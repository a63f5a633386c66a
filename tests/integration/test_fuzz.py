"""A few seconds of what `python3 dev.py fuzz` does for ten minutes: nobody fails for what nobody should say."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.run import Run


@pytest.mark.timeout(120)
async def test_mutated_frames_fell_nobody_and_the_node_that_lies_is_named(tmp_path: Path) -> None:
    outcome = await Run(tmp_path, 6, 20_261_129, lambda _: None).run()

    assert outcome.faults == []
    assert outcome.blamed, outcome.done
    assert outcome.done["frames of a client"] > 100
    assert outcome.done["frames of no node"] > 100
    assert outcome.done["false, and possible"] + outcome.done["false"] > 5
    assert outcome.served["phb"] > 10
    assert outcome.served["shb"] > 10
