"""Events in columns: encoded once, shared ever after, taken apart only where somebody wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream import fast
from gapless.core.stream.batch_bytes import mask_flags
from gapless.core.stream.columns import EMPTY, BatchHeaders, EventBatch, EventColumns
from gapless.core.stream.events import Extras, encode_event
from gapless.core.stream.ticks import STEP
from gapless.selectors import BatchMatcher, Filter
from gapless.selectors.columns import Groups

finite = st.floats(allow_nan=False, allow_infinity=False)
values = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), finite, st.text(max_size=20))
names = st.text(min_size=1, max_size=8)
plain_events = st.lists(
    st.tuples(st.text(min_size=1, max_size=20), st.dictionaries(names, values, max_size=4), st.binary()),
    min_size=1,
    max_size=20,
)


def columns(events: list[tuple[str, dict[str, object], bytes]]) -> EventColumns:
    """What a publisher makes of these (topic, properties, body)."""
    encoded = [encode_event(topic, properties, None, body) for topic, properties, body in events]
    return EventColumns.of(encoded, [len(body) for _, _, body in events])


@given(plain_events, st.data())
def test_select_and_slice_agree_with_lists(
    events: list[tuple[str, dict[str, object], bytes]], data: st.DataObject
) -> None:
    """Whether the headers were decoded before or not."""
    batch = columns(events).batch(range(1, len(events) + 1))
    if data.draw(st.booleans()):
        assert len(batch.headers) == len(events)
    mask = data.draw(st.integers(0, (1 << len(events)) - 1))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(events)), st.integers(0, len(events)))))

    selected, sliced = batch.select(mask), batch.slice(start, stop)

    assert list(selected.ticks) == [tick for at, tick in enumerate(batch.ticks) if mask >> at & 1]
    assert [header.topic for header in selected.headers] == [e[0] for at, e in enumerate(events) if mask >> at & 1]
    assert list(sliced.ticks) == list(batch.ticks)[start:stop]
    assert EventBatch.concatenate([batch.slice(0, start), batch.slice(start, len(events))]) == batch


@pytest.mark.parametrize(
    "broken",
    [
        EventColumns(1, (5).to_bytes(4, "little") + (1).to_bytes(4, "little"), b"1234"),
        EventColumns(1, (4).to_bytes(4, "little") + (4).to_bytes(4, "little"), b"1234"),
        EventColumns(1, (4).to_bytes(4, "little") + (1).to_bytes(4, "little"), b"\xc1\xc1\xc1\xc1"),
        columns([("t", {"nested": {}}, b"")]),
        columns([("t", {"big": 2**64 - 1}, b"")]),
        columns([("t", {"list": [1]}, b"")]),
    ],
)
def test_a_malformed_batch_is_refused(broken: EventColumns) -> None:
    """A broker believes no client: lengths, msgpack and the types of properties are checked."""
    with pytest.raises(ValueError, match=r"lengths|body|malformed"):
        broken.check()


@given(st.lists(plain_events, min_size=1, max_size=4), st.data())
def test_columns_and_single_events_are_the_same_batch(
    parts: list[list[tuple[str, dict[str, object], bytes]]], data: st.DataObject
) -> None:
    """Whatever is done to it, and whatever was asked of it before."""
    events = [event for part in parts for event in part]
    ticks = range(STEP, STEP * (len(events) + 1), STEP)
    batch = EventBatch.of(ticks, [columns(part) for part in parts])
    encoded = [encode_event(topic, properties, None, body) for topic, properties, body in events]
    same = EventBatch(ticks, encoded, [len(body) for *_, body in events])
    if data.draw(st.booleans()):
        batch.learn()
    for _ in range(data.draw(st.integers(0, 4))):
        batch, same = data.draw(changes(len(same)))(batch, same)

    assert list(batch.ticks) == list(same.ticks)
    if data.draw(st.booleans()):
        assert batch == same
    mask = data.draw(st.integers(0, (1 << len(same)) - 1))
    assert batch.payload(mask) == same.payload(mask)
    assert batch.payload((1 << len(same)) - 1) == same.payload((1 << len(same)) - 1)
    assert (batch.size, [*batch.lengths], [*batch.body_lengths]) == (same.size, [*same.lengths], [*same.body_lengths])
    assert b"".join(batch.row_blobs()) == b"".join(same.rows)
    assert (list(batch.topics), batch.has_extras) == (list(same.topics), same.has_extras)
    assert [header.topic for header in batch.headers] == [header.topic for header in same.headers]


def changes(count: int) -> st.SearchStrategy[Any]:
    """What is done to a batch of so many events, as a function of both."""
    inside = st.integers(0, count)
    sliced = st.tuples(inside, inside).map(lambda ends: lambda *both: [each.slice(*sorted(ends)) for each in both])
    chosen = st.integers(0, (1 << count) - 1).map(lambda mask: lambda *both: [each.select(mask) for each in both])
    joined = inside.map(
        lambda at: (
            lambda *both: [
                EventBatch.concatenate([each.slice(0, at), each.slice(at, count)]) if 0 < at < count else each
                for each in both
            ]
        )
    )
    cut = st.just(lambda batch, same: (batch, same) if len(batch.events) == len(same) else None)
    return st.one_of(sliced, chosen, joined, cut)


def test_a_slice_keeps_no_other_event_in_memory() -> None:
    """A page may keep one event of a large record for long."""
    whole = columns([("t", {}, b"x" * 1000)] * 100).batch(range(100))

    (alone,) = whole.slice(50, 51).columns

    assert len(alone.blob) < 1100


def test_a_batch_that_was_taken_apart_is_not_kept_as_a_whole_as_well() -> None:
    """The compiled check cuts nothing; without it, what a publisher sent is cut when it is checked."""
    published = columns([("t", {}, b"x")] * 3)
    published.cut()

    assert published.batch(range(3)).columns == ()
    assert published.batch(range(3)) == columns([("t", {}, b"x")] * 3).batch(range(3))


@given(st.integers(0), st.integers(1, 200))
def test_flags_are_the_bits_lowest_first(bits: int, count: int) -> None:
    """For `itertools.compress`."""
    mask = bits & ((1 << count) - 1)

    assert list(mask_flags(mask, count)) == [mask >> at & 1 for at in range(count)]


def test_a_batch_is_matched_by_header_fields_too() -> None:
    extras = [None, Extras(priority=9, type="x"), Extras(priority=5)]
    batch = EventColumns.of([encode_event("t", {"n": 1}, each, b"") for each in extras], [0] * 3).batch([7, 8, 9])
    for count in (1, 2, 3):
        matcher = BatchMatcher()
        matcher.add(1, Filter(("t",), "JMSPriority > 4"))
        matcher.add(2, Filter(("t",), "n = 1 AND JMSMessageID = 'ID:p@1:8'"))
        some = batch.slice(3 - count, 3)
        found = {key: mask << (3 - count) for mask, keys in some.match("p@1", matcher) for key in keys}

        assert found == {1: 0b110 >> (3 - count) << (3 - count)} | ({2: 0b010} if count > 1 else {})


def test_within_several_matchers_a_column_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EventColumns.of([encode_event("t", {"n": n % 2}, None, b"") for n in range(3)], [0] * 3).batch([7, 8, 9])
    batch.learn()
    made: list[str] = []
    column = fast.column

    def counted(blobs: Sequence[bytes], lengths: Sequence[bytes], name: str, bits: Sequence[int]) -> Groups:
        made.append(name)
        return column(blobs, lengths, name, bits)

    monkeypatch.setattr(fast, "column", counted)
    matcher = BatchMatcher()
    matcher.add(1, Filter(("t",), "n = 1"))

    with batch.matched_by_several():
        found = [batch.match("p@1", matcher)[0][0] for _ in range(3)]
    alone = batch.match("p@1", matcher)[0][0]

    assert [*found, alone] == [0b010] * 4
    assert made in ([], ["n", "n"]), "not at all where headers are decoded, else once for three, and once more"


def test_headers_that_nobody_asks_for_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = EventColumns.of([encode_event("t", {"n": 1}, None, b"")] * 3, [0] * 3).batch([7, 8, 9])
    monkeypatch.setattr(BatchHeaders, "__getitem__", None)
    matcher = BatchMatcher()
    matcher.add(1, Filter(("t",), "n = 1"))

    assert [(mask, list(keys)) for mask, keys in batch.match("p@1", matcher)] == [(0b111, [1])]
    matcher.add(2, Filter(("t",), "n = 1 AND JMSPriority = 4"))
    with pytest.raises(TypeError):
        batch.match("p@1", matcher)
    matcher.remove(2)
    assert [(mask, list(keys)) for mask, keys in batch.match("p@1", matcher)] == [(0b111, [1])]


def test_batches_compare_by_value() -> None:
    """And the empty one is empty."""
    one = columns([("t", {}, b"x")]).batch([1])

    assert one == columns([("t", {}, b"x")]).batch((1,))
    assert one != columns([("t", {}, b"x")]).batch([2])
    assert hash(one) == hash(columns([("t", {}, b"x")]).batch((1,)))
    assert not len(EMPTY)


@pytest.mark.parametrize("cut", [False, True])
def test_headers_that_were_let_go_are_decoded_again(cut: bool) -> None:
    stored = EventColumns.of([encode_event("a", {"n": n}, None, b"x") for n in (1, 2)], (1, 1))
    stored.check()
    if cut:
        stored.cut()
    batch = stored.batch((5, 6))
    matcher = BatchMatcher()
    matcher.add(1, Filter(("a",), "n = 2"))
    found = batch.match("p", matcher)
    assert found
    batch.learn()
    batch.header(0)

    batch.forget_headers()

    assert not batch.decoded
    assert all(columns.headers is None for columns in batch.columns)
    assert batch.match("p", matcher) == found
    batch.forget_headers()
    assert [header.properties for header in batch.headers] == [{"n": 1}, {"n": 2}]
    assert batch.topics == ["a", "a"]
