"""The texts of tokens of many pubends: names by families, ticks by columns (protocol: tokens).

A *family* is pubends whose ids differ in a number alone, as `orders.0@Vx3…` and `orders.1@Vx3…`: the partitions of a
Kafka topic. Its *stem* stands before the number, its *tail* behind it, from the last "@" on. Pubends that are in no
such family, for their tails differ, make a family of their stem, in which each has the rest of its tail.

    text    := "gl3." base64url(head) ("." names | "~" base64url(names))
    head    := subscription, generation, seal, network and home (each: length, bytes), number of families, highest
               tick; the families, in the order of their stems and tails; CRC-32 of all that and of the names
    family  := of its stem: how many bytes it shares with the one before, how many follow; of what its tails have in
               common likewise; 1 + the length of every rest of a tail, or 0 and each length; number of pubends;
               numbers, ticks
    numbers := runs of numbers one behind the other (a number is counted from 1 on, 0 is none): how far the first is
               behind the one before, how many follow
    ticks   := 0, column of (highest tick - tick) | 1, column of (tick >> 44), column of (tick & 2^44 - 1)
    column  := base, 2 * width + whether it falls, what each value is above (or below) the base in `width` bits, how
               many have more bits; of each of those, how many are passed over before it, and its higher bits
    names   := of each family: what follows of its stem, of what its tails have in common, and of each tail

Ticks of Kafka are a leader epoch and an offset, of 44 bits. So a topic whose partitions were led anew at different
times has two columns of few bits, and not one of many. Of all ways to write the ticks of a family the text has the one
that is the shortest by a rule (`_Way.cost`); so each token has one text.

The last column of a family has at least eight bits: a short text cannot name many pubends.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Final, NamedTuple

from gapless.core.stream.ticks import PubendId, Tick
from gapless.core.wire.token_bytes import (
    Origin,
    Reader,
    checked_fields,
    checksum,
    decoded,
    names_text,
    put_bytes,
    put_number,
    shared_length,
    to_base64,
)
from gapless.core.wire.token_room import DIGITS_MAX, ID_BYTES_MAX, PUBENDS_MAX, parts_of
from gapless.errors import InvalidTokenError

_GL3: Final = zlib.crc32(b"gl3")
_OFFSET_BITS: Final = 44
_OFFSETS: Final = (1 << _OFFSET_BITS) - 1
_WIDTH_MIN: Final = 8
_WIDTH_MAX: Final = 63
_GARBLED: Final = "the text of a token is garbled: it names what no token has"


def encode(origin: Origin, ticks: Mapping[PubendId, Tick]) -> str:
    """Returns the text. Raises InvalidTokenError if an id is too long for it."""
    layout = _Layout.of(tuple(ticks))
    network, sid, generation, sealed, home = origin
    highest = max(ticks.values(), default=0)
    head = bytearray()
    put_number(head, sid)
    put_number(head, generation)
    for part in (sealed, network.encode(), home.encode()):
        put_bytes(head, part)
    put_number(head, len(layout.families))
    put_number(head, highest)
    for pubends, described in layout.families:
        head += described
        _put_ticks(head, [ticks[pubend] for pubend in pubends], highest)
    head += checksum(head, layout.names, _GL3)
    return f"gl3.{to_base64(head)}{layout.names_text}"


def decode(head: bytes, names: bytes) -> tuple[Origin, dict[PubendId, Tick]]:
    """Returns what a text of this form holds. Raises InvalidTokenError."""
    reader, rests = Reader(checked_fields(head, names, _GL3)), Reader(names)
    sid, generation = reader.number(), reader.number()
    sealed, network, home = (reader.take(reader.number()) for _ in range(3))
    families, highest = reader.number(), reader.number()
    ticks: dict[PubendId, Tick] = {}
    stem = tail = b""
    for _ in range(families):  # if the count is wrong, the bytes run out and the loop ends with an error
        stem = _name_after(stem, reader, rests)
        tail = _name_after(tail, reader, rests)
        length = reader.number()
        count = reader.number()
        if not 0 < count <= min(reader.left, PUBENDS_MAX - len(ticks)):  # each pubend takes a byte at least
            raise InvalidTokenError(_GARBLED)
        lengths = [length - 1] * count if length else [reader.number() for _ in range(count)]
        numbers = _numbers_of(reader, count)
        tails = [tail + rests.take(each) for each in lengths]
        for number, end, tick in zip(numbers, tails, _ticks_of(reader, count, highest), strict=True):
            pubend = stem + (b"%d" % (number - 1) if number else b"") + end
            if len(pubend) > ID_BYTES_MAX:
                raise InvalidTokenError(_GARBLED)
            ticks[decoded(pubend)] = tick
    return (decoded(network), sid, generation, sealed, decoded(home)), ticks


# ---------------------------------------------------------------------------------------- the names


class _Member(NamedTuple):
    stem: bytes
    tail: bytes
    number: int
    pubend: PubendId


class _Layout(NamedTuple):
    """What a text says of pubends, whatever their ticks are: a subscription's tokens differ in these alone."""

    families: tuple[tuple[tuple[PubendId, ...], bytes], ...]
    """The pubends of each, and how the head describes them."""
    names: bytes
    names_text: str

    @staticmethod
    @lru_cache(maxsize=8)  # one of 10,000 pubends takes a megabyte
    def of(pubends: tuple[PubendId, ...]) -> _Layout:
        names, stem, tail = bytearray(), b"", b""
        placed = []
        for members in _families(pubends):
            tails = [member.tail for member in members]
            least = min(tails)
            common, described = least[: shared_length(least, max(tails))], bytearray()
            _put_name(described, names, stem, members[0].stem)
            _put_name(described, names, tail, common)
            stem, tail = members[0].stem, common
            lengths = [len(each) - len(common) for each in tails]
            is_even = len(set(lengths)) == 1
            put_number(described, lengths[0] + 1 if is_even else 0)
            put_number(described, len(members))
            for length in () if is_even else lengths:
                put_number(described, length)
            _put_numbers(described, [member.number for member in members])
            names += b"".join(each[len(common) :] for each in tails)
            placed.append((tuple(member.pubend for member in members), bytes(described)))
        return _Layout(tuple(placed), bytes(names), names_text(names))


