"""Apache Kafka, read by a source in Python as a user would write it, and by Spark's own: it filters in Spark alone.

A topic of two partitions; the events are in the page cache. Headers are what gapless has as properties, but for the
key, which stands there only once: a favour.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.peers.system import RaceError, missing_jars, missing_package
from bench.peers.systems.kafka import Kafka
from bench.spark.work import PARTITIONS, WANTED, WORKS, Sizes, Work, events
from gapless_testing.jars import Jars

TOPIC: Final = "t"
START_SECONDS: Final = 60.0
SOURCES: Final = {"4.0": "4.0.0", "4.1": "4.1.1", "4.2": "4.2.0"}
"""Spark's own source for each Spark: not every version could be fetched when tried."""
TOKENS: Final = "4.0.0"
"""What it needs for authentication, and loads without: the only version of Spark 4 that could be fetched."""


@contextlib.contextmanager
def _kafka_with_events(directory: Path, sizes: Sizes) -> Iterator[str]:
    """Its address."""
    directory.mkdir(exist_ok=True)
    with Kafka().running(directory) as server:
        _publish(server.address, sizes.events)
        yield server.address


def _publish(address: str, count: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    administrator = AdminClient({"bootstrap.servers": address})
    administrator.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(START_SECONDS)
    producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True, "linger.ms": 20})
    for event in events(count):
        headers = [("number", b"%d" % event.number), ("tenth", b"%d" % event.tenth)]
        while True:
            try:
                producer.produce(TOPIC, event.body, event.key, event.partition, headers=headers)
                break
            except BufferError:
                producer.poll(0.01)
    deadline = time.monotonic() + START_SECONDS
    while producer.flush(1.0):
        if time.monotonic() > deadline:
            raise RaceError("Kafka did not acknowledge the events")


class PythonKafka:
    """Kafka with `kafka_source.py`."""

    title = "Kafka, a Python source over confluent-kafka"
    works: Sequence[str] = tuple(WORKS)
    filters_in = "Spark"

    def missing(self) -> str:
        """The client comes from PyPI, the broker from Maven Central."""
        return missing_package("confluent-kafka") or Kafka().missing()

    def jars(self) -> Sequence[Path]:
        """None."""
        return ()

    @contextlib.contextmanager
    def serving(self, directory: Path, sizes: Sizes, turns: int) -> Iterator[PythonTopic]:
        """Starts a broker of its own."""
        with _kafka_with_events(directory, sizes) as address:
            yield PythonTopic(address, sizes)


class PythonTopic:
    """The topic, read in Python."""

    def __init__(self, address: str, sizes: Sizes) -> None:
        self._address = address
        self._sizes = sizes

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """From the first message on."""
        from bench.spark.kafka_source import DDL, KafkaDataSource

        spark.dataSource.register(KafkaDataSource)
        reader = spark.readStream.format(KafkaDataSource.name()).option("servers", self._address)
        reader = reader.option("topic", TOPIC).option("maxOffsetsPerTrigger", self._sizes.batch_of(work))
        frame = reader.schema(DDL if "number" in work.columns else "offset bigint, value binary").load()
        if work.selective:
            frame = frame.where(frame.headers["tenth"] == str(WANTED))
        frame = frame.withColumnRenamed("value", "payload")
        return frame.withColumn("number", frame.headers["number"]) if "number" in work.columns else frame


def _spark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "0"


class SparkKafka:
    """Kafka with Spark's own source, in Java."""

    title = "Kafka, Spark's own source"
    works: Sequence[str] = tuple(WORKS)
    filters_in = "Spark"

    def __init__(self) -> None:
        spark = _spark_version()
        source = SOURCES.get(spark.rpartition(".")[0], spark)
        versions = f"-Dsource.version={source}", f"-Dtokens.version={TOKENS}"
        groups = "-DincludeGroupIds=org.apache.spark,org.apache.kafka,org.apache.commons"  # Spark has the rest
        self._jars = Jars(f"spark-kafka-{source}", Path(__file__).with_name("kafka_pom.xml"), (*versions, groups))

    def missing(self) -> str:
        """Its jars come from Maven Central, too."""
        return missing_package("confluent-kafka") or Kafka().missing() or missing_jars(self._jars)

    def jars(self) -> Sequence[Path]:
        """The source, its tokens, the client, and what that needs."""
        return sorted(self._jars.directory.glob("*.jar"))

    @contextlib.contextmanager
    def serving(self, directory: Path, sizes: Sizes, turns: int) -> Iterator[SparkTopic]:
        """Starts a broker of its own."""
        with _kafka_with_events(directory, sizes) as address:
            yield SparkTopic(address, sizes)


class SparkTopic:
    """The topic, read by Spark."""

    def __init__(self, address: str, sizes: Sizes) -> None:
        self._address = address
        self._sizes = sizes

    def stream(self, spark: Any, work: Work, turn: int) -> Any:
        """From the first message on."""
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._address)
        reader = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest")
        wide = "number" in work.columns
        frame = reader.option("maxOffsetsPerTrigger", self._sizes.batch_of(work)).option("includeHeaders", wide).load()
        frame = frame.withColumnRenamed("value", "payload")
        if not wide:
            return frame.select("offset", "payload")
        if work.selective:
            frame = frame.where(f"exists(headers, h -> h.key = 'tenth' and h.value = cast('{WANTED}' as binary))")
        return frame.selectExpr("*", "cast(filter(headers, h -> h.key = 'number')[0].value as string) as number")
