"""The probes of catching up: what SHBs count becomes what has happened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gapless_shb.core import gauges
from gapless_sim.oracles.catching import COUNTED, CatchingUp
from unit.gapless_sim.oracles.hands import NODE, Hands, P


def test_what_has_risen_since_the_last_look_has_happened() -> None:
    hands = Hands(CatchingUp)
    counts = dict.fromkeys(COUNTED, 0)
    broker: Any = SimpleNamespace(gauges=lambda: [family.gauge(count, P) for family, count in counts.items()])
    hands.world.brokers[NODE] = broker

    counts[gauges.DEMOTED] = 2
    hands.observe.checkpoint()
    hands.observe.checkpoint()
    counts[gauges.DEMOTED] = 0
    hands.observe.checkpoint()
    counts[gauges.DEMOTED] = 1
    hands.observe.checkpoint()

    assert {probe: count for probe, count in hands.world.probes.items() if probe in COUNTED.values()} == {
        COUNTED[gauges.DEMOTED]: 2
    }
