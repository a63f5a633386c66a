"""Record batches become events and marks, and batches of ours become record batches that come back as they were."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gapless.core.ports import LogMark, LogPiece
from gapless.core.stream.columns import EventBatch, EventColumns
from gapless.core.stream.events import Event, Extras, encode_event
from gapless.errors import PluginError, VolumeCorruptError
from gapless_log.kafka.format import KafkaFormat, joined
from gapless_log.kafka.lineage import tick_at
from gapless_log.kafka.mapping import Rules
from gapless_log.kafka.records import Compression, NewRecord, batches, encode, records

RULES = Rules("orders", types={"n": "int"}).encode()
FORM = KafkaFormat("orders")
MARK = LogMark("loader", 3, 11, 2, 99, 7, b"tokens", False, 1234, True)


def logged(raw: bytes, first: int, epoch: int = 3) -> bytes:
    """A batch as a broker keeps it."""
    return struct.pack(">q", first) + raw[8:12] + struct.pack(">i", epoch) + raw[16:]


def piece(raw: bytes, count: int, first: int = 0, epoch: int = 3) -> LogPiece:
    """A whole batch."""
    return LogPiece(tick_at(epoch, first + 1), tick_at(epoch, first + count), logged(raw, first, epoch))


def columns(*events: tuple[dict[str, Any], Extras | None, bytes], topic: str = "orders") -> EventColumns:
    encoded = [encode_event(topic, *event) for event in events]
    return EventColumns.of(encoded, [len(body) for _, _, body in events])


def timed(published: EventColumns, wall: int) -> list[bytes]:
    """The same events, logged at this time."""
    events = map(msgspec.msgpack.Decoder(Event).decode, published.cut()[0])
    return [
        encode_event(event.topic, event.properties, replace(event.extras or Extras(), timestamp=wall), event.body)
        for event in events
    ]


def bodies(batch: EventBatch) -> list[bytes]:
    return [event[len(event) - length :] for event, length in zip(batch.events, batch.body_lengths, strict=True)]


def strangers(*values: bytes | None, compression: Compression = Compression.NONE) -> bytes:
    return encode([NewRecord(1000, b"k", value, [("n", b"7"), ("h", b"x")]) for value in values], compression)


@pytest.mark.parametrize("compression", Compression)
def test_records_of_strangers_are_events_without_marks(compression: Compression) -> None:
    batch, marks = FORM.decode(piece(strangers(b"a", None, compression=compression), 2, first=40), RULES)

    assert list(batch.ticks) == [tick_at(3, 41), tick_at(3, 42)]
    assert bodies(batch) == [b"a", b""]
    assert [header.properties for header in batch.headers] == [{"n": 7, "h": "x", "key": "k"}] * 2
    assert list(batch.topics) == ["orders"] * 2
    assert marks == []


@pytest.mark.parametrize(
    ("written", "logged_at"), [(-1, 1), (0, 1), (1_700_000_000_123, 1_700_000_000_123), (1 << 62, None)]
)
def test_the_time_of_an_event_is_its_records(written: int, logged_at: int | None) -> None:
    raw = encode([NewRecord(written, None, b"v", [])], Compression.NONE)

    batch, _ = FORM.decode(piece(raw, 1), RULES)

    (header,) = batch.headers
    assert header.extras is not None
    assert header.extras.timestamp == (253_402_300_799_999 if logged_at is None else logged_at)
    fresh = EventColumns.of(batch.events, batch.body_lengths)
    fresh.check()  # whoever gets it over a link finds nothing wrong


def test_a_batch_that_reaches_beyond_its_piece_is_cut() -> None:
    whole = piece(strangers(b"a", b"b", b"c"), 3, first=10)

    behind, _ = FORM.decode(LogPiece(tick_at(3, 12), whole.last, whole.raw), RULES)
    within, _ = FORM.decode(LogPiece(tick_at(3, 12), tick_at(3, 12), whole.raw), RULES)

    assert list(behind.ticks) == [tick_at(3, 12), tick_at(3, 13)]
    assert bodies(behind) == [b"b", b"c"]
    assert list(within.ticks) == [tick_at(3, 12)]
    assert bodies(within) == [b"b"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"nonsense", strangers(b"a")[:-1], strangers(b"a") * 2, strangers(b"a") + b"x"],
    ids=["nothing", "no batch", "cut", "two", "more"],
)
def test_bytes_that_are_no_batch_are_damage(raw: bytes) -> None:
    raw = raw and logged(raw, 0)
    with pytest.raises(VolumeCorruptError, match="ticks 1 to 1"):
        FORM.decode(LogPiece(1, 1, raw), RULES)


def test_a_compression_that_is_not_installed_is_told_as_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> None:
        raise PluginError("ZSTD needs cramjam")

    monkeypatch.setattr("gapless_log.kafka.format.records", missing)
    with pytest.raises(VolumeCorruptError, match="needs cramjam"):
        FORM.decode(piece(strangers(b"a"), 1), RULES)


def test_ours_come_back_as_they_were_with_their_mark() -> None:
    events = columns(
        ({"s": "é", "i": -5, "f": 0.1, "b": True, "key": "k"}, None, b"one"),
        ({}, Extras(7, 1_900_000_000_000, "c", "r", "t"), b""),
    )

    batch, marks = FORM.decode(piece(joined([FORM.encode(MARK, events)], 5), 2), RULES)

    assert list(batch.events) == timed(events, 5)
    assert marks == [(tick_at(3, 1), MARK)]


def test_only_what_a_sender_has_set_counts_as_extras() -> None:
    for extras, has_extras in ((None, False), (Extras(7), True)):
        raw = FORM.encode(MARK, columns(({}, None, b""), ({}, extras, b"")))
        batch, _ = FORM.decode(piece(raw, 2), RULES)
        assert batch.has_extras is has_extras
    assert FORM.decode(piece(strangers(b"a"), 1), RULES)[0].has_extras is False


def test_what_is_kept_for_matching_is_what_the_events_say() -> None:
    mine = records(next(batches(FORM.encode(MARK, columns(({"n": 1}, Extras(7), b"a"))))))[0]
    theirs = NewRecord(5, b"k", b"b", [("n", b"7"), ("h", b"x")])
    broken = NewRecord(6, None, None, [("n", b"x"), ("h", b"\xff")])
    again = NewRecord(7, mine.key, mine.value, mine.headers)
    raw = encode([theirs, again, broken, theirs], Compression.NONE)

    batch, _ = FORM.decode(piece(raw, 4), RULES)

    assert batch.has_extras
    assert batch.topics == ["orders"] * 4
    encoded = EventBatch(batch.ticks, batch.events, batch.body_lengths)
    assert list(map(msgspec.to_builtins, batch.headers)) == list(map(msgspec.to_builtins, encoded.headers))


def test_ours_can_be_read_by_others() -> None:
    raw = FORM.encode(MARK, columns(({"origin": "JFK", "delay": 75, "late": True, "key": "7"}, None, b"body")))

    (record,) = records(next(batches(raw)))

    assert (record.key, record.value) == (b"7", b"body")
    assert list(record.headers)[1:] == [
        ("gapless.types", b"sibs"),
        ("origin", b"JFK"),
        ("delay", b"75"),
        ("late", b"true"),
        ("key", b"7"),
    ]


def test_a_mark_is_met_where_only_the_end_of_its_batch_is_read() -> None:
    whole = piece(FORM.encode(MARK, columns(({}, None, b"a"), ({}, None, b"b"))), 2, first=10)

    batch, marks = FORM.decode(LogPiece(tick_at(3, 12), whole.last, whole.raw), RULES)

    assert list(batch.ticks) == [tick_at(3, 12)]
    assert marks == [(tick_at(3, 11), MARK)]


def test_a_mark_behind_the_end_of_a_piece_is_not_met() -> None:
    one = columns(({}, None, b"a"))
    whole = piece(
        joined([FORM.encode(dataclasses.replace(MARK, first=first, count=1), one) for first in (11, 12)], 5),
        2,
        first=10,
    )

    _, marks = FORM.decode(LogPiece(whole.first, whole.first, whole.raw), RULES)

    assert [mark.first for _, mark in marks] == [11]


def test_what_such_a_log_cannot_contain_is_refused() -> None:
    with pytest.raises(ValueError, match="takes events of topic 'orders' alone, not of 'other'"):
        FORM.encode(MARK, columns(({}, None, b"a"), topic="other"))


@pytest.mark.parametrize(
    "headers",
    [
        [("gapless", b"no mark")],
        [("gapless", None)],
        [("gapless.types", b"i")],
        [("gapless.types", b"i"), ("n", b"x")],
        [("gapless.types", b"z"), ("n", b"1")],
        [("gapless.types", b"s"), ("n", None)],
        [("gapless.types", b"ss"), ("n", b"1"), ("n", b"2")],
        [("gapless.types", b""), ("gapless.extras", b"\xff\xff")],
        [("gapless.types", b""), ("h", b"1")],
        [("gapless.types", None)],
    ],
)
def test_what_only_looks_like_ours_is_a_strangers(headers: list[tuple[str, bytes | None]]) -> None:
    raw = encode([NewRecord(1, None, b"v", headers)], Compression.NONE)

    batch, marks = FORM.decode(piece(raw, 1), RULES)

    assert bodies(batch) == [b"v"]
    assert not [name for header in batch.headers for name in header.properties if name.startswith("gapless")]
    assert marks == []


OURS = st.tuples(
    st.sampled_from([[], [("gapless", b"no mark")], [("other", b"x")]]),
    st.sampled_from([b"is", b"is", b"is", b"ss", b"", b"z", None]),
    st.sampled_from([b"7", b"-12", b"x", b"", None]),
    st.sampled_from(["s", "s", "n", ""]),
    st.sampled_from([[], [], [("gapless.extras", msgspec.msgpack.encode(Extras(7)))]]),
)


@given(st.lists(OURS, min_size=1, max_size=4))
def test_a_record_of_ours_is_the_same_whatever_stands_beside_it(found: Sequence[Any]) -> None:
    new = [
        NewRecord(1, None, b"", [*before, ("gapless.types", types), ("n", number), (name, b"t"), *extras])
        for before, types, number, name, extras in found
    ]

    together, _ = FORM.decode(piece(encode(new, Compression.NONE), len(new)), RULES)

    alone = [FORM.decode(piece(encode([each], Compression.NONE), 1), RULES)[0].headers[0] for each in new]
    assert together.headers == alone


ALIKE = st.lists(st.tuples(st.text(max_size=3), st.integers(), st.booleans(), st.binary(max_size=80)), min_size=1)


@given(rows=ALIKE, name=st.sampled_from(["key", "k", "n"]), long=st.booleans())
def test_records_that_are_alike_are_encoded_as_one_by_one(rows: Sequence[Any], name: str, *, long: bool) -> None:
    events = [({name: text, "i": number % (1 << 62), "b": flag}, None, body) for text, number, flag, body in rows]
    if long:
        events = [({**properties, name: "x" * 3000}, None, body * 100) for properties, _, body in events]
    unlike = [*events, ({}, Extras(7), b"")]

    alike = FORM.encode(MARK, columns(*events))

    (batch,) = batches(FORM.encode(MARK, columns(*unlike)))
    one_by_one = [NewRecord(0, record.key, record.value, record.headers) for record in records(batch)[:-1]]
    assert alike == encode(one_by_one, Compression.NONE)


def test_an_append_is_one_batch_with_its_time() -> None:
    first, second = columns(({"n": 1}, None, b"a")), columns(({}, None, b"b"), ({}, None, b"c"))
    raws = [FORM.encode(MARK, each) for each in (first, second)]

    for some, count in ((raws[:1], 1), (raws, 3)):
        raw = joined(some, 5000)
        (batch,) = batches(raw)
        assert (batch.record_count, batch.max_timestamp) == (count, 5000)
        assert {record.timestamp for record in records(batch)} == {5000}
    events, marks = FORM.decode(piece(raw, 3), RULES)
    assert bodies(events) == [b"a", b"b", b"c"]
    assert [tick for tick, _ in marks] == [tick_at(3, 1), tick_at(3, 2)]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.one_of(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), TEXTS, FLOATS)
EXTRAS = st.none() | st.builds(Extras, st.integers(0, 9), st.integers(0, 1 << 40), st.text(max_size=3))
EVENTS = st.tuples(st.dictionaries(NAMES, VALUES, max_size=4), EXTRAS, st.binary(max_size=20))


@given(st.lists(EVENTS, min_size=1, max_size=5), st.booleans(), st.integers(0, (1 << 63) - 1))
def test_whatever_is_published_comes_back(events: Sequence[Any], keyed: bool, after: int) -> None:
    mark = LogMark("p", 1 << 40, 5, len(events), 1, after, b"", keyed, (1 << 64) - 1, False)
    published = columns(*events)

    batch, marks = FORM.decode(piece(joined([FORM.encode(mark, published)], 77), len(events)), RULES)

    assert list(batch.events) == timed(published, 77)
    assert marks == [(tick_at(3, 1), mark)]
