"""Transactions: each event takes effect in exactly one committed transaction, and all of a transaction or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from gapless.core.client import Delivery
from gapless.core.client.transacting import Fate
from gapless_sim.oracles.judge import Judge
from gapless_sim.oracles.reachability import Reach
from gapless_sim.world.transactions import Input

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.recording.model import Model
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.transactions import Transaction

Place: TypeAlias = "tuple[int, PubendId, Tick]"
"""An event of a row."""


class J2Committed(Judge):
    """What was committed, as an application was told, is not handed out again to whoever has the subscription."""

    name = "J2"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._committed: dict[Place, int] = {}

    def transacted(self, transaction: Transaction) -> None:
        """An application is told what became of a transaction."""
        if transaction.fate is Fate.COMMITTED:
            self._committed.update(dict.fromkeys(places_of(transaction), transaction.number))

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """One that was replaced and does not know it yet may have buffered what another one has committed."""
        if not isinstance(consumer, Input) or not isinstance(item, Delivery) or consumer.row.owner is not consumer:
            return
        for tick in item.ticks:
            number = self._committed.get((consumer.row.number, item.pubend, tick))
            if number is not None:
                self.fail(f"{consumer.lane} is handed {item.pubend} {tick}, which transaction {number} has committed")


class J4Once(Judge):
    """Each event that was handed out takes effect in exactly one committed transaction; others leave nothing.

    A transaction of which nobody was told the fate is committed if its outputs are in the log. If it has none, it is
    committed unless what it has consumed takes effect in another one: all of that, then.
    """

    name = "J4"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._transactions: list[Transaction] = []
        self._handed: dict[Place, Input] = {}
        self._reach = Reach(model)

    def transacting(self, transaction: Transaction) -> None:
        """An application begins to commit."""
        self._transactions.append(transaction)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """It has to take effect some time."""
        if isinstance(consumer, Input) and isinstance(item, Delivery):
            for tick in item.ticks:
                self._handed[consumer.row.number, item.pubend, tick] = consumer

    def ended(self) -> None:
        """By now every log was read to its end, and everything is committed."""
        effects: dict[Place, int] = {}
        unknown: list[Transaction] = []
        for transaction in self._transactions:
            is_committed = self._is_committed(transaction)
            if is_committed is None:
                unknown.append(transaction)
            elif is_committed:
                self._count(transaction, effects)
        for transaction in reversed(unknown):  # what a later one was handed, an earlier one has not committed
            places = places_of(transaction)
            elsewhere = [place for place in places if place in effects]
            if not elsewhere:
                self._count(transaction, effects)
            elif len(elsewhere) < len(places):
                left = [place for place in places if place not in effects]
                if all(self._is_due(place, self._handed[place]) for place in left):
                    self.fail(
                        f"transaction {transaction.number} took effect in part: {left[0]} does not come again, and"
                        f" {elsewhere[0]} took effect in transaction {effects[elsewhere[0]]}"
                    )
        for place, consumer in self._handed.items():
            if place not in effects and self._is_due(place, consumer):
                self.fail(f"{place} was handed to {consumer.lane}, and never took effect")

    def _count(self, transaction: Transaction, effects: dict[Place, int]) -> None:
        for place in places_of(transaction):
            other = effects.setdefault(place, transaction.number)
            if other != transaction.number:
                self.fail(f"{place} took effect in transactions {other} and {transaction.number}")

    def _is_committed(self, transaction: Transaction) -> bool | None:
        """Whether a transaction took effect; None: only what comes of its inputs can tell."""
        told = transaction.fate
        logged = [publication.key for publication in transaction.outputs if publication.key in self.model.places]
        if not transaction.outputs:
            return {Fate.COMMITTED: True, Fate.ROLLED_BACK: False}.get(told, None if transaction.sent else False)
        if logged and len(logged) < len(transaction.outputs):
            self.fail(f"of transaction {transaction.number} only the outputs {logged} are logged")
        if told is Fate.COMMITTED and not logged:
            self.fail(f"transaction {transaction.number} is committed, as was told, and its outputs are not logged")
        if told is Fate.ROLLED_BACK and logged:
            self.fail(f"transaction {transaction.number} is rolled back, as was told, and its outputs are logged")
        return bool(logged)

    def _is_due(self, place: Place, consumer: Input) -> bool:
        """Whether whoever has the subscription at the end has come as far: all that it was handed is committed."""
        owner = consumer.row.owner
        if not isinstance(owner, Input) or owner.over or not self.model.alive(owner):
            return False
        if not self._reach.is_served(owner):
            return False  # its home, where the position is, may be out of reach for ever
        return owner.client.core.connected and owner.session.is_clean and place[1] in self.model.histories


def places_of(transaction: Transaction) -> list[Place]:
    """The events that a transaction has consumed."""
    return [(row, pubend, tick) for row, places in transaction.consumed.items() for pubend, tick in places]
