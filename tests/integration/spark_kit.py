"""What the tests of the Spark connector share: a local Spark, a broker of its own process, and events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Self

import gapless
from integration.broker_process import CLI, PATIENCE, clean_environment, to_toml
from integration.model_kafka import PROGRAM, ModelKafka

CELL = "GAPLESS_SPARK_CELL"
"""Set by tox: the version of Spark that must be there, like `4.1`. Otherwise tests are skipped where there is none."""


def require_spark(environment: str = "spark") -> None:
    """Skips a test where there is no Spark; fails it where tox wants one, and it is not there."""
    cell = os.environ.get(CELL)
    if not cell:
        pytest.importorskip("pyspark.sql.datasource", reason=f"PySpark 4 is not installed: tox -e {environment}")
    import pyspark

    assert not cell or pyspark.__version__.startswith(f"{cell}."), f"Spark {pyspark.__version__}, in a cell for {cell}"


def local_spark() -> Iterator[Any]:
    """A session of a Spark in this process's children, for a fixture of a module."""
    require_spark()
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("gapless")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def spark_version() -> tuple[int, int]:
    """Which Spark it is."""
    import pyspark

    major, minor = pyspark.__version__.split(".")[:2]
    return int(major), int(minor)


class LocalBroker:
    """A broker in a process of its own: as a block it is started, and ends at the end."""

    def __init__(self, directory: Path, kafka: ModelKafka | None = None, **sections: Any) -> None:
        """`kafka`: what its `[[phb.kafka]]` leads to; `sections`: of the configuration, also between two starts."""
        self.sections = sections
        self.url = ""
        self.kafka = kafka
        self._directory = directory
        self._address = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it, and waits until it serves: on any free port at first, on that one again later."""
        config = self._directory / "gapless.toml"
        volume, listeners = str(self._directory / "volume"), [{"address": self._address}]
        config.write_text(to_toml({"storage": {"path": volume}, "listen": listeners, **self.sections}), "utf-8")
        program = CLI if self.kafka is None else PROGRAM
        command = [sys.executable, *program, "broker", "--config", str(config), "--json", "--until-stdin-closes"]
        if not self.url:  # the first start makes the volume
            command.append("--create")
        environment = clean_environment() | dict(self.kafka.environment if self.kafka is not None else {})
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker did not start"
        self.url = json.loads(line)["url"]
        self._address = self.url.partition("://")[2]

    def stop(self, sign: signal.Signals | None = None) -> None:
        """Ends it: in order, or by a signal. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        if sign is not None:
            process.send_signal(sign)
        process.stdin.close()
        process.stdout.read()
        process.stdout.close()
        process.wait(PATIENCE)


OWN_LOG = "own log"
KAFKA = "Kafka"
OVER_BOTH_LOGS = pytest.mark.parametrize("broker", [OWN_LOG, KAFKA], indirect=True)
"""For tests in which it may matter where the events of topic `t` lie."""


@contextmanager
def broker_over(log: str, directory: Path, **sections: Any) -> Iterator[LocalBroker]:
    """A broker whose topic `t` is on a log of its own, or on a partition of a (model of) Kafka."""
    if log == OWN_LOG:
        with LocalBroker(directory, **sections) as broker:
            yield broker
        return
    pytest.importorskip("aiokafka", reason="Kafka's records are parsed by aiokafka: gapless[kafka]")
    with ModelKafka(t=1) as kafka:
        section = {"phb.kafka": [kafka.section({"name": "t", "publish": True})]}
        with LocalBroker(directory, kafka, **sections, **section) as broker:
            yield broker


def publish(url: str, numbers: Iterable[int], *, topic: str = "t") -> list[gapless.Receipt]:
    """Publishes numbered events."""
    with gapless.sync.connect(url) as connection, connection.session() as session:
        messages = [gapless.Message(b"%d" % n, {"n": n, "key": f"k{n}"}) for n in numbers]
        return session.publisher(topic).send_batch(messages)


def source(reader: Any, url: str, name: str, **options: object) -> Any:
    """A reader of the topic `t`."""
    return reader.format("gapless").options(brokers=url, subscription=name, topics="t", **options)


def run(frame: Any, directory: Path, sink: str = "parquet", **options: object) -> Any:
    """Takes what is there and ends."""
    writer = frame.writeStream.format(sink).outputMode("append").options(**options)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(240)
    return query


def begin(frame: Any, directory: Path, target: Path) -> Any:
    """Takes what comes, to Parquet, until it is stopped."""
    writer = frame.writeStream.format("parquet").outputMode("append").option("path", str(target))
    return writer.option("checkpointLocation", str(directory)).start()


def written(spark: Any, target: Path, column: str = "payload") -> list[Any]:
    """What a query has written, in order. Of one that began elsewhere, Spark's own list of the files is not whole."""
    batches = [path.name for path in (target / "_spark_metadata").glob("[0-9]*")]
    if not batches:
        return []
    path = target if "0" in batches else target / "*.parquet"
    return sorted(row[0] for row in spark.read.parquet(str(path)).select(column).collect())


def numbers(spark: Any, target: Path) -> list[int]:
    """The numbers of the events that a query has written."""
    return sorted(int(payload) for payload in written(spark, target))


def until(holds: Callable[[], object], what: str, patience: float = 240.0) -> None:
    """Waits until something holds; fails when it does not come to that."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"waited {patience:g} s in vain for {what}"
        time.sleep(0.1)


def failure(query: Any, patience: float = 240.0) -> str:
    """What a query that fails says."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as raised:
        assert query.awaitTermination(patience), "the query goes on"
    return str(raised.value)


def acknowledged(url: str, name: str) -> Mapping[str, int]:
    """Up to where a subscription is done."""
    with gapless.sync.connect(url) as connection:
        (found,) = [each for each in connection.subscriptions() if each.name == name]
        return found.acknowledged.ticks
