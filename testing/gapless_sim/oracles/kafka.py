"""What must hold of pubends whose logs are Kafka's: KI1 to KI6, judged by the model's own log.

The truth is read off the model: the committed records, without twins. Which batches are twins is worked out here, apart
from the code that is judged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from gapless.core.client import Delivery, Gap
from gapless.core.wire.messages import StartAt
from gapless.core.wire.messages.subscribing import GapReason
from gapless_log.kafka.lineage import offset_of
from gapless_log.kafka.records import Batch, records
from gapless_sim.model import begins_of
from gapless_sim.observation import Oracle, Violation
from gapless_sim.producer import key_of

if TYPE_CHECKING:
    from gapless.core.client import Item
    from gapless.core.client.effects import Attached
    from gapless.core.network.facts import PubendMeta
    from gapless.core.stream.knowledge import Knowledge
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless.core.wire.tokens import CheckpointToken
    from gapless_sim.consumer import Consumer
    from gapless_sim.kafka_model import Partition
    from gapless_sim.kafka_network import SimKafka
    from gapless_sim.producer import Producer, Publication
    from gapless_sim.world import World

OFFSETS = 44
_LOST_BY_THE_LOG = (GapReason.RELEASED_EARLY.value, GapReason.CUT.value)
"""What a gap may say of why it is there."""


@dataclass(slots=True)
class Truth:
    """What a partition's log says, as it is now."""

    ticks: list[Tick]
    """Of all events, in order."""
    keys: dict[Tick, int]
    stable: Tick
    """Nothing is decided above."""
    first: Tick
    """Everything at or below it was removed."""

    def between(self, lo: Tick, hi: Tick) -> Sequence[Tick]:
        """The events in (lo, hi]."""
        return self.ticks[bisect_right(self.ticks, lo) : bisect_right(self.ticks, hi)]


class Mark(NamedTuple):
    """What a batch of ours is marked with, as it stands in the header of its first record."""

    version: int
    tag: int
    publisher: str
    epoch: int
    first: int
    events: int
    crc: int
    after: Tick
    tokens: bytes
    keyed: bool
    begins: bool

    @property
    def last(self) -> int:
        """The sequence of its last event."""
        return self.first + self.events - 1

    def is_settled_by(self, other: Mark) -> bool:
        """Whether a batch that lies before this one, and was not met by who sent this one, makes this one a twin."""
        if (other.publisher, other.keyed) != (self.publisher, self.keyed):
            return False
        if self.keyed:
            return (other.epoch, other.last) >= (self.epoch, self.first)
        if other.epoch != self.epoch:
            return other.epoch > self.epoch or (self.begins and other.last >= self.first)
        return other.last >= self.first


@dataclass(slots=True)
class _Log:
    """A partition, and what was worked out of it so far."""

    partition: Partition
    pubend: PubendId
    state: tuple[int, ...] = ()
    truth: Truth = field(default_factory=lambda: Truth([], {}, 0, 0))
    ever: dict[Tick, int] = field(default_factory=dict)
    """Every event that this log ever had, those that were cut off too."""
    decoded: dict[int, Sequence[tuple[int, int, Mark | None]]] = field(default_factory=dict)
    """By batch: of each record the offset, the key, and the mark in it."""


