"""What works under kills and pauses share: processes that pause themselves, rivals that take over, and the drawn order.

A paused process is stopped by SIGSTOP at a point of its work that has a name. A rival takes over what it owned; then it
wakes (SIGCONT). One of the two has to give up.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from random import Random
from typing import Any, Final

from gapless_flights.processes import Processes
from gapless_flights.proof import SubscriptionProof
from gapless_flights.reporting import Reporter
from gapless_flights.supervisor import DemoProgress

PAUSE_MOST: Final = 0.6
"""Seconds between something that moves and a kill. Twice this is about what it takes to be up again."""
ANYWHERE: Final = "anywhere"
"""A point: within `SOON` after another one."""
SOON: Final = 0.2


class Stops:
    """Where a process pauses itself: at a point, when it is there for the n-th time. Nowhere, if the point is ""."""

    def __init__(self, reporter: Reporter, point: str, times: int) -> None:
        self._reporter = reporter
        self._point = point
        self._times = times

    def reach(self, point: str) -> None:
        """The process is at this point."""
        if point != self._point:
            return
        self._times -= 1
        if not self._times:
            if point == ANYWHERE:
                threading.Timer(Random().uniform(0, SOON), self._stop).start()  # noqa: S311 - not for secrets
            else:
                self._stop()

    def _stop(self) -> None:
        self._reporter.report(paused=os.getpid())
        os.kill(os.getpid(), signal.SIGSTOP)


class Rivals:
    """The processes of one name: one that owns what there is to own, and at times a rival.

    They report `paused` with their number of the system, `claims` before they take over, `committed`, `ended` with a
    reason, and how far they are: `consumed`, `position`.
    """

    def __init__(
        self,
        name: str,
        processes: Processes,
        progress: DemoProgress,
        command: Callable[[int, str], list[str]],
        waiting: Sequence[str],
    ) -> None:
        """`command`: of the n-th process, for a point to pause at. `waiting`: points at which a rival can only wait."""
        self.name = name
        self._processes = processes
        self._progress = progress
        self._command = command
        self._waiting = waiting
        progress.consumed[name] = 0
        self._started = 0
        self._paused: dict[str, int] = {}
        self._claims: set[str] = set()
        self._moved: set[str] = set()
        """Who has committed something."""
        self._ended: dict[str, str] = {}
        self.woken: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By point: who of the two gave up when the paused one woke, and how often."""
        self.owner = self._start()

    @property
    def endings(self) -> Counter[str]:
        """Why processes gave up."""
        return Counter(why for why in self._ended.values() if why)

    def _start(self, pause_at: str = "") -> str:
        self._started += 1
        number, process = self._started, f"{self.name}-{self._started}"

        def command() -> list[str]:
            return self._command(number, "" if process in self._paused else pause_at)

        self._processes.start(process, command, lambda report: self._hear(process, report))
        return process

    def _hear(self, process: str, report: Mapping[str, Any]) -> None:
        progress, before = self._progress, self._progress.done
        if "paused" in report:
            self._paused[process] = report["paused"]
        if "claims" in report:
            self._claims.add(process)
        if "ended" in report:
            self._ended[process] = report["ended"]
        if "committed" in report:
            self._moved.add(process)
        # One that wakes reports what was so before it was paused.
        known = progress.positions.get(self.name, {})
        ahead = {pubend: max(tick, known.get(pubend, 0)) for pubend, tick in report.get("position", {}).items()}
        progress.positions[self.name] = {**known, **ahead}
        progress.consumed[self.name] = max(report.get("consumed", 0), progress.consumed[self.name])
        progress.heard(before)

    async def pause(self, point: str, meanwhile: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        """A rival takes over from one that is paused there, and which wakes. Returns False if nothing moves any more.

        `meanwhile`: what happens before it wakes.
        """
        until = self._progress.until
        await self._processes.stop(self.owner)
        paused = self._start(pause_at=point)
        if not await until(lambda: paused in self._paused):
            return False
        rival = self._start()
        if not await until(lambda: rival in (self._claims if point in self._waiting else self._moved)):
            return False
        await meanwhile()
        os.kill(self._paused[paused], signal.SIGCONT)
        if not await until(lambda: paused in self._ended or rival in self._ended):
            return False
        self.woken[point][f"the {'paused one' if paused in self._ended else 'rival'} ends"] += 1
        self.owner = rival if paused in self._ended else paused
        return True


class Run:
    """So many kills and pauses in a drawn order, and what came of them."""

    def __init__(self, kills: int, pauses: int, points: Sequence[str], seed: int) -> None:
        """`points`: where processes can be paused."""
        self.random = Random(seed)  # noqa: S311 - not for secrets
        self._kills = kills
        self._points = list(islice(self.draw(points), pauses))
        self.published = 0
        self.stalled = False
        self.killed: Counter[str] = Counter()
        self.rivals: list[Rivals] = []
        self.proofs: list[SubscriptionProof] = []

    def draw(self, victims: Sequence[str]) -> Iterator[str]:
        """Each as often as each other one, in a drawn order, without end."""
        while True:
            yield from self.random.sample(victims, len(victims))

    async def strike(
        self,
        progress: DemoProgress,
        kill: Callable[[], Coroutine[Any, Any, object]],
        pause: Callable[[str], Coroutine[Any, Any, bool]],
    ) -> bool:
        """All kills and pauses. Returns False when nothing moves any more."""
        plan = [*self._points, *[""] * self._kills]
        self.random.shuffle(plan)
        for number, point in enumerate(plan):
            done = progress.done
            # Most strike a system at work; every fourth one that recovers.
            if number % 4 and not await progress.until(lambda done=done: progress.done > done):  # type: ignore[misc]
                return False
            if not point:
                await asyncio.sleep(self.random.uniform(0, PAUSE_MOST))
                await kill()
            elif not await pause(point):
                return False
        return True

    def figures(self) -> dict[str, Any]:
        """What was done, and what came of it."""
        wrong = [proof for proof in self.proofs if not proof.is_right]
        return {
            "published": self.published,
            "stalled": self.stalled,
            "kills": dict(self.killed),
            "woken": {one.name: {point: dict(who) for point, who in one.woken.items()} for one in self.rivals},
            "endings": {one.name: dict(one.endings) for one in self.rivals},
            "proofs": [asdict(proof) for proof in self.proofs],
            "bars": {"wrong": {"value": len(wrong), "most": 0, "holds": not wrong and not self.stalled}},
        }


def show(figures: Mapping[str, Any], points: Sequence[str], rows: str) -> None:
    """Prints the figures of a run for people. `rows`: what was compared."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    killed = Table("killed", "times", title=f"kill -9, seed {figures['seed']}")
    for victim, count in figures["kills"].items():
        killed.add_row(victim, str(count))
    console.print(killed)
    woken = Table("paused", *figures["woken"], title="a rival takes over, and the paused one wakes")
    for point in points:
        if any(point in wakes for wakes in figures["woken"].values()):
            woken.add_row(point, *(_counted(wakes.get(point, {})) for wakes in figures["woken"].values()))
    woken.add_section()
    woken.add_row("why they ended", *(_counted(why) for why in figures["endings"].values()))
    console.print(woken)
    shown = ("subscription", "expected", "consumed", "missing", "doubled", "unselected", "reordered")
    table = Table(*shown, title="stalled" if figures["stalled"] else rows)
    for proof in figures["proofs"]:
        table.add_row(*(str(proof[name]) for name in shown))
    console.print(table)


def _counted(whats: Mapping[str, int]) -> str:
    return ", ".join(f"{what}: {count}" for what, count in whats.items())
