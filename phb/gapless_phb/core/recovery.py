"""What a pubend is after a start: its rows, and the part of its log above the last checkpoint (1.4 recover).

The log is believed only where it is whole: every record must be linked to the one before it, the first one
to the checkpoint, and the last one must be the last that the storage ever took. A log that lost a record
that had been there must not be served (reliability.md INV13): recovery raises VolumeCorruptError.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.roles import RecoveryReader
from gapless.core.ticks import Tick
from gapless.errors import VolumeCorruptError
from gapless_phb.core.log import stream_of
from gapless_phb.core.publishers import Batched, PublisherTable
from gapless_phb.core.records import Record, decode_record, tag_of
from gapless_phb.core.retention import ByteIndex
from gapless_phb.core.rows import SavedPubend


@dataclass(slots=True)
class Recovered:
    """A pubend as it was left, or as it is created."""

    saved: SavedPubend
    table: PublisherTable
    index: ByteIndex
    newest: Tick
    """The last tick of the last record."""
    is_new: bool = False

    @property
    def last(self) -> Tick:
        """No tick at or below it may be used (again): it is used, or silence up to it may have been said."""
        return max(self.newest, self.saved.lease, self.saved.row.created)


def created(saved: SavedPubend) -> Recovered:
    """A pubend that is new: nothing of it is durable yet."""
    return Recovered(saved, PublisherTable({}, 0), ByteIndex(), 0, is_new=True)


def recover(reader: RecoveryReader, network: str, saved: SavedPubend) -> Recovered:
    """Reads the log above the checkpoint. Raises VolumeCorruptError if some of it is damaged or missing."""
    pubend = saved.row.pubend
    checkpoint = saved.checkpoint
    table = PublisherTable(saved.publishers, checkpoint.epochs)
    recovered = Recovered(saved, table, ByteIndex(checkpoint.points), checkpoint.tick)
    tag = tag_of(network, pubend)
    for index, raw in reader.records(stream_of(pubend), checkpoint.tick):
        record = decode_record(tag, index, raw)
        _replay(recovered, record)
        recovered.index.add(record.last_tick, len(raw))
        recovered.newest = record.last_tick
    last = reader.last(stream_of(pubend))
    if last != recovered.newest:
        raise VolumeCorruptError(
            f"the log of {pubend} ends at tick {recovered.newest}, its storage says {last}: events are lost"
        )
    recovered.index.chop(saved.lost)
    return recovered


def _replay(recovered: Recovered, record: Record) -> None:
    pubend = recovered.saved.row.pubend
    if record.previous != recovered.newest:
        raise VolumeCorruptError(
            f"the log of {pubend} lacks what was between ticks {recovered.newest} and {record.first_tick}"
        )
    batch = Batched(record.first_sequence, record.first_tick, record.count, record.crc)
    if not recovered.table.replay(record.publisher, record.epoch, batch):
        raise VolumeCorruptError(
            f"the log of {pubend} lacks what publisher {record.publisher!r} sent before event {record.first_sequence}"
        )
