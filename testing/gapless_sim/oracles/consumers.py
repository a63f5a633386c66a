"""Who has a subscription: one home, and one consumer, wherever in the network it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from gapless.core.ports import Delete, Set
from gapless.core.wire.messages import Detach, Detached, Subscribed
from gapless_shb.core.state.registry import SUBSCRIPTIONS, SubscriptionRecord
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.ports import Operation
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker


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


class X2OneName(Judge):
    """Of each client and name there is one subscription in a network in which subscriptions roam.

    A second one, at another SHB, would have a position of its own: whoever is given that skips what the first is owed.
    To be seen where it is written. The map must not change: with another one, a name may have another home.
    """

    name = "X2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._kept: dict[str, dict[bytes, tuple[str, str]]] = {}
        """The client id and name of each durable subscription of a broker, by its row."""

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """An SHB creates subscriptions, or removes some."""
        for operation in operations:
            if type(operation) is Delete and operation.table == SUBSCRIPTIONS:
                self._kept.get(broker.name, {}).pop(operation.key, None)
            elif type(operation) is Set and operation.table == SUBSCRIPTIONS:
                record = msgspec.msgpack.decode(operation.value, type=SubscriptionRecord)
                if record.durable:
                    self._keep(broker.name, operation.key, (record.client_id, record.name))

    def failed_to_write(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """It may be there all the same."""
        self.written(broker, operations)

    def wiped(self, broker: SimBroker) -> None:
        """Its disk was replaced: it has none any more."""
        self._kept.pop(broker.name, None)

    def _keep(self, broker: str, key: bytes, who: tuple[str, str]) -> None:
        for other, kept in self._kept.items():
            if other != broker and who in kept.values():
                self.fail(f"{broker} makes a second subscription {who[1]!r} of {who[0]!r} beside that of {other}")
        self._kept.setdefault(broker, {})[key] = who
