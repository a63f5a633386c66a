"""What is done to a run, and when: drawn from the seed before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from chaos.striker import KINDS

BROKER: Final = "broker"
BROKER_EVERY_SECONDS: Final = 10.0
CLIENTS_EVERY_SECONDS: Final = 1.5
"""Faults come so often, about; many of them last, so that they meet."""
HEARTBEAT_SECONDS: Final = 1.0
"""Whoever says nothing for three of them is given up by the other side."""


@dataclass(frozen=True)
class Fault:
    """Something bad."""

    at: float
    """Seconds after the beginning."""
    kind: str
    """`kill` and `stop` (SIGTERM) a process, which is started again; `pause` it (SIGSTOP); or one of a striker's."""
    target: str
    """A worker, or `BROKER`."""
    seconds: float
    """How long it lasts, or until what was ended is started again."""


def schedule(seed: int, seconds: float, workers: Sequence[str]) -> list[Fault]:
    """The faults of a run, in the order in which they come."""
    random = Random(f"{seed}/nemesis")
    faults, at = [], 3.0
    while at < seconds:
        kind = random.choices(("kill", "pause", "stop"), weights=(5, 4, 2))[0]
        faults.append(Fault(at, kind, BROKER, _lasting(random)))
        at += random.expovariate(1 / BROKER_EVERY_SECONDS) + 1
    at = 2.0
    while at < seconds:
        kind = random.choices(("kill", "pause", *KINDS), weights=(5, 4, *[2] * len(KINDS)))[0]
        faults.append(Fault(at, kind, random.choice(workers), _lasting(random)))
        at += random.expovariate(1 / CLIENTS_EVERY_SECONDS)
    return sorted(faults, key=lambda fault: fault.at)


def _lasting(random: Random) -> float:
    """Shorter and longer than leases and than what is released early."""
    return random.choices((0.1, 1, 4, 9), weights=(6, 4, 2, 1))[0] * random.uniform(0.7, 1.3)
