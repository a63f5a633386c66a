"""The requests to a Kafka broker that a log of ours needs, and their answers, in bytes. Nothing here does I/O.

An error in an answer is a `Code`, never an exception: what it means depends on what was asked. A topic is named by its
id wherever Kafka has that, because a topic that was deleted and made again has the old name, and begins at offset 0 and
leader epoch 0 again. What Kafka asks for by name alone (`ListOffsets`, `EpochEnds`, `DeleteRecords`) is sent together
with a question for the id: `requests`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec

from gapless_log.kafka.wire import Reader, Writer

EARLIEST: Final = -2
"""As a time: the log start offset."""
LATEST: Final = -1
"""As a time: the end; with `is_committed`, the last stable offset."""
UNKNOWN: Final = -1
"""As a leader epoch or an offset: not known, or not to be checked."""
NO_ID: Final = bytes(16)
"""As a topic's id: none is known."""

_CONSUMER: Final = -1
"""As a replica id: no replica asks."""
_DIVERGING, _LEADER = 0, 1
_TOPIC_RESOURCE: Final = 2

Item = TypeVar("Item")
Answer_co = TypeVar("Answer_co", covariant=True)


class Code(enum.IntEnum):
    """Kafka's error codes; one that is not listed is called `CODE_…`."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    TOPIC_AUTHORIZATION_FAILED = 29
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    KAFKA_STORAGE_ERROR = 56
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    OFFSET_NOT_AVAILABLE = 78
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103

    @classmethod
    def _missing_(cls, value: object) -> Code | None:
        if not isinstance(value, int):
            return None
        code = int.__new__(cls, value)
        code._name_, code._value_ = f"CODE_{value}", value
        return code


class Api(NamedTuple):
    """Which request of Kafka's it is."""

    name: str
    key: int
    versions: tuple[int, ...]
    """Those that we speak, the best first."""


class Request(Protocol[Answer_co]):
    """A request, and how its answer is read."""

    api: ClassVar[Api]

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

    def read(self, answer: Reader, version: int) -> Answer_co:
        """Takes the body of its answer apart."""


class Topic(NamedTuple):
    """A topic, for requests that know names alone."""

    name: str
    id: bytes


# ------------------------------------------------------------------------------------------ who leads what


