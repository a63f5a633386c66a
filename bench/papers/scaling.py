"""001, figure 4: one broker, and 1, 2 and 4 SHBs behind a PHB, with as many subscribers at each of them.

The paper adds SHBs until no more subscribers can be had, and tells the rate of deliveries. Four SHBs do not fit on two
processors. So what is told here is what each would do with a processor of its own: deliveries per second of processor
time of the SHBs, times how many there are. All networks work at once: processors that are busier do less in a second,
and if they took turns, that would be held against the one with the most SHBs.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import Final

from bench.network.costs import behind_an_ib
from bench.network.nodes import Layout
from bench.papers.experiment import DURABLE, REAL, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from bench.papers.real import OPTIONS, PUBENDS, RATE, Load, Turn, at_once, side_by_side
from gapless.cli.connecting import run as run_loop

SUBSCRIBERS: Final = 25
SHBS: Final = (1, 2, 4)
ONE_NODE: Final = "one node"
PAPER_SHBS: Final = (1, 4)
PAPER_EVENTS: Final = (20_000, 79_200)
PAPER_BUSY: Final = (0.31, 0.41)


async def _measure(layouts: dict[str, Layout], load: Load) -> dict[str, list[Turn]]:
    async with side_by_side(layouts, load) as works:
        return await at_once(works, load.turns)


def run(sizes: Sizes) -> Outcome:
    """All sizes side by side."""
    shbs = SHBS[:1] if sizes.quick else SHBS
    layouts = {ONE_NODE: Layout({"both": ["both"]}, [], OPTIONS, "local")}
    layouts |= {str(count): replace(behind_an_ib(count), options=OPTIONS) for count in shbs}
    found = run_loop(_measure(layouts, Load.of(sizes, SUBSCRIBERS)))
    capacity = {count: median(count * turn.deliveries / turn.of("shb") for turn in found[str(count)]) for count in shbs}
    phb = {count: median(1e6 * turn.of("phb") / turn.events for turn in found[str(count)]) for count in shbs}
    middle = {count: median(1e6 * turn.of("ib") / turn.events for turn in found[str(count)]) for count in shbs}
    alone = median(over(turn.deliveries, turn.all) for turn in found[ONE_NODE])
    few, many = shbs[0], shbs[-1]
    values = {
        "one_node_deliveries_per_cpu_s": alone,
        **{f"deliveries_per_cpu_s_{count}": capacity.get(count, 0.0) for count in SHBS},
        "ratio_capacity_to_linear": over(capacity[many], capacity[few] * many),
        "ratio_one_shb_to_one_node": over(capacity[few], alone),
        "phb_cpu_us_per_event_one": phb[few],
        "phb_cpu_us_per_event_most": phb[many],
        "ratio_phb_cpu_most_to_one": over(phb[many], phb[few]),
        "ib_cpu_us_per_event_one": middle[few],
        "ib_cpu_us_per_event_most": middle[many],
    }
    rates = [Curve("", shbs, list(capacity.values()))]
    costs = [Curve("PHB", shbs, list(phb.values())), Curve("IB", shbs, list(middle.values()))]
    panels = [
        Panel(
            "deliveries per second of processor time of an SHB, times SHBs",
            "SHBs",
            "deliveries/s",
            rates,
            [Curve("", PAPER_SHBS, PAPER_EVENTS)],
        ),
        Panel(
            "processor time per event (the paper's: busy)",
            "SHBs",
            "µs, or share",
            costs,
            [Curve("PHB", PAPER_SHBS, PAPER_BUSY)],
        ),
    ]
    return Outcome(values, panels)


SCALING = Experiment(
    "scaling",
    DURABLE,
    "figures 3 and 4",
    "1, 2 and 4 SHBs with as many subscribers at each",
    REAL,
    f"One node, and PHB – IB – 1, 2 or 4 SHBs, all at once; {RATE} events/s to {PUBENDS} "
    f"pubends, {SUBSCRIBERS} subscribers at each SHB (the paper: 100) that want a quarter each. The paper's SHBs are "
    "next to the PHB. A rate is what SHBs would do with a processor each, by the processor time that they took.",
    {
        "one_node_deliveries_per_cpu_s": Figure("one node, deliveries per s of its processor time", "≈ 1 SHB's"),
        "deliveries_per_cpu_s_1": Figure("1 SHB, deliveries per s of its processor time", "20,000"),
        "deliveries_per_cpu_s_2": Figure("2 SHBs, a processor each"),
        "deliveries_per_cpu_s_4": Figure("4 SHBs, a processor each", "79,200"),
        "ratio_capacity_to_linear": Figure("how it grows, over linear", "0.99", Bar(least=0.95)),
        "ratio_one_shb_to_one_node": Figure("1 SHB over one node, which also has the log", "≈ 1", Bar(least=0.9)),
        "phb_cpu_us_per_event_one": Figure("PHB, processor time per event, 1 SHB, µs", "31 % busy"),
        "phb_cpu_us_per_event_most": Figure("the same with 4 SHBs", "41 % busy"),
        "ratio_phb_cpu_most_to_one": Figure("over that with 1", "1.32, no IB", Bar(most=1.1)),
        "ib_cpu_us_per_event_one": Figure("IB, processor time per event, 1 SHB, µs"),
        "ib_cpu_us_per_event_most": Figure("the same with 4 SHBs"),
    },
    run,
)
