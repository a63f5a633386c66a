"""Knowledge in other pieces: what is said stays true, however it is cut or joined."""

from __future__ import annotations

from bisect import bisect_right

from msgspec.structs import replace

from gapless.core.stream.columns import EventBatch
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.stamps import meet
from gapless.core.stream.ticks import Tick


def part(knowledge: Knowledge, lo: Tick, hi: Tick) -> Knowledge:
    """What knowledge says of (lo, hi], which lies within it."""
    data = knowledge.data
    if data:
        data = data.slice(bisect_right(data.ticks, lo), bisect_right(data.ticks, hi))
    return replace(knowledge, lo=lo, hi=hi, data=data)


def joined(first: Knowledge, second: Knowledge) -> Knowledge | None:
    """Both in one, or None where that cannot be said: they do not touch, or are of different kinds.

    Silence of both is silence under the lower stamp. Where the second speaks of lost ticks of its own, its
    `lost` cannot be left out, and said of the first it would hide what is silent there.
    """
    if first.pubend != second.pubend or first.hi != second.lo or first.reply != second.reply:
        return None
    if second.lost > second.lo or first.damaged != second.damaged:
        return None
    batches = [said.data for said in (first, second) if said.data]
    data = EventBatch.concatenate(batches) if batches else first.data
    stamp = meet(first.stamp, second.stamp)
    return Knowledge(first.pubend, first.lo, second.hi, data, first.lost, stamp, first.reply, first.damaged)
