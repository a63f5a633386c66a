"""Plans which task reads which range: a pure function of two positions and a number, so that a replay plans the same.

If anything else could change the plan, the sink's keys of a replayed batch would belong to other rows (T36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapless.core.stream.ticks import PubendId, Tick


@dataclass(frozen=True, slots=True)
class Range:
    """The range of one task: (start, end] of a pubend."""

    pubend: PubendId
    start: Tick
    end: Tick


def plan(
    start: Mapping[PubendId, Tick], end: Mapping[PubendId, Tick], beginnings: Mapping[PubendId, Tick], tasks: int = 0
) -> list[Range]:
    """Returns the ranges between two positions, ordered by pubend; empty ranges are left out.

    A pubend that `start` does not name begins at `beginnings`, or at tick 0. There is one task for each pubend. With
    `tasks` there are about as many, shared among the pubends in proportion to the width of their ranges; the parts of a
    pubend have equal numbers of ticks.
    """
    whole = [Range(pubend, start.get(pubend, beginnings.get(pubend, 0)), tick) for pubend, tick in sorted(end.items())]
    whole = [each for each in whole if each.start < each.end]
    width = sum(each.end - each.start for each in whole)
    return [
        part for each in whole for part in _split(each, max(1, round(tasks * (each.end - each.start) / max(width, 1))))
    ]


def _split(whole: Range, parts: int) -> list[Range]:
    width = whole.end - whole.start
    parts = min(parts, width)
    edges = [whole.start + width * part // parts for part in range(parts + 1)]
    return [Range(whole.pubend, edges[part], edges[part + 1]) for part in range(parts)]
