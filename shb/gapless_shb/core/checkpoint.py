"""Checkpoints: what an SHB makes durable, and what it may report afterwards (protocol: checkpoints; T9, T42).

A checkpoint is one atomic write. It holds the PFS blocks of all steps since the last checkpoint, latestDelivered and
released(p) of each pubend, and every position that has changed. When it is durable, and not before, latestDelivered
moves and progress is reported. The PFS is chopped only up to what an earlier checkpoint reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gapless.core.network.facts import Progress
from gapless.core.ports import Operation
from gapless.core.stream.ticks import PubendId, Tick
from gapless_shb.core.hosting import Hosting
from gapless_shb.core.live.constream import Constream
from gapless_shb.core.state.rows import position_row, pubend_row


@dataclass(frozen=True, slots=True)
class Claim:
    """What may be reported of a pubend once the checkpoint with these values is durable."""

    pubend: PubendId
    latest_delivered: Tick
    released: Tick
    held: tuple[tuple[int, Tick], ...]
    """The subscriptions whose hold may be dropped, and what each has released."""


def checkpoint(stream: Constream) -> tuple[list[Operation], Claim]:
    """Returns one pubend's part of a checkpoint, and what may be reported when it is durable."""
    operations: list[Operation] = []
    # Not up to the new released(p): that is not durable before this write, and must not be acted on.
    chop = stream.pfs.chop(stream.reported)
    if chop is not None:
        operations.append(chop)
    operations += stream.pfs.close(stream.head, lambda sid: stream.positions[sid].last_tick)
    # From now on, and not from when it is durable: a position that was idle must not fall below what it gave to this.
    stream.released = released(stream)
    claim = Claim(stream.pubend, stream.head, stream.released, tuple(held(stream)))
    operations.append(pubend_row(stream))
    for sid in stream.take_changed():
        operations.append(position_row(sid, stream.pubend, stream.positions[sid]))
    return operations, claim


class ShbCheckpoints:
    """The checkpoints of an SHB, one after the other, and the reports that each allows."""

    def __init__(self, hosting: Hosting) -> None:
        self.under_way = False
        """Whether a checkpoint is being written."""
        self._hosting = hosting

    def begin(self) -> None:
        """Begins a checkpoint, if there is anything to write."""
        operations: list[Operation] = []
        claims: list[Claim] = []
        for stream in self._hosting.streams.values():
            stream_operations, claim = checkpoint(stream)
            operations += stream_operations
            claims.append(claim)
        if operations:
            assert not self.under_way, "checkpoints are written one after the other"
            self.under_way = True
            self._hosting.outbox.write(operations, lambda now, _wall: self._make_claims(claims, now))

    def _make_claims(self, claims: Iterable[Claim], now: int) -> None:
        """The checkpoint is durable: reports its values, and drops holds."""
        self.under_way = False
        for claim in claims:
            stream = self._hosting.streams[claim.pubend]
            stream.durable(claim.latest_delivered, claim.released)
            self.report(stream)
            self._drop_holds(stream, claim, now)

    def report(self, stream: Constream) -> None:
        """Reports how far a pubend is delivered and released, according to the durable checkpoint.

        Of a pubend that is gone there is nothing to release.
        """
        if stream.gone_upto:
            return
        progress = Progress(self._hosting.shb, stream.pubend, stream.reported, stream.latest_delivered)
        self._hosting.outbox.emit(progress)

    def _drop_holds(self, stream: Constream, claim: Claim, now: int) -> None:
        """Drops each hold whose subscription has durably released as much as was reported (T49)."""
        for sid, released in claim.held:
            position = stream.positions.get(sid)
            waits = stream.holds.waits_for(sid) or self._hosting.registry.is_preparing(sid)
            if position is None or waits or not stream.enrolled:
                continue
            if released < max(stream.reported, stream.enrolled_at):
                continue
            position.held = False
            position.changed = True
            stream.touch(sid, position)
            stream.holds.drop(sid, now)
            # In one write: if a crash brought the position back with a hold that the pubend no longer has, its reader
            # would report a gap where nothing was lost.
            row = [position_row(sid, stream.pubend, position)] if sid in stream.durable_sids else []
            self._hosting.write_holds(stream, *row)


def released(stream: Constream) -> Tick:
    """Returns up to where no subscription needs anything, once everything up to the head is durable. It never falls.

    A subscription that is not idle counts up to latestDelivered at most, as in its own `released`. Above a hold that
    the pubend may not have nothing is released: after a crash its subscription begins there again, although it is
    idle now (T49).
    """
    lowest = stream.retention_floor.lowest()
    if lowest is None:
        upto = stream.latest_delivered if stream.droppable_holds else stream.head
    else:
        upto = min(lowest, stream.latest_delivered)
    unanswered = stream.holds.unanswered_from
    return max(stream.released, upto if unanswered is None else min(upto, unanswered))


def held(stream: Constream) -> Iterator[tuple[int, Tick]]:
    """Yields the subscriptions whose hold can probably be dropped, and what each has released."""
    for sid in list(stream.droppable_holds):
        position = stream.positions[sid]
        released = stream.release(position)
        if position.held and position.done_upto >= stream.reported:
            yield sid, released
        else:
            del stream.droppable_holds[sid]
