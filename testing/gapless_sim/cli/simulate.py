"""The command `gapless simulate`: many seeds through the simulator, or one seed to be understood."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.options import AsJson
from gapless.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import Console

    from gapless_sim.search.campaign import Plan, Summary, Total

SECOND = 1_000_000_000
RARE = 10
"""So many of the rarest hits are shown."""
ROUTERS = ("local", "hostile")
ALL_FAULTS = "network,disk,process,clock,operator"

app = typer.Typer(add_completion=False)


@app.command()
def simulate(
    *,
    router: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A routing plugin; more than once for several.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 200,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Only this one, and what happens in it.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, metavar="M", help="As many seeds as there is time for, instead of --seeds.")
    ] = None,
    faults: Annotated[
        str, typer.Option(metavar="KINDS", help="Only these kinds: network,disk,process,clock,operator, or none.")
    ] = ALL_FAULTS,
    storage: Annotated[
        str,
        typer.Option(metavar="NAME", help="The plugin of the brokers' volumes; `memory`: with a simulated disk."),
    ] = "memory",
    workload: Annotated[
        str | None,
        typer.Option(
            help="churn, scenarios, ranges, roaming, committing, transforms, transactions, sharing; else one of the"
            " first two."
        ),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(help="Nodes as the seed draws them, with IBs: tree, nodes or mesh; else as the router needs it."),
    ] = None,
    levels: Annotated[
        int | None,
        typer.Option(min=0, max=2, help="So many levels of IBs in each tree or mesh; else the seed draws them."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="S", help="The phase with faults lasts at most so long; else as the seed draws it."
        ),
    ] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="How many at a time; else one on each core.")] = None,
    regression: Annotated[
        Path | None, typer.Option(metavar="DIR", help="With --seed: keep what fails there, to be run again.")
    ] = None,
    shrink: Annotated[bool, typer.Option(help="With --seed: look for a smaller run that fails alike.")] = True,
    exhaustive: Annotated[
        int | None,
        typer.Option(min=1, max=2, metavar="FAULTS", help="Instead of seeds: so many faults at every position."),
    ] = None,
    scopes: Annotated[int, typer.Option(min=1, help="With --exhaustive: only the first so many scopes.")] = 24,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="P/S/E/U", help="With --exhaustive: this one, by its PHBs, SHBs, events, subscribers."),
    ] = None,
    part: Annotated[
        str, typer.Option(metavar="K/N", help="With --exhaustive: the Kth of N parts, for several machines.")
    ] = "1/1",
    stride: Annotated[int, typer.Option(min=1, help="With --exhaustive: only each so manieth position.")] = 1,
    strike: Annotated[
        list[str] | None,
        typer.Option(metavar="CASE", help="With --exhaustive and one --scope: what happens in this case, as printed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run whole systems under virtual time through faults that no test bed reaches, and check every promise.

    The brokers and clients are the ones of production; only the network, the disks, the clocks and the
    applications are simulated. The exit status is 1 if a promise was broken; the seed is named.
    """
    from gapless_sim.search.campaign import Plan

    if exhaustive is not None:
        from gapless_sim.cli import exhaust

        if storage != "memory":
            raise ConfigurationError("--exhaustive: its faults are those of the simulated disk, so leave --storage out")
        chosen = exhaust.scopes_of(scopes, scope or (), router or ())
        if strike:
            raise typer.Exit(exhaust.replay_case(chosen, strike))
        wanted = exhaust.Wanted(exhaustive, chosen, stride, exhaust.part_of(part), processes)
        raise typer.Exit(exhaust.exhaust_scopes(wanted, as_json=as_json))
    plan = Plan(tuple(router or ROUTERS), workload, _kinds(faults, storage), storage, topology, seconds, levels)
    _check(plan)
    _say_storage(plan)
    if seed is not None:
        from gapless_sim.cli.replay import replay

        raise typer.Exit(replay(plan, seed, regression=regression, shrink=shrink, as_json=as_json))
    total = _run(
        plan, _seeds(first, seeds, minutes), processes, None if minutes is not None else seeds, as_json=as_json
    )
    if total.failures:
        raise typer.Exit(1)


def _kinds(faults: str, storage: str) -> tuple[str, ...]:
    from gapless_sim.search.storages import faults_on
    from gapless_sim.world.options import FAULTS

    kinds = tuple(kind.strip() for kind in faults.split(",") if kind.strip() not in {"", "none"})
    for kind in kinds:
        if kind not in FAULTS:
            raise ConfigurationError(f"--faults: there is no kind {kind!r}; there are {', '.join(FAULTS)}")
    possible = faults_on(storage, kinds)
    if faults != ALL_FAULTS and possible != kinds:
        raise ConfigurationError(f"--faults: on the storage {storage!r} no disk is simulated, so leave 'disk' out")
    return possible


