"""Positions that were told, and what nobody was told: what U03 sees, and what is right."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.stream.ticks import STEP
from gapless.core.wire import messages as m
from gapless_sim.oracles.positions import TOLD_MAX, U03Positions
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, violates


def looking() -> tuple[ModelFixture, U03Positions]:
    fixture = ModelFixture(U03Positions)
    oracle = fixture.oracles[U03Positions]
    assert isinstance(oracle, U03Positions)
    fixture.observe.sent(NODE, 1, m.PubendNumber(0, P))
    return fixture, oracle


@pytest.mark.parametrize(
    "message",
    [
        m.Ticks(1, [m.Position(P, 100)]),
        m.AttachedTo(1, 1, 1, b"", [m.Position(P, 100)]),
        m.Subscribed(1, 1, 1, b"", False, [m.Position(P, 100)]),
        m.DeliverSilence(0, 100, None),
        m.DeliverGap(1, 0, 50, 100, "released early"),
        m.SubscriptionList(
            1, [m.ListedSubscription(1, "c", "s", ("#",), "", False, [m.Position(P, 100)], 0, 0.0, True)]
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_whatever_tells_a_position_is_remembered(message: Any) -> None:
    fixture, oracle = looking()

    fixture.observe.sent(NODE, 1, message)

    assert oracle.positions == {P: [100]}


def test_of_very_many_some_of_each_age_are_remembered() -> None:
    fixture, oracle = looking()
    for tick in range(4 * TOLD_MAX):
        fixture.observe.sent(NODE, 1, m.DeliverSilence(0, tick, None))

    kept = sorted(oracle.positions[P])
    assert len(kept) == TOLD_MAX
    assert all(any(age * TOLD_MAX <= tick < (age + 1) * TOLD_MAX for tick in kept) for age in range(4))


def test_what_nobody_was_told_may_be_granted_when_the_pubend_has_come_there() -> None:
    fixture, oracle = looking()
    fixture.observe.sent(NODE, 1, m.DeliverSilence(0, 100, None))
    fixture.say(0, 1000 + STEP)

    oracle.taken("c", NODE, P, 1000 + 2 * STEP)
    with violates("U03"):
        oracle.taken("c", NODE, P, 1001 + 2 * STEP)
