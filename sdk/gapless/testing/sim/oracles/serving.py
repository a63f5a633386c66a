"""A client's session, as both of its ends see it: nothing is sent twice, and nobody breaks the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.messages import Deliver, Detached, Gap, PubendNumber, Silence, Subscribed
from gapless.testing.sim.oracles.judging import Judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.ticks import PubendId, Tick
    from gapless.testing.sim.application import SimClient
    from gapless.testing.sim.broker import SimBroker
    from gapless.testing.sim.model import Model


class I2Served(Judge):
    """What an SHB sends of a pubend rises strictly within a session, from above where the subscription was given.

    To be seen where it is sent: a client drops what it has.
    """

    name = "I2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._numbers: dict[tuple[str, int, int], PubendId] = {}
        """What a session's number of a pubend stands for."""
        self._last: dict[tuple[str, int], dict[int, dict[PubendId, Tick]]] = {}
        """By broker and session, of each subscription: the last tick of each pubend that it was told of."""

    def served(self, broker: str, session: int, message: Any) -> None:
        """Follows a session."""
        given = self._last.setdefault((broker, session), {})
        kind = type(message)
        if kind is Deliver:
            self._deliver(broker, session, message)
        elif kind is Silence:
            sids = given if message.sids is None else message.sids
            self._raise((broker, session), message.number, sids, message.upto)
        elif kind is Gap:
            self._raise((broker, session), message.number, (message.sid,), message.end)
        elif kind is PubendNumber:
            self._numbers[broker, session, message.number] = message.pubend
        elif kind is Subscribed:
            given[message.sid] = {position.pubend: position.tick for position in message.positions}
        elif kind is Detached:
            given.pop(message.sid, None)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._last = {key: given for key, given in self._last.items() if key[0] != broker.name}
        self._numbers = {key: pubend for key, pubend in self._numbers.items() if key[0] != broker.name}

    def _deliver(self, broker: str, session: int, message: Deliver) -> None:
        pubend = self._numbers[broker, session, message.number]
        last = self._last[broker, session].get(message.sid)
        if last is None:
            self.fail(f"{broker} sends events of subscription {message.sid}, which session {session} does not have")
        before = last.get(pubend, 0)
        for tick in message.columns.ticks():
            if tick <= before:
                self.fail(f"{broker} sends {pubend} {tick} to subscription {message.sid}, which stands at {before}")
            before = tick
        last[pubend] = before

    def _raise(self, key: tuple[str, int], number: int, sids: Iterable[int], upto: Tick) -> None:
        broker, session = key
        pubend = self._numbers[broker, session, number]
        for sid in sids:
            last = self._last[key].get(sid)
            if last is not None:
                last[pubend] = max(upto, last.get(pubend, 0))


class P1Protocol(Judge):
    """No two parts of ours break the protocol of a session between them: neither end has to end it for that."""

    name = "P1"

    def disconnected(self, client: SimClient, reason: str) -> None:
        """A session is over. Behind a disk that was replaced numbers of sessions are used again."""
        if reason.startswith("protocol violation") and not self.model.has_lost_disks:
            self.fail(f"the session of {client.name} ended: {reason}")
