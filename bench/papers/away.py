"""000, section 6: an SHB is away for an hour, and who keeps what it wants meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.papers.brokers import EVERYTHING, Brokers, Plan, warm_up
from bench.papers.experiment import AVAILABLE, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from gapless.core.network.facts import BrokerId

CHAIN: Final = ("p", "b1", "b2", "b3", "b4", "s")
"""The one that publishes, and last the one whose SHB is away."""
BESIDE: Final = {"r1": "b1", "r2": "b2"}
"""SHBs that are there all the time, and the brokers on which they hang."""
DELTA: Final = 1
RATE: Final = 5
HOUR: Final = 3_600
FORGET_SECONDS: Final = 600
"""The option `forget_seconds`, if nothing is said."""
LOOKS: Final = 12
"""So often it is looked at who keeps what, while the SHB is away."""
SETTLED: Final = 30
"""Seconds after which an SHB that is back has all, and everything older than the window is gone."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of events that each broker keeps, as time goes by."""

    before: Mapping[BrokerId, int]
    away: Sequence[Mapping[BrokerId, int]]
    after: Mapping[BrokerId, int]
    from_elsewhere: int
    """Events that the returned SHB did not have from those who kept them."""
    complete: bool
    """Whether every SHB has all that was published."""

    @property
    def keepers(self) -> list[BrokerId]:
        """Who kept for it: more in the end than before."""
        return [name for name, size in self.away[-1].items() if size > 2 * self.before[name]]

    @property
    def most_at_others(self) -> float:
        """The most that another one kept meanwhile, over before."""
        others = [name for name in self.before if name not in self.keepers]
        return max(over(look[name], self.before[name]) for look in self.away for name in others)


def kept(sizes: Sizes, forget_seconds: int) -> Kept:
    """Somebody publishes all the time; the SHB at the end of the chain dies, and returns after an hour."""
    links = [*pairwise(CHAIN), *((broker, name) for name, broker in BESIDE.items())]
    readers = (CHAIN[-1], *BESIDE)
    plan = Plan(
        links=links,
        publishing=CHAIN[:1],
        subscribing=dict.fromkeys(readers, EVERYTHING),
        delta=DELTA,
        forget_seconds=forget_seconds,
    )
    brokers = Brokers(plan)
    (pubend,) = brokers.pubends
    published = brokers.published[pubend.pubend]
    brokers.start(warm_up(sizes))
    brokers.publish_steadily(RATE)
    brokers.wait(SETTLED)
    before, away = brokers.kept(CHAIN[:-1]), []
    brokers.crash(readers[:1])
    for _ in range(LOOKS):
        brokers.wait(sizes.count(HOUR, 60) / LOOKS)
        away.append(brokers.kept(CHAIN[:-1]))
    with brokers.counting(CHAIN[1:2]) as traffic:
        meanwhile = -len(published)
        brokers.boot(readers[:1])
        brokers.wait(SETTLED)
    meanwhile += len(published)
    after = brokers.kept(CHAIN[:-1])
    brokers.stop_publishing()
    brokers.wait(1)
    complete = all(brokers.has_all(name, pubend, 0) for name in readers)
    return Kept(before, away, after, traffic.events_to(CHAIN[1]) - meanwhile, complete)


def run(sizes: Sizes) -> Outcome:
    """Bytes in virtual time."""
    own, default = kept(sizes, 2 * HOUR), kept(sizes, sizes.count(FORGET_SECONDS, 30))
    values = {
        "brokers_that_kept": len(own.keepers),
        "keepers_are_those_before_it": float(own.keepers == list(CHAIN[-2 - DELTA : -1])),
        "kept_bytes_at_the_end": float(max(own.away[-1].values())),
        "ratio_others_while_away_to_before": own.most_at_others,
        "ratio_after_to_before": _most(own.after, own.before),
        "events_from_elsewhere": float(own.from_elsewhere),
        "complete": float(own.complete),
        "kept_bytes_default": float(max(size for look in default.away for size in look.values())),
        "brokers_that_kept_default": len(default.keepers),
        "ratio_after_to_before_default": _most(default.after, default.before),
        "complete_default": float(default.complete),
    }
    times = [(number + 1) / LOOKS for number in range(LOOKS)]
    panels = [
        Panel(what, "share of the hour", "MB", [Curve(name, times, _megabytes(each, name)) for name in each.before])
        for what, each in (("kept, forgotten after hours", own), ("kept, forgotten after ten minutes", default))
    ]
    return Outcome(values, panels)


def _most(sizes: Mapping[BrokerId, int], before: Mapping[BrokerId, int]) -> float:
    return max(over(sizes[name], size) for name, size in before.items())


def _megabytes(found: Kept, name: BrokerId) -> list[float]:
    return [look[name] / 1e6 for look in found.away]


AWAY = Experiment(
    "away",
    AVAILABLE,
    "section 6",
    "an SHB that is away for an hour",
    ROUTERS,
    f"A chain of {len(CHAIN)} brokers, δ = {DELTA}, with two more SHBs beside it; {RATE} events/s of 250 bytes. The "
    "SHB at the end is away for an hour, and returns with its own disk. Once the option `forget_seconds` is longer "
    f"than that, and once {FORGET_SECONDS} s, as it is if nothing is said.",
    {
        "brokers_that_kept": Figure("brokers that kept events for it", bar=Bar(DELTA + 1, DELTA + 1)),
        "keepers_are_those_before_it": Figure("they are those before it", bar=Bar(1, 1)),
        "kept_bytes_at_the_end": Figure("bytes that each of them kept at last"),
        "ratio_others_while_away_to_before": Figure("others: most that one kept, over before", bar=Bar(0.8, 1.2)),
        "ratio_after_to_before": Figure("half a minute after it is back, over before", bar=Bar(0.8, 1.2)),
        "events_from_elsewhere": Figure("events for it that came from farther away", bar=Bar(-1, 1)),
        "complete": Figure("every SHB has all", "always", Bar(1, 1)),
        "kept_bytes_default": Figure("default: most that any broker kept, bytes"),
        "brokers_that_kept_default": Figure("brokers that keep events for it at last", bar=Bar(0, 0)),
        "ratio_after_to_before_default": Figure("half a minute after it is back, over before", bar=Bar(0.8, 1.2)),
        "complete_default": Figure("every SHB has all", "always", Bar(1, 1)),
    },
    run,
)
