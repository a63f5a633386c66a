"""Those who read: each has everything that matches, from where it began, and comes to its end."""

from __future__ import annotations

from gapless.core.gauges import value_of
from gapless.core.wire.messages import StartAt
from gapless_shb.core.state import gauges
from gapless_sim.workloads.scenario_publishers import OrderService
from gapless_sim.workloads.scenario_readers import Dashboard, Odd, Projection, Quiet, Report
from unit.gapless_sim.workloads.scenario_fixture import ScenarioFixture, play_until


def test_a_projection_replays_from_old_backups() -> None:
    fixtures = play_until(
        "projection.old backup, acknowledged further",
        "projection.old backup, never acknowledged",
        "projection.crashed between commits",
        "projection.left in order",
        "projection.found a gap after an old backup",
        kinds=(OrderService, Projection),
        rate=20.0,
    )
    for fixture in fixtures:
        row = fixture.row("projection2")
        assert row.token is not None
        assert fixture.ending.attached == [row]
        assert not fixture.state.ledger.gaps[row.number] or fixture.hits["projection.old backup, acknowledged further"]


def test_an_old_backup_brings_the_events_back() -> None:
    """Whoever never acknowledged is handed again what came after the backup, and no gap."""
    for seed in range(1, 40):
        fixture = ScenarioFixture(OrderService, Projection, seed=seed, rate=20.0)
        keys = fixture.state.ledger.keys[1] = []
        fixture.play()
        if fixture.hits.get("projection.old backup, never acknowledged") and len(set(keys)) > 10:
            break

    assert len(keys) > len(set(keys))
    assert not fixture.state.ledger.gaps[1]


def test_a_report_comes_and_goes() -> None:
    fixtures = play_until("report.read to the end", "report.nothing new", kinds=(OrderService, Report), rate=20.0)
    for fixture in fixtures:
        assert [row.name for row in fixture.state.rows] == ["report2"]
        assert not fixture.state.ledger.gaps[1]


def test_a_report_that_comes_too_late_finds_a_gap() -> None:
    fixtures = play_until(
        "report.away for longer than events are kept",
        "report.found a gap",
        kinds=(OrderService, Report),
        rate=20.0,
        max_retain_seconds=2.0,
        catchup_bytes=0,  # else the SHB may still have in memory what its PHB has given up
    )

    assert any(fixture.state.ledger.gaps[1] for fixture in fixtures)


def test_a_dashboard_leaves_nothing_behind() -> None:
    fixtures = play_until(
        "dashboard.came again", "dashboard.slow", "dashboard.died with its process", kinds=(OrderService, Dashboard)
    )
    for fixture in fixtures:
        live = [consumer.row for client in fixture.world.clients.values() for consumer in client.consumers.values()]
        assert {row.name for row in fixture.state.rows} == {None}
        assert [row for row in fixture.state.rows if not row.ended] == live
        assert value_of(fixture.broker.gauges(), gauges.SUBSCRIPTIONS) == len(live)


def test_a_quiet_one_hears_its_words_and_nothing_else() -> None:
    fixtures = play_until(
        "quiet.silent for long",
        "quiet.heard something",
        "quiet.came back to silence",
        kinds=(OrderService, Quiet),
        rate=20.0,
    )
    for fixture in fixtures:
        words = [
            publication.key
            for assigned in fixture.state.outboxes
            for publication in assigned.outbox.publications
            if "marker" in publication.properties
        ]
        row = fixture.row("quiet2")
        assert sorted(set(fixture.state.ledger.keys[row.number])) == words
        assert len(words) < len(fixture.publications()) / 10


def test_odd_habits_lose_nothing() -> None:
    fixtures = play_until(
        "odd.never acknowledged",
        "odd.acknowledged early and crashed",
        "odd.acknowledged older positions",
        "odd.repeats all from its start",
        "odd.did not take",
        "odd.went on fast",
        "odd.tiny window",
        kinds=(OrderService, Odd),
        rate=20.0,
    )
    for fixture in fixtures:
        row = fixture.row("odd2")
        assert fixture.ending.attached == [row]
        assert row.start in {StartAt.LATEST, StartAt.EARLIEST}


def test_one_that_reads_everything_from_the_start_has_everything() -> None:
    """Whatever its habits are: in the end no publication is missing."""
    found = 0
    for seed in range(1, 200):
        fixture = ScenarioFixture(OrderService, Odd, seed=seed, rate=20.0)
        row = fixture.row("odd2")
        if row.selector or row.start is not StartAt.EARLIEST:
            continue
        found += 1
        keys = fixture.state.ledger.keys[row.number] = []
        fixture.play(10)
        assert sorted(set(keys)) == sorted(fixture.publications())

    assert found > 3
