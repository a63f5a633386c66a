"""The connector in a real local Spark, against a real broker: `tox -e spark`, with PySpark 4 and a Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless_spark import stream
from gapless_spark.offsets import offset_of
from gapless_spark.options import source_options
from gapless_spark.stream import Stream
from integration.broker_process import CLI, clean_environment, to_toml

pytestmark = [
    pytest.mark.timeout(300),  # a Java machine starts, and each query starts processes of its own
    pytest.mark.filterwarnings("default"),  # PySpark's own
]


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A session of a Spark in this process's children."""
    pytest.importorskip("pyspark.sql.datasource", reason="PySpark 4 is not installed: tox -e spark")
    from pyspark.sql import SparkSession

    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("gapless")
    builder = builder.config("spark.ui.enabled", "false").config("spark.sql.shuffle.partitions", "2")
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Where a broker listens that is a process of its own."""
    config = tmp_path / "gapless.toml"
    config.write_text(
        to_toml({"storage": {"path": str(tmp_path / "volume")}, "listen": [{"address": "127.0.0.1:0"}]}), "utf-8"
    )
    command = [sys.executable, *CLI, "broker", "--config", str(config), "--json", "--until-stdin-closes"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_environment())
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.stdin.close()
        process.stdout.read()
        process.stdout.close()
        process.wait(20)


def publish(url: str, numbers: range) -> None:
    with gapless.sync.connect(url) as connection, connection.session() as session:
        session.publisher("t").send_batch([gapless.Message(b"%d" % n, {"n": n, "key": f"k{n}"}) for n in numbers])


def source(reader: Any, url: str, name: str, **options: object) -> Any:
    return reader.format("gapless").options(brokers=url, subscription=name, topics="t", **options)


def run(frame: Any, directory: Path, sink: str = "parquet", **options: object) -> Any:
    """Takes what is there and ends."""
    writer = frame.writeStream.format(sink).outputMode("append").options(**options)
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return query


def bodies(url: str, topic: str) -> list[bytes]:
    """All that was ever published to a topic."""
    with gapless.sync.connect(url, client_id="all") as connection:
        position = connection.attach(topic, topic, start="earliest")
        head = connection.heads(topic, after=position, wait=2)
        found: list[bytes] = []
        for pubend, tick in head.ticks.items():
            with connection.read_range(topic, pubend, position.ticks.get(pubend, 0), tick) as reader:
                found += [bytes(event.body) for event in reader]
        return found


def test_a_batch_gives_what_was_published(spark: Any, url: str) -> None:
    publish(url, range(100))
    rows = source(spark.read, url, "all").load().orderBy("tick").collect()

    assert [bytes(row.payload) for row in rows] == [b"%d" % n for n in range(100)]
    assert {row.kind for row in rows} == {"event"}
    assert [(row.topic, row.key, row.properties) for row in rows[:2]] == [
        ("t", "k0", {"n": "0", "key": "k0"}),
        ("t", "k1", {"n": "1", "key": "k1"}),
    ]
    narrow = source(spark.read, url, "all", selector="").schema("payload binary, tick bigint").load()
    assert narrow.columns == ["payload", "tick"]
    assert sorted(int(row.payload) for row in narrow.collect()) == list(range(100))


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, url: str, tmp_path: Path) -> None:
    """Each event once, over three runs of which one finds nothing."""
    target = tmp_path / "rows"
    frame = source(spark.readStream, url, "etl", startingOffsets="earliest", selector="n >= 10").load()
    found = []
    for numbers in (range(50), range(0), range(50, 80)):
        if numbers:
            publish(url, numbers)
        run(frame, tmp_path, path=str(target))
        found.append(sorted(int(row.payload) for row in spark.read.parquet(str(target)).collect()))

    assert found == [list(range(10, 50)), list(range(10, 50)), list(range(10, 80))]
    with gapless.sync.connect(url) as connection:
        (subscription,) = connection.subscriptions()
        assert any(subscription.acknowledged.ticks.values()), "the first run is acknowledged by the last"


def test_a_batch_that_a_sink_sees_again_is_published_once(spark: Any, url: str, tmp_path: Path) -> None:
    """As after a crash between publishing and Spark's own commit: the same query, the same batch."""
    rows = [(b"%d" % n, f"k{n}") for n in range(500)]
    incoming = str(tmp_path / "incoming")
    spark.createDataFrame(rows, "payload binary, key string").repartition(2).write.mode("append").parquet(incoming)
    frame = spark.readStream.schema("payload binary, key string").parquet(incoming)
    for _ in range(2):
        query = run(frame, tmp_path, "gapless", brokers=url, topic="results")
        assert sum(progress.numInputRows for progress in query.recentProgress) == 500, "all of it is published again"
        assert sorted(bodies(url, "results")) == sorted(body for body, _ in rows)
        for commit in (tmp_path / "checkpoint" / "commits").iterdir():
            commit.unlink()


def test_a_batch_write_that_has_a_name_is_published_once(spark: Any, url: str) -> None:
    frame = spark.range(100).selectExpr("cast(id as string) as payload", "'named' as topic")
    writer = frame.write.format("gapless").mode("append").options(brokers=url, txnAppId="nightly", txnVersion="7")
    writer.save()
    writer.save()
    assert sorted(map(int, bodies(url, "named"))) == list(range(100))

    frame.write.format("gapless").mode("append").options(brokers=url).save()
    assert len(bodies(url, "named")) == 200, "without a name it is another write"


def test_a_second_query_of_a_subscription_is_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one, when the first is gone. Needs no Spark."""
    monkeypatch.setattr(stream, "LEASE_PATIENCE", 0.3)
    options = source_options({"brokers": url, "subscription": "s", "topics": "t"}, streaming=True)
    first, second = Stream(options), Stream(options)
    position = offset_of(first.initial())
    with pytest.raises(gapless.SubscriptionInUseError, match=r"^GAPLESS_IN_USE subscription=s"):
        second.latest(position, capped=True)
    first.stop()
    assert offset_of(second.latest(position, capped=True)) == position
    second.stop()


def test_what_is_wrong_is_said_where_it_is_asked_for(spark: Any, url: str) -> None:
    with pytest.raises(Exception, match=r"there is no option gapless\.subscriptoin; did you mean subscription"):
        source(spark.read, url, "s").option("gapless.subscriptoin", "s").load().collect()
    with pytest.raises(Exception, match="there is no column n int"):
        source(spark.read, url, "s").schema("n int").load().collect()
    with pytest.raises(Exception, match="a sink needs the column payload"):
        spark.range(1).selectExpr("'t' as topic").write.format("gapless").mode("append").option("brokers", url).save()
