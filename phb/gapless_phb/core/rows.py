"""The durable rows of a PHB beside the log: tables, keys and encodings (protocol: members, publishers).

Every key begins with the pubend's number, which is never given to another pubend. Only the keys of retired SHBs do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from gapless.core.ports import RecoveryReader
from gapless.core.stream.ticks import PubendId, ShbId, Tick
from gapless.errors import VolumeCorruptError


class Tables:
    """The names of a PHB's tables. They begin with the name of its role, so that a node may host several PHBs."""

    def __init__(self, role: str) -> None:
        self.pubends = f"{role}.pubends"
        """number → PubendRow."""
        self.reservations = f"{role}.leases"
        """number → tick: no later incarnation logs an event at or below it."""
        self.ages = f"{role}.ages"
        """number → tick: the present by which events had certainly grown old, at the last reservation."""
        self.clocks = f"{role}.clocks"
        """number → AgeRow: what makes that certain for the next run. It was not there before 2026-11-29."""
        self.lost = f"{role}.lost"
        """number → tick: events at or below it are gone."""
        self.members = f"{role}.members"
        """number, SHB → the tick from which the SHB is counted."""
        self.holds = f"{role}.holds"
        """number, SHB → Holds."""
        self.publishers = f"{role}.publishers"
        """number, publisher → PublisherRow."""
        self.keyed = f"{role}.keyed"
        """number, producer's name with the marker → (epoch, index) of the last event that it has logged."""
        self.consumed = f"{role}.consumed"
        """number, key of a subscription → ConsumedRow."""
        self.checkpoints = f"{role}.checkpoints"
        """number → Checkpoint."""
        self.retired = f"{role}.retired"
        """SHB → 1: an administrator has given it up at least once."""


class AgeRow(msgspec.Struct, array_like=True, frozen=True):
    """How old events were, and what makes that certain for the next run (protocol: the-clock)."""

    aged: Tick
    """The present by which events had certainly grown old."""
    boot: str = ""
    """In which run of the machine `now` was read, in nanoseconds; "" if that is unknown."""
    now: int = 0
    doubt_began: int | None = None
    """The `now`, in that run, at which the clock began to be doubted; None if it was believed."""
    leap: Tick = 0
    """How far the wall clock was ahead then."""


class PubendRow(msgspec.Struct, array_like=True, frozen=True):
    """The row of a pubend."""

    pubend: PubendId
    created: Tick
    topics: tuple[str, ...]
    """Every pattern of topics that it ever took."""
    former_voids: tuple[tuple[Tick, Tick], ...] = ()
    """The `voids` of volumes written before 2026-11-23. They are not read any more: silence ended at places of events
    then, so a token at such a place may be right."""
    voids: tuple[tuple[Tick, Tick], ...] = ()
    """Intervals in which the broker was down: no tick in them was or will be used."""
    family: str = ""
    """That of its log, if the log numbers its records itself (`gapless.core.ports.NumberedLog`); else ""."""
    rules: tuple[tuple[Tick, bytes], ...] = ()
    """How the records of such a log become events: rules, each behind the tick from which they hold."""
    forks: tuple[tuple[Tick, Tick, int], ...] = ()
    """Intervals in which another process of this node may have logged events, and the incarnation of that process."""


class Holds(msgspec.Struct, array_like=True, frozen=True):
    """From which ticks an SHB's subscriptions need the pubend, by subscription id: a whole row (protocol: members)."""

    version: int
    at: dict[int, Tick]


class PublisherRow(msgspec.Struct, array_like=True, frozen=True):
    """What is known about a publisher. `sequence` and the rows below it cover durable events only (T21)."""

    epoch: int
    instance: str
    attempt: int
    opened: Tick
    sequence: int
    tick: Tick
    recent: bytes
    """The last batches, packed (`publishers.WINDOW`)."""
    owners: tuple[tuple[int, int], ...] = ()
    """Which instances have logged which sequences (`publishers.PublisherState.owners`).

    Empty in rows of version 0.1.0.
    """
    tokens: tuple[str, ...] = ()
    """The texts of the tokens that are stored with it (`gapless_phb.core.publishers.consumed`), the newest last."""
    moved: int = 0
    """The checksum of its last batch without events; 0 without one."""


class ConsumedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Up to where transactions have consumed a subscription (`gapless_phb.core.publishers.consumed`)."""

    epoch: int
    """Of the last claim of its home."""
    seal: str
    """The beginning of that of its tokens, in hexadecimal digits."""
    token: str
    """The text of the last one that was stored; "" before there is one."""


class Checkpoint(msgspec.Struct, array_like=True, frozen=True):
    """Up to where the publishers' rows cover the log: recovery reads only the log above."""

    tick: Tick
    """The tick of a record's last event. Rows may cover later records, too."""
    epochs: int
    """The highest epoch that was ever given to a publisher, forgotten ones included."""
    points: list[tuple[Tick, int]]
    """A few points of the byte index; the last one is `tick`."""


NO_CHECKPOINT: Final = Checkpoint(0, 0, [(0, 0)])

_encode = msgspec.msgpack.Encoder().encode
_pubend_row = msgspec.msgpack.Decoder(PubendRow).decode
_holds = msgspec.msgpack.Decoder(Holds).decode
_publisher_row = msgspec.msgpack.Decoder(PublisherRow).decode
_consumed_row = msgspec.msgpack.Decoder(ConsumedRow).decode
_checkpoint = msgspec.msgpack.Decoder(Checkpoint).decode
_tick = msgspec.msgpack.Decoder(int).decode
_age = msgspec.msgpack.Decoder(AgeRow).decode
_mark = msgspec.msgpack.Decoder(tuple[int, int]).decode

_NUMBER = 2
"""How many bytes a pubend's number takes."""


def key(number: int, name: str = "") -> bytes:
    """Returns the key of a pubend's row, or of the row of one of its SHBs or publishers."""
    return number.to_bytes(_NUMBER, "big") + name.encode()


Row: TypeAlias = "PubendRow | AgeRow | Holds | PublisherRow | ConsumedRow | Checkpoint | Tick | tuple[int, int]"


def encode(row: Row) -> bytes:
    """Encodes a row as a table's value."""
    return _encode(row)


@dataclass(slots=True)
class SavedPubend:
    """All rows of one pubend. A new pubend has only its own row and its members."""

    number: int
    row: PubendRow
    reserved: Tick = 0
    lost: Tick = 0
    members: Mapping[ShbId, Tick] = field(default_factory=dict)
    holds: Mapping[ShbId, Holds] = field(default_factory=dict)
    publishers: Mapping[str, PublisherRow] = field(default_factory=dict)
    checkpoint: Checkpoint = NO_CHECKPOINT
    keyed: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    consumed: Mapping[str, ConsumedRow] = field(default_factory=dict)
    fault: str = ""
    """Why some publishers are missing here: their rows cannot be read. "" if all are here."""
    age: AgeRow | None = None
    """None in a volume that was written before this row existed."""


def saved_pubends(reader: RecoveryReader, tables: Tables) -> list[SavedPubend]:
    """Returns every pubend of a PHB with these tables, in the order of their creation."""
    found = [(int.from_bytes(number, "big"), value) for number, value in reader.scan(tables.pubends)]
    return [_saved(reader, tables, number, _pubend_row(value)) for number, value in found]


def _saved(reader: RecoveryReader, tables: Tables, number: int, row: PubendRow) -> SavedPubend:
    prefix = key(number)
    saved = SavedPubend(number, row)
    saved.reserved = max((_tick(value) for _, value in reader.scan(tables.reservations, prefix)), default=0)
    for _, value in reader.scan(tables.ages, prefix):
        saved.age = AgeRow(_tick(value))
    for _, value in reader.scan(tables.clocks, prefix):
        age = _age(value)
        if saved.age is None or age.aged >= saved.age.aged:  # else an earlier version of gapless ran since
            saved.age = age
    saved.lost = max((_tick(value) for _, value in reader.scan(tables.lost, prefix)), default=0)
    saved.members = {name: _tick(value) for name, value in _named(reader, tables.members, prefix)}
    saved.holds = {name: _holds(value) for name, value in _named(reader, tables.holds, prefix)}
    try:
        saved.publishers = {name: _publisher_row(value) for name, value in _named(reader, tables.publishers, prefix)}
        saved.consumed = {name: _consumed_row(value) for name, value in _named(reader, tables.consumed, prefix)}
        saved.keyed = {name: _mark(value) for name, value in _named(reader, tables.keyed, prefix)}
    except VolumeCorruptError as error:  # not fatal: readers need no row of a publisher
        saved.fault = str(error)
    for _, value in reader.scan(tables.checkpoints, prefix):
        saved.checkpoint = _checkpoint(value)
    return saved


def _named(reader: RecoveryReader, table: str, prefix: bytes) -> Iterator[tuple[str, bytes]]:
    for found, value in reader.scan(table, prefix):
        yield found[len(prefix) :].decode(), value
