"""Fills a gap from an archive.

    gap ─▶ parts ─▶ portions of events, silence between them, and what is left of the gap

An archive blocks while it reads, so it is read in a thread, one portion ahead of the application. `take` returns what
is there, and `on_ready` is called when there is more. Nothing is awaited here, so a consumer that is cancelled loses
nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeAlias

from gapless.client.ranges.archives import ArchivePortion, Part, Selection
from gapless.core.client import Gap, Silence
from gapless.core.stream.events import Event

Piece: TypeAlias = "list[Event] | Silence | Gap"
"""An item in the place of a gap: some events, silence, or a smaller gap."""


class Healing:
    """One gap, and the items in its place."""

    def __init__(self, gap: Gap, selection: Selection, on_ready: Callable[[], None], *, wants_silence: bool) -> None:
        """Begins to read. `on_ready` is called on the running loop when there is something to take, or it is over.

        Without `wants_silence`, a silence is handed out only if there is nothing else, to move the position.
        """
        self._gap = gap
        self._selection = selection
        self._on_ready = on_ready
        self._wants_silence = wants_silence
        self._loop = asyncio.get_running_loop()
        self._parts: deque[Part] | None = None
        """The parts that are not read to their end; None if they are not known yet."""
        self._portions: Iterator[ArchivePortion] | None = None
        """The rest of the first part."""
        self._reached = gap.start
        self._ready: deque[Piece] = deque()
        self._error: BaseException | None = None
        self._reading = False
        self._stopped = False
        self._read_on()

    @property
    def is_over(self) -> bool:
        """Whether no more items will come."""
        return self._parts is not None and not self._parts and not self._ready

    def take(self) -> Piece | None:
        """Returns the next item; None if it is not there yet (then it is being read, and `on_ready` will be called).

        Raises what the archive has raised. Another call tries again from there.
        """
        if not self._ready and self._error is not None:
            error, self._error = self._error, None
            raise error
        piece = self._ready.popleft() if self._ready else None
        if not self._ready and self._error is None:
            self._read_on()
        return piece

    def stop(self) -> None:
        """Stops reading after the read that is under way."""
        self._stopped = True

    def _read_on(self) -> None:
        if not self._reading and not self._stopped and not self.is_over:
            self._reading = True
            self._loop.run_in_executor(None, self._read).add_done_callback(self._on_read)

    # These run in a thread, never two at once.

    def _read(self) -> Part | ArchivePortion | deque[Part]:
        """Reads the parts, if they are not known; otherwise the next portion, or the next part that is not covered."""
        if self._parts is None:
            return deque(self._selection.parts(self._gap.pubend, self._gap.start, self._gap.end))
        part = self._parts[0]
        if not part.covered:
            return part
        if self._portions is None:
            self._portions = self._selection.portions(self._gap.pubend, self._reached, part.end)
        try:
            return next(self._portions)
        except BaseException:
            self._portions = None
            raise

    # These run in the loop.

    def _on_read(self, read: asyncio.Future[Part | ArchivePortion | deque[Part]]) -> None:
        self._reading = False
        if read.cancelled():
            return
        self._error = read.exception()
        if self._error is None:
            self._put(read.result())
        if self._error is None and not self._ready and not self.is_over:
            self._read_on()  # the read gave nothing to hand out
        else:
            self._on_ready()

    def _put(self, found: Part | ArchivePortion | deque[Part]) -> None:
        if isinstance(found, deque):
            self._parts = found
        elif isinstance(found, Part):
            self._put_gap(found)
        else:
            self._put_portion(found)

    def _put_gap(self, part: Part) -> None:
        self._ready.append(Gap(self._gap.pubend, part.start, part.end, self._gap.reason))
        self._next_part(part.end)

    def _put_portion(self, portion: ArchivePortion) -> None:
        if portion.events:
            self._ready.append(portion.events)
            self._reached = portion.events[-1].tick
        if self._reached < portion.upto and (self._wants_silence or not portion.events):
            self._ready.append(Silence(self._gap.pubend, self._reached, portion.upto))
        self._reached = portion.upto
        if portion.is_last:
            self._next_part(portion.upto)

    def _next_part(self, reached: int) -> None:
        assert self._parts is not None
        self._parts.popleft()
        self._portions = None
        self._reached = reached
