"""The race: rounds of all systems in turn, each with a server that is fresh, warm and alone on the machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.peers.crew import crew
from bench.peers.sizes import QUICK, Sizes
from bench.peers.system import RaceError, Server
from bench.peers.systems import SYSTEMS
from bench.peers.works import WORKS, Figures, live

OURS = "gapless"


@dataclass
class Results:
    """What came of it."""

    works: list[str]
    systems: list[str] = field(default_factory=list)
    """Those that are there."""
    missing: dict[str, str] = field(default_factory=dict)
    """Why a system did not run at all."""
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    """By work and system: why there are no figures, or fewer rounds of them."""
    rounds: dict[tuple[str, str], dict[int, Figures]] = field(default_factory=dict)
    """By work and system, then by round."""

    def medians(self, work: str, system: str) -> Figures:
        """The median of each figure over the rounds; nothing when there are none."""
        rounds = list(self.rounds.get((work, system), {}).values())
        return {key: median(figures[key] for figures in rounds) for key in rounds[0]} if rounds else {}

    def ratios(self, work: str, system: str) -> Figures:
        """How many times better gapless is than a peer: the median over the rounds that both finished.

        Above 1, gapless delivers more, or uses or takes less.
        """
        ours, theirs = self.rounds.get((work, OURS), {}), self.rounds.get((work, system), {})
        both = sorted(ours.keys() & theirs.keys())
        if system == OURS or not both:
            return {}
        return {key: median(_ratio(key, ours[number], theirs[number]) for number in both) for key in ours[both[0]]}


def _ratio(key: str, ours: Figures, theirs: Figures) -> float:
    more, less = (ours, theirs) if key.endswith("per_second") else (theirs, ours)
    return more[key] / less[key] if less[key] else 0.0


def race(systems: Sequence[str], results: Results, sizes: Sizes, tell: Callable[[str], None]) -> None:
    """Runs it all; tells how it goes. What fails is noted, and the race goes on."""
    for name in systems:
        if why := SYSTEMS[name].missing():
            tell(f"{name} does not run: {why}")
            results.missing[name] = why
        else:
            results.systems.append(name)
    visits = [(number, name) for number in range(sizes.rounds) for name in _in_turn(results.systems, number)]
    took: dict[str, float] = {}
    for done, (number, name) in enumerate(visits):
        left = estimate([name for _, name in visits[done:]], took, sizes.visit_seconds)
        tell(f"round {number + 1} of {sizes.rounds}: {name} (about {left / 60:.0f} min to go)")
        began = time.monotonic()
        _one_system(name, number, sizes, results, tell)
        took[name] = time.monotonic() - began


def _in_turn(systems: list[str], number: int) -> list[str]:
    """All of them, each round beginning with another one."""
    start = number % max(1, len(systems))
    return systems[start:] + systems[:start]


def estimate(coming: Sequence[str], took: Mapping[str, float], guess: float) -> float:
    """How many seconds these visits will take, from how long each system took the last time."""
    return sum(took.get(name, guess) for name in coming)


def _one_system(name: str, number: int, sizes: Sizes, results: Results, tell: Callable[[str], None]) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"gapless-race-{name}-")))
        try:
            server = stack.enter_context(SYSTEMS[name].running(directory))
            with crew(name, server.address, "warm", directory, QUICK.limit_seconds) as hands:
                live(server, hands, QUICK)
        except (RaceError, OSError) as error:
            tell(f"  it did not start: {error}")
            results.failed |= {(work, name): str(error) for work in results.works}
            return
        for work in results.works:
            if (work, name) in results.failed:
                continue  # it would fail again, and may take its time to
            began = time.monotonic()
            try:
                figures = _one_work(name, work, server, directory, sizes)
            except RaceError as error:
                tell(f"  {work}: {error}")
                results.failed[work, name] = str(error)
            else:
                key, value = next(iter(figures.items()))
                tell(f"  {work}: {time.monotonic() - began:.0f} s, {value:,.1f} {key.replace('_', ' ')}")
                results.rounds.setdefault((work, name), {})[number] = figures


def _one_work(name: str, work: str, server: Server, directory: Path, sizes: Sizes) -> Figures:
    with crew(name, server.address, f"race-{work}", directory, sizes.limit_seconds) as hands:
        return WORKS[work](server, hands, sizes.portion(SYSTEMS[name].portions.get(work, 1.0)))