class Broker(msgspec.Struct, frozen=True):
    """A broker of a cluster."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """Where it listens, as `HOST:PORT`."""
        return f"{self.host}:{self.port}"


class PartitionState(msgspec.Struct, frozen=True):
    """Who serves a partition."""

    code: Code
    partition: int
    leader: int
    """Its broker; -1: nobody."""
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicState(msgspec.Struct, frozen=True):
    """A topic as one broker knows it."""

    code: Code
    name: str
    """Empty if it was asked for by an id that is unknown."""
    id: bytes
    """`NO_ID` if it was asked for by a name that is unknown."""
    partitions: tuple[PartitionState, ...]


class Metadata(msgspec.Struct, frozen=True):
    """A cluster as one broker knows it."""

    cluster: str
    controller: int
    brokers: tuple[Broker, ...]
    topics: tuple[TopicState, ...]


class MetadataRequest(msgspec.Struct, frozen=True):
    """Asks for all brokers, and for these topics and no others; it makes none."""

    api: ClassVar[Api] = Api("Metadata", 3, (12,))

    names: tuple[str, ...]
    ids: tuple[bytes, ...]

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""
        topics: list[tuple[bytes, str | None]] = [(NO_ID, name) for name in self.names]
        topics += [(topic_id, None) for topic_id in self.ids]

        def topic(item: tuple[bytes, str | None]) -> None:
            out.topic_id(item[0])
            out.string(item[1])
            out.end()

        out.array(topics, topic)
        out.boolean(False)  # makes no topics
        out.boolean(False)  # wants no authorized operations
        out.end()

    def read(self, answer: Reader, version: int) -> Metadata:
        """Takes its answer apart."""

        def broker() -> Broker:
            found = Broker(answer.int32(), answer.string() or "", answer.int32())
            answer.string()  # rack
            answer.end()
            return found

        def partition() -> PartitionState:
            code, number, leader, epoch = Code(answer.int16()), answer.int32(), answer.int32(), answer.int32()
            replicas, in_sync = answer.array(answer.int32), answer.array(answer.int32)
            answer.array(answer.int32)  # offline
            answer.end()
            return PartitionState(code, number, leader, epoch, replicas, in_sync)

        def topic() -> TopicState:
            code, name, topic_id = Code(answer.int16()), answer.string() or "", answer.topic_id()
            answer.boolean()  # internal
            partitions = answer.array(partition)
            answer.int32()  # authorized operations
            answer.end()
            return TopicState(code, name, topic_id, partitions)

        answer.int32()  # throttled for so long
        brokers, cluster, controller = answer.array(broker), answer.string() or "", answer.int32()
        return Metadata(cluster, controller, brokers, answer.array(topic))


# ------------------------------------------------------------------------------------------ reading


class EpochEnd(msgspec.Struct, frozen=True):
    """Where a leader epoch ends in a log."""

    leader_epoch: int
    end: int
    """The offset after its last record."""


class FetchFrom(msgspec.Struct, frozen=True):
    """Where a fetch begins in one partition."""

    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    """The current one, as the reader knows it: another one is an error. `UNKNOWN`: it is not checked.

    A broker knows its metadata before it acts upon them, so one from there may be UNKNOWN_LEADER_EPOCH for a moment.
    """
    last_epoch: int
    """That of the record before `offset`: if the log has another one there, it was cut. `UNKNOWN`: not checked."""
    bytes_max: int
    """The first batch comes whole, however large it is."""


class Aborted(msgspec.Struct, frozen=True):
    """A transaction that was aborted: what its producer wrote from here on, up to the next marker, is void."""

    producer_id: int
    first: int


class Fetched(msgspec.Struct, frozen=True):
    """What a fetch returned of one partition."""

    topic_id: bytes
    partition: int
    code: Code
    high_watermark: int
    stable: int
    """The last stable offset: below it, every transaction has ended."""
    first: int
    """The log start offset."""
    aborted: tuple[Aborted, ...]
    """Only if committed records alone were asked for."""
    diverging: EpochEnd | None
    """The log was cut: its last epoch that is not above ours, and where that ends. There are no records then."""
    leader: tuple[int, int] | None
    """Who leads now, and in which epoch, where the broker is so kind as to say."""
    records: bytes
    """Whole batches, and maybe the beginning of another one: `records.batches`. A fetch ends where a segment does."""


class FetchAnswer(msgspec.Struct, frozen=True):
    """What a fetch returned."""

    code: Code
    """Of the request as a whole."""
    partitions: tuple[Fetched, ...]


class Fetch(msgspec.Struct, frozen=True):
    """Asks for records, and waits for some. Nothing else is answered on its connection before it."""

    api: ClassVar[Api] = Api("Fetch", 1, (13,))

    partitions: tuple[FetchFrom, ...]
    is_committed: bool
    """Whether it ends at the last stable offset, and says which transactions were aborted."""
    wait_ms: int
    """How long the broker waits for `bytes_min`."""
    bytes_min: int
    bytes_max: int

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""
        by_topic: dict[bytes, list[FetchFrom]] = {}
        for start in self.partitions:
            by_topic.setdefault(start.topic_id, []).append(start)

        def partition(start: FetchFrom) -> None:
            out.int32(start.partition)
            out.int32(start.leader_epoch)
            out.int64(start.offset)
            out.int32(start.last_epoch)
            out.int64(UNKNOWN)  # a replica's log start
            out.int32(start.bytes_max)
            out.end()

        def topic(topic_id: bytes) -> None:
            out.topic_id(topic_id)
            out.array(by_topic[topic_id], partition)
            out.end()

        out.int32(_CONSUMER)
        out.int32(self.wait_ms)
        out.int32(self.bytes_min)
        out.int32(self.bytes_max)
        out.int8(int(self.is_committed))
        out.int32(0)  # no fetch session
        out.int32(-1)
        out.array(list(by_topic), topic)
        out.array((), topic)  # forgotten topics of the session
        out.string("")  # rack
        out.end()

    def read(self, answer: Reader, version: int) -> FetchAnswer:
        """Takes its answer apart."""
        fetched: list[Fetched] = []

        def aborted() -> Aborted:
            found = Aborted(answer.int64(), answer.int64())
            answer.end()
            return found

        def partition(topic_id: bytes) -> None:
            number, code = answer.int32(), Code(answer.int16())
            high_watermark, stable, first = answer.int64(), answer.int64(), answer.int64()
            void = answer.array(aborted)
            answer.int32()  # preferred replica
            records = answer.blob() or b""
            tags = answer.end()
            diverging = struct.unpack_from(">iq", tags[_DIVERGING]) if _DIVERGING in tags else None
            leader: tuple[int, int] | None = struct.unpack_from(">ii", tags[_LEADER]) if _LEADER in tags else None
            fetched.append(
                Fetched(
                    topic_id=topic_id,
                    partition=number,
                    code=code,
                    high_watermark=high_watermark,
                    stable=stable,
                    first=first,
                    aborted=void,
                    diverging=EpochEnd(*diverging) if diverging else None,
                    leader=leader,
                    records=records,
                )
            )

        def topic() -> None:
            topic_id = answer.topic_id()
            answer.array(lambda: partition(topic_id))
            answer.end()

        answer.int32()  # throttled for so long
        code = Code(answer.int16())
        answer.int32()  # session
        answer.array(topic)
        return FetchAnswer(code, tuple(fetched))


# ------------------------------------------------------------------------------------------ finding


class OffsetWanted(msgspec.Struct, frozen=True):
    """Which offset is looked for in one partition."""

    partition: int
    leader_epoch: int
    """The current one, as the reader knows it: another one is an error. `UNKNOWN`: it is not checked."""
    at: int
    """`EARLIEST`, `LATEST`, or milliseconds: the first record that bears this time or a later one."""


class OffsetFound(msgspec.Struct, frozen=True):
    """An offset that was looked for."""

    partition: int
    code: Code
    offset: int
    """`UNKNOWN`: no record is that late, or there is an error."""
    timestamp: int
    """Of the record, if a time was looked for; else -1."""
    leader_epoch: int
    """Of the record at the offset; of the log, if there is none."""


class ListOffsets(msgspec.Struct, frozen=True):
    """Asks where logs begin and end, or stand at a time."""

    api: ClassVar[Api] = Api("ListOffsets", 2, (7,))

    topic: str
    partitions: tuple[OffsetWanted, ...]
    is_committed: bool
    """Whether `LATEST` is the last stable offset, and no time is found after it."""

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

        def partition(wanted: OffsetWanted) -> None:
            out.int32(wanted.partition)
            out.int32(wanted.leader_epoch)
            out.int64(wanted.at)
            out.end()

        out.int32(_CONSUMER)
        out.int8(int(self.is_committed))
        _write_topic(out, self.topic, self.partitions, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> tuple[OffsetFound, ...]:
        """Takes its answer apart."""

        def partition() -> OffsetFound:
            number, code, timestamp = answer.int32(), Code(answer.int16()), answer.int64()
            found = OffsetFound(number, code, answer.int64(), timestamp, answer.int32())
            answer.end()
            return found

        answer.int32()  # throttled for so long
        return _read_topic(answer, partition)


class EpochAsked(msgspec.Struct, frozen=True):
    """Which leader epoch's end is asked for in one partition."""

    partition: int
    current_epoch: int
    """As the reader knows it: another one is an error. `UNKNOWN`: it is not checked."""
    leader_epoch: int


