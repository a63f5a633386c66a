"""A model of Kafka: what its brokers answer to the requests that a log of ours sends. No I/O, no clock, no randomness.

It is a model of what was seen of a real one: tests/kafka asks that, and its unit tests ask this one the same. A request
is answered at once (`Broker.ask`); or not yet, if it is a fetch that waits for records.

What goes wrong is done to it from outside:

- `Partition.lag` holds replication back: what is appended from then on has no copy.
- `Cluster.elect` makes another broker the leader. If it has no copy of the end of the log, the log is cut.
- `Broker.knows` is what a broker has learned of topics and leaders. A broker may be behind, as metadata is.
- A produce may be sent twice, or arrive late: whoever carries the requests does that.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import google_crc32c

from gapless_log.kafka.messages import (
    EARLIEST,
    LATEST,
    NO_ID,
    UNKNOWN,
    Aborted,
    Code,
    Deleted,
    DeleteRecords,
    DescribeTopic,
    EpochEnd,
    EpochEnds,
    EpochFound,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchFrom,
    ListOffsets,
    Metadata,
    MetadataRequest,
    OffsetFound,
    OffsetWanted,
    PartitionState,
    Produce,
    Produced,
    TopicConfig,
    TopicState,
)
from gapless_log.kafka.messages import Broker as Address
from gapless_log.kafka.records import Batch, Compression, NewRecord, batches, encode, records

_FIRST, _EPOCH, _CHECKSUM, _ATTRIBUTES, _PRODUCER = (
    struct.Struct(">q"),
    struct.Struct(">i"),
    struct.Struct(">I"),
    struct.Struct(">h"),
    struct.Struct(">qhi"),
)
_EPOCH_AT, _CHECKSUM_AT, _ATTRIBUTES_AT, _PRODUCER_AT = 12, 17, 21, 43
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKER: Final = struct.Struct(">hh")

SETTINGS: Final = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "retention.ms": "604800000",
}
"""What a topic is set to, unless it is made otherwise."""


def by_producer(batch: bytes, producer: int, *, is_control: bool = False) -> bytes:
    """Returns a batch as a transactional producer would have sent it; or, with `is_control`, as a marker."""
    raw = bytearray(batch)
    (attributes,) = _ATTRIBUTES.unpack_from(raw, _ATTRIBUTES_AT)
    attributes |= _TRANSACTIONAL | (_CONTROL if is_control else 0)
    _ATTRIBUTES.pack_into(raw, _ATTRIBUTES_AT, attributes)
    _PRODUCER.pack_into(raw, _PRODUCER_AT, producer, 0, UNKNOWN if is_control else 0)
    _CHECKSUM.pack_into(raw, _CHECKSUM_AT, google_crc32c.value(bytes(raw[_ATTRIBUTES_AT:])))
    return bytes(raw)


@dataclass(slots=True)
class Partition:
    """A partition's log, as its leader has it."""

    leader: int
    epoch: int = 0
    start: int = 0
    """The log start offset."""
    log: list[Batch] = field(default_factory=list)
    begins: list[tuple[int, int]] = field(default_factory=list)
    """Leader epochs, each with the offset at which its leader began."""
    copied: int | None = None
    """How far the other replicas have the log; None: all of it, always."""
    waits: bool = False
    """Whether what has no copy is hidden from readers. Otherwise the leader is the only one in sync."""
    open: dict[int, int] = field(default_factory=dict)
    """The transactions that have not ended: producers, each with the first offset."""
    aborted: list[tuple[Aborted, int]] = field(default_factory=list)
    """Each aborted transaction, with the offset of its marker."""
    removed: list[Batch] = field(default_factory=list)
    """What was before the log, and was trimmed."""
    retained: int = 0
    """How far retention has removed it, unasked."""
    compacted: list[Batch] = field(default_factory=list)
    """What compaction has removed from the middle."""
    cuts: int = 0
    """How often the end of the log was lost."""

    def __post_init__(self) -> None:
        self.begins.append((self.epoch, 0))

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.log[-1].last + 1 if self.log else max(self.start, self.begins[-1][1])

    @property
    def high_watermark(self) -> int:
        """What is below it may be read."""
        return self.end if self.copied is None or not self.waits else min(self.copied, self.end)

    @property
    def stable(self) -> int:
        """The last stable offset: below it, every transaction has ended."""
        return min([self.high_watermark, *self.open.values()])

    def lag(self, *, waits: bool) -> None:
        """From now on nothing is copied. `waits`: the others still count as in sync, so nobody may read it."""
        if self.copied is None:
            self.copied, self.waits = self.end, waits

    def copy(self) -> None:
        """The other replicas have everything again."""
        self.copied, self.waits = None, False

    def append(self, raw: bytes) -> int:
        """Appends a batch. Returns the offset of its first record."""
        first = self.end
        placed = bytearray(raw)
        _FIRST.pack_into(placed, 0, first)
        _EPOCH.pack_into(placed, _EPOCH_AT, self.epoch)
        (batch,) = batches(bytes(placed))
        self.log.append(batch)
        if batch.is_transactional and not batch.is_control:
            self.open.setdefault(batch.producer_id, first)
        return first

    def end_transaction(self, producer: int, *, commits: bool) -> None:
        """Appends the marker that ends a producer's transaction, if it has one."""
        if producer not in self.open:
            return
        key = _MARKER.pack(0, int(commits))
        marker = encode([NewRecord(0, key, bytes(6), ())], Compression.NONE)
        at = self.append(by_producer(marker, producer, is_control=True))
        began = self.open.pop(producer)
        if not commits:
            self.aborted.append((Aborted(producer, began), at))

    def elect(self, leader: int, *, is_clean: bool) -> None:
        """Another leader, or the same one again. If it has no copy of the end of the log, it goes on without it."""
        if not is_clean and self.copied is not None and self.copied < self.end:
            self._cut(self.copied)
        self.copied, self.waits = None, False
        self.leader = leader
        self.epoch += 1
        end = self.end
        while self.begins and self.begins[-1][1] >= end:
            self.begins.pop()  # an epoch in which nothing was written, or of which all is gone, leaves no trace
        self.begins.append((self.epoch, end))

    def _cut(self, end: int) -> None:
        gone = [batch for batch in self.log if batch.last >= end]
        self.log = self.log[: len(self.log) - len(gone)]
        self.compacted = [batch for batch in self.compacted if batch.last < end]
        self.cuts += 1
        self.begins = [(epoch, begin) for epoch, begin in self.begins if begin <= self.end]
        self.aborted = [(each, at) for each, at in self.aborted if at < end]
        self.open = {}
        ended: dict[int, int] = {}
        for batch in self.log:
            if batch.is_control:
                ended.pop(batch.producer_id, None)
            elif batch.is_transactional:
                ended.setdefault(batch.producer_id, batch.first)
        self.open = ended

    def trim(self, before: int) -> None:
        """Everything before an offset is gone, by retention or because somebody asked for it."""
        self.start = max(self.start, min(before, self.high_watermark))
        below = [epoch for epoch, begin in self.begins if begin <= self.start]
        self.begins = [*((epoch, self.start) for epoch in below[-1:]), *self.begins[len(below) :]]
        while self.log and self.log[0].last < self.start and len(self.log) > 1:
            self.removed.append(self.log.pop(0))

    def compact(self, number: int) -> None:
        """Removes a batch from the middle, as compaction does."""
        self.compacted.append(self.log.pop(number))

    def epoch_end(self, epoch: int) -> EpochEnd | None:
        """Where the newest leader epoch that is not above `epoch` ends; None for one that is still to come."""
        if epoch > self.epoch:
            return None
        at = bisect_right([known for known, _ in self.begins], epoch)
        if not at:
            return EpochEnd(epoch, max(self.start, self.begins[0][1]))
        known = self.begins[at - 1][0]
        return EpochEnd(known, max(self.start, self.begins[at][1] if at < len(self.begins) else self.end))

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at an offset; of the log, if there is none."""
        return next((batch.leader_epoch for batch in self.log if batch.first <= offset <= batch.last), self.epoch)

    def committed(self) -> Iterator[tuple[Batch, bool]]:
        """Every batch below the last stable offset, removed ones too, and whether its records count."""
        everything = [*self.removed, *self.log]
        if self.compacted:
            everything = sorted([*everything, *self.compacted], key=lambda batch: batch.first)
        for batch in everything:
            if batch.last < self.stable:
                void = any(
                    each.producer_id == batch.producer_id and each.first <= batch.first < at
                    for each, at in self.aborted
                )
                yield batch, not batch.is_control and not (batch.is_transactional and void)

    def undecided(self) -> Iterator[Batch]:
        """Every batch that no election takes away, lies behind an open transaction, and belongs to none."""
        for batch in self.log:
            is_its_own = not batch.is_control and not batch.is_transactional
            if is_its_own and self.stable <= batch.last < self.high_watermark:
                yield batch


@dataclass(slots=True)
class Topic:
    """A topic: its id is its own for ever, its name may be given again."""

    name: str
    id: bytes
    partitions: list[Partition]
    settings: dict[str, str]


@dataclass(slots=True)
class Broker:
    """One broker. It answers for what it leads, and tells of topics and leaders what it has learned."""

    id: int
    cluster: Cluster
    is_up: bool = True
    topics: tuple[TopicState, ...] = ()
    """What it has learned."""

    def learn(self) -> None:
        """It knows all that there is."""
        self.topics = self.cluster.states()

    # ---------------------------------------------------------------------------------------------- requests

    def ask(self, request: Any, *, has_waited: bool) -> Any:
        """Returns the answer to a request; None: it waits for records, and `has_waited` is not yet so."""
        match request:
            case MetadataRequest():
                return self._metadata(request)
            case Fetch():
                return self._fetch(request, has_waited=has_waited)
            case ListOffsets():
                return tuple(self._list_offset(request, wanted) for wanted in request.partitions)
            case EpochEnds():
                return tuple(self._epoch_end(request.topic, asked) for asked in request.partitions)
            case Produce():
                return self._produce(request)
            case DeleteRecords():
                return self._delete(request)
            case DescribeTopic():
                return self._describe(request)
        raise AssertionError(f"the model knows no {request!r}")

    def _metadata(self, request: MetadataRequest) -> Metadata:
        by_name = {topic.name: topic for topic in self.topics}
        by_id = {topic.id: topic for topic in self.topics}
        found = [
            by_name.get(name, TopicState(Code.UNKNOWN_TOPIC_OR_PARTITION, name, NO_ID, ())) for name in request.names
        ]
        found += [by_id.get(each, TopicState(Code.UNKNOWN_TOPIC_ID, "", each, ())) for each in request.ids]
        return Metadata("model", 0, self.cluster.addresses, tuple(found))

    def _fetch(self, request: Fetch, *, has_waited: bool) -> FetchAnswer | None:
        answers = tuple(self._fetch_one(request, start) for start in request.partitions)
        size = sum(len(each.records) for each in answers)
        has_news = any(each.code is not Code.NONE or each.diverging for each in answers)
        if has_waited or has_news or size >= request.bytes_min:
            return FetchAnswer(Code.NONE, answers)
        return None

    def _fetch_one(self, request: Fetch, start: FetchFrom) -> Fetched:
        partition, code = self._led(start.topic_id, start.partition, start.leader_epoch)
        if partition is None:
            return _fetched(start, code)
        high = partition.stable if request.is_committed else partition.high_watermark
        if not partition.start <= start.offset <= partition.end:
            return _fetched(start, Code.OFFSET_OUT_OF_RANGE, partition)
        diverging = None
        if start.last_epoch != UNKNOWN:
            end = partition.epoch_end(start.last_epoch)
            if end is not None and (end.leader_epoch < start.last_epoch or end.end < start.offset):
                diverging = end
        found: list[Batch] = []
        size = 0
        for batch in partition.log if diverging is None else ():
            if batch.last < start.offset:
                continue
            if batch.last >= high or (found and size + len(batch.raw) > start.bytes_max):
                break
            found.append(batch)
            size += len(batch.raw)
        aborted: tuple[Aborted, ...] = ()
        if request.is_committed and found:
            first, last = found[0].first, found[-1].last
            aborted = tuple(each for each, at in partition.aborted if each.first <= last and at >= first)
        return _fetched(start, Code.NONE, partition, b"".join(batch.raw for batch in found), aborted, diverging)

    def _list_offset(self, request: ListOffsets, wanted: OffsetWanted) -> OffsetFound:
        topic = self._named(request.topic)
        partition, code = self._led(topic, wanted.partition, wanted.leader_epoch)
        if partition is None:
            return OffsetFound(wanted.partition, code, UNKNOWN, -1, UNKNOWN)
        high = partition.stable if request.is_committed else partition.high_watermark
        if wanted.at == EARLIEST:
            start = partition.start
            return OffsetFound(wanted.partition, Code.NONE, start, -1, partition.epoch_at(start))
        if wanted.at == LATEST:
            return OffsetFound(wanted.partition, Code.NONE, high, -1, partition.epoch)
        for batch in partition.log:
            if batch.last < high and batch.max_timestamp >= wanted.at and not batch.is_control:
                for record in records(batch):
                    if record.offset >= partition.start and record.timestamp >= wanted.at:
                        return OffsetFound(
                            wanted.partition, Code.NONE, record.offset, record.timestamp, batch.leader_epoch
                        )
        return OffsetFound(wanted.partition, Code.NONE, UNKNOWN, -1, UNKNOWN)

    def _epoch_end(self, name: str, asked: Any) -> EpochFound:
        partition, code = self._led(self._named(name), asked.partition, asked.current_epoch)
        found = None if partition is None else partition.epoch_end(asked.leader_epoch)
        if found is None:
            return EpochFound(asked.partition, code, UNKNOWN, UNKNOWN)
        return EpochFound(asked.partition, Code.NONE, found.leader_epoch, found.end)

    def _produce(self, request: Produce) -> Produced:
        partition, code = self._led(request.topic.id, request.partition, UNKNOWN)
        if partition is None:
            return Produced(code, UNKNOWN, UNKNOWN, "")
        topic = self.cluster.topics[request.topic.id]
        if len(request.batch) > int(topic.settings["max.message.bytes"]):
            return Produced(Code.MESSAGE_TOO_LARGE, UNKNOWN, UNKNOWN, "")
        first = partition.append(request.batch)
        if partition.high_watermark < partition.end:
            return Produced(Code.REQUEST_TIMED_OUT, UNKNOWN, UNKNOWN, "")  # it is in the log, and may come out or not
        return Produced(Code.NONE, first, partition.start, "")

    def _delete(self, request: DeleteRecords) -> Deleted:
        partition, code = self._led(self._named(request.topic), request.partition, UNKNOWN)
        if partition is None:
            return Deleted(code, UNKNOWN)
        if request.before > partition.high_watermark:
            return Deleted(Code.OFFSET_OUT_OF_RANGE, UNKNOWN)
        partition.trim(request.before)
        return Deleted(Code.NONE, partition.start)

    def _describe(self, request: DescribeTopic) -> TopicConfig:
        topic = self.cluster.topics.get(self._named(request.topic))
        if topic is None:
            return TopicConfig(Code.UNKNOWN_TOPIC_OR_PARTITION, {})
        return TopicConfig(Code.NONE, dict(topic.settings))

    def _named(self, name: str) -> bytes:
        return next((topic.id for topic in self.topics if topic.name == name), NO_ID)

    def _led(self, topic_id: bytes, number: int, leader_epoch: int) -> tuple[Partition | None, Code]:
        """A partition, if this broker leads it and the asker's leader epoch is the present one; or what is wrong."""
        if topic_id == NO_ID:
            return None, Code.UNKNOWN_TOPIC_OR_PARTITION
        topic = self.cluster.topics.get(topic_id)
        if topic is None or all(known.id != topic_id for known in self.topics):
            return None, Code.UNKNOWN_TOPIC_ID
        if number >= len(topic.partitions):
            return None, Code.UNKNOWN_TOPIC_OR_PARTITION
        partition = topic.partitions[number]
        if partition.leader != self.id:
            return None, Code.NOT_LEADER_OR_FOLLOWER
        if leader_epoch != UNKNOWN and leader_epoch < partition.epoch:
            return None, Code.FENCED_LEADER_EPOCH
        if leader_epoch > partition.epoch:
            return None, Code.UNKNOWN_LEADER_EPOCH
        return partition, Code.NONE


