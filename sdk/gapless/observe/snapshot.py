"""A node's figures for whoever asks from another thread: taken on the node's loop, a little at a time, and not often.

    a thread ── ask ──▶ the node's loop: part, part, … a turn … part, part, … ──▶ the answer, the same for all who asked

A part of the node (its router, a pubend, …) is taken to its end at once, so that its figures fit together; between two
parts the node goes on with its work. However many ask, and however often, there is one snapshot a second at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Final, TypeAlias

from gapless.core.alarms import RaisedAlarm
from gapless.core.gauges import Gauge

SLICE: Final = 0.002
"""Seconds of the node's loop after which the other parts wait until it has done something else."""
AGE_MAX: Final = 1.0
"""Seconds for which a snapshot is the answer to everybody."""

Parts: TypeAlias = "Callable[[], Iterator[Iterable[Gauge | RaisedAlarm]]]"
"""Begins to tell the figures of a node, and its alarms, part by part."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a node has told of itself."""

    gauges: list[Gauge] = field(default_factory=list)
    alarms: list[RaisedAlarm] = field(default_factory=list)
    """The latest last."""


class Snapshots:
    """Takes snapshots of one node, for any thread."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, parts: Parts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`loop`: the node's, on which `parts` is called, and what it returns is asked for each part."""
        self._loop = loop
        self._parts = parts
        self._clock = clock
        self._lock = Lock()
        """Guards the next two."""
        self._latest: Future[Snapshot] | None = None
        """What was asked for last: it is being taken, or was taken, or failed."""
        self._taken = 0.0
        """When it was done."""

    def ask(self) -> Future[Snapshot]:
        """Returns the snapshot that is no older than a second, or will be there soon. Any thread may call this.

        Whoever waits for it must not cancel it: others may wait for it, too. It fails with what a part has raised, or
        with RuntimeError if the node's loop is over.
        """
        with self._lock:
            latest = self._latest
            if latest is not None and (not latest.done() or self._clock() - self._taken < AGE_MAX):
                return latest
            asked = self._latest = Future()
        try:
            self._loop.call_soon_threadsafe(self._go_on, asked, Snapshot(), None)
        except RuntimeError as error:
            asked.set_exception(error)
        return asked

    def _go_on(
        self, asked: Future[Snapshot], snapshot: Snapshot, parts: Iterator[Iterable[Gauge | RaisedAlarm]] | None
    ) -> None:
        """Takes the next parts, and sees to the rest. `parts`: what is left of them; None: it begins."""
        until = time.perf_counter() + SLICE
        try:
            parts = self._parts() if parts is None else parts
            for part in parts:
                for row in part:
                    if isinstance(row, Gauge):
                        snapshot.gauges.append(row)
                    else:
                        snapshot.alarms.append(row)
                if time.perf_counter() >= until:
                    self._loop.call_soon(self._go_on, asked, snapshot, parts)
                    return
        except Exception as error:  # noqa: BLE001 - whatever it is, it must reach whoever waits, and harm nobody here
            self._taken = self._clock()
            asked.set_exception(error)
        else:
            self._taken = self._clock()
            asked.set_result(snapshot)
