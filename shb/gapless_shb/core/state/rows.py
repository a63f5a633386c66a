"""The durable rows of an SHB: pubends, and the positions on them (protocol: checkpoints, shb-recovery)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from struct import Struct

import msgspec

from gapless.core.ports import Delete, RecoveryReader, Set
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.ticks import MILLISECOND, PubendId, Tick
from gapless_shb.core.state.positions import SubscriptionPosition
from gapless_shb.core.state.pubend import ServedPubend

PUBENDS = "shb/pubends"
POSITIONS = "shb/positions"
_SID = Struct(">Q")


class ShbPubendRow(msgspec.Struct, array_like=True):
    """The row of a pubend."""

    created: Tick
    topics: tuple[str, ...]
    latest_delivered: Tick
    released: Tick
    hold_version: int
    enrolled_at: Tick | None = None
    """The tick from which the PHB counts this SHB, once it has answered. None in a row of an earlier version."""
    former_voids: Ranges = ()
    former_voids_told: dict[Tick, Tick] = {}
    """These two were written before 2026-11-23 and are not read any more: silence ended at places of events then."""
    residue: int | None = None
    voids: Ranges = ()
    grain: int = MILLISECOND
    broker: str = ""
    """The node of its host. "" in a row of an earlier version."""
    read_only: bool = False
    volume: str = ""
    """The volume of its host. "" in a row of an earlier version."""
    gone_upto: Tick = 0
    heard_upto: Tick = 0
    """If it is gone with its host's volume: what is lost, and what was known then (`ServedPubend.gone_upto`)."""
    forks: Ranges = ()
    followed_by: PubendId = ""
    """If it is gone: a pubend of the volume that its host has instead. "" in a row of an earlier version."""


class PositionRow(msgspec.Struct, array_like=True):
    """The row of a subscription on a pubend. `since` FOREVER means that it is still joining.

    Volumes from before 2026-11-26 have 0 for that. No event of a pubend whose ticks are times has a tick so low.
    """

    start: Tick
    acked: Tick
    acked_event: Tick
    since: Tick
    held: bool


_encode = msgspec.msgpack.Encoder().encode
_decode_pubend = msgspec.msgpack.Decoder(ShbPubendRow).decode
_decode_position = msgspec.msgpack.Decoder(PositionRow).decode


def pubend_row(stream: ServedPubend) -> Set:
    """Returns the write of a pubend's row. Its values are never lower than an earlier write's, durable or not."""
    # Above what is delivered nothing was looked at: to give it up would be a loss that nobody is told of.
    assert stream.released <= stream.pfs.closed_upto, "nothing is released that is not delivered"
    row = ShbPubendRow(
        stream.meta.created,
        stream.meta.topics,
        stream.pfs.closed_upto,
        stream.released,
        stream.holds.version,
        stream.enrolled_at if stream.enrolled else None,
        residue=stream.meta.residue,
        voids=stream.meta.voids,
        grain=stream.meta.grain,
        broker=stream.meta.broker,
        read_only=stream.meta.read_only,
        volume=stream.meta.volume,
        gone_upto=stream.gone_upto,
        heard_upto=stream.heard_upto,
        forks=stream.meta.forks,
        followed_by=stream.followed_by,
    )
    return Set(PUBENDS, stream.pubend.encode(), _encode(row))


def position_row(sid: int, pubend: PubendId, position: SubscriptionPosition) -> Set:
    """Returns the write of a position."""
    # Ticks from the last acknowledged event up to `released` are silence for good: an event must not be among them.
    assert position.acked_event <= position.acked, "what was acknowledged last is not above the position"
    row = position.start, position.acked, position.acked_event, position.since, position.held  # as of a PositionRow
    return Set(POSITIONS, _SID.pack(sid) + pubend.encode(), _encode(row))


def delete_positions(sid: int, pubends: Iterable[PubendId]) -> list[Delete]:
    """Returns the removal of all positions of a subscription."""
    return [Delete(POSITIONS, _SID.pack(sid) + pubend.encode()) for pubend in pubends]


def recover_pubends(reader: RecoveryReader) -> Iterator[tuple[PubendId, ShbPubendRow]]:
    """Yields all pubends that an SHB knew."""
    for key, value in reader.scan(PUBENDS):
        yield key.decode(), _decode_pubend(value)


def recover_positions(reader: RecoveryReader) -> Iterator[tuple[int, dict[PubendId, PositionRow]]]:
    """Yields the positions of each subscription that have changed since its creation, in the order of ids."""
    for key, pairs in groupby(reader.scan(POSITIONS), lambda pair: pair[0][:8]):
        yield _SID.unpack(key)[0], {key[8:].decode(): _decode_position(value) for key, value in pairs}
