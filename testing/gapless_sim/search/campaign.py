"""Many seeds on all cores: the simulator runs each of them, and their outcomes are summed up."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice

from gapless_sim.search.exhaustive import Outcome, Task, perform
from gapless_sim.search.result import Failure, Result
from gapless_sim.search.storages import SIMULATED, faults_on, options_on, run_on
from gapless_sim.world.choices import Choices
from gapless_sim.world.options import FAULTS, SECOND, Options, draw_options, with_order, with_policies, with_rules
from gapless_sim.world.topology import with_bypasses, with_interest_turns, with_replacements, with_topology

SEEDS_PER_PROCESS = 400
"""A worker is replaced after so many: what a run leaves in memory must not slow the others down."""
TASKS_PER_PROCESS = 200
RUNS_AHEAD = 16
"""So many runs wait for each worker, or it would stand idle behind one that takes long."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which runs there are: each seed under each router."""

    routers: tuple[str, ...] = ("local", "hostile")
    workload: str | None = None
    """None: as the seed draws it."""
    faults: tuple[str, ...] = FAULTS
    storage: str = SIMULATED
    """The storage plugin of the brokers' volumes."""
    topology: str | None = None
    """None: as the router needs it (see `with_topology`)."""
    seconds: float | None = None
    """The phase with faults lasts at most so long; None: as long as the seed draws it."""
    levels: int | None = None
    """So many levels of IBs has each drawn tree or mesh; None: as many as the seed draws."""

    def options(self, seed: int, router: str) -> Options:
        """What a seed is made of."""
        choices = Choices(seed)
        faults = faults_on(self.storage, self.faults)
        drawn = draw_options(seed, choices, router=router, workload=self.workload, faults=faults)
        if self.seconds is not None:
            drawn = replace(drawn, duration=min(drawn.duration, int(self.seconds * SECOND)))
        ruled = with_policies(drawn, choices.stream("policies"))
        placed = with_topology(ruled, choices, self.topology, faults, self.levels)
        placed = with_interest_turns(placed, choices.stream("interest turns"))
        placed = with_bypasses(placed, choices.stream("bypasses"))
        if "operator" in faults:
            placed = with_replacements(placed, choices.stream("replacements"))
            placed = with_rules(placed, choices.stream("rules"))
        return options_on(self.storage, with_order(placed, choices.stream("order")))

    def command(self, seed: int, router: str) -> str:
        """What shows the run of a seed on the command line."""
        parts = [f"gapless simulate --router {router} --seed {seed}"]
        if self.topology is not None:
            parts.append(f"--topology {self.topology}")
        if self.levels is not None:
            parts.append(f"--levels {self.levels}")
        if self.workload is not None:
            parts.append(f"--workload {self.workload}")
        if self.storage != SIMULATED:
            parts.append(f"--storage {self.storage}")
        if self.seconds is not None:
            parts.append(f"--seconds {self.seconds:g}")
        possible = faults_on(self.storage, FAULTS)
        if {*self.faults} & {*possible} != {*possible}:
            parts.append(f"--faults {','.join(faults_on(self.storage, self.faults)) or 'none'}")
        return " ".join(parts)


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run in another process."""

    seed: int
    router: str
    workload: str
    steps: int
    now: int
    digest: str
    hits: Counter[str]
    failure: Failure | None


@dataclass(slots=True)
class Total:
    """All runs together."""

    runs: int = 0
    steps: int = 0
    simulated: int = 0
    """Nanoseconds of virtual time."""
    hits: Counter[str] = field(default_factory=Counter)
    failures: list[Summary] = field(default_factory=list)

    def add(self, summary: Summary) -> None:
        """One more run."""
        self.runs += 1
        self.steps += summary.steps
        self.simulated += summary.now
        self.hits.update(summary.hits)
        if summary.failure is not None:
            self.failures.append(summary)


def run_one(plan: Plan, seed: int, router: str) -> Summary:
    """Runs one seed, in this process."""
    return summary_of(run_on(plan.storage, plan.options(seed, router)))


def summary_of(result: Result) -> Summary:
    """The part of a result that is sent to another process."""
    options = result.options
    return Summary(
        options.seed,
        options.router,
        options.workload,
        result.steps,
        result.now,
        result.digest,
        result.hits,
        result.violation,
    )


def campaign(plan: Plan, seeds: Iterable[int], *, processes: int | None = None) -> Iterator[Summary]:
    """Runs every seed under every router, on all cores, and yields what came of each, in their order.

    `seeds` may be endless: they are drawn as workers become free. Each worker has its own hash seed, drawn
    by the interpreter: a run that depends on it shows as two digests of one seed.
    """
    tasks = ((plan, seed, router) for seed in seeds for router in plan.routers)
    count = processes or os.cpu_count() or 1
    if count == 1:
        yield from map(_run_task, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(count, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        # A pool's own `imap` draws everything at once, and seeds may come without end.
        begun = deque(pool.apply_async(_run_task, (task,)) for task in islice(tasks, count * RUNS_AHEAD))
        while begun:
            yield begun.popleft().get()
            begun.extend(pool.apply_async(_run_task, (task,)) for task in islice(tasks, 1))


def exhaust(tasks: Iterable[Task], stride: int = 1, *, processes: int | None = None) -> Iterator[Outcome]:
    """Performs the tasks of small scopes, on all cores, and yields what comes of each as it ends."""
    count = processes or os.cpu_count() or 1
    if count == 1:
        yield from map(_perform, ((task, stride) for task in tasks))
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(count, maxtasksperchild=TASKS_PER_PROCESS) as pool:
        yield from pool.imap_unordered(_perform, ((task, stride) for task in tasks))


def _run_task(task: tuple[Plan, int, str]) -> Summary:
    return run_one(*task)


def _perform(task: tuple[Task, int]) -> Outcome:
    began = time.process_time()
    outcome = perform(*task)
    outcome.seconds = time.process_time() - began
    return outcome
