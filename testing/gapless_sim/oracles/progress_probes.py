"""Probes: progress is asked for where it is missing, and nowhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.network import facts as routing
from gapless.core.network.seam import Effect
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.stream.ticks import PubendId, ShbId, Tick
    from gapless_sim.recording.model import Model


class V4Probing(Judge):
    """No SHB is asked for progress up to a tick of which the pubend knows that it is delivered to all of them."""

    name = "V4"
    facts: Sequence[type] = (routing.Enrolled, routing.Probe)
    effects: Sequence[type] = (routing.Enrol, routing.Released)

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._delivered: dict[str, dict[PubendId, tuple[Tick, int]]] = {}
        """By broker: up to where everything is delivered, as its pubends know it, and when they learnt it."""
        self._joining: dict[str, dict[PubendId, dict[ShbId, int]]] = {}
        """By broker: which SHBs ask to be counted, and when they got the answer (-1: not yet)."""

    def informed(self, broker: str, now: int, fact: Any) -> None:
        """As a watcher of the seam: a pubend asks, or counts one more."""
        if type(fact) is routing.Enrolled:
            self._joining.setdefault(broker, {}).setdefault(fact.pubend, {})[fact.shb] = self.world.now
        else:
            pubend, upto = fact.pubend, fact.upto
            delivered, since = self._delivered.get(broker, {}).get(pubend, (0, 0))
            # What arrives at a pubend in the turn in which it asks may have come too late.
            if upto <= delivered and since < self.world.now:
                self.fail(f"{pubend} asks for progress up to {upto}, and knows that {delivered} is delivered")

    def said(self, broker: str, now: int, effect: Effect) -> None:
        """A pubend receives how far all is delivered. A new SHB bounds that, until a later minimum counts it."""
        if type(effect) is routing.Enrol:
            self._joining.setdefault(broker, {}).setdefault(effect.pubend, {})[effect.shb] = -1
            self._delivered.get(broker, {}).pop(effect.pubend, None)
        elif type(effect) is routing.Released:
            joining = self._joining.get(broker, {}).get(effect.pubend, {})
            if all(0 <= told < self.world.now for told in joining.values()):
                joining.clear()
                known = self._delivered.setdefault(broker, {})
                known[effect.pubend] = effect.delivered, self.world.now

    def vanished(self, broker: str) -> None:
        """A PHB that has just started knows nothing yet."""
        self._delivered.pop(broker, None)
        self._joining.pop(broker, None)
