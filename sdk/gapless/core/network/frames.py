"""What routers of different brokers say to each other, as frames and back.

    frame := msgpack array [address, [kind, field, field, …]]

A message is a fact of the seam (`gapless.core.network.facts`) wherever there is one, and a few things
that only routers say to each other. The address is the router's own: to whom the message goes, whom an
answer goes to, whatever it needs on the way; at most 4,096 strings and integers. A fact travels as it is,
but for those that hold what msgpack does not know. Events travel as columns: one row of
(tick, length, length of the body) each, then all events one behind the other, as the bytes that their publisher sent;
nobody encodes one again.

A frame has at most `FRAME_BYTES_MAX` bytes, unless one event or one batch of a publisher has more. What is said of
many goes many to a frame (`portions`).

What does not parse raises RemoteProtocolError, and so does what no correct router can say: ranges out of
order, events outside of their knowledge, a filter that cannot be, a field too few or too many. There is one way to
write a message, and another one does not parse. Nothing here nests itself, so no depth can be forged; the length of a
frame was limited before it came here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import ge, lt
from struct import unpack_from
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from gapless.core.foreign import UNREADABLE
from gapless.core.network.facts import (
    Enrol,
    Held,
    Hold,
    OpenRequest,
    Outcome,
    Posted,
    Probe,
    Progress,
    Pub,
    Real,
    Seen,
    Want,
)
from gapless.core.principals import SentPrincipal
from gapless.core.stream.batch_bytes import ROW
from gapless.core.stream.columns import EMPTY, EventBatch, EventColumns
from gapless.core.stream.events import Header
from gapless.core.stream.intervals import Ranges
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER, PubendId, ShbId, Tick
from gapless.errors import InvalidSelectorError, InvalidTopicError, RemoteProtocolError
from gapless.selectors.filters import Filter

Address: TypeAlias = "tuple[str | int, ...]"
ADDRESS_MAX = 4096
"""How many strings and integers an address may hold."""

FRAME_BYTES_MAX: Final = 256 << 10
"""No frame is larger, but for one that holds a single event or a publisher's batch: what is behind it waits for it."""
STAMP_NAME_BYTES: Final = 16
PORTION_BYTES: Final = 192 << 10
"""So much of what is said of many goes into one frame: the rest is for what is said once, and for the address."""

# ------------------------------------------------------------- what only routers say to each other


class InterestPart(Struct, frozen=True, gc=False):
    """What of an SHB's interest concerns the subscriptions `start` <= id < `end`; without `end`, all from `start` on.

    It means nothing before all parts of that change, or of the whole of that version, are there
    (`gapless_routing.common.interest.InterestParts`).
    """

    shb: ShbId
    base: int
    version: int
    start: int
    end: int | None
    add: Mapping[int, Filter]
    drop: frozenset[int]
    full: bool


class InterestSummary(Struct, array_like=True, frozen=True, gc=False, tag=4):
    """Version and digest of an SHB's interest, repeated now and then: who has another one asks for the whole."""

    shb: ShbId
    version: Real
    digest: int


class InterestQuestion(Struct, array_like=True, frozen=True, gc=False, tag=5):
    """Say the whole interest of an SHB; "" asks for every SHB that is there."""

    shb: ShbId = ""


class ProgressRows(Struct, array_like=True, frozen=True, gc=False, tag=6):
    """What SHBs are done with: a row for each of them and each pubend, in any order."""

    rows: tuple[Progress, ...]


class Answer(Struct, array_like=True, frozen=True, gc=False, tag=15):
    """How an opening or a batch ended, on its way back to where it was placed."""

    pubend: PubendId
    outcome: Outcome


class Private(Struct, array_like=True, frozen=True, gc=False, tag=16):
    """Something that one kind of router has to say to its own kind alone."""

    kind: int
    data: bytes


class StampSaid(Struct, array_like=True, frozen=True, gc=False, tag=18):
    """A stamp that knowledge on this link has by name from now on (`NamedKnowledge`)."""

    stamp: dict[ShbId, Real]


class StampQuestion(Struct, array_like=True, frozen=True, gc=False, tag=19):
    """Say the stamp of this name, which knowledge on this link had."""

    name: Annotated[bytes, Meta(min_length=STAMP_NAME_BYTES, max_length=STAMP_NAME_BYTES)]


class NamedKnowledge(Struct, frozen=True, gc=False):
    """Knowledge that has its stamp by name. On the wire it is as any other, with the name in place of the stamp."""

    knowledge: Knowledge
    """Under the lowest stamp; that is true under each other one."""
    name: bytes


# ------------------------------------------------------------- what cannot travel as it is


class KnowledgeWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=1):
    """Knowledge: `rows` as `gapless.core.stream.batch_bytes.ROW`, `events` one behind the other."""

    pubend: str
    lo: Real
    hi: Real
    lost: Real
    stamp: dict[str, Real] | Annotated[bytes, Meta(min_length=STAMP_NAME_BYTES, max_length=STAMP_NAME_BYTES)] | None
    reply: bool
    rows: bytes
    events: bytes
    damaged: bool


class InterestWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=3):
    """A part of an interest: a filter is its patterns and its selector."""

    shb: str
    base: Real
    version: Real
    start: Real
    end: Real | None
    add: dict[Real, tuple[tuple[str, ...], str]]
    drop: tuple[Real, ...]
    full: bool


class PubWire(Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True, tag=14):
    """A batch of a publisher: its columns as they came."""

    publisher: str
    epoch: Real
    first: Real
    pubend: str
    principal: SentPrincipal
    tokens: bytes
    keyed: bool
    lengths: bytes
    events: bytes


Message: TypeAlias = (
    Knowledge
    | NamedKnowledge
    | Want
    | InterestPart
    | InterestSummary
    | InterestQuestion
    | ProgressRows
    | Hold
    | Held
    | Seen
    | Probe
    | Enrol
    | OpenRequest
    | Pub
    | Posted
    | Answer
    | Private
    | StampSaid
    | StampQuestion
)


class Frame(NamedTuple):
    """A message and what its router wrote on the envelope."""

    message: Message
    address: Address


Envelope: TypeAlias = Annotated[tuple[str | int, ...], Meta(max_length=ADDRESS_MAX)]
Travelling: TypeAlias = (
    KnowledgeWire
    | InterestWire
    | PubWire
    | Want
    | InterestSummary
    | InterestQuestion
    | ProgressRows
    | Hold
    | Held
    | Seen
    | Probe
    | Enrol
    | OpenRequest
    | Posted
    | Answer
    | Private
    | StampSaid
    | StampQuestion
)
"""In which structs messages travel: most as they are."""


def _plain(value: Any) -> Any:
    """Mappings of other kinds travel like those of the usual one."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_decoder: msgspec.msgpack.Decoder[tuple[Envelope, Travelling]] = msgspec.msgpack.Decoder(tuple[Envelope, Travelling])
_decode_outside = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_INTEREST_BEGINS: Final = _encode(InterestWire("", 0, 0, 0, None, {}, (), full=True))[:2]
_decode_header = msgspec.msgpack.Decoder(Header).decode


def encode(message: Message, address: Address = ()) -> bytes:
    """A message as a frame."""
    pack = _PACK.get(type(message))
    return _encode((address, message if pack is None else pack(message)))


def decode(frame: bytes) -> Frame:
    """The message of a frame, and its address. Raises RemoteProtocolError."""
    try:
        address, parsed = _decoder.decode(frame)
        if type(parsed) not in _COLUMNS and _encode((address, parsed)) != frame:
            raise ValueError("a field too few or too many, or not written as it should be")
        unpack = _UNPACK.get(type(parsed))
        return Frame(cast("Message", parsed) if unpack is None else unpack(parsed), address)
    except (*UNREADABLE, ValueError, InvalidTopicError, InvalidSelectorError) as error:
        raise RemoteProtocolError(f"a frame of another broker's router does not parse: {error}") from error


def is_interest(frame: bytes) -> bool:
    """Whether a frame is an InterestPart, if it is anything: to read it costs much, for its filters are parsed."""
    try:
        parsed = _decode_outside(frame)
    except UNREADABLE:
        return False
    return bytes(memoryview(parsed[1])[:2]) == _INTEREST_BEGINS


Row = TypeVar("Row")


def portions(
    rows: Iterable[Row], plain: Callable[[Row], object] = lambda row: row, bytes_max: int = PORTION_BYTES
) -> Iterator[list[Row]]:
    """Rows in portions of so many bytes at most, or of one row; `plain` gives a row as it travels."""
    portion: list[Row] = []
    total = 0
    for row in rows:
        size = len(_encode(plain(row)))
        if portion and total + size > bytes_max:
            yield portion
            portion, total = [], 0
        portion.append(row)
        total += size
    if portion:
        yield portion


def pieces(knowledge: Knowledge) -> Iterator[Knowledge]:
    """Knowledge in pieces that fit a frame each, or hold one event. Each but the last ends at an event."""
    data, lo, begin, total = knowledge.data, knowledge.lo, 0, 0
    if data.size + ROW.size * len(data) <= PORTION_BYTES:
        yield knowledge
        return
    for index, event in enumerate(data.events):
        size = len(event) + ROW.size
        if index > begin and total + size > PORTION_BYTES:
            hi = data.ticks[index - 1]
            yield replace(knowledge, lo=lo, hi=hi, data=data.slice(begin, index))
            lo, begin, total = hi, index, 0
        total += size
    yield replace(knowledge, lo=lo, data=data.slice(begin, len(data)))


# ------------------------------------------------------------------------- messages to the wire


def _pack_knowledge(said: Knowledge, name: bytes = b"") -> KnowledgeWire:
    rows, events = b"".join(said.data.row_blobs()), b"".join(said.data.blobs())
    stamp = name or (None if said.stamp is None else dict(said.stamp))
    return KnowledgeWire(said.pubend, said.lo, said.hi, said.lost, stamp, said.reply, rows, events, said.damaged)


def _pack_interest(said: InterestPart) -> InterestWire:
    add = {sid: (wanted.topics, wanted.selector) for sid, wanted in said.add.items()}
    drop = tuple(sorted(said.drop))
    return InterestWire(said.shb, said.base, said.version, said.start, said.end, add, drop, said.full)


def _pack_pub(pub: Pub) -> PubWire:
    events = pub.events
    return PubWire(
        pub.publisher,
        pub.epoch,
        pub.first,
        pub.pubend,
        pub.principal,
        pub.tokens,
        pub.keyed,
        events.lengths,
        events.blob,
    )


_PACK: dict[type, Callable[[Any], Travelling]] = {
    Knowledge: _pack_knowledge,
    NamedKnowledge: lambda said: _pack_knowledge(said.knowledge, said.name),
    InterestPart: _pack_interest,
    Pub: _pack_pub,
}
"""Of the messages that do not travel as they are."""


# ----------------------------------------------------------------------- and from it to messages


def _unpack_knowledge(parsed: KnowledgeWire) -> Knowledge | NamedKnowledge:
    if parsed.lo >= parsed.hi:
        raise ValueError("knowledge of nothing")
    data = _batch(parsed.rows, parsed.events) if parsed.rows or parsed.events else EMPTY
    if data and not parsed.lo < data.ticks[0] <= data.ticks[-1] <= parsed.hi:
        raise ValueError("events outside of their knowledge")
    if data and parsed.damaged:
        raise ValueError("events in what is damaged")
    name, stamp = (parsed.stamp, {}) if isinstance(parsed.stamp, bytes) else (b"", parsed.stamp)
    said = Knowledge(parsed.pubend, parsed.lo, parsed.hi, data, parsed.lost, stamp, parsed.reply, parsed.damaged)
    return NamedKnowledge(said, name) if name else said


def _batch(rows: bytes, blob: bytes) -> EventBatch:
    """The events, each checked to be one up to its end: cut anywhere else, they would be poison later on."""
    if not rows or len(rows) % ROW.size:
        raise ValueError("the rows of events are cut")
    ticks, columns = EventColumns.of_rows(rows, blob)
    if sum(columns.wholes()) != len(blob):
        raise ValueError("the lengths of the events do not add up to the frame")
    if not all(map(lt, ticks, ticks[1:])):
        raise ValueError("events out of order")
    try:
        columns.check()
    except ValueError:
        return _single_events(ticks, columns)
    return columns.batch(ticks)


def _single_events(ticks: list[Tick], columns: EventColumns) -> EventBatch:
    """The same of events of which one is no publisher's: logs that others write hold names and values of theirs."""
    events, bodies = columns.cut()
    if any(map(ge, bodies, columns.wholes())):
        raise ValueError("the body of an event is longer than the event")
    return EventBatch(ticks, events, bodies, list(map(_decode_header, events)))


