"""Nothing that could be wrong, but what should happen sometimes while subscribers are behind (algorithms.md 3.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gapless.testing.sim.oracles.judging import Judge

if TYPE_CHECKING:
    from gapless.testing.sim.model import Model

COUNTED: Final = {
    "demoted": "catch-up.demoted",
    "promoted": "catch-up.promoted",
    "shared_fetches": "catch-up.one fetch for several",
    "interrupted": "catch-up.live had its turn",
    "pages_read": "catch-up.block read",
    "pages_dropped": "catch-up.page let go of",
}
"""What an SHB counts of each pubend, and the probe it is for."""

PROBES = tuple(COUNTED.values())


class CatchingUp(Judge):
    """Looks at what SHBs have counted, every second."""

    name = "probes"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._seen: dict[tuple[str, str, str], int] = {}

    def checkpoint(self) -> None:
        """What has risen has happened since."""
        for name, broker in self.world.brokers.items():
            pubends: Any = broker.status().get("shb", {}).get("pubends", {})
            for pubend, status in pubends.items():
                for counted, probe in COUNTED.items():
                    self._look(name, pubend, counted, status[counted], probe)

    def _look(self, broker: str, pubend: str, counted: str, count: int, probe: str) -> None:
        key = (broker, pubend, counted)
        if count > self._seen.get(key, 0):
            self.world.probe(probe)
        self._seen[key] = count
