"""What records become by rules: properties of headers, keys and JSON fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.stream.events import PlainProperties
from gapless_log.kafka.mapping import CONVERSIONS, Kind, RecordMapping, Rules, is_reserved, mapping_of
from gapless_log.kafka.records import Headers, NewRecord


def properties(rules: Rules, key: bytes | None = None, value: bytes | None = None, **headers: bytes | None) -> Any:
    """What a record becomes; twice, for the second time the names of its headers are known."""
    mapping = RecordMapping(rules)
    first = made(mapping, list(headers.items()), key, value)
    assert made(mapping, list(headers.items()), key, value) == first
    return first


def made(mapping: RecordMapping, headers: Headers, key: bytes | None = None, value: bytes | None = None) -> Any:
    (found,) = mapping.properties_of([NewRecord(0, key, value, headers)])
    return found


def test_headers_are_text_and_the_key_is_a_property() -> None:
    assert properties(Rules("t"), b"7", origin=b"JFK", café=b"\xc3\xa9") == {
        "origin": "JFK",
        "café": "é",
        "key": "7",
    }
    assert properties(Rules("t", key=""), b"7") == {}
    assert properties(Rules("t", key="customer"), b"7", customer=b"8") == {"customer": "7"}


def test_what_is_no_text_is_no_property() -> None:
    assert properties(Rules("t"), b"\xff", broken=b"\xff", null=None, fine=b"1") == {"fine": "1"}


def test_only_the_headers_that_are_wanted() -> None:
    assert properties(Rules("t", headers=("a", "b")), a=b"1", b=b"2", c=b"3") == {"a": "1", "b": "2"}
    assert properties(Rules("t", headers=()), a=b"1") == {}


def test_of_two_headers_of_a_name_the_last_one_counts_even_if_it_is_none() -> None:
    mapping = RecordMapping(Rules("t", types={"n": "int"}))

    for _ in range(2):
        assert made(mapping, [("a", b"1"), ("a", b"2")]) == {"a": "2"}
        assert made(mapping, [("n", b"1"), ("n", b"x")]) == {}
        assert made(mapping, [("a", b"1"), ("a", None)]) == {}


def test_headers_of_ours_and_without_a_name_are_no_properties() -> None:
    mapping = RecordMapping(Rules("t"))

    for _ in range(2):
        assert made(mapping, [("gapless", b"1"), ("gapless.types", b""), ("", b"x")]) == {}
    assert [is_reserved(name) for name in ("gapless", "gapless.x", "gaplessly", "x")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("int", b"-12", -12),
        ("int", b"+7", 7),
        ("int", b"9223372036854775807", (1 << 63) - 1),
        ("int", b"9223372036854775808", None),
        ("int", b"1_0", None),
        ("int", b" 1", None),
        ("int", b"", None),
        ("int", b"-", None),
        ("float", b"1.5e3", 1500.0),
        ("float", b"nan", None),
        ("float", b"inf", None),
        ("float", b"1_0.0", None),
        ("float", b" 1.0", None),
        ("bool", b"TRUE", True),
        ("bool", b"false", False),
        ("bool", b"1", None),
        ("int32", b"\xff\xff\xff\xfe", -2),
        ("int32", b"\0\0\0", None),
        ("int64", b"\0\0\0\0\0\0\1\0", 256),
        ("float64", b"\x3f\xf8\0\0\0\0\0\0", 1.5),
        ("float64", b"\x7f\xf8\0\0\0\0\0\0", None),
    ],
)
def test_the_bytes_of_a_header_have_a_type(kind: Kind, data: bytes, value: object) -> None:
    found = properties(Rules("t", types={"h": kind}), h=data)

    assert found == ({} if value is None else {"h": value})
    assert [type(each) for each in found.values()] == ([] if value is None else [type(value)])


def test_fields_of_a_json_object() -> None:
    rules = Rules("t", fields={"total": "order.total", "origin": "origin", "gone": "order.x.y"})
    value = b'{"origin": "JFK", "order": {"total": 12.5, "x": [1]}, "rest": {"deep": [1, 2]}}'

    assert properties(rules, value=value) == {"total": 12.5, "origin": "JFK"}
    assert properties(rules, value=value, origin=b"header") == {"total": 12.5, "origin": "JFK"}


@pytest.mark.parametrize(
    "value", [b"", b"no json", b"[1]", b'{"f": [1]}', b'{"f": null}', b'{"f": 99999999999999999999}', b"\xff", None]
)
def test_a_value_without_the_field_makes_no_property(value: bytes | None) -> None:
    assert properties(Rules("t", fields={"f": "f"}), value=value) == {}


@pytest.mark.parametrize(("value", "found"), [(b"true", True), (b"3", 3), (b'"x"', "x"), (b"-1.5", -1.5)])
def test_a_field_keeps_its_type(value: bytes, found: object) -> None:
    assert properties(Rules("t", fields={"f": "f"}), value=b'{"f": ' + value + b"}") == {"f": found}


def test_rules_are_stored_and_found_again() -> None:
    rules = Rules("orders", "k", ("a",), {"a": "int"}, {"f": "x.y"})

    assert mapping_of(rules.encode()).topic == "orders"
    assert mapping_of(rules.encode()) is mapping_of(rules.encode())
    assert Rules("orders").encode() == b'{"topic":"orders"}'
    with pytest.raises(ValueError, match="no rules for a Kafka topic"):
        mapping_of(b"nonsense")


HEADERS = st.lists(st.tuples(st.sampled_from(["a", "b", "é", "", "gapless"]), st.none() | st.binary(max_size=12)))


@given(
    st.sampled_from([Rules("t"), Rules("t", headers=("a",)), Rules("t", types={"a": "int"}, fields={"f": "f"})]),
    st.lists(st.tuples(HEADERS, st.none() | st.binary(max_size=4), st.sampled_from([None, b"", b'{"f": 1}']))),
)
def test_a_record_becomes_the_same_whatever_stands_beside_it(rules: Rules, contents: Any) -> None:
    found = [NewRecord(0, key, value, headers) for headers, key, value in contents]
    alone = [properties for record in found for properties in RecordMapping(rules).properties_of([record])]

    together = RecordMapping(rules)
    assert together.properties_of(found) == alone
    assert together.properties_of(found) == alone  # now the names are known


@given(
    st.sampled_from([*CONVERSIONS]),
    HEADERS,
    st.none() | st.binary(max_size=8),
    st.none() | st.binary(max_size=30),
)
def test_whatever_a_stranger_writes_makes_properties_that_may_be_sent(
    kind: Kind, headers: list[tuple[str, bytes | None]], key: bytes | None, value: bytes | None
) -> None:
    import msgspec

    mapping = RecordMapping(Rules("t", types={"b": kind}, fields={"f": "f"}))
    first = made(mapping, headers, key, value)

    assert made(mapping, headers, key, value) == first
    msgspec.convert([first], PlainProperties)
