"""002, named in its introduction: what exactly-once delivery costs over a best effort.

Two networks PHB – IB – SHB are up side by side and work in turns: one with the router `knowledge`, and one whose
nodes make a best effort only (`bench.papers.best_effort`). All of it once with few subscribers, and once with many.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from bench.network.costs import behind_an_ib, pinging
from bench.network.nodes import Layout, NodeProcess, chain
from bench.papers import best_effort
from bench.papers.experiment import FIGURE_LOST, GRAPH, REAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from bench.papers.real import OPTIONS, RATE, Load, Turn, Working, side_by_side, turns
from gapless.cli.connecting import run as run_loop
from gapless_phb.core.gauges import RELEASED

KNOWLEDGE: Final = "knowledge"
FEW, MANY = 10, 80
"""Subscribers."""


@dataclass(frozen=True)
class Costs:
    """What came of one number of subscribers, each by router."""

    turns: dict[str, list[Turn]]
    idle_ms_per_s: dict[str, float]
    pings_ms: dict[str, list[float]]

    def us_per_event(self, router: str) -> float:
        """Processor time of all nodes."""
        return median(1e6 * turn.all / turn.events for turn in self.turns[router])

    def ratio(self) -> float:
        """That of `knowledge` over the other's, turn by turn."""
        both = zip(self.turns[KNOWLEDGE], self.turns[best_effort.NAME], strict=True)
        return median(over(one.all, other.all) for one, other in both)


async def _measure(load: Load, layout: Layout, pings: int) -> Costs:
    quiet = replace(layout, router=best_effort.NAME, program="bench.papers.best_effort")
    async with side_by_side({KNOWLEDGE: layout, best_effort.NAME: quiet}, load) as works, AsyncExitStack() as stack:
        ping = {name: await stack.enter_async_context(pinging(work.network)) for name, work in works.items()}
        for call in ping.values():
            await call()  # all is known on the way before nothing more is asked for
        quiet_nodes = works[best_effort.NAME].network.nodes
        for node in quiet_nodes.values():
            os.kill(node.pid, signal.SIGUSR1)
        await asyncio.sleep(1.0)
        released = await _released(quiet_nodes["phb"])
        found = await turns(works, load.turns)
        if await _released(quiet_nodes["phb"]) != released:
            raise RuntimeError("the PHB heard of progress that nobody should have sent")
        idle = await _idle(works, load.seconds)
        took: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(pings):
            for name, call in ping.items():
                took[name].append(await call())
        return Costs(found, idle, took)


async def _released(phb: NodeProcess) -> list[float]:
    """Up to where each of its pubends is released."""
    return [gauge.value for gauge in await phb.gauges() if gauge.name == RELEASED.name]


async def _idle(works: dict[str, Working], seconds: float) -> dict[str, float]:
    """Milliseconds of processor time in each second in which nothing is published: of all at once."""
    nodes = {name: list(work.network.nodes.values()) for name, work in works.items()}
    before = {name: sum(node.cpu_seconds() for node in each) for name, each in nodes.items()}
    await asyncio.sleep(4 * seconds)
    after = {name: sum(node.cpu_seconds() for node in each) for name, each in nodes.items()}
    return {name: 1e3 * (after[name] - before[name]) / (4 * seconds) for name in nodes}


def run(sizes: Sizes) -> Outcome:
    """Few and many."""
    layout = replace(behind_an_ib(1), options=OPTIONS)
    if sizes.quick:
        layout = chain(0, OPTIONS)
    counts = (FEW,) if sizes.quick else (FEW, MANY)
    costs = [run_loop(_measure(Load.of(sizes, count), layout, sizes.count(400, 4))) for count in counts]
    few, many = costs[0], costs[-1]
    values: dict[str, float] = {}
    for name, each in (("few", few), ("many", many)):
        values |= {
            f"knowledge_cpu_us_per_event_{name}": each.us_per_event(KNOWLEDGE),
            f"best_effort_cpu_us_per_event_{name}": each.us_per_event(best_effort.NAME),
            f"ratio_cpu_{name}": each.ratio(),
        }
    values |= {
        "ratio_of_ratios_many_to_few": over(many.ratio(), few.ratio()),
        "knowledge_idle_cpu_ms_per_s": median(each.idle_ms_per_s[KNOWLEDGE] for each in costs),
        "best_effort_idle_cpu_ms_per_s": median(each.idle_ms_per_s[best_effort.NAME] for each in costs),
        "knowledge_median_ms": median(many.pings_ms[KNOWLEDGE]),
        "best_effort_median_ms": median(many.pings_ms[best_effort.NAME]),
        "ratio_latency": median(many.pings_ms[KNOWLEDGE]) / median(many.pings_ms[best_effort.NAME]),
    }
    labels = [f"{count} subscribers" for count in counts]
    bars = [Curve(name, labels, [each.us_per_event(name) for each in costs]) for name in (KNOWLEDGE, best_effort.NAME)]
    states = "a low, constant overhead of our protocol compared to best-effort delivery"
    return Outcome(values, [Panel("processor time per event", "", "µs", bars, states=states, kind="bars")])


OVERHEAD = Experiment(
    "overhead",
    GRAPH,
    FIGURE_LOST,
    "what exactly-once delivery costs over a best effort",
    REAL,
    f"PHB – IB – SHB twice, working in turns of 5 s: {RATE} events/s, {FEW} and then {MANY} subscribers that want a "
    "quarter each. In the one network all is as ever. The other is of the same nodes, and from when all have "
    f"subscribed its routers leave out: {best_effort.LEFT_OUT}. Log, PFS, receipts, and what clients acknowledge stay.",
    {
        "knowledge_cpu_us_per_event_few": Figure(f"all nodes, processor time per event, {FEW} subscribers, µs"),
        "best_effort_cpu_us_per_event_few": Figure("a best effort, µs"),
        "ratio_cpu_few": Figure("the one over the other", "low", Bar(most=1.25)),
        "knowledge_cpu_us_per_event_many": Figure(f"all nodes, processor time per event, {MANY} subscribers, µs"),
        "best_effort_cpu_us_per_event_many": Figure("a best effort, µs"),
        "ratio_cpu_many": Figure("the one over the other", "low", Bar(most=1.15)),
        "ratio_of_ratios_many_to_few": Figure(f"that over that with {FEW}", "constant", Bar(most=1.1)),
        "knowledge_idle_cpu_ms_per_s": Figure("while nothing is published, processor time per s, ms"),
        "best_effort_idle_cpu_ms_per_s": Figure("a best effort, ms"),
        "knowledge_median_ms": Figure("latency of one event at a time, median, ms"),
        "best_effort_median_ms": Figure("a best effort, ms"),
        "ratio_latency": Figure("the one over the other", "low", Bar(most=1.1)),
    },
    run,
)
