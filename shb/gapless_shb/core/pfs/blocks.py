"""PFS blocks: the ticks of many events, and for each subscription which of them matched it (protocol: pfs).

A block is the record of the paper, `tick, n × (subscription, previous record)`, spread over many ticks; a block of one
tick is exactly that record, only shorter. A block's index in its log stream is its last tick, so the block itself
stores no whole tick:

    block := flags u8, shift u8, count u16, subscriptions u32
             gaps      (count - 1) × how far the next tick is, shifted right by `shift`
             sids      ascending
             pointers  how many milliseconds back the subscription's previous block is, plus 1; 0: there is none
             kinds     u8 each; not there when count is 1
             columns   by kind: 0 a bitmap · 1 … 254 so many positions · 255 nothing: every tick matched

Integers are little-endian. `flags` has the width of a gap, a sid and a pointer in this block, two bits each, and
whether the block is *imprecise*: then every subscription in it has all of its ticks, whether they matched or not. A
position takes one byte in blocks of up to 256 ticks, else two. Each column has the form that is shortest for it: sparse
and dense subscriptions share a block.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, compress, pairwise
from struct import Struct, pack, unpack_from
from typing import Final

from gapless.core.stream.batch_bytes import mask_flags
from gapless.core.stream.ticks import Tick
from gapless.selectors.masks import select

TICKS_MAX: Final = 1024
"""How many ticks a block has at most."""

_HEAD = Struct("<BBHI")
_LETTERS = "BHIQ"
_BITMAP = 0
_ALL = 255
_IMPRECISE = 1 << 6
_FAR = (1 << 32) - 1
"""The pointer to a block so far back (49 days, or 4 G records) that the distance does not fit."""


def encode(
    ticks: Sequence[Tick],
    masks: Mapping[int, int],
    previous: Mapping[int, Tick],
    grain: Tick,
    *,
    imprecise: bool = False,
) -> bytes:
    """Encodes the block of these ticks, at most `TICKS_MAX` of them and ascending.

    `masks`: for each sid the ticks that matched it (bit i for the i-th tick), never 0. `previous`: the index of each
    sid's last block. `grain`: the unit of the pointers. `imprecise`: the columns do not store which ticks matched.
    """
    count, sids = len(ticks), sorted(masks)
    gaps, shift = _gaps(ticks)
    pointers = [_pointer(ticks[-1], previous.get(sid, 0), grain) for sid in sids]
    widths = [_width_code(max(values, default=0)) for values in (gaps, sids, pointers)]
    flags = widths[0] | widths[1] << 2 | widths[2] << 4 | (_IMPRECISE if imprecise else 0)
    numbers = zip((gaps, sids, pointers), widths, strict=True)
    parts = [_HEAD.pack(flags, shift, count, len(sids))]
    parts += [pack(f"<{len(values)}{_LETTERS[width]}", *values) for values, width in numbers]
    if count > 1:
        parts += [bytes([_ALL]) * len(sids)] if imprecise else _columns([masks[sid] for sid in sids], count)
    return b"".join(parts)


class Block:
    """A block that was read: its ticks, and the columns of its subscriptions, which are decoded when needed."""

    __slots__ = (
        "_columns_at",
        "_data",
        "_gaps",
        "_kinds_at",
        "_pointers",
        "_shift",
        "_sids",
        "count",
        "imprecise",
        "index",
    )

    def __init__(self, index: Tick, data: bytes) -> None:
        """Raises ValueError if `data` is no block."""
        if len(data) < _HEAD.size:
            raise ValueError("a PFS block is shorter than its head")
        flags, self._shift, self.count, subscriptions = _HEAD.unpack_from(data)
        if flags > 0b1111111 or self._shift > 63 or not self.count:
            raise ValueError("a PFS block has an impossible head")
        self.index = index
        """Its last tick."""
        self.imprecise = bool(flags & _IMPRECISE)
        """Whether a subscription's column may have ticks that did not match it."""
        self._data = data
        self._gaps = _Numbers(data, _HEAD.size, self.count - 1, flags & 3)
        self._sids = _Numbers(data, self._gaps.end, subscriptions, flags >> 2 & 3)
        self._pointers = _Numbers(data, self._sids.end, subscriptions, flags >> 4 & 3)
        self._kinds_at = self._pointers.end
        self._columns_at = self._kinds_at + (subscriptions if self.count > 1 else 0)
        if self._columns_at > len(data) or self._column_at(subscriptions) != len(data):
            raise ValueError("a PFS block does not end with its last column")

    def __len__(self) -> int:
        """How many subscriptions have a column."""
        return self._sids.count

    def __contains__(self, sid: int) -> bool:
        return self._find(sid) is not None

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return len(self._data)

    @property
    def ticks(self) -> list[Tick]:
        """All ticks of the block, in order."""
        return self._ticks(self._offsets(), None)

    def ticks_of(self, sid: int) -> list[Tick]:
        """Returns the ticks that matched a subscription, in order."""
        at = self._find(sid)
        if at is None:
            return []
        kind, start, end = self._column(at)
        if kind == _ALL:
            return self.ticks
        offsets = self._offsets()
        if kind == _BITMAP:
            mask = int.from_bytes(self._data[start:end], "little")
            return self._ticks(offsets, compress(offsets, mask_flags(mask, self.count)))
        try:
            return self._ticks(offsets, [offsets[position] for position in self._positions(start, end)])
        except IndexError:
            raise ValueError("a PFS block names a position beyond its last tick") from None

    def mask_of(self, sid: int) -> int:
        """Returns the ticks that matched a subscription, as a mask."""
        at = self._find(sid)
        return 0 if at is None else self._mask(*self._column(at))

    def column(self, sid: int) -> BlockColumn:
        """Returns the ticks of one subscription, to be kept without the rest of the block."""
        return BlockColumn(self.index, self._shift, self._gaps.alone(), self.mask_of(sid))

    @property
    def first(self) -> Tick:
        """The first tick of the block."""
        width: Tick = sum(self._gaps.all()) << self._shift
        return self.index - width

    def sids(self) -> Sequence[int]:
        """Returns every subscription with a column, ascending."""
        return self._sids.all()

    def previous(self, sid: int, grain: Tick) -> tuple[Tick, Tick] | None:
        """Returns (lo, hi], which contains the index of the subscription's previous block; None if there is none.

        The interval is one grain long (that of the encoder), unless the block is too far back for a pointer.
        """
        at = self._find(sid)
        pointer = 0 if at is None else self._pointers[at]
        if not pointer:
            return None
        if pointer == _FAR:
            return 0, self.index - 1
        first = (self.index // grain - (pointer - 1)) * grain
        return first - 1, min(first + grain, self.index) - 1

    def columns(self) -> Iterator[tuple[int, int]]:
        """Yields (sid, mask of its ticks) for every subscription in the block."""
        end = self._columns_at
        for at, sid in enumerate(self._sids.all()):
            kind = self._kind(at)
            start, end = end, end + self._width(kind)
            yield sid, self._mask(kind, start, end)

    def _mask(self, kind: int, start: int, end: int) -> int:
        full: int = (1 << self.count) - 1
        if kind == _ALL:
            return full
        if kind == _BITMAP:
            return int.from_bytes(self._data[start:end], "little") & full
        return sum(1 << position for position in self._positions(start, end)) & full

    def _find(self, sid: int) -> int | None:
        at = bisect_left(self._sids, sid)
        return at if at < len(self._sids) and self._sids[at] == sid else None

    def _kind(self, at: int) -> int:
        return _ALL if self.count == 1 else self._data[self._kinds_at + at]

    def _column(self, at: int) -> tuple[int, int, int]:
        """Returns the kind of a column, and where it begins and ends."""
        kind, start = self._kind(at), self._column_at(at)
        return kind, start, start + self._width(kind)

    def _column_at(self, at: int) -> int:
        """Returns where a column begins: after the columns before it, whose lengths follow from their kinds."""
        if self.count == 1:
            return self._columns_at
        kinds = self._data[self._kinds_at : self._kinds_at + at]
        positions = sum(kinds) - _ALL * kinds.count(_ALL)
        return self._columns_at + _bitmap_bytes(self.count) * kinds.count(_BITMAP) + positions * _wide(self.count)

    def _width(self, kind: int) -> int:
        if kind == _BITMAP:
            return _bitmap_bytes(self.count)
        return 0 if kind == _ALL else kind * _wide(self.count)

    def _positions(self, start: int, end: int) -> Sequence[int]:
        if _wide(self.count) == 1:
            return self._data[start:end]
        return unpack_from(f"<{(end - start) // 2}H", self._data, start)

    def _offsets(self) -> list[int]:
        return _offsets(self._gaps)

    def _ticks(self, offsets: Sequence[int], chosen: Iterable[int] | None) -> list[Tick]:
        """Returns the ticks at the chosen offsets, or at all of them."""
        return _ticks(self.index, self._shift, offsets[-1], offsets if chosen is None else chosen)


class BlockColumn:
    """A subscription's ticks in a block, counted but not decoded yet."""

    __slots__ = ("_gaps", "_index", "_mask", "_shift")

    def __init__(self, index: Tick, shift: int, gaps: _Numbers, mask: int) -> None:
        self._index = index
        self._shift = shift
        self._gaps = gaps
        self._mask = mask

    def __len__(self) -> int:
        return self._mask.bit_count()

    @property
    def size(self) -> int:
        """About how many bytes it keeps in memory."""
        return self._gaps.end

    def ticks(self) -> list[Tick]:
        """Returns the ticks, in order."""
        offsets = _offsets(self._gaps)
        return _ticks(self._index, self._shift, offsets[-1], select(offsets, self._mask))


def _offsets(gaps: _Numbers) -> list[int]:
    """Returns how far each tick is from the first one, not shifted yet."""
    return list(accumulate(gaps.all(), initial=0))


def _ticks(index: Tick, shift: int, last: int, chosen: Iterable[int]) -> list[Tick]:
    """Returns the ticks at these offsets; `last` is the offset of `index`."""
    first = index - (last << shift)
    return [first + (offset << shift) for offset in chosen]


class _Numbers:
    """Integers of one width at some place in a block."""

    __slots__ = ("_data", "_letter", "_start", "_width", "count", "end")

    def __init__(self, data: bytes, start: int, count: int, code: int) -> None:
        self._data = data
        self._start = start
        self._letter = _LETTERS[code]
        self._width = 1 << code
        self.count = count
        self.end = start + count * self._width

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, at: int) -> int:
        start = self._start + at * self._width
        return int.from_bytes(self._data[start : start + self._width], "little")

    def alone(self) -> _Numbers:
        """Returns the same integers without the bytes around them."""
        return _Numbers(self._data[self._start : self.end], 0, self.count, _LETTERS.index(self._letter))

    def all(self) -> Sequence[int]:
        """Returns all integers, decoded at once."""
        return unpack_from(f"<{self.count}{self._letter}", self._data, self._start)


