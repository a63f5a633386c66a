"""Both implementations of the functions over a batch's bytes: they agree on whatever a stranger may send.

Where `gapless_fast` is not installed, the Python one is tested alone; `tox -e fast` builds it. Run as a program, it
feeds both as many changed batches as the first argument says:

    PYTHONPATH=tests python tests/unit/gapless/core/stream/test_fast.py 1000000
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from struct import pack
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gapless.core.stream import batch_bytes, fast
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import Event, Extras, encode_event

try:
    import gapless_fast as compiled
except ImportError:
    compiled = None
IMPLEMENTATIONS = [batch_bytes] if compiled is None else [batch_bytes, compiled]

each_implementation = pytest.mark.parametrize("code", IMPLEMENTATIONS, ids=lambda code: code.__name__)
needs_both = pytest.mark.skipif(compiled is None, reason="gapless_fast is not installed: tox -e fast")

TAGS = b"\x80\x81\x90\x94\x95\xa0\xa1\xbf\xc0\xc2\xc4\xca\xcb\xcf\xd3\xd9\xdc\xde"
"""What msgpack begins values with: changed at random, few events would get beyond the first of them."""
VALUES: list[Any] = [
    *(True, False, 0, 1, 1.0, -0.0, 0.0, -1, -32, -33, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, 2**53 + 1),
    *(2.0**53, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2.0**63, -(2.0**63), 0.5),
    *("", "a", "é", "\U0001f600", "x" * 31, "x" * 32, "x" * 256, "x" * 70_000, 1.7976931348623157e308, 5e-324),
]
MANY = [dict.fromkeys(map(str, range(count)), 1) for count in (16, 70_000)]
NAMES = ["w", "x", "é", "n" * 40]
values = (
    st.sampled_from(VALUES) | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
properties = st.dictionaries(st.sampled_from(NAMES), values, max_size=4)
extras = st.none() | st.builds(
    Extras,
    st.integers(0, 9),
    st.integers(0, 253_402_300_799_999),
    st.text(max_size=3),
    st.just(""),
    st.text(max_size=3),
)
events = st.builds(encode_event, st.sampled_from(["t", "t.u", "ü" * 40]), properties, extras, st.binary(max_size=300))


def batch_of(encoded: list[bytes]) -> EventColumns:
    return EventColumns.of(encoded, [len(msgspec.msgpack.decode(one, type=Event).body) for one in encoded])


batches = st.lists(events, min_size=1, max_size=12).map(batch_of)


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns, with the types of numbers; or that it refuses."""
    try:
        return repr(function(*arguments))
    except ValueError:
        return "refused"


def bits_of(count: int) -> list[int]:
    return [1 << place for place in range(count)]


def agree(blob: bytes, lengths: bytes, most: int, name: str, mask: int) -> bool:
    """Feeds both implementations the same bytes. Returns whether they took them for a batch."""
    judged = outcome(batch_bytes.check, blob, lengths, most)
    assert compiled is not None
    assert judged == outcome(compiled.check, blob, lengths, most)
    count = len(lengths) // 8
    asked = [blob], [lengths], name, bits_of(count)
    ticks = pack(f"<{count}Q", *range(5, 5 + count))
    assert outcome(batch_bytes.gather, [blob], [lengths], ticks, mask) == outcome(
        compiled.gather, [blob], [lengths], ticks, mask
    )
    if judged == "refused":
        outcome(compiled.column, *asked)  # may say anything about it but must end in order
        return False
    assert outcome(batch_bytes.column, *asked) == outcome(compiled.column, *asked)
    return True


def changed(rng: random.Random, blob: bytes, lengths: bytes) -> tuple[bytes, bytes]:
    """Some bytes replaced, inserted, removed, or the end cut off; mostly with lengths that still add up."""
    data = bytearray(blob)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        way = rng.randrange(5)
        if way == 0:
            data[at : at + 1] = bytes([rng.randrange(256)])
        elif way == 1:
            data[at : at + 1] = bytes([rng.choice(TAGS)])
        elif way == 2:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif way == 3:
            del data[at : at + rng.randrange(1, 9)]
        else:
            del data[at:]
    numbers = list(memoryview(lengths).cast("I")) if lengths else []
    if numbers and rng.randrange(8):
        numbers[-2] = max(0, numbers[-2] + len(data) - len(blob))
        if not rng.randrange(4):
            numbers[-1] = rng.choice([numbers[-1] + 1, max(0, numbers[-1] - 1), 0, max(0, len(data) - 9)])
    pairs = pack(f"<{len(numbers)}I", *numbers)
    return bytes(data), pairs if rng.randrange(16) else pairs[: rng.randrange(len(pairs) + 1)]


