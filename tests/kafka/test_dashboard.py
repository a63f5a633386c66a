"""Every figure of the dashboard, with every label that it asks for, in scrapes of brokers that have something to tell.

A gateway to a real Kafka whose topic is made anew, a tree of three nodes, and a broker whose disk is full.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

import gapless
from architecture.queries import SCRAPED, of_dashboard
from gapless.node.node import Node
from gapless_phb.core.foreign_log.followed import END
from gapless_testing.kafka import KafkaCluster
from integration.broker_process import bounded, until
from integration.nodes_in_process import running_node
from integration.tree_of_brokers import Tree
from kafka_front import consume, gateway, given, given_of, pubend_of, session_at
from kafka_kit import KafkaLog

pytestmark = pytest.mark.timeout(120)

OBSERVED = {"address": "127.0.0.1:0"}
NODES = {"phb": ["phb"], "ib": [], "shb": ["shb"]}


async def scraped(client: httpx.AsyncClient, url: str) -> dict[str, set[str]]:
    """The labels of each series of a broker."""
    text = (await client.get(f"{url}/metrics")).raise_for_status().text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for row in family.samples:
            found.setdefault(row.name, set()).update(row.labels)
    return found


async def at_a_gateway(stack: AsyncExitStack, kafka: KafkaCluster, log: KafkaLog) -> Node:
    """Events of Kafka's own producers and of ours, a consumer, and a topic that is made anew under it."""
    name = log.topic.name
    node = await stack.enter_async_context(
        gateway(kafka, {"name": name, "publish": True}, sections={"observe": OBSERVED})
    )
    connection, session = await stack.enter_async_context(session_at(node))
    first = await pubend_of(connection, name)
    subscription = await stack.enter_async_context(consume(session, name, "all", start="earliest"))
    await log.publish(b"theirs")
    await bounded(session.publisher(name).send(b"ours"))
    await given(subscription, first, 2)
    await kafka.delete_topic(name)
    await kafka.create_topic(name, retention_ms=-1)
    async with KafkaLog(kafka, name) as anew:
        await anew.publish(b"new")
    second = await pubend_of(connection, name, first)
    await bounded(session.publisher(name).send(b"ours"))
    await given_of(subscription, {first: END, second: 2})
    return node


async def at_a_full_disk(stack: AsyncExitStack, client: httpx.AsyncClient, directory: Path) -> Node:
    """A publisher that has to wait, and somebody who is no client."""
    node = await stack.enter_async_context(running_node(directory, observe=OBSERVED, node={"min_free_bytes": 1 << 50}))
    connection = await stack.enter_async_context(gapless.connect(node.url))
    session = await stack.enter_async_context(connection.session())
    waiting = asyncio.create_task(session.publisher("t").send(b"x"))
    waiting.add_done_callback(asyncio.Task.exception)  # in the end nobody knows what became of it
    await client.get(node.url.replace("gapless", "http", 1))
    await until(lambda: bool(node.alarms()), "an alarm")
    return node


async def in_a_tree(stack: AsyncExitStack, directory: Path) -> Tree:
    """An event that goes all the way."""
    nodes = Tree(directory, NODES, pairwise(NODES), "delta")
    stack.push_async_callback(nodes.kill, *NODES)
    for node in nodes.nodes.values():
        node.sections["observe"] = OBSERVED
    await asyncio.gather(*(node.start() for node in nodes.nodes.values()))
    connection = await stack.enter_async_context(gapless.connect(nodes.nodes["shb"].url, client_id="desk"))
    session = await stack.enter_async_context(connection.session())
    async with session.subscribe("t", name="all", start="earliest") as subscription:
        await bounded(session.publisher("t").send(b"x"), 45)
        await bounded(anext(subscription), 45)
    return nodes


async def test_every_figure_of_the_dashboard_is_told(kafka: KafkaCluster, log: KafkaLog, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=20))
        at_kafka, full, nodes = await asyncio.gather(
            at_a_gateway(stack, kafka, log),
            at_a_full_disk(stack, client, tmp_path / "full"),
            in_a_tree(stack, tmp_path),
        )
        urls = [at_kafka.observe_url, full.observe_url, *(node.observe for node in nodes.nodes.values())]
        told: dict[str, set[str]] = {}
        for url in urls:
            for name, labels in (await scraped(client, url)).items():
                told.setdefault(name, set()).update(labels)

    missing = [
        (query.title, name, labels - told.get(name, set()) - SCRAPED)
        for query in of_dashboard()
        for name, labels in query.series()
        if name not in told or not labels <= told[name] | SCRAPED
    ]
    assert missing == []
