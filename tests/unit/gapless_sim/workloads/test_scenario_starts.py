"""Beginnings: in the past, at once, and beside a publication that has just been sent."""

from __future__ import annotations

import pytest

from gapless.core.wire.messages import StartAt
from gapless_sim.workloads.scenario_filters import only
from gapless_sim.workloads.scenario_publishers import Meters, OrderService
from gapless_sim.workloads.scenario_readers import Projection
from gapless_sim.workloads.scenario_starts import Audit, Courier, Crowd, Noting
from gapless_sim.world.options import SECOND
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture, play_until


def test_audits_begin_in_the_past_and_are_removed() -> None:
    fixtures = play_until(
        "audit.from the earliest",
        "audit.from a time",
        "audit.from a token of another",
        "audit.done and removed",
        kinds=(OrderService, Projection, Audit),
        rate=20.0,
    )
    for fixture in fixtures:
        audits = [row for row in fixture.state.rows if row.name == "audit3"]
        assert audits
        assert all(row.ended for row in audits[:-1])
        assert {row.start for row in audits} <= {StartAt.EARLIEST, StartAt.TIME, StartAt.TOKEN}


def test_a_token_of_another_subscription_is_refused() -> None:
    play_until(
        "audit.foreign token refused", "audit.forged seal refused", kinds=(OrderService, Projection, Audit), rate=20.0
    )


def test_crowds_come_before_any_broker_and_all_at_once() -> None:
    fixtures: list[ScenarioFixture] = []
    for seed in range(1, 6):
        fixture = ScenarioFixture(Crowd, seed=seed, rate=20.0).begin(boot_after=SECOND).rest(20).end()
        assert fixture.ending.missing() == []
        assert fixture.hits["crowd.before any broker"] == 1
        fixtures.append(fixture)
    hits = {name for fixture in fixtures for name in fixture.hits}

    assert {"crowd.came at once", "crowd.one left at once", "crowd.nameless"} <= hits
    for fixture in fixtures:
        assert sorted(fixture.log.keys) == fixture.publications()


def test_whoever_came_before_a_publication_has_it() -> None:
    fixtures = play_until("courier.checked both", kinds=(Courier, OrderService), rate=20.0)

    assert all(fixture.hits["courier.created before a receipt"] for fixture in fixtures)


def test_the_courier_sees_what_is_missing() -> None:
    fixture = ScenarioFixture(Courier, Meters).begin().rest(8)
    (courier, _) = fixture.scenarios.scenarios
    assert isinstance(courier, Courier)
    publication = next(
        publication
        for assigned in fixture.state.outboxes
        for publication in assigned.outbox.publications
        if "marker" in publication.properties
    )
    rows = [fixture.state.row(fixture.world.clients["client1"], f"n{number}", only("nothing")) for number in range(2)]
    before, after = [Noting(fixture.world.clients["client1"], row, row.wanted()) for row in rows]
    pubend, tick = fixture.state.ledger.receipts[publication.key]
    fixture.state.ledger.keys.update({row.number: [publication.key] for row in rows})
    before.begins, after.begins = {pubend: tick - 1}, {pubend: tick - 1}
    courier._judge(publication, before, after)
    assert fixture.hits["courier.latest was behind the receipt"] == 1

    after.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n1 begins at"):
        courier._judge(publication, before, after)
    fixture.state.ledger.keys[rows[0].number] = []
    with pytest.raises(AssertionError, match="n0 misses publication"):
        courier._judge(publication, before, after)
    before.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n0 begins above"):
        courier._judge(publication, before, after)
    fixture.state.ledger.gaps[rows[0].number] = 1
    courier._judge(publication, before, after)
    assert fixture.hits["courier.lost to early release"] == 1
