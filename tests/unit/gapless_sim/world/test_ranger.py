"""An application that reads by ranges: a second look at a range is compared with the first."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.client import Delivery, Gap
from gapless.core.stream.columns import EventColumns
from gapless.core.stream.events import encode_event
from gapless.core.wire.delivered import DeliveredColumns
from gapless_sim.recording.observation import Violation
from gapless_sim.world.ranger import Reading, check_same


def reading(*parts: list[int] | tuple[int, int]) -> Reading:
    """What was read of (0, 100]: lists are ticks of events, pairs are gaps."""

    class Ranger:
        lane = "client1:s"

    found: Any = Reading.__new__(Reading)
    found.ranger, found.pubend, found.lo, found.hi = Ranger(), "p@1", 0, 100
    found.parts = [delivery(part) if isinstance(part, list) else Gap("p@1", *part) for part in parts]
    return found  # type: ignore[no-any-return]


def delivery(ticks: list[int]) -> Delivery:
    columns = EventColumns.of([encode_event("t", {}, None, b"x") for _ in ticks], [1] * len(ticks))
    payload = columns.batch(ticks).payload((1 << len(ticks)) - 1)
    return Delivery("p@1", [DeliveredColumns.parse(payload, 0)], ticks)


def test_the_same_twice_is_the_same() -> None:
    check_same(reading([10, 20], [30]), reading([10], [20, 30]))


def test_what_has_become_a_gap_is_no_difference() -> None:
    check_same(reading([10, 20, 30]), reading((0, 25), [30]))
    check_same(reading((0, 15), [20, 30]), reading((0, 25), [30]))


@pytest.mark.parametrize(
    "again", [reading([10, 30]), reading([10, 20, 25, 30]), reading([10, 20]), reading((0, 15), [30])]
)
def test_what_is_missing_or_too_much_is_a_violation(again: Reading) -> None:
    with pytest.raises(Violation, match="twice"):
        check_same(reading([10, 20, 30]), again)
