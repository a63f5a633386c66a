"""Restores a pubend at start-up, from its rows and its log above the last checkpoint (protocol: pubend-recovery).

The log must be whole: every record is linked to the one before it, the first to the checkpoint, and the last record is
the last one that the storage ever took. If a record is missing that had been there, the log must not be served
(INV13), and recovery raises VolumeCorruptError.

A record that is there but cannot be read is a different case. Its place is known, and all other records are served.
But the batches in it are unknown, so nothing can be published until an operator gives the record up. From then on it
counts as never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.core.ports import RecoveryReader
from gapless.core.stream.ticks import Tick, tick_at
from gapless.core.wire.tokens import split_tokens
from gapless.errors import RecordsDamagedError, VolumeCorruptError
from gapless_phb.core.damage import Damage
from gapless_phb.core.own_log.byte_index import ByteIndex
from gapless_phb.core.own_log.log import check_log, stream_of
from gapless_phb.core.publishers.table import LoggedBatch, PublisherTable
from gapless_phb.core.records import Record, decode_record, tag_of
from gapless_phb.core.rows import AgeRow, SavedPubend


@dataclass(slots=True)
class Recovered:
    """A pubend as recovery found it, or as it is created."""

    saved: SavedPubend
    table: PublisherTable
    index: ByteIndex
    newest: Tick
    """The last tick of the last record."""
    damage: Damage
    durable: bool
    """`LogCapabilities.durable` of its log."""
    is_new: bool = False

    @property
    def last(self) -> Tick:
        """No tick at or below it may be used (again): an event may have it, or silence up to it may have been sent."""
        forked = max((hi for _, hi, _ in self.saved.row.forks), default=0)
        return max(self.newest, self.saved.reserved, self.saved.row.created, forked)

    def age(self, wall: int) -> AgeRow:
        """Returns the present up to which events had certainly grown old when this was written (C01)."""
        if self.saved.age is not None:
            return self.saved.age
        present = tick_at(wall)
        return AgeRow(present if self.is_new else min(self.last, present))


def created(reader: RecoveryReader, saved: SavedPubend) -> Recovered:
    """Returns a new pubend: nothing of it is durable yet."""
    facts = reader.facts(stream_of(saved.row.pubend))
    check_log(facts)
    durable = facts.capabilities.durable
    return Recovered(saved, PublisherTable({}, 0), ByteIndex(), 0, Damage(saved.row.pubend), durable, is_new=True)


def recover(reader: RecoveryReader, network: str, saved: SavedPubend) -> Recovered:
    """Reads the log above the checkpoint. Raises VolumeCorruptError if a part of it is missing."""
    pubend = saved.row.pubend
    stream, tag = stream_of(pubend), tag_of(network, pubend)
    facts = reader.facts(stream)
    check_log(facts)
    checkpoint = saved.checkpoint
    table = PublisherTable(saved.publishers, checkpoint.epochs)
    index, durable = ByteIndex(checkpoint.points), facts.capabilities.durable
    recovered = Recovered(saved, table, index, checkpoint.tick, Damage(pubend), durable)
    if saved.fault:
        recovered.damage.refuse(saved.fault)
    for after, upto in reader.given_up(stream):
        recovered.damage.give_up(after, _last_tick_of_hole(reader, stream, tag, after, upto), upto)
    for lo, hi, _ in saved.row.forks:
        recovered.damage.give_up(lo, hi, hi)
    last = facts.decided
    hole = _replay_log(reader, stream, tag, recovered)
    # The log ends in a hole: its last record is there, and unreadable.
    if hole >= last > recovered.newest:
        recovered.newest = last
        recovered.index.add(last, 0)
    if last != recovered.newest:
        raise VolumeCorruptError(
            f"the log of {pubend} ends at tick {recovered.newest}, its storage says {last}: events are lost"
        )
    recovered.index.chop(saved.lost)
    return recovered


def _last_tick_of_hole(reader: RecoveryReader, stream: str, tag: int, after: Tick, upto: Tick) -> Tick:
    """Returns the last tick of a hole whose indices (after, upto] an operator has given up.

    The record behind the hole knows where its own events begin. If that record cannot be read either, and nobody has
    given it up, the hole counts as empty for now: `upto` may lie among the events of that record.
    """
    try:
        index, raw = next(iter(reader.records(stream, upto)))
        return decode_record(tag, index, raw).previous
    except StopIteration:
        return upto
    except RecordsDamagedError as error:
        return upto if error.given_up else after
    except VolumeCorruptError:
        return after


def _replay_log(reader: RecoveryReader, stream: str, tag: int, recovered: Recovered) -> Tick:
    """Applies the readable records above the checkpoint. Returns the end of a hole behind the last of them, or 0."""
    after, hole, holes = recovered.newest, 0, 0
    while True:
        try:
            for index, raw in reader.records(stream, after):
                record = _decoded(tag, after, index, raw)
                _replay(recovered, record, hole, with_holes=holes > 0)
                recovered.index.add(record.last_tick, len(raw))
                recovered.newest = after = record.last_tick
                hole = 0
        except RecordsDamagedError as error:
            # Without progress the loop would never end: the same damage was reported before.
            if error.upto <= after:
                raise
            if not error.given_up:
                recovered.damage.note(after, error.upto, str(error))
                recovered.damage.refuse(str(error))
            after = hole = error.upto
            holes += 1
        else:
            return hole


def _decoded(tag: int, after: Tick, index: Tick, raw: bytes) -> Record:
    try:
        return decode_record(tag, index, raw)
    except VolumeCorruptError as error:
        raise RecordsDamagedError(str(error), after, index, given_up=False) from error


def _replay(recovered: Recovered, record: Record, hole: Tick, *, with_holes: bool) -> None:
    """Applies one record. `hole`: the end of a hole right before the record, or 0."""
    pubend = recovered.saved.row.pubend
    if not recovered.newest <= record.previous <= max(recovered.newest, hole):
        raise VolumeCorruptError(
            f"the log of {pubend} lacks what was between ticks {recovered.newest} and {record.first_tick}"
        )
    batch = LoggedBatch(record.first_sequence, record.first_tick, record.count, record.crc, split_tokens(record.tokens))
    # Some rows of publishers cannot be read, so the first batch after the checkpoint may seem to lack the one before
    # it.
    with_holes = with_holes or bool(recovered.saved.fault)
    if not recovered.table.replay(record.publisher, record.epoch, batch, with_holes=with_holes):
        raise VolumeCorruptError(
            f"the log of {pubend} lacks what publisher {record.publisher!r} sent before event {record.first_sequence}"
        )
