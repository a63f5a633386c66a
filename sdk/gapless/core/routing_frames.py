"""What routers of different brokers say to each other, as frames and back.

    frame := msgpack array [kind, address, field, field, …]

A message is what the seam itself speaks (`gapless.core.routing`) wherever that exists, and a few things
that only routers say to each other. The address is the router's own: to whom the message goes, whom an
answer goes to, whatever it needs on the way; at most 16 strings and integers. Events travel as columns:
one row of (tick, length, length of the body) each, then all events one behind the other, as the bytes that
their publisher sent; nobody encodes one again.

What does not parse raises RemoteProtocolError, and so does what no correct router can say: ranges out of
order, events outside of their knowledge, a filter that cannot be. Nothing here nests itself, so no depth
can be forged; the length of a frame was limited before it came here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from struct import unpack_from
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gapless.core import routing_wire as wire
from gapless.core.columns import EMPTY, ROW, EventBatch, EventColumns
from gapless.core.events import Header
from gapless.core.release import Cover, Minima
from gapless.core.routing import (
    Enrol,
    Held,
    HeldRow,
    HoldRow,
    Interest,
    Knowledge,
    OpenRequest,
    Outcome,
    Probe,
    Progress,
    Pub,
    PubendMeta,
    Ranges,
    Seen,
    Want,
)
from gapless.core.ticks import PubendId, ShbId
from gapless.errors import InvalidSelectorError, InvalidTopicError, RemoteProtocolError
from gapless.selectors.filters import Filter

Address: TypeAlias = "tuple[str | int, ...]"

# ------------------------------------------------------------- what only routers say to each other


@dataclass(frozen=True, slots=True)
class InterestSummary:
    """Version and digest of an SHB's interest, repeated now and then: who has another one asks for the whole."""

    shb: ShbId
    version: int
    digest: int


@dataclass(frozen=True, slots=True)
class InterestQuestion:
    """Say the whole interest of an SHB; "" asks for every SHB that is there."""

    shb: ShbId = ""


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """The minima over all SHBs behind the sender, and which SHBs those are."""

    pubend: PubendId
    cover: Cover
    minima: Minima


@dataclass(frozen=True, slots=True)
class Answer:
    """How an opening or a batch ended, on its way back to where it was placed."""

    pubend: PubendId
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Private:
    """Something that one kind of router has to say to its own kind alone."""

    kind: int
    data: bytes


Message: TypeAlias = (
    Knowledge
    | Want
    | Interest
    | InterestSummary
    | InterestQuestion
    | Progress
    | ReleaseReport
    | HoldRow
    | HeldRow
    | Seen
    | Probe
    | Enrol
    | OpenRequest
    | Pub
    | Answer
    | Private
)


class Frame(NamedTuple):
    """A message and what its router wrote on the envelope."""

    message: Message
    address: Address


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[wire.AnyWire] = msgspec.msgpack.Decoder(wire.AnyWire)
_decode_header = msgspec.msgpack.Decoder(Header).decode


def encode(message: Message, address: Address = ()) -> bytes:
    """A message as a frame."""
    return _encode(_PACK[type(message)](message, address))


def decode(frame: bytes) -> Frame:
    """The message of a frame, and its address. Raises RemoteProtocolError."""
    try:
        parsed = _decoder.decode(frame)
        return Frame(_UNPACK[type(parsed)](parsed), parsed.address)
    except (msgspec.MsgspecError, ValueError, InvalidTopicError, InvalidSelectorError, RecursionError) as error:
        raise RemoteProtocolError(f"a frame of another broker's router does not parse: {error}") from error


# ------------------------------------------------------------------------- messages to the wire


def _pack_knowledge(said: Knowledge, address: Address) -> wire.KnowledgeWire:
    rows, events = b"".join(said.data.row_blobs()), b"".join(said.data.blobs())
    stamp = None if said.stamp is None else dict(said.stamp)
    return wire.KnowledgeWire(
        address, said.pubend, said.lo, said.hi, said.lost, stamp, said.reply, rows, events, said.damaged
    )


def _pack_want(want: Want, address: Address) -> wire.WantWire:
    need = None if want.need is None else dict(want.need)
    return wire.WantWire(address, want.pubend, want.ranges, need, want.shb)


