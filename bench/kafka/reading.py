"""What Kafka sends to a gateway, counted on its way: live, to who comes back, and for a single record."""

from __future__ import annotations

import time
from dataclasses import replace

import gapless
from bench.kafka.counting import CountedKafka, a_counted_kafka
from bench.kafka.ground import RECORD_BYTES, Filler, await_taken, gauge, log_of
from bench.peers.crew import crew
from bench.peers.sizes import Sizes
from bench.peers.system import Server
from bench.peers.systems.gateway import running_gateway
from bench.peers.works import WARM, catchup, live, selective, topic_of
from bench.processes import Broker
from bench.rounds import Figures
from gapless.cli.connecting import run as run_loop
from gapless_phb.core.gauges import READ_BYTES

GROUPS = 100
"""Consumer groups to which Kafka sends everything; more of them would be as many times more."""
KIB = 1 << 10
LARGE = 1000 * KIB
SIZES = {"16_kib": 16 * KIB, "1_mb": LARGE}
"""Of batches in which one record is wanted."""
APART = {"16_kib": 8, "1_mb": 1}
"""Every so many batches one has a wanted record: ranges that lie nearer than 64 KB are read together."""
ALONE = "alone"
LITTLE_MEMORY = "\n[shb]\ncatchup_bytes = 3_000_000\n"
"""Of the gateway for what was read before, so that who comes back is not served from there."""


def run(sizes: Sizes, alone: int) -> dict[str, Figures]:
    """`alone`: how many single records are wanted of each size of batches."""
    topics = [WARM, topic_of("selective"), topic_of("catchup"), *(f"{ALONE}-{name}" for name in SIZES)]
    with (
        a_counted_kafka(topics) as kafka,
        running_gateway(kafka.counter.address, topics, kafka.directory, LITTLE_MEMORY, publish=False) as broker,
    ):
        address = f"{broker.url} {kafka.server.address}"
        pair = Server(address, (broker.pid, *kafka.server.pids))
        with crew("gapless-on-kafka", address, WARM, kafka.directory, sizes.limit_seconds) as hands:
            live(pair, hands, replace(sizes, events=1_000, subscribers=10))
        found = {
            "live": of_live(kafka, broker, pair, sizes),
            "pass": of_catchup(kafka, pair, sizes),
            **{f"alone_{name}": of_single(kafka, broker, name, alone) for name in SIZES},
        }
    with a_counted_kafka([]) as kafka:
        found["live"][f"ratio_sent_to_log_for_each_of_{GROUPS}_consumer_groups"] = of_groups(kafka, sizes)
    return found


def of_live(kafka: CountedKafka, broker: Broker, pair: Server, sizes: Sizes) -> Figures:
    """1,000 subscribers of 1 %, connected while records come."""
    sent, topic = kafka.counter.sent, topic_of("selective")
    with crew("gapless-on-kafka", pair.address, topic, kafka.directory, sizes.limit_seconds) as hands:
        figures = selective(pair, hands, sizes)
        sent = kafka.counter.sent - sent
    size, _ = log_of(kafka.directory, topic)
    return {
        "subscribers": sizes.selective_subscribers,
        "log_bytes": size,
        "sent_bytes": sent,
        "ratio_sent_to_log": sent / size,
        "read_bytes": gauge(broker, READ_BYTES, topic),
        "deliveries_per_second": figures["deliveries_per_second"],
    }


def of_catchup(kafka: CountedKafka, pair: Server, sizes: Sizes) -> Figures:
    """100 subscribers of 25 % that come back: how often their log is fetched for all of them, besides following it."""
    sent, topic = kafka.counter.sent, topic_of("catchup")
    with crew("gapless-on-kafka", pair.address, topic, kafka.directory, sizes.limit_seconds) as hands:
        figures = catchup(pair, hands, sizes)
        sent = kafka.counter.sent - sent
    size, batches = log_of(kafka.directory, topic)
    again = sent - size  # it was followed once
    return {
        "subscribers": sizes.subscribers,
        "log_bytes": size,
        "log_batches": batches,
        "sent_bytes": again,
        "ratio_sent_to_log": again / size,
        "deliveries_per_second": figures["deliveries_per_second"],
    }


def of_single(kafka: CountedKafka, broker: Broker, size: str, count: int) -> Figures:
    """What a wanted record costs that lies far from all others, for one subscriber who comes back."""
    return run_loop(_single(kafka, broker, f"{ALONE}-{size}", SIZES[size] // RECORD_BYTES, APART[size], count))


async def _single(kafka: CountedKafka, broker: Broker, topic: str, per_batch: int, apart: int, count: int) -> Figures:
    async def visit(wanted: int) -> None:
        async with (
            gapless.connect(broker.url, client_id=topic) as connection,
            connection.session() as session,
            session.subscribe(topic, name="one", selector="origin = 'yes'") as subscription,
        ):
            while wanted:
                await anext(subscription)
                wanted -= 1

    await visit(0)
    filler = await Filler.of(kafka.server.address, topic)
    for _ in range(count):
        await filler.fill(1, per_batch, wanted=(per_batch // 2,))
        await filler.fill(apart - 1, per_batch)
    await filler.connection.close()
    await_taken(broker, topic, filler.count)
    sent, cpu, began = kafka.counter.sent, broker.cpu_seconds(), time.perf_counter()
    await visit(count)
    seconds, used, sent = time.perf_counter() - began, broker.cpu_seconds() - cpu, kafka.counter.sent - sent
    return {
        "wanted": count,
        "sent_bytes_per_record": sent / count,
        "gateway_cpu_ms_per_record": 1e3 * used / count,
        "records_per_second": count / seconds,
    }


def of_groups(kafka: CountedKafka, sizes: Sizes) -> float:
    """How many times the log Kafka sends to each of some consumer groups that want 1 %."""
    address, topic = kafka.counter.address, topic_of("selective")
    sent, few = kafka.counter.sent, replace(sizes.portion(0.04), selective_subscribers=GROUPS)
    with crew("kafka", address, topic, kafka.directory, sizes.limit_seconds) as hands:
        selective(Server(address, kafka.server.pids), hands, few)
        sent = kafka.counter.sent - sent
    size, _ = log_of(kafka.directory, topic)
    return sent / size / GROUPS
