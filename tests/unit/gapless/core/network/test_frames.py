"""What routers say to each other, as frames and back; noise is the other side's error (F01, F04)."""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

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
    PubendMeta,
    Seen,
    Verdict,
    Want,
)
from gapless.core.network.frames import (
    ADDRESS_MAX,
    FRAME_BYTES_MAX,
    STAMP_NAME_BYTES,
    Address,
    Answer,
    InterestPart,
    InterestQuestion,
    InterestSummary,
    InterestWire,
    KnowledgeWire,
    Message,
    NamedKnowledge,
    Private,
    ProgressRows,
    PubWire,
    StampQuestion,
    StampSaid,
    Travelling,
    decode,
    encode,
    pieces,
    portions,
)
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.stream.knowledge import Knowledge
from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.messages import TickRun
from gapless.errors import RemoteProtocolError
from gapless.selectors.filters import Filter

names = st.text(max_size=8)
numbers = st.integers(0, FOREVER)
small = st.integers(0, 60)
stamps = st.none() | st.dictionaries(names, numbers, max_size=3)
outcomes = st.builds(
    Outcome,
    st.sampled_from(Verdict),
    names,
    numbers,
    numbers,
    numbers,
    st.lists(st.builds(TickRun, numbers, small, small), max_size=3).map(tuple),
    st.lists(names, max_size=2).map(tuple),
)


def ranges_of(edges: list[int]) -> tuple[tuple[int, int], ...]:
    """Disjoint ranges from distinct numbers."""
    edges = sorted(edges)
    return tuple(zip(edges[::2], edges[1::2], strict=False))


ranges = st.lists(numbers, max_size=6, unique=True).map(ranges_of)


def event(number: int) -> bytes:
    """An encoded event."""
    return encode_event("a.b", {"n": number}, None, b"x" * (number % 5))


def batch(ticks: list[int]) -> EventBatch:
    """Events at these ticks."""
    return EventBatch(ticks, [event(tick) for tick in ticks], [tick % 5 for tick in ticks])


def columns(count: int) -> EventColumns:
    """A publisher's events."""
    return EventColumns.of([event(number) for number in range(count)], [number % 5 for number in range(count)])


@st.composite
def knowledge(draw: st.DrawFn) -> Knowledge:
    """Some ticks of an interval are events."""
    lo, length = draw(small), draw(st.integers(1, 60))
    ticks = sorted(draw(st.sets(st.integers(lo + 1, lo + length), max_size=8)))
    lost, stamp, reply = draw(small), draw(stamps), draw(st.booleans())
    return Knowledge(draw(names), lo, lo + length, batch(ticks), lost, stamp, reply)


filters = st.builds(
    Filter,
    st.lists(st.sampled_from(["a", "a.*", "#", "b.#"]), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["", "n > 3", "k = 'x' AND n < 2"]),
)
metas = st.builds(
    PubendMeta,
    names,
    names,
    st.lists(names, max_size=3).map(tuple),
    st.none() | names,
    numbers,
    st.booleans(),
    ranges,
    numbers,
)
messages: st.SearchStrategy[Message] = st.one_of(
    knowledge(),
    st.builds(
        lambda said, name: NamedKnowledge(replace(said, stamp={}), name),
        knowledge(),
        st.binary(min_size=STAMP_NAME_BYTES, max_size=STAMP_NAME_BYTES),
    ),
    st.builds(StampSaid, st.dictionaries(names, numbers, max_size=9)),
    st.builds(StampQuestion, st.binary(min_size=STAMP_NAME_BYTES, max_size=STAMP_NAME_BYTES)),
    st.builds(Want, names, ranges, stamps, names),
    st.builds(
        InterestPart,
        names,
        numbers,
        numbers,
        st.just(3),
        st.none() | st.just(9),
        st.dictionaries(st.integers(3, 8), filters, max_size=3),
        st.frozensets(st.integers(3, 8), max_size=3),
        st.booleans(),
    ),
    st.builds(InterestSummary, names, numbers, st.integers(0, 2**64 - 1)),
    st.builds(InterestQuestion, names),
    st.builds(ProgressRows, st.lists(st.builds(Progress, names, names, numbers, numbers), max_size=3).map(tuple)),
    st.builds(Hold, names, names, numbers, st.dictionaries(numbers, numbers, max_size=3)),
    st.builds(Held, names, names, numbers, st.dictionaries(numbers, numbers, max_size=3), numbers),
    st.builds(Seen, metas, st.none() | numbers),
    st.builds(Probe, names, numbers),
    st.builds(Enrol, names, names),
    st.builds(Posted, names, names, st.binary(max_size=9)),
    st.builds(OpenRequest, names, names, numbers, st.none() | names, names, keyed=st.booleans()),
    st.builds(
        Pub,
        names,
        numbers,
        numbers,
        st.integers(1, 5).map(columns),
        names,
        st.binary(max_size=5),
        st.booleans(),
    ),
    st.builds(Answer, names, outcomes),
    st.builds(Private, st.integers(-5, 5), st.binary(max_size=9)),
)
addresses = st.lists(st.text(max_size=5) | st.integers(-(2**63), 2**63 - 1), max_size=16).map(tuple)


