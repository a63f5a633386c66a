"""000: two of three brokers in the middle die, and the third goes on: by itself, or for all three.

Before that paper a backup took over all the work of its primaries. Here the baseline is one broker that does the work
of three from the beginning: it has the neighbours of all of them, and the same router.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from bench.papers.brokers import Brokers, Link, Plan, Traffic, subscriptions, warm_up
from bench.papers.experiment import AVAILABLE, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from gapless.core.network.facts import BrokerId

CHAIN: Final = ("r1", "r2", "r3")
MEASURED: Final = "r1"
DELTA: Final = 2
SUBSCRIPTIONS: Final = 600
RATE: Final = 45
"""Events a second, of nine publishers."""


def tree(hubs: Sequence[BrokerId]) -> tuple[list[Link], list[BrokerId], list[BrokerId]]:
    """Links, publishers and SHBs: three publish above each of the three, three subscribe below; `hubs`: who that is."""
    links = [(one, other) for one, other in pairwise(hubs) if one != other]
    above = [f"pub{number}" for number in range(9)]
    below = [f"sub{number}" for number in range(9)]
    links += [(hubs[number // 3], name) for names in (above, below) for number, name in enumerate(names)]
    return links, above, below


def worked(sizes: Sizes, hubs: Sequence[BrokerId], dead: Sequence[BrokerId]) -> tuple[Traffic, Traffic, int]:
    """What is said and done before some die and afterwards, and for how many events each."""
    links, above, below = tree(hubs)
    count = sizes.count(SUBSCRIPTIONS, 60)
    plan = Plan(links=links, publishing=above, subscribing=subscriptions(count, below), delta=DELTA)
    brokers = Brokers(plan)
    brokers.start(warm_up(sizes))
    seconds = sizes.count(40, 2)
    brokers.publish_steadily(RATE, count)
    brokers.wait(2)
    with brokers.counting([MEASURED]) as before:
        brokers.wait(seconds)
    brokers.crash(dead)
    brokers.wait(sizes.count(15, 5))
    with brokers.counting([MEASURED]) as after:
        brokers.wait(seconds)
    return before, after, seconds * RATE


def run(sizes: Sizes) -> Outcome:
    """The three, of which two die; and the one that stands for all of them."""
    before, after, events = worked(sizes, CHAIN, CHAIN[1:])
    _, backup, _ = worked(sizes, [MEASURED] * 3, ())

    def frames(traffic: Traffic) -> int:
        return traffic.frames_to(MEASURED) + traffic.frames_from(MEASURED)

    def handled(traffic: Traffic) -> int:
        return traffic.frames_to(MEASURED, "events") + traffic.frames_from(MEASURED, "events")

    values: dict[str, float] = {}
    for name, traffic in (("before", before), ("delta", after), ("backup", backup)):
        values |= {
            f"frames_per_event_{name}": frames(traffic) / events,
            f"event_frames_per_event_{name}": handled(traffic) / events,
            f"matches_per_event_{name}": traffic.matches[MEASURED] / events,
            f"events_received_per_event_{name}": traffic.events_to(MEASURED) / events,
        }
    values |= {
        "ratio_frames": over(frames(after), frames(backup)),
        "ratio_event_frames": over(handled(after), handled(backup)),
        "ratio_matches": over(after.matches[MEASURED], backup.matches[MEASURED]),
        "ratio_received_to_before": over(after.events_to(MEASURED), before.events_to(MEASURED)),
        "ratio_received_backup_to_before": over(backup.events_to(MEASURED), before.events_to(MEASURED)),
    }
    bars = ["frames", "with events", "matches"]
    return Outcome(
        values,
        [
            Panel(
                "work of who is left, after failures, per event",
                "",
                "",
                [
                    Curve(
                        label,
                        bars,
                        [values[f"{key}_per_event_{name}"] for key in ("frames", "event_frames", "matches")],
                    )
                    for label, name in (("delta", "delta"), ("one for all three", "backup"))
                ],
                states="after failures, […] CPU utilization is about 30% lower in our approach",
                kind="bars",
            )
        ],
    )


PRIMARY_BACKUP = Experiment(
    "primary-backup",
    AVAILABLE,
    "section 7.5, figures 12 and 13",
    "two of three brokers die, against one that does the work of three",
    ROUTERS,
    f"21 brokers, δ = 2: a chain of three, with three publishers and three SHBs at each; {SUBSCRIPTIONS} "
    f"subscriptions, each of another one of {SUBSCRIPTIONS} kinds of events; {RATE} events/s. Two of the chain die, "
    "and one end of it is left. Beside it 19 brokers, of which one has the neighbours of all three. Of the paper's "
    "network the figure is lost.",
    {
        "frames_per_event_before": Figure("frames of the one left, sent and received, per event published: before"),
        "frames_per_event_delta": Figure("two dead"),
        "frames_per_event_backup": Figure("one for all three"),
        "ratio_frames": Figure("two dead over one for all three", "0.7 (CPU)", Bar(most=0.8)),
        "event_frames_per_event_before": Figure("those with events alone: before"),
        "event_frames_per_event_delta": Figure("two dead"),
        "event_frames_per_event_backup": Figure("one for all three"),
        "ratio_event_frames": Figure("two dead over one for all three", "0.7 (CPU)", Bar(most=0.8)),
        "matches_per_event_before": Figure("look-ups of events in tables per event published: before"),
        "matches_per_event_delta": Figure("two dead"),
        "matches_per_event_backup": Figure("one for all three"),
        "ratio_matches": Figure("two dead over one for all three", "0.7 (CPU)", Bar(most=0.8)),
        "events_received_per_event_before": Figure("events that the one left receives, per event published: before"),
        "events_received_per_event_delta": Figure("two dead"),
        "events_received_per_event_backup": Figure("one for all three"),
        "ratio_received_to_before": Figure("two dead over before", "does not affect it", Bar(0.9, 1.1)),
        "ratio_received_backup_to_before": Figure("one for all three over before", "more"),
    },
    run,
)
