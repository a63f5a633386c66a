"""Every node killed, every kind of trouble on links, and each subscriber's database exact.

    PHB – {IB, IB} – {IB, IB} – 3 SHBs, 12 durable subscriptions, publishers at the PHB and at an SHB

Each trouble is told of with how late flights were in the time after it, by SHB: a cut concerns those that what was cut
served, and the others are to keep their 99 % quantile.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from bench.network.consumers import Trial, consumers, quantile
from bench.network.nodes import Layout, Network, running_network
from gapless.cli.connecting import run as run_loop
from gapless_flights.proof import SubscriptionProof

LAYOUT: Final = Layout(
    {
        "phb": ["phb"],
        "upper": ["ib-1", "ib-2"],
        "lower": ["ib-3", "ib-4"],
        "one": ["shb-1"],
        "two": ["shb-2"],
        "three": ["shb-3"],
    },
    [("phb", "upper"), ("upper", "lower"), ("lower", "one"), ("lower", "two"), ("lower", "three")],
)
SHBS: Final = ("shb-1", "shb-2", "shb-3")
DEAD: Final = "ib-1-ib-4"
"""The link over which nothing ever gets through."""
SLOW: Final = 20_000.0
"""Bytes a second of a link that is slow: about a third of what is to pass it."""
STALLS: Final = 5.0


@dataclass(frozen=True)
class Trouble:
    """What was done, and when."""

    what: str
    at: float
    until: float
    """When the next thing was done."""
    shbs: tuple[str, ...]
    """The SHBs that what was struck served just before, as far as bytes on links tell."""


class Faults:
    """One run."""

    def __init__(self, directory: Path, seconds: float, rate: float, *, quick: bool) -> None:
        self._directory = directory
        self._seconds = seconds
        self._quick = quick
        self.troubles: list[Trouble] = []
        # All of one client: their home is one of the three SHBs, and at the others they are guests.
        self.trial = Trial(consumers(dict.fromkeys(SHBS, "bench"), 4, directory), rate)

    async def run(self) -> list[SubscriptionProof]:
        """All of it. Returns what each database has of each publisher."""
        async with running_network(LAYOUT, self._directory, with_proxies=True, dead=[DEAD]) as network:
            urls = {name: node.url for name, node in network.nodes.items()}
            return await self.trial.run(urls, ("phb", "shb-1"), lambda: self._script(network))

    async def _script(self, network: Network) -> None:
        await self._note("nothing", (), self._seconds)
        if self._quick:
            await self._kill(network, "ib-3")
            await self._cut(network, "lower", "two")
            await self._kill(network, "shb-2")
            await self._kill(network, "phb")
            return
        for upper, lower in LAYOUT.bundles:
            await self._cut(network, upper, lower)
        await self._stall(network, "upper", "lower")
        await self._slow(network, "lower", "three")
        for node in network.nodes:
            await self._kill(network, node)
        await self._note("nothing", (), self._seconds)

    async def _kill(self, network: Network, node: str) -> None:
        at = monotonic()
        await network.nodes[node].kill()
        await network.until_up(dead=[DEAD])
        await self._note(f"kill -9 {node}", (), self._seconds, at)

    async def _cut(self, network: Network, upper: str, lower: str) -> None:
        """The link of a bundle that most passes on."""
        one, other = await self._busiest(network, upper, lower)
        at = monotonic()
        network.link(one, other).cut()
        shbs = (other,) if other in SHBS else SHBS
        await self._note(f"cut {one}-{other}", shbs, self._seconds, at)
        await network.until_up([one, other], dead=[DEAD])

    async def _stall(self, network: Network, upper: str, lower: str) -> None:
        one, other = await self._busiest(network, upper, lower)
        at = monotonic()
        network.link(one, other).stall()
        await asyncio.sleep(STALLS)
        network.link(one, other).heal()
        await self._note(f"stall {one}-{other} for {STALLS:g} s", SHBS, self._seconds, at)
        await network.until_up([one, other], dead=[DEAD])

    async def _slow(self, network: Network, upper: str, lower: str) -> None:
        """All links of a bundle, toward the subscribers."""
        at = monotonic()
        links = [network.link(one, other) for one in LAYOUT.cells[upper] for other in LAYOUT.cells[lower]]
        for link in links:
            link.slow(LAYOUT.cells[lower][0], SLOW / len(links))
        await asyncio.sleep(2 * self._seconds)
        for link in links:
            link.heal()
        await self._note(f"slow {upper}-{lower}", tuple(LAYOUT.cells[lower]), self._seconds, at)

    async def _busiest(self, network: Network, upper: str, lower: str) -> tuple[str, str]:
        pairs = [(one, other) for one in LAYOUT.cells[upper] for other in LAYOUT.cells[lower]]
        before = {pair: network.link(*pair).passed(pair[1]) for pair in pairs}
        await asyncio.sleep(1.0)
        return max(pairs, key=lambda pair: network.link(*pair).passed(pair[1]) - before[pair])

    async def _note(self, what: str, shbs: tuple[str, ...], seconds: float, at: float | None = None) -> None:
        began = monotonic() if at is None else at
        await asyncio.sleep(seconds)
        self.troubles.append(Trouble(what, began, monotonic(), shbs))
        print(f"{what}: {sum(one.count for one in self.trial.consumers):,} consumed", file=sys.stderr, flush=True)

    # ------------------------------------------------------------------------------------- what it came to

    def rows(self) -> list[dict[str, Any]]:
        """For each trouble, how late the affected and the others were."""
        rows = []
        for trouble in self.troubles:
            affected = [one for one in self.trial.consumers if one.node in trouble.shbs]
            others = [one for one in self.trial.consumers if one.node not in trouble.shbs]
            row: dict[str, Any] = {"what": trouble.what}
            for name, whose in (("affected", affected), ("others", others)):
                late = [s for one in whose for at, s in one.late if trouble.at - 0.5 <= at < trouble.until]
                for key, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
                    row[f"{name}_{key}_ms"] = 1e3 * quantile(late, share)
            rows.append(row)
        return rows


def add_options(parser: ArgumentParser) -> None:
    """How long, and how much."""
    parser.add_argument("--quick", action="store_true", help="three kills and a cut: is every database exact?")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="after each trouble")
    parser.add_argument("--rate", type=float, default=300.0, metavar="R", help="flights a second")


def run(*, json: bool, quick: bool, seconds: float, rate: float) -> dict[str, Any]:
    """Carries it out. Ends the process with status 1 when a database is not exact."""
    with TemporaryDirectory(prefix="gapless-network-") as directory:
        faults = Faults(Path(directory), seconds, rate, quick=quick)
        proofs = run_loop(faults.run())
    wrong = [proof for proof in proofs if not proof.is_right]
    figures = {
        "published": sum(map(len, faults.trial.published)),
        "consumed": sum(proof.consumed for proof in proofs),
        "expected": sum(proof.expected for proof in proofs),
        "databases": len(faults.trial.consumers),
        "wrong": [str(proof) for proof in wrong],
        "troubles": faults.rows(),
    }
    if not json or wrong:
        _print(figures)
    if wrong:
        sys.exit(1)
    return figures


def _print(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    keys = list(figures["troubles"][0])
    shown = Table(*(key.replace("_", " ") for key in keys), title="how late, after each trouble")
    for row in figures["troubles"]:
        shown.add_row(*(f"{value:,.0f}" if isinstance(value, float) else str(value) for value in row.values()))
    console = Console(width=150)
    console.print(shown)
    console.print({key: value for key, value in figures.items() if key != "troubles"})