class KafkaLogs:
    """The logs of all topics that there ever were, by the ids of their pubends."""

    def __init__(self, kafka: SimKafka) -> None:
        self._kafka = kafka
        self._logs: dict[PubendId, _Log] = {}
        self._batches: list[Batch] = []
        """Kept alive: they are known by their ids."""
        kafka.on_changed.append(self.look)

    def look(self) -> None:
        """Notes what was added to any log, before it is cut."""
        for topic, number, partition in self._kafka.partitions():
            pubend = self._kafka.pubend_of(topic, number)
            log = self._logs.get(pubend)
            if log is None:
                log = self._logs[pubend] = _Log(partition, pubend)
            self._refresh(log)

    @property
    def pubends(self) -> Sequence[PubendId]:
        """All that there ever were."""
        return list(self._logs)

    def exists(self, pubend: PubendId) -> bool:
        """Whether its topic still is there."""
        return any(self._kafka.pubend_of(topic, number) == pubend for topic, number, _ in self._kafka.partitions())

    def cuts(self, pubend: PubendId) -> int:
        """How often the end of its log was lost."""
        return self._logs[pubend].partition.cuts

    def truth(self, pubend: PubendId) -> Truth | None:
        """What its log says now, or said when its topic was deleted."""
        log = self._logs.get(pubend)
        if log is None:
            return None
        self._refresh(log)
        return log.truth

    def ever(self, pubend: PubendId) -> Mapping[Tick, int]:
        """Every event that its log ever had."""
        self._refresh(self._logs[pubend])
        return self._logs[pubend].ever

    def _refresh(self, log: _Log) -> None:
        partition = log.partition
        state = (
            len(partition.removed) + len(partition.log),
            partition.stable,
            partition.start,
            partition.cuts,
            partition.epoch,
            len(partition.aborted),
        )
        if state == log.state:
            return
        log.state = state
        keys: dict[Tick, int] = {}
        met: list[tuple[Tick, Mark]] = []
        for batch, counts in partition.committed():
            if not counts:
                continue
            below = batch.leader_epoch << OFFSETS
            silent_upto = -1
            for offset, key, mark in self._decode(log, batch):
                tick = below + offset + 1
                if mark is not None:
                    if any(mark.after < at < tick and mark.is_settled_by(other) for at, other in met):
                        silent_upto = offset + mark.events - 1
                    met.append((tick, mark))
                if offset > silent_upto:
                    keys[tick] = key
        stable = _position(partition, partition.stable)
        log.truth = Truth(sorted(keys), keys, stable, _beginning(partition))
        log.ever |= keys

    def _decode(self, log: _Log, batch: Batch) -> Sequence[tuple[int, int, Mark | None]]:
        found = log.decoded.get(id(batch))
        if found is None:
            self._batches.append(batch)
            found = log.decoded[id(batch)] = [
                (record.offset, key_of(record.value or b""), self._mark(log, record.headers))
                for record in records(batch)
            ]
        return found

    def _mark(self, log: _Log, headers: Sequence[tuple[str, bytes | None]]) -> Mark | None:
        """The mark in these headers, if it is of this log."""
        if not headers or headers[0][0] != "gapless":
            return None
        mark = Mark(*msgspec.msgpack.decode(headers[0][1] or b""))
        return mark if mark.tag == self._kafka.tag_of(log.pubend) else None


def _position(partition: Partition, offset: int) -> Tick:
    """The tick of one who has read everything below an offset."""
    epoch = next((batch.leader_epoch for batch in reversed(partition.log) if batch.first < offset), None)
    return (partition.begins[0][0] if epoch is None else epoch) << OFFSETS | offset


def _beginning(partition: Partition) -> Tick:
    offset = partition.start
    begins = [begin for _, begin in partition.begins]
    return partition.begins[max(0, bisect_right(begins, offset) - 1)][0] << OFFSETS | offset


class KafkaJudge(Oracle):
    """The logs, for all that look at them."""

    name: ClassVar[str]

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world)
        self.logs = logs

    def fail(self, what: str) -> None:
        """It does not hold."""
        raise Violation(self.name, what)


class KI2Told(KafkaJudge):
    """A gateway says an event where the log has it, and silence nowhere where the log has one (KI1, KI2, KI3)."""

    name = "KI2"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._said: dict[PubendId, dict[Tick, int]] = {}

    def known(self, broker: str, knowledge: Knowledge) -> None:
        """Compares what a gateway says with the log."""
        pubend, lo, hi, data = knowledge.pubend, knowledge.lo, knowledge.hi, knowledge.data
        truth = self.logs.truth(pubend)
        if truth is None or knowledge.damaged:
            return
        ever, cuts = self.logs.ever(pubend), self.logs.cuts(pubend)
        exists = self.logs.exists(pubend)
        if knowledge.lost > truth.first and exists and not cuts:
            self.fail(
                f"{broker} calls everything up to {knowledge.lost} of {pubend} lost; the log begins at {truth.first}"
            )
        if hi > truth.stable and not cuts and hi > knowledge.lost:
            self.fail(f"{broker} decides {pubend} up to {hi}, and its stable end is {truth.stable} (TK7)")
        lo = min(max(lo, knowledge.lost), hi)
        told = set()
        for index, tick in enumerate(data.ticks):
            event = data.events[index]
            key = key_of(event[len(event) - data.body_lengths[index] :])
            told.add(tick)
            if ever.get(tick) != key:
                self.fail(f"{broker} says record {key} at {tick} of {pubend}, where the log has {ever.get(tick)}")
        hidden = [tick for tick in truth.between(lo, hi) if tick not in told]
        if hidden and exists:
            self.fail(f"{broker} says silence at {hidden[0]} of {pubend}, where record {truth.keys[hidden[0]]} is")


