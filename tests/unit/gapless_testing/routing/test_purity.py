"""The suite notices a router that does not follow from its calls alone."""

from __future__ import annotations

import pytest

from conformance import broken_routers as broken
from conformance.broken_routers import Breach, BrokenElsewhere, covers
from gapless_testing.routing.breaches import Clause, ContractError
from gapless_testing.routing.purity import PurityTests as Suite

BREACHES = [Breach(broken.ThrowsDice, Suite.test_the_same_calls_have_the_same_effects, Clause.PURE)]
ELSEWHERE = Suite.test_another_process_sees_the_same_and_nothing_is_touched


def test_dice_are_noticed() -> None:
    BREACHES[0].check()


@pytest.mark.parametrize(
    ("harness", "named"),
    [
        (broken.ReadsTheClockElsewhere, "touches time.monotonic_ns"),
        (broken.StartsAThreadElsewhere, "touches _thread.start_"),
        (broken.ReadsAFileElsewhere, "touches open"),
        (broken.GoesThroughASetElsewhere, "PYTHONHASHSEED"),
    ],
)
def test_what_differs_elsewhere_is_noticed(harness: type[BrokenElsewhere], named: str) -> None:
    with pytest.raises(ContractError, match=named) as breach:
        ELSEWHERE(Suite(), harness())
    assert breach.value.clause is Clause.PURE


def test_every_test_can_fail() -> None:
    covers(BREACHES, Suite, ELSEWHERE)


def test_the_right_router_passes() -> None:
    ELSEWHERE(Suite(), broken.LocalHarness())
