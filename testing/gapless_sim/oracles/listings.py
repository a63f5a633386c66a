"""What a broker lists of a subscription's lag, against what its pubends logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.wire.messages import ListSubscriptions, SubscriptionList
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.network.facts import Progress
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import ListedSubscription
    from gapless_sim.recording.accounts import Account
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker

COUNTED = "oracle.lag counted"
NOT_ALL_COUNTED = "oracle.lag not all counted"
SOMETIMES = (COUNTED, NOT_ALL_COUNTED)


class L1Lag(Judge):
    """A lag that is said to be complete leaves out no event that is due, and without any it is no time.

    The SHB must know of an event: it had it in its PFS, durably, when it was asked.
    """

    name = "L1"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._delivered: dict[str, dict[PubendId, Tick]] = {}
        self._asked: dict[tuple[str, int, int], dict[PubendId, Tick]] = {}
        """How far an SHB was with its pubends when it was asked, by session and the client's number."""

    def progressed(self, broker: str, progress: Progress) -> None:
        """An SHB has so much durably in its PFS."""
        self._delivered.setdefault(broker, {})[progress.pubend] = progress.delivered

    def received(self, broker: str, session: int, message: Any) -> None:
        """A client asks."""
        if type(message) is ListSubscriptions:
            self._asked[broker, session, message.request] = dict(self._delivered.get(broker, {}))

    def sent(self, broker: str, session: int, message: Any) -> None:
        """An SHB answers, in parts if it has much to say."""
        if type(message) is not SubscriptionList:
            return
        delivered = self._asked.get((broker, session, message.request))
        if delivered is not None:
            accounts = {each.sid: each for each in self.model.accounts.values() if each.broker == broker}
            for row in message.rows:
                self._judge(row, accounts.get(row.sid), delivered)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over, and it may come back with another disk."""
        self._delivered.pop(broker.name, None)
        self._asked = {key: asked for key, asked in self._asked.items() if key[0] != broker.name}

    def _judge(self, row: ListedSubscription, account: Account | None, delivered: dict[PubendId, Tick]) -> None:
        if not row.lag_events and row.lag_seconds:
            self.fail(f"{row.name} is listed with no event that is due, and {row.lag_seconds} s behind")
        if account is None or not account.exists or account.row.name != row.name:
            return
        self.world.sometimes(COUNTED if row.lag_complete else NOT_ALL_COUNTED)
        if not row.lag_complete:
            return
        due = 0
        for position in row.acknowledged:
            share = account.shares.get(position.pubend)
            if share is not None and share.history.sound:
                ticks = share.between(max(position.tick, share.start or 0), delivered.get(position.pubend, 0))
                due += sum(tick not in share.history.given_up for tick in ticks)
        if row.lag_events < due:
            self.fail(f"{account} is listed with {row.lag_events} events that are due, all counted, and {due} are")
