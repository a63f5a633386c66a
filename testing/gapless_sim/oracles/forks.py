"""What two processes of one PHB have logged, on copies of its volume (protocol: forks)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client import Gap
from gapless.core.wire.messages import GapReason
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.accounts import Logged
    from gapless_sim.consumer import Consumer
    from gapless_sim.model import Model
    from gapless_sim.oracles.delivery import I3Gapless


class N2Told(Judge):
    """An event that either process of a PHB has logged is delivered, or lies in or below a gap that says so.

    Below: ticks only rise. What one process has logged below a place that a subscription had from the other one cannot
    be delivered to it any more; it is told at the present, by which all subscriptions come.
    """

    name = "N2"

    def __init__(self, model: Model, gapless: I3Gapless) -> None:
        super().__init__(model)
        self._passed: dict[tuple[int, PubendId], tuple[Consumer, Logged]] = {}
        """By the number of a row: the last event that it has passed, and who had the row."""
        self._told: dict[tuple[int, PubendId], Tick] = {}
        """Up to where it was told."""
        gapless.passed.append(self.passed)

    def passed(self, consumer: Consumer, event: Logged) -> None:
        """A consumer stands above an event that it matches, and was not handed it."""
        key = consumer.row.number, event.pubend
        before = self._passed.get(key)
        if before is None or before[1].tick <= event.tick:
            self._passed[key] = consumer, event

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """It is told."""
        if isinstance(item, Gap) and item.reason == GapReason.TWICE.value:
            key = consumer.row.number, item.pubend
            self._told[key] = max(item.end, self._told.get(key, 0))

    def settled(self) -> bool:
        """Whether all who live were told."""
        return not self._untold()

    def unsettled(self) -> str:
        """Who was not."""
        return "; ".join(
            f"{consumer.lane} has passed publication {event.publication.key} of {event.pubend} at {event.tick}, which "
            "one of two processes has logged, and was not told that there were two"
            for consumer, event in self._untold()
        )

    def _untold(self) -> list[tuple[Consumer, Logged]]:
        return [
            (consumer, event)
            for key, (consumer, event) in self._passed.items()
            if event.tick > self._told.get(key, 0)
            and self.model.alive(consumer)
            and self.model.histories[event.pubend].answered_for
        ]
