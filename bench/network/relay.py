"""What a relay costs at full speed: the routers of one network, batches of 256 events, frames, and nothing else.

    pass    PHB – IB – SHB: the IB's router alone, frames in and frames out. The SHB wants half of the events.
    push    a PHB's router, with so many neighbours behind which nobody is, or nobody who wants one of the events:
            what the first of them costs, and one more. With the first the events are cached, and the column that all
            selectors here name is made: once, for all.

The routers are real, and so is every frame: decoded, cached, matched, filtered and encoded. Timers that are due come in
between. Links take no time and are never full. Measured is processor time, once with the compiled functions of
`gapless-fast`, if it is there, and once without: the bars are for with.

    python -m bench network relay [--json] [--quick]
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from statistics import median
from typing import Any, Final

from bench.network.proof import Proof, add_options
from bench.papers.experiment import Bar, Figure, Sizes
from bench.rounds import in_turn
from gapless.core.network.facts import (
    Enrol,
    Enrolled,
    FrameArrived,
    Interest,
    Know,
    LinkUp,
    NetworkMap,
    NetworkNode,
    Opened,
    PubendMeta,
    SendFrame,
    Wake,
)
from gapless.core.network.frames import encode
from gapless.core.network.seam import Effect, RouterContext
from gapless.core.network.timer_queue import MILLISECOND, SECOND
from gapless.core.stream import fast
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Property
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import tick_at
from gapless.node.node import cycles_sought_seldom
from gapless.selectors.filters import Filter
from gapless_routing.knowledge.router import KnowledgeRouter

__all__ = ["PROOF", "add_options", "run"]

BATCH: Final = 256
EVERY: Final = 2 * MILLISECOND
"""How often a batch comes: 128,000 events a second."""
WALL: Final = 1_800_000_000_000
BODY: Final = b"x" * 250
KINDS: Final = 20
SUBSCRIPTIONS: Final = 10
"""Each wants one kind of event."""
P: Final = "p@1"
ROLES: Final = {"p": ("phb",), "s": ("shb",)}
MANY: Final = 8
"""So many more neighbours than one."""
SLACK_MS: Final = 1000
SETTLED_AFTER: Final = 12 * SECOND
BATCHES: Final = 400
ROUNDS: Final = 5


class Net:
    """Routers on one map, with links between neighbours on which everything arrives at once."""

    def __init__(self, links: Iterable[tuple[str, str]]) -> None:
        pairs = tuple(links)
        names = dict.fromkeys(name for pair in pairs for name in pair)
        nodes = {name: NetworkNode(frozenset(ROLES.get(name[0], ())), "") for name in names}
        network = NetworkMap(nodes, pairs)
        self.now = SECOND
        self.links: dict[tuple[str, str], int] = {}
        self.routers = {name: KnowledgeRouter() for name in names}
        self.sent: dict[str, int] = dict.fromkeys(names, 0)
        """How many frames each has sent."""
        for number, name in enumerate(names):
            self._carry_out(name, self.routers[name].start(self.now, RouterContext(name, number, network)))
        for one, other in pairs:
            for name, peer in ((one, other), (other, one)):
                self.links[name, peer] = len(self.links) + 1
        for name, peer in self.links:
            self.tell(name, LinkUp(self.links[name, peer], peer, nodes[peer].roles, 1))

    def tell(self, name: str, fact: Any) -> None:
        """A router is told something, and all that follows happens."""
        self._carry_out(name, self.routers[name].handlers()[type(fact)](self.now, fact))

    def pass_time(self, span: int) -> None:
        """Timers do what they do."""
        end = self.now + span
        while True:
            at, name = min((router.next_wake() or end + 1, name) for name, router in self.routers.items())
            self.now = max(self.now, min(at, end))
            if at > end:
                return
            self.tell(name, Wake())

    def want(self, name: str, *selectors: str) -> None:
        """The SHB of a node says what it wants; the pubend enrols it."""
        add = {number: Filter(("flights",), selector) for number, selector in enumerate(selectors, 1)}
        self.tell(name, Interest(f"{name}@disk", 0, 1, add, full=True))

    def _carry_out(self, name: str, effects: Iterable[Effect]) -> None:
        peers = {link: peer for (at, peer), link in self.links.items() if at == name}
        for effect in effects:
            if isinstance(effect, SendFrame):
                self.sent[name] += 1
                peer = peers[effect.link]
                self.tell(peer, FrameArrived(self.links[peer, name], effect.frame, WALL))
            elif isinstance(effect, Enrol):
                self.tell(name, Enrolled(effect.pubend, effect.shb, 0))


def batches(count: int) -> Iterator[Knowledge]:
    """What a pubend says: batches as publishers send them, checked, each event at a tick of its own."""
    first = tick_at(WALL)
    for number in range(count):
        kinds: list[dict[str, Property]] = [{"kind": f"k{at % KINDS}", "n": at, "price": at / 8} for at in range(BATCH)]
        columns = EventColumns.encoded("flights", kinds, list(repeat(None, BATCH)), list(repeat(BODY, BATCH)))
        if columns.headers is None:
            columns.check()
        lo = first + number * BATCH
        yield Knowledge(P, lo, lo + BATCH, columns.batch(range(lo + 1, lo + BATCH + 1)))


def passing(count: int) -> float:
    """Microseconds of an IB's router for each event that comes; it passes half of them on."""
    net = Net([("p", "i"), ("i", "s")])
    net.tell("p", Opened(PubendMeta(P, "p"), {}))
    net.want("s", *(f"kind = 'k{number}'" for number in range(SUBSCRIPTIONS)))
    net.pass_time(SETTLED_AFTER)
    link, onward = net.links["i", "p"], net.links["i", "s"]
    sizes: list[int] = []

    def frames() -> Iterator[FrameArrived]:
        for said in batches(count):
            frame = encode(said, (SLACK_MS,))
            sizes.append(len(frame))
            yield FrameArrived(link, frame, WALL)

    taken, effects = measured(net, "i", frames())
    passed = [len(effect.frame) for effect in effects if isinstance(effect, SendFrame) and effect.link == onward]
    share = sum(passed) / sum(sizes)
    assert 0.45 < share < 0.55, f"it passed {share:.0%} on"
    return taken / count / BATCH


