"""Beginnings: in the past, at once, and beside a letter that has just been sent."""

from __future__ import annotations

import pytest

from gapless.core.wire.messages import StartAt
from gapless_sim.options import SECOND
from gapless_sim.workloads.scenario_beginning import Audit, Courier, Crowd, Noting
from gapless_sim.workloads.scenario_filters import only
from gapless_sim.workloads.scenario_publishing import Meters, OrderService
from gapless_sim.workloads.scenario_reading import Projection
from unit.gapless_sim.workloads.staging import Stage, play_until


def test_audits_begin_in_the_past_and_are_removed() -> None:
    stages = play_until(
        "audit.from the earliest",
        "audit.from a time",
        "audit.from a token of another",
        "audit.done and removed",
        kinds=(OrderService, Projection, Audit),
        rate=20.0,
    )
    for stage in stages:
        audits = [row for row in stage.book.rows if row.name == "audit3"]
        assert audits
        assert all(row.ended for row in audits[:-1])
        assert {row.start for row in audits} <= {StartAt.EARLIEST, StartAt.TIME, StartAt.TOKEN}


def test_a_token_of_another_subscription_is_refused() -> None:
    play_until(
        "audit.foreign token refused", "audit.forged seal refused", kinds=(OrderService, Projection, Audit), rate=20.0
    )


def test_crowds_come_before_any_broker_and_all_at_once() -> None:
    stages: list[Stage] = []
    for seed in range(1, 6):
        stage = Stage(Crowd, seed=seed, rate=20.0).begin(boot_after=SECOND).rest(20).end()
        assert stage.ending.missing() == []
        assert stage.probes["crowd.before any broker"] == 1
        stages.append(stage)
    probes = {name for stage in stages for name in stage.probes}

    assert {"crowd.came at once", "crowd.one left at once", "crowd.nameless"} <= probes
    for stage in stages:
        assert sorted(stage.log.keys) == stage.letters()


def test_whoever_came_before_a_letter_has_it() -> None:
    stages = play_until("courier.checked both", kinds=(Courier, OrderService), rate=20.0)

    assert all(stage.probes["courier.created before a receipt"] for stage in stages)


def test_the_courier_sees_what_is_missing() -> None:
    stage = Stage(Courier, Meters).begin().rest(8)
    (courier, _) = stage.scenarios.scenarios
    assert isinstance(courier, Courier)
    letter = next(
        letter for desk in stage.book.desks for letter in desk.outbox.letters if "marker" in letter.properties
    )
    rows = [stage.book.row(stage.world.clients["client1"], f"n{number}", only("nothing")) for number in range(2)]
    before, after = [Noting(stage.world.clients["client1"], row, row.wanted()) for row in rows]
    pubend, tick = stage.book.ledger.receipts[letter.key]
    stage.book.ledger.keys.update({row.number: [letter.key] for row in rows})
    before.begins, after.begins = {pubend: tick - 1}, {pubend: tick - 1}
    courier._judge(letter, before, after)
    assert stage.probes["courier.latest was behind the receipt"] == 1

    after.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n1 begins at"):
        courier._judge(letter, before, after)
    stage.book.ledger.keys[rows[0].number] = []
    with pytest.raises(AssertionError, match="n0 misses letter"):
        courier._judge(letter, before, after)
    before.begins = {pubend: tick}
    with pytest.raises(AssertionError, match="n0 begins above"):
        courier._judge(letter, before, after)
    stage.book.ledger.gaps[rows[0].number] = 1
    courier._judge(letter, before, after)
    assert stage.probes["courier.lost to early release"] == 1