def _gaps(ticks: Sequence[Tick]) -> tuple[list[int], int]:
    """Returns the distance of each tick from the one before, without common trailing zero bits, and their number."""
    gaps = [later - earlier for earlier, later in pairwise(ticks)]
    bits = 0
    for gap in gaps:
        bits |= gap
    shift = max((bits & -bits).bit_length() - 1, 0)
    return [gap >> shift for gap in gaps], shift


def _pointer(index: Tick, previous: Tick, grain: Tick) -> int:
    if not previous:
        return 0
    return min(index // grain - previous // grain + 1, _FAR)


def _width_code(highest: int) -> int:
    """Returns the width of the highest number as a code: 0 for one byte, 1 for two, 2 for four, 3 for eight."""
    return max((highest.bit_length() - 1) // 8, 0).bit_length()


def _columns(masks: Sequence[int], count: int) -> list[bytes]:
    """Returns the kinds, then every column. Equal masks, of filters that many share, are encoded once."""
    encoded: dict[int, tuple[int, bytes]] = {}
    for mask in masks:
        if mask not in encoded:
            encoded[mask] = _column(mask, count)
    columns = [encoded[mask] for mask in masks]
    return [bytes(kind for kind, _ in columns), *(column for _, column in columns)]


def _column(mask: int, count: int) -> tuple[int, bytes]:
    matches = mask.bit_count()
    if matches == count:
        return _ALL, b""
    if matches < _ALL and matches * _wide(count) < _bitmap_bytes(count):
        positions = select(range(count), mask)
        return matches, bytes(positions) if _wide(count) == 1 else pack(f"<{matches}H", *positions)
    return _BITMAP, mask.to_bytes(_bitmap_bytes(count), "little")


def _bitmap_bytes(count: int) -> int:
    return (count + 7) // 8


def _wide(count: int) -> int:
    """Returns how many bytes a position takes."""
    return 1 if count <= 256 else 2
