"""What whoever reads a Kafka log is told of its beginning, and of its times (KI9)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from gapless.core.client import Delivery
from gapless.core.wire.messages import AskEarliest, Ticks
from gapless_sim.oracles.kafka_logs import KafkaJudge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless_sim.oracles.kafka_logs import KafkaLogs
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer
    from gapless_sim.world.world import World

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)


class KI9Readers(KafkaJudge):
    """The earliest that ranges are told of a log lies behind no record that it has; a time is that of a record (KI9).

    Ticks of such a log are no times, and where a gateway has found it is not where it begins.
    """

    name = "KI9"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._asked: set[tuple[str, int, int]] = set()
        """The questions for the earliest that are not answered: broker, session and number."""

    def received(self, broker: str, session: int, message: Any) -> None:
        """Somebody asks from where on there is something."""
        if isinstance(message, AskEarliest):
            self._asked.add((broker, session, message.request))

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._asked = {each for each in self._asked if each[0] != broker.name}

    def sent(self, broker: str, session: int, message: Any) -> None:
        """Nothing of a log lies at or below the answer: that is what was removed."""
        if not isinstance(message, Ticks) or (broker, session, message.request) not in self._asked:
            return
        self._asked.discard((broker, session, message.request))
        for position in message.positions:
            truth = self.logs.truth(position.pubend)
            if truth is None or not self.logs.exists(position.pubend) or self.logs.cuts(position.pubend):
                continue
            self.world.sometimes("kafka.earliest asked")
            passed = truth.between(truth.first, position.tick)
            if passed:
                self.fail(
                    f"{broker} says that {position.pubend} has nothing up to {position.tick}; {len(passed)} records are"
                    f" there, from {passed[0]} on"
                )

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """An event has the time of its record."""
        truth = self.logs.truth(item.pubend)
        if truth is None or not isinstance(item, Delivery):
            return
        for event in item.events():
            time = truth.times.get(event.tick)
            told = (event.timestamp - _BEGINNING) // _MILLISECOND
            if time is not None and told != time:
                self.fail(f"{consumer.lane} was handed {event.tick} of {item.pubend} with {told}, and it bears {time}")