class EpochFound(msgspec.Struct, frozen=True):
    """The newest leader epoch of a log that is not above the one asked for."""

    partition: int
    code: Code
    leader_epoch: int
    """`UNKNOWN`: the log has none, or there is an error."""
    end: int
    """The offset after its last record: the log start, if all its records are deleted."""


class EpochEnds(msgspec.Struct, frozen=True):
    """Asks where leader epochs end (Kafka: OffsetForLeaderEpoch)."""

    api: ClassVar[Api] = Api("OffsetForLeaderEpoch", 23, (4,))

    topic: str
    partitions: tuple[EpochAsked, ...]

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

        def partition(asked: EpochAsked) -> None:
            out.int32(asked.partition)
            out.int32(asked.current_epoch)
            out.int32(asked.leader_epoch)
            out.end()

        out.int32(_CONSUMER)
        _write_topic(out, self.topic, self.partitions, partition)
        out.end()

    def read(self, answer: Reader, version: int) -> tuple[EpochFound, ...]:
        """Takes its answer apart."""

        def partition() -> EpochFound:
            code, number = Code(answer.int16()), answer.int32()
            found = EpochFound(number, code, answer.int32(), answer.int64())
            answer.end()
            return found

        answer.int32()  # throttled for so long
        return _read_topic(answer, partition)


# ------------------------------------------------------------------------------------------ writing


class Produced(msgspec.Struct, frozen=True):
    """What became of a batch."""

    code: Code
    offset: int
    """Of its first record."""
    first: int
    """The log start offset."""
    why: str
    """Of an error, if the broker says it."""


