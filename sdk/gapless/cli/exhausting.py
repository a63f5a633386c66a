"""`gapless simulate --exhaustive`: small scopes, with faults at every position."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.testing.sim.exhaustive import Case, Scope
    from gapless.testing.sim.result import Failure

COLUMNS = {
    "phbs": "PHBs",
    "shbs": "SHBs",
    "publishes": "events",
    "subscribers": "subscribers",
    "positions": "positions",
    "cases": "cases",
    "failures": "failed",
    "elapsed_s": "seconds",
}


def exhaust_scopes(depth: int, count: int, stride: int, processes: int | None, *, as_json: bool) -> int:
    """Runs so many scopes, the smallest first, and shows a row for each. Returns the exit status."""
    from rich.console import Console
    from rich.progress import Progress

    from gapless.cli.output import print_json, print_listing
    from gapless.testing.sim.exhaustive import FAULTS, SCOPES

    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        rows = [_exhaust(scope, depth, stride, processes, progress, console) for scope in SCOPES[:count]]
    failed = sum(row["failures"] for row in rows)
    if as_json:
        print_json({"faults": depth, "stride": stride, "scopes": rows, "failures": failed})
    else:
        print_listing(rows, COLUMNS, as_json=False, empty="no scope")
        total = sum(row["cases"] for row in rows)
        print(f"{total:,} cases with {depth} of {len(FAULTS)} kinds of faults, {failed} failed")
    return 1 if failed else 0


def _exhaust(
    scope: Scope, depth: int, stride: int, processes: int | None, progress: Any, console: Any
) -> dict[str, Any]:
    from gapless.testing.campaign import exhaust
    from gapless.testing.sim.exhaustive import cases, length

    first, last = length(scope)
    total = sum(1 for _ in cases(scope, depth, stride))
    task = progress.add_task(str(scope), total=total)
    began, failures = time.monotonic(), 0
    for case, failure in exhaust(cases(scope, depth, stride), processes=processes):
        progress.advance(task)
        if failure is not None:
            failures += 1
            _show(console, case, failure)
    progress.remove_task(task)
    return {
        "phbs": scope.phbs,
        "shbs": scope.shbs,
        "publishes": scope.publishes,
        "subscribers": scope.subscribers,
        "positions": last - first,
        "cases": total,
        "failures": failures,
        "elapsed_s": round(time.monotonic() - began, 1),
    }


def _show(console: Any, case: Case, failure: Failure) -> None:
    strikes = ", ".join(f"{strike.fault} at step {strike.position} ({strike.number})" for strike in case.strikes)
    console.print(
        f"[bold red]{failure.oracle}[/] {case.scope}: {strikes}: {failure.what}", soft_wrap=True, highlight=False
    )