@needs_both
@given(batches, st.sampled_from(NAMES), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_both_agree_on_what_is_whole_cut_off_and_changed(columns: EventColumns, name: str, rng: random.Random) -> None:
    mask = rng.getrandbits(columns.count)
    longest = max(columns.wholes())
    assert agree(columns.blob, columns.lengths, longest, name, mask)
    assert not agree(columns.blob, columns.lengths, longest - 1, name, mask)
    assert not agree(columns.blob[:-1], columns.lengths, longest, name, mask << 1)
    for _ in range(20):
        agree(*changed(rng, columns.blob, columns.lengths), longest, name, mask)


@each_implementation
@given(batches)
@settings(max_examples=30, deadline=None)
def test_a_batch_has_the_topics_of_its_events(code: ModuleType, columns: EventColumns) -> None:
    decoded = [msgspec.msgpack.decode(one, type=Event) for one in columns.cut()[0]]
    topics = [event.topic for event in decoded]

    found, any_extras = code.check(columns.blob, columns.lengths, 1 << 32)

    assert found == (topics[0] if len(set(topics)) == 1 else topics)
    assert any_extras == any(event.extras is not None for event in decoded)


@each_implementation
@given(st.lists(batches, max_size=3), st.sampled_from(NAMES))
@settings(max_examples=30, deadline=None)
def test_a_column_has_the_events_of_each_value(code: ModuleType, several: list[EventColumns], name: str) -> None:
    found = [msgspec.msgpack.decode(one, type=Event).properties.get(name) for each in several for one in each.cut()[0]]

    groups, true, false, null, floats = code.column(
        [each.blob for each in several], [each.lengths for each in several], name, bits_of(len(found))
    )

    for place, value in enumerate(found):
        mask = (
            {True: true, False: false}[value] if isinstance(value, bool) else null if value is None else groups[value]
        )
        assert mask >> place & 1
    assert sum(map(int.bit_count, (true, false, null, *groups.values()))) == len(found)
    assert floats == any(isinstance(value, float) for value in found)


@each_implementation
@given(st.lists(batches, max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_a_delivery_has_the_selected_events(code: ModuleType, several: list[EventColumns], rng: random.Random) -> None:
    cut = [one for each in several for one in zip(*each.cut(), strict=True)]
    mask = rng.getrandbits(len(cut)) if cut else 0
    chosen = [(place, *cut[place]) for place in range(len(cut)) if mask >> place & 1]

    payload = code.gather(
        [each.blob for each in several],
        [each.lengths for each in several],
        pack(f"<{len(cut)}Q", *range(7, 7 + len(cut))),
        mask,
    )

    rows = b"".join(pack("<QII", 7 + place, len(event), body) for place, event, body in chosen)
    assert payload == pack("<I", len(chosen)) + rows + b"".join(event for _, event, _ in chosen)


@each_implementation
@given(st.lists(st.tuples(properties, st.binary(max_size=300)), max_size=12))
@settings(max_examples=40, deadline=None)
@example([(MANY[0], b"x" * 256), (MANY[1], b"x" * 70_000)])
def test_messages_are_encoded_as_one_by_one(code: ModuleType, messages: list[tuple[dict[str, Any], bytes]]) -> None:
    each = [encode_event("t.ü", *message[:1], None, message[1]) for message in messages]
    most = max(map(len, each), default=0)
    arguments = "t.ü", [body for _, body in messages], [properties for properties, _ in messages]

    assert code.encode(*arguments, most) == (
        b"".join(pack("<II", len(one), len(body)) for one, (_, body) in zip(each, messages, strict=True)),
        b"".join(each),
    )
    assert not messages or code.encode(*arguments, most - 1) is None


class Text(str):
    __slots__ = ()


@each_implementation
@pytest.mark.parametrize(
    ("body", "sent"),
    [
        (bytearray(b"x"), {}),
        ("x", {}),
        (b"x", None),
        (b"x", {"": 1}),
        (b"x", {1: 1}),
        (b"x", {"w": None}),
        (b"x", {"w": b"x"}),
        (b"x", {"w": float("nan")}),
        (b"x", {"w": float("inf")}),
        (b"x", {"w": 1 << 63}),
        (b"x", {"w": -(1 << 63) - 1}),
        (b"x", {"w": "\ud800"}),
        (b"x", {"\ud800": 1}),
        (b"x", {"w": [1]}),
    ],
)
def test_a_message_that_is_not_plain_is_left_to_who_looks_at_it_alone(
    code: ModuleType, body: Any, sent: Mapping[Any, Any]
) -> None:
    assert code.encode("t", [b"first", body], [{}, sent], 1000) is None


@each_implementation
@pytest.mark.parametrize("depth", [1, 900, 100_000])
def test_no_event_can_nest(code: ModuleType, depth: int) -> None:
    """What the headers have behind the last known one would be skipped by every reader, however deep it is."""
    event = b"\x94\xa1t\x80\x96\x04\x00\xa0\xa0\xa0" + b"\x91" * depth + b"\xc0" + b"\xc4\x01x"

    with pytest.raises(ValueError):
        code.check(event, pack("<II", len(event), 1), 1 << 32)


@each_implementation
def test_what_is_not_equally_long_is_refused(code: ModuleType) -> None:
    one = batch_of([encode_event("t", {}, None, b"x")])
    tick = pack("<Q", 5)
    for wrong in [
        ([one.blob], [one.lengths], tick * 2, 1),
        ([one.blob], [one.lengths], tick[1:], 1),
        ([one.blob], [], tick, 1),
        ([one.blob], [one.lengths[1:]], tick, 1),
        ([one.blob], [one.lengths], tick, 2),
    ]:
        with pytest.raises(ValueError):
            code.gather(*wrong)
    with pytest.raises(ValueError):
        code.column([one.blob], [], "w", [1])
    with pytest.raises(ValueError):
        code.encode("t", [b"x"], [], 1000)


def test_what_is_chosen_is_what_is_installed() -> None:
    chosen = batch_bytes if compiled is None else compiled

    assert (compiled is not None) == fast.COMPILED
    assert (fast.column, fast.gather, fast.encode) == (chosen.column, chosen.gather, chosen.encode)


@needs_both
def test_another_series_is_not_used() -> None:
    """Its functions may have other arguments; what is installed beside us is not for us to choose."""
    program = (
        "import gapless_fast; gapless_fast.__version__ = '9.0';"
        "from gapless.core.stream import fast; print(fast.VERSION or 'none')"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "none"


def test_a_refusal_says_what_is_wrong() -> None:
    columns = batch_of([encode_event("t", {"w": 1}, None, b"x")])
    broken = EventColumns(1, columns.lengths, columns.blob.replace(b"\xa1w", b"\xa0w"))

    with pytest.raises(ValueError, match="malformed: Expected `str` of length >= 1"):
        broken.check()


def campaign(count: int) -> None:
    """Feeds both implementations so many changed batches, of one to four events."""
    rng = random.Random(18)
    whole = 0
    for _ in range(count):
        encoded = [
            encode_event(
                rng.choice(["t", "t.u", "ü" * 40]),
                {rng.choice(NAMES): rng.choice(VALUES[:43]) for _ in range(rng.randrange(4))},
                rng.choice([None, None, Extras(priority=rng.randrange(10), type="é")]),
                rng.randbytes(rng.randrange(20)),
            )
            for _ in range(rng.randrange(1, 5))
        ]
        columns = batch_of(encoded)
        blob, lengths = changed(rng, columns.blob, columns.lengths)
        whole += agree(blob, lengths, 1 << 32, rng.choice(NAMES), rng.getrandbits(columns.count))
    print(f"{count:,} changed batches: both agree on all; {whole:,} were batches all the same")  # noqa: T201


if __name__ == "__main__":
    campaign(int(sys.argv[1]))
