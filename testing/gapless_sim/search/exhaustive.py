"""Small scopes, exhaustively: one fault, then two, at every position of a short run.

A position is a step of the world: a frame that arrives, a sync that ends, a timer, a turn. What bugs there
are in three operations and one fault (and most there are need no more) is found here for certain, where
seeds find it by luck.

Of faults that lead to the same run only one is run; `striking` says which do, and why. Every case runs from
the beginning: a process that is forked in the middle of a run pays more for the pages that it copies (15 ms)
than the beginning would cost it.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless_sim.faults.fault_injection import FAULTS, InjectionContext, Mark
from gapless_sim.recording.access_tracking import watch_world
from gapless_sim.recording.trace import Trace
from gapless_sim.recording.trace_recorder import record_trace
from gapless_sim.search.run import come_right, watched
from gapless_sim.search.scopes import SCOPES, Scope, Script
from gapless_sim.world.choices import Choices
from gapless_sim.world.world_builder import build

if TYPE_CHECKING:
    from gapless_sim.search.result import Failure

__all__ = ["FAULTS", "SCOPES", "Case", "Counts", "Injection", "Outcome", "Scope", "Task", "follow", "run_case", "tasks"]

CASES_PER_TASK = 24
CASES_PER_COLLECTION = 4
"""What a run leaves behind is collected after so many."""


@dataclass(frozen=True, slots=True)
class Injection:
    """A fault at a position; the number says to whom."""

    position: int
    fault: str
    number: int

    def __str__(self) -> str:
        return f"{self.position}:{self.fault}:{self.number}"


@dataclass(frozen=True, slots=True)
class Case:
    """A scope and what goes wrong in it."""

    scope: Scope
    injections: tuple[Injection, ...] = ()

    def also(self, injection: Injection) -> Case:
        """The case in which this goes wrong, too."""
        return Case(self.scope, (*self.injections, injection))


@dataclass(slots=True)
class Counts:
    """What became of the cases."""

    run: int = 0
    equal: int = 0
    """Another that was run leads to the same run."""
    nothing: int = 0
    """The fault finds nothing to act on: it is the run without it."""

    @property
    def cases(self) -> int:
        """All of them."""
        return self.run + self.equal + self.nothing

    def add(self, other: Counts) -> None:
        """Both together."""
        self.run += other.run
        self.equal += other.equal
        self.nothing += other.nothing


@dataclass(slots=True)
class Followed:
    """A run of a case, and what more could go wrong in it."""

    failure: Failure | None = None
    positions: int = 0
    injections: list[Injection] = field(default_factory=list)
    """One of all those that lead to the same run."""
    equal: int = 0
    nothing: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """Some cases of one scope, and whether each is run with every further fault, too."""

    cases: tuple[Case, ...]
    weight: int
    """How much there is to do, compared with other tasks of the scope."""
    deeper: bool = False

    @property
    def scope(self) -> Scope:
        """Of all its cases."""
        return self.cases[0].scope


@dataclass(slots=True)
class Outcome:
    """What came of a task."""

    task: Task
    counts: Counts = field(default_factory=Counts)
    failures: list[tuple[Case, Failure]] = field(default_factory=list)
    seconds: float = 0.0
    """The time of a core that it took."""


# ---------------------------------------------------------------------------------------------- one run


def run_case(
    case: Case, trace: Trace | None = None, look: Callable[[InjectionContext], None] | None = None
) -> Failure | None:
    """Runs one case, and says what was wrong. `look` is called at each position from the last injection on."""
    trace = trace or Trace()
    world = build(case.scope.options(), Choices(0, {}), trace)
    if trace.keep:
        record_trace(world)
    script = Script(world, case.scope)
    context = InjectionContext(world, script, Counter() if look is None else watch_world(world))
    return watched(world, lambda _: _run(context, case.injections, look))


def _run(
    context: InjectionContext, coming: Sequence[Injection], look: Callable[[InjectionContext], None] | None
) -> None:
    world, script, injections = context.world, context.script, list(coming)
    script.begin()
    while True:
        while injections and context.position >= injections[0].position:
            injection = injections.pop(0)
            FAULTS[injection.fault].inject(context, injection.number)
            context.injected = (*context.injected, injection.fault)
        if look is not None and not injections:
            look(context)
        if not world.carry_out_one(script.end):
            break
    world.network.heal_all()
    for broker in world.brokers.values():
        broker.fuse = 0
        broker.heal_disk()
    script.begin_liveness()
    come_right(world)


def follow(case: Case, stride: int = 1) -> Followed:
    """Runs a case, and finds what else could go wrong at each position from the last injection on."""
    followed = Followed()
    seen: set[Mark] = set()

    def look(context: InjectionContext) -> None:
        followed.positions += 1
        if context.position % stride:
            return
        for fault in FAULTS.values():
            for number in range(fault.count(case.scope)):
                mark = fault.mark(context, number)
                if mark is None:
                    followed.nothing += 1
                elif mark in seen:
                    followed.equal += 1
                else:
                    seen.add(mark)
                    followed.injections.append(Injection(context.position, fault.name, number))

    followed.failure = run_case(case, look=look)
    return followed


# ----------------------------------------------------------------------------------------- all of them


def tasks(scope: Scope, depth: int, stride: int = 1) -> tuple[Followed, list[Task]]:
    """The run without any fault, and what is to be done to run the scope with up to so many faults (1 or 2)."""
    alone = Case(scope)
    followed = follow(alone, stride)
    ones = [alone.also(injection) for injection in followed.injections]
    if depth > 1:
        left = followed.positions
        behind = [Task((one,), left - one.injections[0].position, deeper=True) for one in ones]
        return followed, [Task((alone,), 1), *behind]
    cases = [alone, *ones]
    pieces = [tuple(cases[start : start + CASES_PER_TASK]) for start in range(0, len(cases), CASES_PER_TASK)]
    return followed, [Task(piece, len(piece)) for piece in pieces]


def perform(task: Task, stride: int = 1) -> Outcome:
    """Runs the cases of a task, each also with every further fault if that is wanted."""
    outcome = Outcome(task)
    with _collecting_seldom() as collect:
        for case in task.cases:
            if task.deeper:
                _perform_deeper(case, stride, outcome, collect)
            else:
                _perform_one(case, outcome, collect)
    return outcome


def _perform_one(case: Case, outcome: Outcome, collect: Callable[[], None]) -> None:
    _note(outcome, case, run_case(case))
    collect()


def _perform_deeper(case: Case, stride: int, outcome: Outcome, collect: Callable[[], None]) -> None:
    followed = follow(case, stride)
    _note(outcome, case, followed.failure)
    outcome.counts.add(Counts(0, followed.equal, followed.nothing))
    if followed.failure is None:
        for injection in followed.injections:
            _perform_one(case.also(injection), outcome, collect)


def _note(outcome: Outcome, case: Case, failure: Failure | None) -> None:
    outcome.counts.run += 1
    if failure is not None:
        outcome.failures.append((case, failure))


@contextmanager
def _collecting_seldom() -> Iterator[Callable[[], None]]:
    """No garbage collection within but after every so many calls; what is there already is not looked at."""
    enabled, calls = gc.isenabled(), 0
    gc.disable()
    gc.freeze()

    def collect() -> None:
        nonlocal calls
        calls += 1
        if calls % CASES_PER_COLLECTION == 0:
            gc.collect()

    try:
        yield collect
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()
