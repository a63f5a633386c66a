"""Whom to kill, and when: drawn from a seed before the run, so that a run can be had again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, cycle, islice, repeat
from random import Random
from typing import Final

BROKER: Final = "broker"
PUBLISHER: Final = "publisher"
KAFKA: Final = "kafka"
"""Followed by a hyphen and the number of the broker of Kafka's that is killed."""

EARLIEST, LATEST = 0.03, 0.97
"""Shares of the run between which kills fall: mid-run, not before or after it."""

PAUSE_MOST: Final = 0.1


@dataclass(frozen=True, slots=True, order=True)
class Kill:
    """One SIGKILL."""

    at: float
    """Share of the run: 0 when nothing is published or consumed, 1 when everything is."""
    victim: str
    pause: float
    """Seconds that the victim has left then: so it dies anywhere, not always right after a report."""


def kill_plan(seed: int, kills: int, subscribers: Sequence[str]) -> list[Kill]:
    """So many kills, in order. Two of them are the least that kills both a broker and a subscriber."""
    random = Random(seed)  # noqa: S311 - not for secrets
    return _planned(random, kills, victims(random, subscribers))


def kafka_kill_plan(seed: int, kills: int, subscribers: Sequence[str], brokers: int) -> list[Kill]:
    """The same over a Kafka of so many brokers, 0 if it is not ours to kill. The publisher is a stranger, and lives."""
    random = Random(seed)  # noqa: S311 - not for secrets
    numbers = cycle(random.sample(range(1, brokers + 1), brokers)) if brokers else repeat(0)
    who = cycle(random.sample(subscribers, len(subscribers)))
    turns = ((f"{KAFKA}-{next(numbers)}", BROKER, next(who)) if brokers else (BROKER, next(who)) for _ in count())
    return _planned(random, kills, chain.from_iterable(turns))


def _planned(random: Random, kills: int, turns: Iterator[str]) -> list[Kill]:
    moments = sorted(random.uniform(EARLIEST, LATEST) for _ in range(kills))
    killed = list(islice(turns, kills))
    random.shuffle(killed)
    return [Kill(at, victim, random.uniform(0, PAUSE_MOST)) for at, victim in zip(moments, killed, strict=True)]


def victims(random: Random, subscribers: Sequence[str]) -> cycle[str]:
    """The broker and the subscribers in turn, the publisher now and then."""
    order = random.sample(subscribers, len(subscribers))
    turns = [victim for subscriber in order for victim in (BROKER, subscriber)]
    return cycle([*turns[:4], PUBLISHER, *turns[4:]])
