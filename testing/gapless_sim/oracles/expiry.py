"""Expiry: nobody's subscription is given up while he has it, nor before he was away for long enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import Detach, Detached, Subscribed
from gapless_sim.oracles.judge import Judge
from gapless_sim.recording.expired_subscriptions import lapses

if TYPE_CHECKING:
    from gapless.core.ports import Operation
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

SOMETIMES = ("oracle.subscription expired",)

DRIFT = 1.05
"""A broker's clock may be faster by less than that."""


class I8Expiry(Judge):
    """Its time runs while nobody has the subscription, as its SHB sees it, and while the SHB is up."""

    name = "I8"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._holders: dict[tuple[str, int], int] = {}
        """The session that has a subscription of a broker."""
        self._over: dict[tuple[str, int], None] = {}
        """The sessions that are over: what was sent to them in the same turn is seen afterwards."""
        self._left: dict[tuple[str, int], int] = {}
        """When somebody had it last."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """A session gets a subscription, or loses it."""
        if type(message) is Subscribed:
            self._holders[broker, message.sid] = session
            if (broker, session) in self._over:
                self._leave(broker, session, message.sid)
        elif type(message) is Detached:
            self._leave(broker, session, message.sid)

    def received(self, broker: str, session: int, message: Any) -> None:
        """A session gives a subscription back."""
        if type(message) is Detach:
            self._leave(broker, session, message.sid)

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._over[broker, session] = None
        for (home, sid), holder in list(self._holders.items()):
            if (home, holder) == (broker, session):
                self._leave(broker, session, sid)

    def crashed(self, broker: SimBroker) -> None:
        """Nobody has anything there any more."""
        for (home, sid), session in list(self._holders.items()):
            if home == broker.name:
                self._leave(home, session, sid)

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """It has expired, an SHB says."""
        for sid, client_id, name in lapses(operations):
            self.world.sometimes("oracle.subscription expired")
            if broker.name not in self.model.damaged_brokers:
                self._judge(broker.name, sid, f"{client_id}:{name}")

    def _judge(self, broker: str, sid: int, name: str) -> None:
        expiry = self.world.options.subscription_expiry_seconds
        if expiry is None:
            self.fail(f"{name} has expired, and nothing does")
        if (broker, sid) in self._holders:
            self.fail(f"{name} has expired, and session {self._holders[broker, sid]} has it")
        away = (self.world.now - self._left.get((broker, sid), 0)) / 1_000_000_000
        if away * DRIFT < expiry:
            self.fail(f"{name} has expired, after {expiry} s, and it was left {away:.3f} s ago")

    def _leave(self, broker: str, session: int, sid: int) -> None:
        if self._holders.get((broker, sid)) == session:
            del self._holders[broker, sid]
            self._left[broker, sid] = self.world.now
