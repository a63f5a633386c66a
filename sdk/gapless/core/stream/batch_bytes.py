"""Four functions over the bytes of a batch of events: what they promise, and the version of them in Python.

`gapless_fast` has the same four, compiled; `gapless.core.stream.fast` chooses. A batch is a *blob*, the events one
after the other, and *lengths*, which are count × (u32 length, u32 length of the body), little-endian.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise, repeat
from operator import attrgetter
from struct import Struct, error, pack
from typing import Any

import msgspec

from gapless.core.stream.events import CheckedHeader, Header, LargeHeader, PlainProperties, are_plain, encode_events
from gapless.selectors.columns import Groups, group_values

PAIR = Struct("<II")
COUNT_BYTES = 4
"""The length of the number in front of a batch's rows, which counts them."""
ROW = Struct("<QII")
"""The row of an event in a delivery: its tick, its length, the length of its body."""
LITTLE_ENDIAN = pack("=H", 1) == b"\1\0"
"""Whether numbers in memory have the byte order of the wire, so that a column needs no step per number."""

SMALL = 512
"""The longest event, in bytes, whose body is copied to check it."""

_decode_small = msgspec.msgpack.Decoder(CheckedHeader).decode
_decode_large = msgspec.msgpack.Decoder(LargeHeader).decode
_body_of = attrgetter("body")
_topic_of = attrgetter("topic")
_extras_of = attrgetter("extras")
_FLAGS = bytes.maketrans(b"01", b"\0\1")


def check(blob: bytes, lengths: bytes, most: int) -> tuple[str | list[str], bool]:
    """Returns the topic of all events, or a list with the topic of each; and whether any event has extras.

    Raises ValueError if there is no event, if the lengths do not add up, or if an event has more than `most` bytes, is
    malformed, has a body of another length than `lengths` names, or has a value that may not be sent.
    """
    return facts_of(checked(*cut(blob, lengths), most))


def column(blobs: Sequence[bytes], lengths: Sequence[bytes], name: str, _bits: Sequence[int]) -> Groups:
    """Returns which events have which value of a property; `_bits[i]` is the mask of event i alone.

    The compiled version returns shared masks; here it costs less to make all masks anew. Input must be validated
    (`check`); invalid input may raise ValueError.
    """
    events = chain.from_iterable(cut(*pair)[0] for pair in zip(blobs, lengths, strict=True))
    headers = _decoded(events, _decode_large)
    return group_values([header.properties.get(name) for header in headers])


def gather(blobs: Sequence[bytes], lengths: Sequence[bytes], ticks: bytes, mask: int) -> bytes:
    """Returns number, rows and bytes of the selected events: the part of a delivery that subscribers share.

    `ticks`: a u64 for each event. Raises ValueError if the columns are not equally long, or shorter than the mask.
    """
    try:
        times = array_of("Q", ticks)
        pairs = list(chain.from_iterable(PAIR.iter_unpack(column) for column in lengths))
    except (ValueError, error) as fault:
        raise ValueError(f"ticks or lengths are cut: {fault}") from fault
    if len(times) != len(pairs):
        raise ValueError("there are not as many ticks as events")
    if mask >> len(pairs):
        raise ValueError("the mask selects more than there is")
    flags = mask_flags(mask, len(pairs))
    events = chain.from_iterable(cut(*pair)[0] for pair in zip(blobs, lengths, strict=True))
    rows = map(ROW.pack, times, *zip(*pairs, strict=True)) if pairs else ()
    return b"".join((mask.bit_count().to_bytes(4, "little"), *compress(rows, flags), *compress(events, flags)))


def encode(
    topic: str, bodies: list[bytes], properties: list[Mapping[str, Any]], most: int
) -> tuple[bytes, bytes] | None:
    """Returns lengths and blob of messages with a body and properties alone.

    Returns None if the messages have to be encoded one by one: a body is not bytes, properties are no dict of values
    that may be sent, or an event has more than `most` bytes.
    """
    if len(bodies) != len(properties):
        raise ValueError("there are not as many properties as bodies")
    if not set(map(type, bodies)) <= {bytes}:
        return None
    try:
        if not are_plain(properties):
            return None
        events = encode_events(topic, msgspec.convert(properties, PlainProperties), repeat(None), bodies)
    except (msgspec.ValidationError, UnicodeEncodeError, TypeError):  # TypeError: no dict, or a name of a subclass
        return None
    if max(map(len, events), default=0) > most:
        return None
    return pairs_of(events, list(map(len, bodies))), b"".join(events)


# ------------------------------------------------------------------------------- what these are made of


def checked(events: Sequence[bytes], bodies: array[int], most: int) -> list[Header]:
    """Returns the decoded headers of a batch's events. Raises ValueError, as `check` does.

    Each event is decoded alone and to its end. Otherwise a batch could be well-formed as a whole, but not at the
    places where its lengths cut it; a subscriber that gets only some of its events could not decode them.
    """
    if not events:
        raise ValueError("a batch is empty")
    longest = max(map(len, events))
    if longest > most:
        raise ValueError(f"an event has {longest:,} bytes, and {most:,} are allowed")
    headers = _decoded(events, _decode_small if longest <= SMALL else _decode_large)
    if array("I", map(len, map(_body_of, headers))) != bodies:
        raise ValueError("the body of an event is not as long as the batch says")
    return headers  # type: ignore[return-value]  # nobody writes a plain Header into it


def _decoded(events: Iterable[bytes], decode: Callable[[bytes], CheckedHeader]) -> list[CheckedHeader]:
    try:
        return list(map(decode, events))
    except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
        raise ValueError(f"an event is malformed: {fault}") from fault


def facts_of(headers: Sequence[Header]) -> tuple[str | list[str], bool]:
    """Returns the topic or the topics of some events, and whether any has extras."""
    topics = list(map(_topic_of, headers))
    return (topics[0] if topics.count(topics[0]) == len(topics) else topics), any(map(_extras_of, headers))


def cut(blob: bytes, lengths: bytes) -> tuple[list[bytes], array[int]]:
    """Returns the single events, and their body lengths. Raises ValueError if the lengths do not add up."""
    numbers = array_of("I", lengths)
    if len(numbers) % 2 or sum(numbers[::2]) != len(blob):
        raise ValueError("the lengths of the events do not add up to the batch")
    ends = accumulate(numbers[::2], initial=0)
    return [blob[start:end] for start, end in pairwise(ends)], numbers[1::2]


def pairs_of(events: Sequence[bytes], body_lengths: Iterable[int]) -> bytes:
    """Returns the lengths of encoded events."""
    numbers = array("I", bytes(8 * len(events)))
    numbers[::2] = array("I", list(map(len, events)))
    numbers[1::2] = array("I", list(body_lengths))
    return bytes_of(numbers)


def array_of(kind: str, column: bytes) -> array[int]:
    """Returns the numbers of a little-endian column. Raises ValueError if the last one is cut."""
    numbers = array(kind, column)
    if not LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers


def bytes_of(numbers: array[int]) -> bytes:
    """Returns the little-endian column of some numbers."""
    if not LITTLE_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def mask_flags(mask: int, count: int) -> bytes:
    """Returns the lowest `count` bits of `mask` as bytes 0 and 1, lowest first: for `itertools.compress`."""
    return format(mask, f"0{count}b").encode()[::-1].translate(_FLAGS)
