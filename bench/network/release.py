"""Of four SHBs one is gone for good and one moves to another cell: logs shrink again, and nobody is told of a gap.

    PHB ┬ {IB, IB}: two SHBs
        └ {IB, IB}: two SHBs

Real processes on RocksDB. The machine of one SHB is lost: its place pins the PHB's log, which grows until `gapless
retire` is given to another node. Then an SHB of the second cell is carried over to the first: it stops, the log grows,
every node gets the new network file, and is started again when its turn comes. After each the log is to be as small as
before within a minute. All other subscriptions go on, one of them at an SHB that is not its home; a gap that any of
them is told of ends the run with an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import json as json_module
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.table import Column, Table

from bench.network.consumers import Consumer, Trial, clients_at_home, consumers, consuming
from bench.network.nodes import Layout, Network, running_network
from bench.network.proof import Proof
from bench.papers.experiment import Bar, Figure, Sizes
from gapless.cli.connecting import run as run_loop
from gapless.errors import GaplessError
from gapless_flights.proof import SubscriptionProof
from gapless_flights.selections import SELECTIONS
from gapless_flights.worker import environment
from gapless_phb.core.gauges import LOG_BYTES

LOST: Final = "shb-1"
MOVED: Final = "shb-4"
SHBS: Final = (LOST, "shb-2", "shb-3", MOVED)
BEFORE: Final = Layout(
    {
        "origin": ["phb"],
        "east": ["ib-1", "ib-2"],
        "west": ["ib-3", "ib-4"],
        **{f"at-{shb}": [shb] for shb in SHBS},
    },
    [
        ("origin", "east"),
        ("origin", "west"),
        ("east", f"at-{LOST}"),
        ("east", "at-shb-2"),
        ("west", "at-shb-3"),
        ("west", f"at-{MOVED}"),
    ],
    # What everybody is done with stays for a second, so that what stays longer is what somebody needs.
    {"phb": {"pubends": [{"name": "default", "min_retain_seconds": 1.0}]}},
)
RATE: Final = 300.0
"""Flights a second."""
A_MINUTE: Final = 60.0
AS_BEFORE: Final = 1.5
"""A log of so many times the steady one's size is as small as before: it is measured once in a while."""
LOOKS: Final = 0.25
"""Seconds between two looks at the log."""


def after(layout: Layout) -> Layout:
    """The revision of the network file: one SHB is not there any more, and another one hangs on the first cell."""
    cells = {cell: members for cell, members in layout.cells.items() if cell != f"at-{LOST}"}
    bundles = [bundle for bundle in layout.bundles if bundle[1] not in {f"at-{LOST}", f"at-{MOVED}"}]
    return replace(layout, cells=cells, bundles=[*bundles, ("east", f"at-{MOVED}")])


def with_one_ib_each(layout: Layout) -> Layout:
    """The same with two nodes less."""
    return replace(layout, cells={cell: members[:1] for cell, members in layout.cells.items()})


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the PHB's log."""

    seconds: float
    """Since the network was up."""
    log_bytes: int
    """As the PHB says it."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What happened when."""

    seconds: float
    what: str


