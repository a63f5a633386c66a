"""What a gateway needs to take in a record: processor time, layer by layer.

The layers of the plugin run in this process, in turns. The node is a process of its own: it is stopped while the topic
is filled, and then has everything to take in at once. Its rate is what it does beside Kafka, as fast as it can.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable
from statistics import median

import gapless
from bench.kafka.ground import RECORD_BYTES, Filler, a_kafka, await_taken
from bench.peers.system import free_port
from bench.peers.systems.gateway import running_gateway
from bench.processes import Broker, medians
from gapless.cli.connecting import run as run_loop
from gapless.node.node import cycles_sought_seldom
from gapless_log.kafka.format import KafkaFormat
from gapless_log.kafka.mapping import Rules
from gapless_log.kafka.messages import UNKNOWN, Fetch, Fetched, FetchFrom
from gapless_log.kafka.records import batches, records
from gapless_log.kafka.tail import FETCH_BYTES_MAX, pieces_of

TOPIC = "intake"
BATCH = (16 << 10) // RECORD_BYTES
"""Records in a batch: 16 KB of them, which is what Kafka's producers make unless they are told otherwise."""
SUBSCRIPTIONS = 100
"""Durable, of 1 % each, and away: what is for them is noted."""
_BATCH_HEAD = struct.Struct(">qi")
_LAST_DELTA = struct.Struct(">i")

Layer = Callable[[Fetched, int], int]
"""Works on what was fetched from an offset on; returns the next offset."""


def fetched_only(fetched: Fetched, _: int) -> int:
    """Finds nothing but where it goes on."""
    data, at, end = fetched.records, 0, 0
    while at + 61 <= len(data):
        first, length = _BATCH_HEAD.unpack_from(data, at)
        if at + 12 + length > len(data):
            break
        end = first + _LAST_DELTA.unpack_from(data, at + 23)[0] + 1
        at += 12 + length
    return end


def parsed(fetched: Fetched, _: int) -> int:
    """Checks the batches, and parses their records."""
    end = 0
    for batch in batches(fetched.records):
        records(batch)
        end = batch.last + 1
    return end


_FORMAT = KafkaFormat(TOPIC)
_RULES = Rules(TOPIC).encode()


def mapped(fetched: Fetched, offset: int) -> int:
    """Makes events of them."""
    found = pieces_of(fetched.records, fetched.aborted, offset, 0)
    for piece in found.pieces:
        _FORMAT.decode(piece, _RULES)
    return found.batches[-1][0].last + 1


LAYERS: dict[str, Layer] = {"fetch": fetched_only, "parse": parsed, "map": mapped}


async def layer(filler: Filler, work: Layer) -> float:
    """Reads a whole log; returns the processor time, in seconds, of this process."""
    at, began = 0, time.process_time()
    while at < filler.count:
        start = FetchFrom(filler.topic.id, 0, at, UNKNOWN, UNKNOWN, FETCH_BYTES_MAX)
        (found,) = (await filler.connection.fetch(Fetch((start,), True, 500, 1, FETCH_BYTES_MAX))).partitions
        at = work(found, at)
    return time.process_time() - began


async def layers(filler: Filler) -> dict[str, float]:
    """What a record costs in each layer, with those before."""
    with cycles_sought_seldom():
        used = {name: await layer(filler, work) for name, work in LAYERS.items()}
    return {f"{name}_cpu_us_per_record": 1e6 * seconds / filler.count for name, seconds in used.items()}


async def subscribe(url: str) -> None:
    """All subscriptions are made, and nobody is there."""
    for number in range(SUBSCRIPTIONS):
        async with (
            gapless.connect(url, client_id=f"intake-{number}") as connection,
            connection.session() as session,
            session.subscribe(TOPIC, name="one", selector=f"percent = '{number % 100}'"),
        ):
            pass


async def take_in(broker: Broker, filler: Filler, batches_count: int) -> tuple[float, float]:
    """The node takes in so many batches; returns its processor time for a record in µs, and records a second."""
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        before = filler.count
        await filler.fill(batches_count, BATCH)
        cpu, began = broker.cpu_seconds(), time.perf_counter()
    finally:
        os.kill(broker.pid, signal.SIGCONT)
    await_taken(broker, TOPIC, filler.count)
    seconds, used = time.perf_counter() - began, broker.cpu_seconds() - cpu
    return 1e6 * used / (filler.count - before), (filler.count - before) / seconds


async def measure(kafka: str, broker: Broker, records_count: int, rounds: int) -> dict[str, float]:
    """The medians of some rounds; the first of each kind is not counted."""
    filler = await Filler.of(kafka, TOPIC)
    count = max(1, records_count // BATCH)
    bare = [await take_in(broker, filler, count) for _ in range(rounds + 1)]
    await subscribe(broker.url)
    subscribed = [await take_in(broker, filler, count) for _ in range(rounds + 1)]
    by_layer = [await layers(filler) for _ in range(rounds + 1)]
    await filler.connection.close()
    nodes = {"node": bare, f"node_with_{SUBSCRIPTIONS}_subscriptions": subscribed}
    return medians(by_layer[1:]) | {
        f"{name}_{figure}": median(each[place] for each in found[1:])
        for name, found in nodes.items()
        for place, figure in enumerate(("cpu_us_per_record", "records_per_second"))
    }


def run(records_count: int, rounds: int) -> dict[str, float]:
    """All of it, on a Kafka of its own."""
    with (
        a_kafka([TOPIC], (free_port(), free_port()), {}) as (kafka, directory),
        running_gateway(kafka.address, [TOPIC], directory, "", publish=False) as broker,
    ):
        return run_loop(measure(kafka.address, broker, records_count, rounds))
