"""The operator: what the listings say is believed only if it can be true."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gapless.core.client.link.effects import Listed
from gapless.core.wire.messages import ListedPubend, ListedSubscription, Position
from gapless_sim.workloads.scenario_operators import Operator
from gapless_sim.workloads.scenario_readers import Report
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture

PUBEND = ListedPubend("p@1", ("#",), 10, 20, 40, 50, 30, 100, 1)
SUBSCRIPTION = ListedSubscription(1, "client1", "report1", (), "", False, [Position("p@1", 5)], 0, 0.0, True, "node1")


class Given:
    """An answer that a test makes up."""

    error = None

    def __init__(self, *rows: Any) -> None:
        self.result = Listed(rows)


def operator() -> tuple[ScenarioFixture, Operator]:
    fixture = ScenarioFixture(Report, Operator).begin().rest(3)
    scenario = fixture.scenarios.scenarios[1]
    assert isinstance(scenario, Operator)
    scenario.client = fixture.scenarios.scenarios[0].client
    return fixture, scenario


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"newest": 51}, "an event beyond"),
        ({"lost": 51}, "more is gone"),
        ({"released": 51}, "more is released"),
        ({"created": 11}, "created at another time"),
        ({"lost": 19}, "came back"),
        ({"stable": 45, "released": 30}, "undone"),
        ({"newest": 39}, "newest event is gone"),
    ],
)
def test_what_can_not_be_true_of_a_pubend(changes: dict[str, int], what: str) -> None:
    _, scenario = operator()
    scenario._check_pubends(Given(PUBEND))  # type: ignore[arg-type]
    scenario._check_pubends(Given(PUBEND))  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=what):
        scenario._check_pubends(Given(msgspec.structs.replace(PUBEND, **changes)))  # type: ignore[arg-type]


def test_a_pubend_that_recovers_is_not_judged() -> None:
    _, scenario = operator()
    scenario._check_pubends(Given(msgspec.structs.replace(PUBEND, stable=0)))  # type: ignore[arg-type]
    assert "p@1" not in scenario.seen


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"lag_events": -1}, "negative"),
        ({"lag_seconds": -0.5}, "negative"),
        ({"acknowledged": [Position("p@1", 5), Position("p@1", 6)]}, "a pubend twice"),
        ({"selector": "other = 1"}, "filter of none"),
        ({"name": "nobody"}, "nobody ever asked"),
    ],
)
def test_what_can_not_be_true_of_a_subscription(changes: dict[str, Any], what: str) -> None:
    fixture, scenario = operator()
    row = fixture.row("report1")
    fits = msgspec.structs.replace(SUBSCRIPTION, client_id=row.client_id, topics=row.topics, selector=row.selector)
    scenario._check_subscriptions(Given(fits), [])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match=what):
        scenario._check_subscriptions(Given(msgspec.structs.replace(fits, **changes)), [])  # type: ignore[arg-type]


def test_what_is_there_is_listed_once() -> None:
    fixture, scenario = operator()
    row = fixture.row("report1")
    fits = msgspec.structs.replace(SUBSCRIPTION, client_id=row.client_id, topics=row.topics, selector=row.selector)
    assert scenario._is_sure(row)
    scenario._check_subscriptions(Given(fits), [row])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="is not listed"):
        scenario._check_subscriptions(Given(), [row])  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="listed twice"):
        scenario._check_subscriptions(Given(fits, fits), [row])  # type: ignore[arg-type]
    row.ended = True
    scenario._check_subscriptions(Given(), [row])  # type: ignore[arg-type]
