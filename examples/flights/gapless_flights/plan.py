"""Whom to kill, and when: drawn from a seed before the run, so that a run can be had again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random
from typing import Final

BROKER: Final = "broker"
PUBLISHER: Final = "publisher"

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
    moments = sorted(random.uniform(EARLIEST, LATEST) for _ in range(kills))
    killed = list(islice(victims(random, subscribers), kills))
    random.shuffle(killed)
    return [Kill(at, victim, random.uniform(0, PAUSE_MOST)) for at, victim in zip(moments, killed, strict=True)]


def victims(random: Random, subscribers: Sequence[str]) -> cycle[str]:
    """The broker and the subscribers in turn, the publisher now and then."""
    order = random.sample(subscribers, len(subscribers))
    turns = [victim for subscriber in order for victim in (BROKER, subscriber)]
    return cycle([*turns[:4], PUBLISHER, *turns[4:]])
