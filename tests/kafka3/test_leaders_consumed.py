"""Elections of a real Kafka with three brokers, as subscriptions of nodes are given them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

import gapless
from gapless.core.stream.ticks import Tick
from gapless_log.kafka.lineage import tick_at
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import until
from kafka3.test_leaders import NODES, state, until_in_sync, until_led_by
from kafka_front import Items, consume, gateway, given, numbered, pubend_of, session_at
from kafka_kit import KafkaLog

OLD, LOST, NEW = [
    [word + b" %d" % number for number in range(count)]
    for word, count in ((b"old", 600), (b"lost", 400), (b"new", 700))
]


SELECTORS = ("key = 'old'", "key = 'lost'", "TRUE")


async def given_to_absent(session: gapless.Session, topic: str, pubend: str, upto: Tick) -> dict[str, Items]:
    """What subscriptions that were away since the beginning are given when they come back."""
    items: dict[str, Items] = {}
    for selector in SELECTORS:
        async with consume(session, topic, f"away {selector}", selector=selector) as away:
            items[selector] = await given(away, pubend, upto)
    return items


async def unsafe_topic(kafka: KafkaCluster, name: str) -> tuple[int, int]:
    """Makes a topic of which the end can be lost. Returns its leader, and the other broker that has a copy."""
    await kafka.create_topic(
        name, replicas=2, min_insync_replicas=1, unclean_leader_election_enable=True, retention_ms=-1
    )
    made = await state(kafka, name)
    (follower,) = set(made.replicas) - {made.leader}
    return made.leader, follower


async def refused_as_ahead(session: gapless.Session, topic: str, token: gapless.CheckpointToken) -> None:
    """A subscription with this token is refused."""
    with pytest.raises(gapless.TokenAheadError):
        async with consume(session, topic, "ahead", start=token) as ahead:
            await anext(ahead)


async def cut(kafka: KafkaCluster, name: str, leader: int, follower: int) -> int:
    """Loses what the leader alone has, by an unclean election of its follower, which was killed. Returns the epoch."""
    await kafka.kill(leader)
    await kafka.restart(follower)
    await until_led_by(kafka, name, follower)
    async with KafkaLog(kafka, name, follower) as log:
        return await log.leader_epoch()


@pytest.mark.timeout(240)
async def test_a_log_that_is_cut_behind_positions_and_grows_beyond_them(kafka: KafkaCluster) -> None:
    """Two nodes over one topic. What a subscription is given of the cut depends on what it had matched, and no more."""
    name = "cut-and-grown"
    leader, follower = await unsafe_topic(kafka, name)
    async with (
        gateway(kafka, name, sections={"shb": {"catchup_bytes": 0}}) as one,
        gateway(kafka, name) as other,
        session_at(one) as (connection, here),
        session_at(other) as (its_connection, there),
        consume(here, name, "all") as all_here,
        consume(there, name, "all") as all_there,
    ):
        pubend = await pubend_of(connection, name)
        assert await pubend_of(its_connection, name) == pubend
        for selector in SELECTORS:
            async with consume(here, name, f"away {selector}", start="earliest", selector=selector):
                pass
        async with KafkaLog(kafka, name, leader) as log:
            before = await log.leader_epoch()
            await log.publish_at([(1, body) for body in OLD], key=b"old")
            given_here, given_there = await given(all_here, pubend, tick_at(before, 300)), []
            early = all_here.token
            await kafka.kill(follower)
            await until_in_sync(kafka, name, leader)
            alone = await log.leader_epoch()
            await log.publish_at([(1, body) for body in LOST], key=b"lost")
            end = tick_at(alone, 1000)
        given_here += await given(all_here, pubend, end)
        given_there += await given(all_there, pubend, end)
        late = all_there.token
        async with consume(there, name, "before", start=early) as goes_on:
            of_before = await given(goes_on, pubend, end)

        now = await cut(kafka, name, leader, follower)
        async with KafkaLog(kafka, name, follower) as log:
            await log.publish_at([(1, body) for body in NEW], key=b"new")
        end = tick_at(now, 1300)

        given_here += await given(all_here, pubend, end)
        given_there += await given(all_there, pubend, end)
        await refused_as_ahead(here, name, late)
        await refused_as_ahead(there, name, late)
        of_away = await given_to_absent(here, name, pubend, end)
        async with consume(there, name, "after", start=early) as goes_on:
            of_after = await given(goes_on, pubend, end)

    old, lost, new = numbered(0, *OLD, epoch=before), numbered(600, *LOST, epoch=alone), numbered(600, *NEW, epoch=now)
    assert given_here == given_there == old + lost + new
    assert of_before == old[300:] + lost
    assert of_after == old[300:] + new
    end_of_cut = tick_at(now, 600)  # no position stands in a void
    assert of_away == {
        "key = 'old'": old,
        "key = 'lost'": [(0, end_of_cut, "lost by the log")],
        "TRUE": [*old, (tick_at(before, 600), end_of_cut, "lost by the log"), *new],
    }


KILLS = 10
PARTS = 4


@pytest.mark.timeout(900)
async def test_ten_kills_of_the_leader_cost_no_subscription_anything(kafka: KafkaCluster) -> None:
    """A stranger goes on producing meanwhile. In the end every subscription is exact, and no alarm is left."""
    name = "killed-leaders"
    await kafka.create_topic(name)
    topic = {"name": name, "types": {"number": "int"}}
    selectors = {"all": "TRUE", **{f"part {part}": f"part = '{part}'" for part in range(PARTS)}}
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(gateway(kafka, topic))
        connection, session = await stack.enter_async_context(session_at(node))
        await pubend_of(connection, name)
        taken: dict[str, list[object]] = {each: [] for each in (*selectors, "comes and goes")}
        for each, selector in selectors.items():
            consumed = session.subscribe(name, name=each, selector=selector)
            subscription = await stack.enter_async_context(consumed)
            await stack.enter_async_context(running(take(subscription, taken[each])))
        async with session.subscribe(name, name="comes and goes"):
            pass
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, enable_idempotence=True, acks="all") as producer:
            sent = Sent(producer, name)
            async with running(sent.go_on()):
                for _ in range(KILLS):
                    leader = (await state(kafka, name)).leader
                    await kafka.kill(leader)
                    await until_led_by(kafka, name, *(node for node in NODES if node != leader))
                    await sent.until_more(200)
                    await kafka.restart(leader)
                    await until_in_sync(kafka, name, *NODES)
                    async with session.subscribe(name, name="comes and goes") as again:
                        taken["comes and goes"] += [int((await anext(again)).body) for _ in range(100)]
                        await again.acknowledge()
                await sent.stop()
        async with session.subscribe(name, name="comes and goes") as again:
            while len(taken["comes and goes"]) < sent.count:
                taken["comes and goes"].append(int((await anext(again)).body))
        await until(lambda: sum(map(len, taken.values())) >= 3 * sent.count, "the last events")
        left = [(alarm.code, alarm.text) for alarm in node.alarms() if not alarm.over]

    everything = list(range(sent.count))
    assert taken == {
        "all": everything,
        "comes and goes": everything,
        **{f"part {part}": everything[part::PARTS] for part in range(PARTS)},
    }
    assert left == []


class Sent:
    """What a producer sends, one record after the other, each with its number; at most one is under way."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self.count = 0
        self._producer = producer
        self._topic = topic
        self._stops = False
        self._stopped = asyncio.Event()

    async def go_on(self) -> None:
        """Sends until it is stopped."""
        while not self._stops:
            part = ("part", b"%d" % (self.count % PARTS))
            await self._producer.send_and_wait(self._topic, b"%d" % self.count, partition=0, headers=[part])
            self.count += 1
        self._stopped.set()

    async def until_more(self, count: int) -> None:
        """Waits until so many more are sent."""
        wanted = self.count + count
        await until(lambda: self.count >= wanted, f"{count} records more", 60)

    async def stop(self) -> None:
        """Waits until the one that is under way is sent, and sends no more."""
        self._stops = True
        await self._stopped.wait()


async def take(subscription: Any, into: list[object]) -> None:
    """Takes the numbers of all that a subscription is given; a gap would be an error."""
    async for batch in subscription.batches():
        into += [int(event.body) for event in batch]


@contextlib.asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Does something beside the block; what it fails with is raised at the end."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