def _families(pubends: Sequence[PubendId]) -> list[list[_Member]]:
    """Returns the pubends of each family, by their numbers."""
    members = []
    for pubend in pubends:
        if len(pubend.encode()) > ID_BYTES_MAX:
            raise InvalidTokenError(
                f"a token of {len(pubends)} pubends has no text: an id is longer than {ID_BYTES_MAX} bytes"
            )
        stem, number, tail = parts_of(pubend)
        members.append(_Member(stem.encode(), tail.encode(), number, pubend))
    members.sort()
    families: list[list[_Member]] = []
    alone: list[list[_Member]] = []
    for _, group in groupby(members, attrgetter("stem", "tail")):
        family = list(group)
        (families if len(family) > 1 else alone).append(family)
    for _, group in groupby((member for [member] in alone), attrgetter("stem")):
        families.append(sorted(group, key=attrgetter("number", "tail")))
    return sorted(families, key=lambda family: (family[0].stem, family[0].tail, family[0].number))


def _put_name(head: bytearray, names: bytearray, before: bytes, name: bytes) -> None:
    shared = shared_length(before, name)
    put_number(head, shared)
    put_number(head, len(name) - shared)
    names += name[shared:]


def _name_after(before: bytes, reader: Reader, rests: Reader) -> bytes:
    shared, length = reader.number(), reader.number()
    if shared > len(before) or shared + length > ID_BYTES_MAX:
        raise InvalidTokenError(_GARBLED)
    return before[:shared] + rests.take(length)


def _put_numbers(head: bytearray, numbers: Sequence[int]) -> None:
    begins = [0, *(at for at, (one, other) in enumerate(pairwise(numbers), 1) if other != one + 1), len(numbers)]
    last = 0
    for begin, end in pairwise(begins):
        put_number(head, numbers[begin] - last)
        put_number(head, end - begin - 1)
        last = numbers[end - 1]


def _numbers_of(reader: Reader, count: int) -> list[int]:
    numbers: list[int] = []
    last = 0
    while len(numbers) < count:
        first = last + reader.number()
        last = first + reader.number()
        if last - first >= count - len(numbers) or last > 10**DIGITS_MAX:
            raise InvalidTokenError(_GARBLED)
        numbers += range(first, last + 1)
    return numbers


