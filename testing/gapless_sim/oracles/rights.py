"""What rules forbid does not leave an SHB once they hold there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import (
    AttachedTo,
    Deliver,
    DeliverGap,
    Detached,
    Leased,
    LeaseLost,
    RangeEvents,
    RangeGap,
    Subscribed,
)
from gapless_sim.oracles.judge import Judge
from gapless_sim.world.rules import SimRules

if TYPE_CHECKING:
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

GIVES = (Deliver, DeliverGap, RangeEvents, RangeGap, Subscribed, Leased, AttachedTo)
"""What only those may be sent who may consume."""


class A1Held(Judge):
    """Once rules hold at an SHB, it sends nothing to a client that they forbid to consume.

    To be seen where it is sent: what was on its way before may arrive later. What a home answers for a client elsewhere
    is not looked at here: that client's own SHB sends it.
    """

    name = "A1"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._clients: dict[tuple[str, int], str] = {}
        """Whose each session at a broker is."""

    def came(self, broker: str, session: int, client_id: str) -> None:
        """A client asks an SHB for something."""
        self._clients[broker, session] = client_id

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._clients = {key: client for key, client in self._clients.items() if key[0] != broker.name}

    def sent(self, broker: str, session: int, message: Any) -> None:
        """An SHB sends something, by the rules that count there."""
        authority = self.world.brokers[broker].loaded.authorizer
        rules, client = authority.authorizer, self._clients.get((broker, session), "")
        if not isinstance(rules, SimRules) or client not in rules.forbidden:
            return
        if type(message) in {Detached, LeaseLost}:
            self.world.sometimes("rules.somebody lost what he had")
        elif authority.holds and type(message) in GIVES:
            self.fail(f"{broker} sends {type(message).__name__} to {client}, whom {rules.name} forbid it; they hold")
