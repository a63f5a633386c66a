"""The PFS: which ticks matched whom, and nothing of the events themselves (algorithms.md 3.5).

A record covers the matching ticks of one step of the constream. Of one tick it is exactly the paper's
record, `tick, n × (subscription, previous record)`; of more ticks it carries, per subscription, also a
bitmap of the ticks that matched it:

    record := tick u64, n × (sid u64, previous u64)                                   one tick
            | 1 << 63 | m, m × tick u64, n × (sid u64, previous u64, bitmap)          m > 1 ticks

Integers are little-endian; bit i of a bitmap stands for the i-th tick; `previous` is the index of the
subscription's previous record, or 0. A record's index in its log stream is its last tick.

Records that have not been asked to be written yet stand open, in memory; `latestDelivered` stays below
them, so a crash fetches their ticks again. A read therefore has two parts: what was sealed is a
conversation with the log, what is open is at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from struct import Struct, pack, unpack_from

from gapless.core.effects import Chop, Put
from gapless.core.events import mask_flags
from gapless.core.ticks import PubendId, Tick

_HEAD = Struct("<Q")
_PAIR = Struct("<QQ")
_MANY = 1 << 63


def stream_name(pubend: PubendId) -> str:
    """The log stream that holds a pubend's PFS."""
    return f"pfs/{pubend}"


def encode(ticks: Sequence[Tick], entries: Iterable[tuple[int, Tick, int]]) -> bytes:
    """A record of these ticks; entries are (sid, index of its previous record, mask of its ticks)."""
    if len(ticks) == 1:
        return _HEAD.pack(ticks[0]) + b"".join(_PAIR.pack(sid, previous) for sid, previous, _ in entries)
    width = (len(ticks) + 7) // 8
    columns = [_PAIR.pack(sid, previous) + mask.to_bytes(width, "little") for sid, previous, mask in entries]
    return b"".join((pack(f"<Q{len(ticks)}Q", _MANY | len(ticks), *ticks), *columns))


