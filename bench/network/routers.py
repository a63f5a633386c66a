"""Two routers under one workload and one script of faults: each subscriber gets the same sequence from both.

In virtual time, on the same nodes: once with the router `knowledge` on a tree of cells, and once with `hostile`, on
links between all nodes, which does wrong whatever the contract of the seam permits. Events of one publisher have one
order, and those of several may mix in another way each time. A subscription that begins under publishing may begin at
another event with the one than with the other; above the larger start both sequences have to be the same, publisher
by publisher, to the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.network.proof import Proof, add_options
from bench.papers.experiment import Bar, Figure, Sizes
from bench.papers.virtual import Setup, Stage, play
from gapless_sim.hostile.hostility import BEHAVIOURS

__all__ = ["PROOF", "add_options", "run"]

CELLS = "phb1:phb ib1+ib2<phb1 ib3+ib4<ib1 phb2:phb<ib3 shb1:shb<ib1 shb2:shb<ib3 shb3:shb<ib3"
PUBLISHERS = {"w1": "phb1", "w2": "phb2", "w3": "shb1", "w4": "ib3"}
"""Who publishes, and at which node."""
SHBS = ("shb1", "shb2", "shb3")
RATE = 20.0
"""Events a second of each publisher."""
VALUES = 4
"""A third of the subscribers wants everything, the others one value of so many."""
HOSTILITY = tuple((behaviour, 0.1 if behaviour != "forget" else 0.5) for behaviour in BEHAVIOURS)
SEEDS = 10

Sequences = Mapping[tuple[str, str], Sequence[int]]
"""By subscriber and publisher: the numbers of the publisher's events, as they were handed out."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What one run came to."""

    sequences: Sequences
    published: int


def heard(router: str, seed: int, *, short: bool) -> Heard:
    """One run under a router."""
    stretch = 0.4 if short else 1.0
    hostility = HOSTILITY if router == "hostile" else ()

    def prepare(stage: Stage) -> None:
        for name, node in PUBLISHERS.items():
            stage.publisher(name, node, RATE * stretch, values=VALUES)
        for shb in SHBS:
            for number, value in enumerate((None, 0, 1)):
                stage.subscriber(f"early-{number}-{shb}", shb, value=value)

    def act(stage: Stage) -> None:
        def wait(seconds: float) -> None:
            stage.wait(seconds * stretch)

        stage.start_publishing()
        wait(2)
        for shb in SHBS:
            for number, value in enumerate((None, 2, 3)):
                stage.subscriber(f"late-{number}-{shb}", shb, value=value).start()
        wait(2)
        away = stage.subscribers[seed % 9]
        away.leave()
        for node in ("ib1", "shb2", "phb1"):
            stage.crash(node)
            wait(1)
            stage.boot(node)
            wait(2)
        stage.break_link("ib1", "shb1")
        stage.cut("ib2", "ib3")
        wait(2)
        away.attach()
        stage.heal("ib1", "shb1")
        stage.crash("ib3")
        wait(2)
        stage.heal("ib2", "ib3")
        stage.boot("ib3")
        wait(4)

    stage = play(Setup(CELLS, pubends=2, router=router, hostility=hostility, jitter=1_000_000, seed=seed), prepare, act)
    numbers = {
        publication.key: (publisher.outbox.name, number)
        for publisher in stage.publishers
        for number, publication in enumerate(publisher.published)
    }
    sequences: dict[tuple[str, str], list[int]] = {}
    for subscriber in stage.subscribers:
        for handed in subscriber.handed:
            publisher, number = numbers[handed.key]
            sequences.setdefault((subscriber.row.client_id, publisher), []).append(number)
    return Heard(sequences, len(numbers))


def above(sequence: Sequence[int], start: int) -> list[int]:
    """What of a sequence is not below a start."""
    return [number for number in sequence if number >= start]


def _play(sizes: Sizes) -> Mapping[str, float]:
    compared = different = events = below = published = 0
    seeds = sizes.count(SEEDS, 1)
    for seed in range(1, seeds + 1):
        one, other = (heard(router, seed, short=sizes.quick) for router in ("knowledge", "hostile"))
        published += one.published
        for key in one.sequences.keys() | other.sequences.keys():
            left, right = one.sequences.get(key, ()), other.sequences.get(key, ())
            start = max(min(left, default=0), min(right, default=0))
            compared += 1
            events += len(above(left, start))
            below += len(left) + len(right) - len(above(left, start)) - len(above(right, start))
            different += above(left, start) != above(right, start)
    return {
        "runs_of_each": seeds,
        "published": published,
        "sequences_compared": compared,
        "events_compared": events,
        "events_below_the_larger_start": below,
        "sequences_that_differ": different,
    }


PROOF = Proof(
    "routers: one workload and one script of faults under `knowledge` and `hostile`",
    "2 PHBs with 2 pubends each, two levels of IBs, 3 SHBs; 4 publishers at different nodes, 80 events/s; 9 "
    "subscribers from the beginning, and 9 that come under publishing. An IB, an SHB and a PHB crash, links break and "
    "are cut, one subscriber is away, another IB crashes. `hostile` does each of its wrongs at a rate of 0.1.",
    {
        "runs_of_each": Figure("runs under each router"),
        "published": Figure("events published under `knowledge`"),
        "sequences_compared": Figure("sequences of a subscriber and a publisher, compared", bar=Bar(least=1)),
        "events_compared": Figure("events in them", bar=Bar(least=1)),
        "events_below_the_larger_start": Figure("events below the larger start, which only one had to see"),
        "sequences_that_differ": Figure("sequences that differ above it", bar=Bar(0, 0)),
    },
    _play,
)


def run(*, json: bool, quick: bool) -> dict[str, object]:
    """All of it."""
    return PROOF.run(json=json, quick=quick)