class Cluster:
    """Brokers and topics."""

    def __init__(self, brokers: int) -> None:
        """So many brokers; their ids are 1, 2, and so on."""
        self.brokers = [Broker(number + 1, self) for number in range(brokers)]
        self.topics: dict[bytes, Topic] = {}
        self._ids = 0

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Of the brokers that are up."""
        return tuple(Address(broker.id, f"kafka-{broker.id}", 9092) for broker in self.brokers if broker.is_up)

    def states(self) -> tuple[TopicState, ...]:
        """All topics as a broker tells of them that knows all."""
        everybody = tuple(broker.id for broker in self.brokers)
        return tuple(
            TopicState(
                Code.NONE,
                topic.name,
                topic.id,
                tuple(
                    PartitionState(
                        Code.NONE,
                        number,
                        partition.leader,
                        partition.epoch,
                        everybody,
                        everybody if partition.copied is None or partition.waits else (partition.leader,),
                    )
                    for number, partition in enumerate(topic.partitions)
                ),
            )
            for topic in self.topics.values()
        )

    def topic(self, name: str) -> Topic:
        """The topic that has a name now. Raises KeyError if none has."""
        for topic in self.topics.values():
            if topic.name == name:
                return topic
        raise KeyError(name)

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Topic:
        """Makes a topic. No broker has learned of it yet."""
        assert all(topic.name != name for topic in self.topics.values()), name
        self._ids += 1
        leaders = [self.brokers[number % len(self.brokers)].id for number in range(partitions)]
        topic = Topic(
            name, self._ids.to_bytes(16, "big"), [Partition(leader) for leader in leaders], {**SETTINGS, **settings}
        )
        self.topics[topic.id] = topic
        return topic

    def add_partition(self, topic: Topic) -> None:
        """One more partition."""
        topic.partitions.append(Partition(self.brokers[len(topic.partitions) % len(self.brokers)].id))

    def delete(self, topic: Topic) -> None:
        """The topic is gone for ever, with its id."""
        del self.topics[topic.id]

    def fail(self, broker: Broker) -> None:
        """The broker is gone; each of its partitions is led by the next one that is up, or by nobody."""
        broker.is_up = False
        for partition in self._partitions():
            if partition.leader == broker.id:
                self.elect(partition, is_clean=True)

    def elect(self, partition: Partition, *, is_clean: bool) -> None:
        """Gives a partition another leader: one that is up; if there is only one, that one again."""
        up = [broker.id for broker in self.brokers if broker.is_up]
        if up:
            others = [number for number in up if number != partition.leader] or up
            partition.elect(others[0], is_clean=is_clean)

    def _partitions(self) -> Sequence[Partition]:
        return [partition for topic in self.topics.values() for partition in topic.partitions]


def _fetched(
    start: FetchFrom,
    code: Code,
    partition: Partition | None = None,
    found: bytes = b"",
    aborted: tuple[Aborted, ...] = (),
    diverging: EpochEnd | None = None,
) -> Fetched:
    high, stable, first = (UNKNOWN,) * 3
    if partition is not None:
        high, stable, first = partition.high_watermark, partition.stable, partition.start
    return Fetched(
        start.topic_id, start.partition, code, high, stable, first, aborted, diverging, leader=None, records=found
    )
