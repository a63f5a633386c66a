"""`gapless simulate --exhaustive`: small scopes, with faults at every position."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from gapless_sim.search.exhaustive import Case, Counts, Followed, Injection, Outcome, Scope, Task
    from gapless_sim.search.result import Failure

COLUMNS = {
    "phbs": "PHBs",
    "shbs": "SHBs",
    "publishes": "events",
    "subscribers": "subscribers",
    "positions": "positions",
    "cases": "cases",
    "run": "run",
    "equal": "equal",
    "nothing": "nothing",
    "failures": "failed",
    "cpu_s": "core seconds",
}

NO_FAULT = "none"
"""How the case without any fault is written."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be run."""

    depth: int
    """How many faults."""
    scopes: tuple[Scope, ...]
    stride: int = 1
    part: tuple[int, int] = (1, 1)
    """Which part, and of how many."""
    processes: int | None = None


@dataclass(slots=True)
class Sum:
    """What came of a scope."""

    scope: Scope
    followed: Followed
    counts: Counts
    failures: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def row(self) -> dict[str, Any]:
        """For a table or a program."""
        return {
            "phbs": self.scope.phbs,
            "shbs": self.scope.shbs,
            "publishes": self.scope.publishes,
            "subscribers": self.scope.subscribers,
            "positions": self.followed.positions,
            "cases": self.counts.cases,
            "run": self.counts.run,
            "equal": self.counts.equal,
            "nothing": self.counts.nothing,
            "failures": len(self.failures),
            "cpu_s": round(self.seconds, 1),
        }


def scopes_of(count: int, names: Sequence[str], routers: Sequence[str] = ()) -> tuple[Scope, ...]:
    """The scopes of these names, or else the first so many: those with IBs, where only such routers are named."""
    from gapless_sim.search.scopes import CELL_SCOPES, CHAIN_SCOPES, SCOPES, scope_named
    from gapless_sim.world.routers import CELLS, NODES, networks_of

    made_for = {networks_of(router) for router in routers}
    listed = CELL_SCOPES if made_for == {CELLS} else CHAIN_SCOPES if made_for == {NODES} else SCOPES
    try:
        return tuple(map(scope_named, names)) or listed[:count]
    except KeyError as error:
        known = ", ".join(map(str, listed))
        raise ConfigurationError(f"--scope: there is no {error.args[0]!r}; there are {known}") from None


