"""Whom to kill, and when."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless_flights.plan import BROKER, EARLIEST, LATEST, PUBLISHER, kafka_kill_plan, kill_plan

SUBSCRIBERS = ["a", "b", "c"]


def test_a_seed_gives_the_same_kills_again() -> None:
    assert kill_plan(7, 9, SUBSCRIBERS) == kill_plan(7, 9, SUBSCRIBERS)
    assert kill_plan(7, 9, SUBSCRIBERS) != kill_plan(8, 9, SUBSCRIBERS)


@pytest.mark.parametrize("seed", range(20))
def test_kills_fall_in_mid_run_and_in_order(seed: int) -> None:
    moments = [kill.at for kill in kill_plan(seed, 9, SUBSCRIBERS)]

    assert moments == sorted(moments)
    assert moments[0] >= EARLIEST
    assert moments[-1] <= LATEST


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kills", [2, 3, 9])
def test_a_broker_and_a_subscriber_are_killed(seed: int, kills: int) -> None:
    victims = {kill.victim for kill in kill_plan(seed, kills, SUBSCRIBERS)}

    assert BROKER in victims
    assert victims & set(SUBSCRIBERS)


def test_everybody_is_killed_sooner_or_later() -> None:
    victims = Counter(kill.victim for kill in kill_plan(7, 70, SUBSCRIBERS))

    assert set(victims) == {BROKER, PUBLISHER, *SUBSCRIBERS}
    assert victims[BROKER] == 30


def test_no_kill_is_no_plan() -> None:
    assert kill_plan(7, 0, SUBSCRIBERS) == []


@pytest.mark.parametrize("seed", range(20))
def test_over_kafka_three_kills_are_of_three_kinds(seed: int) -> None:
    """The producer is none of them: a plain one cannot know what it has written."""
    victims = Counter(kill.victim.partition("-")[0] for kill in kafka_kill_plan(seed, 9, ["s-1", "s-2"], 3))

    assert victims == {BROKER: 3, "kafka": 3, "s": 3}
    assert kafka_kill_plan(seed, 9, ["s-1", "s-2"], 3) == kafka_kill_plan(seed, 9, ["s-1", "s-2"], 3)
    assert {kill.victim for kill in kafka_kill_plan(seed, 9, ["s-1"], 3)} >= {"kafka-1", "kafka-2", "kafka-3"}


def test_somebody_elses_kafka_is_not_killed() -> None:
    assert {kill.victim for kill in kafka_kill_plan(7, 9, ["s-1", "s-2"], 0)} == {BROKER, "s-1", "s-2"}