class KI4Whole(KafkaJudge):
    """No consumer passes an event of the log that it wants, but by a gap; and a gap has a cause (KI4, KI5)."""

    name = "KI4"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._positions: dict[Consumer, dict[PubendId, Tick]] = {}
        self._created: dict[tuple[str, PubendId], Tick] = {}
        """Where each gateway says that a pubend began for it."""
        self._families: dict[tuple[str, str], int] = {}
        """When a gateway opened the first pubend of a topic."""

    def opened(self, broker: str, meta: PubendMeta, members: Mapping[str, Tick]) -> None:
        """A gateway has a pubend. One that appears later begins with its first record (TK18)."""
        if self.logs.truth(meta.pubend) is None or (broker, meta.pubend) in self._created:
            return
        name = meta.pubend.partition(".")[0]
        since = self._families.setdefault((broker, name), self.world.now)
        if meta.created and since < self.world.now:
            self.fail(f"{broker} has {meta.pubend} later than others of its topic, and begins it at {meta.created}")
        self._created[broker, meta.pubend] = meta.created

    def attached(self, consumer: Consumer, result: Attached, begins: Mapping[PubendId, Tick]) -> None:
        """It begins here."""
        self._positions[consumer] = begins_of(consumer, begins)
        for pubend, tick in begins.items():
            self._pass(consumer, pubend, tick)

    def handed_out(self, consumer: Consumer, item: Item) -> None:
        """The next thing must be the next thing."""
        pubend = item.pubend
        truth = self.logs.truth(pubend)
        if truth is None:
            return
        if isinstance(item, Delivery):
            ever = self.logs.ever(pubend)
            for tick, body in zip(item.ticks, item.bodies(), strict=True):
                key = key_of(body)
                if ever.get(tick) != key:
                    self.fail(
                        f"{consumer.lane} was handed record {key} at {tick} of {pubend}, and not {ever.get(tick)}"
                    )
                if not consumer.row.matches(key):  # type: ignore[arg-type]
                    self.fail(f"{consumer.lane} was handed record {key}, which it does not want")
                position = self._positions[consumer].get(pubend, 0)
                if tick <= position:
                    self.fail(f"{consumer.lane} was handed {tick} of {pubend}, and stands at {position}")
                self._pass(consumer, pubend, tick - 1)
                self._positions[consumer][pubend] = tick
        elif isinstance(item, Gap):
            self._pass(consumer, pubend, item.start)
            exists, cuts = self.logs.exists(pubend), self.logs.cuts(pubend)
            if exists and not cuts and item.end > truth.first:
                self.fail(f"{consumer.lane} was told {item}, and the log begins at {truth.first}")
            if exists and not cuts and offset_of(item.start) >= offset_of(item.end):
                self.fail(f"{consumer.lane} was told {item}, and no record was ever there")
            if item.reason not in _LOST_BY_THE_LOG:
                self.fail(f"{consumer.lane} was told {item}, and it is the log that has lost it")
            self.world.sometimes("kafka.gap")
            self._positions[consumer][pubend] = item.end
        else:
            self._pass(consumer, pubend, item.end)

    def committed(self, consumer: Consumer, token: CheckpointToken) -> None:
        """The token may stand behind silence that was not handed out."""
        for pubend, tick in token.ticks.items():
            self._pass(consumer, pubend, tick)

    def _pass(self, consumer: Consumer, pubend: PubendId, tick: Tick) -> None:
        truth = self.logs.truth(pubend)
        positions = self._positions.get(consumer)
        if truth is None or positions is None:
            return
        at = positions.get(pubend)
        if at is None:
            at = self._begin(consumer, pubend)
        if tick <= at:
            return
        if self.logs.exists(pubend):
            for passed in truth.between(at, tick):
                if consumer.row.matches(truth.keys[passed]):  # type: ignore[arg-type]
                    self.fail(
                        f"{consumer.lane} passes record {truth.keys[passed]} at {passed} of {pubend} on its way from"
                        f" {at} to {tick}"
                    )
        positions[pubend] = tick

    def _begin(self, consumer: Consumer, pubend: PubendId) -> Tick:
        """Where it may begin on a pubend that was not known when it attached."""
        if consumer.row.start is not StartAt.LATEST:
            return 0
        return max(self._created.get((address, pubend), 0) for address in consumer.client.addresses)

    def position(self, consumer: Consumer, pubend: PubendId) -> Tick:
        """Up to where it has taken a pubend."""
        return self._positions.get(consumer, {}).get(pubend, 0)


