"""The digests of many runs as one line: `python -m sim.digests [SEEDS]` from `tests`.

In worlds with a Kafka an event loop of asyncio runs, so they are among them.

Equal for equal code, whatever the interpreter's version and hash seed: that is what a seed promises.
"""

from __future__ import annotations

import sys
from hashlib import sha256
from itertools import product

from gapless_sim.search.campaign import Plan, run_one

ROUTERS = ("local", "hostile", "knowledge")


def digest_of(seeds: int) -> str:
    """One digest over that many seeds under each router, and in worlds with a Kafka."""
    plan, total = Plan(ROUTERS), sha256()
    for seed, router in product(range(seeds), ROUTERS):
        total.update(run_one(plan, seed, router).digest.encode())
    for seed in range(seeds):
        total.update(run_one(Plan(("local",), "kafka"), seed, "local").digest.encode())
    return total.hexdigest()


if __name__ == "__main__":
    print(digest_of(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