class Release:
    """One run."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.moments: list[Moment] = []
        self._began = 0.0
        self._values: dict[str, float] = {}

    def play(self, sizes: Sizes) -> Mapping[str, float]:
        """All of it."""
        layout = with_one_ib_each(BEFORE) if sizes.quick else BEFORE
        with TemporaryDirectory(prefix="gapless-network-") as directory:
            trial, proofs = run_loop(self._run(layout, Path(directory), sizes))
        published = sum(map(len, trial.published))
        return self._values | {
            "published": published,
            "consumed": sum(proof.consumed for proof in proofs),
            "databases": len(trial.consumers),
            "databases_wrong": len({proof.subscription for proof in proofs if not proof.is_right}),
        }

    async def _run(self, layout: Layout, directory: Path, sizes: Sizes) -> tuple[Trial, list[SubscriptionProof]]:
        at_home = {shb: f"bench-{next(clients_at_home(shb, SHBS))}" for shb in SHBS}
        everybody = consumers(at_home, 2, directory)
        guest = Consumer("shb-2", at_home[MOVED], SELECTIONS[0], directory)
        lost = [one for one in everybody if one.node == LOST]
        trial = Trial([guest, *(one for one in everybody if one.node != LOST)], RATE)
        async with running_network(layout, directory, with_proxies=False) as network:
            urls = {name: node.url for name, node in network.nodes.items()}
            self._began = monotonic()
            watching = asyncio.create_task(self._watch(network))

            async def script() -> None:
                async with consuming(lost, urls, trial.sent_at):
                    await self._lose(network, sizes)
                await self._retire(network, sizes)
                await self._move(network, sizes)
                await self._start_the_others_again(network)

            try:
                return trial, await trial.run(urls, ("phb", "shb-2"), script)
            finally:
                watching.cancel()
                await asyncio.wait([watching])

    # What happens.

    async def _lose(self, network: Network, sizes: Sizes) -> None:
        self._note("all are there")
        await asyncio.sleep(sizes.pick(20, 6))
        self._values["steady_log_bytes"] = max(look.log_bytes for look in self.looks[-int(4 / LOOKS) :])
        self._note(f"the machine of {LOST} is lost")
        await network.nodes[LOST].abandon()

    async def _retire(self, network: Network, sizes: Sizes) -> None:
        await asyncio.sleep(sizes.pick(30, 6))
        self._measure("lost")
        began = self._note(f"gapless retire {LOST}, at another SHB")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "gapless.cli", "retire", LOST, "--yes", "--json", "--url", network.nodes["shb-2"].url),
            env=environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        said = json_module.loads(output)
        assert (process.returncode, said["confirmed"], said["missing"]) == (0, ["phb"], []), said
        await self._until_shrunk("retired", began)

    async def _move(self, network: Network, sizes: Sizes) -> None:
        self._note(f"{MOVED} stops, to be moved; every node gets the new file")
        await network.nodes[MOVED].stop()
        network.lay_out(after(network.layout))
        await asyncio.sleep(sizes.pick(30, 6))
        self._note("the IBs that it comes to start again")
        await self._start_again(network, *network.layout.cells["east"])
        self._measure("away")
        began = self._note(f"{MOVED} starts, behind them")
        network.nodes[MOVED].start()
        await network.until_up([*network.layout.cells["east"], MOVED])
        await self._until_shrunk("moved", began)

    async def _start_the_others_again(self, network: Network) -> None:
        self._note("all others start again, one after the other")
        for name in network.layout.nodes:
            if name not in {MOVED, *network.layout.cells["east"]}:
                await self._start_again(network, name)
                await network.until_up([name])
        await self._until_shrunk("at_the_end", self._note("the last has its links"))

    async def _start_again(self, network: Network, *names: str) -> None:
        for name in names:
            await network.nodes[name].stop()
            network.nodes[name].start()
            await network.nodes[name].up()

    # The log.

    async def _watch(self, network: Network) -> None:
        phb = network.nodes["phb"]
        while True:
            with contextlib.suppress(GaplessError, OSError):
                log = sum(gauge.value for gauge in await phb.gauges() if gauge.name == LOG_BYTES.name)
                self.looks.append(Look(self._seconds(), int(log)))
            await asyncio.sleep(LOOKS)

    def _measure(self, name: str) -> None:
        """How large the log is now."""
        self._values[f"{name}_log_bytes"] = self.looks[-1].log_bytes
        self._values[f"{name}_ratio_to_steady"] = self.looks[-1].log_bytes / self._values["steady_log_bytes"]

    async def _until_shrunk(self, name: str, began: float) -> None:
        """Waits until the log is as small as before, until a minute after `began` at most, and measures."""
        most = AS_BEFORE * self._values["steady_log_bytes"]
        for _ in range(int(A_MINUTE / LOOKS)):
            latest = self.looks[-1]
            if latest.seconds > began + A_MINUTE or (latest.seconds > began and latest.log_bytes <= most):
                break
            await asyncio.sleep(LOOKS)
        self._measure(name)
        self._values[f"{name}_seconds"] = self.looks[-1].seconds - began
        self._note("the log is as small as before" if self.looks[-1].log_bytes <= most else "a minute is over")

    def _note(self, what: str) -> float:
        """Keeps what happens, and tells of it. Returns when that was."""
        self.moments.append(Moment(self._seconds(), what))
        print(f"{self._seconds():.0f} s: {what}", file=sys.stderr, flush=True)
        return self.moments[-1].seconds

    def _seconds(self) -> float:
        return monotonic() - self._began

    def show(self, every: float) -> None:
        """The log over time, for people."""
        table = Table(
            Column("seconds", justify="right"),
            Column("the PHB's log, KiB", justify="right"),
            "what happens",
            title="the PHB's log over time",
        )
        for look, what in self._rows(every):
            table.add_row(f"{look.seconds:.0f}", f"{look.log_bytes / 1024:,.0f}", what)
        Console(width=130).print(table)

    def _rows(self, every: float) -> Iterator[tuple[Look, str]]:
        """A look at each moment, and in between one now and then."""
        moments = list(self.moments)
        due = 0.0
        for look in self.looks:
            if moments and look.seconds >= moments[0].seconds:
                yield look, moments.pop(0).what
            elif look.seconds >= due:
                yield look, ""
            else:
                continue
            due = look.seconds + every


FIGURES: Final[Mapping[str, Figure]] = {
    "steady_log_bytes": Figure("bytes of the PHB's log while all are there, at most"),
    "lost_log_bytes": Figure("… when one SHB is lost, and its place pins the log"),
    "lost_ratio_to_steady": Figure("… over the steady log", bar=Bar(3)),
    "retired_log_bytes": Figure("… when it is retired, as soon as it is as small as before, or after a minute"),
    "retired_ratio_to_steady": Figure("… over the steady log", bar=Bar(most=AS_BEFORE)),
    "retired_seconds": Figure("seconds that this took"),
    "away_log_bytes": Figure("… when another SHB is away, on its way to another cell"),
    "away_ratio_to_steady": Figure("… over the steady log", bar=Bar(3)),
    "moved_log_bytes": Figure("… when it is there, as soon as it is as small as before, or after a minute"),
    "moved_ratio_to_steady": Figure("… over the steady log", bar=Bar(most=AS_BEFORE)),
    "moved_seconds": Figure("seconds that this took"),
    "at_the_end_log_bytes": Figure("… when all other nodes have been started again, the same"),
    "at_the_end_ratio_to_steady": Figure("… over the steady log", bar=Bar(most=AS_BEFORE)),
    "at_the_end_seconds": Figure("seconds that this took"),
    "published": Figure("flights published"),
    "consumed": Figure("flights consumed, by all who are left"),
    "databases": Figure("databases of subscribers who are left"),
    "databases_wrong": Figure("of these not exact", bar=Bar(0, 0)),
}
SETUP: Final = (
    "1 PHB, two cells of two IBs, 4 SHBs with two durable subscriptions each and one that is consumed away from its "
    "home, publishers at the PHB and at an SHB, 300 flights a second; real processes, RocksDB; what everybody is done "
    "with stays for a second. A gap would have ended the run."
)


def add_options(parser: ArgumentParser) -> None:
    """How long."""
    parser.add_argument("--quick", action="store_true", help="a short one, with one IB in each cell")


def run(*, json: bool, quick: bool) -> dict[str, Any]:
    """Carries it out."""
    release = Release()
    title = "release: one of four SHBs is retired, and one is moved to another cell"
    said = Proof(title, SETUP, FIGURES, release.play).run(json=json, quick=quick)
    if not json:
        release.show(2.0 if quick else 5.0)
    return {
        **said,
        "moments": [asdict(moment) for moment in release.moments],
        "log": [asdict(look) for look in release.looks],
    }