def _check(plan: Plan) -> None:
    from gapless import plugins
    from gapless_sim.search.storages import check_storage
    from gapless_sim.workloads import WORKLOADS
    from gapless_sim.world.routers import networks_of
    from gapless_sim.world.topology import DRAWN_FOR, SINGLES, TREE

    check_storage(plan.storage)
    for router in plan.routers:
        plugins.load("routing", router)
        _check_topology(router, plan.topology)
        drawn = plan.topology or DRAWN_FOR.get(networks_of(router), "")
        if plan.levels is not None and not drawn:
            raise ConfigurationError(
                f"--levels {plan.levels}: the router {router!r} has a --topology only if you say so"
            )
        if plan.levels is not None and drawn == SINGLES:
            raise ConfigurationError(f"--levels {plan.levels}: a tree of single nodes has none; --topology {TREE} has")
    if plan.workload is not None and plan.workload not in WORKLOADS:
        raise ConfigurationError(f"--workload: there is no {plan.workload!r}; there are {', '.join(WORKLOADS)}")


def _say_storage(plan: Plan) -> None:
    from gapless_sim.search.storages import not_simulated_on

    missing = not_simulated_on(plan.storage)
    if missing:
        print(f"The volumes are on the storage {plan.storage!r}, in real files. Not simulated:", file=sys.stderr)
        print("".join(f"  - {what}\n" for what in missing), end="", file=sys.stderr)


def _check_topology(router: str, topology: str | None) -> None:
    from gapless_sim.world.routers import ONE, networks_of
    from gapless_sim.world.topology import KINDS, WORKS_IN

    if topology is None:
        return
    if topology not in KINDS:
        raise ConfigurationError(f"--topology: there is no {topology!r}; there are {', '.join(KINDS)}")
    networks = networks_of(router)
    if networks == ONE:
        raise ConfigurationError(f"--topology {topology}: the router {router!r} knows one node alone")
    if topology not in WORKS_IN[networks]:
        raise ConfigurationError(f"--topology {topology}: the router {router!r} does not work there")


def _seeds(first: int, seeds: int, minutes: float | None) -> Iterator[int]:
    if minutes is None:
        yield from range(first, first + seeds)
        return
    until = time.monotonic() + minutes * 60
    for seed in count(first):
        if time.monotonic() >= until:
            return
        yield seed


def _run(plan: Plan, seeds: Iterator[int], processes: int | None, expected: int | None, *, as_json: bool) -> Total:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from gapless_sim.search.campaign import Total, campaign

    console = Console(stderr=True)
    total = Total()
    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("seeds", total=None if expected is None else expected * len(plan.routers))
        for summary in campaign(plan, seeds, processes=processes):
            total.add(summary)
            if summary.failure is not None:
                _show_failure(console, plan, summary)
            progress.update(task, advance=1, description=_rate(total, time.monotonic() - began))
    elapsed = time.monotonic() - began
    if as_json:
        from gapless.cli.output import print_json

        print_json(_fields(plan, total, elapsed))
    else:
        _show(plan, total, elapsed)
    return total


def _rate(total: Total, elapsed: float) -> str:
    return f"{total.runs / elapsed:.1f} runs/s, {total.simulated / SECOND / 3600:.1f} h simulated"


def _show_failure(console: Console, plan: Plan, summary: Summary) -> None:
    assert summary.failure is not None
    console.print(
        f"[bold red]{summary.failure.oracle}[/] seed {summary.seed}, router {summary.router}: {summary.failure.what}",
        soft_wrap=True,
        highlight=False,
    )
    command = plan.command(summary.seed, summary.router)
    console.print(f"  to look at it: {command}", soft_wrap=True, highlight=False)


def _fields(plan: Plan, total: Total, elapsed: float) -> dict[str, Any]:
    from gapless_sim.search.storages import not_simulated_on

    return {
        "storage": plan.storage,
        "not_simulated": not_simulated_on(plan.storage),
        "runs": total.runs,
        "failures": [
            {"seed": run.seed, "router": run.router, "oracle": run.failure.oracle, "what": run.failure.what}
            for run in total.failures
            if run.failure is not None
        ],
        "node_events": total.steps,
        "elapsed_s": round(elapsed, 3),
        "simulated_s": round(total.simulated / SECOND, 3),
        "runs_per_s": round(total.runs / elapsed, 3),
        "node_events_per_s": round(total.steps / elapsed),
        "probes": dict(sorted(total.hits.items())),
        "never": never(total),
    }


def never(total: Total) -> list[str]:
    """The declared *sometimes* assertions that did not hold once."""
    return [assertion for assertion in _declared(total) if not total.hits[assertion]]


def _declared(total: Total) -> tuple[str, ...]:
    """All that should hold now and then: what is about trees, too, if there were any."""
    from gapless_sim.search.sometimes import DECLARED, OF_TREES

    return DECLARED + OF_TREES if any(assertion in total.hits for assertion in OF_TREES) else DECLARED


def _show(plan: Plan, total: Total, elapsed: float) -> None:
    from gapless_sim.search.storages import SIMULATED

    verdict = f"{len(total.failures)} broke a promise" if total.failures else "no promise was broken"
    where = "" if plan.storage == SIMULATED else f" on the storage {plan.storage!r}"
    print(f"{total.runs:,} runs{where}, {verdict}.")
    print(
        f"{total.simulated / SECOND / 3600:.1f} hours of virtual time, {total.steps:,} node events in {elapsed:.0f} s:"
        f" {total.runs / elapsed:.1f} runs/s, {total.steps / elapsed:,.0f} node events/s"
    )
    rarest = sorted(_declared(total), key=lambda assertion: (total.hits[assertion], assertion))[:RARE]
    print("Rarest: " + ", ".join(f"{assertion} {total.hits[assertion]}×" for assertion in rarest))
