from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import pytest

from gapless_sim.options import SECOND, NetworkFaults, Options, ProcessFaults
from gapless_sim.workloads import PROBES as ALL_PROBES
from gapless_sim.workloads import WORKLOADS
from gapless_sim.workloads.churn import PROBES, Churn
from unit.gapless_sim.workloads.churning import Play

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
    "churn.pubends are elsewhere",
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
    probes: Counter[str] = Counter()
    for seed in range(SEEDS):
        play = Play(replace(TROUBLED, seed=seed, subscription_lease_seconds=1.0 if seed % 2 else None))
        play.perform()
        probes.update(play.world.probes)
        if all(probes[probe] for probe in PROBES if probe not in RARE):
            break

    assert [probe for probe in PROBES if not probes[probe] and probe not in RARE] == []
    assert [probe for probe in probes if probe.startswith("churn.") and probe not in PROBES] == []


@pytest.mark.parametrize("seed", range(1, 6))
def test_in_the_end_everything_is_consumed_and_worked_off(seed: int) -> None:
    play = Play(replace(TROUBLED, seed=seed))
    play.perform()

    assert play.calm(), play.churn.unsettled()
    for application in play.churn.applications:
        for holding in application.holdings:
            customer = holding.consumer()
            assert holding.row.ended or (customer is not None and customer.acknowledges == "at once")
            assert holding.row.ended or (customer is not None and customer.core.phase.value == "attached")
        assert all(post.done for post in application.posts)
        assert all(process.running for process in application.processes)


def test_what_is_missing_is_said() -> None:
    play = Play(TROUBLED)
    play.perform()
    for client in play.world.clients.values():
        client.crash()

    assert not play.churn.settled()
    assert "client1" in play.churn.unsettled()


def test_no_operation_comes_after_the_calm() -> None:
    play = Play(BUSY)
    play.perform()
    assert play.calm()
    published = sum(len(post.outbox.letters) for application in play.churn.applications for post in application.posts)
    play.world.run_until(play.world.now + 5 * SECOND)

    assert published == sum(
        len(post.outbox.letters) for application in play.churn.applications for post in application.posts
    )


def test_a_tape_that_has_ended_publishes_and_nothing_else() -> None:
    play = Play(replace(BUSY, duration=SECOND), tape={})
    play.perform()
    letters = sum(len(post.outbox.letters) for application in play.churn.applications for post in application.posts)

    assert letters > 100
    assert not any(application.holdings for application in play.churn.applications)
    assert not any(probe.startswith("churn.") for probe in play.world.probes)


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
    assert set(PROBES) <= set(ALL_PROBES)
    assert len(set(PROBES)) == len(PROBES)
