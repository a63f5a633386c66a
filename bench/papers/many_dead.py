"""000's successor (SRDS 2011): of 500 brokers 17 % die at once, and what that leaves of publishing and subscribing.

Of that paper there is only its abstract. How many pairs of a publisher and an SHB can be served at all follows from the
tree, and is counted beside: no more than δ dead ones in a row may be on the way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from statistics import mean
from typing import Final
from unittest.mock import patch

from bench.papers.brokers import EVERYTHING, Brokers, Link, Plan
from bench.papers.experiment import AVAILABLE, ROUTERS, Bar, Curve, Experiment, Figure, Outcome, Panel, Sizes
from bench.papers.failures import over
from gapless.core.network.facts import BrokerId
from gapless_routing.delta import router
from gapless_routing.delta.options import Options

BROKERS: Final = 500
DEAD: Final = 0.17
DELTAS: Final = (0, 1, 2, 3, 4)
SHAPES: Final[Mapping[str, int | None]] = {"random": None, "fan_out_3": 3, "fan_out_11": 11}
"""How many hang on each broker; None: each hangs on one of those before it, whichever."""
TREES: Final = 20
"""So many are drawn, of which the first is played."""
PUBLISHING: Final = 8
SUBSCRIBING: Final = 60
WARM_UP: Final = 7
HEALED: Final = 15
"""Seconds after which all has come that is still wanted."""
PAPER: Final = 0.97
THE_PAPERS: Final = 3
"""The δ of which the paper says how many events come."""


@dataclass(frozen=True, slots=True)
class Came:
    """Shares of the pairs of a publisher and an SHB, all of them alive."""

    connected: float
    """By the tree: no more than δ dead brokers in a row are between them."""
    pushed: float
    """Events that came while nobody asked, over all."""
    missed: float
    """Events that did not come to who is connected, though it asked, over those."""
    healed: float
    """Events that had come in the end, over all."""


def grown(brokers: int, fan_out: int | None, random: Random) -> list[Link]:
    """A tree."""
    above = (random.randrange(i) if fan_out is None else (i - 1) // fan_out for i in range(1, brokers))
    return [(f"n{up}", f"n{number}") for number, up in enumerate(above, 1)]


def reached(plan: Plan, dead: Collection[BrokerId], start: BrokerId) -> dict[BrokerId, int]:
    """The longest row of dead brokers on the way from a live one to each."""
    around = plan.neighbours
    waiting = [(start, "", 0, 0)]
    found = {}
    for name, before, row, longest in waiting:  # which grows
        found[name] = longest
        for beyond in around[name]:
            if beyond != before:
                dead_in_row = row + 1 if beyond in dead else 0
                waiting.append((beyond, name, dead_in_row, max(longest, dead_in_row)))
    return found


@contextmanager
def _with_delta(delta: int) -> Iterator[int]:
    """δ = 0 is no option of the router: it is the same router, that reaches no further than its neighbours."""
    if delta:
        yield delta
    else:
        with patch.object(router, "options_of", lambda _: Options(delta=0, links_max=1000)):
            yield 1


def drawn(sizes: Sizes, shape: str, seed: int) -> tuple[Plan, list[BrokerId]]:
    """A tree, with who does what, and who dies."""
    random = Random(seed)  # noqa: S311 - the same tree every time
    links = grown(sizes.count(BROKERS, 24), SHAPES[shape], random)
    names = Plan(links=links, publishing=(), subscribing={}, delta=1).names
    dead = random.sample(names, round(DEAD * len(names)))
    live = [name for name in names if name not in dead]
    publishing = random.sample(live, sizes.count(PUBLISHING, 2))
    subscribing = dict.fromkeys(random.sample(live, sizes.count(SUBSCRIBING, 6)), EVERYTHING)
    return Plan(links=links, publishing=publishing, subscribing=subscribing, delta=1), dead


def connected(plan: Plan, dead: Collection[BrokerId], delta: int) -> float:
    """Which share of the pairs of a publisher and an SHB the tree connects."""
    rows = [reached(plan, dead, name) for name in plan.publishing]
    return mean(row[name] <= delta for row in rows for name in plan.subscribing)


def survived(sizes: Sizes, shape: str, delta: int, seed: int) -> Came:
    """All start; many die; everybody publishes, and at first nobody asks; they return."""
    plan, dead = drawn(sizes, shape, seed)
    with _with_delta(delta) as known:
        brokers = Brokers(replace(plan, delta=known), seed)
        brokers.start(WARM_UP)
        brokers.ask(asks=False)
        brokers.crash(dead)
        brokers.wait(2)
        since = brokers.now
        pushed = _publish(sizes, brokers, delta, dead, since)
        brokers.ask(asks=True)
        asked = _publish(sizes, brokers, delta, dead, since)
        brokers.boot(dead)
        brokers.wait(sizes.count(HEALED, 6))
        healed = _shares(brokers, delta, dead, since)
    return Came(pushed.connected, pushed.all, 1 - asked.of_connected, healed.all)


@dataclass(frozen=True, slots=True)
class _Shares:
    all: float
    of_connected: float
    connected: float


def _publish(sizes: Sizes, brokers: Brokers, delta: int, dead: Sequence[BrokerId], since: int) -> _Shares:
    """Two events of each pubend, and what came of them and of all others since then, while so many were dead."""
    for number in range(2):
        for pubend in brokers.pubends:
            brokers.publish(pubend, number)
        brokers.wait(sizes.count(2, 1))
    return _shares(brokers, delta, dead, since)


def _shares(brokers: Brokers, delta: int, dead: Sequence[BrokerId], since: int) -> _Shares:
    came = due = both = pairs = 0
    for pubend in brokers.pubends:
        rows = reached(brokers.plan, dead, pubend.host.name)
        for name in brokers.shbs:
            is_there, is_connected = brokers.has_all(name, pubend, since), rows[name] <= delta
            pairs += 1
            came += is_there
            due += is_connected
            both += is_there and is_connected
    return _Shares(came / pairs, over(both, due), due / pairs)


def run(sizes: Sizes) -> Outcome:
    """Each shape with each δ."""
    values: dict[str, float] = {}
    curves = []
    for shape in SHAPES:
        came = {delta: survived(sizes, shape, delta, 1) for delta in DELTAS}
        for delta, each in came.items():
            values[f"ratio_connected_{shape}_{delta}"] = each.connected
            values[f"ratio_pushed_{shape}_{delta}"] = each.pushed
        values[f"ratio_pushed_to_connected_{shape}"] = min(over(each.pushed, each.connected) for each in came.values())
        values[f"ratio_missed_{shape}"] = max(each.missed for each in came.values())
        values[f"ratio_healed_{shape}"] = min(each.healed for each in came.values())
        trees = [drawn(sizes, shape, seed) for seed in range(1, TREES + 1)]
        values[f"ratio_connected_mean_{shape}"] = mean(connected(*tree, THE_PAPERS) for tree in trees)
        values[f"ratio_pushed_to_paper_{shape}"] = came[THE_PAPERS].pushed / PAPER
        curves.append(Curve(shape.replace("_", " "), list(came), [100 * each.pushed for each in came.values()]))
    return Outcome(
        values,
        [
            Panel(
                "events that come while 17 % of 500 are dead, nobody asks",
                "δ",
                "%",
                curves,
                [Curve("", [THE_PAPERS], [100 * PAPER])],
                kind="bars",
            )
        ],
    )


def _figures(shape: str) -> dict[str, Figure]:
    title = shape.replace("_", " ")
    found = {}
    for delta in DELTAS:
        said = "0.97" if delta == THE_PAPERS else ""
        found[f"ratio_connected_{shape}_{delta}"] = Figure(
            f"{title}, δ = {delta}: pairs that the tree connects, of all"
        )
        found[f"ratio_pushed_{shape}_{delta}"] = Figure("events that came, nobody asked", said)
    return found | {
        f"ratio_connected_mean_{shape}": Figure(f"δ = 3: pairs that the tree connects, mean of {TREES} such trees"),
        f"ratio_pushed_to_paper_{shape}": Figure("events that came with δ = 3, over the paper's", "1", Bar(least=1)),
        f"ratio_pushed_to_connected_{shape}": Figure("events that came over pairs connected, least", bar=Bar(1, 1)),
        f"ratio_missed_{shape}": Figure("connected, and without an event though it asked, most", bar=Bar(0, 0)),
        f"ratio_healed_{shape}": Figure("events that have come when all are back, least", bar=Bar(1, 1)),
    }


MANY_DEAD = Experiment(
    "many-dead",
    AVAILABLE,
    "its successor's abstract (SRDS 2011)",
    "of 500 brokers 17 % die at once",
    ROUTERS,
    f"500 brokers in a random tree, and with 3 and 11 below each; {PUBLISHING} live ones publish, at {SUBSCRIBING} "
    "live ones is an SHB that wants all. 85 die at once, whichever; 2 s later events are published, and nobody asks "
    "for what does not come; then more, and SHBs ask; then all return, empty. δ = 0: the same router, which reaches "
    "its neighbours alone. The paper's failures are of brokers or links.",
    {key: figure for shape in SHAPES for key, figure in _figures(shape).items()},
    run,
)
