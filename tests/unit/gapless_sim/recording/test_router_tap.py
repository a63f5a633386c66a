from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless_sim.recording.router_tap import EFFECTS, FACTS
from unit.gapless_sim.worlds import Small


class Log:
    """Notes what passes the seam."""

    facts: Sequence[type] = FACTS
    effects: Sequence[type] = EFFECTS

    def __init__(self) -> None:
        self.told: list[str] = []
        self.wanted: list[str] = []
        self.gone: list[str] = []

    def informed(self, broker: str, now: int, fact: Any) -> None:
        self.told.append(type(fact).__name__)

    def said(self, broker: str, now: int, effect: Effect) -> None:
        self.wanted.append(type(effect).__name__)

    def vanished(self, broker: str) -> None:
        self.gone.append(broker)


def test_a_watcher_is_told_of_what_it_asked_for() -> None:
    small = Small()
    log = Log()
    log.facts, log.effects = (routing.Know,), (routing.Know,)
    small.world.seam.watchers.append(log)
    small.begin()
    small.publish(3)
    small.rest(1)

    assert set(log.told) == {"Know"}
    assert set(log.wanted) == {"Know"}


def test_no_router_does_wrong_any_more_when_faults_are_over() -> None:
    """Found by the simulator: where a router loses for ever, wants may remain unanswered for too long."""
    small = Small(router="hostile", phbs=1, shbs=1, together=False, hostility=(("lose", 1.0),)).begin()
    small.publish(3)
    before = small.producer.open
    small.world.in_liveness = True
    small.world.seam.begin_liveness()
    small.world.brokers["phb1"].kill()
    small.rest(60)
    small.publish(3)
    small.rest()

    assert not before
    assert small.told == [0, 1, 2]
