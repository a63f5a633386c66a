from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given

from gapless.errors import InvalidMessageError, InvalidSelectorError
from gapless.selectors import Selector
from gapless.selectors.values import Value
from unit.gapless.selectors.strategies import events, headers, selectors, truth


@given(selectors, events, headers)
def test_it_selects_what_is_true(expression: str, properties: dict[str, Value], fields: dict[str, Value]) -> None:
    assert Selector(expression).matches(properties, fields) is (truth(expression, properties, fields) is True)


@pytest.mark.parametrize("blank", ["", "  \n", "TRUE"])
def test_a_blank_one_selects_everything(blank: str) -> None:
    assert Selector(blank).matches({})
    assert Selector(blank).selects_everything
    assert not Selector("a IS NULL").selects_everything


def test_headers_stand_beside_properties() -> None:
    selector = Selector("JMSPriority > 4 AND JMSXGroupID = 'g' AND JMS_vendor")

    assert selector.matches({"JMSXGroupID": "g", "JMS_vendor": True}, {"JMSPriority": 9})
    assert not selector.matches({"JMSXGroupID": "g", "JMS_vendor": True, "JMSPriority": 9})


def test_an_error_says_where() -> None:
    with pytest.raises(InvalidSelectorError) as caught:
        Selector("origin = 'JFK' AND dep_delay > 'x'")

    assert caught.value.position == 31
    assert caught.value.expression == "origin = 'JFK' AND dep_delay > 'x'"


def test_equality_is_of_what_is_asked() -> None:
    assert Selector("a = 1 AND b") == Selector("b and (a=1)")
    assert hash(Selector("a = 1 AND b")) == hash(Selector("b and (a=1)"))
    assert Selector("a = 1") != Selector("a = '1'")
    assert Selector("a = 1") != object()


def test_it_shows_how_it_was_written() -> None:
    assert Selector("a  =  1").expression == "a  =  1"
    assert repr(Selector("a  =  1")) == "Selector(expression='a  =  1')"


@pytest.mark.parametrize("expression", ["", "a = 'x' AND NOT b + 1 > c", "a LIKE '%x_'"])
def test_it_pickles_and_copies(expression: str) -> None:
    selector = Selector(expression)

    for other in (pickle.loads(pickle.dumps(selector)), copy.deepcopy(selector)):
        assert other == selector
        assert other.expression == expression


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Selector("a").expression = "b"  # type: ignore[misc]


class Origin(str, Enum):
    KENNEDY = "JFK"

    def __eq__(self, other: object) -> bool:
        raise AssertionError("the value is compared, not the member")

    __hash__ = str.__hash__


class Delay(IntEnum):
    LATE = 75


@pytest.mark.parametrize(
    "properties",
    [
        {"a": Decimal(75)},
        {"a": b"JFK"},
        {"a": [75]},
        {"a": float("nan")},
        {"a": 1 << 63},
        {"a": "\ud800"},
        {5: 1},
        {"": 1},
        5,
    ],
)
def test_properties_that_no_event_can_have_are_refused_as_by_send(properties: Any) -> None:
    with pytest.raises(InvalidMessageError):
        Selector("a = 75").matches(properties)


def test_values_of_subclasses_are_what_they_are() -> None:
    assert Selector("origin = 'JFK' AND delay > 60").matches(
        {"origin": Origin.KENNEDY, "delay": Delay.LATE, "none": None}
    )


@pytest.mark.parametrize(("wrong", "position"), [("a = '\ud800'", 5), ("\udc80 = 1", 0)])
def test_a_selector_that_cannot_be_written_is_refused_with_the_place(wrong: str, position: int) -> None:
    with pytest.raises(InvalidSelectorError, match="half a surrogate pair") as raised:
        Selector(wrong)

    assert raised.value.position == position


@pytest.mark.parametrize("wrong", [5, None, b"a = 1"])
def test_a_selector_is_a_text(wrong: Any) -> None:
    with pytest.raises(InvalidSelectorError, match="a selector is a str, not"):
        Selector(wrong)


def test_the_expression_is_a_plain_text() -> None:
    class Text(str):
        __slots__ = ()

    assert type(Selector(Text("a = 1")).expression) is str