@dataclass(frozen=True, slots=True)
class Record:
    """A decoded record: its ticks, and where its columns begin."""

    ticks: tuple[Tick, ...]
    data: bytes
    start: int
    width: int
    """Bytes of one bitmap; 0 when there is a single tick and no bitmap."""

    @classmethod
    def decode(cls, data: bytes) -> Record:
        """Raises ValueError when `data` is no record."""
        (head,) = _HEAD.unpack_from(data) if len(data) >= _HEAD.size else (0,)
        count = head & ~_MANY
        if not head & _MANY:
            record = cls((head,), data, 8, 0)
        elif 1 < count <= len(data) // 8:
            record = cls(unpack_from(f"<{count}Q", data, 8), data, 8 + 8 * count, (count + 7) // 8)
        else:
            raise ValueError("a PFS record has an impossible head")
        if (len(data) - record.start) % record.stride:
            raise ValueError("a PFS record does not end with a whole column")
        return record

    @property
    def stride(self) -> int:
        """Bytes of one subscription's column."""
        return _PAIR.size + self.width

    def mask(self, sid: int) -> int:
        """The ticks that matched a subscription, as a mask over `ticks`; 0 when none did."""
        wanted = _HEAD.pack(sid)
        at = self.data.find(wanted, self.start)
        while at >= 0:
            if (at - self.start) % self.stride == 0:
                return self._mask_at(at)
            at = self.data.find(wanted, at + 1)
        return 0

    def columns(self) -> Iterator[tuple[int, int]]:
        """(sid, mask) of every subscription in the record."""
        for at in range(self.start, len(self.data), self.stride):
            yield int.from_bytes(self.data[at : at + 8], "little"), self._mask_at(at)

    def _mask_at(self, at: int) -> int:
        if not self.width:
            return 1
        return int.from_bytes(self.data[at + _PAIR.size : at + self.stride], "little")


@dataclass(slots=True)
class OpenRecord:
    """A record in memory: the matching ticks of a step of the constream."""

    ticks: Sequence[Tick]
    masks: dict[int, int] = field(default_factory=dict)


class Pfs:
    """One pubend's PFS: open records, the chain of each subscription, and what has been sealed."""

    def __init__(self, pubend: PubendId, sealed_upto: Tick, chopped: Tick) -> None:
        self.stream = stream_name(pubend)
        self.sealed_upto = sealed_upto
        """Every record up to here has been asked to be written, so any `Read` sees it."""
        self.chopped = chopped
        """Up to here records are gone: nothing is known."""
        self._open: list[OpenRecord] = []
        self._previous: dict[int, Tick] = {}

    def recover(self, index: Tick, data: bytes) -> Iterator[tuple[int, Tick]]:
        """Takes in a record found at start-up; yields (sid, last matching tick) of its columns."""
        record = Record.decode(data)
        for sid, mask in record.columns():
            self._previous[sid] = index
            yield sid, record.ticks[mask.bit_length() - 1]

    def append(self, ticks: Sequence[Tick]) -> OpenRecord:
        """Opens a record of these ticks, each above every tick before; the caller fills in the masks."""
        record = OpenRecord(ticks)
        self._open.append(record)
        return record

    def discard_empty(self) -> None:
        """Forgets the record opened last if nobody matched: a tick without a match leaves no trace."""
        if self._open and not self._open[-1].masks:
            self._open.pop()

    @property
    def has_open(self) -> bool:
        """Whether there is anything to seal."""
        return bool(self._open)

    def seal(self, upto: Tick) -> list[Put]:
        """The writes of all open records; from now on a `Read` finds them."""
        writes = [self._put(record) for record in self._open if record.masks]
        self._open.clear()
        self.sealed_upto = upto
        return writes

    def chop(self, upto: Tick) -> Chop | None:
        """The removal of every record that ends at or below `upto`; None when there is nothing new."""
        if upto <= self.chopped:
            return None
        self.chopped = upto
        return Chop(self.stream, upto)

    def open_ticks(self, sid: int, after: Tick) -> list[Tick]:
        """The subscription's ticks above `after` in the open records."""
        return [
            tick
            for record in self._open
            if record.ticks[-1] > after and sid in record.masks
            for tick in masked(record.ticks, record.masks[sid])
            if tick > after
        ]

    def forget(self, sid: int) -> None:
        """The subscription is gone."""
        self._previous.pop(sid, None)
        for record in self._open:
            record.masks.pop(sid, None)

    def _put(self, record: OpenRecord) -> Put:
        ticks, masks = matching_only(record.ticks, record.masks)
        previous = self._previous
        entries = [(sid, previous.get(sid, 0), mask) for sid, mask in masks.items()]
        previous.update(dict.fromkeys(masks, ticks[-1]))
        return Put(self.stream, ticks[-1], encode(ticks, entries))


def matching_only(ticks: Sequence[Tick], masks: dict[int, int]) -> tuple[Sequence[Tick], dict[int, int]]:
    """The same without the ticks that matched nobody: they cost no bytes (I6)."""
    union = 0
    for mask in masks.values():
        union |= mask
    if union == (1 << len(ticks)) - 1:
        return ticks, masks
    kept = mask_flags(union, len(ticks))
    return list(compress(ticks, kept)), {sid: _squeezed(mask, kept) for sid, mask in masks.items()}


def _squeezed(mask: int, kept: bytes) -> int:
    bits = format(mask, f"0{len(kept)}b").encode()[::-1]
    return int(bytes(compress(bits, kept))[::-1], 2)


@dataclass(frozen=True, slots=True)
class Found:
    """What a batch read of the PFS told a reader."""

    ticks: list[Tick]
    """The subscription's ticks, in order: the oldest ones (T12)."""
    upto: Tick
    """Every other tick up to here is silence for it."""


def gather(records: Sequence[tuple[int, bytes]], sid: int, after: Tick, upto: Tick, limit: int) -> Found:
    """The oldest ticks of `sid` above `after` in these records, about `limit` of them.

    `upto` is how far the records are complete; a read that was cut short is complete up to its last
    record only. Raises ValueError when a record does not parse.
    """
    found: list[Tick] = []
    for _, data in records:
        record = Record.decode(data)
        mask = record.mask(sid)
        if mask:
            found += [tick for tick in masked(record.ticks, mask) if tick > after]
        if len(found) >= limit:
            return Found(found, min(record.ticks[-1], upto))
    return Found(found, upto)


def masked(ticks: Sequence[Tick], mask: int) -> Iterator[Tick]:
    """The ticks whose bit is set, in order."""
    while mask:
        low = mask & -mask
        yield ticks[low.bit_length() - 1]
        mask ^= low
