"""Sometimes assertions on catching up: what SHBs count shows that it happened."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gapless_shb.core.state import gauges
from gapless_sim.oracles.catch_up import COUNTED, CatchingUp
from unit.gapless_sim.oracles.model_fixture import NODE, ModelFixture, P


def test_what_has_risen_since_the_last_look_has_happened() -> None:
    fixture = ModelFixture(CatchingUp)
    counts = dict.fromkeys(COUNTED, 0)
    broker: Any = SimpleNamespace(gauges=lambda: [family.gauge(count, P) for family, count in counts.items()])
    fixture.world.brokers[NODE] = broker

    counts[gauges.DEMOTED] = 2
    fixture.observe.checkpoint()
    fixture.observe.checkpoint()
    counts[gauges.DEMOTED] = 0
    fixture.observe.checkpoint()
    counts[gauges.DEMOTED] = 1
    fixture.observe.checkpoint()

    assert {assertion: count for assertion, count in fixture.world.hits.items() if assertion in COUNTED.values()} == {
        COUNTED[gauges.DEMOTED]: 2
    }
