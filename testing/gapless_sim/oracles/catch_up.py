"""Nothing that could be wrong, but what should happen sometimes while subscribers are behind (protocol: readers)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gapless_shb.core.state import gauges
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless_sim.recording.model import Model

COUNTED: Final = {
    gauges.DEMOTED: "catch-up.demoted",
    gauges.PROMOTED: "catch-up.promoted",
    gauges.SHARED_FETCHES: "catch-up.one fetch for several",
    gauges.INTERRUPTED: "catch-up.live had its turn",
    gauges.PAGES_READ: "catch-up.block read",
    gauges.PAGES_DROPPED: "catch-up.page let go of",
}
"""What an SHB counts of each pubend, and the assertion it is for."""
NAMED: Final = {counted.name: assertion for counted, assertion in COUNTED.items()}

SOMETIMES = tuple(COUNTED.values())


class CatchingUp(Judge):
    """Looks at what SHBs have counted, every second."""

    name = "sometimes"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._seen: dict[tuple[str, str, str], float] = {}

    def checkpoint(self) -> None:
        """What has risen has happened since."""
        for name, broker in self.world.brokers.items():
            for gauge in broker.gauges():
                assertion = NAMED.get(gauge.name)
                if assertion is not None:
                    self._look(name, dict(gauge.labels)["pubend"], gauge.name, gauge.value, assertion)

    def _look(self, broker: str, pubend: str, counted: str, count: float, assertion: str) -> None:
        key = (broker, pubend, counted)
        if count > self._seen.get(key, 0):
            self.world.sometimes(assertion)
        self._seen[key] = count
