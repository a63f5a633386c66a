"""Consumers whose position the broker keeps: as `AckMode.AUTO` consumes, and as `CLIENT` does.

What they are done with, and how often they die, is decided by a workload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless_sim.world.consumer import Consumer

if TYPE_CHECKING:
    from gapless.core.client.consuming.subscription import SubscribeOptions
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.world.application import SimClient
    from gapless_sim.world.consumer import Row

BATCH = 8
"""So many events at most are a unit, if its application does not mind."""


class CommittingConsumer(Consumer):
    """Consumes as `AckMode.AUTO` does: it asks for more when the effects of what it has in hand are done."""

    commits = True
    is_marked = True

    def __init__(self, client: SimClient, row: Row, wanted: SubscribeOptions, **habits: Any) -> None:
        portion = habits.pop("portion", None) or BATCH
        super().__init__(client, row, wanted, **{**habits, "portion": portion, "acknowledges": "never"})
        self.in_hand = False
        """Whether it was handed something and has not asked for more since."""
        self._committing: dict[PubendId, Tick] = {}

    def commit(self) -> None:
        """It is done with what it has in hand, as far as its application knows."""
        if self.over or not self.attached:
            return
        if self.in_hand:
            super().commit()
            self.in_hand = False
        client, positions = self.client, self.core.end_positions()
        if self.is_durable():
            client.core.commit(self.number, positions, self.portion or 1, client.monotonic())
            if not self.is_durable():
                client.world.observe.acknowledged(self, positions)
                self._committing = positions
                self._note_attempt()
            client.schedule_pump()

    def is_durable(self) -> bool:
        """Whether nothing has to be answered by the broker before more may be handed out."""
        committing = self.core.committing
        return committing is None or committing.under_way is None

    def settle(self) -> bool:
        """Whether everything that it was done with is durable, as far as its application can see."""
        if not self.is_durable():
            return False
        if self._committing:
            self.client.world.observe.durably_committed(self, self._committing)
            self._committing = {}
        return True

    def _note_attempt(self) -> None:
        committing = self.core.committing
        assert committing is not None
        asked = committing.under_way
        if asked is not None and asked.unit is not None and asked.unit.counted:
            self.client.world.observe.attempting(self, asked.unit)

    def _take_one(self) -> bool:
        if not self.attached:
            return False
        self.commit()
        if not self.settle():
            return False
        item = self.client.core.take_unit(self.number, self.client.monotonic(), self.portion)
        self._note_attempt()
        if item is None:
            return False
        self.in_hand = True
        self.client.world.observe.handed_out(self, item)
        return not self.over


class GatheringConsumer(CommittingConsumer):
    """Consumes as `AckMode.CLIENT` does: now and then it acknowledges all that it was handed, or has it come again."""

    gathers = True

    def __init__(
        self,
        client: SimClient,
        row: Row,
        wanted: SubscribeOptions,
        *,
        former: GatheringConsumer | None = None,
        **habits: Any,
    ) -> None:
        """`former`: whose unacknowledged events come again."""
        self._former = former
        self.recoveries = 0 if former is None else former.recoveries + 1
        """How often this process has had events come again."""
        self.gathered = 0
        """How many items it was handed since it acknowledged."""
        self.acknowledges_next = False
        super().__init__(client, row, wanted, **habits)
        if former is not None:
            self.first = former.first

    def begin(self) -> int:
        """Asks for the subscription, or for what is not acknowledged of it."""
        former, client = self._former, self.client
        if former is None:
            return super().begin()
        number = client.core.recover(former.number, former.core.end_positions(), client.monotonic())
        former.over = True
        client.disown(former.number)
        return number

    def commit(self) -> None:
        """It is done with what it has in hand, if its application says so."""
        if self.acknowledges_next and self.is_durable():
            self.acknowledges_next = False
            self.gathered = 0
            super().commit()

    def _take_one(self) -> bool:
        if not super()._take_one():
            return False
        self.gathered += 1
        return not self.over
