"""L1 with something that breaks it and something that nearly does."""

from __future__ import annotations

from typing import Any

from gapless.core.wire.messages import ListedSubscription, ListSubscriptions, Position, SubscriptionList
from gapless_sim.oracles.listings import COUNTED, L1Lag
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P, violates

SESSION = 5


class Asked:
    """Somebody who asked while an SHB had events at 10, 20 and 30 of a subscription, and was told of one at 40."""

    def __init__(self) -> None:
        self.fixture = fixture = ModelFixture(L1Lag)
        fixture.opens()
        self.consumer = fixture.attach(fixture.row(name="s"), p=5)
        fixture.log((10, 1), (20, 2), (30, 3), (40, 4))
        fixture.progress(0, 30)
        fixture.observe.received(NODE, SESSION, ListSubscriptions(1))

    def listed(self, lag_events: int, acknowledged: int = 5, **changes: Any) -> None:
        fields: dict[str, Any] = {"lag_seconds": 1.0 if lag_events else 0.0, "lag_complete": True, **changes}
        account = self.fixture.model.accounts[self.consumer.row.number]
        positions = [Position(P, acknowledged)]
        row = ListedSubscription(account.sid, "c", "s", ("#",), "", True, positions, lag_events, **fields)
        self.fixture.observe.sent(NODE, SESSION, SubscriptionList(1, [row]))


def test_what_is_due_is_counted() -> None:
    asked = Asked()
    asked.listed(3)
    asked.listed(4)  # what arrived meanwhile may be counted, and may not be
    asked.listed(1, 20)

    assert asked.fixture.world.hits[COUNTED]


def test_who_lags_by_no_event_lags_by_no_time() -> None:
    asked = Asked()

    with violates("L1"):
        asked.listed(0, 30, lag_seconds=2.0)
