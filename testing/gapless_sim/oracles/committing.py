"""What comes again to applications that leave their position to the broker, and what their homes keep for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from gapless.core.client import Delivery, Gap
from gapless.core.ports import Set
from gapless.core.wire.messages import OnChange, StartAt
from gapless_shb.core.subscriptions.commits import COMMIT_RECORDS, CommitRecord
from gapless_sim.oracles.judge import Judge

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.link.effects import Attached
    from gapless.core.ports import Operation
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.messages import Unit
    from gapless_sim.recording.model import Model
    from gapless_sim.world.broker import SimBroker
    from gapless_sim.world.consumer import Consumer, Row


@dataclass(slots=True)
class Handed:
    """What one subscription's applications were handed of a pubend."""

    committed: Tick = -1
    """Up to where their commits were answered."""
    times: dict[Tick, int] = field(default_factory=dict)
    """How often each event above that was handed out."""
    attempts: dict[tuple[Tick, Consumer], None] = field(default_factory=dict)
    """Who has asked for an attempt to be counted; maybe it died before it was handed the event."""

    counted: dict[Tick, int] = field(default_factory=dict)
    """How often each event was handed out after such an attempt."""
    recovered: dict[tuple[Tick, Consumer], int] = field(default_factory=dict)
    """How often a process that recovers was handed each event, by the first of its consumers."""

    def count_most(self, tick: Tick) -> int:
        """How often an event may say that it was handed out: a first time, and so many attempts."""
        return max(2, 1 + self.attempts_at(tick))

    def attempts_at(self, tick: Tick) -> int:
        """How many attempts there were of an event."""
        return sum(at == tick for at, _ in self.attempts)


def _origin(row: Row) -> Row:
    """The row whose position a row has kept, though it is for other events."""
    while row.former is not None and row.on_change is OnChange.KEEP_POSITION:
        row = row.former
    return row


