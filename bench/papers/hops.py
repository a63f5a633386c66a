"""001, its first result: an event on its way over five brokers, of which one has a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.network.costs import MEMORY, pinging
from bench.network.nodes import Layout, chain, running_network
from bench.papers.experiment import DURABLE, REAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from gapless.cli.connecting import run as run_loop

IBS = 3
PAPER_MS = (50.0, 44.0, 6.0)
"""All of it, what of it is logging, and the rest."""


async def _latencies(layouts: Mapping[str, Layout], pings: int) -> dict[str, list[float]]:
    """Of one event at a time, in milliseconds: all networks are up, and take turns."""
    took: dict[str, list[float]] = {name: [] for name in layouts}
    async with AsyncExitStack() as stack:
        turns = {}
        for name, layout in layouts.items():
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="gapless-hops-")))
            network = await stack.enter_async_context(running_network(layout, directory, with_proxies=False))
            turns[name] = await stack.enter_async_context(pinging(network))
        for _ in range(pings):
            for name, ping in turns.items():
                took[name].append(await ping())
    return {name: times[pings // 10 :] for name, times in took.items()}


def run(sizes: Sizes) -> Outcome:
    """A chain and one node, each with a disk and without."""
    ibs = sizes.count(IBS, 0)
    one = Layout({"both": ["both"]}, [], router="local")
    layouts = {
        "chain": chain(ibs, {}),
        "chain_without_a_disk": chain(ibs, MEMORY),
        "one": one,
        "one_without_a_disk": replace(one, options=MEMORY),
    }
    took = run_loop(_latencies(layouts, sizes.count(1000, 10)))
    medians = {name: median(times) for name, times in took.items()}
    logging = medians["chain"] - medians["chain_without_a_disk"]
    hop = (medians["chain_without_a_disk"] - medians["one_without_a_disk"]) / (ibs + 1)
    values = {
        **{f"{name}_median_ms": value for name, value in medians.items()},
        "logging_ms": logging,
        "ratio_logging_to_all": logging / medians["chain"],
        "ratio_logging_chain_to_one": logging / (medians["one"] - medians["one_without_a_disk"]),
        "hop_ms": hop,
        "ratio_hop_to_one_without_a_disk": hop / medians["one_without_a_disk"],
    }
    ours = (medians["chain"], logging, medians["chain_without_a_disk"])
    return Outcome(
        values, [Panel("latency over five brokers", "", "median, ms", _bars(ours), _bars(PAPER_MS), kind="bars")]
    )


def _bars(heights: Sequence[float]) -> list[Curve]:
    return [Curve("", ["all", "logging", "the rest"], heights)]


HOPS = Experiment(
    "hops",
    DURABLE,
    "section 5, result 1",
    "the latency of an event over five brokers",
    REAL,
    f"PHB – {IBS} IBs – SHB beside one node, each of them with volumes on a disk and again in memory; all are up, and "
    "1,000 events of 250 bytes go over each, one at a time and in turns, from the publisher to the application.",
    {
        "chain_median_ms": Figure("five brokers, median, ms", "50"),
        "chain_without_a_disk_median_ms": Figure("without a disk, ms", "6"),
        "one_median_ms": Figure("one node, ms"),
        "one_without_a_disk_median_ms": Figure("one node without a disk, ms"),
        "logging_ms": Figure("what logging takes of the way over five, ms", "44"),
        "ratio_logging_to_all": Figure("over all of it", "0.88", Bar(least=0.7)),
        "ratio_logging_chain_to_one": Figure("over what it takes in one node", "≈ 1: logged once", Bar(0.5, 1.5)),
        "hop_ms": Figure("what each hop adds, without a disk, ms", "≤ 1.5"),
        "ratio_hop_to_one_without_a_disk": Figure("over one node without a disk", "low", Bar(most=1)),
    },
    run,
)
