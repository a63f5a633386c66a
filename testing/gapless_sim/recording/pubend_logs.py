"""The logs of pubends, as who watches a world finds them on a disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from gapless.core.ports import Append, Chop, Put
from gapless.core.stream.ticks import STEP

if TYPE_CHECKING:
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.accounts import History
    from gapless_sim.world.producer import Publication

LOG = "phb."
"""What the name of a pubend's log stream begins with; the pubend follows."""


def chops(operations: Sequence[Operation]) -> Iterator[tuple[PubendId, Tick]]:
    """Which logs a write shortens, and up to where."""
    for operation in operations:
        if type(operation) is Chop and operation.stream.startswith(LOG):
            yield operation.stream[len(LOG) :], operation.upto


def records_apart(operations: Iterable[Operation]) -> Iterator[Operation]:
    """The operations of a write, with each record of a log for itself."""
    for operation in operations:
        if type(operation) is Append:
            yield from map(Put, repeat(operation.log), operation.indices or (), operation.records)
        else:
            yield operation


def unseen(
    history: History, end: Tick, record: bytes, unplaced: Sequence[Publication]
) -> Iterator[tuple[Tick, Publication]]:
    """The events of the record with that last tick which did not come to light so far: unplaced publications."""
    tick, upto = end, len(record)
    while True:
        known = history.events.get(tick)
        candidates = unplaced if known is None else (known.publication,)
        publication = next(
            (publication for publication in candidates if record.endswith(publication.event, 0, upto)), None
        )
        if publication is None:
            return
        if known is None:
            yield tick, publication
        tick, upto = tick - STEP, upto - len(publication.event)