class Produce(msgspec.Struct, frozen=True):
    """Appends one batch; all in-sync replicas have it when this is answered.

    Kafka 4.1 and newer take the topic's id, so that no topic of the same name can get the batch; older ones its name.
    """

    api: ClassVar[Api] = Api("Produce", 0, (13, 9))

    topic: Topic
    partition: int
    batch: bytes
    timeout_ms: int
    """How long the broker waits for the replicas."""

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

        def partition(number: int) -> None:
            out.int32(number)
            out.blob(self.batch)
            out.end()

        def topic(topic: Topic) -> None:
            if version >= 13:
                out.topic_id(topic.id)
            else:
                out.string(topic.name)
            out.array((self.partition,), partition)
            out.end()

        out.string(None)  # no transaction
        out.int16(-1)  # acknowledged by all
        out.int32(self.timeout_ms)
        out.array((self.topic,), topic)
        out.end()

    def read(self, answer: Reader, version: int) -> Produced:
        """Takes its answer apart."""

        def record_error() -> str:
            answer.int32()  # which record
            why = answer.string() or ""
            answer.end()
            return why

        def partition() -> Produced:
            answer.int32()
            code, offset = Code(answer.int16()), answer.int64()
            answer.int64()  # the time of the append, if records bear that
            first, errors, why = answer.int64(), answer.array(record_error), answer.string() or ""
            answer.end()
            return Produced(code, offset, first, "; ".join(filter(None, (why, *errors))))

        def topic() -> tuple[Produced, ...]:
            if version >= 13:
                answer.topic_id()
            else:
                answer.string()
            produced = answer.array(partition)
            answer.end()
            return produced

        ((produced,),) = answer.array(topic)
        return produced


class Deleted(msgspec.Struct, frozen=True):
    """What became of a wish to delete."""

    code: Code
    first: int
    """The log start offset now."""


class DeleteRecords(msgspec.Struct, frozen=True):
    """Deletes what lies before an offset of a partition: at once for readers, on the disk when Kafka gets to it."""

    api: ClassVar[Api] = Api("DeleteRecords", 21, (2,))

    topic: str
    partition: int
    before: int
    timeout_ms: int

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

        def partition(number: int) -> None:
            out.int32(number)
            out.int64(self.before)
            out.end()

        _write_topic(out, self.topic, (self.partition,), partition)
        out.int32(self.timeout_ms)
        out.end()

    def read(self, answer: Reader, version: int) -> Deleted:
        """Takes its answer apart."""

        def partition() -> Deleted:
            answer.int32()
            first = answer.int64()
            deleted = Deleted(Code(answer.int16()), first)
            answer.end()
            return deleted

        answer.int32()  # throttled for so long
        (deleted,) = _read_topic(answer, partition)
        return deleted


# ------------------------------------------------------------------------------------------ configuration


class TopicConfig(msgspec.Struct, frozen=True):
    """The settings of a topic that are in force, by their names."""

    code: Code
    settings: Mapping[str, str]


class DescribeTopic(msgspec.Struct, frozen=True):
    """Asks for the settings of a topic (Kafka: DescribeConfigs)."""

    api: ClassVar[Api] = Api("DescribeConfigs", 32, (4,))

    topic: str

    def write(self, out: Writer, version: int) -> None:
        """Adds its body."""

        def resource(name: str) -> None:
            out.int8(_TOPIC_RESOURCE)
            out.string(name)
            out.array(None, out.string)  # all settings
            out.end()

        out.array((self.topic,), resource)
        out.boolean(False)  # no synonyms
        out.boolean(False)  # no documentation
        out.end()

    def read(self, answer: Reader, version: int) -> TopicConfig:
        """Takes its answer apart."""

        def synonym() -> None:
            answer.string()
            answer.string()
            answer.int8()
            answer.end()

        def setting() -> tuple[str, str]:
            name, value = answer.string() or "", answer.string() or ""
            answer.boolean()  # read only
            answer.int8()  # where it is set
            answer.boolean()  # sensitive
            answer.array(synonym)
            answer.int8()  # its type
            answer.string()  # documentation
            answer.end()
            return name, value

        def resource() -> TopicConfig:
            code = Code(answer.int16())
            answer.string()  # the error in words
            answer.int8()
            answer.string()
            config = TopicConfig(code, dict(answer.array(setting)))
            answer.end()
            return config

        answer.int32()  # throttled for so long
        (config,) = answer.array(resource)
        return config


# ------------------------------------------------------------------------------------------ one topic, by its name


def _write_topic(out: Writer, name: str, partitions: Sequence[Item], write: Callable[[Item], object]) -> None:
    """Adds the topics of a request, which are one, with these partitions."""

    def topic(name: str) -> None:
        out.string(name)
        out.array(partitions, write)
        out.end()

    out.array((name,), topic)


def _read_topic(answer: Reader, read_partition: Callable[[], Item]) -> tuple[Item, ...]:
    """Takes the partitions of an answer about one topic."""

    def topic() -> tuple[Item, ...]:
        answer.string()
        partitions = answer.array(read_partition)
        answer.end()
        return partitions

    (partitions,) = answer.array(topic)
    return partitions