def part_of(text: str) -> tuple[int, int]:
    """Which part of how many; written 3/10."""
    which, _, count = text.partition("/")
    if not (which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise ConfigurationError(f"--part: {text!r} is not K/N, with K from 1 to N")
    return int(which), int(count)


def exhaust_scopes(wanted: Wanted, *, as_json: bool) -> int:
    """Runs all that is wanted, and shows a row for each scope. Returns the exit status."""
    began = time.monotonic()
    sums = _run(wanted)
    rows = [one.row() for one in sums.values()]
    failures = [failure for one in sums.values() for failure in one.failures]
    if as_json:
        from gapless.cli.output import print_json

        fields = {"faults": wanted.depth, "stride": wanted.stride, "part": "{}/{}".format(*wanted.part)}
        elapsed = round(time.monotonic() - began, 1)
        print_json({**fields, "scopes": rows, "failures": len(failures), "failed": failures, "elapsed_s": elapsed})
    else:
        _show(wanted, rows, time.monotonic() - began)
    return 1 if failures else 0


def _show(wanted: Wanted, rows: list[dict[str, Any]], elapsed: float) -> None:
    from gapless.cli.output import print_listing
    from gapless_sim.search.exhaustive import FAULTS

    print_listing(rows, COLUMNS, as_json=False, empty="no scope")
    cases, run, equal, nothing, failed = (
        sum(row[name] for row in rows) for name in ("cases", "run", "equal", "nothing", "failures")
    )
    print(
        f"{cases:,} cases with up to {wanted.depth} of {len(FAULTS)} kinds of faults: "
        f"{run:,} were run, {equal:,} equal one of these, in {nothing:,} the fault finds nothing to act on. "
        f"{failed:,} failed. {elapsed:.0f} s"
    )


def _run(wanted: Wanted) -> dict[Scope, Sum]:
    from rich import progress as rich_progress
    from rich.console import Console

    from gapless_sim.search.campaign import exhaust

    console = Console(stderr=True)
    sums, tasks = _plan(wanted)
    columns = (*rich_progress.Progress.get_default_columns(), rich_progress.TimeElapsedColumn())
    with rich_progress.Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("cases", total=sum(_effort(sums, task) for task in tasks))
        done = 0
        for outcome in exhaust(tasks, wanted.stride, processes=wanted.processes):
            done += outcome.counts.run
            _take(console, wanted, sums[outcome.task.scope], outcome)
            progress.update(bar, advance=_effort(sums, outcome.task), description=f"{done:,} cases run")
    return sums


def _plan(wanted: Wanted) -> tuple[dict[Scope, Sum], list[Task]]:
    """The scopes with what is known before, and the tasks of this part."""
    from gapless_sim.search.exhaustive import Counts, tasks

    sums, all_tasks = {}, []
    which, parts = wanted.part
    for scope in wanted.scopes:
        followed, of_scope = tasks(scope, wanted.depth, wanted.stride)
        # What needs no run is counted where a run would be: with one fault here, with two under the first.
        here = wanted.depth == 1 and which == 1
        counts = Counts(0, followed.equal, followed.nothing) if here else Counts()
        sums[scope] = Sum(scope, followed, counts)
        all_tasks += of_scope
    return sums, all_tasks[which - 1 :: parts]


def _effort(sums: dict[Scope, Sum], task: Task) -> int:
    """How long a task takes, compared with others: with two faults it is about the square of the positions."""
    each = sums[task.scope].followed.positions
    return task.weight * each * (len(sums[task.scope].followed.injections) if task.deeper else each)


def _take(console: Console, wanted: Wanted, total: Sum, outcome: Outcome) -> None:
    total.counts.add(outcome.counts)
    total.seconds += outcome.seconds
    for case, failure in outcome.failures:
        command = f"gapless simulate --exhaustive {wanted.depth} {_options(case)}"
        total.failures.append({"oracle": failure.oracle, "what": failure.what, "replay": command})
        console.print(f"[bold red]{failure.oracle}[/] {failure.what}", soft_wrap=True, highlight=False)
        console.print(f"  to look at it: {command}", soft_wrap=True, highlight=False)


def _options(case: Case) -> str:
    return " ".join(
        [f"--scope {case.scope}", *(f"--strike {injection}" for injection in case.injections or (NO_FAULT,))]
    )


# ---------------------------------------------------------------------------------------------- one case


def replay_case(scopes: Sequence[Scope], injections: Sequence[str]) -> int:
    """Runs one case, and draws what happened. Returns the exit status."""
    from rich.console import Console

    from gapless_sim.recording.lanes import lanes_text
    from gapless_sim.recording.trace import Trace
    from gapless_sim.search.exhaustive import Case, run_case

    if len(scopes) != 1:
        raise ConfigurationError("--strike: which --scope is it?")
    injections = [injection for injection in injections if injection != NO_FAULT]
    case, trace = Case(scopes[0], tuple(map(_injection, injections))), Trace(keep=True)
    failure: Failure | None = run_case(case, trace)
    console = Console(stderr=True)
    print(lanes_text(trace.lines, failure, limit=60 if failure else None, width=max(80, console.width)))
    verdict = f"[bold red]{failure}[/]" if failure else f"no promise was broken; trace {trace.digest()}"
    console.print(verdict, soft_wrap=True, highlight=False)
    return 1 if failure else 0


def _injection(text: str) -> Injection:
    from gapless_sim.search.exhaustive import FAULTS, Injection

    position, _, rest = text.partition(":")
    fault, _, number = rest.partition(":")
    if not (position.isdecimal() and number.isdecimal() and fault in FAULTS):
        raise ConfigurationError(f"--strike: {text!r} is not POSITION:FAULT:NUMBER; faults are {', '.join(FAULTS)}")
    return Injection(int(position), fault, int(number))
