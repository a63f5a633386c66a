from __future__ import annotations

from typing import Any

import pytest

from gapless.core.wire.messages import ListedPubend, ListedSubscription, Position
from gapless_sim.workloads.churn_listings import (
    check_connected,
    check_names,
    check_pubends,
    check_subscriptions,
)
from unit.gapless_sim.workloads.churn_fixture import ChurnFixture

P = "p@1"
ROW: dict[str, Any] = {
    "sid": 1,
    "client_id": "client1",
    "name": "one",
    "topics": ("#",),
    "selector": "",
    "connected": True,
    "acknowledged": [Position(P, 7)],
    "lag_events": 0,
    "lag_seconds": 0.0,
    "lag_complete": True,
    "node": "node1",
}
PUBEND: dict[str, Any] = {
    "pubend": P,
    "topics": ("#",),
    "created": 10,
    "lost": 20,
    "newest": 40,
    "stable": 50,
    "released": 30,
    "log_bytes": 1,
    "publishers": 1,
}


def row(**changes: Any) -> ListedSubscription:
    return ListedSubscription(**{**ROW, **changes})


def pubend(**changes: Any) -> ListedPubend:
    return ListedPubend(**{**PUBEND, **changes})


def test_a_good_listing_passes() -> None:
    client = ChurnFixture().first
    check_subscriptions(client, [row(), row(sid=2, name="two")])
    check_connected(client, [row()], frozenset({(5, 1)}))
    check_pubends(client, [pubend(), pubend(pubend="q@1", stable=0)], {P: (20, 50)}, lossy=False)


@pytest.mark.parametrize(
    "rows",
    [
        [row(), row(sid=2)],
        [row(), row(name="two")],
        [row(name="")],
        [row(lag_events=-1)],
        [row(lag_seconds=-1.0)],
        [row(acknowledged=[Position(P, 7), Position(P, 8)])],
    ],
    ids=["name twice", "id twice", "no name", "events", "seconds", "pubend twice"],
)
def test_a_listing_of_subscriptions_that_makes_no_sense(rows: list[ListedSubscription]) -> None:
    with pytest.raises(AssertionError, match="client1: a subscription is listed"):
        check_subscriptions(ChurnFixture().first, rows)


def test_what_is_consumed_is_connected() -> None:
    client = ChurnFixture().first

    with pytest.raises(AssertionError, match="listed as not connected"):
        check_connected(client, [row(connected=False)], frozenset({(5, 1)}))
    check_connected(client, [row(connected=False)], frozenset({(5, 2)}))


@pytest.mark.parametrize(
    "rows",
    [
        [pubend(), pubend()],
        [pubend(lost=60)],
        [pubend(newest=60)],
        [pubend(released=60)],
        [pubend(created=60)],
        [pubend(log_bytes=-1)],
        [pubend(publishers=-1)],
        [pubend(stable=49)],
        [pubend(lost=19)],
    ],
    ids=["twice", "lost", "newest", "released", "created", "bytes", "publishers", "stable back", "lost back"],
)
def test_a_listing_of_pubends_that_makes_no_sense(rows: list[ListedPubend]) -> None:
    with pytest.raises(AssertionError, match="client1: "):
        check_pubends(ChurnFixture().first, rows, {P: (20, 50)}, lossy=False)


def test_where_a_disk_was_lost_a_pubend_may_have_gone_back() -> None:
    check_pubends(ChurnFixture().first, [pubend(stable=49)], {P: (20, 50)}, lossy=True)


def test_names_are_looked_at_unless_they_came_or_went_meanwhile() -> None:
    fixture = ChurnFixture()
    subscription = fixture.hold()
    client, application, now = fixture.first, fixture.application, fixture.world.now
    check_names(client, [row()], now, application)
    check_names(client, [], 0, application)
    for wrong in ([], [row(selector="k = 1")], [row(topics=("a",))]):
        with pytest.raises(AssertionError, match="client1:one is"):
            check_names(client, wrong, now, application)
    subscription.row.ended = True
    check_names(client, [], now, application)
    with pytest.raises(AssertionError, match="client1:one is removed, and listed"):
        check_names(client, [row()], now, application)
