"""A cache, as any router on the way between a pubend and an SHB may have one: of what passed by, as it passed."""

from __future__ import annotations

from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Kind, Knowledge, KnowledgeConflict, KnowledgeStream
from gapless.core.stream.stamps import Stamp
from gapless.core.stream.ticks import PubendId

CACHED_EVENTS = 48
"""How many events a cache holds, about; little, so that it has to forget."""
CACHED_RUNS = 48


class Cache:
    """Some of what was said of one pubend."""

    def __init__(self, pubend: PubendId) -> None:
        self._pubend = pubend
        self._begin()

    def remember(self, knowledge: Knowledge) -> None:
        """Takes in what passes by; when it is too much, the older half of all is forgotten."""
        try:
            self._events += len(self._stream.accumulate(knowledge).events)
        except KnowledgeConflict:
            self._begin()  # it is the SHB that raises the alarm: the same is delivered to it
            return
        if self._stream.run_count > CACHED_RUNS or self._events > CACHED_EVENTS:
            self._forget()

    def answer(self, ranges: Ranges, need: Stamp) -> tuple[list[Knowledge], Ranges]:
        """What it can say to a want, and what is left of that."""
        return self._stream.answer(ranges, need)

    def _begin(self) -> None:
        self._stream = KnowledgeStream(self._pubend)
        self._events = 0

    def _forget(self) -> None:
        stream = self._stream
        lowest = next(run.lo for run in stream.runs(0, stream.known_upto) if run.kind is Kind.SILENCE)
        stream.forget(0, (lowest + stream.known_upto) // 2)
        self._events = stream.event_count
