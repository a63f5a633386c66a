"""000: what a broker sends and receives, and what its processor does, when it bypasses its neighbours."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.network.nodes import Layout, tree_of_nodes
from bench.papers.brokers import EVERYTHING, Brokers, Plan, Traffic, chain_of_three, rim_of, warm_up
from bench.papers.experiment import AVAILABLE, REAL, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from bench.papers.real import OPTIONS, Load, side_by_side
from gapless.cli.connecting import run as run_loop
from gapless.core.network.facts import BrokerId

DELTA: Final = 3
FIRST, SECOND_ONE, LAST = "b1", "b2", "b3"
"""The first dies, and the second bypasses it; then that dies, and the last bypasses both."""
RATE: Final = 20
DETECTED: Final = 5
"""Seconds behind a death in which is made up for what did not come."""
SUBSCRIBERS: Final = 4
"""At each SHB of the real nodes, each of another quarter of the events."""
NEAR, FAR = 3, 5
"""SHBs at the real broker that bypasses, and at the one that dies: before and afterwards it sends to 4 and to 8."""


@dataclass(frozen=True, slots=True)
class Loads:
    """What two brokers said in three stretches of time: nobody dead; the first; the first and the second."""

    traffic: Sequence[Traffic]
    seconds: Sequence[float]
    outputs: Sequence[tuple[int, int]]
    """Events that the last sent in a second: each of the first ones behind a death, and the mean of the others."""

    def sent(self, stretch: int, broker: BrokerId) -> float:
        """Events that a broker sent a second."""
        return self.traffic[stretch].events_from(broker) / self.seconds[stretch]

    def received(self, stretch: int, broker: BrokerId) -> float:
        """Events that a broker received a second."""
        return self.traffic[stretch].events_to(broker) / self.seconds[stretch]


def loads(sizes: Sizes, *, everywhere: bool) -> Loads:
    """One publishes behind the last of the chain; or `everywhere`: every third at the rim does, in turns."""
    links = chain_of_three(sizes.count(11, 4), sizes.count(86, 20))
    rim = rim_of(links)
    source = next(name for name in rim if name.startswith(LAST))
    plan = Plan(
        links=links,
        publishing=rim[::3] if everywhere else [source],
        subscribing=dict.fromkeys(rim, EVERYTHING),
        delta=DELTA,
    )
    brokers = Brokers(plan)
    brokers.start(warm_up(sizes))
    brokers.publish_steadily(RATE)
    brokers.wait(2)
    found: list[Traffic] = []
    outputs: list[tuple[int, int]] = []
    seconds = sizes.count(30, 2)
    for dead in ((), (FIRST,), (SECOND_ONE,)):
        brokers.crash(dead)
        for _ in range(DETECTED):
            with brokers.counting([LAST]) as traffic:
                brokers.wait(1)
            outputs.append((len(outputs), traffic.events_from(LAST)))
        with brokers.counting([SECOND_ONE, LAST]) as traffic:
            brokers.wait(seconds)
        outputs.append((len(outputs), round(traffic.events_from(LAST) / seconds)))
        found.append(traffic)
    return Loads(found, [seconds] * len(found), outputs)


def layout(sizes: Sizes) -> Layout:
    """A PHB at a broker with some SHBs, beside which is another broker with more of them."""
    near, far = sizes.count(NEAR, 1), sizes.count(FAR, 2)
    links = [("phb", "ib-0"), ("ib-0", "ib-1")]
    links += [("ib-0", f"shb-{number}") for number in range(near)]
    links += [("ib-1", f"shb-{number}") for number in range(near, near + far)]
    return tree_of_nodes(links, 1, OPTIONS)


async def measure(sizes: Sizes) -> tuple[float, float]:
    """Processor time of the real broker that bypasses per event, in microseconds: before and afterwards."""
    load = Load.of(sizes, SUBSCRIBERS)
    async with side_by_side({"": layout(sizes)}, load) as works:
        work = works[""]
        half = load.turns // 2
        before = [await work.turn() for _ in range(half)]
        await work.network.lose("ib-1")
        await asyncio.sleep(DETECTED)
        after = [await work.turn() for _ in range(load.turns - half)]
    one, other = (median(1e6 * turn.cpu["ib-0"] / turn.events for turn in each) for each in (before, after))
    return one, other


def run(sizes: Sizes) -> Outcome:
    """Events in virtual time, processor time of real nodes."""
    one, many = (loads(sizes, everywhere=everywhere) for everywhere in (False, True))
    before, after = run_loop(measure(sizes))
    values = {
        "sent_per_s_before": one.sent(0, SECOND_ONE),
        "sent_per_s_bypassing": one.sent(1, SECOND_ONE),
        "ratio_sent": over(one.sent(1, SECOND_ONE), one.sent(0, SECOND_ONE)),
        "ratio_received": over(one.received(1, SECOND_ONE), one.received(0, SECOND_ONE)),
        "ratio_sent_two_dead": over(one.sent(2, LAST), one.sent(0, LAST)),
        "ratio_received_two_dead": over(one.received(2, LAST), one.received(0, LAST)),
        "ratio_sent_everywhere": over(many.sent(1, SECOND_ONE), many.sent(0, SECOND_ONE)),
        "ratio_received_everywhere": over(many.received(1, SECOND_ONE), many.received(0, SECOND_ONE)),
        "ratio_sent_two_dead_everywhere": over(many.sent(2, LAST), many.sent(0, LAST)),
        "ratio_received_two_dead_everywhere": over(many.received(2, LAST), many.received(0, LAST)),
        "cpu_us_per_event_before": before,
        "cpu_us_per_event_bypassing": after,
        "ratio_cpu": over(after, before),
    }
    curves = [
        Curve(label, [at for at, _ in each.outputs], [sent for _, sent in each.outputs])
        for label, each in (("one publishes", one), ("many publish", many))
    ]
    return Outcome(
        values,
        [
            Panel(
                "events that B3 sends: none dead, B1, B1 and B2",
                "samples",
                "events/s",
                curves,
                states="output publication traffic stabilizes at about twice the amount before failures",
            )
        ],
    )


BYPASS_LOAD = Experiment(
    "bypass-load",
    AVAILABLE,
    "section 7.4, figure 11",
    "the load of a broker that bypasses its neighbours",
    f"{ROUTERS}; {REAL}",
    "The 86 brokers of `bypass`, δ = 3, 20 events/s, SHBs at all at the rim want everything. B1 dies and B2 bypasses "
    "it, then B2 dies and B3 bypasses both. Once one broker at B3's side publishes, and once every third at the rim "
    f"does: where the paper's stood is not told. Processor time: a PHB and {NEAR} SHBs at one broker, {FAR} more at a "
    "second one, as real processes, δ = 1; 800 events/s to all; the second broker is killed.",
    {
        "sent_per_s_before": Figure("one publishes: events that B2 sends a second, none dead"),
        "sent_per_s_bypassing": Figure("B1 dead"),
        "ratio_sent": Figure("over none dead", "≈ 2", Bar(1.8, 2.2)),
        "ratio_received": Figure("events that it receives, over none dead", "1", Bar(0.95, 1.05)),
        "ratio_sent_two_dead": Figure("events that B3 sends, B1 and B2 dead, over none dead", "≈ 2"),
        "ratio_received_two_dead": Figure("events that it receives, over none dead", "1", Bar(0.95, 1.05)),
        "ratio_sent_everywhere": Figure("many publish: events that B2 sends, B1 dead, over none dead", "≈ 2"),
        "ratio_received_everywhere": Figure("events that it receives, over none dead", "1", Bar(0.95, 1.05)),
        "ratio_sent_two_dead_everywhere": Figure("events that B3 sends, B1 and B2 dead, over none dead", "≈ 2"),
        "ratio_received_two_dead_everywhere": Figure("events that it receives, over none dead", "1", Bar(0.95, 1.05)),
        "cpu_us_per_event_before": Figure("processor time of the real broker per event, µs"),
        "cpu_us_per_event_bypassing": Figure("the same when it bypasses, µs"),
        "ratio_cpu": Figure("over before", "≈ 1.1"),
    },
    run,
)