def _pack_interest(said: Interest, address: Address) -> wire.InterestWire:
    add = {sid: (wanted.topics, wanted.selector) for sid, wanted in said.add.items()}
    return wire.InterestWire(address, said.shb, said.base, said.version, add, tuple(sorted(said.drop)), said.full)


def _pack_seen(seen: Seen, address: Address) -> wire.SeenWire:
    meta = seen.meta
    return wire.SeenWire(
        address,
        meta.pubend,
        meta.broker,
        meta.topics,
        meta.group,
        meta.created,
        meta.sealed,
        meta.voids,
        meta.stable,
        meta.residue,
        seen.enrolled_at,
    )


def _pack_pub(pub: Pub, address: Address) -> wire.PubWire:
    events = pub.events
    return wire.PubWire(
        address, pub.publisher, pub.epoch, pub.first, pub.pubend, pub.token, events.lengths, events.blob
    )


def _pack_answer(answer: Answer, address: Address) -> wire.AnswerWire:
    said = answer.outcome
    ticks = tuple(said.ticks)
    return wire.AnswerWire(
        address, answer.pubend, said.verdict, said.reason, said.sequence, said.epoch, said.tick, ticks
    )


_PACK: dict[type, Callable[[Any, Address], wire.AnyWire]] = {
    Knowledge: _pack_knowledge,
    Want: _pack_want,
    Interest: _pack_interest,
    InterestSummary: lambda said, address: wire.InterestSummaryWire(address, said.shb, said.version, said.digest),
    InterestQuestion: lambda said, address: wire.InterestQuestionWire(address, said.shb),
    Progress: lambda said, address: wire.ProgressWire(address, said.shb, said.pubend, said.released, said.delivered),
    ReleaseReport: lambda said, address: wire.ReleaseReportWire(address, said.pubend, *said.cover, *said.minima),
    HoldRow: lambda row, address: wire.HoldRowWire(address, row.shb, row.pubend, row.version, dict(row.at)),
    HeldRow: lambda row, address: wire.HeldRowWire(
        address, row.shb, row.held.pubend, row.held.version, dict(row.held.at), row.held.stable
    ),
    Seen: _pack_seen,
    Probe: lambda probe, address: wire.ProbeWire(address, probe.pubend, probe.upto),
    Enrol: lambda enrol, address: wire.EnrolWire(address, enrol.pubend, enrol.shb),
    OpenRequest: lambda request, address: wire.OpenRequestWire(
        address,
        request.publisher,
        request.instance,
        request.attempt,
        request.topic,
        request.pubend,
        request.epoch,
        request.ending,
    ),
    Pub: _pack_pub,
    Answer: _pack_answer,
    Private: lambda said, address: wire.PrivateWire(address, said.kind, said.data),
}


# ----------------------------------------------------------------------- and from it to messages


def _unpack_knowledge(parsed: wire.KnowledgeWire) -> Knowledge:
    if parsed.lo >= parsed.hi:
        raise ValueError("knowledge of nothing")
    data = _batch(parsed.rows, parsed.events) if parsed.rows or parsed.events else EMPTY
    if data and not parsed.lo < data.ticks[0] <= data.ticks[-1] <= parsed.hi:
        raise ValueError("events outside of their knowledge")
    if data and parsed.damaged:
        raise ValueError("events in what is damaged")
    return Knowledge(parsed.pubend, parsed.lo, parsed.hi, data, parsed.lost, parsed.stamp, parsed.reply, parsed.damaged)


def _batch(rows: bytes, blob: bytes) -> EventBatch:
    """The events, each checked to be one up to its end: cut anywhere else, they would be poison later on."""
    if not rows or len(rows) % ROW.size:
        raise ValueError("the rows of events are cut")
    ticks, lengths, bodies = zip(*ROW.iter_unpack(rows), strict=True)
    if sum(lengths) != len(blob):
        raise ValueError("the lengths of the events do not add up to the frame")
    if any(one >= following for one, following in pairwise(ticks)):
        raise ValueError("events out of order")
    if any(body >= length for body, length in zip(bodies, lengths, strict=True)):
        raise ValueError("the body of an event is longer than the event")
    ends = list(accumulate(lengths, initial=0))
    events = [blob[start:end] for start, end in pairwise(ends)]
    return EventBatch(ticks, events, bodies, list(map(_decode_header, events)))


