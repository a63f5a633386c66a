"""One seed of the simulator, looked at: what happened, and the smallest run that fails alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from gapless_sim.search.campaign import Plan
    from gapless_sim.search.result import Result
    from gapless_sim.search.shrink import Shrunk
    from gapless_sim.world.choices import ChoiceSequences
    from gapless_sim.world.options import Options

SECOND = 1_000_000_000
RUNS_MAX = 600


def replay(plan: Plan, seed: int, *, regression: Path | None, shrink: bool, as_json: bool) -> int:
    """Runs a seed under each router of the plan and shows what came of it. Returns the exit status."""
    from rich.console import Console

    from gapless_sim.search.regression import write_regression
    from gapless_sim.search.storages import run_on

    console = Console(stderr=as_json)
    status = 0
    for router in plan.routers:
        options = plan.options(seed, router)
        console.print(f"seed {seed}, router {router}: {options.describe()}", soft_wrap=True, highlight=False)
        result = run_on(plan.storage, options, keep=True)
        small = None
        if result.violation is not None:
            status = 1
            small = _shrunk(console, result, plan.storage) if shrink else None
        _show(console, result, small, plan.storage, as_json=as_json)
        shown = small.smallest if small is not None else result
        if regression is not None and shown.violation is not None:
            path = write_regression(regression, shown, str(shown.violation))
            console.print(f"The regression is {path}", soft_wrap=True, highlight=False)
    return status


def _shrunk(console: Console, failing: Result, storage: str) -> Shrunk:
    from gapless_sim.search.shrink import Progress
    from gapless_sim.search.shrink import shrink as shrink_run
    from gapless_sim.search.storages import run_on

    with console.status("looking for a smaller run that fails alike") as status:
        smallest = failing.steps

        def report(progress: Progress) -> None:
            nonlocal smallest
            smallest = progress.smallest.steps
            status.update(f"{progress.runs} runs, {smallest:,} steps left; {progress.left_out}")

        def run(options: Options, choice_sequences: ChoiceSequences | None) -> Result:
            return run_on(storage, options, choice_sequences, steps_max=max(300, smallest * 5 // 4))

        shrunk = shrink_run(run, failing, runs_max=RUNS_MAX, on_progress=report)
        told = run_on(storage, shrunk.smallest.options, shrunk.smallest.choice_sequences, keep=True)
        return replace(shrunk, smallest=told)


def _show(console: Console, result: Result, small: Shrunk | None, storage: str, *, as_json: bool) -> None:
    from gapless_sim.recording.lanes import lanes_text

    shown = small.smallest if small is not None else result
    if as_json:
        from gapless.cli.output import print_json

        print_json({**fields(result, small), "storage": storage})
        return
    if shown.violation is not None:
        if small is not None:
            console.print(f"smaller: {small}", soft_wrap=True, highlight=False)
            if small.unstable:
                console.print(f"[bold red]not deterministic[/]: {small.unstable}", soft_wrap=True, highlight=False)
            console.print(f"what is left of it: {shown.options.describe()}", soft_wrap=True, highlight=False)
        print(lanes_text(shown.lines, shown.violation, width=max(80, console.width)))
        console.print(f"[bold red]{shown.violation}[/]", soft_wrap=True, highlight=False)
    else:
        console.print(
            f"no promise was broken: {result.steps:,} node events in {result.now / SECOND:.1f} s of virtual time, "
            f"trace {result.digest}",
            soft_wrap=True,
            highlight=False,
        )


def fields(result: Result, small: Shrunk | None) -> dict[str, Any]:
    """A replay as a program reads it."""
    violation = result.violation
    return {
        "seed": result.options.seed,
        "router": result.options.router,
        "options": result.options.describe(),
        "digest": result.digest,
        "node_events": result.steps,
        "simulated_s": result.now / SECOND,
        "violation": None if violation is None else {"oracle": violation.oracle, "what": violation.what},
        "shrunk": None if small is None else {"summary": str(small), "options": small.smallest.options.describe()},
    }
