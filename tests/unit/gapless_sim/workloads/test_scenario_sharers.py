"""Several who want one subscription: who waits gets it, who loses it does not fight, who is told begins anew."""

from __future__ import annotations

import pytest

from gapless_sim.workloads.scenario_publishers import OrderService
from gapless_sim.workloads.scenario_sharers import ConcurrentRemoval, Flicker, Owner, Rivals, Standby
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture, play_until


def test_a_standby_waits_until_it_is_its_turn() -> None:
    fixtures = play_until(
        "standby.waited its turn",
        "standby.left to the other",
        "standby.crashed before the other",
        "standby.asked again with a newer token",
        kinds=(OrderService, Standby),
        rate=20.0,
    )
    for fixture in fixtures:
        assert [row.name for row in fixture.state.rows] == ["standby2"]
        assert not fixture.state.ledger.gaps[1]


def test_rivals_take_it_over_and_the_loser_stands_back() -> None:
    fixtures = play_until(
        "rivals.took over", "rivals.taken over", "rivals.left before anybody took over", kinds=(OrderService, Rivals)
    )
    for fixture in fixtures:
        assert fixture.hits.get("rivals.taken over", 0) <= fixture.hits.get("rivals.took over", 0)


def test_a_stale_owner_can_not_commit() -> None:
    fixture = ScenarioFixture(OrderService, Rivals).begin().rest(1)
    client, row = fixture.world.clients["client1"], fixture.row("rivals2")
    owners: dict[int, object] = {}
    one = Owner(client, row, row.wanted(), owners=owners, claims=True)  # type: ignore[arg-type]
    fixture.rest(1)
    one.commit()
    token = row.token
    assert (one.is_owner, one.over) == (True, False)
    owners[row.number] = None
    one.commit()

    assert (one.is_owner, one.over) == (False, True)
    assert row.token is token
    assert fixture.hits["sharing.stale commit refused"] == 1


def test_flicker_uses_one_name_again_and_again() -> None:
    fixtures = play_until(
        "flicker.came and went",
        "flicker.removed while it was being created",
        "flicker.another filter under the same name",
        kinds=(OrderService, Flicker),
        rate=20.0,
    )
    for fixture in fixtures:
        assert all(row.ended for row in fixture.state.rows[:-1])
        assert {row.name for row in fixture.state.rows} == {"flicker2"}


def test_flicker_wants_an_answer_to_what_it_asked() -> None:
    fixture = ScenarioFixture(Flicker).begin().rest(1)
    (flicker,) = fixture.scenarios.scenarios
    assert isinstance(flicker, Flicker)
    client, row = flicker.client, flicker.row
    assert row is not None
    client.crash()
    client.start()
    consumer = Owner(client, row, row.wanted(), owners={}, claims=True)
    with pytest.raises(AssertionError, match="no answer to its creation"):
        flicker._was_answered(consumer)


def test_whose_subscription_was_removed_begins_anew() -> None:
    fixtures = play_until(
        "removal.removed under a consumer",
        "removal.victim was told",
        "removal.victim began anew",
        kinds=(OrderService, ConcurrentRemoval),
        rate=20.0,
    )
    for fixture in fixtures:
        assert all(row.ended for row in fixture.state.rows[:-1])
        assert fixture.state.leaving == {}