def _ranges(pairs: Sequence[tuple[int, int]]) -> Ranges:
    """Intervals of ticks, checked to be what they are: not empty, disjoint and in order."""
    behind = 0
    for lo, hi in pairs:
        if not behind <= lo < hi:
            raise ValueError("ranges of ticks are empty or out of order")
        behind = hi
    return tuple(pairs)


@lru_cache(maxsize=4096)
def _filter(topics: tuple[str, ...], selector: str) -> Filter:
    """A filter; the same ones are said again and again, and need not be checked each time."""
    return Filter(topics, selector)


def _unpack_interest(parsed: wire.InterestWire) -> Interest:
    add = {sid: _filter(topics, selector) for sid, (topics, selector) in parsed.add.items()}
    return Interest(parsed.shb, parsed.base, parsed.version, add, frozenset(parsed.drop), parsed.full)


def _unpack_seen(parsed: wire.SeenWire) -> Seen:
    voids = _ranges(parsed.voids)
    meta = PubendMeta(
        parsed.pubend,
        parsed.broker,
        parsed.topics,
        parsed.group,
        parsed.created,
        parsed.sealed,
        voids,
        parsed.stable,
        parsed.residue,
    )
    return Seen(meta, parsed.enrolled_at)


def _unpack_pub(parsed: wire.PubWire) -> Pub:
    """What the events are is for the PHB to check; here only that they are as long as is said."""
    count, rest = divmod(len(parsed.lengths), 8)
    if not count or rest or sum(unpack_from(f"<{2 * count}I", parsed.lengths)[::2]) != len(parsed.events):
        raise ValueError("the lengths of the events do not add up to the batch")
    columns = EventColumns(count, parsed.lengths, parsed.events)
    return Pub(parsed.publisher, parsed.epoch, parsed.first, columns, parsed.pubend, parsed.token)


def _unpack_answer(parsed: wire.AnswerWire) -> Answer:
    outcome = Outcome(parsed.verdict, parsed.reason, parsed.sequence, parsed.epoch, parsed.tick, parsed.ticks)
    return Answer(parsed.pubend, outcome)


_UNPACK: dict[type, Callable[[Any], Message]] = {
    wire.KnowledgeWire: _unpack_knowledge,
    wire.WantWire: lambda parsed: Want(parsed.pubend, _ranges(parsed.ranges), parsed.need, parsed.shb),
    wire.InterestWire: _unpack_interest,
    wire.InterestSummaryWire: lambda parsed: InterestSummary(parsed.shb, parsed.version, parsed.digest),
    wire.InterestQuestionWire: lambda parsed: InterestQuestion(parsed.shb),
    wire.ProgressWire: lambda parsed: Progress(parsed.shb, parsed.pubend, parsed.released, parsed.delivered),
    wire.ReleaseReportWire: lambda parsed: ReleaseReport(
        parsed.pubend, Cover(parsed.shbs, parsed.digest), Minima(parsed.released, parsed.delivered)
    ),
    wire.HoldRowWire: lambda parsed: HoldRow(parsed.shb, parsed.pubend, parsed.version, parsed.at),
    wire.HeldRowWire: lambda parsed: HeldRow(parsed.shb, Held(parsed.pubend, parsed.version, parsed.at, parsed.stable)),
    wire.SeenWire: _unpack_seen,
    wire.ProbeWire: lambda parsed: Probe(parsed.pubend, parsed.upto),
    wire.EnrolWire: lambda parsed: Enrol(parsed.pubend, parsed.shb),
    wire.OpenRequestWire: lambda parsed: OpenRequest(
        parsed.publisher, parsed.instance, parsed.attempt, parsed.topic, parsed.pubend, parsed.epoch, parsed.ending
    ),
    wire.PubWire: _unpack_pub,
    wire.AnswerWire: _unpack_answer,
    wire.PrivateWire: lambda parsed: Private(parsed.number, parsed.data),
}
