"""Properties as columns: the same, whether the events have the same ones or not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapless_spark.properties import columns_of, texts

NAMES = st.sampled_from(["a", "b", "c", "key"])
VALUES = st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(max_size=3)
ALIKE = st.lists(NAMES, unique=True).flatmap(
    lambda names: st.lists(st.fixed_dictionaries(dict.fromkeys(names, VALUES)), max_size=6)
)
MIXED = st.lists(st.dictionaries(NAMES, VALUES), max_size=6)


def text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@given(ALIKE | MIXED)
def test_every_event_has_its_properties(properties: list[dict[str, Any]]) -> None:
    columns = columns_of(properties)

    maps = columns.maps()
    maps.validate(full=True)
    assert maps.to_pylist() == [[(name, text(value)) for name, value in each.items()] for each in properties]
    for name in ("key", "a", "absent"):
        assert columns.one(name).to_pylist() == [text(each[name]) if name in each else None for each in properties]


def test_names_that_follow_each_other_alike_may_be_of_different_events() -> None:
    """a, b | c, a, b | c: in this order they are a, b, c twice."""
    properties: list[dict[str, Any]] = [{"a": 1, "b": 2}, {"c": 3, "a": 4, "b": 5}, {"c": 6}]

    assert columns_of(properties).maps().to_pylist() == [[*map(_as_text, each.items())] for each in properties]


def _as_text(item: tuple[str, Any]) -> tuple[str, str]:
    name, value = item
    return name, str(value)


def test_as_many_events_as_ever_share_the_names() -> None:
    for count in (1, 2, 3, 4, 5, 1000, 1024, 1025):
        columns = columns_of([{"n": number, "s": "x"} for number in range(count)])

        assert columns.maps().to_pylist() == [[("n", str(number)), ("s", "x")] for number in range(count)]


def test_texts() -> None:
    assert texts([]).to_pylist() == []
    assert texts(["True", True, 1, 1.0, False, -0.5, 1 << 62]).to_pylist() == [
        "True",
        "true",
        "1",
        "1.0",
        "false",
        "-0.5",
        str(1 << 62),
    ]
