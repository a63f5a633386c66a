from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from gapless_sim.workloads import SOMETIMES as ALL_SOMETIMES
from gapless_sim.workloads import WORKLOADS
from gapless_sim.workloads.churn import SOMETIMES, Churn
from gapless_sim.world.options import SECOND, NetworkFaults, Options, ProcessFaults
from unit.gapless_sim.workloads.churn_fixture import Play

BUSY = Options(1, clients=3, subscriptions=8, rate=80.0, duration=6 * SECOND)
TROUBLED = replace(
    BUSY, network=NetworkFaults(resets=1.0, delay=2_000_000), process=ProcessFaults(crash=0.3, client_crash=0.5)
)
SEEDS = 80
RARE = {
    # These need two SHBs, or a disk that is lost, or a coincidence.
    "churn.lapsed",
    "churn.made another after a lapse",
    "churn.token from before a lapse",
    "churn.created unheard",
    "churn.made anew",
    "churn.outbox given up",
    "churn.listed by several nodes",
    "churn.listed in part",
    "churn.refused: InvalidTokenError",
    "churn.subscription lost",
    "churn.batch fenced",
    "churn.stale commit refused",
}


def digest_of(seed: int) -> str:
    play = Play(replace(TROUBLED, seed=seed, duration=3 * SECOND))
    play.perform()
    return play.world.trace.digest()


def test_every_operation_comes_within_a_few_seeds() -> None:
    hits: Counter[str] = Counter()
    for seed in range(SEEDS):
        play = Play(replace(TROUBLED, seed=seed, subscription_lease_seconds=1.0 if seed % 2 else None))
        play.perform()
        hits.update(play.world.hits)
        if all(hits[assertion] for assertion in SOMETIMES if assertion not in RARE):
            break

    assert [assertion for assertion in SOMETIMES if not hits[assertion] and assertion not in RARE] == []
    assert [assertion for assertion in hits if assertion.startswith("churn.") and assertion not in SOMETIMES] == []


@pytest.mark.parametrize("seed", range(1, 6))
def test_in_the_end_everything_is_consumed_and_worked_off(seed: int) -> None:
    play = Play(replace(TROUBLED, seed=seed))
    play.perform()

    assert play.come_right(), play.churn.unsettled()
    for application in play.churn.applications:
        for subscription in application.subscriptions:
            consumer = subscription.attached_consumer()
            if subscription.row.ended:
                continue
            assert consumer is not None
            assert consumer.acknowledges == ("never" if consumer.commits else "at once")
            assert consumer.core.phase.value == "attached"
        assert all(relay.done for relay in application.relays)
        assert all(process.running for process in application.processes)


def test_what_is_missing_is_said() -> None:
    play = Play(TROUBLED)
    play.perform()
    for client in play.world.clients.values():
        client.crash()

    assert not play.churn.settled()
    assert "client1" in play.churn.unsettled()


def test_no_operation_comes_in_the_liveness_phase() -> None:
    play = Play(BUSY)
    play.perform()
    assert play.come_right()
    published = sum(
        len(relay.outbox.publications) for application in play.churn.applications for relay in application.relays
    )
    play.world.run_until(play.world.now + 5 * SECOND)

    assert published == sum(
        len(relay.outbox.publications) for application in play.churn.applications for relay in application.relays
    )


def test_where_the_choice_sequences_have_ended_it_publishes_and_does_nothing_else() -> None:
    play = Play(replace(BUSY, duration=SECOND), choice_sequences={})
    play.perform()
    publications = sum(
        len(relay.outbox.publications) for application in play.churn.applications for relay in application.relays
    )

    assert publications > 100
    assert not any(application.subscriptions for application in play.churn.applications)
    assert not any(assertion.startswith("churn.") for assertion in play.world.hits)


def test_a_seed_makes_the_same_run_again_in_any_process() -> None:
    first, again, other = digest_of(3), digest_of(3), digest_of(4)
    script = "from unit.gapless_sim.workloads.test_churn import digest_of; print(digest_of(3))"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    elsewhere = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )

    assert first == again == elsewhere.stdout.strip()
    assert first != other


def test_it_is_registered() -> None:
    assert WORKLOADS["churn"] is Churn
    assert set(SOMETIMES) <= set(ALL_SOMETIMES)
    assert len(set(SOMETIMES)) == len(SOMETIMES)
