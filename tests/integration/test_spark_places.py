"""What a query of Spark's asks of brokers, without Spark: over an own log and over Kafka, at home and elsewhere."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.core.client import Delivery, Gap
from gapless_spark.batch import bounds, parts_at_home
from gapless_spark.offsets import offset_of
from gapless_spark.options import SourceOptions, source_options
from gapless_spark.planning import plan
from gapless_spark.stream import Stream
from gapless_spark.stream import ranges as ranges_between
from integration.broker_process import to_toml
from integration.model_kafka import ModelKafka
from integration.networks_in_process import free_addresses
from integration.spark_kit import OVER_BOTH_LOGS, LocalBroker, publish, until

pytestmark = pytest.mark.timeout(120)
AWAY = 2.0
"""Seconds for which a broker is away that comes back."""


def options(*brokers: LocalBroker, streaming: bool = False, **more: str) -> SourceOptions:
    addresses = ",".join(broker.url.partition("://")[2] for broker in brokers)
    return source_options({"brokers": addresses, "topics": "t", **more}, streaming=streaming)


def batch(given: SourceOptions) -> list[Any]:
    """What a batch query reads: the numbers of events, and gaps."""
    start, end, _ = bounds(given, ask_timed=False)
    found: list[Any] = []
    for each in plan(start.ticks, end.ticks, {}, given.min_partitions):
        whole = start.ticks.get(each.pubend, 0), end.ticks[each.pubend]
        for part in parts_at_home(given, str(start), each.pubend, (each.start, each.end), whole):
            found += items(part)
    return found


def items(part: Delivery | Gap) -> list[Any]:
    return [part] if isinstance(part, Gap) else [int(bytes(event.body)) for event in part.events()]


def between(stream: Stream, start: gapless.CheckpointToken, end: gapless.CheckpointToken) -> list[int]:
    found: list[int] = []
    for each in ranges_between(offset_of(start), offset_of(end), 0):
        with stream.connected().read_range(start, each.pubend, each.start, each.end) as reader:
            found += [int(bytes(event.body)) for event in reader]
    return found


# ------------------------------------------------------------------------------------------------ where it begins


def test_a_batch_over_kafka_has_what_was_there_before_the_broker(tmp_path: Path) -> None:
    """And no less than a subscription from the earliest; after retention, what is left; after an election, all."""
    pytest.importorskip("aiokafka")
    with ModelKafka(t=2) as kafka:
        kafka.append("t", [b"%d" % n for n in range(10)])
        kafka.append("t", [b"%d" % n for n in range(10, 20)], partition=1)
        with LocalBroker(tmp_path, kafka, **{"phb": {"pubends": []}, "phb.kafka": [kafka.section("t")]}) as broker:
            until(lambda: len(pubends(broker)) == 2, "both partitions")
            assert sorted(batch(options(broker))) == list(range(20))
            assert sorted(batch(options(broker, subscription="all"))) == list(range(20))
            assert sorted(batch(options(broker, minPartitions="6"))) == list(range(20))
            assert batch(options(broker, startingOffsets="latest")) == []

            kafka.elect("t")
            kafka.append("t", [b"20"])
            kafka.remove_before("t", 4)
            until(lambda: newest(broker, "t.0") > 1 << 44, "the record behind the election")
            assert sorted(batch(options(broker))) == [*range(4, 21)]


def test_a_batch_over_kafka_may_begin_at_a_time(tmp_path: Path) -> None:
    pytest.importorskip("aiokafka")
    with ModelKafka(t=1) as kafka:
        for n in range(10):
            kafka.append("t", [b"%d" % n], at=1_750_000_000_000 + 60_000 * n)
        with LocalBroker(tmp_path, kafka, **{"phb": {"pubends": []}, "phb.kafka": [kafka.section("t")]}) as broker:
            until(lambda: len(pubends(broker)) == 1, "the partition")
            assert batch(options(broker, startingTimestamp="2025-06-15T15:13:00Z")) == [7, 8, 9]


def test_a_batch_after_an_early_release_begins_with_what_is_left(tmp_path: Path) -> None:
    """As a subscription from the earliest: nobody has the rest, and that is no gap of a query that begins."""
    early: dict[str, Any] = {
        "phb": {"pubends": [{"name": "default", "max_retain_seconds": 1.0}]},
        "shb": {"catchup_bytes": 0},
    }
    with LocalBroker(tmp_path, **early) as broker:
        with gapless.sync.connect(broker.url, client_id="x") as connection:
            connection.attach("absent", "t", start="earliest")
        lost = publish(broker.url, range(5))
        until(lambda: all(info.lost >= lost[-1].tick for info in pubends(broker)), "the release")
        broker.stop()
        broker.sections = {"shb": early["shb"]}  # what follows is kept, however slow the machine
        broker.start()
        publish(broker.url, range(5, 8))

        cases: list[dict[str, Any]] = [{}, {"subscription": "named"}, {"minPartitions": "3"}, {"failOnGap": "false"}]
        for case in cases:
            assert batch(options(broker, **case)) == [5, 6, 7], case


@OVER_BOTH_LOGS
def test_a_stream_and_a_batch_have_the_same(broker: LocalBroker) -> None:
    stream = Stream(options(broker, streaming=True, subscription="s", startingOffsets="earliest"))
    position = stream.initial()
    found: list[int] = []
    for part in (range(5), range(5, 9)):
        publish(broker.url, part)
        end = stream.latest(offset_of(position), capped=False)
        found += between(stream, position, end)
        stream.commit(offset_of(end))
        position = end
    stream.stop()

    assert found == batch(options(broker)) == batch(options(broker, subscription="s")) == list(range(9))


def pubends(broker: LocalBroker) -> list[Any]:
    with gapless.sync.connect(broker.url) as connection:
        return list(connection.pubends())


def newest(broker: LocalBroker, name: str) -> int:
    (found,) = [info.newest for info in pubends(broker) if info.pubend.startswith(f"{name}@")]
    return int(found)


# ------------------------------------------------------------------------------------------------- where it reads


@contextmanager
def network(directory: Path) -> Iterator[Mapping[str, LocalBroker]]:
    """A PHB, and two SHBs that are linked to it, each a process of its own."""
    names = {"phb": ["phb"], "shb1": ["shb"], "shb2": ["shb"]}
    nodes = [
        {"name": name, "roles": roles, "address": address, "cell": name}
        for (name, roles), address in zip(names.items(), free_addresses(3), strict=True)
    ]
    file = directory / "network.toml"
    text = to_toml({"network": {"name": "net", "secret": "a secret of some length"}, "node": nodes})
    file.write_text(f'bundles = [["phb", "shb1"], ["phb", "shb2"]]\n{text}', "utf-8")
    with ExitStack() as stack:
        brokers: dict[str, LocalBroker] = {}
        for name in names:
            (directory / name).mkdir()
            sections: dict[str, Any] = {"network": {"file": str(file), "node": name}}
            brokers[name] = stack.enter_context(LocalBroker(directory / name, **sections))
        yield brokers


@contextmanager
def away(broker: LocalBroker, seconds: float = AWAY) -> Iterator[None]:
    """A broker dies, and is there again after a while."""
    broker.stop(signal.SIGKILL)
    again = threading.Timer(seconds, broker.start)
    again.start()
    yield
    again.join()


def test_a_stream_waits_for_its_home_although_another_broker_answers(tmp_path: Path) -> None:
    with network(tmp_path) as brokers:
        home, other = brokers["shb1"], brokers["shb2"]
        given = options(home, other, streaming=True, subscription="s", startingOffsets="earliest", brokerTimeout="60s")
        stream = Stream(given)
        start = stream.initial()
        publish(other.url, range(5))
        end = stream.latest(offset_of(start), capped=False)
        assert between(stream, start, end) == list(range(5))

        with away(home):
            publish(other.url, range(5, 8))
            later = stream.latest(offset_of(end), capped=False)
        while later == end:
            later = stream.latest(offset_of(end), capped=False)
        assert between(stream, end, later) == list(range(5, 8))
        stream.commit(offset_of(later))
        stream.stop()

        again = Stream(options(other, home, streaming=True, subscription="s", brokerTimeout="60s"))
        assert again.latest(offset_of(later), capped=False) == later, "its home is the second of its brokers"
        again.stop()


def test_a_stream_fails_when_its_home_was_away_for_too_long(tmp_path: Path) -> None:
    with network(tmp_path) as brokers:
        home, other = brokers["shb1"], brokers["shb2"]
        stream = Stream(options(home, other, streaming=True, subscription="s", brokerTimeout="2s"))
        start = stream.initial()
        home.stop(signal.SIGKILL)
        began = time.monotonic()

        with pytest.raises(
            TimeoutError,
            match=r"^GAPLESS_UNREACHABLE gapless://.*: not within 2 s \(brokerTimeout\); the one that answers says: ",
        ):
            while time.monotonic() < began + 60:
                stream.latest(offset_of(start), capped=False)
        assert time.monotonic() - began >= 2
        stream.stop()


def test_a_task_without_a_subscription_goes_on_elsewhere(tmp_path: Path) -> None:
    """Its temporary subscription is gone with its home, and another one begins where it had come to."""
    with network(tmp_path) as brokers:
        publish(brokers["shb1"].url, range(100))
        given = options(brokers["shb1"], brokers["shb2"], brokerTimeout="60s", arrowBatchRows="10")
        start, end, _ = bounds(given, ask_timed=False)
        ((pubend, tick),) = [(pubend, tick) for pubend, tick in end.ticks.items() if tick > start.ticks[pubend]]
        brokers["shb1"].stop(signal.SIGKILL)

        span = start.ticks[pubend], tick
        assert [item for part in parts_at_home(given, str(start), pubend, span, span) for item in items(part)] == list(
            range(100)
        )
