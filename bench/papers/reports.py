"""000: reports of what a broker has, against a confirmation of each message.

The confirmations are counted as that paper's brokers would send them, and not built: for each frame with events that a
broker sends, one comes back. Reports travel within what brokers say of themselves once a second anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

from bench.network.nodes import Layout, tree_of_nodes
from bench.papers.brokers import EVERYTHING, Brokers, Plan, chain_of_three, rim_of, warm_up
from bench.papers.experiment import AVAILABLE, REAL, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from bench.papers.real import OPTIONS, Load, Turn, side_by_side, turns
from gapless.cli.connecting import run as run_loop

MEASURED: Final = "b2"
DELTA: Final = 3
RATES: Final = (5, 10, 20, 40, 80, 160)
"""Events a second, one after the other."""
SUBSCRIBERS: Final = 10
REPORTING: Final = "reports"
UNREPORTED: Final = "no reports"


def received(sizes: Sizes) -> dict[int, tuple[float, float]]:
    """By rate: frames that a broker receives a second, and with confirmations."""
    links = chain_of_three(sizes.count(11, 4), sizes.count(86, 20))
    source, *readers = rim_of(links)
    plan = Plan(links=links, publishing=[source], subscribing=dict.fromkeys(readers, EVERYTHING), delta=DELTA)
    brokers = Brokers(plan)
    brokers.start(warm_up(sizes))
    seconds = sizes.count(20, 1)
    found = {}
    for rate in RATES:
        brokers.publish_steadily(rate)
        brokers.wait(1)
        with brokers.counting([MEASURED]) as traffic:
            brokers.wait(seconds)
        reported = traffic.frames_to(MEASURED)
        confirmed = reported - traffic.frames_to(MEASURED, "report") + traffic.frames_from(MEASURED, "events")
        found[rate] = reported / seconds, confirmed / seconds
        brokers.stop_publishing()
        brokers.wait(1)
    return found


async def _measure(layouts: Mapping[str, Layout], load: Load) -> dict[str, list[Turn]]:
    async with side_by_side(layouts, load) as works:
        return await turns(works, load.turns)


def run(sizes: Sizes) -> Outcome:
    """Messages in virtual time, processor time of real nodes."""
    found = received(sizes)
    ratios = {rate: reported / confirmed for rate, (reported, confirmed) in found.items()}
    chain = ["phb", *(f"ib-{number}" for number in range(sizes.count(2, 1))), "shb"]
    layout = tree_of_nodes([*pairwise(chain)], 1, OPTIONS)
    layouts = {REPORTING: layout, UNREPORTED: replace(layout, program="bench.papers.unreported")}
    took = run_loop(_measure(layouts, Load.of(sizes, SUBSCRIBERS)))
    cost = {name: median(1e6 * turn.all / turn.events for turn in each) for name, each in took.items()}
    both = zip(took[REPORTING], took[UNREPORTED], strict=True)
    values: dict[str, float] = {
        **{f"frames_per_s_{rate}": found[rate][0] for rate in RATES},
        **{f"ratio_reports_to_confirmations_{rate}": ratios[rate] for rate in RATES},
        "reporting_cpu_us_per_event": cost[REPORTING],
        "unreported_cpu_us_per_event": cost[UNREPORTED],
        "ratio_cpu_reporting_to_unreported": median(over(one.all, other.all) for one, other in both),
    }
    return Outcome(
        values,
        [
            Panel(
                "frames that a broker receives",
                "events/s",
                "frames/s",
                [
                    Curve("reports", RATES, [found[rate][0] for rate in RATES]),
                    Curve("confirmations, counted", RATES, [found[rate][1] for rate in RATES]),
                ],
                states="the use of dack messages greatly improves both the network traffic and CPU utilization",
            )
        ],
    )


REPORTS = Experiment(
    "reports",
    AVAILABLE,
    "section 7.3, figure 10",
    "reports of copies, against a confirmation of each message",
    f"{ROUTERS}; {REAL}",
    "The 86 brokers of `bypass`, δ = 3; one publishes at rising rates, SHBs at all others at the rim want "
    "everything. The frames are counted that the broker in the middle of the chain receives, of all kinds. With "
    "confirmations it would receive one more for each with events that it sends. Processor time: "
    f"PHB – 2 IBs – SHB as real processes, {SUBSCRIBERS} subscribers, 800 events/s, in turns with the same without "
    "reports.",
    {
        **{
            key: figure
            for rate in RATES
            for key, figure in (
                (f"frames_per_s_{rate}", Figure(f"{rate} events/s: frames that it receives a second")),
                (
                    f"ratio_reports_to_confirmations_{rate}",
                    Figure("over those with confirmations", "less", Bar(most=0.6)),
                ),
            )
        },
        "reporting_cpu_us_per_event": Figure("processor time of four real nodes per event, µs"),
        "unreported_cpu_us_per_event": Figure("the same without reports, µs"),
        "ratio_cpu_reporting_to_unreported": Figure("over that", "much less than confirmations", Bar(most=1.1)),
    },
    run,
)