# ---------------------------------------------------------------------------------------- the ticks


class _Way(NamedTuple):
    """One way to write a column."""

    cost: int
    """At most so many bits; a function of the values alone."""
    falls: bool
    width: int
    base: int


def _put_ticks(head: bytearray, ticks: Sequence[Tick], highest: Tick) -> None:
    behind = [highest - tick for tick in ticks]
    epochs, offsets = [tick >> _OFFSET_BITS for tick in ticks], [tick & _OFFSETS for tick in ticks]
    one = _way(behind, _WIDTH_MIN)
    two = _way(epochs, 0), _way(offsets, _WIDTH_MIN)
    if one.cost <= two[0].cost + two[1].cost:
        put_number(head, 0)
        _put_column(head, behind, one)
    else:
        put_number(head, 1)
        _put_column(head, epochs, two[0])
        _put_column(head, offsets, two[1])


def _ticks_of(reader: Reader, count: int, highest: Tick) -> list[Tick]:
    kind = reader.number()
    if kind == 0:
        return [highest - behind for behind in _column_of(reader, count, _WIDTH_MIN)]
    if kind == 1:
        epochs = _column_of(reader, count, 0)
        offsets = _column_of(reader, count, _WIDTH_MIN)
        return [epoch << _OFFSET_BITS | offset for epoch, offset in zip(epochs, offsets, strict=True)]
    raise InvalidTokenError(_GARBLED)


def _way(values: Sequence[int], width_min: int) -> _Way:
    """Returns the cheapest way to write a column."""
    low, high = min(values), max(values)
    rising = _cheapest([value - low for value in values], width_min)
    falling = _cheapest([high - value for value in values], width_min)
    ways = (
        _Way(rising[0] + 8 * _number_bytes(low), False, rising[1], low),
        _Way(falling[0] + 8 * _number_bytes(high), True, falling[1], high),
    )
    return min(ways, key=attrgetter("cost"))


def _cheapest(values: Sequence[int], width_min: int) -> tuple[int, int]:
    """Returns the cheapest width for values, behind what it costs, in bits."""
    lengths = sorted(Counter(map(int.bit_length, values)).items())
    longest = max(width_min, lengths[-1][0])
    costs = [
        (
            width * len(values) + sum(many * _beyond_bits(length, width) for length, many in lengths if length > width),
            width,
        )
        for width in range(width_min, longest + 1)
    ]
    return min(costs)


def _beyond_bits(length: int, width: int) -> int:
    """Returns what a value of so many bits costs at most beyond the width of its column."""
    return 16 + 8 * -(-(length - width) // 7)


def _number_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _put_column(head: bytearray, values: Sequence[int], way: _Way) -> None:
    above = [way.base - value if way.falls else value - way.base for value in values]
    width, mask = way.width, (1 << way.width) - 1
    put_number(head, way.base)
    put_number(head, 2 * width + way.falls)
    if width:
        bits = "".join([f"{value & mask:0{width}b}" for value in above])
        head += int(bits.ljust(-len(bits) % 8 + len(bits), "0"), 2).to_bytes(-(-len(bits) // 8), "big")
    beyond = [at for at, value in enumerate(above) if value > mask]
    put_number(head, len(beyond))
    last = -1
    for at in beyond:
        put_number(head, at - last - 1)
        put_number(head, above[at] >> width)
        last = at


def _column_of(reader: Reader, count: int, width_min: int) -> Iterator[int]:
    base = reader.number()
    width, falls = divmod(reader.number(), 2)
    if not width_min <= width <= _WIDTH_MAX:
        raise InvalidTokenError(_GARBLED)
    above = [0] * count
    if width:
        packed = reader.take(-(-count * width // 8))
        bits = f"{int.from_bytes(packed, 'big'):0{8 * len(packed)}b}"
        above = [int(bits[at : at + width], 2) for at in range(0, count * width, width)]
    at = -1
    for _ in range(reader.number()):
        at += reader.number() + 1
        if at >= count:
            raise InvalidTokenError(_GARBLED)
        above[at] |= reader.number() << width
    return (base - value if falls else base + value for value in above)
