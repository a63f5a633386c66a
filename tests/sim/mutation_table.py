"""Which switch is found by which invariant, after how many seeds: `python -m sim.mutation_table` from `tests`.

    --only NAME …     these switches alone
    --seeds N         at most so many seeds for each (2,000)
    --seconds S       the phase with faults lasts at most so long, as in `gapless simulate`
    --processes N     how many switches at a time; else one on each core
    --json            one object, for programs

Each seed is run under both routers. A violation by an invariant that was not meant to find it is noted and
does not count. Before the last line stands how many edits replace a whole decision, which outlives a change of its
code, and how many a fragment. The exit status is 1 if a switch was not found.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from itertools import product

from gapless_sim.search.campaign import Plan
from gapless_sim.search.run import run_seed
from sim.switches.catalogue import SWITCHES, switch_named
from sim.switches.edits import Replace

SEEDS = 2_000
NUMBERED = re.compile(r"[A-Z]+\d+")
OUT_OF_DATE = {f"exception {kind.__name__}" for kind in (AttributeError, NameError, TypeError, UnboundLocalError)}
"""What an edit fails with that was made for code which is another one now."""
STEPS_MAX = 300_000
"""A run that takes so many is given up: some broken rules make a broker busy with itself for ever."""


@dataclass(frozen=True, slots=True)
class Found:
    """How a switch was found, or that it was not."""

    switch: str
    breaks: tuple[str, ...]
    meant: tuple[str, ...]
    by: str
    """The invariant; "" if none of those that were meant found it."""
    seed: int
    router: str
    seeds: int
    """How many seeds it took."""
    cpu_s: float
    """Of one core."""
    others: tuple[str, ...]
    """Who else cried before."""


def search(name: str, seeds: int, seconds: float | None) -> Found:
    """Runs seeds with a switch on until one of the invariants that are meant finds it."""
    switch = switch_named(name)
    plan = Plan(switch.routers, switch.workload, seconds=seconds)
    began = time.process_time()
    others: dict[str, None] = {}
    with switch.applied():
        for seed, router in product(range(seeds), switch.routers):
            failure = run_seed(plan.options(seed, router), steps_max=STEPS_MAX).violation
            if failure is None:
                continue
            if is_meant(failure.oracle, switch.oracle):
                took = round(time.process_time() - began, 1)
                return Found(
                    name, switch.breaks, switch.oracle, failure.oracle, seed, router, seed + 1, took, tuple(others)
                )
            others[failure.oracle] = None
            if failure.oracle in OUT_OF_DATE:
                others[f"out of date: {failure}"] = None
                break
    took = round(time.process_time() - began, 1)
    return Found(name, switch.breaks, switch.oracle, "", -1, "", seeds, took, tuple(others))


def is_meant(oracle: str, meant: tuple[str, ...]) -> bool:
    """Whether what cried was meant to. Liveness oracles are named by their class: V1LiveDelivery is V1."""
    return (NUMBERED.match(oracle) or [oracle])[0] in meant


def main() -> int:
    """Searches for all of them, on all cores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = arguments.only or [switch.name for switch in SWITCHES if not switch.awaits]
    found: list[Found] = []
    with multiprocessing.get_context("spawn").Pool(arguments.processes, maxtasksperchild=1) as pool:
        tasks = [(name, arguments.seeds, arguments.seconds) for name in names]
        for one in pool.imap_unordered(_search, tasks, chunksize=1):
            found.append(one)
            print(_line(one), file=sys.stderr, flush=True)
    found.sort(key=lambda one: names.index(one.switch))
    if arguments.json:
        print(json.dumps([asdict(one) for one in found]))
    else:
        for one in found:
            print(_line(one))
    print(_kinds(names), file=sys.stderr)
    missed = [one.switch for one in found if not one.by]
    print(f"{len(found) - len(missed)} of {len(found)} found; missed: {', '.join(missed) or 'none'}", file=sys.stderr)
    return 1 if missed else 0


def _search(task: tuple[str, int, float | None]) -> Found:
    return search(*task)


def _kinds(names: Collection[str]) -> str:
    """How many edits of these switches replace a whole decision, and how many a fragment of a function's text."""
    edits = [edit for switch in SWITCHES if switch.name in names for edit in switch.edits]
    whole = sum(isinstance(edit, Replace) for edit in edits)
    return f"{len(edits)} edits: {whole} of whole decisions, {len(edits) - whole} of fragments"


def _line(one: Found) -> str:
    how = f"{one.by} at seed {one.seed}, {one.router}" if one.by else f"not found; others: {', '.join(one.others)}"
    return f"| {one.switch} | {', '.join(one.breaks)} | {', '.join(one.meant)} | {how} | {one.seeds} | {one.cpu_s} |"


if __name__ == "__main__":
    sys.exit(main())
