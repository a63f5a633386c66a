"""`python -m bench network WORK`: which work there is."""

from __future__ import annotations

import importlib
from argparse import ArgumentParser
from typing import Any, Final

WORKS: Final = {
    "faults": "every node killed, links cut, stalled and slowed, one dead throughout: databases exact, and how late",
    "slow": "an SHB whose link carries a third of the stream for a minute, beside two others",
    "release": "of four SHBs one is retired and one moved to another cell: the PHB's log shrinks, and no false gap",
    "interest": "100,000 subscriptions at one SHB: how soon a restarted IB has their interest, and the longest turn",
    "costs": "what a hop, an IB and more SHBs cost beside one node",
    "processes": "one broker, and two or four processes of one machine with the same load: rates, processor time",
    "consolidation": "40 SHBs that miss the same events: what the PHB hears of it; restarts of IBs read no disk",
    "relay": "processor time of routers alone per event: an IB that passes half on, a neighbour that wants nothing",
    "routers": "one workload and one script of faults under `knowledge` and `hostile`: the same sequences",
    "race": "20,000 new subscriptions under publishing and restarts of IBs lose nothing; without stamps they do",
}
"""Every work, and what it shows. A name is a module of this package with `run(json, …)`."""


def add_options(parser: ArgumentParser) -> None:
    """Which work, and how long."""
    works = parser.add_subparsers(dest="work", required=True, metavar="WORK", title="works")
    for name, what in WORKS.items():
        work = works.add_parser(name, help=what, description=what)
        importlib.import_module(f"bench.network.{name}").add_options(work)


def run(*, json: bool, work: str, **options: Any) -> dict[str, Any]:
    """Does the work that was named; returns its figures."""
    figures: dict[str, Any] = importlib.import_module(f"bench.network.{work}").run(json=json, **options)
    return figures
