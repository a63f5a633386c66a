"""Total order: what a group's subscriber is handed rises by tick and pubend, over all pubends and all its lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from gapless.core.client import Delivery, Gap
from gapless.core.wire.messages import Deliver, DeliverGap, Detached, GapReason, Order, PubendNumber, Subscribed
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.oracles.delivery import I3Gapless
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer

TOO_LATE = "oracle.gap of what comes too late for its order"
SOMETIMES = (TOO_LATE,)

Place: TypeAlias = "tuple[Tick, PubendId]"


class I11TotalOrder(Judge):
    """Each event that an application is handed stands behind those before, by tick and then by pubend.

    So any two subscribers of a group get their common events in one order. A consumer that begins with a token gets
    events behind all that was handed out when the token was committed. Gaps are looked at where they are sent. What is
    still delivered of a pubend that is gone with its disk stands beside the order. The one in its place may publish
    where the order has been, which is a gap: in front of the consumer's place there is none.

    Where an old copy of a disk was put back nothing can be said.
    """

    name = "I11"

    def __init__(self, model: Model, gapless: I3Gapless) -> None:
        super().__init__(model)
        self._gapless = gapless
        self._last: dict[Consumer, dict[PubendId, Tick]] = {}
        self._committed: dict[tuple[int, frozenset[tuple[PubendId, Tick]]], dict[PubendId, Tick]] = {}
        """Where the order had come to, by a row's number and the ticks of a token."""

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It goes on behind what its application has, if it says by a token what that is."""
        asked = consumer.wanted.positions
        if asked is not None:
            key = consumer.row.number, frozenset(asked.items())
            if key in self._committed:
                self._last[consumer] = dict(self._committed[key])

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """What is handed out stands behind all that was."""
        if isinstance(item, Gap) and item.reason == GapReason.TOO_LATE.value:
            self._judge_too_late(consumer, item)
        if consumer.wanted.order is not Order.TOTAL or self.model.damaged_brokers:
            return
        if isinstance(item, Delivery) and not is_gone(self.model, item.pubend):
            for tick in item.ticks:
                self._put(consumer, (tick, item.pubend))

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """Whoever goes on with this token goes on from here."""
        if consumer in self._last:
            self._committed[consumer.row.number, frozenset(token.ticks.items())] = dict(self._last[consumer])

    def checkpoint(self) -> None:
        """A consumer that is gone gets nothing more."""
        self._last = {each: place for each, place in self._last.items() if self.model.alive(each)}

    def _judge_too_late(self, consumer: Consumer, gap: Gap) -> None:
        histories = self.model.histories
        node = histories[gap.pubend].broker
        ends = self._gapless.ends
        told = {other: self._gapless.position(consumer, other) or 0 for other in histories if other != gap.pubend}
        places = [(tick, other) for other, tick in told.items() if other not in ends or tick < ends[other]]
        is_anew = any(each.gone and each.broker == node for each in histories.values())
        if consumer.wanted.order is not Order.TOTAL or not is_anew or max(places) < (gap.end, gap.pubend):
            self.fail(f"{consumer.lane} was told that {gap} comes too late, and it stands at {max(places)}")
        self.world.sometimes(TOO_LATE)

    def _put(self, consumer: Consumer, place: Place) -> None:
        last = self._last.setdefault(consumer, {})
        before = latest(self.model, last)
        if place <= before:
            self.fail(f"{consumer.lane} was handed {place[1]} {place[0]} behind {before[1]} {before[0]}")
        last[place[1]] = place[0]


class I11Served(Judge):
    """What an SHB sends of a group rises as well, gaps among it: each stands where it begins.

    To be seen where it is sent: behind a connection that broke, a gap may begin where its pubend had come to, and that
    may be before the last event of another one.
    """

    name = "I11"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._numbers: dict[tuple[str, int, int], PubendId] = {}
        """What a session's number of a pubend stands for."""
        self._last: dict[tuple[str, int], dict[int, dict[PubendId, Tick]]] = {}
        """By broker and session, of each subscription in total order: the last that was sent to it of each pubend."""

    def sent(self, broker: str, session: int, message: Any) -> None:
        """Follows a session."""
        key, kind = (broker, session), type(message)
        if kind is PubendNumber:
            self._numbers[broker, session, message.number] = message.pubend
        elif kind is Subscribed:
            given = self._last.setdefault(key, {})
            given.pop(message.sid, None)
            if message.group:
                given[message.sid] = {}
        elif kind is Detached:
            self._last.get(key, {}).pop(message.sid, None)
        elif kind is Deliver and message.sid in self._last.get(key, {}):
            ticks = message.columns.ticks()
            self._put(key, message, ticks[0], ticks[-1])
        elif kind is DeliverGap and message.sid in self._last.get(key, {}):
            self._put(key, message, message.start + 1, message.start + 1)

    def left(self, broker: str, session: int) -> None:
        """A session is over."""
        self._last.pop((broker, session), None)

    def crashed(self, broker: SimBroker) -> None:
        """Its sessions are over."""
        self._last = {key: given for key, given in self._last.items() if key[0] != broker.name}
        self._numbers = {key: pubend for key, pubend in self._numbers.items() if key[0] != broker.name}

    def _put(self, key: tuple[str, int], message: Deliver | DeliverGap, first: Tick, last: Tick) -> None:
        pubend = self._numbers[key[0], key[1], message.number]
        given = self._last[key][message.sid]
        before = latest(self.model, given)
        if (first, pubend) <= before and not self.model.damaged_brokers and not is_gone(self.model, pubend):
            self.fail(f"{key[0]} sends {pubend} {first} to subscription {message.sid}, behind {before[1]} {before[0]}")
        given[pubend] = last


def latest(model: Model, ticks: Mapping[PubendId, Tick]) -> Place:
    """Returns the last place of these: what is delivered of a pubend that is gone stands beside the order."""
    places = ((tick, pubend) for pubend, tick in ticks.items() if not is_gone(model, pubend))
    return max(places, default=(0, ""))


def is_gone(model: Model, pubend: PubendId) -> bool:
    """Whether a pubend is gone with its disk."""
    history = model.histories.get(pubend)
    return history is not None and history.gone