def pushing(count: int, neighbours: int, *selectors: str) -> float:
    """Microseconds of a PHB's router for each event, with so many neighbours of which each wants that, or nothing."""
    names = [f"s{number}" for number in range(neighbours)]
    net = Net([("p", name) for name in names] or [("p", "i")])
    net.tell("p", Opened(PubendMeta(P, "p"), {}))
    for name in names if selectors else ():
        net.want(name, *selectors)
    net.pass_time(SETTLED_AFTER)
    taken, _ = measured(net, "p", map(Know, batches(count)))
    return taken / count / BATCH


def measured(net: Net, name: str, facts: Iterable[FrameArrived | Know]) -> tuple[float, list[Effect]]:
    """Tells a router facts, one after the other, and that time passes; returns microseconds, and what it answered.

    Each fact is made just before, as it comes from a socket or a log: its bytes are near the processor.
    """
    router = net.routers[name]
    handlers, effects, now, taken = router.handlers(), list[Effect](), net.now, 0
    for fact in facts:
        now += EVERY
        began = time.process_time_ns()
        wake = router.next_wake()
        if wake is not None and wake <= now:
            effects += router.wake(now, Wake())
        effects += handlers[type(fact)](now, fact)
        taken += time.process_time_ns() - began
    return taken / 1000, effects


def figures_here(rounds: int, count: int) -> dict[str, float]:
    """The medians of several rounds with the functions that are here, compiled or not."""
    none = ("kind = 'none'",)
    works: dict[str, Callable[[], float]] = {
        "pass": lambda: passing(count),
        "alone": lambda: pushing(count, 0),
        "nobody_1": lambda: pushing(count, 1),
        "nobody": lambda: pushing(count, 1 + MANY),
        "unwanted_1": lambda: pushing(count, 1, *none),
        "unwanted": lambda: pushing(count, 1 + MANY, *none),
    }
    took: dict[str, list[float]] = {name: [] for name in works}
    with cycles_sought_seldom():
        for number in range(rounds):
            for name in in_turn(list(works), number):
                took[name].append(works[name]())
                gc.collect()
    at = {name: median(each) for name, each in took.items()}
    return {
        "pass_us_per_event": at["pass"],
        "nobody_first_us_per_event": at["nobody_1"] - at["alone"],
        "nobody_more_us_per_event": (at["nobody"] - at["nobody_1"]) / MANY,
        "unwanted_first_us_per_event": at["unwanted_1"] - at["alone"],
        "unwanted_more_us_per_event": (at["unwanted"] - at["unwanted_1"]) / MANY,
    }


def figures_without(rounds: int, count: int) -> dict[str, float]:
    """The same in a process that does not find the compiled functions."""
    program = (
        "import json, sys; sys.modules['gapless_fast'] = None; from bench.network.relay import figures_here;"
        f" print(json.dumps(figures_here({rounds}, {count})))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _play(sizes: Sizes) -> Mapping[str, float]:
    rounds, count = sizes.count(ROUNDS, 1), sizes.count(BATCHES, 40)
    figures = {f"python_{key}": value for key, value in figures_without(rounds, count).items()}
    return figures | (figures_here(rounds, count) if fast.COMPILED else {})


FIGURES: Final = {
    "pass_us_per_event": Figure("an IB that passes half on, µs per event", bar=Bar(most=3)),
    "nobody_first_us_per_event": Figure("a PHB's first neighbour, nobody behind it, µs per event", bar=Bar(most=0.15)),
    "nobody_more_us_per_event": Figure("one more of these, µs per event", bar=Bar(most=0.15)),
    "unwanted_first_us_per_event": Figure(
        "a PHB's first neighbour, where nobody wants one of the events, µs per event"
    ),
    "unwanted_more_us_per_event": Figure("one more of these, µs per event", bar=Bar(most=0.15)),
}
"""With the compiled functions, if they are there."""
WITHOUT: Final = {f"python_{key}": Figure(f"without gapless-fast: {each.what}") for key, each in FIGURES.items()}
PROOF = Proof(
    "relay: processor time of routers alone, at full speed",
    f"{BATCHES} batches of {BATCH} events with 250 bytes and three properties, {SUBSCRIPTIONS} subscriptions that want"
    f" {SUBSCRIPTIONS} of {KINDS} kinds; medians of {ROUNDS} rounds. The bars are for the compiled functions"
    " (gapless-fast).",
    (FIGURES if fast.COMPILED else {}) | WITHOUT,
    _play,
)


def run(*, json: bool, quick: bool) -> dict[str, object]:
    """All of it. Without the compiled functions there are no figures that have bars."""
    return PROOF.run(json=json, quick=quick)
