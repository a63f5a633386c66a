"""What the logs of the model Kafka say: the truth by which pubends on them are judged.

It is read off the model: the committed records, without duplicates. Which batches are duplicates is worked out here,
apart from the code that is judged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import msgspec

from gapless_log.kafka.records import Batch, records
from gapless_sim.recording.observation import Oracle, Violation
from gapless_sim.world.producer import key_of

if TYPE_CHECKING:
    from gapless.core.stream.ticks import PubendId, Tick
    from gapless_sim.world.kafka_model import Partition
    from gapless_sim.world.kafka_network import SimKafka
    from gapless_sim.world.world import World

OFFSETS = 44


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
    transactional: set[Tick] = field(default_factory=set)
    """The events of transactions: if the end of one is cut off, it may end otherwise later."""
    duplicates: dict[Tick, tuple[int, Tick]] = field(default_factory=dict)
    """The records of duplicates: each with its key, and where the newest batch is whose duplicate it is."""
    retained: Tick = 0
    """Everything at or below it was removed, and no gateway had asked for that."""
    times: dict[Tick, int] = field(default_factory=dict)
    """The times that the records of events bear, in milliseconds since 1970."""

    def is_unmasked(self, tick: Tick, key: int) -> bool:
        """Whether this is a duplicate of a batch that is removed: then nobody can tell, and it counts as none."""
        found = self.duplicates.get(tick)
        return found is not None and found[0] == key and found[1] <= self.first

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
        """Whether an earlier batch, which the sender of this one had not met, makes this one a duplicate."""
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
    logged_at: dict[int, int] = field(default_factory=dict)
    """When each event was there for the first time, decided or not, by its key."""
    decoded: dict[int, Sequence[tuple[int, int, int, Mark | None]]] = field(default_factory=dict)
    """By batch: of each record the offset, the key, the time, and the mark in it."""


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

    def logged_at(self, pubend: PubendId) -> Mapping[int, int]:
        """When each event was in its log for the first time, decided or not, by its key."""
        self._refresh(self._logs[pubend])
        return self._logs[pubend].logged_at

    def is_empty(self, pubend: PubendId) -> bool:
        """Whether there is nothing in it."""
        return not self._logs[pubend].partition.log

    def has_holes(self, pubend: PubendId) -> bool:
        """Whether something was removed from its middle."""
        return bool(self._logs[pubend].partition.compacted)

    def _refresh(self, log: _Log) -> None:
        partition = log.partition
        state = (
            len(partition.removed) + len(partition.log),
            partition.stable,
            partition.high_watermark,
            partition.start,
            partition.cuts,
            partition.epoch,
            len(partition.aborted),
            len(partition.compacted),
        )
        if state == log.state:
            return
        log.state = state
        first, retained = _beginning(partition, partition.start), _beginning(partition, partition.retained)
        keys: dict[Tick, int] = {}
        times: dict[Tick, int] = {}
        transactional: set[Tick] = set()
        duplicates: dict[Tick, tuple[int, Tick]] = {}
        met: list[tuple[Tick, Mark]] = []
        missing: set[Tick] = set()
        for batch, counts in chain(partition.committed(), zip(partition.undecided(), repeat(True))):
            if not counts:
                continue
            below = batch.leader_epoch << OFFSETS
            silent_upto, settled_at = -1, 0
            for offset, key, time, mark in self._decode(log, batch):
                tick = below + offset + 1
                if mark is not None:
                    before = [at for at, other in met if mark.after < at < tick and mark.is_settled_by(other)]
                    if before:
                        # Where compaction has removed what settles it, nobody can tell.
                        silent_upto = offset + mark.events - 1
                        settled_at = max((at for at in before if at not in missing), default=0)
                    met.append((tick, mark))
                    if batch in partition.compacted:
                        missing.add(tick)
                if offset <= silent_upto:
                    duplicates[tick] = key, settled_at
                else:
                    log.logged_at.setdefault(key, self._kafka.world.now)
                    if offset >= partition.stable:
                        continue
                    keys[tick], times[tick] = key, time
                    if batch.is_transactional:
                        transactional.add(tick)
        stable = _position(partition, partition.stable)
        log.truth = Truth(sorted(keys), keys, stable, first, transactional, duplicates, retained, times)
        log.ever |= keys

    def _decode(self, log: _Log, batch: Batch) -> Sequence[tuple[int, int, int, Mark | None]]:
        found = log.decoded.get(id(batch))
        if found is None:
            self._batches.append(batch)
            found = log.decoded[id(batch)] = [
                (record.offset, key_of(record.value or b""), record.timestamp, self._mark(log, record.headers))
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


def _beginning(partition: Partition, offset: int) -> Tick:
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
