"""The tests of what operators are told fail with a router that tells them wrong."""

from __future__ import annotations

import pytest

from conformance import broken_routers as broken
from conformance.broken_routers import Breach, covers, noticed
from gapless.core.gauges import Family
from gapless_testing.routing import Clause, ContractError
from gapless_testing.routing.operating import OperatorTests, check_figures

FIGURES = OperatorTests.test_figures_can_be_read
BREACHES = [
    *[
        Breach(router, FIGURES, Clause.OPERATOR)
        for router in (
            broken.MisnamesFigures,
            broken.MisnamesLabels,
            broken.CountsUnderAnotherName,
            broken.ExplainsNothing,
            broken.CountsTwice,
            broken.CountsTwoThings,
            broken.CountsDown,
            broken.CountsQuestions,
        )
    ],
    Breach(broken.CriesWolf, OperatorTests.test_no_alarm_is_raised_where_nothing_is_wrong, Clause.OPERATOR),
]


@pytest.mark.parametrize("breach", BREACHES, ids=str)
def test_a_breach_is_noticed(breach: Breach) -> None:
    breach.check()


def test_every_test_can_fail() -> None:
    covers(BREACHES, OperatorTests)


def test_a_router_may_count() -> None:
    assert noticed(FIGURES, broken.Figuring) == []


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_a_figure_is_a_number(value: float) -> None:
    with pytest.raises(ContractError, match="no number"):
        check_figures([Family("depth", "How deep it is.").gauge(value)])
