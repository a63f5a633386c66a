"""What is said to gapless and what is said in Python select the same flights, and not by chance."""

from __future__ import annotations

import pytest

from gapless import Selector
from gapless_flights.data import fields_of, made_up_flights, properties_of
from gapless_flights.selections import SELECTIONS, DemoSubscription

FLIGHTS = made_up_flights(5000, seed=1)
OTHERS = [
    ",".join(
        ["NA"] * 3 + ["NA", "NA", dep, "NA", "NA", arr, carrier, "1", "NA", "JFK", dest, "NA", distance] + ["0"] * 3
    )
    for dep, arr in [("60", "120"), ("61", "121"), ("NA", "NA"), ("-5", "NA")]
    for carrier in ("UA", "B6")
    for dest in ("SFO", "BOS")
    for distance in ("499", "500", "1000", "1001")
]


@pytest.mark.parametrize("selection", SELECTIONS, ids=lambda selection: selection.name)
def test_both_sayings_agree(selection: DemoSubscription) -> None:
    """At the edges too: a delay of exactly 60, distances of 499 to 1001, and what is unknown."""
    selector = Selector(selection.selector)
    if selection.topic == "flights.LGA":
        return  # selected by topic, which is no matter of the selector
    for line in [*FLIGHTS, *OTHERS]:
        properties = {name: value for name, value in properties_of(line).items() if value != "NA"}
        assert selector.matches(properties) == selection.selects(fields_of(line)), line


def test_what_nobody_knows_is_not_selected() -> None:
    very_late = next(selection for selection in SELECTIONS if selection.name == "very-late")
    unknown = fields_of(OTHERS[-1])

    assert unknown["arr_delay"] == "NA"
    assert not very_late.selects(unknown)


def test_names_are_names_of_files() -> None:
    names = [selection.name for selection in SELECTIONS]

    assert len(set(names)) == len(names)
    assert all(name.replace("-", "").isalnum() for name in names)