class KI6Published(KafkaJudge):
    """What was published through a gateway is an event once, in order, where its receipt says (KI6)."""

    name = "KI6"

    def __init__(self, world: World, logs: KafkaLogs) -> None:
        super().__init__(world, logs)
        self._receipts: dict[int, tuple[PubendId, Tick]] = {}
        self._published: dict[int, str] = {}

    def published(self, producer: Producer, publications: Sequence[Publication]) -> None:
        """An application begins to publish."""
        for publication in publications:
            self._published[publication.key] = producer.name

    def receipted(
        self, producer: Producer, publication: Publication, pubend: PubendId, tick: Tick, *, durable: bool
    ) -> None:
        """A receipt names an event of the log."""
        truth = self.logs.truth(pubend)
        if truth is None:
            self.fail(f"publication {publication.key} is said to be at {tick} of {pubend}, which is no log of Kafka")
            return
        if tick and self.logs.ever(pubend).get(tick) != publication.key:
            known = self.logs.ever(pubend).get(tick)
            self.fail(f"publication {publication.key} is said to be at {tick} of {pubend}, and there is {known}")
        if tick:
            before = self._receipts.get(publication.key, (pubend, tick))
            self._receipts[publication.key] = pubend, tick
            # Of a topic that was made anew nothing is known any more, so its publishers begin anew.
            if before != (pubend, tick) and self.logs.exists(before[0]):
                self.fail(f"publication {publication.key} was said to be at {before}, and now at {(pubend, tick)}")

    def ended(self) -> None:
        """No publication is an event twice, and none of a publisher comes before an earlier one, in what there is.

        Of what retention has removed a gateway that died knows only what was in its last checkpoint.
        """
        places: dict[int, tuple[PubendId, Tick]] = {}
        for pubend in filter(self.logs.exists, self.logs.pubends):
            truth = self.logs.truth(pubend)
            assert truth is not None
            newest: dict[str, int] = {}
            for tick in truth.between(truth.first, truth.stable):
                key = truth.keys[tick]
                name = self._published.get(key)
                if name is None:
                    continue
                if key in places:
                    self.fail(f"publication {key} is logged at {places[key]} and at {(pubend, tick)}")
                places[key] = pubend, tick
                if newest.get(name, 0) > key:
                    self.fail(f"publication {key} of {name} is logged behind {newest[name]}")
                newest[name] = key


class KI4Settled(KafkaJudge):
    """Once nothing goes wrong any more, every consumer gets to the end of every log."""

    name = "KI4"

    def __init__(self, world: World, logs: KafkaLogs, whole: KI4Whole) -> None:
        super().__init__(world, logs)
        self._whole = whole
        self._what = ""

    def settled(self) -> bool:
        """Whether all is consumed."""
        self._what = self._missing()
        return not self._what

    def unsettled(self) -> str:
        """What is missing."""
        return self._what

    def _missing(self) -> str:
        kafka = self.world.kafka
        assert kafka is not None
        for client in filter(kafka.serves, self.world.clients.values()):
            for consumer in client.consumers.values():
                for pubend in self.logs.pubends:
                    truth = self.logs.truth(pubend)
                    assert truth is not None
                    wanted = [tick for tick in truth.ticks if consumer.row.matches(truth.keys[tick])]  # type: ignore[arg-type]
                    at = self._whole.position(consumer, pubend)
                    if not consumer.attached:
                        return f"{consumer.lane} has no subscription"
                    if self.logs.exists(pubend) and wanted and wanted[-1] > at:
                        behind = len(wanted) - bisect_left(wanted, at + 1)
                        return f"{consumer.lane} stands at {at} of {pubend}, and {behind} events are behind that"
        return ""


def kafka_oracles(world: World) -> list[Oracle]:
    """All of them."""
    assert world.kafka is not None
    logs = KafkaLogs(world.kafka)
    whole = KI4Whole(world, logs)
    return [KI2Told(world, logs), whole, KI6Published(world, logs), KI4Settled(world, logs, whole)]
