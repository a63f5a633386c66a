from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given

from gapless.errors import InvalidSelectorError
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
