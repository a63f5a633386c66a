"""000: brokers next to each other die at once, are bypassed, and return at once.

Twice: as in the paper, with its slow detector and by pushes alone; and with what a network has that says nothing of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final

from bench.papers.brokers import (
    DETECTOR,
    EVERYTHING,
    RING_WAIT,
    Brokers,
    Handed,
    Plan,
    chain_of_three,
    rim_of,
    unready_after,
    warm_up,
)
from bench.papers.experiment import AVAILABLE, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from gapless_testing.routing.faults import SECOND

CHAIN: Final = ("b1", "b2", "b3")
DELTA: Final = 3
SLOW: Final = 10 * SECOND
"""The paper's detector."""
PAPER_SPIKES: Final = (10, 20, 30)
"""What each detector's time makes of one, two and three that die, in seconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """When what happens, in seconds since publishing began."""

    fail: float
    back: float
    end: float

    @classmethod
    def of(cls, sizes: Sizes) -> Times:
        """As in the paper, or shorter."""
        return cls(2, 9, 12) if sizes.quick else cls(50, 150, 200)


@dataclass(frozen=True, slots=True)
class Bypassed:
    """A run in which some brokers died, and returned."""

    begun: int
    usual: int
    """The highest latency before, in nanoseconds."""
    latest: int
    """The highest of what was published until they returned."""
    back: int
    """The highest of what was published afterwards."""
    interests: int
    """How many interests were said while they were dead."""
    wants: int
    worst: list[Handed]
    """Of each event what came last, in the order of publishing."""
    lost: int
    """How many events did not come to somebody who wants them."""

    def curve(self, label: str) -> Curve:
        """The latency of each event."""
        x = [(each.published - self.begun) / SECOND for each in self.worst]
        return Curve(label, x, [each.latency / SECOND for each in self.worst])


def bypassed(sizes: Sizes, dead: int, detector: int, *, asks: bool) -> Bypassed:
    """So many die at once, and return at once."""
    times, rate = Times.of(sizes), sizes.pick(10, 5)
    links = chain_of_three(sizes.count(11, 4), sizes.count(86, 20))
    source, *readers = rim_of(links)
    plan = Plan(
        links=links,
        publishing=[source],
        subscribing=dict.fromkeys(readers, EVERYTHING),
        delta=DELTA,
        detector=detector,
    )
    brokers = Brokers(plan)
    brokers.start(warm_up(sizes))
    begun = brokers.now
    brokers.publish_steadily(rate)
    brokers.wait(times.fail)
    failed, wants = brokers.now, brokers.wants
    brokers.ask(asks=asks)
    brokers.crash(CHAIN[:dead])
    with brokers.counting(plan.names) as traffic:
        brokers.wait(times.back - times.fail)
    back = brokers.now
    brokers.boot(CHAIN[:dead])
    brokers.wait(times.end - times.back)
    end = brokers.now
    brokers.stop_publishing()
    brokers.wait(5)
    by_event: dict[int, Handed] = {}
    count = 0
    for name in readers:
        for each in brokers.handed(name, begun, end):
            count += 1
            if each.published not in by_event or by_event[each.published].handed < each.handed:
                by_event[each.published] = each
    worst = [by_event[published] for published in sorted(by_event)]
    due = len(readers) * sum(at < end for at in brokers.published[brokers.pubends[0].pubend].values())

    def highest(since: int, until: int) -> int:
        return max(each.latency for each in worst if since <= each.published < until)

    usual = highest(begun, failed - SECOND)
    latest = highest(failed - SECOND, back)
    after = highest(back, end)
    interests = traffic.of_kind("interest")
    return Bypassed(begun, usual, latest, after, interests, brokers.wants - wants, worst, due - count)


def run(sizes: Sizes) -> Outcome:
    """One, two and three of them."""
    values: dict[str, float] = {}
    panels = []
    slow = sizes.count(SLOW, 4 * SECOND)
    rows: list[tuple[str, int, bool, AbstractContextManager[None]]] = [
        ("paper", slow, False, unready_after(slow / SECOND + 2)),
        ("defaults", DETECTOR, True, nullcontext()),
    ]
    for row, detector, asks, unready in rows:
        with unready:
            runs = {dead: bypassed(sizes, dead, detector, asks=asks) for dead in range(1, len(CHAIN) + 1)}
        for dead, each in runs.items():
            late = each.latest - each.usual
            values[f"latest_{dead}_s_{row}"] = late / SECOND
            values[f"ratio_latest_{dead}_to_allowed_{row}"] = late / (detector + (dead - 1) * RING_WAIT)
        values |= {
            f"ratio_step_to_detector_{row}": (runs[3].latest - runs[1].latest) / 2 / detector,
            f"ratio_back_to_usual_{row}": max(each.back / each.usual for each in runs.values()),
            f"interests_{row}": sum(each.interests for each in runs.values()),
            f"wants_{row}": sum(each.wants for each in runs.values()),
            f"lost_{row}": sum(each.lost for each in runs.values()),
        }
        times = Times.of(Sizes())
        paper = [
            Curve(f"{dead} dead", [0, times.fail, times.fail, times.fail + spike, times.end], [0, 0, spike, 0, 0])
            for dead, spike in zip(runs, PAPER_SPIKES, strict=True)
        ]
        panels.append(
            Panel(
                f"latest delivery of each event, {row}",
                "published, s",
                "latency, s",
                [each.curve(f"{dead} dead") for dead, each in runs.items()],
                paper,
            )
        )
    return Outcome(values, panels)


def _figures(row: str, title: str) -> dict[str, Figure]:
    paper = row == "paper"
    found = {}
    for dead, spike in zip((1, 2, 3), PAPER_SPIKES, strict=True):
        found[f"latest_{dead}_s_{row}"] = Figure(
            f"{title}: {dead} dead, latest, s above usual", f"≈ {spike}" if paper else ""
        )
        found[f"ratio_latest_{dead}_to_allowed_{row}"] = Figure(
            f"over the detector + {dead - 1} · 0.25 s", str(dead) if paper else "", Bar(most=1.05)
        )
    return found | {
        f"ratio_step_to_detector_{row}": Figure(
            "one more that is dead, over the detector", "1" if paper else "", Bar(most=0.2)
        ),
        f"ratio_back_to_usual_{row}": Figure(
            "latest when they return, over usual", "small" if paper else "", Bar(most=1.5)
        ),
        f"interests_{row}": Figure("interests said because of it", bar=Bar(0, 0)),
        f"wants_{row}": Figure("questions of SHBs", bar=Bar(0, 0)),
        f"lost_{row}": Figure("events that somebody did not get", "none", Bar(0, 0)),
    }


BYPASS = Experiment(
    "bypass",
    AVAILABLE,
    "section 7.1, figure 8",
    "one, two and three brokers in a row die and return",
    ROUTERS,
    "86 brokers, δ = 3: three in a chain with 11 neighbours each, and 54 more around these. One publishes 10 "
    "events/s, SHBs at the other 53 at the rim want all. Of the chain the first 1, 2 or 3 die at 50 s and return "
    "empty at 150 s. Once with the paper's detector of 10 s, so late too a broker counts as unready, and nobody "
    "asks; and once with the defaults.",
    {
        **_figures("paper", "detector 10 s, pushes alone"),
        **_figures("defaults", "detector 1.5 s, the defaults"),
    },
    run,
)
