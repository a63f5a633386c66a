from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gapless_sim.workloads.churn import SOMETIMES
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


@pytest.mark.timeout(240)
def test_every_operation_comes_within_a_few_seeds() -> None:
    hits: Counter[str] = Counter()
    for seed in range(SEEDS):
        play = Play(replace(TROUBLED, seed=seed, subscription_expiry_seconds=1.0 if seed % 2 else None))
        play.perform()
        hits.update(play.world.hits)
        if all(hits[assertion] for assertion in SOMETIMES if assertion not in RARE):
            break

    assert [assertion for assertion in SOMETIMES if not hits[assertion] and assertion not in RARE] == []
    assert [assertion for assertion in hits if assertion.startswith("churn.") and assertion not in SOMETIMES] == []


def test_what_is_missing_is_said() -> None:
    play = Play(TROUBLED)
    play.perform()
    for client in play.world.clients.values():
        client.crash()

    assert not play.churn.settled()
    assert "client1" in play.churn.unsettled()


def test_where_the_choice_sequences_have_ended_it_publishes_and_does_nothing_else() -> None:
    play = Play(replace(BUSY, duration=SECOND), choice_sequences={})
    play.perform()
    publications = sum(
        len(relay.outbox.publications) for application in play.churn.applications for relay in application.relays
    )

    assert publications > 100
    assert not any(application.subscriptions for application in play.churn.applications)
    assert not any(assertion.startswith("churn.") for assertion in play.world.hits)