def comparable(message: Message) -> object:
    """A message whose events compare."""
    if isinstance(message, Pub):
        events = message.events
        token, pubend, keyed = message.tokens, message.pubend, message.keyed
        return (
            message.publisher,
            message.epoch,
            message.first,
            events.count,
            events.blob,
            events.lengths,
            pubend,
            token,
            keyed,
        )
    return message


@given(messages, addresses)
def test_every_message_reads_back_with_its_address(message: Message, address: Address) -> None:
    frame = decode(encode(message, address))

    assert comparable(frame.message) == comparable(message)
    assert frame.address == address


def test_the_union_names_every_message() -> None:
    """So a new message that has no wire form, or none of its own tag, is noticed. Knowledge has two forms in one."""
    tags = [kind.__struct_config__.tag for kind in typing.get_args(Travelling)]

    assert len(set(tags)) == len(tags) == len(typing.get_args(Message)) - 1


@given(st.binary(max_size=200))
def test_noise_is_an_error_and_nothing_worse(noise: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(b"\xc1" + noise)  # a byte that msgpack never uses
    with contextlib.suppress(RemoteProtocolError):
        decode(noise)


@given(messages, st.data())
def test_a_damaged_frame_is_another_message_or_an_error(message: Message, data: st.DataObject) -> None:
    frame = bytearray(encode(message, ("x", 1)))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        decode(bytes(frame))


@given(messages, st.data())
def test_a_cut_frame_is_an_error(message: Message, data: st.DataObject) -> None:
    frame = encode(message)

    with pytest.raises(RemoteProtocolError):
        decode(frame[: data.draw(st.integers(0, len(frame) - 1))])


shapes = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=4) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 3) | st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.integers(0, 18), st.lists(shapes, max_size=11))
@example(1, ["p", 0, 9, 0, None, False, b"\0" * 16, b"x", False])
@example(14, ["p", 0, 1, "p", None, False, b"\xff" * 8, b""])
def test_the_right_shape_with_the_wrong_content_is_an_error(kind: int, fields: list[Any]) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode(msgspec.msgpack.encode([[], [kind, *fields]]))


def test_events_travel_as_they_were_encoded() -> None:
    said = Knowledge("p@1", 0, 9, batch([2, 5, 9]))

    frame = encode(said)
    read = decode(frame).message

    assert b"".join(said.data.events) in frame
    assert isinstance(read, Knowledge)
    assert list(read.data.events) == list(said.data.events)
    assert read.data.decoded or read.data.columns[0].topics, "they were looked at, so that nobody else has to"
    assert [header.properties["n"] for header in read.data.headers] == [2, 5, 9]


def knowledge_wire(**changes: Any) -> bytes:
    """A piece of knowledge, and what is wrong with it."""
    data = batch([2, 5])
    fields: dict[str, Any] = {
        "pubend": "p@1",
        "lo": 0,
        "hi": 9,
        "lost": 0,
        "stamp": None,
        "reply": False,
        "rows": b"".join(data.rows),
        "events": b"".join(data.events),
        "damaged": False,
    }
    return msgspec.msgpack.encode(((), KnowledgeWire(**{**fields, **changes})))


ROWS = b"".join(batch([2, 5]).rows)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hi": 0}, "knowledge of nothing"),
        ({"hi": 4}, "outside of their knowledge"),
        ({"lo": 2}, "outside of their knowledge"),
        ({"rows": ROWS[:-1]}, "rows of events are cut"),
        ({"rows": b""}, "rows of events are cut"),
        ({"rows": ROWS[:16]}, "do not add up"),
        ({"rows": ROWS[16:] + ROWS[:16]}, "out of order"),
        ({"rows": ROWS[:12] + b"\x7f\0\0\0" + ROWS[16:]}, "longer than the event"),
        ({"events": b"\xc1" * len(b"".join(batch([2, 5]).events))}, "does not parse"),
        ({"damaged": True}, "events in what is damaged"),
        ({"hi": 2**63}, "does not parse"),
        ({"lo": -1}, "does not parse"),
    ],
)
def test_knowledge_that_cannot_be(changes: dict[str, Any], reason: str) -> None:
    assert decode(knowledge_wire()).message == Knowledge("p@1", 0, 9, batch([2, 5]))

    with pytest.raises(RemoteProtocolError, match=reason):
        decode(knowledge_wire(**changes))


