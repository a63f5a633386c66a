"""The parts of a range of a subscription, as they arrive, whatever its edges are (protocol: ranges).

A broker refuses a position where only an event can stand, if the pubend was down at that time: that would be an event
that is lost. The broker never issues such a position. But an edge at which a batch was cut, by numbers of ticks or by
time, may fall there, although nothing is wrong. Then this module reads the whole range of the batch, whose edges are
positions, and skips what lies outside the task's part. That costs more, but happens very seldom.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator

import gapless
from gapless.core.client import Delivery, Gap
from gapless.core.stream.ticks import PubendId, Tick
from gapless.errors import TokenAheadError


def parts_of(
    connection: gapless.sync.Connection,
    subscription: gapless.CheckpointToken,
    pubend: PubendId,
    cut: tuple[Tick, Tick],
    whole: tuple[Tick, Tick],
    timeout: float,
) -> Generator[Delivery | Gap, None, None]:
    """Yields the events and gaps of `cut`, which is a part of `whole`, a range from one position to another, in order.

    Raises TimeoutError if there is no broker for so many seconds, and TokenAheadError if it has lost data of `whole`.
    """
    start, end = cut
    try:
        for part in _parts(connection, subscription, pubend, (start, end), timeout):
            yield part
            start = part.end if isinstance(part, Gap) else part.ticks[-1]
        return
    except TokenAheadError:
        if cut == whole:
            raise
    yield from within(_parts(connection, subscription, pubend, whole, timeout), start, end)


def within(parts: Iterable[Delivery | Gap], start: Tick, end: Tick) -> Iterator[Delivery | Gap]:
    """Yields the parts within (start, end]. It asks for no part after that."""
    for part in parts:
        first, last = (part.start + 1, part.end) if isinstance(part, Gap) else (part.ticks[0], part.ticks[-1])
        if first > end:
            return
        if start < first and last <= end:
            yield part
        elif last > start:
            yield from _clipped(part, start, end)


def _clipped(part: Delivery | Gap, start: Tick, end: Tick) -> Iterator[Delivery | Gap]:
    if isinstance(part, Gap):
        yield Gap(part.pubend, max(part.start, start), min(part.end, end), part.reason)
        return
    (columns,) = part.columns
    low, high = bisect_right(part.ticks, start), bisect_right(part.ticks, end)
    if low < high:
        yield Delivery(part.pubend, [columns.slice(low, high)], part.ticks[low:high])


def _parts(
    connection: gapless.sync.Connection,
    subscription: gapless.CheckpointToken,
    pubend: PubendId,
    span: tuple[Tick, Tick],
    timeout: float,
) -> Iterator[Delivery | Gap]:
    with connection.read_range(subscription, pubend, *span, on_gap="deliver") as reader:
        yield from reader.parts(timeout)