def _check_ranges(pairs: Ranges) -> None:
    """Raises ValueError unless these are intervals of ticks: not empty, disjoint and in order."""
    behind = 0
    for lo, hi in pairs:
        if not behind <= lo < hi:
            raise ValueError("ranges of ticks are empty or out of order")
        behind = hi


@lru_cache(maxsize=4096)
def _filter(topics: tuple[str, ...], selector: str) -> Filter:
    """A filter; the same ones are said again and again, and need not be checked each time."""
    return Filter(topics, selector)


def _unpack_interest(parsed: InterestWire) -> InterestPart:
    start, end = parsed.start, FOREVER if parsed.end is None else parsed.end
    if end <= start or not all(start <= sid < end for said in (parsed.add, parsed.drop) for sid in said):
        raise ValueError("subscriptions outside of their part")
    add = {sid: _filter(topics, selector) for sid, (topics, selector) in parsed.add.items()}
    drop = frozenset(parsed.drop)
    return InterestPart(parsed.shb, parsed.base, parsed.version, start, parsed.end, add, drop, parsed.full)


def _unpack_pub(parsed: PubWire) -> Pub:
    """What the events are is for the PHB to check; here only that they are as long as is said."""
    count, rest = divmod(len(parsed.lengths), 8)
    if rest or sum(unpack_from(f"<{2 * count}I", parsed.lengths)[::2]) != len(parsed.events):
        raise ValueError("the lengths of the events do not add up to the batch")
    if not count and not parsed.tokens:
        raise ValueError("a batch of nothing")
    columns = EventColumns(count, parsed.lengths, parsed.events)
    return Pub(
        parsed.publisher,
        parsed.epoch,
        parsed.first,
        columns,
        parsed.pubend,
        parsed.tokens,
        parsed.keyed,
        principal=parsed.principal,
    )


def _check_want(want: Want) -> Want:
    _check_ranges(want.ranges)
    return want


def _check_seen(seen: Seen) -> Seen:
    _check_ranges(seen.meta.voids)
    return seen


_COLUMNS = (KnowledgeWire, InterestWire, PubWire)
"""The large ones, which have no field that may be left out."""
_UNPACK: dict[type, Callable[[Any], Message]] = {
    KnowledgeWire: _unpack_knowledge,
    InterestWire: _unpack_interest,
    PubWire: _unpack_pub,
    Want: _check_want,
    Seen: _check_seen,
}
"""Of the messages that do not travel as they are, or may be what cannot be although each part of them can."""