class J1Marked(Judge):
    """Whose position is kept by the broker gets again only what it had in hand, and it is marked.

    An application that was replaced while it did not hear of it is out of this: its broker handed it an event when it
    was the consumer, and it takes effect whenever it comes. Others learn that it may have.
    """

    name = "J1"
    gathering = False
    """Whether it looks at what gathers until it is acknowledged."""

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._handed: dict[tuple[int, PubendId], Handed] = {}
        self._latest: dict[int, tuple[Consumer, dict[PubendId, Tick]]] = {}
        """Which process has each subscription, by the first of its consumers, and the newest events when it came."""
        self._sids: dict[int, int] = {}
        """Its id at its home, as its applications have read it last."""

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """A consumer has the subscription now.

        What had lapsed is made anew, perhaps for one whose answer was lost: what nobody committed may come again, as if
        it had never come; and at a token it begins there, whatever was committed above. With another filter another
        event is the first one, and how often a later one was tried is not known any more.
        """
        if consumer.by_ranges:
            return  # it commits nothing, and goes on for nobody
        number = _origin(consumer.row).number
        is_another = result.created or self._sids.get(number, result.sid) != result.sid
        self._sids[number] = result.sid
        at_token = self.model.creator_of(consumer).wanted.start is StartAt.TOKEN
        for (of, pubend), handed in self._handed.items():
            if of == number and is_another:
                handed.times, handed.counted = {}, {}
                if at_token:
                    handed.committed = min(handed.committed, begins.get(pubend, -1))
            elif of == number and of != consumer.row.number:
                handed.counted = {}
        latest = self._latest.get(number)
        if latest is None or latest[0] is not consumer.first:
            newest = {pubend: history.ticks[-1] for pubend, history in self.model.histories.items() if history.ticks}
            self._latest[number] = consumer.first, newest

    def durably_committed(self, consumer: Consumer, positions: Mapping[PubendId, Tick]) -> None:
        """Nothing up to there comes again."""
        for pubend, tick in positions.items():
            handed = self._of(consumer, pubend)
            handed.committed = max(handed.committed, tick)
            handed.times = {at: times for at, times in handed.times.items() if at > tick}
            handed.counted = {at: times for at, times in handed.counted.items() if at > tick}
            handed.attempts = {key: None for key in handed.attempts if key[0] > tick}
            handed.recovered = {key: times for key, times in handed.recovered.items() if key[0] > tick}

    def attempting(self, consumer: Consumer, unit: Unit) -> None:
        """One more attempt is counted, if it gets there.

        A home counts those of one event of a pubend, the first that is not committed: with another filter that may be
        an earlier one.
        """
        handed = self._of(consumer, unit.pubend)
        handed.attempts[unit.first, consumer] = None
        handed.counted = {at: times for at, times in handed.counted.items() if at <= unit.first}

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something is handed out: for the first time, or again."""
        if not consumer.is_marked or self.model.has_lost_disks:
            return
        handed = self._of(consumer, item.pubend)
        if isinstance(item, Gap):
            # Another event is the first one now, whose attempts are counted. Those of what may be lost are forgotten,
            # and yet an SHB that has it still may serve it to the next consumer.
            handed.counted = {at: times for at, times in handed.counted.items() if at > item.end}
        if not isinstance(item, Delivery):
            return
        for event in self.model.events(item):
            before = handed.times.get(event.tick, 0)
            what = f"{consumer.lane} was handed {item.pubend} {event.tick}"
            if consumer.gathers is self.gathering and consumer.row.owner is consumer:
                if event.tick <= handed.committed:
                    self.fail(f"{what} again, after its commit was answered up to {handed.committed}")
                if before and not event.redelivered:
                    self.fail(f"{what} again, and it is not marked")
                asked = handed.count_most(event.tick) + consumer.recoveries
                if event.delivery_count > asked:
                    self.fail(
                        f"{what}, for the {event.delivery_count}th time as it says, which is at most the {asked}th"
                    )
                here = handed.recovered.get((event.tick, consumer.first), 0)
                if consumer.gathers and event.delivery_count < 1 + here:
                    self.fail(f"{what}, which counts {event.delivery_count}; its process was handed it {here} times")
                most = 1 + here + handed.attempts_at(event.tick)
                if (
                    consumer.gathers
                    and self._is_alone(consumer, item.pubend, event.tick)
                    and event.delivery_count > most
                ):
                    self.fail(f"{what}, which counts {event.delivery_count}; nobody else could have had it: {most}")
                counted = handed.counted.get(event.tick, 0)
                if event.delivery_count < 1 + counted:
                    self.fail(f"{what}, which counts {event.delivery_count}; {counted} attempts were durable before")
            if (event.tick, consumer) in handed.attempts:
                handed.counted[event.tick] = handed.counted.get(event.tick, 0) + 1
            handed.times[event.tick] = before + 1
            if consumer.gathers:
                key = event.tick, consumer.first
                handed.recovered[key] = handed.recovered.get(key, 0) + 1

    def _is_alone(self, consumer: Consumer, pubend: PubendId, tick: Tick) -> bool:
        """Whether an event came when its process had the subscription, and no other one has had it since."""
        process, newest = self._latest.get(_origin(consumer.row).number, (None, {}))
        return process is consumer.first and tick > newest.get(pubend, 0)

    def _of(self, consumer: Consumer, pubend: PubendId) -> Handed:
        return self._handed.setdefault((_origin(consumer.row).number, pubend), Handed())


class J2Acknowledged(J1Marked):
    """Whoever acknowledges all that it was handed gets nothing of it again; what it has not acknowledged is marked."""

    name = "J2"
    gathering = True


class J5Vain(Judge):
    """No event comes marked that nobody can have been handed.

    Whoever finds no doubt gets only that marked which an application was handed. Where there is doubt, some event may
    be marked that nobody was handed, because its application died first: but one that a filter selects under which
    another application had asked for the subscription before.
    """

    name = "J5"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._asked: dict[int, list[Consumer]] = {}
        """Who has asked for each subscription."""
        self._handed: set[tuple[int, PubendId, Tick]] = set()

    def subscribing(self, consumer: Consumer) -> None:
        """A consumer asks for a subscription: it may get it, and be handed something."""
        if not consumer.by_ranges:
            self._asked.setdefault(_origin(consumer.row).number, []).append(consumer)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """Something is handed out."""
        if not isinstance(item, Delivery) or consumer.by_ranges:
            return
        number = _origin(consumer.row).number
        for event in self.model.events(item):
            key = number, item.pubend, event.tick
            if event.redelivered and key not in self._handed and consumer.is_marked and not self.model.has_lost_disks:
                self._judge(consumer, number, item.pubend, event.tick)
            self._handed.add(key)

    def _judge(self, consumer: Consumer, number: int, pubend: PubendId, tick: Tick) -> None:
        what = f"{consumer.lane} was handed {pubend} {tick} marked, which nobody was handed"
        committing = consumer.core.committing
        if committing is not None and not committing.found_doubt:
            self.fail(f"{what}, and all before it had left in order")
        event = self.model.histories[pubend].events.get(tick)
        others = [each.row for each in self._asked[number] if each.first is not consumer.first]
        if event is not None and not any(row.matches(event) for row in others):
            self.fail(f"{what}, and no filter before this one selects it")


class J10Desks(Judge):
    """A commit record is one row, which is small: an attempt and a batch for each pubend at most."""

    name = "J10"

    def written(self, broker: SimBroker, operations: Sequence[Operation]) -> None:
        """A broker writes."""
        for operation in operations:
            if isinstance(operation, Set) and operation.table == COMMIT_RECORDS:
                record = msgspec.msgpack.decode(operation.value, type=CommitRecord)
                if not {*record.attempts, *record.units} <= {*self.model.histories}:
                    self.fail(f"{broker.name} keeps in a commit record what is of no pubend: {record}")