@pytest.mark.parametrize("properties", [{"": 1}, {"x": float("inf")}])
def test_what_only_others_write_into_a_log_comes_through(properties: dict[str, Any]) -> None:
    """No publisher may send it; refused here, it would end every link that it comes to, for ever."""
    events = [encode_event("t", each, None, b"") for each in ({"n": 1}, properties)]
    said = Knowledge("p@1", 0, 9, EventBatch([2, 5], events, [0, 0]))

    read = decode(encode(said)).message

    assert read == said
    assert isinstance(read, Knowledge)
    assert read.data.headers[1].properties == properties


def test_events_cut_in_the_wrong_place_are_seen() -> None:
    """Together they are well-formed; each alone is not, and somebody will be given only one."""
    data = batch([2, 5])
    rows = EventBatch([2, 5], [data.events[0] + data.events[1][:1], data.events[1][1:]], [0, 0]).rows

    with pytest.raises(RemoteProtocolError):
        decode(knowledge_wire(rows=b"".join(rows)))


@pytest.mark.parametrize("pairs", [((3, 3),), ((5, 7), (1, 2)), ((1, 5), (4, 8)), ((4, 3),)])
def test_ranges_out_of_order(pairs: Any) -> None:
    for message in (Want("p@1", pairs, None, "s", again=False), Seen(PubendMeta("p@1", "b", voids=pairs))):
        with pytest.raises(RemoteProtocolError, match="ranges of ticks"):
            decode(encode(message))


def wrong_numbers(value: Any) -> Iterator[Any]:
    """Copies of what a frame holds, each with one number that there cannot be."""
    if type(value) is int:
        yield from (-1, FOREVER + 1)
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from ([*value[:place], wrong, *value[place + 1 :]] for wrong in wrong_numbers(part))
    elif isinstance(value, dict):
        for key, part in value.items():
            rest = {other: row for other, row in value.items() if other != key}
            yield from (rest | {wrong: part} for wrong in wrong_numbers(key))
            yield from (rest | {key: wrong} for wrong in wrong_numbers(part))


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        (Want("p@1", ((1, 2),), {"s": 3}, "s", again=False), 3),
        (ProgressRows((Progress("s", "p@1", 1, 2), Progress("t", "p@1", 3, 4))), 4),
        (Hold("s", "p@1", 1, {2: 3}), 3),
        (Held("s", "p@1", 1, {2: 3}, 4), 4),
        (Seen(PubendMeta("p@1", "b", ("#",), None, 1, False, ((1, 2),), 3, 4), 5), 8),
        (Probe("p@1", 1), 1),
        (OpenRequest("loader", "i", 1, None, "p@1", 2, principal="anonymous"), 2),
        (Answer("p@1", Outcome(Verdict.OK, "", 1, 2, 3)), 3),
    ],
)
def test_a_number_that_cannot_be_does_not_parse(message: Message, numbers: int) -> None:
    address, (kind, *fields) = msgspec.msgpack.decode(encode(message), strict=False)
    wrong = list(wrong_numbers(fields))

    assert decode(msgspec.msgpack.encode([address, [kind, *fields]])).message == message
    assert len(wrong) == 2 * numbers
    for one in wrong:
        with pytest.raises(RemoteProtocolError, match="does not parse"):
            decode(msgspec.msgpack.encode([address, [kind, *one]]))


def other_lengths(value: Any) -> Iterator[Any]:
    """Copies of what a frame holds, in each of which one array has an element less or more at its end."""
    if isinstance(value, list):
        if value:
            yield value[:-1]
        yield [*value, None]
        for place, part in enumerate(value):
            yield from ([*value[:place], other, *value[place + 1 :]] for other in other_lengths(part))


@given(messages)
def test_a_field_less_or_more_does_not_parse(message: Message) -> None:
    """There is a default for some, for whoever makes one; on the wire nothing is left out."""
    parts = msgspec.msgpack.decode(encode(message), strict=False)

    for other in other_lengths(parts[1]):
        try:
            read = decode(msgspec.msgpack.encode([parts[0], other])).message
        except RemoteProtocolError:
            continue
        assert encode(read) == msgspec.msgpack.encode([parts[0], other]), "an array of any length, one shorter"
        assert len(other) == len(parts[1])


