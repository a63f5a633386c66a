"""Offsets: one text for a position, and no loss on the way to Spark and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.ticks import FOREVER
from gapless.core.wire.tokens import CheckpointToken
from gapless.errors import InvalidTokenError
from gapless_spark.offsets import ORIGIN, carried_on, offset_of, token_of, went_back

TICKS = st.dictionaries(st.text("abcxyz-0123@", min_size=1), st.integers(0, FOREVER), max_size=8)
ORIGINS = st.tuples(st.text("net-01", min_size=1), st.integers(0, 1 << 40), st.integers(0, 9), st.binary(max_size=8))


@given(TICKS, ORIGINS)
def test_there_and_back(ticks: dict[str, int], origin: tuple[str, int, int, bytes]) -> None:
    network, *issued = origin
    token = CheckpointToken(network, ticks, *issued)  # type: ignore[arg-type]
    offset = offset_of(token)

    assert token_of(offset) == token
    assert token_of(json.loads(offset)) == token
    assert offset_of(token_of(offset)) == offset


def test_the_same_position_is_the_same_text() -> None:
    """Spark compares texts: keys in another order would be a batch with nothing in it."""
    one = CheckpointToken("n", {"b@1": 2, "a@1": 1})
    other = CheckpointToken("n", {"a@1": 1, "b@1": 2})

    assert offset_of(one) == offset_of(other)
    assert list(json.loads(offset_of(one))) == [ORIGIN, "a@1", "b@1"]
    assert " " not in offset_of(one)


def test_keys_of_ours_that_are_not_known_yet_are_passed_over() -> None:
    found = json.loads(offset_of(CheckpointToken("n", {"a@1": 1})))

    assert token_of({**found, "$later": {"x": 1}}).ticks == {"a@1": 1}


@pytest.mark.parametrize(
    "offset",
    [
        "",
        "null",
        "[]",
        "5",
        '{"a@1":1}',
        '{"$token":"gl1.x"}',
        '{"$token":7}',
        offset_of(CheckpointToken("n", {"a@1": 1})).replace(":1}", ":-1}"),
        offset_of(CheckpointToken("n", {"a@1": 1})).replace(":1}", ":true}"),
        offset_of(CheckpointToken("n", {"a@1": 1})).replace(":1}", ":1.0}"),
        offset_of(CheckpointToken("n", {"a@1": 1})).replace(":1}", ":9223372036854775808}"),
    ],
)
def test_what_is_no_offset_is_refused(offset: str) -> None:
    with pytest.raises(InvalidTokenError):
        token_of(offset)


def test_no_pubend_is_dropped() -> None:
    before = CheckpointToken("n", {"old@1": 5, "a@1": 1})
    later = CheckpointToken("n", {"a@1": 3, "new@1": 4})

    assert carried_on(before, later).ticks == {"old@1": 5, "a@1": 3, "new@1": 4}
    assert carried_on(later, later) is later


def test_who_went_back_is_named() -> None:
    start = CheckpointToken("n", {"a@1": 5, "b@1": 5, "gone@1": 9})
    end = CheckpointToken("n", {"a@1": 4, "b@1": 5, "new@1": 1})

    assert went_back(start, end) == {"a@1": (5, 4)}
    assert went_back(start, start) == {}
