"""The race: rounds of all systems in turn, each with a server that is fresh, warm and alone on the machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench import rounds
from bench.peers.crew import crew
from bench.peers.sizes import QUICK, Sizes
from bench.peers.system import RaceError, Server
from bench.peers.systems import SYSTEMS
from bench.peers.works import WARM, WORKS, live, topic_of
from bench.rounds import Figures, in_turn


class Results(rounds.Results):
    """What came of it."""

    def ratios(self, work: str, system: str) -> Figures:
        """How many times better gapless is than a peer: the median over the rounds that both finished.

        Above 1, gapless delivers more, or uses or takes less.
        """
        both = self.beside(work, system)
        return {key: median(_ratio(key, ours, theirs) for ours, theirs in both) for key in (both[0][0] if both else ())}


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
    visits = [(number, name) for number in range(sizes.rounds) for name in in_turn(results.systems, number)]
    took: dict[str, float] = {}
    for done, (number, name) in enumerate(visits):
        left = estimate([name for _, name in visits[done:]], took, sizes.visit_seconds)
        tell(f"round {number + 1} of {sizes.rounds}: {name} (about {left / 60:.0f} min to go)")
        began = time.monotonic()
        _one_system(name, number, sizes, results, tell)
        took[name] = time.monotonic() - began


def estimate(coming: Sequence[str], took: Mapping[str, float], guess: float) -> float:
    """How many seconds these visits will take, from how long each system took the last time."""
    return sum(took.get(name, guess) for name in coming)


def _one_system(name: str, number: int, sizes: Sizes, results: Results, tell: Callable[[str], None]) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"gapless-race-{name}-")))
        try:
            server = stack.enter_context(SYSTEMS[name].running(directory))
            with crew(name, server.address, WARM, directory, QUICK.limit_seconds) as hands:
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
    with crew(name, server.address, topic_of(work), directory, sizes.limit_seconds) as hands:
        return WORKS[work](server, hands, sizes.portion(SYSTEMS[name].portions.get(work, 1.0)))