def test_portions_of_many_rows_fit_a_frame_each() -> None:
    rows = [Progress(f"shb-{number}", "p" * 90, number, number) for number in range(9_000)]

    cut = list(portions(rows))

    assert [row for portion in cut for row in portion] == rows
    assert len(cut) > 2
    assert all(len(encode(ProgressRows(tuple(portion)))) <= FRAME_BYTES_MAX for portion in cut)
    assert list(portions([])) == []
    assert [len(portion) for portion in portions(["x" * FRAME_BYTES_MAX] * 2)] == [1, 1]


def test_much_knowledge_goes_in_pieces_that_say_the_same() -> None:
    count, body = 100, b"x" * 10_000
    batch = EventBatch(list(range(11, 11 + count)), [encode_event("a", {}, None, body)] * count, [len(body)] * count)
    known = Knowledge("p@1", 10, 500, batch, 5, {"s": 1})

    cut = list(pieces(known))

    assert len(cut) > 4
    assert all(len(encode(piece)) <= FRAME_BYTES_MAX for piece in cut)
    assert [piece.lo for piece in cut] == [10, *[piece.hi for piece in cut[:-1]]]
    assert all(piece.hi == piece.data.ticks[-1] for piece in cut[:-1])
    assert cut[-1].hi == 500
    assert EventBatch.concatenate([piece.data for piece in cut]) == batch
    assert {(piece.lost, str(piece.stamp)) for piece in cut} == {(5, "{'s': 1}")}


@pytest.mark.parametrize("size", [1, FRAME_BYTES_MAX])
def test_knowledge_of_one_event_is_one_piece(size: int) -> None:
    event = encode_event("a", {}, None, b"x" * size)
    known = Knowledge("p@1", 10, 50, EventBatch([20], [event], [size]))

    assert list(pieces(known)) == [known]


def test_what_is_damaged_says_so_to_other_brokers() -> None:
    said = Knowledge.of_damage("p@1", 3, 9, 2)

    assert decode(encode(said)).message == said


def test_ranges_may_touch() -> None:
    want = Want("p@1", ((1, 2), (2, FOREVER)), None, "s", again=False)

    assert decode(encode(want)).message == want


@pytest.mark.parametrize(
    ("start", "end", "add", "drop"),
    [(3, 3, [], ()), (3, 2, [], ()), (3, 9, [2], ()), (3, 9, [9], ()), (3, 9, [], (2,)), (3, None, [], (0,))],
)
def test_a_part_that_speaks_of_others(start: int, end: int | None, add: list[int], drop: tuple[int, ...]) -> None:
    part = InterestPart("s", 0, 1, start, end, {number: Filter(("a",)) for number in add}, frozenset(drop), full=True)

    with pytest.raises(RemoteProtocolError, match="outside of their part"):
        decode(encode(part))


@pytest.mark.parametrize(("topics", "selector"), [((), ""), (("a..b",), ""), (("a",), "n >"), (("a",), "(" * 5000)])
def test_a_filter_that_cannot_be(topics: tuple[str, ...], selector: str) -> None:
    frame = msgspec.msgpack.encode(((), InterestWire("s", 0, 1, 0, None, {1: (topics, selector)}, (), False)))

    with pytest.raises(RemoteProtocolError):
        decode(frame)


@pytest.mark.parametrize(("lengths", "events"), [(b"\1\0\0\0", b"x"), (b"\2\0\0\0\0\0\0\0", b"x"), (b"\1" * 12, b"")])
def test_a_batch_whose_lengths_do_not_add_up(lengths: bytes, events: bytes) -> None:
    frame = msgspec.msgpack.encode(((), PubWire("loader", 1, 1, "p@1", "ada", b"", False, lengths, events)))

    with pytest.raises(RemoteProtocolError, match="do not add up"):
        decode(frame)


def test_a_batch_of_nothing() -> None:
    nothing, position = (
        msgspec.msgpack.encode(((), PubWire("loader", 1, 1, "p@1", "ada", tokens, False, b"", b"")))
        for tokens in (b"", b"token")
    )

    message = decode(position).message
    assert isinstance(message, Pub)
    assert message.tokens == b"token"
    with pytest.raises(RemoteProtocolError, match="of nothing"):
        decode(nothing)


def test_an_address_is_bounded() -> None:
    assert decode(encode(InterestQuestion(), ("unit",) * ADDRESS_MAX)).address == ("unit",) * ADDRESS_MAX

    with pytest.raises(RemoteProtocolError):
        decode(encode(InterestQuestion(), ("unit",) * (ADDRESS_MAX + 1)))
