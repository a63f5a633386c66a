"""Which seeds a run of the tests tries: those of its day, so that no two days try the same."""

from __future__ import annotations

import os
import time

DAY = 86_400 * 10**9
DAILY = 60
"""Each under `local` and `hostile`; a third under `knowledge`, too, a tenth there with the workload `roaming`, and a
twentieth on trees of single nodes. Half under `delta`. A quarter with the workload `kafka`."""


def seed_count() -> int:
    """How many: `GAPLESS_SEEDS`, or those of a day."""
    return int(os.environ.get("GAPLESS_SEEDS", DAILY))


def first_seed() -> int:
    """The first: `GAPLESS_SEED_FIRST`, or the number of days since 1970 times the seeds of a day."""
    return int(os.environ.get("GAPLESS_SEED_FIRST", time.time_ns() // DAY * DAILY))
