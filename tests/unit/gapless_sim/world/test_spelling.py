"""A selector that is written in another way is the same selector, in the words of the product's lexer."""

from __future__ import annotations

import pytest

from gapless.selectors.lexer import canonical
from gapless_sim.workloads.filters import SELECTORS
from gapless_sim.world.spelling import respelt


@pytest.mark.parametrize("selector", [selector for selector, _ in SELECTORS], ids=str)
def test_each_spelling_is_the_same_selector(selector: str) -> None:
    spelt = [respelt(selector, number) for number in range(3)]

    assert {canonical(each) for each in spelt} == {canonical(selector)}


def test_the_spellings_differ_but_not_in_literals() -> None:
    assert [respelt("a = ' x AND y' AND b IS NULL", number) for number in range(4)] == [
        "a = ' x AND y' AND b IS NULL",
        "a  \t=  \t' x AND y'  \tAND  \tb  \tIS  \tNULL",
        "a=' x AND y' and b is null",
        "a = ' x AND y' AND b IS NULL",
    ]
