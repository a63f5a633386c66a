"""000: brokers that were dead are back, and learn again what everybody wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bench.papers.brokers import (
    RING_WAIT,
    Brokers,
    Busy,
    Plan,
    chain_of_three,
    rim_of,
    star_of_chains,
    subscriptions,
    warm_up,
)
from bench.papers.experiment import AVAILABLE, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from gapless.core.network.facts import BrokerId
from gapless_testing.routing.faults import MS, SECOND

CHAIN: Final = ("b1", "b2", "b3")
DELTA: Final = 3
SUBSCRIPTIONS: Final = 2600
RATES: Final = (5, 10, 20, 40, 80)
"""Events a second."""
DETECTORS: Final = {"low": 2 * SECOND, "high": 10 * SECOND}
HOPS: Final = (1, 2, 3)
"""How far away the first live broker is in each direction."""
LAN: Final = MS // 2
"""How long a link takes: the paper's brokers stood in one room."""
SEEN: Final = Busy(frame=150_000, byte=10, byte_of_interest=700)
"""What a processor here took: 0.15 ms for a small frame, 0.8 ms for one with 50 subscriptions, 3 µs for an event."""
PATIENCE: Final = 30


def recovered(sizes: Sizes, plan: Plan, dead: Sequence[BrokerId], back: Sequence[BrokerId], rate: float) -> float:
    """Some die, some of these return, at so many events a second; seconds until the last knows what all want."""
    brokers = Brokers(plan)
    brokers.start(warm_up(sizes))
    brokers.publish_steadily(rate, _count(sizes))
    brokers.wait(1)
    brokers.crash(dead)
    brokers.wait(plan.detector / SECOND + sizes.count(5, 1))
    brokers.boot(back)
    for _ in range(10 * PATIENCE):
        if len(brokers.recovered) == len(back):
            return max(brokers.recovered.values()) / SECOND
        brokers.wait(0.1)
    raise TimeoutError(f"only {sorted(brokers.recovered)} of {sorted(back)} have recovered within {PATIENCE} s")


def _count(sizes: Sizes) -> int:
    return sizes.count(SUBSCRIPTIONS, 60)


def _rates(sizes: Sizes) -> Sequence[int]:
    return RATES[-1:] if sizes.quick else RATES


def adjacent(sizes: Sizes, back: int, rate: float) -> float:
    """So many in a row were dead, and return at once."""
    links = chain_of_three(sizes.count(11, 4), sizes.count(86, 16))
    rim = rim_of(links)
    plan = Plan(
        links=links,
        publishing=[rim[0], rim[-1]],
        subscribing=subscriptions(_count(sizes), rim[1:-1]),
        delta=DELTA,
        detector=DETECTORS["low"],
        latency=LAN,
        busy=SEEN,
    )
    return recovered(sizes, plan, CHAIN[:back], CHAIN[:back], rate)


def far_away(sizes: Sizes, hops: int, detector: int) -> float:
    """One returns, and around it the first live broker in each direction is so many hops away."""
    chains = sizes.count(17, 3)
    links = star_of_chains(chains, 5)
    plan = Plan(
        links=links,
        publishing=["0.5", "1.5"],
        subscribing=subscriptions(_count(sizes), [f"{chain}.{hop}" for chain in range(chains) for hop in (4, 5)]),
        delta=DELTA,
        detector=detector,
        latency=LAN,
        busy=SEEN,
    )
    dead = ["r", *(f"{chain}.{hop}" for chain in range(chains) for hop in range(1, hops))]
    return recovered(sizes, plan, dead, ["r"], RATES[0])


def run(sizes: Sizes) -> Outcome:
    """Both."""
    rates = _rates(sizes)
    took = {(back, rate): adjacent(sizes, back, rate) for back in (1, 2, 3) for rate in rates}
    far = {(name, hops): far_away(sizes, hops, each) for name, each in DETECTORS.items() for hops in HOPS}
    values: dict[str, float] = {f"recovery_{back}_s": max(took[back, rate] for rate in rates) for back in (1, 2, 3)}
    values["ratio_recovery_highest_to_lowest"] = max(took.values()) / min(took.values())
    for name in DETECTORS:
        values |= {f"recovery_{hops}_hops_{name}_s": far[name, hops] for hops in HOPS}
    steps = {name: (far[name, HOPS[-1]] - far[name, HOPS[0]]) / (len(HOPS) - 1) for name in DETECTORS}
    for name, detector in DETECTORS.items():
        values[f"ratio_hop_to_ring_wait_{name}"] = steps[name] * SECOND / RING_WAIT
        values[f"ratio_hop_to_detector_{name}"] = steps[name] * SECOND / detector
    return Outcome(
        values,
        [
            Panel(
                "until brokers in a row have recovered",
                "events/s",
                "s",
                [Curve(f"{back} back", rates, [took[back, rate] for rate in rates]) for back in (1, 2, 3)],
                states="the time to recover in all cases are almost the same",
            ),
            Panel(
                "by the distance of the first live broker",
                "",
                "s",
                [
                    Curve(
                        f"detector {each / SECOND:g} s",
                        [f"{hops} hops" for hops in HOPS],
                        [far[name, hops] for hops in HOPS],
                    )
                    for name, each in DETECTORS.items()
                ],
                [
                    Curve(
                        f"detector {each / SECOND:g} s",
                        [f"{hops} hops" for hops in HOPS],
                        [(hops - 1) * each / SECOND for hops in HOPS],
                    )
                    for each in DETECTORS.values()
                ],
                kind="bars",
            ),
        ],
    )


RECOVERY = Experiment(
    "recovery",
    AVAILABLE,
    "section 7.2, figure 9",
    "brokers return, and learn what everybody wants",
    ROUTERS,
    f"The 86 brokers of `bypass`, δ = 3, {SUBSCRIPTIONS:,} subscriptions at 52 brokers at the rim, publishers at both "
    "ends. A link takes 0.5 ms, and a processor as long as it took here: 0.15 ms for a frame, 0.7 µs for each byte "
    "of what SHBs want. Of the three in the chain 1, 2 or 3 return at once and empty, at 5 to 80 events/s. Then 86 "
    "brokers as 17 chains around one, which returns, with 0, 1 or 2 dead next to it in each direction. It has "
    "recovered when it says so.",
    {
        "recovery_1_s": Figure("1 returns, s, longest of five rates"),
        "recovery_2_s": Figure("2 in a row return, s"),
        "recovery_3_s": Figure("3 in a row return, s"),
        "ratio_recovery_highest_to_lowest": Figure("highest over lowest of all", "almost the same", Bar(most=1.3)),
        **{
            f"recovery_{hops}_hops_{name}_s": Figure(
                f"first live broker {hops} hops away, detector {each / SECOND:g} s, s"
            )
            for name, each in DETECTORS.items()
            for hops in HOPS
        },
        **{
            f"ratio_hop_to_ring_wait_{name}": Figure(
                f"one hop more over 0.25 s, detector {each / SECOND:g} s", bar=Bar(most=1.1)
            )
            for name, each in DETECTORS.items()
        },
        **{
            f"ratio_hop_to_detector_{name}": Figure(
                f"the same over the detector, {each / SECOND:g} s", "1", Bar(most=0.2)
            )
            for name, each in DETECTORS.items()
        },
    },
    run,
)
