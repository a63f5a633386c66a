"""Rules against a model: nothing is seen, changed or counted that they forbid, and nothing refused that they allow.

All of it takes an hour of a core: GAPLESS_RIGHTS_SEQUENCES=100000 GAPLESS_RIGHTS_FRAMES=1000000 pytest
tests/sim/test_rights.py. GAPLESS_SEED_FIRST chooses other runs.
"""

from __future__ import annotations

import gc
import os
from collections import Counter

import pytest

from sim.rights_draws import REQUESTS
from sim.rights_fuzz import Fuzz
from sim.rights_play import Play

FIRST = int(os.environ.get("GAPLESS_SEED_FIRST", "1"))
SEQUENCES = int(os.environ.get("GAPLESS_RIGHTS_SEQUENCES", "150"))
OF_A_NETWORK = 25
"""So many sequences are tried on the same two nodes."""
FRAMES = int(os.environ.get("GAPLESS_RIGHTS_FRAMES", "3000"))
FRAMES_OF_A_NETWORK = 500


@pytest.mark.timeout(max(60, SEQUENCES))
def test_what_rules_forbid_is_refused_and_what_they_allow_is_not() -> None:
    counts: Counter[str] = Counter()
    for network in range(max(1, SEQUENCES // OF_A_NETWORK)):
        play = Play(f"{FIRST}/{network}")
        for _ in range(OF_A_NETWORK):
            play.sequence()
        counts.update(play.counts)
        gc.collect()

    assert counts["requests"] > REQUESTS * counts["sequences"]
    assert 0.2 < counts["refused"] / counts["requests"] < 0.8, "answers of both kinds come"
    assert 0.2 < counts["granted"] / counts["requests"] < 0.8
    for each in ("events delivered", "events read", "rows shown", "rows hidden", "lost", "guests"):
        assert counts[each] > 0, each


@pytest.mark.long
@pytest.mark.timeout(max(60, FRAMES // 100))
def test_frames_that_nobody_would_send_do_nothing_that_rules_forbid() -> None:
    """No exception either: a machine that fails raises what made it fail."""
    counts: Counter[str] = Counter()
    for network in range(max(1, FRAMES // FRAMES_OF_A_NETWORK)):
        fuzz = Fuzz(f"{FIRST}/{network}")
        fuzz.frames(FRAMES_OF_A_NETWORK)
        counts.update(fuzz.counts)
        gc.collect()

    for each in ("frames that mean nothing", "granted", "refused", "events delivered"):
        assert counts[each] > 0, each
