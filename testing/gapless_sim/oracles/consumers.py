"""Who has a subscription: one consumer, wherever in the network it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import Detach, Detached, Subscribed
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless_sim.broker import SimBroker
    from gapless_sim.model import Model


class X1OneConsumer(Judge):
    """Where all hear each other, at most one SHB serves a subscription. While they do not, several may.

    To be seen where it is sent: an SHB that serves nobody any more would hold the log back, or be a guest for ever.
    """

    name = "X1"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._at: dict[tuple[str, int], dict[str, tuple[int, int]]] = {}
        """The session and the id that each broker serves a subscription in and by; by its home and its id there."""
        self._over: dict[tuple[str, int], None] = {}
        """The sessions that are over: what was sent to them in the same turn is seen afterwards."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """A session gets a subscription, or loses it."""
        if type(message) is Subscribed and (broker, session) not in self._over:
            home = message.home, message.home_sid or message.sid
            self._at.setdefault(home, {})[broker] = session, message.sid
        elif type(message) is Detached:
            self._leave(broker, session, message.sid)

    def received(self, broker: str, session: int, message: Any) -> None:
        """A session gives a subscription back."""
        if type(message) is Detach:
            self._leave(broker, session, message.sid)

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._over[broker, session] = None
        for places in self._at.values():
            if places.get(broker, (0, 0))[0] == session:
                del places[broker]

    def crashed(self, broker: SimBroker) -> None:
        """Nobody has anything there any more."""
        for places in self._at.values():
            places.pop(broker.name, None)

    def settled(self) -> bool:
        """Whether no subscription is served twice."""
        return all(len(places) <= 1 for places in self._at.values())

    def unsettled(self) -> str:
        """Which one is, and where."""
        (home, sid), places = next(each for each in self._at.items() if len(each[1]) > 1)
        return f"subscription {sid} of {home} is served at the same time by {' and '.join(places)}"

    def _leave(self, broker: str, session: int, sid: int) -> None:
        for places in self._at.values():
            if places.get(broker) == (session, sid):
                del places[broker]
