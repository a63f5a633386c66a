"""A source for Spark as a user would write it today, over confluent-kafka: rows built in Arrow, columns as asked for.

Written with care: consumers are kept by the worker and go on where the task before stopped; messages are taken in
blocks; nothing is decoded that no column needs; a batch is built column by column.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

ROWS: Final = 10_000
"""Of a record batch."""
PATIENCE: Final = 30.0
"""Seconds for anything that the broker is asked."""
CONSUMER: Final[Mapping[str, Any]] = {
    "group.id": "spark",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
    "max.partition.fetch.bytes": 8 << 20,
    "fetch.error.backoff.ms": 10,
}
TYPES: Final[Mapping[str, Any]] = {
    "key": pa.string(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_type": pa.int32(),
    "headers": pa.map_(pa.string(), pa.string()),
}
DDL: Final = (
    "key string, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestamp_type int,"
    " headers map<string,string>"
)

_kept: dict[tuple[int, str, str, int], tuple[Any, int]] = {}
"""This process's consumers, and where each of them stands."""


@dataclass(frozen=True)
class Part(InputPartition):  # type: ignore[misc]  # pyspark need not be installed
    """What one task reads: [start, end) of a partition."""

    partition: int
    start: int
    end: int


class KafkaDataSource(DataSource):  # type: ignore[misc]
    """Options: `servers`, `topic`, `maxOffsetsPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "kafka_in_python"

    def schema(self) -> str:
        """What Spark's own source has; a schema of the user's may name fewer."""
        return DDL

    def streamReader(self, schema: Any) -> KafkaStreamReader:  # noqa: N802 - Spark's name
        """The only thing it can."""
        options = self.options
        most = int(options.get("maxOffsetsPerTrigger", 1 << 62))
        return KafkaStreamReader(options["servers"], options["topic"], most, [field.name for field in schema.fields])


class KafkaStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """An offset is the next offset of each partition."""

    def __init__(self, servers: str, topic: str, most: int, names: Sequence[str]) -> None:
        self._servers = servers
        self._topic = topic
        self._most = most
        self._schema = pa.schema([pa.field(name, TYPES[name]) for name in names])
        self._position: dict[str, int] = {}
        self._consumer: Any = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The first message of each partition."""
        self._position = {str(number): low for number, (low, _) in self._marks().items()}
        return self._position

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The end of each partition, or as much as a batch may have, shared in proportion."""
        before = {int(number): at for number, at in (start or self._position).items()}
        ahead = {number: high - before.get(number, low) for number, (low, high) in self._marks().items()}
        total = max(1, sum(ahead.values()))
        share = min(1.0, self._most / total)
        return {str(number): before.get(number, 0) + round(count * share) for number, count in ahead.items()}

    def partitions(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:
        """One for each that has something new."""
        self._position = dict(end)
        planned = [Part(int(number), start.get(number, 0), at) for number, at in sorted(end.items())]
        return [part for part in planned if part.start < part.end]

    def read(self, partition: Part) -> Iterator[Any]:
        """The record batches of one task."""
        key = os.getpid(), self._servers, self._topic, partition.partition
        consumer, at = _kept.pop(key, (None, -1))
        if consumer is None or at != partition.start:
            consumer = _assigned(consumer, self._servers, self._topic, partition)
        at = partition.start
        while at < partition.end:
            messages = consumer.consume(min(ROWS, partition.end - at), PATIENCE)
            if not messages:
                raise TimeoutError(f"no message of {self._topic}/{partition.partition} at {at}")
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
            at = messages[-1].offset() + 1
            yield record_batch(messages, self._schema)
        _kept[key] = consumer, at

    def commit(self, end: Mapping[str, int]) -> None:
        """The checkpoint has it."""

    def stop(self) -> None:
        """Closes the connection of the driver."""
        if self._consumer is not None:
            self._consumer.close()

    def _marks(self) -> dict[int, tuple[int, int]]:
        """The first offset of each partition, and the one behind the last."""
        from confluent_kafka import Consumer, TopicPartition

        if self._consumer is None:
            self._consumer = Consumer({**CONSUMER, "bootstrap.servers": self._servers})
        found = self._consumer.list_topics(self._topic, PATIENCE).topics[self._topic].partitions
        return {
            number: self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), PATIENCE)
            for number in sorted(found)
        }


def _assigned(consumer: Any, servers: str, topic: str, part: Part) -> Any:
    """A consumer that begins where the task begins."""
    from confluent_kafka import Consumer, TopicPartition

    if consumer is None:
        consumer = Consumer({**CONSUMER, "bootstrap.servers": servers})
    consumer.assign([TopicPartition(topic, part.partition, part.start)])
    return consumer


def record_batch(messages: Sequence[Any], schema: Any) -> Any:
    """The record batch of some messages."""
    return pa.RecordBatch.from_arrays([_MAKERS[name](messages) for name in schema.names], schema=schema)


def _keys(messages: Sequence[Any]) -> Any:
    return pa.array([message.key() for message in messages], pa.binary()).cast(pa.string())


def _timestamps(messages: Sequence[Any]) -> Any:
    milliseconds = pa.array([message.timestamp()[1] for message in messages], pa.timestamp("ms", tz="UTC"))
    return milliseconds.cast(TYPES["timestamp"])


def _headers(messages: Sequence[Any]) -> Any:
    headers = [message.headers() or () for message in messages]
    offsets = pa.array(list(accumulate(map(len, headers), initial=0)), pa.int32())
    pairs = list(chain.from_iterable(headers))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary()).cast(pa.string())
    return pa.MapArray.from_arrays(offsets, names, values)


_MAKERS: Final[Mapping[str, Any]] = {
    "key": _keys,
    "value": lambda messages: pa.array([message.value() for message in messages], pa.binary()),
    "topic": lambda messages: pa.repeat(pa.scalar(messages[0].topic()), len(messages)),
    "partition": lambda messages: pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), len(messages)),
    "offset": lambda messages: pa.array([message.offset() for message in messages], pa.int64()),
    "timestamp": _timestamps,
    "timestamp_type": lambda messages: pa.repeat(pa.scalar(messages[0].timestamp()[0], pa.int32()), len(messages)),
    "headers": _headers,
}
