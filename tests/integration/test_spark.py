"""The connector in a real local Spark, against a real broker: `tox -e spark`, with PySpark 4 and a Java."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless import AuthorizationError
from gapless.client.addresses import Login, with_login
from gapless.core.server.users import UserRow
from gapless.core.stream.ticks import PUBEND_BITS
from gapless.security.users import new_verifier, write_users
from gapless_spark import stream
from gapless_spark.offsets import offset_of
from gapless_spark.options import source_options
from gapless_spark.stream import Stream
from integration.broker_process import to_toml
from integration.model_kafka import ModelKafka
from integration.spark_kit import (
    OVER_BOTH_LOGS,
    LocalBroker,
    begin,
    failure,
    numbers,
    publish,
    run,
    source,
    spark_version,
    until,
)

pytestmark = [
    pytest.mark.timeout(900),  # a Java machine starts, and each query starts processes: minutes on a busy machine
    pytest.mark.filterwarnings("default"),  # PySpark's own
]


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


@OVER_BOTH_LOGS
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


@OVER_BOTH_LOGS
def test_a_batch_without_a_subscription_reads_through_temporary_ones_and_leaves_none(spark: Any, url: str) -> None:
    publish(url, range(100))
    reader = spark.read.format("gapless").options(brokers=url, topics="t", selector="n >= 40", minPartitions=4)

    frame = reader.load()

    assert sorted(int(row.payload) for row in frame.collect()) == list(range(40, 100))
    assert sorted(int(row.payload) for row in frame.collect()) == list(range(40, 100)), "each action reads anew"
    with gapless.sync.connect(url) as connection:
        assert connection.subscriptions() == []


def test_a_batch_of_nothing_is_empty(spark: Any, url: str) -> None:
    """Spark has a task all the same, and nothing for it."""
    assert source(spark.read, url, "all").load().count() == 0


def test_edges_of_tasks_may_stand_where_the_broker_was_down(spark: Any, tmp_path: Path) -> None:
    """No tick of that time is a position. All is read all the same, by many tasks, and with a limit in ticks."""
    with LocalBroker(tmp_path) as broker:
        publish(broker.url, range(10))
        broker.stop()
        time.sleep(1)
        broker.start()
        publish(broker.url, range(10, 20))
        frame = source(spark.read, broker.url, "all", minPartitions=20, includeSilence="true").load()
        rows = frame.orderBy("tick").collect()
        assert [int(row.payload) for row in rows if row.kind == "event"] == list(range(20))

        limited = source(
            spark.readStream, broker.url, "s", startingOffsets="earliest", maxTicksPerTrigger=1 << 30
        ).load()
        query = begin(limited, tmp_path / "checkpoint", tmp_path / "rows")
        until(lambda: numbers(spark, tmp_path / "rows") == list(range(20)), "all, in small batches")
        query.stop()


@OVER_BOTH_LOGS
def test_a_stream_goes_on_from_its_checkpoint(spark: Any, url: str, tmp_path: Path) -> None:
    """Each event once, over three runs of which one finds nothing."""
    target = tmp_path / "rows"
    frame = source(spark.readStream, url, "etl", startingOffsets="earliest", selector="n >= 10").load()
    found = []
    for part in (range(50), range(0), range(50, 80)):
        if part:
            publish(url, part)
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


def test_a_batch_reads_what_its_filters_leave(spark: Any, url: str) -> None:
    """The same rows as without, of fewer ticks."""
    if spark_version() < (4, 1):
        with pytest.raises(Exception, match=r"this Spark hands over no filters; 4\.1 does"):
            source(spark.read, url, "all", pushdown="true").load().collect()
        return
    receipts = publish(url, range(100))
    edge = receipts[60].tick
    query = f"tick > {edge} AND pubend = '{receipts[0].pubend}' AND topic LIKE 't%' AND key IN ('k1', 'k70', 'k80')"
    assert [row.key for row in source(spark.read, url, "all").load().where(query).orderBy("tick").collect()] == [
        "k70",
        "k80",
    ]
    with pushdown(spark):
        pushed = source(spark.read, url, "all", pushdown="true").load()
        assert [row.key for row in pushed.where(query).orderBy("tick").collect()] == ["k70", "k80"]
        assert pushed.where("published_at > '2020-01-01'").count() == 100
        assert pushed.where("published_at < '2020-01-01'").count() == 0
        assert pushed.where("kind = 'event' AND tick IS NOT NULL").count() == 100


def test_silence_is_rows_where_it_is_asked_for(spark: Any, url: str) -> None:
    """With it, rows stand one behind the other without a hole from the first event on."""
    receipts = publish(url, range(10))
    publish(url, range(10, 20))
    frame = source(spark.read, url, "s", selector="n < 2 OR n > 17", includeSilence="true").load()
    found = frame.orderBy("tick").collect()

    assert [int(row.payload) for row in found if row.kind == "event"] == [0, 1, 18, 19]
    assert [row.kind for row in found if receipts[0].tick <= row.tick][:4] == ["event", "event", "silence", "event"]
    steps = [(after.tick_from - before.tick) >> PUBEND_BITS for before, after in pairwise(found)]
    assert max(steps) <= 1, "no tick that the pubend could have used is left out"


def test_over_kafka_the_rows_have_the_times_of_the_records(spark: Any, tmp_path: Path) -> None:
    """In a batch that names nothing; a filter on them leaves the same rows, and silences account for every record."""
    times = {n: datetime(2026, 3, 1, 12, n ^ 1, tzinfo=timezone.utc) for n in range(10)}  # not in the order of offsets
    with ModelKafka(t=2) as kafka:
        for n, time_of_it in times.items():
            kafka.append("t", [b"%d" % n], at=round(1000 * time_of_it.timestamp()), partition=n % 2)
        section = {"phb.kafka": [kafka.section("t")], "phb": {"pubends": []}}
        with LocalBroker(tmp_path, kafka, **section) as broker:
            until(lambda: heads_of(broker.url) == [5, 5], "both partitions")
            reader = spark.read.format("gapless").options(brokers=broker.url, topics="t")
            rows = reader.load().selectExpr("cast(string(payload) as int) n", "unix_millis(published_at) at").collect()
            assert {row.n: row.at for row in rows} == {n: 1000 * at.timestamp() for n, at in times.items()}
            assert len(rows) == len(times)

            chosen = reader.options(selector="n = '2' OR n = '7'", includeSilence="true").load()
            ranges = chosen.selectExpr("pubend", "tick_from", "tick").collect()
            assert sum(row.tick - row.tick_from + 1 for row in ranges) == len(times), "no record is in no row"
            if spark_version() < (4, 1):
                return
            with pushdown(spark):
                later = reader.options(selector="", includeSilence="false", pushdown="true").load()
                left = later.where("published_at >= timestamp'2026-03-01 12:05:00Z'").collect()
                assert sorted(int(row.payload) for row in left) == [4, 6, 7, 8, 9]


def heads_of(url: str) -> list[int]:
    with gapless.sync.connect(url) as connection:
        return list(connection.heads().ticks.values())


@contextmanager
def pushdown(spark: Any) -> Iterator[None]:
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.unset(name)


@OVER_BOTH_LOGS
def test_the_lag_and_what_a_query_observes(spark: Any, broker: LocalBroker, tmp_path: Path) -> None:
    """The recipes of the handbook: seconds behind, and how many gaps there were in a batch."""
    from pyspark.sql.functions import expr

    from gapless_spark import LagListener

    heard: list[Any] = []
    listener = LagListener(heard.extend)
    spark.streams.addListener(listener)
    try:
        publish(broker.url, range(10))
        limit = {"maxEventsPerTrigger": 5} if spark_version() >= (4, 2) else {}
        frame = source(spark.readStream, broker.url, "etl", startingOffsets="earliest", **limit).load()
        counted = frame.observe("gapless", expr("count(1) AS rows"), expr("count_if(kind = 'gap') AS gaps"))
        query = run(counted, tmp_path, path=str(tmp_path / "rows"))
        until(lambda: heard and sum(1 for lag in heard) >= len(query.recentProgress), "the listener to hear of it")
    finally:
        spark.streams.removeListener(listener)

    observed = [progress.observedMetrics["gapless"] for progress in query.recentProgress if progress.numInputRows]
    assert [(row.rows, row.gaps) for row in observed] == ([(5, 0), (5, 0)] if limit else [(10, 0)])
    mine = [lag for lag in heard if (lag.pubend.startswith("t.")) == (broker.kafka is not None)]
    if broker.kafka is not None:
        assert mine[0].seconds in {None, 0}, "records have no age"
    elif limit:
        assert mine[0].seconds is not None
        assert mine[-1].seconds is not None
        assert 0 <= mine[-1].seconds < 30, "silence goes on while Spark writes what there was"
    else:
        assert mine[0].seconds in {None, 0}, "Spark hardly says how far it could go"
    assert numbers(spark, tmp_path / "rows") == list(range(10))


def test_a_query_ends_whose_principal_loses_the_right(spark: Any, tmp_path: Path) -> None:
    """The subscription stays where the query was: with the right given back, the next one goes on from there."""
    write_users(tmp_path / "users", {"spark": UserRow(new_verifier("pw"), (), 1)})
    (tmp_path / "password").write_text("pw\n", "utf-8")
    rules = tmp_path / "acl.toml"

    def give(*actions: str) -> None:
        table = {"who": ["spark"], "actions": list(actions), "topics": ["t"], "client_ids": ["*"]}
        rules.write_text(to_toml({"allow": [table]}), "utf-8")

    every = "publish", "subscribe", "consume"
    give(*every)
    auth = [{"plugin": "scram", "users": str(tmp_path / "users"), "delays": False}]
    with LocalBroker(tmp_path, auth=auth, acl={"file": str(rules)}) as broker:
        login = {"user": "spark", "passwordFile": str(tmp_path / "password")}
        url = with_login(broker.url, Login("spark", str(tmp_path / "password"), ""))
        publish(url, range(10))
        frame = source(spark.readStream, broker.url, "s", startingOffsets="earliest", **login).load()
        target = tmp_path / "rows"
        query = begin(frame, tmp_path / "checkpoint", target)
        until(lambda: numbers(spark, target) == list(range(10)), "the first events")

        give("publish", "consume")
        said = failure(query)
        assert "AuthorizationError" in said
        assert "principal 'spark' may not subscribe to 't'" in said

        give(*every)
        until(lambda: may_consume(url), "the rules")
        publish(url, range(10, 20))
        run(frame, tmp_path, path=str(target))
        assert numbers(spark, target) == list(range(20))


def may_consume(url: str) -> bool:
    """Whether the rules that count let `spark` consume again."""
    try:
        with gapless.sync.connect(url) as connection:
            connection.heads("s")
    except AuthorizationError:
        return False
    return True


def test_what_is_wrong_is_said_where_it_is_asked_for(spark: Any, url: str) -> None:
    with pytest.raises(Exception, match=r"there is no option gapless\.subscriptoin; did you mean subscription"):
        source(spark.read, url, "s").option("gapless.subscriptoin", "s").load().collect()
    with pytest.raises(Exception, match="there is no column n int"):
        source(spark.read, url, "s").schema("n int").load().collect()
    with pytest.raises(Exception, match="a sink needs the column payload"):
        spark.range(1).selectExpr("'t' as topic").write.format("gapless").mode("append").option("brokers", url).save()
